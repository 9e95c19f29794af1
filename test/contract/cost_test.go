package contract_test

import (
	"bufio"
	"fmt"
	"math"
	"net/http"
	"strconv"
	"strings"
	"testing"

	"github.com/tallyman-dev/tallyman"
)

// What one running attempt may cost the server.
const (
	costAttempts   = 50
	costGoroutines = 2
	costBytes      = 60_000
)

// figures are what a server uses at one moment.
type figures struct {
	goroutines float64
	live       float64 // bytes of live heap and stacks
	resident   float64 // bytes that the process holds
}

// figures looks often enough for the collector to have run in between, and
// takes the least of each: that is what cannot be given back.
func (s *server) figures() figures {
	s.p.t.Helper()
	least := figures{math.MaxFloat64, math.MaxFloat64, math.MaxFloat64}
	for range 300 {
		status, text := s.get("/metrics")
		if status != http.StatusOK {
			s.p.t.Fatalf("metrics: %d %s", status, text)
		}
		m := map[string]float64{}
		for lines := bufio.NewScanner(strings.NewReader(text)); lines.Scan(); {
			name, value, _ := strings.Cut(lines.Text(), " ")
			if v, err := strconv.ParseFloat(value, 64); err == nil {
				m[name] = v
			}
		}
		least.goroutines = min(least.goroutines, m["go_goroutines"])
		least.live = min(least.live, m["go_memstats_heap_alloc_bytes"]+m["go_memstats_stack_inuse_bytes"])
		least.resident = min(least.resident, m["process_resident_memory_bytes"])
	}
	if least.goroutines < 1 || least.live < 1 || least.resident < 1 {
		s.p.t.Fatalf("the metrics lack a figure: %+v", least)
	}
	return least
}

func TestWhatARunningAttemptCostsTheServer(t *testing.T) {
	p := newPlace(t)
	p.set("GOGC=10") // so that what the process holds is what it needs
	s := p.up("--max-running", strconv.Itoa(costAttempts))
	sleep := tallyman.Request{Agent: "exec", Command: []string{"sleep", "600"}, Source: tallyman.SourceCLI}
	crowd := func(n int) (ids []string) {
		for range n {
			ids = append(ids, s.submit(sleep).ID)
		}
		for _, id := range ids {
			s.running(id)
		}
		return ids
	}
	leave := func(ids []string) {
		for _, id := range ids {
			if _, err := s.own.Stop(t.Context(), id); err != nil {
				t.Fatal(err)
			}
		}
		for _, id := range ids {
			s.ended(id)
		}
	}
	leave(crowd(costAttempts)) // what is made once is made now
	before := s.figures()
	ids := crowd(costAttempts)
	during := s.figures()
	leave(ids)
	goroutines := (during.goroutines - before.goroutines) / costAttempts
	live := (during.live - before.live) / costAttempts
	resident := (during.resident - before.resident) / costAttempts
	said := fmt.Sprintf("%.2f goroutines, %.1f kB live, %.1f kB resident for each of %d attempts", goroutines, live/1000, resident/1000, costAttempts)
	t.Log(said)
	if goroutines > costGoroutines || live > costBytes || resident > costBytes {
		t.Errorf("too much: %s", said)
	}
}
