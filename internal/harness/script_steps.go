package harness

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/tallyman-dev/tallyman"
)

// step is one thing that a script does.
type step interface{ play(p *player) error }

// The steps, as they are written. Most have a short form: the one field that
// matters instead of the object.
type (
	sayStep struct {
		Text string            `json:"text"`
		Over tallyman.Duration `json:"over"` // told word by word, in this time
	}
	thinkStep sayStep
	toolStep  struct {
		ID       string            `json:"id"`
		Name     string            `json:"name"`
		Input    json.RawMessage   `json:"input"`
		Output   string            `json:"output"`
		Failed   bool              `json:"failed"`
		Duration tallyman.Duration `json:"duration"`
		Parent   string            `json:"parent"`
	}
	writeStep struct {
		Path    string `json:"path"`
		Content string `json:"content"`
	}
	sleepStep  struct{ For tallyman.Duration }
	usageStep  scriptUsage
	stderrStep struct{ Text string }
	// garbageStep writes bytes that are no protocol, and a newline.
	garbageStep struct{ bytes []byte }
	// floodStep writes text lines: so many, or so many bytes of them.
	floodStep struct {
		Bytes int64 `json:"bytes"`
		Lines int64 `json:"lines"`
		Line  int   `json:"line"` // bytes of one; default 1024
	}
	exitStep       struct{ code int }
	hangStep       struct{}
	ignoreTermStep struct{}
	// childStep starts a process that the script does not wait for.
	childStep struct {
		Command []string          `json:"command"`
		Sleep   tallyman.Duration `json:"sleep"`  // how long it lives, without a command; default 1m
		Setsid  *bool             `json:"setsid"` // in a session of its own; default true
		Hold    bool              `json:"hold"`   // it keeps our standard output open
	}
	resultStep struct {
		Text   string          `json:"text"`
		Failed bool            `json:"failed"`
		Reason tallyman.Reason `json:"reason"`
	}
	// agentStep plays steps as a sub-agent.
	agentStep struct {
		Name   string          `json:"name"`
		Output string          `json:"output"`
		Steps  json.RawMessage `json:"steps"`
		steps  []step
	}
	repeatStep struct {
		Times int             `json:"times"`
		Steps json.RawMessage `json:"steps"`
		steps []step
	}
)

// stepKinds says how each kind is read.
var stepKinds = map[string]func(raw json.RawMessage) (step, error){
	"say":   func(raw json.RawMessage) (step, error) { s := &sayStep{}; return s, brief(raw, s, &s.Text) },
	"think": func(raw json.RawMessage) (step, error) { s := &thinkStep{}; return s, brief(raw, s, &s.Text) },
	"tool":  func(raw json.RawMessage) (step, error) { s := &toolStep{}; return s, brief(raw, s, &s.Name) },
	"write": func(raw json.RawMessage) (step, error) { s := &writeStep{}; return s, brief(raw, s, &s.Path) },
	"sleep": func(raw json.RawMessage) (step, error) {
		s := &sleepStep{}
		return s, only(raw, &s.For, `a duration like "2s"`)
	},
	"usage":   readUsage,
	"stderr":  func(raw json.RawMessage) (step, error) { s := &stderrStep{}; return s, only(raw, &s.Text, "a string") },
	"garbage": readGarbage,
	"flood":   readFlood,
	"exit": func(raw json.RawMessage) (step, error) {
		s := &exitStep{}
		return s, only(raw, &s.code, "an exit code")
	},
	"hang":       func(raw json.RawMessage) (step, error) { return hangStep{}, flag(raw) },
	"ignoreTerm": func(raw json.RawMessage) (step, error) { return ignoreTermStep{}, flag(raw) },
	"child":      func(raw json.RawMessage) (step, error) { s := &childStep{}; return s, strict(raw, s) },
	"result":     readResult,
}

// nestedKinds hold steps of their own; apart, because they read the others.
func nestedKinds() map[string]func(raw json.RawMessage) (step, error) {
	return map[string]func(raw json.RawMessage) (step, error){"agent": readAgent, "repeat": readRepeat}
}

// readSteps reads a JSON list of steps. An error names the step.
func readSteps(raw []byte) ([]step, error) {
	var list []json.RawMessage
	if err := json.Unmarshal(raw, &list); err != nil {
		return nil, fmt.Errorf("steps: a JSON list of steps is wanted: %w", err)
	}
	steps := make([]step, 0, len(list))
	for i, item := range list {
		s, err := readStep(item)
		if err != nil {
			return nil, fmt.Errorf("steps[%d]: %w", i, err)
		}
		steps = append(steps, s)
	}
	return steps, nil
}

// readStep reads an object with one key, or the name of a kind that needs
// nothing more.
func readStep(item json.RawMessage) (step, error) {
	var kind string
	raw := json.RawMessage("null")
	if json.Unmarshal(item, &kind) != nil {
		var object map[string]json.RawMessage
		if err := json.Unmarshal(item, &object); err != nil || len(object) != 1 {
			return nil, fmt.Errorf("an object with one key is wanted: the kind of the step")
		}
		for kind, raw = range object {
			break
		}
	}
	kinds := nestedKinds()
	maps.Copy(kinds, stepKinds)
	read, ok := kinds[kind]
	if !ok {
		return nil, fmt.Errorf("%q is no kind of step%s", kind, didYouMean(kind, slices.Sorted(maps.Keys(kinds))))
	}
	s, err := read(raw)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", kind, err)
	}
	return s, nil
}

// strict reads an object without unknown keys.
func strict(raw json.RawMessage, into any) error {
	d := json.NewDecoder(bytes.NewReader(raw))
	d.DisallowUnknownFields()
	if err := d.Decode(into); err != nil {
		return fmt.Errorf("%s", strings.TrimPrefix(err.Error(), "json: "))
	}
	return nil
}

// brief reads an object, or a string as the one field that matters.
func brief(raw json.RawMessage, into any, field *string) error {
	if json.Unmarshal(raw, field) == nil {
		return nil
	}
	return strict(raw, into)
}

func only(raw json.RawMessage, into any, what string) error {
	if string(raw) == "null" || json.Unmarshal(raw, into) != nil {
		return fmt.Errorf("%s is wanted", what)
	}
	return nil
}

// flag reads what may stand behind a kind that needs nothing.
func flag(raw json.RawMessage) error {
	switch string(raw) {
	case "null", "true", "{}", `""`:
		return nil
	}
	return fmt.Errorf("true is wanted, or nothing")
}

func readUsage(raw json.RawMessage) (step, error) {
	s := &usageStep{}
	if err := strict(raw, s); err != nil {
		return nil, err
	}
	if !scriptUsage(*s).sane() {
		return nil, fmt.Errorf("tokens and cost cannot be negative")
	}
	return s, nil
}

func readGarbage(raw json.RawMessage) (step, error) {
	var s string
	if err := only(raw, &s, `base64 or "random:BYTES"`); err != nil {
		return nil, err
	}
	if n, ok := strings.CutPrefix(s, "random:"); ok {
		size, err := strconv.Atoi(n)
		if err != nil || size < 0 || size > 1<<30 {
			return nil, fmt.Errorf("random:%s is not a number of bytes up to 1 GiB", n)
		}
		return &garbageStep{bytes: randomBytes(size)}, nil
	}
	b, err := base64.StdEncoding.DecodeString(s)
	if err != nil {
		return nil, fmt.Errorf(`base64 or "random:BYTES" is wanted`)
	}
	return &garbageStep{bytes: b}, nil
}

func readFlood(raw json.RawMessage) (step, error) {
	s := &floodStep{}
	if err := strict(raw, s); err != nil {
		return nil, err
	}
	if s.Bytes < 0 || s.Lines < 0 || s.Line < 0 || (s.Bytes == 0) == (s.Lines == 0) {
		return nil, fmt.Errorf("bytes or lines is wanted, and not both")
	}
	return s, nil
}

func readResult(raw json.RawMessage) (step, error) {
	s := &resultStep{}
	if err := brief(raw, s, &s.Text); err != nil {
		return nil, err
	}
	if s.Reason != "" && !s.Reason.Valid() {
		return nil, fmt.Errorf("reason %q does not exist", s.Reason)
	}
	return s, nil
}

func readAgent(raw json.RawMessage) (step, error) {
	s := &agentStep{Name: "sub-agent"}
	if err := nested(raw, s, &s.Steps); err != nil {
		return nil, err
	}
	var err error
	s.steps, err = readSteps(s.Steps)
	return s, err
}

func readRepeat(raw json.RawMessage) (step, error) {
	s := &repeatStep{Times: 1}
	if err := strict(raw, s); err != nil {
		return nil, err
	}
	if s.Times < 0 {
		return nil, fmt.Errorf("times: %d is negative", s.Times)
	}
	var err error
	s.steps, err = readSteps(s.Steps)
	return s, err
}

// nested reads an object, or a list as its steps.
func nested(raw json.RawMessage, into any, steps *json.RawMessage) error {
	if len(raw) > 0 && raw[0] == '[' {
		*steps = raw
		return nil
	}
	return strict(raw, into)
}
