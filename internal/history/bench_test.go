package history_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
)

func BenchmarkAppend(b *testing.B) {
	for _, bench := range []struct{ journals, size int }{{1, 200}, {4, 200}, {16, 200}, {1, 2000}, {4, 2000}} {
		b.Run(fmt.Sprintf("journals-%d/bytes-%d", bench.journals, bench.size), func(b *testing.B) {
			h, _ := open(b, filepath.Join(b.TempDir(), "history.db"))
			const block, blocks = 256, 20
			text := benchBlocks(block, bench.size)
			next := make([]uint64, bench.journals)
			for i := range next {
				next[i] = 1
			}
			start := time.Now()
			for b.Loop() {
				var wg sync.WaitGroup
				for i := range next {
					wg.Go(func() {
						for n := range blocks {
							var err error
							if next[i], err = h.Append(context.Background(), fmt.Sprintf("journal-%d", i), next[i], text[n%len(text)]); err != nil {
								b.Error(err)
								return
							}
						}
					})
				}
				wg.Wait()
			}
			report(b, float64(b.N*bench.journals*block*blocks), bench.size, start)
		})
	}
}

func BenchmarkRead(b *testing.B) {
	for _, size := range []int{200, 2000} {
		b.Run(fmt.Sprintf("bytes-%d", size), func(b *testing.B) {
			h, _ := open(b, filepath.Join(b.TempDir(), "history.db"))
			const events = 256 * 200
			text := benchBlocks(256, size)
			for n := uint64(1); n < events; n += 256 {
				if _, err := h.Append(context.Background(), "j", n, text[int(n/256)%len(text)]); err != nil {
					b.Fatal(err)
				}
			}
			for _, state := range []string{"appended", "compacted"} {
				b.Run(state, func(b *testing.B) {
					if state == "compacted" {
						if err := h.Compact(context.Background(), "j"); err != nil {
							b.Fatal(err)
						}
					}
					n := 0
					start := time.Now()
					for b.Loop() {
						if err := h.Read(context.Background(), "j", 0, func(uint64, []byte) error { n++; return nil }); err != nil {
							b.Fatal(err)
						}
					}
					report(b, float64(n), size, start)
				})
			}
		})
	}
}

func report(b *testing.B, events float64, size int, start time.Time) {
	seconds := time.Since(start).Seconds()
	b.ReportMetric(events/seconds, "events/s")
	b.ReportMetric(events*float64(size)/seconds/1e6, "MB/s")
	b.ReportMetric(0, "ns/op")
}

// benchBlocks are several blocks, more than fit in a compressor's window.
func benchBlocks(n, size int) [][][]byte {
	out := make([][][]byte, 20)
	for i := range out {
		out[i] = benchLines(n, size)
	}
	return out
}

// benchLines are events of about that size, as a harness writes them.
func benchLines(n, size int) [][]byte {
	words := strings.Fields("the agent reads a file and writes another one then it runs all tests again until none of them fails any more")
	out := make([][]byte, n)
	for i := range out {
		l := fmt.Appendf(nil, `{"time":"2026-03-04T05:06:07.%06dZ","type":"tool.output","turn":%d,"tool_id":"toolu_%08x","text":"`,
			rand.IntN(1e6), i%9, rand.Uint32())
		for len(l) < size-2 {
			l = append(append(l, words[rand.IntN(len(words))]...), ' ')
		}
		out[i] = append(l, `"}`...)
	}
	return out
}
