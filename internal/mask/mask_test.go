package mask_test

import (
	"encoding/base64"
	"encoding/json"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tallyman-dev/tallyman"
	"github.com/tallyman-dev/tallyman/internal/mask"
)

const (
	apiKey   = "sk-ant-0123456789abcdefXYZ"
	password = `p"a\s<w>ö/r&d +1` + "\b😀\u2028~*"
	pemKey   = "-----BEGIN KEY-----\nMIIEvQIBADANBgkqhkiG9w0BAQ\nshort\n  q83vEjRWeJA+/8=\r\n-----END KEY-----\n"
)

var masker = mask.New([]mask.Secret{{"API_KEY", apiKey}, {"DB PASSWORD", password}, {"PEM", pemKey}, {"PIN", "0042"}})

func TestEveryFormOfASecretIsMasked(t *testing.T) {
	goJSON := func(s string) string {
		b, _ := json.Marshal(s)
		return strings.Trim(string(b), `"`)
	}
	upper := strings.NewReplacer(`\u003c`, `\u003C`, `\u003e`, `\u003E`)
	for name, form := range map[string]func(string) string{
		"plain":                     func(s string) string { return s },
		"JSON as Go writes it":      goJSON,
		"JSON with upper-case hex":  func(s string) string { return upper.Replace(goJSON(s)) },
		"JSON as a runner writes":   func(s string) string { return strings.Trim(string(tallyman.AppendString(nil, s)), `"`) },
		"JSON with escaped slashes": func(s string) string { return strings.ReplaceAll(goJSON(s), "/", `\/`) },
		"JSON in JSON":              func(s string) string { return goJSON(goJSON(s)) },
		"a query":                   url.QueryEscape,
		"a path":                    url.PathEscape,
		"base64":                    func(s string) string { return base64.StdEncoding.EncodeToString([]byte(s)) },
		"base64 without padding":    func(s string) string { return base64.RawStdEncoding.EncodeToString([]byte(s)) },
		"base64 for URLs":           func(s string) string { return base64.URLEncoding.EncodeToString([]byte(s)) },
		"base64 in a query":         func(s string) string { return url.QueryEscape(base64.StdEncoding.EncodeToString([]byte(s))) },
	} {
		t.Run(name, func(t *testing.T) {
			for label, secret := range map[string]string{"[API_KEY masked]": apiKey, "[DB_PASSWORD masked]": password, "[PEM masked]": pemKey} {
				if got, want := masker.String("a "+form(secret)+" z"), "a "+label+" z"; got != want {
					t.Errorf("%s is %q, want %q", form(secret), got, want)
				}
			}
		})
	}
}

func TestJavaScriptAndPythonEscapesAreMasked(t *testing.T) {
	for name, text := range map[string]string{
		"JSON.stringify":        `p\"a\\s<w>ö/r&d +1\b😀` + "\u2028" + `~*`,
		"json.dumps":            `p\"a\\s<w>\u00f6/r&d +1\b\ud83d\ude00\u2028~*`,
		"json_encode":           `p\"a\\s<w>\u00f6\/r&d +1\b\ud83d\ude00\u2028~*`,
		"encodeURIComponent":    `p%22a%5Cs%3Cw%3E%C3%B6%2Fr%26d%20%2B1%08%F0%9F%98%80%E2%80%A8~*`,
		"urllib.parse.quote":    `p%22a%5Cs%3Cw%3E%C3%B6/r%26d%20%2B1%08%F0%9F%98%80%E2%80%A8~%2A`,
		"a query in lower case": `p%22a%5cs%3cw%3e%c3%b6%2fr%26d+%2b1%08%f0%9f%98%80%e2%80%a8~%2a`,
		"URLEncoder":            `p%22a%5Cs%3Cw%3E%C3%B6%2Fr%26d+%2B1%08%F0%9F%98%80%E2%80%A8%7E*`,
	} {
		if got := masker.String(text); got != "[DB_PASSWORD masked]" {
			t.Errorf("%s: %s", name, got)
		}
	}
}

func TestBase64OfALongerTextHidesTheSecretAtEveryAlignment(t *testing.T) {
	for before := range 7 {
		for after := range 4 {
			long := strings.Repeat("b", before) + apiKey + strings.Repeat("a", after)
			for _, enc := range []*base64.Encoding{base64.StdEncoding, base64.RawURLEncoding} {
				got := masker.String(enc.EncodeToString([]byte(long)))
				if !strings.Contains(got, "[API_KEY masked]") || len(got) > len("[API_KEY masked]")+20 {
					t.Errorf("%d before, %d after: %s", before, after, got)
				}
			}
		}
	}
}

func TestWhatIsMaskedAndWhatIsNot(t *testing.T) {
	two := mask.New([]mask.Secret{{"A", "abcdefgh"}, {"LONG", "abcdefghijkl"}, {"B", "ghijklmnop"}, {"AGAIN", "abcdefgh"}})
	for name, tt := range map[string]struct {
		m        *mask.Masker
		in, want string
	}{
		"nothing":                       {masker, "nothing to see, sk-ant-0123", "nothing to see, sk-ant-0123"},
		"a line of a secret":            {masker, "x MIIEvQIBADANBgkqhkiG9w0BAQ y", "x [PEM masked] y"},
		"an indented line":              {masker, "q83vEjRWeJA+/8=", "[PEM masked]"},
		"a short line of a secret":      {masker, "short", "short"},
		"a short value that was listed": {masker, "pin=0042!", "pin=[PIN masked]!"},
		"the longest wins":              {two, "abcdefghijkl", "[LONG masked]"},
		"the first name wins":           {two, "abcdefgh", "[A masked]"},
		"overlapping ones are one":      {two, "-abcdefghijklmnop-", "-[LONG masked]-"},
		"neighbours are two":            {two, "abcdefghghijklmnop", "[A masked][B masked]"},
		"a file's last newline":         {mask.New([]mask.Secret{{"F", "topsecret\n"}}), "'topsecret'", "'[F masked]'"},
		"a short one in a file":         {mask.New([]mask.Secret{{"F", "0042\n"}}), "'0042'", "'[F masked]'"},
		"umlauts in lower-case hex":     {mask.New([]mask.Secret{{"U", "pässwörd"}}), `p\u00e4ssw\u00f6rd`, "[U masked]"},
		"umlauts in upper-case hex":     {mask.New([]mask.Secret{{"U", "pässwörd"}}), `p\u00E4ssw\u00F6rd`, "[U masked]"},
		"bytes that are no text":        {mask.New([]mask.Secret{{"B", "\xff\xfebinary"}}), "\uFFFD\uFFFDbinary \xff\xfebinary", "[B masked] [B masked]"},
		"no secrets":                    {mask.New(nil), apiKey, apiKey},
		"empty secrets":                 {mask.New([]mask.Secret{{"E", ""}, {"S", " \n"}}), " \n x", " \n x"},
	} {
		t.Run(name, func(t *testing.T) {
			if got := tt.m.String(tt.in); got != tt.want {
				t.Errorf("String = %q, want %q", got, tt.want)
			}
			if got := string(tt.m.Bytes([]byte(tt.in))); got != tt.want {
				t.Errorf("Bytes = %q, want %q", got, tt.want)
			}
		})
	}
}

func TestNothingToMaskCopiesNothing(t *testing.T) {
	b := []byte(`{"text":"a \"b\" \u0041"}`)
	for name, m := range map[string]*mask.Masker{"secrets": masker, "none": nil} {
		if got := m.Bytes(b); &got[0] != &b[0] {
			t.Errorf("%s: Bytes made a copy", name)
		}
		if got := m.JSON(b); &got[0] != &b[0] {
			t.Errorf("%s: JSON made a copy", name)
		}
	}
	if n := testing.AllocsPerRun(10, func() { masker.String("a text without anything") }); n != 0 {
		t.Errorf("String allocates %v times", n)
	}
}

func TestJSONStaysJSON(t *testing.T) {
	m := mask.New([]mask.Secret{{"KEY", "abcdefgh\n"}, {"NUM", "12345678"}, {"OBJ", `{"k":"vvvv"}`}, {"ESC", "newline-first"}})
	for name, tt := range map[string]struct{ in, want string }{
		"in a string":           {`{"a":["x abcdefgh y",1]}`, `{"a":["x [KEY masked] y",1]}`},
		"in a key":              {`{"abcdefgh":1}`, `{"[KEY masked]":1}`},
		"escaped in odd ways":   {`{"a":"\u0061bc\u0064efgh","b":"\u00e9"}`, `{"a":"[KEY masked]","b":"\u00e9"}`},
		"JSON in a string":      {`{"a":"{\"b\":\"abcdefgh\\n\"}"}`, `{"a":"{\"b\":\"[KEY masked]\"}"}`},
		"in a number":           {`{"a":123456789}`, `"{\"a\":[NUM masked]9}"`},
		"a number in a string":  {`{"a":"123456789"}`, `{"a":"[NUM masked]9"}`},
		"an object":             {`{"a":{"k":"vvvv"}}`, `"{\"a\":[OBJ masked]}"`},
		"an object in a string": {`{"a":"{\"k\":\"vvvv\"}"}`, `{"a":"[OBJ masked]"}`},
		"behind a backslash":    {`{"a":"\newline-first"}`, `"{\"a\":\"\\[ESC masked]\"}"`},
		"surrogates":            {`["\ud83d\ude00abcdefgh\ud83d","\ud83d"]`, `["😀[KEY masked]�","\ud83d"]`},
		"nothing":               {`{"a":"\"\\\/\b\f\n\r\t\u0041"}`, `{"a":"\"\\\/\b\f\n\r\t\u0041"}`},
	} {
		t.Run(name, func(t *testing.T) {
			got := string(m.JSON([]byte(tt.in)))
			if got != tt.want {
				t.Errorf("got %s, want %s", got, tt.want)
			}
			if !json.Valid([]byte(got)) {
				t.Errorf("%s is not JSON", got)
			}
		})
	}
}

func TestAnEventIsMaskedInEveryPlaceThatAgentsFill(t *testing.T) {
	line := []byte("\xff " + apiKey)
	head := []byte("head " + apiKey + " and " + apiKey[:10])
	e := tallyman.Event{
		Time: time.Unix(0, 0), Type: tallyman.EventText, Parent: apiKey, ToolID: apiKey,
		Name: "n " + apiKey, Text: "t " + apiKey,
		Data: json.RawMessage(`{"d":"` + apiKey + `"}`), Raw: json.RawMessage(`["` + apiKey + `"]`), RawB64: line,
		RawCut: &tallyman.RawCut{Bytes: 9, SHA256: "digest", Head: head, Tail: []byte(apiKey[5:] + " tail " + apiKey)},
	}
	before := string(head)
	masker.Event(&e)
	want := tallyman.Event{
		Time: time.Unix(0, 0), Type: tallyman.EventText, Parent: apiKey, ToolID: apiKey,
		Name: "n [API_KEY masked]", Text: "t [API_KEY masked]",
		Data: json.RawMessage(`{"d":"[API_KEY masked]"}`), Raw: json.RawMessage(`["[API_KEY masked]"]`), RawB64: []byte("\xff [API_KEY masked]"),
		RawCut: &tallyman.RawCut{Bytes: 9, SHA256: "digest", Head: []byte("head [API_KEY masked] and [masked]"), Tail: []byte("[masked] tail [API_KEY masked]")},
	}
	if diff := cmp.Diff(want, e); diff != "" {
		t.Errorf("event (-want +got):\n%s", diff)
	}
	if string(head) != before {
		t.Error("it wrote to the caller's bytes")
	}
	var none *mask.Masker
	none.Event(&e)
	if diff := cmp.Diff(want, e); diff != "" {
		t.Errorf("without secrets (-want +got):\n%s", diff)
	}
}

func TestAStreamHoldsBackOnlyWhatMayBecomeASecret(t *testing.T) {
	s := masker.Stream()
	for _, step := range [][2]string{
		{"hello, ", "hello, "},
		{"the sk-", "the "},
		{"alt, ", "sk-alt, "},
		{"sk-ant-", ""},
		{"0123456789abcdef", ""},
		{"XYZ, ", "[API_KEY masked], "},
		{"sk-ant-x, ", "sk-ant-x, "},
		{"sk-ant-0123456789abcdefXYZ", "[API_KEY masked]"}, // nothing longer begins so
		{", ", ", "},
		{"00", ""},
	} {
		if got := s.Write(step[0]); got != step[1] {
			t.Errorf("Write(%q) = %q, want %q", step[0], got, step[1])
		}
	}
	if got := s.Flush(); got != "00" {
		t.Errorf("Flush = %q", got)
	}
	if got := s.Flush(); got != "" {
		t.Errorf("a second Flush = %q", got)
	}
	var none *mask.Masker
	if got := none.Stream().Write(apiKey); got != apiKey {
		t.Errorf("without secrets: %q", got)
	}
}

func TestAStreamSaysWhatStringSays(t *testing.T) {
	m := mask.New([]mask.Secret{{"A", "abababab"}, {"B", "babababac"}, {"C", "bacxxxxxxx"}, {"D", "xxxxxxxxabab"}})
	for _, text := range []string{
		"abababab", "ababababab", "abababababababac", "abababababacxxxxxxxxabab", "xxxxxxxxababababab",
		"bababab abababa bacxxxxxx", strings.Repeat("-", 40) + "YmFjeHh4eHh4eA%3D%3D", "abababacxxxxxxx", strings.Repeat("ab", 50) + "acxxxxxxxxxabababab",
	} {
		want := m.String(text)
		for i := range len(text) + 1 {
			for j := i; j <= len(text); j++ {
				s := m.Stream()
				if got := s.Write(text[:i]) + s.Write(text[i:j]) + s.Write(text[j:]) + s.Flush(); got != want {
					t.Fatalf("%s in pieces at %d and %d: %q, want %q", text, i, j, got, want)
				}
			}
		}
		s, got := m.Stream(), ""
		for i := range len(text) {
			got += s.Write(text[i : i+1])
		}
		if got += s.Flush(); got != want {
			t.Errorf("%s byte by byte: %q, want %q", text, got, want)
		}
	}
}
