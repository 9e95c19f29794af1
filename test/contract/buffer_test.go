//go:build linux

package contract_test

import (
	"bytes"
	"sync"
)

// safeBuffer keeps what a process writes, and may be read meanwhile.
type safeBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

// Write never fails.
func (s *safeBuffer) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(p)
}

// String is what was written so far.
func (s *safeBuffer) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.String()
}
