package harness

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
)

var jsonSeeds = []string{
	`{}`, `[]`, `""`, `0`, `-0`, `-1.5e+10`, `1E5`, `true`, `false`, `null`, ` {"a" : [1 , 2] } `,
	`{"a":{"b":[{"c":"d"},[],{}]},"e":"f\n\"\\\/\b\f\r\t\u00e9\ud83d\ude00"}`,
	`{"a":"` + strings.Repeat("x", 100) + `\\"}`, "{\"a\":\r\n1}", `{"é":"ü"}`, "{\"a\":\"\xff\"}",
	``, ` `, `{`, `}`, `[`, `]`, `{]`, `[}`, `{"a"}`, `{"a":}`, `{"a":1,}`, `{,}`, `[1,]`, `[,1]`, `[1 2]`, `{"a":1 "b":2}`,
	`{a:1}`, `'a'`, `"a`, `"\x"`, `"\u12"`, `"\u12g4"`, "\"\t\"", "\"\x00\"", "\"12345678\n2345678\"", "\"1234567\x1f12345678\"", `"\ud83d\ude00"`, `"\ud800"`, `"\ud800\u0041x"`, `"\udc00\ud800\\"`, `01`, `-`, `1.`, `.5`, `1e`, `+1`, `tru`, `nul`, `truex`,
	`{}{}`, `1 2`, `"a""b"`, `{"a":1}}`, `[[[[[[]]]]]]`, `{"a":{"a":{"a":1}}}`, `[{},{"a":[]},"x",null]`, `NaN`, `Infinity`, `//`,
}

func TestValidAgreesWithTheStandardLibrary(t *testing.T) {
	var s scanner
	for _, seed := range jsonSeeds {
		if got, want := s.valid([]byte(seed)), json.Valid([]byte(seed)); got != want {
			t.Errorf("valid(%q) = %v, want %v", seed, got, want)
		}
	}
}

func TestDeepJSONIsNotTakenForJSON(t *testing.T) {
	var s scanner
	nested := func(n int) []byte { return []byte(strings.Repeat("[", n) + strings.Repeat("]", n)) }
	for depth, want := range map[int]bool{1: true, 1000: true, maxDepth - 1: true, maxDepth: false, 20_000_000: false} {
		if got := s.valid(nested(depth)); got != want {
			t.Errorf("%d levels: valid is %v", depth, got)
		}
	}
}

// FuzzScan holds the scanner to what encoding/json says about the same bytes.
func FuzzScan(f *testing.F) {
	for _, seed := range jsonSeeds {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		var s scanner
		if bytes.Count(b, []byte("["))+bytes.Count(b, []byte("{")) >= maxDepth {
			return
		}
		if got, want := s.valid(b), json.Valid(b); got != want {
			t.Fatalf("valid is %v, the library says %v", got, want)
		}
		if !json.Valid(b) {
			return
		}
		if broken := bytes.ContainsAny(b, "\r\n"); broken != s.broken {
			t.Errorf("broken is %v", s.broken)
		}
		trimmed := bytes.TrimSpace(b)
		var list []json.RawMessage
		if json.Unmarshal(b, &list) == nil {
			i := 0
			for v := range elements(trimmed) {
				if !bytes.Equal(v, list[i]) {
					t.Errorf("element %d is %q, want %q", i, v, list[i])
				}
				i++
			}
			if i != len(list) {
				t.Errorf("%d elements, want %d", i, len(list))
			}
		}
		checkFields(t, &s, b)
		var words string
		if isString(trimmed) && json.Unmarshal(b, &words) == nil && utf8.Valid(b) {
			if got := new(text).of(trimmed); got != words {
				t.Errorf("decoded %q, want %q", got, words)
			}
		}
	})
}

// checkFields compares the fields of an object, as both ways give them, with
// what the library decodes.
func checkFields(t *testing.T, s *scanner, b []byte) {
	var object map[string]json.RawMessage
	if json.Unmarshal(b, &object) != nil {
		return
	}
	own := map[string]json.RawMessage{}
	for _, f := range s.fields {
		own[string(decodedKey(f.key))] = f.value
	}
	walked := map[string]json.RawMessage{}
	for key, value := range fields(bytes.TrimSpace(b)) {
		walked[string(decodedKey(key))] = value
	}
	if object == nil || !utf8.Valid(b) {
		return
	}
	if diff := cmp.Diff(object, own); diff != "" {
		t.Errorf("fields (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(object, walked); diff != "" {
		t.Errorf("walked fields (-want +got):\n%s", diff)
	}
}

func decodedKey(key []byte) []byte { return appendUnquoted(nil, key) }

func TestLongStringsAreCutBetweenCharacters(t *testing.T) {
	for name, unit := range map[string]string{
		"letters":         "x",
		"newlines":        `\n`,
		"slashes":         `\\`,
		"quotes":          `\"`,
		"escaped letters": `\u00e9`,
		"umlauts":         "é",
		"emoji":           "😀",
		"slash and u":     `\\u00`,
		"odd mixture":     `a\\\"é\u0041`,
	} {
		for shift := range 13 {
			inner := strings.Repeat("-", shift) + strings.Repeat(unit, 2*maxText/len(unit))
			got := new(text).of([]byte(`"` + inner + `"`))
			if len(got) > 3*cutEnd || !strings.Contains(got, "bytes cut") {
				t.Fatalf("%s: %d bytes were not cut: %d", name, len(inner), len(got))
			}
			whole := string(appendUnquoted(nil, []byte(inner)))
			head, tail, _ := strings.Cut(got, "… [")
			_, tail, _ = strings.Cut(tail, "] …")
			if !strings.HasPrefix(whole, head) || !strings.HasSuffix(whole, tail) {
				t.Errorf("%s, %d ahead: head …%q or tail %q… is not of the text", name, shift, head[len(head)-20:], tail[:20])
			}
		}
	}
}
