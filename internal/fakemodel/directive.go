package fakemodel

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/tallyman-dev/tallyman"
)

// program is what the directives of one prompt ask for: one reply per call.
type program struct {
	replies []Reply
	loop    bool
}

// at returns the reply for the nth call, from 0.
func (p program) at(n int) (Reply, bool) {
	if p.loop && len(p.replies) > 0 {
		n %= len(p.replies)
	}
	if n >= len(p.replies) {
		return Reply{}, false
	}
	return p.replies[n], true
}

const mark = "%%"

var words = []string{
	"say", "think", "tool", "agent", "refuse", "result", "flood", "error", "stall", "cut",
	"usage", "stop", "chunk", "delay", "next", "loop",
}

// hasDirective reports whether a text has anything for compile to do.
func hasDirective(text string) bool {
	_, _, ok := nextDirective(text)
	return ok
}

// nextDirective finds the first %%word and returns the word and what follows
// it. Two percent signs before anything else are prose.
func nextDirective(text string) (word, rest string, ok bool) {
	for {
		i := strings.Index(text, mark)
		if i < 0 {
			return "", "", false
		}
		text = text[i+len(mark):]
		n := 0
		for n < len(text) && text[n] >= 'a' && text[n] <= 'z' {
			n++
		}
		word, rest = text[:n], text[n:]
		ends := strings.HasPrefix(rest, mark) || strings.HasPrefix(rest, " ") || strings.HasPrefix(rest, "\n")
		if ends && slices.Contains(words, word) {
			return word, rest, true
		}
	}
}

// compiler turns directives into replies.
type compiler struct {
	program
	reply  Reply
	filled bool // the reply has something in it
	calls  bool // its last block is a tool call
}

// compile reads the directives of a prompt, in one pass over it.
func compile(text string) (program, error) {
	var c compiler
	for {
		word, rest, ok := nextDirective(text)
		if !ok {
			break
		}
		after, err := c.directive(word, rest)
		if err != nil {
			return program{}, fmt.Errorf("directive %s%s: %w", mark, word, err)
		}
		text = after
	}
	c.flush()
	return c.program, nil
}

// flush ends the reply under way.
func (c *compiler) flush() {
	if c.filled {
		c.replies = append(c.replies, c.reply)
	}
	c.reply, c.filled, c.calls = Reply{}, false, false
}

// add appends a block. Tool calls in a row belong to one reply, and nothing
// else comes after them.
func (c *compiler) add(b Block) {
	call := b.Tool != nil || b.Agent != nil
	if c.calls && !call {
		c.flush()
	}
	c.reply.Blocks = append(c.reply.Blocks, b)
	c.filled, c.calls = true, call
}

// directive carries out one directive and returns the text after it.
func (c *compiler) directive(word, text string) (rest string, err error) {
	switch word {
	case "tool":
		return c.tool(text)
	case "agent":
		return c.agent(text)
	}
	arg, rest, err := argument(text)
	if err != nil {
		return "", err
	}
	switch word {
	case "say":
		c.add(Block{Text: arg})
	case "think":
		c.add(Block{Thinking: arg})
	case "refuse":
		c.add(Block{Refusal: arg})
	case "result":
		c.add(Block{ToolResult: true})
	case "flood":
		n, err := count(arg, MaxFlood)
		if err != nil {
			return "", err
		}
		c.add(Block{Flood: n})
	case "error", "stall", "cut":
		b, err := fault(word, strings.Fields(arg))
		if err != nil {
			return "", err
		}
		c.add(b)
	case "next":
		c.filled = true
		c.flush()
	case "loop":
		c.loop = true
	default:
		err = c.setting(word, arg)
	}
	return rest, err
}

// setting changes how the reply under way is sent.
func (c *compiler) setting(word, arg string) error {
	if c.calls && word != "usage" && word != "stop" {
		c.flush()
	}
	c.filled = true
	var err error
	switch word {
	case "usage":
		c.reply.Usage, err = usage(strings.Fields(arg))
	case "stop":
		if !slices.Contains(stops, arg) {
			return fmt.Errorf("%q is no stop reason; there are %s", arg, strings.Join(stops, ", "))
		}
		c.reply.Stop = arg
	case "chunk":
		c.reply.Chunk, err = count(arg, 1<<30)
	case "delay":
		err = c.reply.Delay.UnmarshalText([]byte(arg))
	default:
		return fmt.Errorf("unknown")
	}
	return err
}

// argument returns what stands before the closing mark. As a JSON string it
// may hold the mark itself.
func argument(text string) (arg, rest string, err error) {
	text = strings.TrimLeft(text, " \t\r\n")
	if strings.HasPrefix(text, `"`) {
		var s string
		if rest, err := value(text, &s); err == nil {
			return s, rest, nil
		}
	}
	arg, rest, ok := strings.Cut(text, mark)
	if !ok {
		return "", "", fmt.Errorf("the closing %s is missing", mark)
	}
	return strings.TrimSpace(arg), rest, nil
}

// value decodes one JSON value and the closing mark after it.
func value(text string, into any) (rest string, err error) {
	d := json.NewDecoder(strings.NewReader(text))
	if err := d.Decode(into); err != nil {
		return "", fmt.Errorf("read JSON: %w", err)
	}
	rest, ok := strings.CutPrefix(strings.TrimLeft(text[d.InputOffset():], " \t\r\n"), mark)
	if !ok {
		return "", fmt.Errorf("the closing %s is missing after the JSON value", mark)
	}
	return rest, nil
}

func (c *compiler) tool(text string) (rest string, err error) {
	text = strings.TrimLeft(text, " \t\r\n")
	n := strings.IndexAny(text, " \t\r\n{%")
	if n <= 0 {
		return "", fmt.Errorf("the tool's name is missing")
	}
	t := &Tool{Name: text[:n], raw: json.RawMessage("{}")}
	text = strings.TrimLeft(text[n:], " \t\r\n")
	if rest, ok := strings.CutPrefix(text, mark); ok {
		c.add(Block{Tool: t})
		return rest, nil
	}
	if rest, err = value(text, &t.raw); err != nil {
		return "", err
	}
	if t.raw[0] != '{' {
		return "", fmt.Errorf("the input of tool %s is not a JSON object", t.Name)
	}
	var b bytes.Buffer
	if err := json.Compact(&b, t.raw); err != nil {
		return "", fmt.Errorf("read JSON: %w", err)
	}
	t.raw = b.Bytes()
	c.add(Block{Tool: t})
	return rest, nil
}

// agent takes what stands before the matching end as the sub-agent's prompt.
func (c *compiler) agent(text string) (rest string, err error) {
	name, text, err := argument(text)
	if err != nil {
		return "", err
	}
	const opening, closing = mark + "agent", mark + "end" + mark
	depth, pos := 1, 0
	for {
		end := strings.Index(text[pos:], closing)
		if end < 0 {
			return "", fmt.Errorf("its %s is missing", closing)
		}
		if next := strings.Index(text[pos:], opening); next >= 0 && next < end {
			depth++
			pos += next + len(opening)
			continue
		}
		depth--
		if depth == 0 {
			c.add(Block{Agent: &Agent{Description: name, Prompt: strings.TrimSpace(text[:pos+end])}})
			return text[pos+end+len(closing):], nil
		}
		pos += end + len(closing)
	}
}

// fault reads the arguments of error, stall and cut: what the word itself
// takes, then options, then, for an error, its message.
func fault(word string, args []string) (Block, error) {
	var f Fault
	var wait tallyman.Duration
	switch {
	case word == "error" && len(args) == 0:
		return Block{}, fmt.Errorf("the status is missing")
	case word == "error":
		n, err := count(args[0], 599)
		if err != nil || n < 400 {
			return Block{}, fmt.Errorf("%q is no error status; give 400 to 599", args[0])
		}
		f.Status, args = n, args[1:]
	case word == "stall" && len(args) > 0 && !strings.Contains(args[0], "="):
		if err := wait.UnmarshalText([]byte(args[0])); err != nil {
			return Block{}, err
		}
		args = args[1:]
	}
	for len(args) > 0 {
		key, val, ok := strings.Cut(args[0], "=")
		if !ok {
			break
		}
		known, err := f.option(word, key, val)
		if err != nil {
			return Block{}, fmt.Errorf("%s: %w", key, err)
		}
		if !known {
			break
		}
		args = args[1:]
	}
	f.Message = strings.Join(args, " ")
	switch {
	case word == "error":
		return Block{Error: &f}, nil
	case f.Message != "":
		return Block{}, fmt.Errorf("%q is not understood", f.Message)
	case word == "stall":
		return Block{Stall: &Pause{For: wait, After: f.After, Times: f.Times}}, nil
	default:
		return Block{Cut: &Break{After: f.After, Times: f.Times}}, nil
	}
}

// option sets one option; an error's message may hold what looks like others.
func (f *Fault) option(word, key, val string) (known bool, err error) {
	switch {
	case key == "after":
		f.After, err = count(val, 1<<30)
	case key == "times":
		f.Times, err = count(val, 1<<30)
	case key == "type" && word == "error":
		f.Type = val
	case key == "retry-after" && word == "error":
		err = f.RetryAfter.UnmarshalText([]byte(val))
	default:
		return false, nil
	}
	return true, err
}

func usage(args []string) (*Usage, error) {
	var u Usage
	for _, a := range args {
		key, val, _ := strings.Cut(a, "=")
		n, err := count(val, 1<<40)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", key, err)
		}
		switch key {
		case "input":
			u.Input = int64(n)
		case "output":
			u.Output = int64(n)
		case "cache-read":
			u.CacheRead = int64(n)
		case "cache-write":
			u.CacheWrite = int64(n)
		default:
			return nil, fmt.Errorf("%q is not input, output, cache-read or cache-write", key)
		}
	}
	return &u, nil
}

// count reads a positive number.
func count(s string, limit int) (int, error) {
	n, err := strconv.Atoi(s)
	if err != nil || n < 0 || n > limit {
		return 0, fmt.Errorf("%q is not a number from 0 to %d", s, limit)
	}
	return n, nil
}

// retryAfter is how a wait is told in a header.
func retryAfter(d tallyman.Duration) string {
	return strconv.FormatInt(int64((d.D()+time.Second-1)/time.Second), 10)
}
