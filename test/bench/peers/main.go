// Peers measures durable appends of the libraries that a journal could have
// been built on: 256-byte records, acknowledged when they are on the disk, by
// 1, 8, 64 and 512 writers at once. It prints one JSON line per sample. It is
// a module of its own, so that the product does not depend on them.
package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/raft"
	raftwal "github.com/hashicorp/raft-wal"
	"github.com/tidwall/wal"
	"go.etcd.io/bbolt"
)

// log appends one record and returns when it is on the disk.
type log struct {
	append func(record []byte) error
	close  func() error
}

func main() {
	length := flag.Duration("time", time.Second, "how long each sample lasts")
	count := flag.Int("count", 3, "samples of each")
	flag.Parse()
	if err := run(*length, *count); err != nil {
		fmt.Fprintln(os.Stderr, "peers:", err)
		os.Exit(1)
	}
}

func run(length time.Duration, count int) error {
	peers := []struct {
		name string
		open func(dir string) (log, error)
	}{{"tidwall/wal", openTidwall}, {"raft-wal", openRaft}, {"bbolt Batch", openBolt}}
	out := json.NewEncoder(os.Stdout)
	for range count {
		for _, writers := range []int{1, 8, 64, 512} {
			for _, p := range peers {
				rate, err := sample(p.open, writers, length)
				if err != nil {
					return fmt.Errorf("%s: %w", p.name, err)
				}
				if err := out.Encode(map[string]any{"name": p.name, "writers": writers, "appends": rate}); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

func sample(open func(string) (log, error), writers int, length time.Duration) (rate float64, err error) {
	dir, err := os.MkdirTemp("", "peers")
	if err != nil {
		return 0, err
	}
	defer os.RemoveAll(dir)
	l, err := open(dir)
	if err != nil {
		return 0, err
	}
	record := make([]byte, 256)
	var n atomic.Int64
	var failed atomic.Value
	var all sync.WaitGroup
	began := time.Now()
	for range writers {
		all.Go(func() {
			for time.Since(began) < length {
				if err := l.append(record); err != nil {
					failed.Store(err)
					return
				}
				n.Add(1)
			}
		})
	}
	all.Wait()
	took := time.Since(began)
	if err, ok := failed.Load().(error); ok {
		return 0, err
	}
	return float64(n.Load()) / took.Seconds(), l.close()
}

func openTidwall(dir string) (log, error) {
	w, err := wal.Open(filepath.Join(dir, "wal"), &wal.Options{NoSync: false, SegmentSize: 64 << 20, LogFormat: wal.Binary})
	if err != nil {
		return log{}, err
	}
	var mu sync.Mutex
	var next uint64
	return log{append: func(record []byte) error {
		mu.Lock()
		defer mu.Unlock()
		next++
		return w.Write(next, record)
	}, close: w.Close}, nil
}

func openRaft(dir string) (log, error) {
	w, err := raftwal.Open(dir)
	if err != nil {
		return log{}, err
	}
	var mu sync.Mutex
	var next uint64
	return log{append: func(record []byte) error {
		mu.Lock()
		defer mu.Unlock()
		next++
		return w.StoreLog(&raft.Log{Index: next, Data: record})
	}, close: w.Close}, nil
}

func openBolt(dir string) (log, error) {
	db, err := bbolt.Open(filepath.Join(dir, "bolt"), 0o600, nil)
	if err != nil {
		return log{}, err
	}
	name := []byte("log")
	if err := db.Update(func(tx *bbolt.Tx) error { _, err := tx.CreateBucket(name); return err }); err != nil {
		return log{}, err
	}
	db.MaxBatchDelay = time.Millisecond
	return log{append: func(record []byte) error {
		return db.Batch(func(tx *bbolt.Tx) error {
			b := tx.Bucket(name)
			id, err := b.NextSequence()
			if err != nil {
				return err
			}
			key := []byte{byte(id >> 56), byte(id >> 48), byte(id >> 40), byte(id >> 32), byte(id >> 24), byte(id >> 16), byte(id >> 8), byte(id)}
			return b.Put(key, record)
		})
	}, close: db.Close}, nil
}
