//go:build !linux

package journal

import "os"

// syncFile makes the content and the size of f durable.
func syncFile(f *os.File) error { return f.Sync() }
