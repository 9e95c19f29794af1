package cli

import (
	"bytes"
	"encoding/json"
	"testing"

	"github.com/goccy/go-yaml"
	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

func TestYAMLKeepsNamesAndOrder(t *testing.T) {
	const text = `{"z":"01M8QCF0J433Z84JXQGZ50KYP1","a":[],"m":{},"n":null,"runs":[{"name":"demo-x","cost":0.0174,"tiny":1e-7,"big":1152921504606846976},
		"- y",[1,[true]]],"yes":"true","no":"off","odd":"a: b\n#c\n","escape":"\u001b[31m\u009b\u007f","empty":"","words":"all is well, (mostly)","end":" x"}`
	const want = `z: "01M8QCF0J433Z84JXQGZ50KYP1"
a: []
m: {}
"n": null
runs:
  - name: demo-x
    cost: 0.0174
    tiny: 1.0e-7
    big: 1152921504606846976
  - "- y"
  - - 1
    - - true
"yes": "true"
"no": "off"
odd: "a: b\n#c\n"
escape: "\u001b[31m\u009b\u007f"
empty: ""
words: all is well, (mostly)
end: " x"
`
	got, err := toYAML([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, string(got)); diff != "" {
		t.Error(diff)
	}
}

func TestYAMLIsReadBackAsTheSame(t *testing.T) {
	word := rapid.OneOf(rapid.String(), rapid.StringMatching(`[a-z0-9 \n\r\t:#\-?!'"\\{}\[\]&*|>%@,~=<+_.]{0,9}`),
		rapid.SampledFrom([]string{"true", "Null", "~", "1.0", "0x1f", "1_000", "12:30", "2026-11-30", "<<", "=", ".inf", "...", "---", "y", "\u2028", "\ufeff", "\x00"}))
	rapid.Check(t, func(t *rapid.T) {
		s, key := word.Draw(t, "value"), word.Draw(t, "key")
		in := map[string]any{"s": s, "list": []any{s, map[string]any{key: s}, []any{s, nil}}, "map": map[string]any{key: []any{}}}
		text, err := json.Marshal(in)
		if err != nil {
			t.Fatal(err)
		}
		var same map[string]any
		if err := json.Unmarshal(text, &same); err != nil { // what is no UTF-8 is replaced in JSON already
			t.Fatal(err)
		}
		out, err := toYAML(text)
		if err != nil {
			t.Fatal(err)
		}
		var back map[string]any
		if err := yaml.Unmarshal(out, &back); err != nil {
			t.Fatalf("%v:\n%s", err, out)
		}
		if diff := cmp.Diff(same, back); diff != "" {
			t.Fatalf("%s\n%s", diff, out)
		}
		if i := bytes.IndexAny(out, "\x00\x1b\r\x7f"); i >= 0 {
			t.Fatalf("a control character is written: %q", out)
		}
	})
}
