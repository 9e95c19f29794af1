package cli

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tallyman-dev/tallyman"
)

func TestDecodeEventReadsWhatATranscriptShows(t *testing.T) {
	want := tallyman.Event{
		Time: time.Date(2026, 11, 30, 1, 2, 3, 4000, time.UTC), Type: tallyman.EventToolFinished, Turn: 2,
		Parent: "p\n", ToolID: "t", Name: "Bash", Text: "a\x00\"\\é\u2028", Failed: true, Partial: true,
		Usage: &tallyman.Usage{InputTokens: 1, CostUSD: 0.5}, Data: json.RawMessage(`{"a":"b"}`),
		RawB64: []byte{255, 1}, RawCut: &tallyman.RawCut{Bytes: 3, SHA256: "x", Head: []byte("h"), Tail: []byte("t")},
	}
	line := append([]byte(`{"id":"3.41",`), want.AppendJSON(nil)[1:]...)
	id, got, err := decodeEvent(line)
	if err != nil || id != (tallyman.EventID{Attempt: 3, Cursor: 41}) {
		t.Fatalf("got %v, %v", id, err)
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
	for _, bad := range []string{``, `{}`, `{"id":"x","time":"2026-11-30T01:02:03Z"}`, `{"id":"1.1","time":"now"}`} {
		if _, _, err := decodeEvent([]byte(bad)); err == nil {
			t.Errorf("%q was read", bad)
		}
	}
}
