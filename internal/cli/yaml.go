package cli

import (
	"bytes"
	"encoding/json"
	"fmt"
	"regexp"
	"strings"
)

// toYAML writes JSON as YAML: the same keys in the same order, the same
// values. Strings are plain where every reader takes them for strings, else
// quoted as in JSON, which YAML reads alike, so that each byte comes back and
// none reaches a terminal as a control character. The libraries at hand lose
// carriage returns and control characters.
func toYAML(text []byte) ([]byte, error) {
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	lines, _, err := yamlLines(d)
	if err != nil {
		return nil, fmt.Errorf("write YAML: %w", err)
	}
	return []byte(strings.Join(lines, "\n") + "\n"), nil
}

// yamlLines reads one value. One that is inline stands in a line of its own
// behind its key.
func yamlLines(d *json.Decoder) (lines []string, inline bool, err error) {
	t, err := d.Token()
	if err != nil {
		return nil, false, err
	}
	switch v := t.(type) {
	case json.Delim:
		if !d.More() {
			_, err := d.Token()
			return []string{map[json.Delim]string{'{': "{}", '[': "[]"}[v]}, true, err
		}
		if v == '{' {
			lines, err = yamlObject(d)
		} else {
			lines, err = yamlList(d)
		}
		if err == nil {
			_, err = d.Token() // its end
		}
		return lines, false, err
	case string:
		return []string{yamlString(v)}, true, nil
	case json.Number:
		return []string{yamlNumber(v.String())}, true, nil
	case bool:
		return []string{fmt.Sprint(v)}, true, nil
	case nil:
		return []string{"null"}, true, nil
	default:
		return nil, false, fmt.Errorf("JSON has no %T", v)
	}
}

func yamlObject(d *json.Decoder) (lines []string, err error) {
	for d.More() {
		key, err := d.Token()
		if err != nil {
			return nil, err
		}
		value, inline, err := yamlLines(d)
		if err != nil {
			return nil, err
		}
		head := yamlString(fmt.Sprint(key)) + ":"
		if inline {
			lines = append(lines, head+" "+value[0])
			continue
		}
		lines = append(lines, head)
		for _, l := range value {
			lines = append(lines, "  "+l)
		}
	}
	return lines, nil
}

func yamlList(d *json.Decoder) (lines []string, err error) {
	for d.More() {
		value, _, err := yamlLines(d)
		if err != nil {
			return nil, err
		}
		mark := "- "
		for _, l := range value {
			lines, mark = append(lines, mark+l), "  "
		}
	}
	return lines, nil
}

var (
	// plainYAML begins with a letter, ends without a space, and holds nothing
	// that means something.
	plainYAML = regexp.MustCompile(`^[A-Za-z]([A-Za-z0-9_./ ,;()=+@-]*[A-Za-z0-9_.)])?$`)
	// wordsYAML are words that some readers take for something else.
	wordsYAML = regexp.MustCompile(`(?i)^(y|n|yes|no|on|off|true|false|null|nan|inf)$`)
)

func yamlString(s string) string {
	if plainYAML.MatchString(s) && !wordsYAML.MatchString(s) {
		return s
	}
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(s); err != nil {
		return `""` // a string can always be encoded
	}
	var quoted strings.Builder
	for _, r := range strings.TrimSuffix(b.String(), "\n") {
		if r >= 0x7f && r < 0xa0 || r == 0xfeff || r == 0xfffe || r == 0xffff {
			fmt.Fprintf(&quoted, `\u%04x`, r)
			continue
		}
		quoted.WriteRune(r)
	}
	return quoted.String()
}

// yamlNumber gives a number with an exponent the point without which YAML 1.1
// takes it for a string.
func yamlNumber(n string) string {
	if strings.Contains(n, ".") {
		return n
	}
	return strings.NewReplacer("e", ".0e", "E", ".0e").Replace(n)
}
