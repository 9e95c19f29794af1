package tallyman_test

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tallyman-dev/tallyman"
)

func TestALastWordFits(t *testing.T) {
	word := tallyman.LastWord{
		Attempt: "01KBCB7TMKFCGE0000000000AB-2", Cursor: 1 << 60, Undelivered: 1 << 60, At: time.Date(2026, 12, 1, 1, 2, 3, 456, time.UTC),
		Outcome: tallyman.Outcome{
			Reason: tallyman.DeadlineExceeded, ExitCode: new(143), Signal: "terminated", Started: true,
			Usage: tallyman.Usage{InputTokens: 1 << 50, OutputTokens: 1 << 50, CostUSD: 123.456789, Turns: 1 << 30},
		},
	}
	for _, message := range []string{"", "short", strings.Repeat("x", 3000), strings.Repeat("\x01", 3000), strings.Repeat("🚀\"", 1000), strings.Repeat("<", 2100)} {
		w := word
		w.Outcome.Message, w.Outcome.Result, w.Outcome.StderrTail = message, strings.Repeat("r", 5000), "tail"
		b := w.Encode()
		if len(b) > tallyman.MaxLastWord {
			t.Errorf("a message of %d bytes makes a last word of %d", len(message), len(b))
		}
		got, ok := tallyman.ParseLastWord(string(b))
		if !ok {
			t.Fatalf("it cannot be read again: %s", b)
		}
		if kept := strings.TrimSuffix(got.Outcome.Message, "…"); !strings.HasPrefix(message, kept) || message != "" && kept == "" {
			t.Errorf("of %.20q… %d bytes are left: %.20q", message, len(kept), kept)
		}
		want := word
		want.Outcome.Message = got.Outcome.Message
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
	}
}

func TestOtherWordsAreNoLastWord(t *testing.T) {
	for _, text := range []string{"", "panic: x", "{}", `{"tallyman":"x","outcome":{}}`, `{"outcome":{"reason":"Completed"}}`, `{"tallyman":1}`, `[]`} {
		if w, ok := tallyman.ParseLastWord(text); ok {
			t.Errorf("%q is taken for %+v", text, w)
		}
	}
}
