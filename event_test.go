package tallyman_test

import (
	"encoding/json"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"github.com/tallyman-dev/tallyman"
)

func TestAnEventReadsBackAsItWasWritten(t *testing.T) {
	e := tallyman.Event{
		Time: time.Date(2026, 11, 30, 1, 2, 3, 456789000, time.UTC), Type: tallyman.EventToolFinished, Turn: 3,
		Parent: "p", ToolID: "t\"1", Name: "Bash", Text: "a\x00b\x1b[31m\r\n\t\\ é \u2028 \U0001f600", Failed: true, Partial: true,
		Usage: &tallyman.Usage{InputTokens: 5, CostUSD: 0.25, CostSource: tallyman.CostHarness},
		Data:  json.RawMessage(`{"a":[1,2]}`), Raw: json.RawMessage(`{"x":null}`), RawB64: []byte{0xff, 0xfe},
		RawCut: &tallyman.RawCut{Bytes: 9, SHA256: "ab", Head: []byte("h"), Tail: []byte("t")},
	}
	var got tallyman.Event
	if err := json.Unmarshal(e.AppendJSON(nil), &got); err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(e, got); d != "" {
		t.Error(d)
	}
}

func FuzzAppendString(f *testing.F) {
	f.Add("plain")
	f.Add("\xff\xfe\x00\x7f\"\\\n\u2028é")
	f.Fuzz(func(t *testing.T, s string) {
		b := tallyman.AppendString(nil, s)
		var got string
		if err := json.Unmarshal(b, &got); err != nil {
			t.Fatalf("%q: %v", b, err)
		}
		if want := strings.ToValidUTF8(s, "\uFFFD"); utf8.ValidString(s) && got != s || len([]rune(got)) < len([]rune(want)) {
			t.Errorf("got %q, want %q", got, s)
		}
		if strings.ContainsAny(string(b), "\n\r\x00") {
			t.Errorf("%q holds a line break or NUL", b)
		}
	})
}

func TestIDs(t *testing.T) {
	ref := tallyman.AttemptRef{RunID: "01JDZK3V7T8QW5X9Y2ABCDEFGH", Number: 12}
	if got, err := tallyman.ParseAttemptRef(ref.String()); err != nil || got != ref {
		t.Errorf("got %v, %v", got, err)
	}
	for _, bad := range []string{"", "01JDZK3V7T8QW5X9Y2ABCDEFGH", "01JDZK3V7T8QW5X9Y2ABCDEFGH-0", "../../x-1", "01JDZK3V7T8QW5X9Y2ABCDEFGH-1/.."} {
		if _, err := tallyman.ParseAttemptRef(bad); tallyman.CodeOf(err) != tallyman.Invalid {
			t.Errorf("attempt %q: %v", bad, err)
		}
	}
	for _, bad := range []string{"1", "a.1", "1.b", "-1.2", "1.2.3", "1."} {
		if _, err := tallyman.ParseEventID(bad); tallyman.CodeOf(err) != tallyman.Invalid {
			t.Errorf("event %q: %v", bad, err)
		}
	}
	if got, err := tallyman.ParseEventID("3.18446744073709551615"); err != nil || got.String() != "3.18446744073709551615" {
		t.Errorf("got %v, %v", got, err)
	}
}

func TestTheSameRequestHasTheSameDigestWhateverItsKey(t *testing.T) {
	a := tallyman.Request{Agent: "demo", Prompt: "hi", Labels: map[string]string{"a": "1", "b": "2"}, Key: "k1"}
	b := tallyman.Request{Agent: "demo", Prompt: "hi", Labels: map[string]string{"b": "2", "a": "1"}, Key: "k2"}
	if a.Digest() != b.Digest() {
		t.Error("key or order of labels changed the digest")
	}
	a.Source, b.Source = tallyman.SourceCLI, tallyman.SourceAPI
	if a.Digest() != b.Digest() {
		t.Error("the door changed the digest")
	}
	b.Prompt = "ho"
	if a.Digest() == b.Digest() {
		t.Error("another prompt has the same digest")
	}
}

func TestAKeyStandsForTheSameRequestFromAnotherFolderAndAfterAnUpgrade(t *testing.T) {
	request := func(origin, model, folder string) tallyman.Request {
		a := tallyman.Agent{Name: "demo", Origin: origin, Spec: tallyman.AgentSpec{Model: model}}
		return tallyman.Request{Agent: "demo", Prompt: "hi", Inline: &a, Workspace: &tallyman.Workspace{Path: folder}}
	}
	first := request(tallyman.BuiltIn, "m1", "/a").Digest()
	if request(tallyman.BuiltIn, "m2", "/b").Digest() != first {
		t.Error("the agent's content or the caller's folder changed the digest")
	}
	if request("/agents/demo.yaml", "m1", "/a").Digest() == request("/agents/demo.yaml", "m1", "/b").Digest() {
		t.Error("a workspace that was asked for does not count")
	}
}
