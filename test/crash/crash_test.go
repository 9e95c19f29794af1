//go:build faults

package crash_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/tallyman-dev/tallyman/internal/fault"
)

func TestCrashes(t *testing.T) {
	first, last := uint64(1), uint64(*seeds)
	if *seed != 0 {
		first, last = *seed, *seed
	}
	for n := first; n <= last; n++ {
		t.Run(fmt.Sprintf("seed=%d", n), func(t *testing.T) {
			t.Parallel()
			play(t, n)
		})
	}
}

// life is what happens to one server.
type life struct {
	fault   string
	lasts   time.Duration // from when it answers, or from its first moment
	rushed  bool          // it is not waited for until it answers
	look    bool          // somebody looks before it starts, without a server
	end     syscall.Signal
	kills   []time.Duration // of a runner, after the start
	runners bool            // at the end a runner is killed together with it
}

// lives draws what happens. Whether a named point is reached in time is left
// to the load.
func lives(r *rand.Rand) []life {
	upTo := func(d time.Duration) time.Duration { return time.Duration(r.Int64N(int64(d))) }
	var all []life
	for range 4 + r.IntN(4) {
		l := life{lasts: 50*time.Millisecond + upTo(1500*time.Millisecond), end: syscall.SIGKILL, runners: r.IntN(3) == 0, look: r.IntN(4) == 0}
		if r.IntN(5) == 0 {
			l.rushed, l.lasts = true, upTo(150*time.Millisecond)
		}
		if r.IntN(6) == 0 {
			l.end = syscall.SIGTERM
		}
		switch r.IntN(3) {
		case 0:
			l.fault = drawFault(r)
		case 1:
			for range r.IntN(5) {
				l.kills = append(l.kills, upTo(l.lasts))
			}
		}
		all = append(all, l)
	}
	return all
}

// drawFault draws a named point. What a runner passes once, it dies at.
func drawFault(r *rand.Rand) string {
	names := fault.Names()
	name, pass := names[r.IntN(len(names))], 1+r.IntN(5)
	if strings.HasPrefix(name, "runner.") && name != fault.RunnerStreaming && name != fault.RunnerReporting && name != fault.RunnerReported {
		pass = 1
	}
	return fmt.Sprintf("%s:%d", name, pass)
}

func play(t *testing.T, seed uint64) {
	r := rand.New(rand.NewPCG(seed, 0))
	w := newWorld(t)
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	plan := lives(r)
	total := time.Duration(0)
	for _, l := range plan {
		total += l.lasts
	}
	jobs := w.draw(r, 20, total)
	var driving sync.WaitGroup
	for i, l := range plan {
		if l.look {
			w.look()
		}
		w.launch(l.fault)
		if !l.rushed {
			w.answers()
		}
		if i == 0 {
			for _, j := range jobs {
				driving.Go(func() { w.drive(ctx, j) })
			}
		}
		for _, j := range jobs {
			if r.IntN(4) == 0 {
				driving.Go(func() { w.again(ctx, j) })
			}
		}
		w.live(l, r)
	}
	w.start("")
	is, ok := w.settle(ctx)
	if !ok {
		return
	}
	driving.Wait()
	for _, j := range jobs {
		w.again(ctx, j)
	}
	if is, ok = w.settle(ctx); !ok { // submits that were on their way are in by now
		return
	}
	w.verify(ctx, is)
	w.kill(syscall.SIGKILL)
	w.nothingLeft(ctx)
	if t.Failed() {
		t.Logf("play it again with -run 'TestCrashes' -seed %d; it was\n%s", seed, describe(plan))
	}
}

// look lists the runs while no server is there: who looks is the server for
// that moment, and settles what has ended. Nobody submits meanwhile: that
// would bring a server in the background, and this test starts its own.
func (w *world) look() {
	w.calls.Lock()
	defer w.calls.Unlock()
	if out, err := w.command("ls", "-o", "json").CombinedOutput(); err != nil {
		w.t.Errorf("tallyman ls: %v\n%s", err, out)
	}
}

// live lets a server live until its end.
func (w *world) live(l life, r *rand.Rand) {
	end := time.After(l.lasts)
	kills := make(chan int, len(l.kills))
	for _, at := range l.kills {
		pick := r.IntN(100)
		time.AfterFunc(at, func() { kills <- pick })
	}
	for {
		select {
		case pick := <-kills:
			w.killRunner(pick)
			continue
		case <-w.gone():
		case <-end:
		}
		break
	}
	if l.runners {
		w.killRunner(r.IntN(100))
	}
	w.kill(l.end)
}

func describe(plan []life) string {
	var b strings.Builder
	for i, l := range plan {
		fmt.Fprintf(&b, "life %d: %+v\n", i+1, l)
	}
	return b.String()
}
