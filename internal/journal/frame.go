package journal

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"

	"github.com/tallyman-dev/tallyman"
)

const (
	formatNumber = 1
	frameHead    = 8 // length and checksum

	// sector is the smallest unit that a disk writes whole.
	sector = 512
	// minHole is how many zero bytes count as a sector that never arrived. No
	// frame begins with so many: a record has at least one byte.
	minHole = 8
	// scanBudget bounds the bytes that looking for whole records behind a bad
	// one may checksum.
	scanBudget = 4 << 30
)

var (
	errIncomplete = errors.New("the record is incomplete")
	errLength     = errors.New("no record has this length")
	errChecksum   = errors.New("the checksum does not match")
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// checksum binds a record to its segment (seed) and its place in it.
func checksum(seed uint32, off int64, rec []byte) uint32 {
	return crc32.Update(seed^uint32(off)^uint32(off>>32), castagnoli, rec)
}

// appendFrame adds rec with its length; seal fills in the checksum.
func appendFrame(buf, rec []byte) []byte {
	buf = binary.LittleEndian.AppendUint32(buf, uint32(len(rec)))
	return append(append(buf, 0, 0, 0, 0), rec...)
}

// seal fills in the checksums of the frames in buf, one commit that is going
// to be written at off.
func seal(buf []byte, seed uint32, off int64) {
	for at := 0; at < len(buf); {
		end := at + frameHead + int(binary.LittleEndian.Uint32(buf[at:]))
		sum := checksum(seed, off+int64(at), buf[at+frameHead:end])
		if at == 0 {
			sum = ^sum
		}
		binary.LittleEndian.PutUint32(buf[at+4:], sum)
		at = end
	}
}

// parse returns the record of the frame at the start of b, which is at off in
// its segment, and whether it begins a commit.
func parse(b []byte, seed uint32, off int64) (rec []byte, begins bool, err error) {
	if len(b) < frameHead {
		return nil, false, errIncomplete
	}
	n := binary.LittleEndian.Uint32(b)
	if n == 0 || n > MaxRecord {
		return nil, false, errLength
	}
	if uint64(len(b)-frameHead) < uint64(n) {
		return nil, false, errIncomplete
	}
	rec = b[frameHead : frameHead+int(n)]
	begins, ok := matches(b, checksum(seed, off, rec))
	if !ok {
		return nil, false, errChecksum
	}
	return rec, begins, nil
}

// matches compares the checksum that a frame stores.
func matches(frame []byte, sum uint32) (begins, ok bool) {
	stored := binary.LittleEndian.Uint32(frame[4:])
	return stored == ^sum, stored == sum || stored == ^sum
}

// inspect judges the end of the last segment, from a frame at off that is not
// whole. It returns nil for a torn tail, what a crash leaves of a commit that
// was never acknowledged, and what is wrong for damage:
//
//  1. A whole record that begins a commit stands behind it: damage. That
//     commit was written after the sync of this one.
//  2. A whole record of the same commit stands behind it: torn if a sector
//     of the bad frame never arrived and reads as zeros (disks write the
//     sectors of a commit in any order), else damage.
//  3. Nothing whole stands behind it and the file ends inside the frame: torn,
//     unless the record is whole and only its length is wrong.
//  4. Nothing whole stands behind it and the frame is there in full length:
//     torn if a sector of it never arrived, else damage.
//
// What this cannot tell from a torn tail is an acknowledged last commit that
// lost its end or whole sectors afterwards; the server finds that out, since
// it knows a higher cursor.
func inspect(tail []byte, seed uint32, off int64) error {
	_, _, err := parse(tail, seed, off)
	behind, later := scan(tail, seed, off)
	switch {
	case later:
		return fmt.Errorf("%w, and a later commit stands behind it", err)
	case hole(tail, off):
		return nil
	case behind:
		return fmt.Errorf("%w, and whole records stand behind it", err)
	case !errors.Is(err, errIncomplete):
		return err
	case len(tail) > frameHead:
		if _, whole := matches(tail, checksum(seed, off, tail[frameHead:])); whole {
			return fmt.Errorf("%w: its length is wrong", err)
		}
	}
	return nil
}

// scan looks behind the bad frame at the start of tail for whole records:
// whether there is one, and whether one begins a commit. When it would take
// too long, the answer is the one that changes nothing on disk.
func scan(tail []byte, seed uint32, off int64) (behind, later bool) {
	budget := int64(scanBudget)
	for at := 1; at < len(tail); at++ {
		rec, begins, err := parse(tail[at:], seed, off+int64(at))
		switch {
		case err == nil && begins:
			return true, true
		case err == nil:
			behind = true
			at += frameHead + len(rec) - 1
		case errors.Is(err, errChecksum):
			budget -= int64(binary.LittleEndian.Uint32(tail[at:]))
		}
		if budget < 0 {
			return true, true
		}
	}
	return behind, false
}

// hole reports whether a sector of the frame at the start of tail is all
// zeros, as far as it belongs to tail.
func hole(tail []byte, off int64) bool {
	end := min(frameHead, len(tail))
	if end == frameHead {
		if n := binary.LittleEndian.Uint32(tail); n <= MaxRecord {
			end = min(end+int(n), len(tail))
		}
	}
	for at := 0; at < end; {
		next := min(at+sector-int((off+int64(at))%sector), len(tail))
		if next-at >= minHole && zero(tail[at:next]) {
			return true
		}
		at = next
	}
	return false
}

func zero(b []byte) bool {
	for _, c := range b {
		if c != 0 {
			return false
		}
	}
	return true
}

// segmentHeader is a segment's first record. Its frame and its first two
// fields stay as they are in every format to come.
type segmentHeader struct {
	Format int    `json:"format"`
	First  uint64 `json:"first"`
	Header
}

// encodeHeader returns the header's frame and the seed of the segment.
func encodeHeader(h Header, first uint64) (frame []byte, seed uint32, err error) {
	rec, err := json.Marshal(segmentHeader{Format: formatNumber, First: first, Header: h})
	if err != nil {
		return nil, 0, fmt.Errorf("encode header: %w", err)
	}
	frame = appendFrame(nil, rec)
	seed = checksum(0, 0, rec)
	binary.LittleEndian.PutUint32(frame[4:], seed)
	return frame, seed, nil
}

// decodeHeader reads what encodeHeader wrote. A newer format is Unsupported.
func decodeHeader(rec []byte, path string) (segmentHeader, error) {
	var h segmentHeader
	if err := json.Unmarshal(rec, &h); err != nil {
		return h, fmt.Errorf("its header: %w", err)
	}
	if h.Format > formatNumber {
		return h, tallyman.Errorf(tallyman.Unsupported,
			"%s is of format %d; this version of tallyman reads format %d and older", path, h.Format, formatNumber)
	}
	if h.Format < 1 {
		return h, fmt.Errorf("its header names format %d", h.Format)
	}
	return h, nil
}
