package main

import (
	"os"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
)

// The garbage collector's, where GOGC does not set it. A cluster's objects stay
// in memory, and the usual 100 % would let as much lie beside them; of a server
// that holds little, though, even that is so little that it would be collected
// several times a second.
const (
	gcPercent = 50
	gcRoom    = 48 << 20 // bytes that may be in use before a percentage counts
	gcMost    = 400      // percent
)

// percentFor is how much may be added to what is alive before it is collected.
func percentFor(live uint64) int {
	if live == 0 || live >= gcRoom {
		return gcPercent
	}
	return int(min(max((gcRoom-live)*100/live, gcPercent), gcMost))
}

// keepRoom sets the collector after each collection, for the next one.
func keepRoom() {
	if os.Getenv("GOGC") != "" {
		return
	}
	sample := []metrics.Sample{{Name: "/gc/heap/live:bytes"}}
	var collected func(*[16]byte)
	collected = func(mark *[16]byte) {
		metrics.Read(sample)
		debug.SetGCPercent(percentFor(sample[0].Value.Uint64()))
		runtime.SetFinalizer(mark, collected) // the next collection finds it dead again
	}
	collected(new([16]byte))
}
