package runner

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"math/rand/v2"
	"strings"
	"testing"
	"testing/iotest"
)

func readAll(t testing.TB, r io.Reader) (lines []string, cuts int) {
	t.Helper()
	l := newLineReader(r)
	for {
		c, err := l.next()
		for i, line := range c.lines {
			if c.cuts[i] != nil {
				cuts++
				lines = append(lines, "cut:"+c.cuts[i].SHA256)
				continue
			}
			lines = append(lines, string(line))
		}
		if errors.Is(err, io.EOF) {
			return lines, cuts
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

func TestLinesAreWholeWhateverTheReads(t *testing.T) {
	want := []string{"", "a", strings.Repeat("b", 70_000), "", "c\rd", strings.Repeat("é", 300_000), "no newline at the end"}
	text := strings.Join(want, "\n")
	readers := map[string]io.Reader{
		"at once":         strings.NewReader(text),
		"halves":          iotest.HalfReader(strings.NewReader(text)),
		"data with error": iotest.DataErrReader(strings.NewReader(text)),
		"random sizes":    randomReader{strings.NewReader(text)},
	}
	for name, r := range readers {
		t.Run(name, func(t *testing.T) {
			got, _ := readAll(t, r)
			if strings.Join(got, "\n") != text || len(got) != len(want) {
				t.Errorf("got %d lines, want %d", len(got), len(want))
			}
		})
	}
}

func TestALineTooLongToHoldKeepsDigestAndWhatFollows(t *testing.T) {
	for _, end := range []string{"\nnext\n", "\nnext", ""} {
		long := bytes.Repeat([]byte("0123456789abcdef"), (maxParse+readSize)/16+1)
		sum := sha256.Sum256(long)
		got, cuts := readAll(t, io.MultiReader(strings.NewReader("before\n"), bytes.NewReader(long), strings.NewReader(end)))
		if cuts != 1 || got[0] != "before" || got[1] != "cut:"+hex.EncodeToString(sum[:]) {
			t.Fatalf("end %q: %d cuts, lines %.100q", end, cuts, got)
		}
		if end != "" && got[2] != "next" {
			t.Fatalf("end %q: the line after it is %q", end, got[2])
		}
	}
}

func TestTheMemoryOfALongLineIsNotKept(t *testing.T) {
	l := newLineReader(io.MultiReader(strings.NewReader(strings.Repeat("x", 3<<20)+"\nrest"), strings.NewReader(" of it\n"), strings.NewReader("end\n")))
	var got []string
	for {
		c, err := l.next()
		for _, line := range c.lines {
			got = append(got, string(line))
		}
		if err != nil {
			break
		}
	}
	if len(l.buf) != readSize {
		t.Errorf("it keeps %d bytes", len(l.buf))
	}
	if len(got) != 3 || len(got[0]) != 3<<20 || got[1] != "rest of it" || got[2] != "end" {
		t.Errorf("got %d lines", len(got))
	}
}

func TestTheTailOfALongLineIsItsLastBytes(t *testing.T) {
	l, all := newLongLine(), []byte(nil)
	for range 500 {
		b := bytes.Repeat([]byte{byte(rand.IntN(256))}, rand.IntN(1000))
		all = append(all, b...)
		l.write(b)
	}
	c := l.rawCut()
	if !bytes.Equal(c.Head, all[:keepEnds]) || !bytes.Equal(c.Tail, all[len(all)-keepEnds:]) || c.Bytes != int64(len(all)) {
		t.Error("head, tail or length differ from what was written")
	}
}

type randomReader struct{ r io.Reader }

func (r randomReader) Read(p []byte) (int, error) { return r.r.Read(p[:1+rand.IntN(len(p))]) }

func FuzzLines(f *testing.F) {
	f.Add([]byte("a\nb\n\nc"), uint8(3))
	f.Fuzz(func(t *testing.T, b []byte, size uint8) {
		got, _ := readAll(t, sized{bytes.NewReader(b), int(size) + 1})
		want := strings.Split(string(b), "\n")
		if want[len(want)-1] == "" {
			want = want[:len(want)-1]
		}
		if strings.Join(got, "\n") != strings.Join(want, "\n") || len(got) != len(want) {
			t.Errorf("got %q, want %q", got, want)
		}
	})
}

type sized struct {
	r io.Reader
	n int
}

func (s sized) Read(p []byte) (int, error) { return s.r.Read(p[:min(len(p), s.n)]) }
