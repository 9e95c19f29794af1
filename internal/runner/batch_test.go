package runner

import (
	"bytes"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tallyman-dev/tallyman/internal/journal"
)

// A batch takes what fits, and one record that is larger than any batch goes
// alone: a server never has more in its hands than it must.
func TestABatchTakesWhatFits(t *testing.T) {
	dir := t.TempDir()
	w, err := journal.Create(dir, journal.Header{Journal: "J", Run: "R", Attempt: 1}, journal.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	var all []byte
	for i, size := range []int{10, maxBatch - 100, 50, maxBatch + 1, 10, 10} {
		rec := bytes.Repeat([]byte{'a' + byte(i)}, size)
		if _, err := w.Add(rec); err != nil {
			t.Fatal(err)
		}
		all = append(append(all, rec...), '\n')
	}
	if err := w.Wait(t.Context(), 6); err != nil {
		t.Fatal(err)
	}
	in, _, err := journal.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	b := &batcher{in: in}
	batches := func(sent, durable uint64) (lasts []uint64, bodies []byte) {
		for sent < durable {
			last, body, err := b.gather(nil, sent, durable)
			if err != nil || last == sent {
				t.Fatalf("after %d: last %d, %v", sent, last, err)
			}
			if len(body) > maxBatch && last != sent+1 {
				t.Errorf("events %d to %d have %d bytes", sent+1, last, len(body))
			}
			lasts, bodies, sent = append(lasts, last), append(bodies, body...), last
		}
		return lasts, bodies
	}
	lasts, bodies := batches(0, 6)
	if d := cmp.Diff([]uint64{3, 4, 6}, lasts); d != "" {
		t.Errorf("the batches end (-want +got):\n%s", d)
	}
	if !bytes.Equal(bodies, all) {
		t.Error("the batches are not the journal")
	}
	if err := b.seek(2); err != nil {
		t.Fatal(err)
	}
	if lasts, _ = batches(2, 5); !cmp.Equal(lasts, []uint64{3, 4, 5}) {
		t.Errorf("after a seek the batches end at %v", lasts)
	}
}
