package journal_test

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/tallyman-dev/tallyman/internal/journal"
)

// rawLoop is the yardstick: take what is ready, write, fdatasync, tell each.
type rawLoop struct {
	f    *os.File
	reqs chan rawRequest
}

type rawRequest struct {
	rec  []byte
	done chan error
}

func newRawLoop(b *testing.B) *rawLoop {
	f, err := os.Create(filepath.Join(b.TempDir(), "raw"))
	if err != nil {
		b.Fatal(err)
	}
	l := &rawLoop{f: f, reqs: make(chan rawRequest, 1024)}
	go func() {
		defer f.Close()
		var buf []byte
		var waiting []chan error
		for req := range l.reqs {
			buf, waiting = buf[:0], waiting[:0]
			for more := true; more; {
				buf = binary.LittleEndian.AppendUint64(buf, uint64(len(req.rec)))
				buf = append(buf, req.rec...)
				waiting = append(waiting, req.done)
				select {
				case req, more = <-l.reqs:
				default:
					more = false
				}
			}
			_, err := f.Write(buf)
			if err == nil {
				err = unix.Fdatasync(int(f.Fd()))
			}
			for _, done := range waiting {
				done <- err
			}
		}
	}()
	return l
}

// clients lets n goroutines call do until b.N calls are made, and reports
// their latency.
func clients(b *testing.B, n int, do func(rec []byte, done chan error) error) {
	rec := bytes.Repeat([]byte("r"), 256)
	took := make([][]time.Duration, n)
	var wg sync.WaitGroup
	b.ResetTimer()
	for c := range n {
		calls := b.N / n
		if c < b.N%n {
			calls++
		}
		wg.Go(func() {
			done := make(chan error, 1)
			for range calls {
				start := time.Now()
				if err := do(rec, done); err != nil {
					b.Error(err)
					return
				}
				took[c] = append(took[c], time.Since(start))
			}
		})
	}
	wg.Wait()
	b.StopTimer()
	all := slices.Concat(took...)
	slices.Sort(all)
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "appends/s")
	b.ReportMetric(float64(all[len(all)/2].Microseconds()), "p50-µs")
	b.ReportMetric(float64(all[len(all)*99/100].Microseconds()), "p99-µs")
}

func BenchmarkAppend(b *testing.B) {
	for _, n := range []int{1, 8, 64, 512} {
		b.Run(fmt.Sprintf("writers=%d/journal", n), func(b *testing.B) {
			w := create(b, b.TempDir(), journal.Options{})
			clients(b, n, func(rec []byte, _ chan error) error {
				_, err := w.Append(rec)
				return err
			})
		})
		b.Run(fmt.Sprintf("writers=%d/raw", n), func(b *testing.B) {
			l := newRawLoop(b)
			defer close(l.reqs)
			clients(b, n, func(rec []byte, done chan error) error {
				l.reqs <- rawRequest{rec, done}
				return <-done
			})
		})
	}
}

// BenchmarkAdd is one producer that never waits; raw writes the same bytes in
// pieces of 4 MiB, each followed by fdatasync.
func BenchmarkAdd(b *testing.B) {
	const size = 4096
	b.Run("journal", func(b *testing.B) {
		w := create(b, b.TempDir(), journal.Options{})
		rec := bytes.Repeat([]byte("r"), size)
		b.SetBytes(size)
		for b.Loop() {
			if _, err := w.Add(rec); err != nil {
				b.Fatal(err)
			}
		}
		if err := w.Close(); err != nil {
			b.Fatal(err)
		}
	})
	b.Run("raw", func(b *testing.B) {
		f, err := os.Create(filepath.Join(b.TempDir(), "raw"))
		if err != nil {
			b.Fatal(err)
		}
		defer f.Close()
		piece := bytes.Repeat([]byte("r"), 4<<20)
		b.SetBytes(size)
		for n := 0; b.Loop(); n++ {
			if n%1024 == 0 {
				f.Write(piece)
				unix.Fdatasync(int(f.Fd()))
			}
		}
	})
}

func fill(b *testing.B, dir string, n int) {
	w := create(b, dir, journal.Options{})
	rec := bytes.Repeat([]byte("r"), 256)
	for range n {
		if _, err := w.Add(rec); err != nil {
			b.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		b.Fatal(err)
	}
}

func BenchmarkRecover100k(b *testing.B) {
	dir := b.TempDir()
	fill(b, dir, 100_000)
	for b.Loop() {
		w, _, err := journal.Recover(dir, journal.Options{})
		if err != nil || w.Durable() != 100_000 {
			b.Fatal(w.Durable(), err)
		}
		w.Close()
	}
	b.ReportMetric(b.Elapsed().Seconds()*1e3/float64(b.N), "ms/recovery")
}

func BenchmarkRead(b *testing.B) {
	dir := b.TempDir()
	fill(b, dir, 100_000)
	b.SetBytes(100_000 * 256)
	for b.Loop() {
		if _, last, _, err := journal.Last(dir); err != nil || last != 100_000 {
			b.Fatal(last, err)
		}
	}
}
