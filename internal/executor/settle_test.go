package executor

import (
	"strings"
	"testing"
	"time"

	"github.com/tallyman-dev/tallyman"
)

func TestSettle(t *testing.T) {
	started := time.Now()
	final := func(r tallyman.Reason) *tallyman.Outcome {
		return &tallyman.Outcome{Reason: r, Message: "said the runner", Started: true}
	}
	cases := map[string]struct {
		facts  Facts
		open   bool // it has not ended
		reason tallyman.Reason
		says   string // part of the message
		not    string // no part of it
	}{
		"nothing is known: it goes on":             {facts: Facts{}, open: true},
		"it runs and a stop was asked: it goes on": {facts: Facts{StopReason: tallyman.ReasonStopped}, open: true},
		"the final event says it all":              {facts: Facts{Final: final(tallyman.Completed)}, reason: tallyman.Completed, says: "said the runner"},
		"a stop after the result changes nothing":  {facts: Facts{Final: final(tallyman.Completed), StopReason: tallyman.ReasonStopped}, reason: tallyman.Completed},
		"a stop that the runner carried out":       {facts: Facts{Final: final(tallyman.ReasonStopped), StopReason: tallyman.ReasonStopped}, reason: tallyman.ReasonStopped},
		"a limit that the runner carried out":      {facts: Facts{Final: final(tallyman.DeadlineExceeded)}, reason: tallyman.DeadlineExceeded},
		"gone without a final event":               {facts: Facts{Gone: true}, reason: tallyman.RunnerLost},
		"gone without one after a stop":            {facts: Facts{Gone: true, StopReason: tallyman.ReasonStopped, StopMessage: "stopped by x"}, reason: tallyman.ReasonStopped, says: "stopped by x"},
		"gone with a damaged journal":              {facts: Facts{Gone: true, JournalErr: "000.seg at 99: checksum"}, reason: tallyman.RunnerLost, says: "000.seg at 99"},
		"gone, and how the process ended is known": {facts: Facts{Gone: true, Process: "signal killed"}, reason: tallyman.RunnerLost, says: "signal killed"},
		"gone, and its cluster says why":           {facts: Facts{Gone: true, Process: "a-uid", Cause: &tallyman.Cause{Reason: tallyman.RunnerLost, Message: "exit code 137"}}, reason: tallyman.RunnerLost, says: "exit code 137", not: "a-uid"},
		"interrupted while it still runs":          {facts: Facts{Final: &tallyman.Outcome{Interrupted: true}}, open: true},
		"interrupted and gone":                     {facts: Facts{Final: &tallyman.Outcome{Interrupted: true}, Gone: true}, reason: tallyman.RunnerLost, says: "from outside"},
		"interrupted after a stop":                 {facts: Facts{Final: &tallyman.Outcome{Interrupted: true}, Gone: true, StopReason: tallyman.Superseded}, reason: tallyman.Superseded},
		"a final event with a made-up reason":      {facts: Facts{Final: final("Fine"), Gone: true}, reason: tallyman.RunnerLost},
		"gone before it was started, too late":     {facts: Facts{Gone: true, Late: "10m0s"}, reason: tallyman.StartTimeout, says: "10m0s"},
		"gone after it was started, late":          {facts: Facts{Gone: true, Late: "10m0s", StartedAt: &started}, reason: tallyman.RunnerLost},
		"it could not be started":                  {facts: Facts{StartErr: "no such file", StartReason: tallyman.BackendError}, reason: tallyman.BackendError, says: "no such file"},
		"it could not be started and was stopped":  {facts: Facts{StartErr: "x", StartReason: tallyman.BackendError, StopReason: tallyman.ReasonStopped}, reason: tallyman.ReasonStopped},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			s, ended := Settle(c.facts)
			if ended == c.open || s.Reason != c.reason || !strings.Contains(s.Message, c.says) || c.not != "" && strings.Contains(s.Message, c.not) {
				t.Errorf("got %v %s %q", ended, s.Reason, s.Message)
			}
		})
	}
}

func TestWhatIsNotKnownIsNeverSuccess(t *testing.T) {
	for _, stop := range []tallyman.Reason{"", tallyman.ReasonStopped} {
		for _, final := range []*tallyman.Outcome{nil, {}, {Interrupted: true}, {Reason: "Fine"}, {Result: "looks good"}} {
			for _, journal := range []string{"", "damaged"} {
				s, ended := Settle(Facts{Gone: true, StopReason: stop, Final: final, JournalErr: journal})
				if !ended || s.Reason.State() == tallyman.Succeeded {
					t.Errorf("stop %q, final %+v, journal %q: %v %s", stop, final, journal, ended, s.Reason)
				}
			}
		}
	}
}

func TestTheLastCursorIsTheFinalOneWhenNobodySaid(t *testing.T) {
	s, _ := Settle(Facts{Gone: true, Last: 42})
	if s.FinalCursor != 42 {
		t.Errorf("got %d", s.FinalCursor)
	}
	s, _ = Settle(Facts{Gone: true, Last: 42, Final: &tallyman.Outcome{Reason: tallyman.Completed}, FinalCursor: 40})
	if s.FinalCursor != 40 {
		t.Errorf("got %d", s.FinalCursor)
	}
}
