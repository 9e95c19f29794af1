package catalog

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/tallyman-dev/tallyman"
	"github.com/tallyman-dev/tallyman/internal/strictyaml"
)

// Harnesses are the names that spec.harness may have.
var Harnesses = []string{"claude", "codex", "exec", "gemini", "opencode", "script"}

// MaxPriority bounds spec.priority on both sides.
const MaxPriority = 1_000_000

const (
	fresh     = "fresh"
	gitPrefix = "git:"
)

// FieldError is something wrong with one field of an agent.
type FieldError struct {
	Path    string // like spec.env[0].name
	Message string
}

// Error writes PATH: message.
func (e *FieldError) Error() string { return e.Path + ": " + e.Message }

func fieldError(path, format string, args ...any) *FieldError {
	return &FieldError{Path: path, Message: fmt.Sprintf(format, args...)}
}

// Validate returns everything that is wrong with an agent, whether it comes
// from a file or is completed by a request. The error is Invalid and joins
// FieldErrors. Not looked at are the command of an exec agent, which a request
// may bring, what only the harness or the backend can judge (settings, whether
// files and variables exist), and the contents of podTemplate.
func Validate(a tallyman.Agent) error {
	wrong := validate(a)
	if len(wrong) == 0 {
		return nil
	}
	errs := make([]error, len(wrong))
	for i, w := range wrong {
		errs[i] = w
	}
	return tallyman.Errorf(tallyman.Invalid, "%w", errors.Join(errs...))
}

func validate(a tallyman.Agent) []*FieldError {
	var wrong []*FieldError
	note := func(more ...*FieldError) {
		for _, w := range more {
			if w != nil {
				wrong = append(wrong, w)
			}
		}
	}
	spec := a.Spec
	note(validName("metadata.name", "agent", a.Name))
	if a.Namespace != "" {
		note(validName("metadata.namespace", "namespace", a.Namespace))
	}
	note(validHarness(spec.Harness))
	note(validWord("spec.runner", spec.Runner, tallyman.RunnerModes), validWord("spec.workload", spec.Workload, tallyman.Workloads))
	for i, word := range spec.Command {
		if i == 0 && word == "" {
			note(fieldError("spec.command[0]", "the program's name is empty"))
		}
		if strings.ContainsRune(word, 0) {
			note(fieldError(fmt.Sprintf("spec.command[%d]", i), "a NUL byte cannot be passed to a program"))
		}
	}
	note(validEnv(spec.Env)...)
	for i, from := range spec.EnvFrom {
		note(validEnvFrom(fmt.Sprintf("spec.envFrom[%d]", i), from)...)
	}
	note(validLimits(spec.Limits)...)
	note(validConcurrency(spec.Concurrency)...)
	if spec.Priority < -MaxPriority || spec.Priority > MaxPriority {
		note(fieldError("spec.priority", "%d is outside -%d to %[2]d", spec.Priority, MaxPriority))
	}
	note(validRetry(spec.Retry)...)
	for i, out := range spec.Outputs {
		note(validOutput(fmt.Sprintf("spec.outputs[%d]", i), out)...)
	}
	note(validWorkspace(spec.Workspace.Path))
	for _, name := range slices.Sorted(maps.Keys(spec.MCPServers)) {
		note(validServer("spec.mcpServers."+name, spec.MCPServers[name])...)
	}
	if len(spec.PodTemplate) > 0 && !isObject(spec.PodTemplate) {
		note(fieldError("spec.podTemplate", "this is no mapping; write a Pod's metadata and spec"))
	}
	return wrong
}

func validName(path, what, name string) *FieldError {
	if name == "" {
		return fieldError(path, "is missing; every %s has a name", what)
	}
	if err := tallyman.ValidName(what, name); err != nil {
		return fieldError(path, "%v", err)
	}
	return nil
}

func validHarness(name string) *FieldError {
	switch {
	case slices.Contains(Harnesses, name):
		return nil
	case name == "":
		return fieldError("spec.harness", "is missing; write one of %s", strings.Join(Harnesses, ", "))
	}
	if near := strictyaml.Nearest(name, Harnesses); near != "" {
		return fieldError("spec.harness", "unknown harness %q; did you mean %q?", name, near)
	}
	return fieldError("spec.harness", "unknown harness %q; write one of %s", name, strings.Join(Harnesses, ", "))
}

// validWord checks a word out of a closed list; none is the default.
func validWord[S ~string](path string, word S, known []S) *FieldError {
	if word == "" || slices.Contains(known, word) {
		return nil
	}
	words := make([]string, len(known))
	for i, k := range known {
		words[i] = string(k)
	}
	if near := strictyaml.Nearest(string(word), words); near != "" {
		return fieldError(path, "%q is none of %s; did you mean %q?", word, strings.Join(words, ", "), near)
	}
	return fieldError(path, "%q is none of %s", word, strings.Join(words, ", "))
}

// validLimits puts the root's rules about limits at their paths: each of its
// errors begins with the field's name.
func validLimits(l tallyman.Limits) []*FieldError {
	var wrong []*FieldError
	err := l.Validate()
	if err == nil {
		return nil
	}
	for line := range strings.SplitSeq(err.Error(), "\n") {
		field, message, _ := strings.Cut(line, ": ")
		wrong = append(wrong, fieldError("spec.limits."+field, "%s", message))
	}
	return wrong
}

func validConcurrency(c tallyman.Concurrency) []*FieldError {
	var wrong []*FieldError
	if c.Max != nil && *c.Max < 1 {
		wrong = append(wrong, fieldError("spec.concurrency.max", "%d would never run anything; write 1 or more, or leave it out for no cap", *c.Max))
	}
	if c.Key != "" {
		wrong = append(wrong, fieldError("spec.concurrency.key", "not in this version; leave it out"))
	}
	if c.Policy != "" {
		wrong = append(wrong, fieldError("spec.concurrency.policy", "not in this version; leave it out"))
	}
	return wrong
}

// Retried are the reasons that spec.retry.on may name, in order.
func Retried() []string {
	var retried []string
	for _, known := range tallyman.Reasons() {
		if c := known.Class(); c != tallyman.ClassOK && c != tallyman.ClassUser {
			retried = append(retried, string(known))
		}
	}
	slices.Sort(retried)
	return retried
}

func validRetry(r tallyman.Retry) []*FieldError {
	var wrong []*FieldError
	if r.Max != nil && *r.Max < 0 {
		wrong = append(wrong, fieldError("spec.retry.max", "%d is negative; 0 means no retry", *r.Max))
	}
	retried := Retried()
	for i, reason := range r.On {
		path := fmt.Sprintf("spec.retry.on[%d]", i)
		switch near := strictyaml.Nearest(string(reason), retried); {
		case slices.Contains(retried, string(reason)):
		case reason.Valid():
			wrong = append(wrong, fieldError(path, "%s is never retried", reason))
		case near != "":
			wrong = append(wrong, fieldError(path, "unknown reason %q; did you mean %q?", reason, near))
		default:
			wrong = append(wrong, fieldError(path, "unknown reason %q; write one of %s", reason, strings.Join(retried, ", ")))
		}
	}
	return wrong
}

var gitShape = regexp.MustCompile(`^[^-#\s][^#\s]*(#[^-#\s][^#\s]*)?$`)

func validWorkspace(path string) *FieldError {
	url, git := strings.CutPrefix(path, gitPrefix)
	switch {
	case path == "", path == fresh, filepath.IsAbs(path):
		return nil
	case git && gitShape.MatchString(url):
		return nil
	case git:
		return fieldError("spec.workspace", "%q is not git:URL#ref, like git:https://example.com/repo.git#main", path)
	case path[0] == '~':
		return fieldError("spec.workspace", "%q: ~ is not expanded here; write the whole path", path)
	case strictyaml.Nearest(path, []string{fresh}) != "":
		return fieldError("spec.workspace", "%q is neither %s, an absolute path nor git:URL#ref; did you mean %[2]q?", path, fresh)
	default:
		return fieldError("spec.workspace", "%q is neither %s, an absolute path nor git:URL#ref", path, fresh)
	}
}

// validServer checks what is ours in the description of an MCP server.
func validServer(path string, raw json.RawMessage) []*FieldError {
	var s map[string]json.RawMessage
	if err := json.Unmarshal(raw, &s); err != nil || s == nil {
		return []*FieldError{fieldError(path, "this is no mapping; describe the server as its harness knows it: command and args, or url")}
	}
	var b bool
	if required, given := s["required"]; given && json.Unmarshal(required, &b) != nil {
		return []*FieldError{fieldError(path+".required", "%s is neither true nor false", required)}
	}
	return nil
}

func isObject(raw json.RawMessage) bool {
	var o map[string]json.RawMessage
	return json.Unmarshal(raw, &o) == nil && o != nil
}
