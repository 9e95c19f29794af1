package render

import (
	"bytes"
	"io"
	"strings"

	"github.com/tallyman-dev/tallyman"
)

// Style says how a Printer writes.
type Style struct {
	Colour   bool // use colours and faint text
	Width    int  // columns to keep one-line things within; 0: 200
	Exec     bool // the harness is exec: its lines exactly as written; what is ours goes to Err
	Terminal bool // w is a terminal: exec's lines are cleaned, live text appears as it comes
	ASCII    bool // marks of plain ASCII
	// Err gets the agent's standard error; nil: the same as everything else.
	Err io.Writer
}

// outputLines is how many lines of an output are shown.
const outputLines = 10

// Printer writes lines as plain text. Not safe for concurrent use.
type Printer struct {
	w, errw io.Writer
	style   Style
	marks   marks

	bol  bool   // at the beginning of a line
	last Kind   // what was written last; "" at the beginning
	call string // the call whose head was written last
	open bool   // that head's line still waits for its end
	live *liveText
	// missed is a block whose first pieces were not written, so that none is.
	missed string
	buf    bytes.Buffer
	other  bytes.Buffer // for errw
}

type marks struct{ call, think, note, fail, bar, end string }

var (
	plainMarks = marks{call: "> ", think: "~ ", note: "- ", fail: "x ", bar: "  | ", end: "  ` "}
	fineMarks  = marks{call: "▸ ", think: "∴ ", note: "· ", fail: "✕ ", bar: "  │ ", end: "  └ "}
)

// NewPrinter returns a Printer that writes to w.
func NewPrinter(w io.Writer, style Style) *Printer {
	p := &Printer{w: w, errw: style.Err, style: style, marks: fineMarks, bol: true}
	if p.errw == nil {
		p.errw = w
	}
	if style.ASCII {
		p.marks = plainMarks
	}
	if p.style.Width <= 0 {
		p.style.Width = maxHead
	}
	return p
}

// Print writes the lines. An error is that of the writer.
func (p *Printer) Print(lines []Line) error {
	for _, l := range lines {
		if p.style.Exec {
			p.exec(l)
			continue
		}
		p.line(l)
	}
	return p.flush()
}

func (p *Printer) flush() error {
	_, err := p.w.Write(p.buf.Bytes())
	p.buf.Reset()
	if p.other.Len() == 0 {
		return err
	}
	_, errw := p.errw.Write(p.other.Bytes())
	p.other.Reset()
	if err != nil {
		return err
	}
	return errw
}

// exec writes a line of an exec harness, and beside its standard output, which
// stays whole, errors of the runner's and where another attempt begins.
func (p *Printer) exec(l Line) {
	switch l.Kind {
	case KindText, KindStderr:
		to := &p.buf
		if l.Kind == KindStderr {
			to = &p.other
		}
		if p.style.Terminal {
			to.WriteString(l.Body)
		} else {
			to.Write(l.Raw)
		}
		to.WriteByte('\n')
	case KindError:
		p.other.WriteString(l.Head + "\n")
	case KindAttempt:
		p.other.WriteString(p.paint(faint, "tallyman: "+l.Head) + "\n")
	}
}

func (p *Printer) line(l Line) {
	switch l.Kind {
	case KindMark, KindOutput:
		return
	case KindText:
		p.text(l)
	case KindThinking:
		p.gap(KindNotice)
		p.body(l.Depth, p.marks.think, l.Body, faint)
	case KindCall:
		if !l.Muted {
			p.begin(l)
		}
	case KindDone:
		if !l.Muted {
			p.end(l)
		}
	case KindStderr:
		p.stderr(l)
	case KindResult:
		if l.Body != "" {
			p.gap(KindText)
			p.write(indent(l.Body, pad(l.Depth)))
			p.newline()
		}
	case KindEnd, KindError:
		if l.Kind == KindEnd && !l.Failed {
			return
		}
		p.gap(KindNotice)
		p.head(l.Depth, p.marks.fail, l.Head, red)
		p.body(l.Depth, p.marks.bar, l.Body, "")
	case KindAttempt:
		p.gap(KindText)
		p.head(0, "", l.Head, bold)
	default:
		p.gap(KindNotice)
		p.head(l.Depth, p.marks.note, l.Head, shade(l))
		p.body(l.Depth, p.marks.bar, l.Body, faint)
	}
}

func shade(l Line) string {
	switch {
	case l.Failed:
		return red
	case l.Muted:
		return faint
	default:
		return ""
	}
}

// gap ends what is open and keeps prose and the rest apart by an empty line.
func (p *Printer) gap(next Kind) {
	p.interrupt()
	prose := next == KindText
	if p.last != "" && (prose || p.last == KindText) {
		p.write("\n")
	}
	p.last, p.call, p.open = next, "", false
}

// begin writes a call's head. On a terminal its line stays open, so that the
// end of a quick call comes on the same line.
func (p *Printer) begin(l Line) {
	p.gap(KindCall)
	p.callHead(l, p.style.Width-14)
	p.call = l.Call
	if p.style.Terminal {
		p.open = true
		return
	}
	p.newline()
}

func (p *Printer) callHead(l Line, width int) {
	p.write(pad(l.Depth) + p.paint(faint, p.marks.call) + p.paint(bold, l.Tool))
	width -= 2*l.Depth + 4 + len(l.Tool)
	if l.Arg != "" {
		p.write("  " + cut(l.Arg, max(width, 20)))
	}
}

func (p *Printer) end(l Line) {
	ending, colour := "ok", faint
	if l.Failed {
		ending, colour = "failed", red
	}
	if l.Took > 0 {
		ending = Took(l.Took) + " " + ending
	}
	switch {
	case p.open && p.call == l.Call && p.live == nil:
		p.write("  ")
	case p.call == l.Call && p.live == nil && p.last == KindCall:
		p.write(pad(l.Depth) + p.paint(faint, p.marks.end))
	default:
		p.gap(KindCall)
		p.callHead(l, p.style.Width-14)
		p.write("  ")
	}
	p.write(p.paint(colour, ending))
	p.newline()
	p.open, p.call, p.last = false, "", KindCall
	p.body(l.Depth, p.marks.bar, l.Body, faint)
}

func (p *Printer) stderr(l Line) {
	if p.style.Err == nil {
		p.gap(KindNotice)
		p.head(l.Depth, p.marks.bar, l.Body, faint)
		return
	}
	p.other.WriteString(l.Body + "\n")
}

func (p *Printer) head(depth int, mark, text, colour string) {
	text = cut(text, max(p.style.Width-2*depth-len(mark), 20))
	p.write(pad(depth) + p.paint(colour, mark+text))
	p.newline()
}

// body writes lines behind a mark, and no more of them than a glance takes in.
func (p *Printer) body(depth int, mark, body, colour string) {
	body = strings.Trim(body, "\n")
	if strings.TrimSpace(body) == "" {
		return
	}
	total := strings.Count(body, "\n") + 1
	for i := 0; i < min(total, outputLines); i++ {
		text, rest, _ := strings.Cut(body, "\n")
		body = rest
		text = cut(strings.ReplaceAll(text, "\t", "    "), max(p.style.Width-2*depth-4, 20))
		p.write(pad(depth) + p.paint(colour, mark+text))
		p.newline()
		if mark == p.marks.think {
			mark = "  "
		}
	}
	if more := total - outputLines; more > 0 {
		noun := " more lines"
		if more == 1 {
			noun = " more line"
		}
		p.write(pad(depth) + p.paint(faint, "  … "+Count(int64(more))+noun))
		p.newline()
	}
}

// The colours, as what comes between CSI and m.
const (
	bold  = "1"
	faint = "2"
	red   = "31"
)

func (p *Printer) paint(colour, s string) string {
	if !p.style.Colour || colour == "" || s == "" {
		return s
	}
	return "\x1b[" + colour + "m" + s + "\x1b[0m"
}

func (p *Printer) write(s string) {
	if s == "" {
		return
	}
	p.buf.WriteString(s)
	p.bol = s[len(s)-1] == '\n'
}

func (p *Printer) newline() {
	if !p.bol {
		p.write("\n")
	}
}

func pad(depth int) string { return strings.Repeat("  ", depth) }

func indent(s, by string) string {
	if by == "" {
		return s
	}
	return by + strings.ReplaceAll(s, "\n", "\n"+by)
}

// liveText is text that was written while it came, before its event.
type liveText struct {
	block   string
	clean   cleaner
	written int  // bytes of clean.out that are on the screen
	broken  bool // something else was written after it
}

// Delta writes a piece of the agent's own text on a terminal as it comes.
// What a Delta has written, the event that holds the whole does not repeat.
// Thinking, sub-agents and a second block at the same time wait for their
// event.
func (p *Printer) Delta(d tallyman.Delta) error {
	if !p.style.Terminal || p.style.Exec || d.Type != tallyman.EventText || d.Parent != "" {
		return nil
	}
	if p.live == nil && d.Block == p.missed && d.Block != "" {
		return nil
	}
	if p.live == nil {
		p.gap(KindText)
		p.live = &liveText{block: d.Block, clean: cleaner{live: true}}
	}
	if p.live.block != d.Block {
		p.missed = d.Block
		return nil
	}
	if p.live.broken {
		return nil
	}
	p.live.clean.write(d.Delta)
	p.write(string(p.live.clean.out[p.live.written:]))
	p.live.written = len(p.live.clean.out)
	return p.flush()
}

// interrupt ends the line that is open because something else comes.
func (p *Printer) interrupt() {
	p.newline()
	if p.live != nil {
		p.live.broken = true
	}
}

// text writes the agent's prose, or what is left of it to write.
func (p *Printer) text(l Line) {
	body := strings.Trim(l.Body, "\n")
	if l.Partial {
		body += " … (cut off)"
	}
	if l.Parent == "" && p.live != nil {
		said := strings.TrimSpace(string(p.live.clean.out))
		rest, same := strings.CutPrefix(strings.TrimSpace(body), said)
		broken := p.live.broken
		p.live = nil
		if same {
			p.finish(rest, broken)
			return
		}
	} else if l.Parent == "" {
		p.missed = ""
	}
	if strings.TrimSpace(body) == "" {
		return
	}
	p.gap(KindText)
	p.write(indent(body, pad(l.Depth)))
	p.newline()
}

// finish writes what a live text lacks.
func (p *Printer) finish(rest string, broken bool) {
	if broken && strings.TrimSpace(rest) != "" {
		p.gap(KindText)
		rest = strings.TrimLeft(rest, " \n")
	}
	p.write(rest)
	p.newline()
	if !broken {
		p.last = KindText
	}
}
