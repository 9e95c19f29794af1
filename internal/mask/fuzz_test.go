package mask_test

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"net/url"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/tallyman-dev/tallyman"
	"github.com/tallyman-dev/tallyman/internal/mask"
)

// FuzzCanary plants a secret in every form between two texts.
func FuzzCanary(f *testing.F) {
	f.Add(apiKey, "before ", " after", uint(3))
	f.Add(password, `{"a":"\`, `"}`, uint(0))
	f.Add("12345678", "9", "0", uint(1))
	f.Add(`{"json":"itself"}`, `"`, `\u00`, uint(7))
	f.Add("aaaaaaaaaaaa", "aaa", "aaaa", uint(5))
	f.Add("multi line\nsecret with\r\nthree lines", "multi", "\n", uint(12))
	f.Fuzz(func(t *testing.T, secret, before, after string, at uint) {
		if utf8.RuneCountInString(secret) < 8 || !utf8.ValidString(secret) || strings.TrimSpace(secret) == "" ||
			strings.ContainsAny(secret, "[]") || len(secret) > 500 {
			t.Skip("not a secret, or one that a label could complete")
		}
		m := mask.New([]mask.Secret{{"K", secret}})

		if got := m.String(before + secret + after); strings.Contains(got, secret) {
			t.Errorf("plain: %q", got)
		}
		for name, form := range jsonForms(secret) {
			if got := m.String(form); strings.Contains(got, form) {
				t.Errorf("%s: %q", name, got)
			}
		}
		for name, form := range map[string]string{"query": url.QueryEscape(secret), "path": url.PathEscape(secret)} {
			if got := m.String(before + form + after); strings.Contains(got, form) {
				t.Errorf("%s: %q", name, got)
			}
		}
		for _, enc := range []*base64.Encoding{base64.StdEncoding, base64.RawStdEncoding, base64.URLEncoding, base64.RawURLEncoding} {
			text := enc.EncodeToString([]byte(before + secret + after))
			own := text[(len(before)*8+5)/6 : (len(before)+len(secret))*8/6]
			if got := m.String(text); strings.Contains(got, own) {
				t.Errorf("base64: %q", got)
			}
		}

		text := before + secret + after
		cut := int(at % uint(len(text)+1))
		s := m.Stream()
		if got, want := s.Write(text[:cut])+s.Write(text[cut:])+s.Flush(), m.String(text); got != want {
			t.Errorf("stream, cut at %d: %q, want %q", cut, got, want)
		}
	})
}

func jsonForms(s string) map[string]string {
	inner := func(b []byte) string { return string(b[1 : len(b)-1]) }
	html, _ := json.Marshal(s)
	var plain bytes.Buffer
	enc := json.NewEncoder(&plain)
	enc.SetEscapeHTML(false)
	enc.Encode(s)
	twice, _ := json.Marshal(inner(html))
	return map[string]string{
		"json.Marshal":       inner(html),
		"json without html":  inner(bytes.TrimSpace(plain.Bytes())),
		"AppendString":       inner(tallyman.AppendString(nil, s)),
		"json.Marshal twice": inner(twice),
	}
}

// FuzzJSON plants a secret in the strings and keys of any JSON.
func FuzzJSON(f *testing.F) {
	f.Add(apiKey, `{"a":["SECRET",1,{"SECRET":null}]}`)
	f.Add("12345678", `[123456789,"\u0031SECRET\ud800",1e12345678]`)
	f.Add(`","b":"cccc`, `{"a":"a","b":"ccccc"}`)
	f.Add("newline-1", `"\newline-1"`)
	f.Add(password, `"\\\"\/SECRET"`)
	f.Fuzz(func(t *testing.T, secret, raw string) {
		if utf8.RuneCountInString(secret) < 8 || !utf8.ValidString(secret) || strings.TrimSpace(secret) == "" ||
			strings.ContainsAny(secret, `[]`) || len(secret) > 500 {
			t.Skip("not a secret, or one that a label could complete")
		}
		raw = strings.ReplaceAll(raw, "SECRET", strings.Trim(string(tallyman.AppendString(nil, secret)), `"`))
		var compact bytes.Buffer
		if json.Compact(&compact, []byte(raw)) != nil {
			t.Skip("not JSON")
		}
		m := mask.New([]mask.Secret{{"K", secret}})
		got := m.JSON(compact.Bytes())
		if !json.Valid(got) || bytes.ContainsAny(got, "\r\n") {
			t.Fatalf("%s became %s", compact.Bytes(), got)
		}
		if bytes.Contains(got, []byte(secret)) {
			t.Fatalf("it is still in %s", got)
		}
		walk(t, got, secret)
		if again := m.JSON(got); !bytes.Equal(again, got) {
			t.Fatalf("masking %s again gives %s", got, again)
		}
	})
}

// walk looks at every string of a JSON value, decoded.
func walk(t *testing.T, raw []byte, secret string) {
	dec := json.NewDecoder(bytes.NewReader(raw))
	for {
		token, err := dec.Token()
		if err != nil {
			return
		}
		if s, ok := token.(string); ok && strings.Contains(s, secret) {
			t.Fatalf("it is still in %q of %s", s, raw)
		}
	}
}
