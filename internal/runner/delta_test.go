package runner

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tallyman-dev/tallyman"
)

func TestDeltasAreShownAndNeverStored(t *testing.T) {
	c := newChannel(t)
	l := newLink(t, c)
	l.provisional(tallyman.Delta{Delta: "a\n", Type: tallyman.EventText, Block: "1"})
	l.provisional(tallyman.Delta{Delta: "\"b\"", Type: tallyman.EventText, Block: "1"})
	l.provisional(tallyman.Delta{Delta: "c", Type: tallyman.EventThinking, Parent: "sub", Block: "2"})
	l.writes(1)
	l.begin()
	l.delivered(c)
	c.mu.Lock()
	want := []string{
		`{"delta":"a\n\"b\"","type":"text","parent":"","block":"1","after":0}`,
		`{"delta":"c","type":"thinking","parent":"sub","block":"2","after":0}`,
	}
	if diff := cmp.Diff(want, c.live); diff != "" {
		t.Error(diff)
	}
	c.mu.Unlock()
}

func TestDeltasThatNobodyFetchesAreDropped(t *testing.T) {
	c := newChannel(t)
	l := newLink(t, c)
	for range 3 {
		l.provisional(tallyman.Delta{Delta: strings.Repeat("x", maxDeltas+1), Type: tallyman.EventText})
	}
	l.provisional(tallyman.Delta{Delta: "after", Type: tallyman.EventText})
	l.writes(1)
	l.begin()
	l.delivered(c)
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.live) != 1 || !strings.Contains(c.live[0], `"after"`) {
		t.Errorf("%d lines were shown: %.100q", len(c.live), c.live)
	}
}
