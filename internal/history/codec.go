package history

import (
	"bytes"
	"fmt"
	"runtime"
	"sync"

	"github.com/klauspost/compress/zstd"
)

const (
	maxEvents = 256       // of a block as it is appended
	maxBlock  = 256 << 10 // bytes of a block's lines, unless one line is longer
	maxKept   = 4 << 20   // of a buffer that is kept for the next reader
)

// MaxLine is how long an event may be, in bytes.
const MaxLine = 64 << 20

// block is a row.
type block struct {
	first, last uint64
	raw         int
	data        []byte
}

// codec packs lines into blocks. Its methods may be called at the same time.
type codec struct {
	enc     *zstd.Encoder
	dec     *zstd.Decoder
	buffers sync.Pool // of *[]byte
}

func newCodec() (*codec, error) {
	enc, err := zstd.NewWriter(nil, zstd.WithEncoderLevel(zstd.SpeedFastest), zstd.WithWindowSize(maxBlock),
		zstd.WithEncoderConcurrency(runtime.GOMAXPROCS(0)), zstd.WithLowerEncoderMem(true), zstd.WithZeroFrames(true))
	if err != nil {
		return nil, err
	}
	dec, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(0), zstd.WithDecoderMaxMemory(MaxLine+maxBlock))
	if err != nil {
		return nil, err
	}
	return &codec{enc: enc, dec: dec, buffers: sync.Pool{New: func() any { return new([]byte) }}}, nil
}

// pack makes blocks of lines, the first of which is event from.
func (c *codec) pack(from uint64, lines [][]byte) []block {
	buf := c.buffer()
	defer c.release(buf)
	blocks := make([]block, 0, 1+len(lines)/maxEvents)
	for len(lines) > 0 {
		if len(lines[0]) >= maxBlock { // a block by itself, which need not be copied
			blocks = append(blocks, c.encode(from, from, lines[0]))
			from++
			lines = lines[1:]
			continue
		}
		raw, n := (*buf)[:0], 0
		for _, line := range lines {
			if n == maxEvents || n > 0 && len(raw)+1+len(line) > maxBlock {
				break
			}
			if n > 0 {
				raw = append(raw, '\n')
			}
			raw = append(raw, line...)
			n++
		}
		*buf = raw
		blocks = append(blocks, c.encode(from, from+uint64(n)-1, raw))
		from += uint64(n)
		lines = lines[n:]
	}
	return blocks
}

func (c *codec) encode(first, last uint64, raw []byte) block {
	data := c.enc.EncodeAll(raw, make([]byte, 0, min(len(raw), maxBlock)/3+64))
	return block{first: first, last: last, raw: len(raw), data: data}
}

// unpack appends the block's lines, joined by newlines, to dst.
func (c *codec) unpack(dst []byte, b block) ([]byte, error) {
	all, err := c.dec.DecodeAll(b.data, dst)
	if err != nil {
		return dst, err
	}
	raw := all[len(dst):]
	if len(raw) != b.raw {
		return dst, fmt.Errorf("there are %d bytes, not %d", len(raw), b.raw)
	}
	if lines := uint64(bytes.Count(raw, []byte{'\n'})) + 1; b.last < b.first || lines != b.last-b.first+1 {
		return dst, fmt.Errorf("there are %d lines", lines)
	}
	return all, nil
}

func (c *codec) buffer() *[]byte { return c.buffers.Get().(*[]byte) }

func (c *codec) release(buf *[]byte) {
	if cap(*buf) <= maxKept {
		c.buffers.Put(buf)
	}
}

// cut returns the first line of raw and the rest.
func cut(raw []byte) (line, rest []byte) {
	if i := bytes.IndexByte(raw, '\n'); i >= 0 {
		return raw[:i], raw[i+1:]
	}
	return raw, nil
}
