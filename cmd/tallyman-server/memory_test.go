package main

import (
	"runtime"
	"runtime/debug"
	"testing"
	"time"
)

func TestPercent(t *testing.T) {
	for live, want := range map[uint64]int{
		0:        50,
		1 << 20:  400,
		16 << 20: 200,
		32 << 20: 50,
		40 << 20: 50,
		1 << 30:  50,
	} {
		if got := percentFor(live); got != want {
			t.Errorf("%d MiB alive: %d %%, want %d", live>>20, got, want)
		}
	}
}

func TestWhoSetsGOGCIsObeyed(t *testing.T) {
	t.Setenv("GOGC", "70")
	defer debug.SetGCPercent(debug.SetGCPercent(70))
	keepRoom()
	if p := debug.SetGCPercent(70); p != 70 {
		t.Errorf("%d %%, want 70", p)
	}
}

// What is set follows what is alive, up and down.
func TestRoomIsKept(t *testing.T) {
	t.Setenv("GOGC", "")
	defer debug.SetGCPercent(debug.SetGCPercent(100))
	keepRoom()
	set := func() int {
		p := debug.SetGCPercent(100)
		debug.SetGCPercent(p)
		return p
	}
	for name, c := range map[string]struct {
		alive int
		low   bool
	}{"much": {64 << 20, true}, "little": {0, false}} {
		held := make([]byte, c.alive)
		for deadline := time.Now().Add(10 * time.Second); ; time.Sleep(10 * time.Millisecond) {
			runtime.GC()
			if p := set(); (p == gcPercent) == c.low {
				break
			} else if time.Now().After(deadline) {
				t.Fatalf("%s alive: %d %%", name, p)
			}
		}
		runtime.KeepAlive(held)
	}
}
