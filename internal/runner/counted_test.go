package runner

import (
	"testing"

	"github.com/tallyman-dev/tallyman"
	"github.com/tallyman-dev/tallyman/internal/harness"
	"github.com/tallyman-dev/tallyman/internal/journal"
)

// counting is a parser to which each line is a turn, or the result.
type counting struct{ words }

func (p *counting) Parse(line []byte, out *harness.Batch) {
	p.progress.Result = string(line) == "result"
	if !p.progress.Result {
		p.progress.Turns++
	}
	p.words.Parse([]byte("text:main/line"), out)
}

func TestWhatIsCountedIsJudgedLineByLine(t *testing.T) {
	limits := tallyman.Limits{MaxTurns: ptr(2)}
	for name, c := range map[string]struct {
		chunks [][]string
		over   bool
	}{
		"exceeded and finished in one read":     {[][]string{{"turn", "turn", "turn", "result"}}, true},
		"exceeded over several reads":           {[][]string{{"turn", "turn"}, {"turn", "result"}}, true},
		"as much as it may":                     {[][]string{{"turn", "turn", "result"}}, false},
		"the result itself is not one too many": {[][]string{{"turn", "turn"}, {"result"}}, false},
	} {
		w, _ := newJournal(t, journal.Options{})
		rec := newRecorder(w, func(tallyman.Delta) {})
		rec.overspent = func(p harness.Progress) *order { return overspent(limits, tallyman.Usage{}, p) }
		rec.started(epoch, &counting{})
		for _, lines := range c.chunks {
			var read chunk
			for _, l := range lines {
				read.lines = append(read.lines, []byte(l))
			}
			rec.stdout(read)
		}
		watch, _ := rec.look()
		if !watch.finished() || (watch.crossed != nil) != c.over {
			t.Errorf("%s: finished %v, exceeded %v", name, watch.finished(), watch.crossed)
		}
		if c.over && watch.crossed.reason != tallyman.MaxTurns {
			t.Errorf("%s: it is %s", name, watch.crossed.reason)
		}
	}
}
