package runner

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"
	"unsafe"

	"github.com/google/go-cmp/cmp"

	"github.com/tallyman-dev/tallyman"
	"github.com/tallyman-dev/tallyman/internal/harness"
	"github.com/tallyman-dev/tallyman/internal/journal"
	"github.com/tallyman-dev/tallyman/internal/mask"
)

// newJournal is a journal in a folder of the test's.
func newJournal(t *testing.T, o journal.Options) (w *journal.Writer, dir string) {
	t.Helper()
	dir = filepath.Join(t.TempDir(), "journal")
	w, err := journal.Create(dir, journal.Header{Journal: "J", Run: testRun, Attempt: 1}, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = w.Close() })
	return w, dir
}

// testRun is this test process's own: an attempt's processes are found, and
// killed, by their attempt's name, whoever started them.
var testRun = fmt.Sprintf("01JZ%022d", os.Getpid())

// records reads a closed journal.
func records(t *testing.T, w *journal.Writer, dir string) (all []string) {
	t.Helper()
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	r, _, err := journal.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	for {
		_, rec, err := r.Next()
		if errors.Is(err, io.EOF) {
			return all
		}
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, string(rec))
	}
}

func events(t *testing.T, recs []string) []tallyman.Event {
	t.Helper()
	all := make([]tallyman.Event, len(recs))
	for i, rec := range recs {
		if err := json.Unmarshal([]byte(rec), &all[i]); err != nil {
			t.Fatalf("record %d: %v: %.200s", i+1, err, rec)
		}
	}
	return all
}

// words is a parser that uses every freedom that the contract gives it: what
// it returns shares memory with the line and with itself. A line is a list of
// words: EVENT:TEXT.
type words struct {
	harness.Parser // what is not used here
	memory         []byte
	at             time.Time // of its events; zero: when they come
	progress       harness.Progress
	said           func(tallyman.Event) // gets a copy of each event
}

func (p *words) Parse(line []byte, out *harness.Batch) {
	p.memory = append(p.memory[:0], line...)
	for word := range bytes.SplitSeq(p.memory, []byte{' '}) {
		kind, text, _ := bytes.Cut(word, []byte{':'})
		shared := view(text)
		e := tallyman.Event{Time: p.at, Type: tallyman.EventType(kind)}
		switch e.Type {
		case "delta":
			parent, text, _ := strings.Cut(shared, "/")
			out.Deltas = append(out.Deltas, tallyman.Delta{Delta: text, Type: tallyman.EventText, Parent: parent, Block: "b"})
			continue
		case tallyman.EventToolStarted, tallyman.EventToolFinished:
			e.ToolID = shared
		case tallyman.EventText:
			e.Parent, e.Text, _ = strings.Cut(shared, "/")
		default:
			e.Text = shared
		}
		if p.said != nil {
			c := e
			c.Text, c.ToolID, c.Parent = strings.Clone(e.Text), strings.Clone(e.ToolID), strings.Clone(e.Parent)
			p.said(c)
		}
		out.Events = append(out.Events, e)
	}
}

func (p *words) Stderr(line []byte, out *harness.Batch) {
	out.Events = append(out.Events, tallyman.Event{Type: tallyman.EventAgentStderr, Text: view(line)})
}

func (p *words) Close(out *harness.Batch) {
	out.Events = append(out.Events, tallyman.Event{Type: tallyman.EventText, Text: "open", Partial: true})
}

func (p *words) Progress() harness.Progress { return p.progress }

var epoch = time.Date(2026, 1, 2, 3, 4, 5, 6000, time.UTC)

// clobber overwrites the lines of a chunk, as the next read does.
func clobber(c chunk) {
	for _, line := range c.lines {
		for i := range line {
			line[i] = '#'
		}
	}
}

func TestRecordsAreWhatWasEmitted(t *testing.T) {
	w, dir := newJournal(t, journal.Options{})
	rec := newRecorder(w, func(tallyman.Delta) {})
	var want []string
	p := &words{at: epoch, said: func(e tallyman.Event) { want = append(want, string(e.AppendJSON(nil))) }}
	rec.started(epoch, p)
	rnd := rand.New(rand.NewPCG(1, 2))
	for n := range 2000 {
		var c chunk
		for range rnd.IntN(8) {
			var line []string
			for range 1 + rnd.IntN(4) {
				size := rnd.IntN(100)
				if rnd.IntN(500) == 0 {
					size = 3 << 20 // so that the memory for records is given back now and then
				}
				line = append(line, fmt.Sprintf("text:main/%d.%s", n, strings.Repeat(string(rune('a'+rnd.IntN(26))), size)))
			}
			c.lines = append(c.lines, []byte(strings.Join(line, " ")))
		}
		rec.stdout(c)
		clobber(c)
	}
	_, last := rec.look()
	if int(last) != len(want) {
		t.Errorf("the last cursor is %d after %d events", last, len(want))
	}
	got := records(t, w, dir)
	if len(got) != len(want) {
		t.Fatalf("%d records of %d events", len(got), len(want))
	}
	for i := range want {
		if got[i] != want[i] {
			t.Fatalf("record %d is %.200q, want %.200q", i+1, got[i], want[i])
		}
	}
}

func TestWhatOutlivesALineIsNotItsMemory(t *testing.T) {
	w, _ := newJournal(t, journal.Options{})
	var deltas []tallyman.Delta
	rec := newRecorder(w, func(d tallyman.Delta) { deltas = append(deltas, d) })
	rec.started(epoch, &words{})
	say := func(line string) {
		c := chunk{lines: [][]byte{[]byte(line)}}
		rec.stdout(c)
		clobber(c)
	}
	say("tool.started:one tool.started:two delta:sub/hello")
	say("tool.started:three delta:sub/world")
	say("tool.finished:two text:main/some-line")
	seen, _ := rec.look()
	var open []string
	for id := range seen.tools {
		open = append(open, id)
	}
	if len(open) != 2 || seen.tools["one"].IsZero() || seen.tools["three"].IsZero() {
		t.Errorf("open tools are %q", open)
	}
	say("tool.finished:one tool.finished:three")
	if seen, _ := rec.look(); len(seen.tools) != 0 {
		t.Errorf("still open: %v", seen.tools)
	}
	want := []tallyman.Delta{
		{Delta: "hello", Type: tallyman.EventText, Parent: "sub", Block: "b", After: 2},
		{Delta: "world", Type: tallyman.EventText, Parent: "sub", Block: "b", After: 3},
	}
	if diff := cmp.Diff(want, deltas); diff != "" {
		t.Error(diff)
	}
	if output, _ := rec.tails(); output != "some-line" {
		t.Errorf("the tail of the output is %q", output)
	}
}

const secret = "s3cret-value"

func TestNoSecretIsRecordedWhereverItStands(t *testing.T) {
	w, dir := newJournal(t, journal.Options{})
	var deltas strings.Builder
	rec := newRecorder(w, func(d tallyman.Delta) { deltas.WriteString(d.Delta) })
	rec.mask = mask.New([]mask.Secret{{Name: "KEY", Value: secret}})
	rec.started(epoch, &words{})
	for _, line := range []string{
		"text:main/a-" + secret + " text:main/" + secret,
		// In pieces, with the text of another agent in between.
		"delta:main/<s3c", "delta:sub/x text:sub/other", "delta:main/ret-", "text:sub/other",
		"delta:main/value> delta:sub/<s3cre", "delta:sub/t-value>",
	} {
		rec.stdout(chunk{lines: [][]byte{[]byte(line)}})
	}
	rec.stderrLines(chunk{lines: [][]byte{[]byte("oops " + secret)}})
	head := bytes.Repeat([]byte("x"), 100)
	rec.stdout(chunk{lines: [][]byte{nil}, cuts: map[int]*tallyman.RawCut{0: {Bytes: 1, Head: append(head, secret[:7]...), Tail: []byte(secret[5:] + "y")}}})
	rec.event(tallyman.Event{Type: tallyman.EventNotice, Text: secret, Data: data(map[string]string{"k": secret})})
	rec.closeStream()
	all := strings.Join(records(t, w, dir), "\n")
	output, stderr := rec.tails()
	for place, text := range map[string]string{"journal": all, "deltas": deltas.String(), "output": output, "stderr": stderr} {
		for _, part := range []string{secret, "s3cret", "ret-value", "t-value"} {
			if strings.Contains(text, part) {
				t.Errorf("%q is in the %s: %.500s", part, place, text)
			}
		}
	}
	if got := deltas.String(); strings.Count(got, "[KEY masked]") != 2 {
		t.Errorf("the deltas are %q", got)
	}
	if stderr != "oops [KEY masked]" {
		t.Errorf("the tail of standard error is %q", stderr)
	}
}

func TestALongLineIsKeptAsItsEnds(t *testing.T) {
	w, dir := newJournal(t, journal.Options{})
	rec := newRecorder(w, func(tallyman.Delta) {})
	rec.started(epoch, &words{})
	cut := &tallyman.RawCut{Bytes: 99, SHA256: "abc", Head: []byte("h"), Tail: []byte("t")}
	rec.stdout(chunk{lines: [][]byte{[]byte("text:main/before"), nil, []byte("text:main/after")}, cuts: map[int]*tallyman.RawCut{1: cut}})
	rec.stderrLines(chunk{lines: [][]byte{nil}, cuts: map[int]*tallyman.RawCut{0: cut}})
	got := events(t, records(t, w, dir))
	if len(got) != 4 || got[0].Text != "before" || got[2].Text != "after" || got[1].Type != tallyman.EventNotice || got[3].Type != tallyman.EventAgentStderr {
		t.Fatalf("got %+v", got)
	}
	for _, i := range []int{1, 3} {
		if diff := cmp.Diff(cut, got[i].RawCut); diff != "" || got[i].Name != "line_too_long" {
			t.Errorf("event %d, %s:\n%s", i+1, got[i].Name, diff)
		}
	}
}

func TestTheTailsAreTheLastLines(t *testing.T) {
	var many []string
	for i := range 120 {
		many = append(many, fmt.Sprint("line ", i))
	}
	wide := strings.Repeat("é", tailWidth)
	for name, c := range map[string]struct {
		add  []string
		want string
	}{
		"nothing":                               {nil, ""},
		"one line":                              {[]string{"a"}, "a"},
		"empty texts say nothing":               {[]string{"", "a", ""}, "a"},
		"an empty line stays":                   {[]string{"a\n\nb\n"}, "a\n\nb"},
		"the last fifty of many":                {many, strings.Join(many[70:], "\n")},
		"of one long text likewise":             {[]string{strings.Join(many, "\n")}, strings.Join(many[70:], "\n")},
		"over several texts":                    {[]string{strings.Join(many[:100], "\n"), strings.Join(many[100:], "\n")}, strings.Join(many[70:], "\n")},
		"a wide line is cut between characters": {[]string{wide, "x" + wide}, strings.Repeat("é", tailWidth/2) + "…\nx" + strings.Repeat("é", tailWidth/2-1) + "…"},
	} {
		var tail tail
		for _, text := range c.add {
			tail.add(text)
		}
		if diff := cmp.Diff(c.want, tail.String()); diff != "" {
			t.Errorf("%s:\n%s", name, diff)
		}
	}
}

func TestAJournalThatCannotBeWrittenIsToldOnce(t *testing.T) {
	var broken atomic.Bool
	full := errors.New("no space left")
	w, dir := newJournal(t, journal.Options{Fault: func(op string) error {
		if op == "write" && broken.Load() {
			return full
		}
		return nil
	}})
	rec := newRecorder(w, func(tallyman.Delta) {})
	rec.started(epoch, &words{})
	cursor := rec.event(tallyman.Event{Type: tallyman.EventNotice, Text: "good"})
	if err := w.Wait(t.Context(), cursor); err != nil {
		t.Fatal(err)
	}
	broken.Store(true)
	for range 100 {
		rec.stdout(chunk{lines: [][]byte{[]byte("text:main/lost")}})
		time.Sleep(time.Millisecond)
	}
	select {
	case <-rec.failed:
	default:
		t.Fatal("nobody was told")
	}
	if !errors.Is(rec.err, full) {
		t.Errorf("the error is %v", rec.err)
	}
	_ = w.Close() // it tells the same error once more
	_, last, _, err := journal.Last(dir)
	if err != nil || last != cursor {
		t.Errorf("the journal ends at %d, want %d: %v", last, cursor, err)
	}
}

// view is b as a string that shares its memory.
func view(b []byte) string { return unsafe.String(unsafe.SliceData(b), len(b)) }
