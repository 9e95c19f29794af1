package runner

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	"github.com/tallyman-dev/tallyman"
	"github.com/tallyman-dev/tallyman/internal/history"
	"github.com/tallyman-dev/tallyman/internal/journal"
)

func TestWhatTheJournalTakesHistoryTakes(t *testing.T) {
	if journal.MaxRecord != history.MaxLine {
		t.Errorf("a record may have %d bytes, an event in History %d", journal.MaxRecord, history.MaxLine)
	}
}

// Encoding makes a sign up to six times as long: a line that was read may
// give a record that the journal would not take.
func TestAnEventThatIsNoRecordKeepsItsEnds(t *testing.T) {
	w, dir := newJournal(t, journal.Options{})
	rec := newRecorder(w, func(tallyman.Delta) {})
	long := "head" + strings.Repeat("\x01", 12<<20) + "tail"
	object := []byte(`{"a":"head` + strings.Repeat("x", journal.MaxRecord) + `tail"}`)
	rec.event(tallyman.Event{Type: tallyman.EventText, Text: long})
	rec.event(tallyman.Event{Type: tallyman.EventToolStarted, Data: object})
	rec.event(tallyman.Event{Type: tallyman.EventNotice, Raw: object})
	rec.event(tallyman.Event{Type: tallyman.EventNotice, RawB64: object})
	rec.event(tallyman.Event{Type: tallyman.EventText, Text: "after"})
	if rec.err != nil {
		t.Fatal(rec.err)
	}
	all := events(t, records(t, w, dir))
	if len(all) != 5 {
		t.Fatalf("%d events", len(all))
	}
	text := all[0].Text
	if !strings.HasPrefix(text, "head") || !strings.HasSuffix(text, "tail") || !strings.Contains(text, "bytes are not kept") || len(text) > 3*keepEnds {
		t.Errorf("of the text, %d bytes are kept: %.50q", len(text), text)
	}
	if d := string(all[1].Data); !strings.Contains(d, "head") || !strings.Contains(d, "tail") || !strings.Contains(d, `"cut_bytes":67108`) {
		t.Errorf("of the data, there is %.100s", d)
	}
	for _, e := range all[2:4] {
		if e.RawCut == nil || e.RawCut.Bytes != int64(len(object)) || len(e.RawCut.Head) != keepEnds || e.Raw != nil || e.RawB64 != nil {
			t.Errorf("of the line, there is %+v", e.RawCut)
		}
	}
	if all[4].Text != "after" {
		t.Errorf("then comes %.50q", all[4].Text)
	}
}

// A line that is kept whole stays so when encoding its text would make it
// several times as long.
func TestATextThatEncodingMakesLongIsKeptAsTheRawLine(t *testing.T) {
	for name, e := range map[string]tallyman.Event{
		"text alone":     {Type: tallyman.EventText, Text: strings.Repeat("\x00", tallyman.MaxRaw)},
		"text and bytes": {Type: tallyman.EventText, Text: strings.Repeat("\uFFFD", tallyman.MaxRaw), RawB64: []byte(strings.Repeat("\xff", tallyman.MaxRaw))},
	} {
		t.Run(name, func(t *testing.T) {
			raw := e.RawB64
			if raw == nil {
				raw = []byte(e.Text)
			}
			line := appendEvent(nil, &e)
			if len(line) > maxText {
				t.Errorf("it has %d bytes", len(line))
			}
			var got tallyman.Event
			if err := json.Unmarshal(line, &got); err != nil {
				t.Fatal(err)
			}
			if !bytes.Equal(got.RawB64, raw) || len(got.Text) > 3*keepEnds || got.RawCut != nil {
				t.Errorf("%d bytes are kept of the line, %d of its text", len(got.RawB64), len(got.Text))
			}
		})
	}
}

func TestAnOutcomeAlwaysFits(t *testing.T) {
	tails := strings.Repeat(strings.Repeat("\x01", tailWidth)+"\n", tailLines)
	for name, sign := range map[string]string{"control characters": "\x01", "HTML": "<", "no UTF-8": "\xff", "a line separator": "\u2028"} {
		t.Run(name, func(t *testing.T) {
			long := strings.Repeat(sign, 20<<20/len(sign))
			structured := json.RawMessage(`"` + strings.Repeat("<", maxResult-2) + `"`)
			out := fit(tallyman.Outcome{Reason: tallyman.Completed, Result: long, Structured: structured, OutputTail: tails, StderrTail: tails})
			e := tallyman.Event{Type: tallyman.EventRunnerEnded, Data: data(out)}
			b := e.AppendJSON(nil)
			if len(b) > journal.MaxRecord {
				t.Errorf("the last record has %d bytes", len(b))
			}
			report, err := encode(tallyman.ControlReport{Facts: []tallyman.Fact{{Kind: tallyman.FactFinal, Outcome: &out}}})
			if err != nil || len(report) > 64<<20 {
				t.Errorf("the report has %d bytes: %v", len(report), err)
			}
			if !strings.Contains(out.Result, "of the result are not kept") || len(out.Result) > maxResult+100 {
				t.Errorf("of the result, %d bytes are kept without a mark", len(out.Result))
			}
		})
	}
	if out := fit(tallyman.Outcome{Result: "<a>", Structured: json.RawMessage(`{"a":"<b>"}`)}); string(data(out.Structured)) != `{"a":"<b>"}` || out.Result != "<a>" {
		t.Errorf("a short one is kept as it is: %+v", out)
	}
	if out := fit(tallyman.Outcome{Structured: make(json.RawMessage, maxResult+1)}); out.Structured != nil || !strings.HasPrefix(out.Message, "the structured result, 8388609 bytes") {
		t.Errorf("of a long document is told: %s", out.Message)
	}
}
