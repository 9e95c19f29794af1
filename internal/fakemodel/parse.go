package fakemodel

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/parser"
	"github.com/goccy/go-yaml/token"

	"github.com/tallyman-dev/tallyman"
)

// ParseScript reads a script. An unknown key, a wrong type and a value that
// makes no sense are refused with code Invalid and the line and column; all
// senseless values are told at once. An empty document is the zero Script.
func ParseScript(b []byte) (Script, error) {
	var s Script
	if len(strings.TrimSpace(string(b))) == 0 {
		return s, nil
	}
	file, err := decode(b, &s)
	if err != nil {
		return Script{}, located(err)
	}
	c := checker{file: file}
	c.script(s)
	if len(c.errs) > 0 {
		return Script{}, tallyman.Errorf(tallyman.Invalid, "%w", errors.Join(c.errs...))
	}
	return s, nil
}

// decode reads the document, and its tree for the places in it. The library
// panics on some documents, such as a tag before an empty list item.
func decode(b []byte, s *Script) (file *ast.File, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = errors.New("the document is too odd to be read")
		}
	}()
	if err := yaml.UnmarshalWithOptions(b, s, yaml.Strict()); err != nil {
		return nil, err
	}
	return parser.ParseBytes(b, 0)
}

// located rewrites an error of the YAML library as one line with its place.
func located(err error) error {
	var at yaml.Error
	if errors.As(err, &at) && at.GetToken() != nil && at.GetToken().Position != nil {
		p := at.GetToken().Position
		return tallyman.Errorf(tallyman.Invalid, "line %d, column %d: %s", p.Line, p.Column, at.GetMessage())
	}
	return tallyman.Errorf(tallyman.Invalid, "%w", err)
}

// checker collects what is wrong with a script that could be decoded.
type checker struct {
	file *ast.File
	errs []error
}

// fault adds a complaint about the value at a path such as $.rules[0].times.
func (c *checker) fault(path, format string, args ...any) {
	msg := strings.TrimPrefix(path, "$.") + ": " + fmt.Sprintf(format, args...)
	for p := path; len(p) > 1; p = p[:max(strings.LastIndexAny(p, ".["), 0)] {
		yp, err := yaml.PathString(p)
		if err != nil {
			break
		}
		if node, err := yp.FilterFile(c.file); err == nil && node != nil && node.GetToken() != nil {
			pos := start(node).Position
			msg = fmt.Sprintf("line %d, column %d: %s", pos.Line, pos.Column, msg)
			break
		}
	}
	c.errs = append(c.errs, errors.New(msg))
}

// start is where a node begins; a mapping's own token is its first colon.
func start(node ast.Node) *token.Token {
	if m, ok := node.(*ast.MappingNode); ok && !m.IsFlowStyle && len(m.Values) > 0 {
		return m.Values[0].Key.GetToken()
	}
	return node.GetToken()
}

func (c *checker) script(s Script) {
	if s.Usage != nil {
		c.usage("$.usage", *s.Usage)
	}
	for i, r := range s.Rules {
		path := fmt.Sprintf("$.rules[%d]", i)
		if (r.Reply == nil) == (len(r.Turns) == 0) {
			c.fault(path, "give either reply or turns")
		}
		c.count(path+".times", r.Times)
		c.count(path+".match.call", r.Match.Call)
		if r.Match.Format != "" && !slices.Contains(formats, r.Match.Format) {
			c.fault(path+".match.format", "%q is no format; there are %v", r.Match.Format, formats)
		}
		if r.Reply != nil {
			c.reply(path+".reply", *r.Reply)
		}
		for j, turn := range r.Turns {
			c.reply(fmt.Sprintf("%s.turns[%d]", path, j), turn)
		}
	}
}

func (c *checker) reply(path string, r Reply) {
	if r.Usage != nil {
		c.usage(path+".usage", *r.Usage)
	}
	if r.Stop != "" && !slices.Contains(stops, r.Stop) {
		c.fault(path+".stop", "%q is no stop reason; there are %s", r.Stop, strings.Join(stops, ", "))
	}
	c.count(path+".chunk", r.Chunk)
	c.count(path+".delay", int(r.Delay))
	for i, b := range r.Blocks {
		c.block(fmt.Sprintf("%s.blocks[%d]", path, i), b)
	}
}

func (c *checker) block(path string, b Block) {
	if n := b.fields(); n != 1 {
		c.fault(path, "a block has exactly one of text, thinking, tool, agent, refusal, toolResult, flood, error, stall and cut; this one has %d", n)
		return
	}
	switch {
	case b.Tool != nil:
		if b.Tool.Name == "" {
			c.fault(path+".tool.name", "a tool call needs a name")
		}
		if _, err := json.Marshal(b.Tool.Input); err != nil {
			c.fault(path+".tool.input", "cannot be written as JSON: %v", err)
		}
	case b.Agent != nil && b.Agent.Prompt == "":
		c.fault(path+".agent.prompt", "a sub-agent needs a prompt")
	case b.Flood < 0 || b.Flood > MaxFlood:
		c.fault(path+".flood", "%d is not between 1 and %d", b.Flood, MaxFlood)
	case b.Error != nil:
		if b.Error.Status < 400 || b.Error.Status > 599 {
			c.fault(path+".error.status", "%d is no error status; give 400 to 599", b.Error.Status)
		}
		c.count(path+".error.after", b.Error.After)
		c.count(path+".error.times", b.Error.Times)
	case b.Stall != nil:
		c.count(path+".stall.after", b.Stall.After)
		c.count(path+".stall.times", b.Stall.Times)
	case b.Cut != nil:
		c.count(path+".cut.after", b.Cut.After)
		c.count(path+".cut.times", b.Cut.Times)
	}
}

// fields counts what a block gives. Empty text is given by no field.
func (b Block) fields() int {
	n := 0
	for _, given := range []bool{
		b.Text != "", b.Thinking != "", b.Tool != nil, b.Agent != nil, b.Refusal != "",
		b.ToolResult, b.Flood != 0, b.Error != nil, b.Stall != nil, b.Cut != nil,
	} {
		if given {
			n++
		}
	}
	return n
}

func (c *checker) usage(path string, u Usage) {
	for _, k := range []struct {
		name string
		n    int64
	}{{"input", u.Input}, {"output", u.Output}, {"cacheRead", u.CacheRead}, {"cacheWrite", u.CacheWrite}} {
		c.count(path+"."+k.name, int(k.n))
	}
}

func (c *checker) count(path string, n int) {
	if n < 0 {
		c.fault(path, "%d is negative", n)
	}
}
