package strictyaml_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/tallyman-dev/tallyman"
	"github.com/tallyman-dev/tallyman/internal/strictyaml"
)

type thing struct {
	Name   string                     `json:"name"`
	Count  int                        `json:"count,omitempty"`
	Rate   *float64                   `json:"rate,omitempty"`
	On     *bool                      `json:"on,omitempty"`
	Wait   *tallyman.Duration         `json:"wait,omitempty"`
	Words  []string                   `json:"words,omitempty"`
	Env    []tallyman.EnvVar          `json:"env,omitempty"`
	Labels map[string]string          `json:"labels,omitempty"`
	Work   tallyman.Workspace         `json:"work,omitzero"`
	Any    json.RawMessage            `json:"any,omitempty"`
	More   map[string]json.RawMessage `json:"more,omitempty"`
	//lint:ignore U1000 a field that no file can name
	hidden int
}

func decode(t *testing.T, in string) (thing, error) {
	t.Helper()
	docs, err := strictyaml.Parse("f.yaml", []byte(in))
	if err != nil {
		return thing{}, err
	}
	if len(docs) != 1 {
		t.Fatalf("got %d documents, want 1", len(docs))
	}
	var got thing
	return got, strictyaml.Join(docs[0].Decode(&got, "env[].value", "words[]"))
}

func ptr[T any](v T) *T { return &v }

func TestDecodeReads(t *testing.T) {
	tests := map[string]struct {
		in   string
		want thing
	}{
		"every type": {
			"name: a\ncount: 0x10\nrate: 2\non: true\nwait: 90s\nwords: [x, y]\nlabels: {k: v}\nwork: {path: /w, keep: true}\n",
			thing{Name: "a", Count: 16, Rate: ptr(2.0), On: ptr(true), Wait: ptr(tallyman.Duration(90e9)), Words: []string{"x", "y"},
				Labels: map[string]string{"k": "v"}, Work: tallyman.Workspace{Path: "/w", Keep: true}},
		},
		"numbers as YAML writes them":            {"count: 1_000\nrate: -1_0.5e+1\nany: [.5, 1e3, 0o17, 18446744073709551615, 123456789012345678901234]", thing{Count: 1000, Rate: ptr(-105.0), Any: json.RawMessage(`[0.5,1e3,15,18446744073709551615,123456789012345678901234]`)}},
		"JSON, with tabs and surrogates":         {"{\n\t\"name\": \"\\ud83d\\ude00 <\\/>\",\n\t\"count\": -3\n}", thing{Name: "😀 </>", Count: -3}},
		"a byte order mark and CR LF":            {"\ufeffname: a\r\ncount: 2\r\n", thing{Name: "a", Count: 2}},
		"text in blocks":                         {"name: |\n  one\n  two\n", thing{Name: "one\ntwo\n"}},
		"env values as they are written":         {"env: [{name: A, value: 8080}, {name: B, value: true}, {name: C, value: 1.10}, {name: D, value: 0x1F}]", thing{Env: []tallyman.EnvVar{{Name: "A", Value: "8080"}, {Name: "B", Value: "true"}, {Name: "C", Value: "1.10"}, {Name: "D", Value: "0x1F"}}}},
		"numbers among words":                    {"words: [sleep, 5]", thing{Words: []string{"sleep", "5"}}},
		"a duration of nothing":                  {"wait: 0", thing{Wait: ptr(tallyman.Duration(0))}},
		"text where a type takes text or fields": {"work: /w", thing{Work: tallyman.Workspace{Path: "/w"}}},
		"an empty value as a key that is absent": {"name:\ncount: ~\nwait:\nany:\nwords:\n", thing{}},
		"a number in quotes":                     {"name: '1e3'\nany: [\"5\", '1e3']", thing{Name: "1e3", Any: json.RawMessage(`["5","1e3"]`)}},
		"a number called text":                   {"name: !!str 5", thing{Name: "5"}},
		"anchors, aliases and merges": {
			"labels: &l {a: x, b: y}\nmore: {k: &v {deep: [1, 2.5, null, true]}, l: *v, m: {<<: *l, b: z}}\n",
			thing{Labels: map[string]string{"a": "x", "b": "y"}, More: map[string]json.RawMessage{
				"k": json.RawMessage(`{"deep":[1,2.5,null,true]}`), "l": json.RawMessage(`{"deep":[1,2.5,null,true]}`), "m": json.RawMessage(`{"b":"z","a":"x"}`)}},
		},
		"a merge of a list, where the earlier wins": {"more: {a: &a {x: 1}, b: &b {x: 2, y: 3}, c: {<<: [*a, *b]}}", thing{More: map[string]json.RawMessage{
			"a": json.RawMessage(`{"x":1}`), "b": json.RawMessage(`{"x":2,"y":3}`), "c": json.RawMessage(`{"x":1,"y":3}`)}}},
		"any keys in free JSON": {"any: {5: a, true: b, ? q : c, <: d}", thing{Any: json.RawMessage(`{"5":"a","true":"b","q":"c","<":"d"}`)}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			got, err := decode(t, tt.in)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tt.want, got, cmp.AllowUnexported(thing{})); diff != "" {
				t.Errorf("decoded (-want +got):\n%s", diff)
			}
		})
	}
}

func TestDecodeRefuses(t *testing.T) {
	tests := map[string]struct{ in, want string }{
		"an unknown key, with the nearest":               {"nmae: x", `f.yaml:1:1: unknown key "nmae" in the document; did you mean "name"?`},
		"an unknown key in another case":                 {"work: {Path: x}", `f.yaml:1:8: unknown key "Path" in work; did you mean "path"?`},
		"an unknown key like no other":                   {"work: {colour: x}", `f.yaml:1:8: unknown key "colour" in work; it may have path, keep`},
		"a field that is not for files":                  {"hidden: 1", `f.yaml:1:1: unknown key "hidden" in the document; it may have name, count, rate, on, wait, words, env, labels, work, any, more`},
		"a key given twice":                              {"name: a\ncount: 1\nname: b", `f.yaml:3:1: key "name" is given twice in the document; the first is on line 1`},
		"a key given twice in free JSON":                 {"any:\n  a: 1\n  a: 2", `f.yaml:3:3: key "a" is given twice in any; the first is on line 2`},
		"a number for a duration":                        {"wait: 5", `f.yaml:1:7: wait: 5 is a number; write a duration like 90s`},
		"text that is no duration":                       {"wait: soon", `f.yaml:1:7: wait: "soon" is not a duration: write it like 90s, 15m or 2h`},
		"a negative duration":                            {"wait: -5s", `f.yaml:1:7: wait: duration -5s is negative`},
		"a list for a duration":                          {"wait: [1]", `f.yaml:1:7: wait: this is a list; write text`},
		"a number for text":                              {"name: 5", `f.yaml:1:7: name: 5 is a number; write it in quotes: "5"`},
		"a truth for text":                               {"labels: {a: true}", `f.yaml:1:13: labels.a: true is true or false; write it in quotes: "true"`},
		"a mapping for text":                             {"name: {a: b}", `f.yaml:1:7: name: this is a mapping; write text`},
		"text for a whole number":                        {`count: "5"`, `f.yaml:1:8: count: "5" is text; write a whole number`},
		"a fraction for a whole number":                  {"count: 2.5", `f.yaml:1:8: count: 2.5 is a number; write a whole number`},
		"a number that does not fit":                     {"count: 9223372036854775808", `f.yaml:1:8: count: 9223372036854775808 is a number; write a whole number`},
		"1e3 as a whole number":                          {"count: 1e3", `f.yaml:1:8: count: 1e3 is a number; write a whole number`},
		"a number beyond any type":                       {"count: 12345678901234567890123", `f.yaml:1:8: count: 12345678901234567890123 is a number; write a whole number`},
		"text for a number":                              {"rate: much", `f.yaml:1:7: rate: "much" is text; write a number`},
		"no number":                                      {"rate: .nan", `f.yaml:1:7: rate: .nan is a number; write a number`},
		"a number beyond all floats":                     {"rate: 1e999", `f.yaml:1:7: rate: 1e999 is a number; write a number`},
		"one fault behind many aliases":                  {"any: [&a [*x], *a, *a]", `f.yaml:1:11: no anchor &x ends before this alias`},
		"no number in free JSON":                         {"any: [.inf]", `f.yaml:1:7: any[0]: .inf is a number; JSON has no such number; write it in quotes`},
		"text for a truth":                               {"on: yes", `f.yaml:1:5: on: "yes" is text; write true or false`},
		"text for a list of texts":                       {"words: ls -la", `f.yaml:1:8: words: "ls -la" is text; write a list like [a, b]`},
		"a mapping for a list":                           {"env:\n  A: b", `f.yaml:2:3: env: this is a mapping; write a list, each item after a dash`},
		"text for a mapping":                             {"labels: x", `f.yaml:1:9: labels: "x" is text; write a mapping of keys to values`},
		"a list for a struct":                            {"work: [x]", `f.yaml:1:7: work: this is a list; write a mapping of keys to values`},
		"a list for a document":                          {"- x", `f.yaml:1:1: this is a list; write a mapping of keys to values`},
		"long text, cut":                                 {"count: " + strings.Repeat("é", 60), `f.yaml:1:8: count: "` + strings.Repeat("é", 40) + `…" is text; write a whole number`},
		"an alias without an anchor":                     {"name: *x", `f.yaml:1:7: no anchor &x ends before this alias`},
		"an alias within itself":                         {"any: &x [*x]", `f.yaml:1:10: no anchor &x ends before this alias`},
		"dashes and brackets that are too deep together": {"any:\n" + strings.Repeat("- ", 60) + strings.Repeat("[", 50) + strings.Repeat("]", 50), `f.yaml:2:159: nested more than 100 deep`},
		"a merge within itself":                          {"any: &x {<<: *x}", `f.yaml:1:14: no anchor &x ends before this alias`},
		"a merge of text":                                {"any: {<<: x}", `f.yaml:1:11: << takes a mapping, or a list of mappings`},
		"a tag":                                          {"name: !secret x", `f.yaml:1:7: tag !secret has no meaning here; leave it out`},
		"bad syntax":                                     {"name: [a\ncount: 1\n", `f.yaml:2:1: bad YAML: ',' or ']' must be specified`},
		"a tab":                                          {"work:\n\tpath: x\n", `f.yaml:2:1: bad YAML: a tab cannot indent; use spaces`},
		"bytes that are no text":                         {"name: é\xff", `f.yaml:1:8: byte 0xff is no text; write the file as UTF-8`},
		"a NUL":                                          {"name: a\nwork: \x00", `f.yaml:2:7: byte 0x00 is no text; write the file as UTF-8`},
		"a file that is too large":                       {"name: " + strings.Repeat("x", 1<<20), `f.yaml:1:1: more than 1048576 bytes; split the file`},
		"brackets that are too deep":                     {"any: " + strings.Repeat("[", 101), `f.yaml:1:106: nested more than 100 deep`},
		"dashes that are too deep":                       {strings.Repeat("- ", 600), `f.yaml:1:1001: nested more than 100 deep`},
		"more words than anyone writes":                  {"any:\n" + strings.Repeat("- a\n", 30_000), `f.yaml:25001:1: more than 50000 words and signs in one file; split it`},
		"aliases that make a file a big one":             {bomb(), `f.yaml:3:17: aliases make too much of this file: over 200000 values, or 2097152 bytes of text`},
		"a repeated text that makes a big one":           {"any: [&x " + strings.Repeat("x", 100_000) + strings.Repeat(", *x", 30) + "]", `f.yaml:1:100088: aliases make too much of this file: over 200000 values, or 2097152 bytes of text`},
		"everything at once, in the order of the file": {"count: x\nname: 1\nenv:\n- {name: A, valu: b}\n- 5\n", `f.yaml:1:8: count: "x" is text; write a whole number
f.yaml:2:7: name: 1 is a number; write it in quotes: "1"
f.yaml:4:13: unknown key "valu" in env[0]; did you mean "value"?
f.yaml:5:3: env[1]: 5 is a number; write a mapping of keys to values`},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			_, err := decode(t, tt.in)
			if err == nil {
				t.Fatal("it was accepted")
			}
			if diff := cmp.Diff(tt.want, err.Error()); diff != "" {
				t.Errorf("error (-want +got):\n%s", diff)
			}
		})
	}
}

// bomb doubles itself with each line.
func bomb() string {
	var b strings.Builder
	b.WriteString("more:\n  a0: &a0 [x]\n")
	for i := 1; i < 30; i++ {
		fmt.Fprintf(&b, "  a%d: &a%d [*a%d, *a%d]\n", i, i, i-1, i-1)
	}
	return b.String()
}

func TestManyFaultsAreCounted(t *testing.T) {
	_, err := decode(t, "more:\n"+strings.Repeat("  a: 1\n", 61))
	lines := strings.Split(err.Error(), "\n")
	if len(lines) != 51 || lines[50] != "f.yaml: and 10 more" {
		t.Errorf("told %d lines, the last %q", len(lines), lines[len(lines)-1])
	}
}

func TestDocumentsAreSplit(t *testing.T) {
	docs, err := strictyaml.Parse("f.yaml", []byte("# nothing\n---\n# none\n---\nname: a\n---\nname: b\n...\n"))
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, d := range docs {
		var v thing
		if faults := d.Decode(&v); faults != nil {
			t.Fatal(faults)
		}
		names = append(names, v.Name)
	}
	if diff := cmp.Diff([]string{"a", "b"}, names); diff != "" {
		t.Errorf("names (-want +got):\n%s", diff)
	}
}

func TestEmptyDocumentsAreNone(t *testing.T) {
	for _, in := range []string{"", "\n", "# a\n", "---\n", "---\n...\n", "---\n---\n", "~\n", "%YAML 1.2\n---\n"} {
		if docs, err := strictyaml.Parse("f.yaml", []byte(in)); err != nil || len(docs) != 0 {
			t.Errorf("%q has %d documents, %v", in, len(docs), err)
		}
	}
}

func TestLaterFaultsFindTheirPlace(t *testing.T) {
	docs, err := strictyaml.Parse("f.yaml", []byte("name: a\nenv:\n  - name: A\n    value: 1\nwork: {}\ncount: x\n"))
	if err != nil {
		t.Fatal(err)
	}
	var v thing
	docs[0].Decode(&v, "env[].value")
	for path, want := range map[string]string{
		"name": "1:7", "env": "2:1", "env[0]": "3:5", "env[0].name": "3:11", "env[0].mask": "3:5", "work.path": "5:1", "absent": "1:1", "": "1:1",
	} {
		if got, want := docs[0].Fault(path, "wrong").Error(), "f.yaml:"+want+": wrong"; got != want {
			t.Errorf("%s is told as %q, want %q", path, got, want)
		}
	}
	if !docs[0].Given("env[0].value") || docs[0].Given("env[1]") {
		t.Error("Given knows another document")
	}
	for path, want := range map[string]bool{"count": true, "count.x": true, "counter": false, "name": false, "": true} {
		if got := docs[0].Doubtful(path); got != want {
			t.Errorf("Doubtful(%q) = %v, want %v", path, got, want)
		}
	}
}

func TestNearest(t *testing.T) {
	known := []string{"model", "mode", "maxTurns", "env", "envFrom", "idle", "harness"}
	for word, want := range map[string]string{
		"modle": "model", "MODEL": "model", "max_turns": "maxTurns", "maxturns": "maxTurns", "harnes": "harness", "envfrm": "envFrom",
		"evn": "env", "environment": "env", "har": "harness", "ha": "", "moe": "mode", "colour": "", "file": "", "": "", strings.Repeat("m", 100): "",
	} {
		if got := strictyaml.Nearest(word, known); got != want {
			t.Errorf("Nearest(%q) = %q, want %q", word, got, want)
		}
	}
	if got := strictyaml.Nearest("x", nil); got != "" {
		t.Errorf("Nearest of nothing is %q", got)
	}
}

func FuzzDecode(f *testing.F) {
	for _, s := range []string{"name: a", "a: &x {b: *x}", "{\"name\": [1, 2]}", "- a\n- b", "name: |\n  x\n", "? a\n: b\n", "<<: {name: x}", bomb(), "%YAML 1.2\n---\na: !!str 5", "env:\n- {name: A, value: 1}"} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		docs, err := strictyaml.Parse("f.yaml", data)
		if err != nil {
			return
		}
		for _, d := range docs {
			var v thing
			for _, fault := range d.Decode(&v) {
				if fault.Line < 1 || fault.Column < 1 || fault.Message == "" {
					t.Errorf("a fault without a place: %+v", fault)
				}
			}
		}
	})
}
