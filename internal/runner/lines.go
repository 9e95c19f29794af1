package runner

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"hash"
	"io"

	"github.com/tallyman-dev/tallyman"
)

const (
	// maxParse is how long a line may be to be understood. Of a longer one only
	// head, tail and digest are kept.
	maxParse = 64 << 20
	keepEnds = 64 << 10
	readSize = 256 << 10
)

// chunk is what one read of a stream gave: whole lines, and lines too long to
// hold. A line is valid until the next chunk.
type chunk struct {
	lines [][]byte
	cuts  map[int]*tallyman.RawCut // by index into lines, whose entry is nil
}

// lineReader splits a stream into lines without a ceiling on their length.
type lineReader struct {
	r    io.Reader
	buf  []byte
	n    int // bytes in buf
	off  int // bytes of buf that were handed out
	scan int // bytes of buf known to hold no newline
	long *longLine
	out  chunk
}

func newLineReader(r io.Reader) *lineReader {
	return &lineReader{r: r, buf: make([]byte, readSize)}
}

// next returns the lines that the next read completes. At the end of the
// stream it returns what is left as a last line, then io.EOF.
func (l *lineReader) next() (chunk, error) {
	l.out.lines, l.out.cuts = l.out.lines[:0], nil
	if l.off > 0 {
		into := l.buf
		if len(l.buf) > readSize && l.n-l.off < readSize {
			into = make([]byte, readSize) // a long line was handed out: its memory is not kept
		}
		copy(into, l.buf[l.off:l.n])
		l.buf = into
		l.n, l.scan, l.off = l.n-l.off, l.scan-l.off, 0
	}
	if l.n == len(l.buf) {
		l.grow()
	}
	n, err := l.r.Read(l.buf[l.n:])
	l.n += n
	l.split()
	if err == nil {
		return l.out, nil
	}
	if l.long != nil {
		l.long.write(l.buf[l.off:l.n])
		l.cut()
	} else if l.n > l.off {
		l.out.lines = append(l.out.lines, l.buf[l.off:l.n])
	}
	l.off, l.scan = l.n, l.n
	return l.out, err
}

// split hands out the complete lines in the buffer. They alias it: what
// follows them is moved down only by the next read.
func (l *lineReader) split() {
	start := 0
	for {
		i := bytes.IndexByte(l.buf[l.scan:l.n], '\n')
		if i < 0 {
			break
		}
		l.line(l.buf[start : l.scan+i])
		l.scan += i + 1
		start = l.scan
	}
	l.off, l.scan = start, l.n
}

func (l *lineReader) line(b []byte) {
	if l.long != nil {
		l.long.write(b)
		l.cut()
		return
	}
	l.out.lines = append(l.out.lines, b)
}

// cut ends a line that was too long to hold.
func (l *lineReader) cut() {
	if l.out.cuts == nil {
		l.out.cuts = map[int]*tallyman.RawCut{}
	}
	l.out.cuts[len(l.out.lines)] = l.long.rawCut()
	l.out.lines = append(l.out.lines, nil)
	l.long = nil
}

// grow makes room for more of a line that fills the buffer, or, when it is
// too long to hold, goes on with its digest only.
func (l *lineReader) grow() {
	if l.long == nil && l.n < maxParse {
		bigger := make([]byte, 2*len(l.buf))
		copy(bigger, l.buf[:l.n])
		l.buf = bigger
		return
	}
	if l.long == nil {
		l.long = newLongLine()
	}
	l.long.write(l.buf[:l.n])
	l.buf = make([]byte, readSize)
	l.n, l.scan = 0, 0
}

// longLine keeps head, tail and digest of a line that goes by.
type longLine struct {
	bytes int64
	sum   hash.Hash
	head  []byte
	tail  []byte
}

func newLongLine() *longLine { return &longLine{sum: sha256.New()} }

func (l *longLine) write(b []byte) {
	l.bytes += int64(len(b))
	l.sum.Write(b)
	if n := min(len(b), keepEnds-len(l.head)); n > 0 {
		l.head = append(l.head, b[:n]...)
	}
	if len(b) >= keepEnds {
		l.tail = append(l.tail[:0], b[len(b)-keepEnds:]...)
		return
	}
	if over := len(l.tail) + len(b) - keepEnds; over > 0 {
		l.tail = l.tail[:copy(l.tail, l.tail[over:])]
	}
	l.tail = append(l.tail, b...)
}

func (l *longLine) rawCut() *tallyman.RawCut {
	return &tallyman.RawCut{Bytes: l.bytes, SHA256: hex.EncodeToString(l.sum.Sum(nil)), Head: l.head, Tail: l.tail}
}
