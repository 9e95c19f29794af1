package rest

import (
	"bytes"
	"encoding"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"reflect"
	"strconv"
	"strings"

	"github.com/tallyman-dev/tallyman"
	"github.com/tallyman-dev/tallyman/internal/strictyaml"
)

// explain says where a body does not fit, with the nearest right name.
func explain(body []byte, v any, err error) error {
	var syntax *json.SyntaxError
	var wrong *json.UnmarshalTypeError
	switch {
	case errors.Is(err, io.EOF):
		return tallyman.Errorf(tallyman.Invalid, "the body is empty; a JSON object is expected")
	case errors.As(err, &syntax):
		return tallyman.Errorf(tallyman.Invalid, "body, %s: not JSON: %v", place(body, syntax.Offset), syntax)
	case errors.Is(err, io.ErrUnexpectedEOF):
		return tallyman.Errorf(tallyman.Invalid, "body, %s: not JSON: it ends too early", place(body, int64(len(body))))
	case errors.As(err, &wrong):
		what := wrong.Field
		if what == "" {
			what = "the body"
		}
		return tallyman.Errorf(tallyman.Invalid, "body, %s: %s is %s, expected is %s", place(body, wrong.Offset), what, found(wrong.Value), word(wrong.Type))
	}
	if quoted, ok := strings.CutPrefix(err.Error(), "json: unknown field "); ok {
		name, uerr := strconv.Unquote(quoted)
		if uerr != nil {
			name = quoted
		}
		hint := ""
		switch near := strictyaml.Nearest(name, names(reflect.TypeOf(v), 0)); near {
		case "":
		case name:
			hint = "; there is such a key, but not in this place"
		default:
			hint = fmt.Sprintf("; did you mean %q?", near)
		}
		return tallyman.Errorf(tallyman.Invalid, "body, %s: unknown key %q%s", place(body, keyAt(body, name)), name, hint)
	}
	if quoted, perr := strconv.QuotedPrefix(err.Error()); perr == nil {
		if at := bytes.Index(body, []byte(quoted)); at >= 0 {
			return tallyman.Errorf(tallyman.Invalid, "body, %s: %w", place(body, int64(at)), err)
		}
	}
	return tallyman.Errorf(tallyman.Invalid, "body: %w", err)
}

// place writes an offset as line and column.
func place(body []byte, offset int64) string {
	before := body[:max(0, min(int(offset), len(body)))]
	line := bytes.Count(before, []byte{'\n'}) + 1
	column := len(before) - (bytes.LastIndexByte(before, '\n') + 1) + 1
	return fmt.Sprintf("line %d, column %d", line, column)
}

// keyAt finds where an object has a key, the beginning of the body where that
// cannot be told.
func keyAt(body []byte, name string) int64 {
	quoted := []byte(`"` + name + `"`)
	for from := 0; ; from++ {
		i := bytes.Index(body[from:], quoted)
		if i < 0 {
			return 0
		}
		from += i
		if rest := bytes.TrimLeft(body[from+len(quoted):], " \t\r\n"); len(rest) > 0 && rest[0] == ':' {
			return int64(from)
		}
	}
}

// found names a JSON value that was not expected.
func found(value string) string {
	switch kind, rest, _ := strings.Cut(value, " "); kind {
	case "string":
		return "a text"
	case "bool":
		return "true or false"
	case "array":
		return "a list"
	case "object":
		return "an object"
	default:
		return strings.TrimSpace("a number " + rest)
	}
}

var textual = reflect.TypeFor[encoding.TextUnmarshaler]()

// word names what a type expects.
func word(t reflect.Type) string {
	if t.Implements(textual) || reflect.PointerTo(t).Implements(textual) {
		return "a text"
	}
	switch t.Kind() {
	case reflect.Pointer:
		return word(t.Elem())
	case reflect.String:
		return "a text"
	case reflect.Bool:
		return "true or false"
	case reflect.Slice, reflect.Array:
		return "a list"
	case reflect.Map, reflect.Struct:
		return "an object"
	case reflect.Float32, reflect.Float64:
		return "a number"
	default:
		return "a whole number"
	}
}

// names are the JSON keys of a type and of what it holds.
func names(t reflect.Type, depth int) []string {
	for t.Kind() == reflect.Pointer || t.Kind() == reflect.Slice {
		t = t.Elem()
	}
	if t.Kind() != reflect.Struct || depth > 4 {
		return nil
	}
	var all []string
	for i := range t.NumField() {
		f := t.Field(i)
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		if name != "" && name != "-" {
			all = append(all, name)
		}
		all = append(all, names(f.Type, depth+1)...)
	}
	return all
}
