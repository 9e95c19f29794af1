package harness

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/tallyman-dev/tallyman"
)

// How Script ends when it does not end by a step.
const (
	exitBroken  = 1
	exitUsage   = 2
	exitStopped = 128 + int(syscall.SIGTERM)
)

// Script is the program of the script harness: it plays the JSON steps of the
// file that args names; "-" takes them from stdin. Otherwise stdin is the
// prompt, and is read only if a step mentions it. It returns the exit code;
// when ctx ends it stops where it is and returns 143.
func Script(ctx context.Context, args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	if len(args) != 1 {
		fmt.Fprintln(stderr, "script: one argument is wanted: a file of JSON steps, or - for standard input")
		return exitUsage
	}
	p := &player{ctx: ctx, out: stdout, err: stderr}
	source, err := p.load(args[0], stdin)
	if err != nil {
		fmt.Fprintln(stderr, "script:", err)
		return exitUsage
	}
	steps, err := readSteps(source)
	if err != nil {
		fmt.Fprintln(stderr, "script:", err)
		return exitUsage
	}
	var code exitError
	switch err := p.playAll(steps); {
	case errors.As(err, &code):
		return int(code)
	case err != nil && ctx.Err() != nil:
		return exitStopped
	case err != nil:
		fmt.Fprintln(stderr, "script:", err)
		return exitBroken
	}
	return 0
}

// exitError ends a script with a code.
type exitError int

func (e exitError) Error() string { return fmt.Sprintf("exit %d", int(e)) }

// player plays steps. It lives as long as its process, which is why it may
// hold the context.
type player struct {
	ctx    context.Context
	out    io.Writer
	err    io.Writer
	words  *strings.Replacer
	parent string // the sub-agent that is being played
	calls  int
	blocks int
	used   scriptUsage
}

// load returns the steps as they are written, and prepares what {{…}} means.
func (p *player) load(file string, stdin io.Reader) (source []byte, err error) {
	var prompt []byte
	if file == "-" {
		if source, err = io.ReadAll(stdin); err != nil {
			return nil, fmt.Errorf("read the steps from standard input: %w", err)
		}
		if len(bytes.TrimSpace(source)) == 0 {
			return nil, errors.New("there are no steps: put them in settings.steps, or in the prompt as a JSON list")
		}
		prompt = source
	} else if source, err = os.ReadFile(file); err != nil {
		return nil, fmt.Errorf("read the steps: %w", err)
	}
	if file != "-" && bytes.Contains(source, []byte("{{prompt")) {
		if prompt, err = io.ReadAll(stdin); err != nil {
			return nil, fmt.Errorf("read the prompt: %w", err)
		}
	}
	attempt := os.Getenv("TALLYMAN_ATTEMPT_NO")
	if attempt == "" {
		attempt = "1"
	}
	p.words = strings.NewReplacer("{{prompt}}", string(prompt),
		"{{promptBytes}}", strconv.Itoa(len(prompt)), "{{attempt}}", attempt)
	return source, nil
}

func (p *player) playAll(steps []step) error {
	for _, s := range steps {
		if err := p.ctx.Err(); err != nil {
			return err
		}
		if err := s.play(p); err != nil {
			return err
		}
	}
	return nil
}

// write puts one line of the protocol out, at once.
func (p *player) write(line scriptLine) error {
	if line.Parent == "" {
		line.Parent = p.parent
	}
	_, err := p.out.Write(append(encode(line), '\n'))
	return err
}

func (p *player) sleep(d time.Duration) error {
	if d <= 0 {
		return nil
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-p.ctx.Done():
		return p.ctx.Err()
	case <-t.C:
		return nil
	}
}

func (s *sayStep) play(p *player) error   { return p.speak(tallyman.EventText, *s) }
func (s *thinkStep) play(p *player) error { return p.speak(tallyman.EventThinking, sayStep(*s)) }

// speak tells a text whole, after its words one by one if it takes time.
func (p *player) speak(kind tallyman.EventType, s sayStep) error {
	text := p.words.Replace(s.Text)
	if s.Over > 0 {
		p.blocks++
		words := strings.SplitAfter(text, " ")
		for _, w := range words {
			if err := p.write(scriptLine{Type: "delta", Of: kind, Block: p.blocks, Text: w}); err != nil {
				return err
			}
			if err := p.sleep(s.Over.D() / time.Duration(len(words))); err != nil {
				return err
			}
		}
	}
	return p.write(scriptLine{Type: string(kind), Text: text})
}

func (s *toolStep) play(p *player) error {
	id := s.ID
	if id == "" {
		id = p.callID()
	}
	input, err := p.expand(s.Input)
	if err != nil {
		return err
	}
	if err := p.write(scriptLine{Type: "tool.started", ID: id, Name: s.Name, Data: input, Parent: s.Parent}); err != nil {
		return err
	}
	if err := p.sleep(s.Duration.D()); err != nil {
		return err
	}
	return p.write(scriptLine{Type: "tool.finished", ID: id, Text: p.words.Replace(s.Output), Failed: s.Failed, Parent: s.Parent})
}

func (p *player) callID() string {
	p.calls++
	return "call-" + strconv.Itoa(p.calls)
}

// expand replaces {{…}} in every string of a JSON value.
func (p *player) expand(raw json.RawMessage) (json.RawMessage, error) {
	if !bytes.Contains(raw, []byte("{{")) {
		return raw, nil
	}
	var v any
	if err := json.Unmarshal(raw, &v); err != nil {
		return nil, err
	}
	return encode(p.expandValue(v)), nil
}

func (p *player) expandValue(v any) any {
	switch v := v.(type) {
	case string:
		return p.words.Replace(v)
	case []any:
		for i := range v {
			v[i] = p.expandValue(v[i])
		}
	case map[string]any:
		for k := range v {
			v[k] = p.expandValue(v[k])
		}
	}
	return v
}

func (s *writeStep) play(p *player) error {
	path, content := p.words.Replace(s.Path), p.words.Replace(s.Content)
	err := os.MkdirAll(filepath.Dir(path), 0o755)
	if err == nil {
		err = os.WriteFile(path, []byte(content), 0o644)
	}
	tool := toolStep{Name: "Write", Input: encode(map[string]string{"path": path}), Output: fmt.Sprintf("%d bytes", len(content))}
	if err != nil {
		tool.Output, tool.Failed = err.Error(), true
	}
	return tool.play(p)
}

func (s *sleepStep) play(p *player) error { return p.sleep(s.For.D()) }

func (s *usageStep) play(p *player) error {
	p.used.InputTokens += s.InputTokens
	p.used.OutputTokens += s.OutputTokens
	p.used.CacheReadTokens += s.CacheReadTokens
	p.used.CacheWriteTokens += s.CacheWriteTokens
	if s.CostUSD != nil {
		sum := *s.CostUSD
		if p.used.CostUSD != nil {
			sum += *p.used.CostUSD
		}
		p.used.CostUSD = &sum
	}
	return p.write(scriptLine{Type: "usage", Usage: &p.used})
}

func (s *stderrStep) play(p *player) error {
	_, err := fmt.Fprintln(p.err, p.words.Replace(s.Text))
	return err
}

func (s *garbageStep) play(p *player) error {
	_, err := p.out.Write(append(s.bytes[:len(s.bytes):len(s.bytes)], '\n'))
	return err
}

// randomBytes gives the same bytes for the same number, so that a failure can
// be seen again.
func randomBytes(n int) []byte {
	b := make([]byte, n)
	_, _ = rand.NewChaCha8([32]byte{'t', 'a', 'l', 'l', 'y'}).Read(b) // never fails
	return b
}

func (s *floodStep) play(p *player) error {
	size := s.Line
	if size == 0 {
		size = 1024
	}
	empty := len(encode(scriptLine{Type: "text", Text: "x"})) - 1
	line := encode(scriptLine{Type: "text", Text: strings.Repeat("~", max(1, size-empty-1)), Parent: p.parent})
	line = append(line, '\n')
	lines := s.Lines
	if lines == 0 {
		lines = max(1, s.Bytes/int64(len(line)))
	}
	chunk := bytes.Repeat(line, int(min(lines, max(1, int64(1<<18/len(line))))))
	for left := lines * int64(len(line)); left > 0; left -= int64(len(chunk)) {
		if err := p.ctx.Err(); err != nil {
			return err
		}
		if _, err := p.out.Write(chunk[:min(left, int64(len(chunk)))]); err != nil {
			return err
		}
	}
	return nil
}

func (s *exitStep) play(*player) error { return exitError(s.code) }

// play waits until something ends the process.
func (hangStep) play(p *player) error {
	for {
		if err := p.sleep(time.Hour); err != nil {
			return err
		}
	}
}

func (ignoreTermStep) play(*player) error {
	signal.Ignore(syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP)
	return nil
}

func (s *childStep) play(p *player) error {
	argv := s.Command
	if len(argv) == 0 {
		life := s.Sleep.D()
		if life == 0 {
			life = time.Minute
		}
		argv = []string{"sleep", strconv.FormatFloat(life.Seconds(), 'f', -1, 64)}
	}
	cmd := exec.Command(argv[0], argv[1:]...) // not ended with ctx: it is to outlive us
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: s.Setsid == nil || *s.Setsid}
	if s.Hold {
		cmd.Stdout = p.out
	}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("start a child: %w", err)
	}
	pid := cmd.Process.Pid
	if err := cmd.Process.Release(); err != nil {
		return fmt.Errorf("let go of child %d: %w", pid, err)
	}
	return p.write(scriptLine{Type: "notice", Name: "child", Text: strconv.Itoa(pid), Data: fmt.Appendf(nil, `{"pid":%d}`, pid)})
}

func (s *resultStep) play(p *player) error {
	return p.write(scriptLine{Type: "result", Text: p.words.Replace(s.Text), Failed: s.Failed, Reason: s.Reason})
}

func (s *agentStep) play(p *player) error {
	id, outer := p.callID(), p.parent
	input := encode(map[string]string{"description": s.Name})
	if err := p.write(scriptLine{Type: "tool.started", ID: id, Name: "Agent", Data: input}); err != nil {
		return err
	}
	if err := p.write(scriptLine{Type: "subtask", ID: id, Name: "started", Text: s.Name}); err != nil {
		return err
	}
	p.parent = id
	err := p.playAll(s.steps)
	p.parent = outer
	if err != nil {
		return err
	}
	if err := p.write(scriptLine{Type: "subtask", ID: id, Name: "notification", Text: s.Name}); err != nil {
		return err
	}
	return p.write(scriptLine{Type: "tool.finished", ID: id, Text: p.words.Replace(s.Output)})
}

func (s *repeatStep) play(p *player) error {
	for range s.Times {
		if err := p.playAll(s.steps); err != nil {
			return err
		}
	}
	return nil
}
