package executor_test

import (
	"testing"
	"time"

	"github.com/tallyman-dev/tallyman"
)

// pends makes the attempt one that the backend has made, and whose runner has
// not begun.
func (s *stage) pends(b *tallyman.Blocked) {
	s.obs = tallyman.Observation{Running: true, Deaf: true, Blocked: b}
}

// falls makes an attempt that has not begun gone.
func (s *stage) falls(c *tallyman.Cause) {
	s.obs = tallyman.Observation{Gone: true, Cause: c}
}

func blocked(hopeless bool, gate tallyman.WaitReason) *tallyman.Blocked {
	return &tallyman.Blocked{Cause: tallyman.Cause{Reason: tallyman.ImagePullFailed, Message: "no such image"}, Hopeless: hopeless, Wait: gate}
}

func TestAnAttemptThatHasNotBegun(t *testing.T) {
	for name, c := range map[string]struct {
		want  string
		scene func(*stage)
	}{
		"what was made is recorded, and it waits with its backend's words": {
			"start with key@0\nmade uid@0\nwait PodPending: no such image@1\nwait no more@9",
			func(s *stage) {
				s.object = "uid"
				s.serve()
				s.at(1, func() { s.pends(blocked(false, "")) })
				s.at(9, func() { s.pends(nil) })
				s.at(10, s.works)
			},
		},
		"it waits for a gate": {
			"start with key@0\nwait Quota: no such image@1",
			func(s *stage) {
				s.serve()
				s.at(1, func() { s.pends(blocked(false, tallyman.Quota)) })
			},
		},
		"what cannot heal ends it at once": {
			"start with key@0\nkill@1\nend ImagePullFailed@1\ngone@2\nforget@2",
			func(s *stage) {
				s.serve()
				s.at(1, func() { s.pends(blocked(true, "")) })
				s.at(2, func() { s.falls(nil) })
			},
		},
		"nobody is there who could be told of a stop": {
			"start with key@0\nkill@10\nend Stopped@11\ngone@11\nforget@11",
			func(s *stage) {
				s.serve()
				s.at(1, func() { s.pends(nil) })
				s.at(10, s.stops)
				s.at(11, func() { s.falls(&tallyman.Cause{Reason: tallyman.PodDeleted}) })
				s.at(11, func() {})
			},
		},
		"one that does not begin in time is taken away": {
			"start with key@0\nkill@60\nend StartTimeout@61\ngone@61\nforget@61",
			func(s *stage) {
				s.serve()
				s.at(1, func() { s.pends(nil) })
				time.Sleep(time.Until(s.began.Add(60 * time.Second)))
				s.at(61, func() { s.falls(&tallyman.Cause{Reason: tallyman.PodDeleted}) })
				s.at(61, func() {})
			},
		},
		"one that its backend sees at work is not late": {
			"start with key@0\nend Completed@90\ngone@90\nforget@90",
			func(s *stage) {
				s.serve()
				s.at(1, func() { s.pends(nil); s.obs.StartedAt = new(s.began) })
				time.Sleep(time.Until(s.began.Add(89 * time.Second)))
				s.at(90, func() { s.falls(&tallyman.Cause{Reason: tallyman.Completed}) })
				s.at(91, func() {})
			},
		},
		"its backend cannot be asked: it waits, and nothing is done": {
			"wait NoBackend: no route@0\nstart with key@7\nwait no more@8",
			func(s *stage) {
				s.obsErr = &tallyman.Error{Code: tallyman.Unavailable, Wait: tallyman.NoBackend, Message: "no route"}
				s.serve()
				s.at(7, func() { s.obsErr = nil })
				s.at(8, func() { s.pends(nil) })
			},
		},
		"while its backend is away no time of its start passes": {
			"start with key@0\nwait NoBackend: no route@10\nwait no more@300\nkill@360\nend StartTimeout@361\ngone@361\nforget@361",
			func(s *stage) {
				s.serve()
				s.at(1, func() { s.pends(nil) })
				s.at(10, func() {
					s.obsErr = &tallyman.Error{Code: tallyman.Unavailable, Wait: tallyman.NoBackend, Message: "no route"}
				})
				s.at(300, func() { s.obsErr = nil })
				time.Sleep(time.Until(s.began.Add(360 * time.Second)))
				s.at(361, func() { s.falls(&tallyman.Cause{Reason: tallyman.PodDeleted}) })
				s.at(361, func() {})
			},
		},
		"at work its backend may be away": {
			"note adopted@0",
			func(s *stage) {
				s.works()
				s.serve()
				s.at(1, func() {
					s.obsErr = &tallyman.Error{Code: tallyman.Unavailable, Wait: tallyman.NoBackend, Message: "no route"}
				})
				s.at(30, func() {})
			},
		},
		"a long time, and that is noted": {
			"note adopted@0\nnote unseen@61",
			func(s *stage) {
				s.works()
				s.serve()
				s.at(1, func() {
					s.obsErr = &tallyman.Error{Code: tallyman.Unavailable, Wait: tallyman.NoBackend, Message: "no route"}
				})
				for second := range 100 {
					s.at(second+2, func() {})
				}
			},
		},
		"somebody has taken it away": {
			"note adopted@0\nend PodDeleted@5\ncompact@5\ngone@5\nforget@5",
			func(s *stage) {
				s.works()
				s.serve()
				s.at(5, func() { s.falls(&tallyman.Cause{Reason: tallyman.PodDeleted}) })
				s.at(5, func() {})
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			if s := play(t, c.want, c.scene); s.log.Len() > 0 { // the backend tells its own troubles
				t.Errorf("the log says, too:\n%s", s.log.String())
			}
		})
	}
}
