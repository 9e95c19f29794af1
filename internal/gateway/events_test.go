package gateway_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/tallyman-dev/tallyman"
)

func (r *runner) events(from, body string) reply {
	r.t.Helper()
	return r.call(http.MethodPost, "events?from="+from, strings.NewReader(body))
}

func TestEventsAreStoredOnceAndInOrder(t *testing.T) {
	w := newWorld(t)
	r := w.greeted()
	r.events("1", lines(1, 3)).is(http.StatusOK).says(`{"next":4}`)
	r.events("5", lines(5, 1)).is(http.StatusConflict).says(`{"expected":4}`)
	r.events("1", lines(1, 3)).is(http.StatusOK).says(`{"next":4}`)
	r.events("2", lines(2, 4)).is(http.StatusOK).says(`{"next":6}`)
	r.events("6", "").is(http.StatusOK).says(`{"next":6}`)
	r.events("9", "").is(http.StatusConflict).says(`{"expected":6}`)
	r.events("3", strings.Replace(lines(3, 1), "event 3", "event X", 1)).is(http.StatusConflict).says("stored with other bytes")
	r.events("5", lines(5, 1)+strings.Replace(lines(6, 1), "6", "7", 1)).is(http.StatusOK).says(`{"next":7}`)
	if got := w.stored(r.journal()); got != lines(1, 5)+strings.Replace(lines(6, 1), "6", "7", 1) {
		t.Errorf("stored is\n%s", got)
	}
}

func TestEventsNeedNoEpochAndOutliveTheAttempt(t *testing.T) {
	w := newWorld(t)
	r := w.admit()
	r.events("1", lines(1, 1)).is(http.StatusConflict).says("say hello first")
	r.hello(r.journal(), 0).is(http.StatusOK)
	r.hello(r.journal(), 0).is(http.StatusOK)
	r.events("1", lines(1, 2)).is(http.StatusOK)
	r.ends(tallyman.RunnerLost)
	w.gateway.Forget(r.ref)
	r.events("3", lines(3, 2)).is(http.StatusOK)
	if got := w.stored(r.journal()); got != lines(1, 4) {
		t.Errorf("stored is\n%s", got)
	}
}

func TestProvisionalLinesReachWatchersAndAreNeverStored(t *testing.T) {
	w := newWorld(t)
	r := w.greeted()
	watch := w.history.Watch(r.journal())
	defer watch.Close()
	const one, two = `{"delta":"he","type":"text"}`, `{"delta":"llo","type":"text"}`
	r.events("1", one+"\n"+lines(1, 1)+two+"\n"+lines(2, 1)).is(http.StatusOK).says(`{"next":3}`)
	var got []string
	for _, d := range watch.Deltas() {
		got = append(got, string(d))
	}
	if strings.Join(got, "|") != one+"|"+two {
		t.Errorf("watchers saw %q", got)
	}
	r.events("3", one+"\n").is(http.StatusOK).says(`{"next":3}`)
	if got := w.stored(r.journal()); got != lines(1, 2) {
		t.Errorf("stored is\n%s", got)
	}
}

func TestWhatIsNoEventIsRefusedWhole(t *testing.T) {
	w := newWorld(t)
	r := w.greeted()
	for name, body := range map[string]string{
		"the last line is cut":        lines(1, 2) + `{"time":"x"}`,
		"a line is cut":               lines(1, 1) + "{\"time\":\n" + lines(2, 1),
		"an empty line":               lines(1, 1) + "\n" + lines(2, 1),
		"an empty object":             lines(1, 1) + "{}\n",
		"a list":                      "[1]\n",
		"a word":                      "x\n",
		"one brace":                   "{\n",
		"a line break of its own":     "{\"a\":1,\r\"b\":2}\n",
		"a line break in a delta":     "{\"delta\":\"a\",\r\"type\":\"text\"}\n",
		"a delta that is cut":         "{\"delta\":\"a\n" + lines(1, 1),
		"the line breaks of DOS":      strings.ReplaceAll(lines(1, 2), "\n", "\r\n"),
		"bytes that are no text":      "\x00\xff\n",
		"compressed with who knows":   "\x28\xb5\x2f\xfd\n",
		"the end of an event stream":  "\n\nevent: stop\n",
		"an event stream in one line": "data: {\"a\":1}\n",
	} {
		if a := r.events("1", body); a.status != http.StatusBadRequest {
			t.Errorf("%s: %d, %s", name, a.status, a.body)
		}
	}
	for _, from := range []string{"", "0", "-1", "x", "1.0", "99999999999999999999"} {
		r.events(from, lines(1, 1)).is(http.StatusBadRequest).says("cursor")
	}
	r.events("18446744073709551615", lines(1, 1)).is(http.StatusBadRequest)
	if got := w.stored(r.journal()); got != "" {
		t.Errorf("stored is\n%s", got)
	}
}

func TestALargeBatchIsTakenAndATooLargeEventIsNot(t *testing.T) {
	w := newWorld(t)
	r := w.greeted()
	large := `{"time":"x","text":"` + strings.Repeat("x", 12<<20) + "\"}\n"
	r.events("1", large+lines(2, 1000)).is(http.StatusOK).says(`{"next":1002}`)
	r.events("1002", `{"time":"x","text":"`+strings.Repeat("x", 200<<20)+"\"}\n").is(http.StatusRequestEntityTooLarge)
	r.events("1002", lines(1002, 1)).is(http.StatusOK)
}
