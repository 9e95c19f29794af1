package service

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestDeltasComeWhereTheyBelong(t *testing.T) {
	line := func(text string, after int) []byte {
		return fmt.Appendf(nil, `{"delta":%q,"type":"text","after":%d}`, text, after)
	}
	var l live
	var got []string
	give := func(line []byte) error { got = append(got, string(line)); return nil }
	l.take([][]byte{line("early", 7), line("late", 2), line("now", 5), []byte("broken"), line("anywhere", 0)})
	for cursor := uint64(3); cursor <= 7; cursor++ {
		got = append(got, fmt.Sprint(cursor))
		if err := l.at(cursor, give); err != nil {
			t.Fatal(err)
		}
	}
	want := []string{"3", string(line("anywhere", 0)), "4", "5", string(line("now", 5)), "6", "7", string(line("early", 7))}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
	if len(l.waiting) != 0 {
		t.Errorf("%d still wait", len(l.waiting))
	}
}

func TestDeltasOfAnEventThatNeverComesDoNotPileUp(t *testing.T) {
	var l live
	for range 100 {
		for range 100 {
			l.take([][]byte{[]byte(`{"delta":"x","type":"text","after":1000000}`)})
		}
		if err := l.at(1, func([]byte) error { return nil }); err != nil {
			t.Fatal(err)
		}
	}
	if n := len(l.waiting); n != maxWaiting {
		t.Errorf("%d wait, want at most %d", n, maxWaiting)
	}
}
