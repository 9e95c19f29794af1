package local

import (
	"bytes"
	"io"
	"os"
	"path/filepath"

	"github.com/tallyman-dev/tallyman"
	"github.com/tallyman-dev/tallyman/internal/journal"
)

// peekTail is how much of a journal's end is looked through for the final
// event before the journal is read.
const peekTail = 128 << 10

// peek looks at an attempt whose runner lives: it may have nothing left to do
// but to deliver its journal, to a server that stays longer than we do.
func (b *Backend) peek(dir string) tallyman.Observation {
	s := tallyman.Observation{Running: true}
	dir = filepath.Join(dir, "journal")
	if !b.o.Peek || !mayHaveEnded(dir) {
		return s
	}
	h, last, rec, err := journal.Last(dir)
	if err != nil {
		return s // its runner knows better
	}
	if s.Final, s.FinalAt = finalOf(rec); s.Final != nil {
		s.Journal, s.Last, s.FinalCursor = h.Journal, last, last
	}
	return s
}

// mayHaveEnded reports whether the end of a journal's last file names the
// final event, be it as a word of the agent's.
func mayHaveEnded(dir string) bool {
	files, err := os.ReadDir(dir) // in the order of their names
	if err != nil || len(files) == 0 {
		return false
	}
	f, err := os.Open(filepath.Join(dir, files[len(files)-1].Name()))
	if err != nil {
		return false
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return false
	}
	tail, err := io.ReadAll(io.NewSectionReader(f, max(0, info.Size()-peekTail), peekTail))
	return err == nil && bytes.Contains(tail, []byte(tallyman.EventRunnerEnded))
}
