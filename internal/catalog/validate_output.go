package catalog

import (
	"encoding/json"
	"path"
	"slices"
	"strings"

	"github.com/tallyman-dev/tallyman"
)

func validOutput(at string, out tallyman.Output) []*FieldError {
	var wrong []*FieldError
	if message := wrongPattern(out.Path); message != "" {
		wrong = append(wrong, fieldError(at+".path", "%s", message))
	}
	if len(out.Schema) > 0 {
		if message := wrongSchema(out.Schema); message != "" {
			wrong = append(wrong, fieldError(at+".schema", "%s", message))
		}
	}
	return wrong
}

// wrongPattern says what is wrong with the pattern of an output, "" if
// nothing is.
func wrongPattern(pattern string) string {
	if pattern == "" {
		return "is missing; write a pattern of files in the workspace, like report.md or out/**/*.json"
	}
	parts := strings.Split(pattern, "/")
	switch {
	case pattern[0] == '/':
		return quoted(pattern) + " is absolute; outputs are named from the workspace"
	case slices.Contains(parts, ".."):
		return quoted(pattern) + " leaves the workspace; outputs lie in it"
	case path.Clean(pattern) == ".":
		return quoted(pattern) + " is the workspace itself; write ** for every file in it"
	case strings.ContainsRune(pattern, 0):
		return quoted(pattern) + " has a NUL byte, which no file has"
	}
	for _, part := range parts {
		if part != "**" && strings.Contains(part, "**") {
			return quoted(pattern) + ": ** stands for whole folders; write it alone between slashes"
		}
		if _, err := path.Match(part, ""); err != nil {
			return quoted(pattern) + " is no pattern: " + quoted(part) + " has a [ without its ], or ends in a backslash"
		}
	}
	return ""
}

func quoted(s string) string {
	b, err := json.Marshal(s)
	if err != nil {
		return s // a string always encodes
	}
	return string(b)
}

// wrongSchema says what is wrong with a JSON Schema, "" if nothing is. What it
// refers to must be in it: nothing is loaded.
func wrongSchema(raw json.RawMessage) string {
	_, err := compileSchema(raw)
	if err == nil {
		return ""
	}
	return "this is no JSON Schema: " + schemaFault(err.Error())
}

// schemaFault returns the first cause in a compiler's many lines, of which the
// others only say that their part failed too.
func schemaFault(text string) string {
	for line := range strings.SplitSeq(text, "\n") {
		cause, ok := strings.CutPrefix(strings.TrimSpace(line), "- at ")
		if ok && !strings.HasSuffix(cause, " failed") {
			return strings.Replace(cause, "'': ", "", 1)
		}
	}
	first, _, _ := strings.Cut(text, "\n")
	return strings.ReplaceAll(first, schemaURL, "")
}
