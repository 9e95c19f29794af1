// Package journal is the append-only log that a runner owns: opaque records,
// numbered by one dense cursor from 1, durable before anybody is told.
//
// A journal is a folder of segments, each named by its first cursor. A segment
// is a header and then records, every one framed as
//
//	length u32 | CRC-32C u32 | record
//
// in little endian. The checksum is seeded with the segment's header and the
// frame's offset, so that bytes which belong elsewhere never pass for a record.
//
// Records that are ready together are one commit: one write, one fdatasync.
// The first frame of a commit stores its checksum inverted. A commit is
// written only after the one before it has been synced, so this mark tells
// what a crash can explain: damage with a later commit behind it was durable
// once, and is refused. inspect holds the whole rule.
package journal

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/tallyman-dev/tallyman"
)

// MaxRecord is how many bytes one record may have. History takes as much for
// one event (its MaxLine, the same number): a record above that could be kept
// here and never be delivered.
const MaxRecord = 64 << 20

// ErrClosed is what a writer says after Close.
var ErrClosed = errors.New("the journal is closed")

// Header says whose journal it is. Every segment repeats it.
type Header struct {
	Journal string    `json:"journal"` // its id
	Run     string    `json:"run"`
	Attempt int       `json:"attempt"`
	Created time.Time `json:"created"`
}

// same reports whether two headers name the same journal.
func (h Header) same(o Header) bool {
	return h.Journal == o.Journal && h.Run == o.Run && h.Attempt == o.Attempt && h.Created.Equal(o.Created)
}

// Options tune a writer. The zero value is good.
type Options struct {
	// SegmentBytes is where a new segment is begun; a commit larger than that
	// has a segment of its own. Default 64 MiB.
	SegmentBytes int64
	// MaxPending is how many bytes may wait for the disk before Add blocks.
	// Default 16 MiB.
	MaxPending int64
	// Reserve is how much space the file system should have left; see
	// LowSpace. Default 0: none.
	Reserve int64
	// Fault is for tests: it is asked before each create, write, sync, rename,
	// syncdir and truncate, and the error it returns is that operation's.
	Fault func(op string) error
}

func (o Options) withDefaults() Options {
	if o.SegmentBytes <= 0 {
		o.SegmentBytes = 64 << 20
	}
	if o.MaxPending <= 0 {
		o.MaxPending = 16 << 20
	}
	if o.Fault == nil {
		o.Fault = func(string) error { return nil }
	}
	return o
}

// CorruptError says where a journal is damaged. The records before Cursor are
// whole and stay readable.
type CorruptError struct {
	File   string
	Offset int64  // of the frame that is no record
	Cursor uint64 // of the record that should be there
	Err    error
}

// Error names the file, the offset and the record.
func (e *CorruptError) Error() string {
	return fmt.Sprintf("journal is damaged: %s: offset %d, record %d: %v", e.File, e.Offset, e.Cursor, e.Err)
}

// Unwrap returns what is wrong there.
func (e *CorruptError) Unwrap() error { return e.Err }

const (
	segmentSuffix = ".seg"
	newSuffix     = ".new" // of a segment that has no durable header yet
)

func segmentPath(dir string, first uint64) string {
	return filepath.Join(dir, fmt.Sprintf("%020d%s", first, segmentSuffix))
}

// segments returns the first cursors of the segments in dir, in order. Other
// files are not ours to judge. A folder that is missing has no segments.
func segments(dir string) ([]uint64, error) {
	entries, err := os.ReadDir(dir) // by name, and that is by cursor
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("list journal: %w", err)
	}
	var firsts []uint64
	for _, e := range entries {
		digits, ok := strings.CutSuffix(e.Name(), segmentSuffix)
		if !ok || len(digits) != 20 {
			continue
		}
		if first, err := strconv.ParseUint(digits, 10, 64); err == nil {
			firsts = append(firsts, first)
		}
	}
	return firsts, nil
}

// Last reads a whole journal and returns its header, its last good cursor and
// that record; cursor 0 when there is none. On damage these are the good
// prefix's, together with the CorruptError.
func Last(dir string) (h Header, last uint64, rec []byte, err error) {
	r, h, err := Open(dir)
	if err != nil {
		return h, 0, nil, err
	}
	defer r.Close()
	last, rec, err = r.drain()
	return h, last, rec, err
}

func errNoJournal(dir string) error {
	return tallyman.Errorf(tallyman.NotFound, "no journal in %s", dir)
}
