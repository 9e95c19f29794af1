package rest

import (
	"bytes"
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

func bytesReader(b []byte) io.Reader { return bytes.NewReader(b) }

// explain says where a body does not fit, with the nearest right name.
func explain(body []byte, v any, err error) error {
	var syntax *json.SyntaxError
	var wrong *json.UnmarshalTypeError
	switch {
	case errors.Is(err, io.EOF):
		return tallyman.Errorf(tallyman.Invalid, "the body is empty; a JSON object is expected")
	case errors.As(err, &syntax):
		return tallyman.Errorf(tallyman.Invalid, "body, %s: not JSON: %v", place(body, syntax.Offset), syntax)
	case errors.As(err, &wrong):
		return tallyman.Errorf(tallyman.Invalid, "body, %s: %s is a %s, expected is %s", place(body, wrong.Offset), wrong.Field, wrong.Value, word(wrong.Type))
	}
	if name, ok := strings.CutPrefix(err.Error(), `json: unknown field "`); ok {
		name = strings.TrimSuffix(name, `"`)
		hint := ""
		if near := strictyaml.Nearest(name, names(reflect.TypeOf(v), 0)); near != "" {
			hint = fmt.Sprintf("; did you mean %q?", near)
		}
		return tallyman.Errorf(tallyman.Invalid, "body, %s: unknown key %q%s", place(body, int64(bytes.Index(body, []byte(`"`+name+`"`)))), name, hint)
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

func word(t reflect.Type) string {
	switch t.Kind() {
	case reflect.String:
		return "a text"
	case reflect.Bool:
		return "true or false"
	case reflect.Slice, reflect.Array:
		return "a list"
	case reflect.Map, reflect.Struct:
		return "an object"
	default:
		return "a number"
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
