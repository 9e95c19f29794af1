package journal_test

import (
	"bufio"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tallyman-dev/tallyman/internal/journal"
)

// childEnv holds the folder in which the re-executed test binary appends.
const childEnv = "JOURNAL_TEST_CHILD"

func childRecord(writer, n int) string {
	return fmt.Sprintf(`{"writer":%d,"n":%d,"pad":"%s"}`, writer, n, strings.Repeat("p", n%300))
}

// child appends with four writers until it is killed, and prints every cursor
// it got acknowledged with its record.
func child() int {
	w, _, err := journal.Recover(os.Getenv(childEnv), journal.Options{SegmentBytes: 128 << 10})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	var mu sync.Mutex
	for writer := range 4 {
		go func() {
			for n := 0; ; n++ {
				rec := childRecord(writer, n)
				first, err := w.Append([]byte(rec), []byte(rec))
				if err != nil {
					panic(err)
				}
				mu.Lock()
				fmt.Printf("%d %s\n", first, rec)
				mu.Unlock()
			}
		}()
	}
	select {}
}

func TestKillLosesNothingAcknowledged(t *testing.T) {
	dir := t.TempDir()
	create(t, dir, journal.Options{}).Close()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	for round := range 10 {
		cmd := exec.Command(self)
		cmd.Env = append(os.Environ(), childEnv+"="+dir)
		cmd.Stderr = os.Stderr
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		lines := bufio.NewReader(out)
		acked := map[uint64]string{}
		ack := func() bool {
			line, err := lines.ReadString('\n')
			cursor, rec, ok := strings.Cut(strings.TrimSuffix(line, "\n"), " ")
			n, numErr := strconv.ParseUint(cursor, 10, 64)
			if err != nil || !ok || numErr != nil {
				return false
			}
			acked[n] = rec
			return true
		}
		if !ack() {
			t.Fatal("the child did not start")
		}
		kill := time.AfterFunc(time.Duration(rand.IntN(40))*time.Millisecond, func() { cmd.Process.Kill() })
		for ack() {
		}
		kill.Stop()
		io.Copy(io.Discard, out)
		cmd.Wait()

		recs, err := readAll(dir)
		if err != nil {
			t.Fatalf("round %d: %v", round, err)
		}
		for cursor, rec := range acked {
			for _, c := range []uint64{cursor, cursor + 1} {
				if c > uint64(len(recs)) || recs[c-1] != rec {
					t.Fatalf("round %d: acknowledged record %d of %d is not what is there", round, c, len(recs))
				}
			}
		}
		t.Logf("round %d: %d acknowledged, %d records", round, len(acked), len(recs))
	}
	recoverIn(t, dir, journal.Options{})
}
