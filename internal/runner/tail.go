package runner

import "strings"

const (
	tailLines = 50
	tailWidth = 2000
)

// tail keeps the last 50 lines of a stream, of each the first 2,000 bytes. It
// sees every line of a fast stream, so its memory is used again and again.
type tail struct {
	lines [tailLines][]byte
	n     int // lines seen
}

func (t *tail) add(text string) {
	switch {
	case text == "":
	case strings.IndexByte(text, '\n') < 0:
		t.put(text)
	default:
		for _, line := range lastLines(text, tailLines) {
			t.put(line)
		}
	}
}

func (t *tail) put(line string) {
	b := t.lines[t.n%tailLines][:0]
	if len(line) > tailWidth {
		b = append(append(b, strings.ToValidUTF8(line[:tailWidth], "")...), "…"...)
	} else {
		b = append(b, line...)
	}
	t.lines[t.n%tailLines] = b
	t.n++
}

// String is the lines, joined.
func (t *tail) String() string {
	var b strings.Builder
	for i := max(0, t.n-tailLines); i < t.n; i++ {
		if b.Len() > 0 || i > max(0, t.n-tailLines) {
			b.WriteByte('\n')
		}
		b.Write(t.lines[i%tailLines])
	}
	return b.String()
}

// lastLines returns the last n lines of a text.
func lastLines(text string, n int) []string {
	text = strings.TrimSuffix(text, "\n")
	i := len(text)
	for range n {
		j := strings.LastIndexByte(text[:i], '\n')
		if j < 0 {
			return strings.Split(text, "\n")
		}
		i = j
	}
	return strings.Split(text[i+1:], "\n")
}
