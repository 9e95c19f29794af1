package service_test

import (
	"context"
	"errors"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tallyman-dev/tallyman"
)

func TestStopping(t *testing.T) {
	h := newHall(t)
	stop := func(id, by string) tallyman.Run {
		t.Helper()
		run, err := h.Stop(t.Context(), id, tallyman.ReasonStopped, by)
		if err != nil {
			t.Fatal(err)
		}
		return run
	}
	queued := h.submit(command())
	if got := stop(queued.Name, "a test"); got.State != tallyman.Stopped || got.Reason != tallyman.ReasonStopped || got.Message != "stopped by a test" || got.EndedAt == nil {
		t.Errorf("a queued run: %+v", got)
	}
	if len(h.ended) != 1 || h.ended[0].ID != queued.ID {
		t.Errorf("told of ends: %+v", h.ended)
	}
	r := h.start(h.submit(command()).ID)
	r.began()
	if got := stop(r.ref.RunID, "a test"); got.State != tallyman.Running || got.StopRequestedAt == nil {
		t.Errorf("a running run: %+v", got)
	}
	first := *h.run(r.ref.RunID).StopRequestedAt
	h.later(time.Minute)
	if got := stop(r.ref.RunID, "another"); !got.StopRequestedAt.Equal(first) || got.Message != "stopped by a test" {
		t.Errorf("a second stop: %+v", got)
	}
	answer, err := h.Report(t.Context(), r.ref, r.epoch, tallyman.ControlReport{})
	if err != nil || answer.Stop == nil || *answer.Stop != (tallyman.StopOrder{Reason: tallyman.ReasonStopped, Message: "stopped by a test"}) {
		t.Errorf("a heartbeat is answered with %+v, %v", answer, err)
	}
	if a := r.tell(tallyman.Fact{Kind: tallyman.FactFirst}); a.Stop == nil {
		t.Error("a report is answered without the order")
	}
	// What would be tried again is not, once a stop was asked.
	if got := r.ends(tallyman.RunnerLost); got.State != tallyman.Stopped || got.Reason != tallyman.ReasonStopped {
		t.Errorf("at its end: %s, %s", got.State, got.Reason)
	}
	before := h.run(r.ref.RunID)
	if diff := cmp.Diff(before, stop(r.ref.RunID, "late")); diff != "" {
		t.Errorf("a stop after the end:\n%s", diff)
	}
	_, err = h.Stop(t.Context(), "01JZ0000000000000000000000", tallyman.ReasonStopped, "x")
	code(t, err, tallyman.NotFound)
}

func TestARerunIsTheSameRequestWithEdits(t *testing.T) {
	h := newHall(t)
	first := h.submit(command(func(r *tallyman.Request) {
		r.Prompt, r.Key, r.Labels = strings.Repeat("p", 100_000), "k", map[string]string{"a": "1", "b": "2"}
		r.Env = []tallyman.EnvVar{{Name: "E", Value: "1"}}
	}))
	same, err := h.Rerun(t.Context(), first.Name, nil, tallyman.SourceWeb)
	if err != nil {
		t.Fatal(err)
	}
	if same.ID == first.ID || same.Parent != first.ID || same.Key != "" || same.Source != tallyman.SourceWeb || same.Agent != "exec" {
		t.Errorf("got %+v", same)
	}
	body, _, err := h.Prompt(t.Context(), same.ID)
	if err != nil {
		t.Fatal(err)
	}
	defer body.Close()
	if b, err := io.ReadAll(body); err != nil || len(b) != 100_000 {
		t.Errorf("its prompt has %d bytes: %v", len(b), err)
	}
	edited, err := h.Rerun(t.Context(), same.ID, map[string]string{
		"prompt": "q", "model": "m", "priority": "7", "label.a": "9", "label.c.d": "3", "env.E": "x=y", "env.F": "",
		"deadline": "90s", "idle": "0", "tool": "5m", "maxTurns": "3", "budgetUSD": "1.5", "maxTokens": "1000",
	}, tallyman.SourceCLI)
	if err != nil {
		t.Fatal(err)
	}
	l := edited.Limits
	if edited.Model != "m" || edited.Priority != 7 || !cmp.Equal(edited.Labels, map[string]string{"a": "9", "b": "2", "c.d": "3"}) ||
		l.Deadline.D() != 90*time.Second || *l.Idle != 0 || l.Tool.D() != 5*time.Minute || *l.MaxTurns != 3 || *l.BudgetUSD != 1.5 || *l.MaxTokens != 1000 {
		t.Errorf("edited: %+v, limits %+v", edited, l)
	}
	env := h.backend.asked[len(h.backend.asked)-1].Env
	if diff := cmp.Diff([]tallyman.EnvVar{{Name: "E", Value: "1"}, {Name: "E", Value: "x=y"}, {Name: "F"}}, env); diff != "" {
		t.Errorf("its environment:\n%s", diff)
	}
	if h.run(first.ID).Labels["a"] != "1" {
		t.Error("the first run has changed")
	}
	other, err := h.Rerun(t.Context(), first.ID, map[string]string{"agent": "demo"}, tallyman.SourceCLI)
	if err == nil {
		t.Errorf("the command of exec went to %s", other.Agent)
	}
}

func TestAnAgentThatIsSetAgainStaysAsItWasSent(t *testing.T) {
	h := newHall(t)
	mine := tallyman.Agent{Name: "mine", Spec: tallyman.AgentSpec{Harness: "exec", Command: []string{"true"}}}
	first := h.submit(tallyman.Request{Inline: &mine})
	if again, err := h.Rerun(t.Context(), first.ID, map[string]string{"agent": "mine", "prompt": "x"}, tallyman.SourceWeb); err != nil || again.Agent != "mine" {
		t.Errorf("got %+v, %v", again, err)
	}
	_, err := h.Rerun(t.Context(), first.ID, map[string]string{"agent": "another"}, tallyman.SourceWeb)
	code(t, err, tallyman.NotFound)
	_, err = h.Rerun(t.Context(), first.ID, map[string]string{"agent": "team/mine"}, tallyman.SourceWeb)
	if e := code(t, err, tallyman.Invalid); !strings.Contains(e.Message, `namespace "team"`) {
		t.Errorf("got %v", e)
	}
}

func TestAnEditThatMakesNoSenseIsRefused(t *testing.T) {
	h := newHall(t)
	run := h.submit(command())
	for key, value := range map[string]string{
		"color": "red", "deadline": "soon", "idle": "-1s", "maxTurns": "three", "budgetUSD": "NaN", "maxTokens": "1.5", "priority": "high", "label.": "x", "env.": "x",
	} {
		_, err := h.Rerun(t.Context(), run.ID, map[string]string{key: value}, tallyman.SourceCLI)
		code(t, err, tallyman.Invalid)
	}
	// One value sets one limit.
	_, err := h.Rerun(t.Context(), run.ID, map[string]string{"maxTurns": `1,"idle":"3s"`}, tallyman.SourceCLI)
	if e := code(t, err, tallyman.Invalid); !strings.Contains(e.Message, "not a number") {
		t.Errorf("got %v", e)
	}
	if n := h.runs(); n != 1 {
		t.Errorf("%d runs are there", n)
	}
}

func TestDeleting(t *testing.T) {
	h := newHall(t)
	var dropped []string
	drop := func(_ context.Context, journals []string) error {
		dropped = append(dropped, journals...)
		return nil
	}
	run := h.submit(command())
	code(t, h.Delete(t.Context(), run.ID, drop), tallyman.Conflict)
	r := h.start(run.ID)
	code(t, h.Delete(t.Context(), run.ID, drop), tallyman.Conflict)
	r.writes(3)
	if _, err := h.End(t.Context(), r.ref, tallyman.Settlement{Reason: tallyman.Completed}); err != nil {
		t.Fatal(err)
	}
	// It has ended, but its processes are not known to be gone.
	code(t, h.Delete(t.Context(), run.ID, drop), tallyman.Conflict)
	if err := h.Gone(t.Context(), r.ref, false, nil); err != nil {
		t.Fatal(err)
	}
	if len(dropped) > 0 {
		t.Fatalf("dropped %v of a run that stays", dropped)
	}
	disk := errors.New("disk")
	if err := h.Delete(t.Context(), run.ID, func(context.Context, []string) error { return disk }); !errors.Is(err, disk) {
		t.Errorf("got %v", err)
	}
	if h.run(run.ID).State != tallyman.Succeeded {
		t.Error("a run whose events could not be dropped is gone")
	}
	if err := h.Delete(t.Context(), run.Name, drop); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{r.journal}, dropped); diff != "" {
		t.Error(diff)
	}
	code(t, h.Delete(t.Context(), run.ID, drop), tallyman.NotFound)
	if _, err := h.store.Attempt(t.Context(), r.ref); tallyman.CodeOf(err) != tallyman.NotFound {
		t.Errorf("its attempt: %v", err)
	}
}
