package service_test

import (
	"errors"
	"io"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tallyman-dev/tallyman"
	"github.com/tallyman-dev/tallyman/internal/service"
)

func TestARequestIsMergedOverItsAgent(t *testing.T) {
	h := newHall(t)
	h.agent("worker", tallyman.AgentSpec{
		Harness: "exec", Command: []string{"make"}, Model: "m-1", Priority: 3,
		Env:       []tallyman.EnvVar{{Name: "A", Value: "1"}},
		Limits:    tallyman.Limits{Idle: ptr(tallyman.Duration(time.Minute)), MaxTurns: ptr(5)},
		Outputs:   []tallyman.Output{{Path: "a"}},
		Workspace: tallyman.Workspace{Keep: true},
	})
	plain := h.submit(tallyman.Request{Agent: "worker"})
	spec := h.backend.asked[0]
	if plain.Model != "m-1" || plain.Priority != 3 || plain.Harness != "exec" || plain.State != tallyman.Queued || plain.Attempt != 0 ||
		plain.Source != tallyman.SourceAPI || plain.Namespace != "default" || !strings.HasPrefix(plain.Name, "worker-") {
		t.Errorf("as the agent says: %+v", plain)
	}
	if l := plain.Limits; *l.Deadline != tallyman.DefaultDeadline || l.Idle.D() != time.Minute || *l.MaxTurns != 5 || l.BudgetUSD != nil {
		t.Errorf("its limits are %+v", l)
	}
	if diff := cmp.Diff([]string{"make"}, spec.Command); diff != "" {
		t.Error(diff)
	}
	h.submit(tallyman.Request{
		Agent: "worker", Model: "m-2", Priority: ptr(-1), Command: []string{"make", "all"},
		Env:     []tallyman.EnvVar{{Name: "A", Value: "2"}, {Name: "B", Value: "3"}},
		Limits:  tallyman.Limits{Deadline: ptr(tallyman.Duration(0)), MaxTurns: ptr(9), MaxTokens: ptr[int64](7)},
		Outputs: []tallyman.Output{{Path: "b"}}, Workspace: &tallyman.Workspace{Path: "/src"},
	})
	want := spec
	want.Model, want.Priority, want.Command = "m-2", -1, []string{"make", "all"}
	want.Env = []tallyman.EnvVar{{Name: "A", Value: "1"}, {Name: "A", Value: "2"}, {Name: "B", Value: "3"}}
	want.Limits.Deadline, want.Limits.MaxTurns, want.Limits.MaxTokens = ptr(tallyman.Duration(0)), ptr(9), ptr[int64](7)
	want.Outputs = []tallyman.Output{{Path: "a"}, {Path: "b"}}
	want.Workspace = tallyman.Workspace{Path: "/src", Keep: true}
	if diff := cmp.Diff(want, h.backend.asked[1]); diff != "" {
		t.Errorf("as the request asks:\n%s", diff)
	}
	if diff := cmp.Diff([]tallyman.EnvVar{{Name: "A", Value: "1"}}, h.agents["worker"].Spec.Env); diff != "" {
		t.Errorf("the agent itself has changed:\n%s", diff)
	}
}

func TestASubmitThatIsRefusedCreatesNothing(t *testing.T) {
	many := map[string]string{}
	for i := range 65 {
		many[strings.Repeat("x", i+1)] = ""
	}
	claude := func(change func(*tallyman.Request)) tallyman.Request {
		r := tallyman.Request{Agent: "claude", Prompt: "hello"}
		change(&r)
		return r
	}
	budget := func(usd float64, tokens *int64) tallyman.Request {
		return command(func(r *tallyman.Request) { r.Limits = tallyman.Limits{BudgetUSD: &usd, MaxTokens: tokens} })
	}
	for name, c := range map[string]struct {
		req    tallyman.Request
		hall   func(*hall)
		code   tallyman.Code // "": it is taken
		reason tallyman.Reason
		says   string
	}{
		"an agent that is not there":         {req: tallyman.Request{Agent: "nobody"}, code: tallyman.NotFound, says: "nobody"},
		"an agent's name that cannot be":     {req: tallyman.Request{Agent: "../x"}, code: tallyman.Invalid, says: "lowercase"},
		"no agent at all":                    {req: tallyman.Request{}, code: tallyman.Invalid, says: "names no agent"},
		"a namespace that cannot be":         {req: command(func(r *tallyman.Request) { r.Namespace = "A B" }), code: tallyman.Invalid, says: "namespace"},
		"a namespace that is not there":      {req: command(func(r *tallyman.Request) { r.Namespace = "team" }), code: tallyman.Invalid, says: `namespace "team": this server has only "default"`},
		"an agent in such a namespace":       {req: tallyman.Request{Agent: "team/exec", Command: []string{"true"}}, code: tallyman.Invalid, says: `namespace "team"`},
		"an agent in the one that is there":  {req: tallyman.Request{Agent: "default/exec", Command: []string{"true"}}},
		"a prompt that is too long":          {req: command(func(r *tallyman.Request) { r.Prompt = strings.Repeat("x", service.MaxPrompt+1) }), code: tallyman.TooLarge},
		"a key that is too long":             {req: command(func(r *tallyman.Request) { r.Key = strings.Repeat("x", service.MaxKey+1) }), code: tallyman.Invalid, says: "key"},
		"too many labels":                    {req: command(func(r *tallyman.Request) { r.Labels = many }), code: tallyman.Invalid, says: "65 labels"},
		"a label without a key":              {req: command(func(r *tallyman.Request) { r.Labels = map[string]string{"": "x"} }), code: tallyman.Invalid, says: "label"},
		"a label that is too long":           {req: command(func(r *tallyman.Request) { r.Labels = map[string]string{"k": strings.Repeat("x", 1025)} }), code: tallyman.Invalid, says: "label"},
		"a command for another harness":      {req: claude(func(r *tallyman.Request) { r.Command = []string{"sh"} }), code: tallyman.Invalid, says: "only exec"},
		"no command":                         {req: command(func(r *tallyman.Request) { r.Command = nil }), code: tallyman.Invalid, reason: tallyman.InvalidSpec, says: "command"},
		"a limit that makes no sense":        {req: command(func(r *tallyman.Request) { r.Limits.MaxTurns = ptr(-1) }), code: tallyman.Invalid, reason: tallyman.InvalidSpec, says: "maxTurns"},
		"a variable without a name":          {req: command(func(r *tallyman.Request) { r.Env = []tallyman.EnvVar{{Value: "x"}} }), code: tallyman.Invalid, reason: tallyman.InvalidSpec, says: "env"},
		"an output outside the workspace":    {req: command(func(r *tallyman.Request) { r.Outputs = []tallyman.Output{{Path: "../x"}} }), code: tallyman.Invalid, reason: tallyman.InvalidSpec, says: "outputs"},
		"claude without a prompt":            {req: claude(func(r *tallyman.Request) { r.Prompt = " \n" }), code: tallyman.Invalid, reason: tallyman.InvalidSpec, says: "needs a prompt"},
		"a prompt above what claude reads":   {req: claude(func(r *tallyman.Request) { r.Prompt = strings.Repeat("x", 10_000_001) }), code: tallyman.Invalid, reason: tallyman.InvalidSpec, says: "promptFile: true"},
		"the same prompt in a file":          {req: claude(func(r *tallyman.Request) { r.Agent, r.Prompt = "filed", strings.Repeat("x", 10_000_001) })},
		"as much as claude reads":            {req: claude(func(r *tallyman.Request) { r.Prompt = strings.Repeat("x", 10_000_000) })},
		"a prompt too long for a variable":   {req: tallyman.Request{Agent: "image", Prompt: strings.Repeat("x", tallyman.MaxInline+1)}, code: tallyman.Invalid, reason: tallyman.InvalidSpec, says: "runner: bare"},
		"a prompt no variable can hold":      {req: tallyman.Request{Agent: "image", Prompt: "a\x00b"}, code: tallyman.Invalid, reason: tallyman.InvalidSpec, says: "has a zero byte"},
		"as much as a variable holds":        {req: tallyman.Request{Agent: "image", Prompt: strings.Repeat("x", tallyman.MaxInline)}},
		"a setting that is unknown":          {req: tallyman.Request{Agent: "odd", Prompt: "x"}, code: tallyman.Invalid, reason: tallyman.InvalidSpec, says: "nonsense"},
		"a budget that cannot be kept":       {req: budget(1, nil), code: tallyman.Invalid, reason: tallyman.InvalidSpec, says: "maxTokens"},
		"tokens without a limit beside it":   {req: budget(1, ptr[int64](0)), code: tallyman.Invalid, reason: tallyman.InvalidSpec, says: "maxTokens"},
		"a budget with a limit of tokens":    {req: budget(1, ptr[int64](1000))},
		"no budget":                          {req: budget(0, nil)},
		"a script whose prompt is no list":   {req: tallyman.Request{Agent: "scripted", Prompt: "hello"}, code: tallyman.Invalid, reason: tallyman.InvalidSpec, says: "list"},
		"a script whose prompt is the steps": {req: tallyman.Request{Agent: "scripted", Prompt: "- say: hello"}},
		"what the backend refuses": {req: command(), hall: func(h *hall) {
			h.backend.refuse = &tallyman.Error{Code: tallyman.Invalid, Reason: tallyman.ConfigMissing, Message: "no KEY"}
		}, code: tallyman.Invalid, reason: tallyman.ConfigMissing, says: "no KEY"},
		"no space to record it": {req: command(), hall: func(h *hall) { h.full = tallyman.Errorf(tallyman.Unavailable, "the disk is full") }, code: tallyman.Unavailable, says: "full"},
	} {
		t.Run(name, func(t *testing.T) {
			h := newHall(t)
			h.agent("filed", tallyman.AgentSpec{Harness: "claude", PromptFile: true})
			h.agent("odd", tallyman.AgentSpec{Harness: "claude", Settings: rawMap("nonsense", `1`)})
			h.agent("image", tallyman.AgentSpec{Harness: "exec", Image: "x", Runner: tallyman.RunnerBare})
			h.agent("scripted", tallyman.AgentSpec{Harness: "script"})
			if c.hall != nil {
				c.hall(h)
			}
			changed, end := h.Changed()
			defer end()
			run, created, err := h.Submit(t.Context(), c.req)
			if c.code == "" {
				if err != nil || !created || h.runs() != 1 {
					t.Fatalf("created %v, %v", created, err)
				}
				return
			}
			e := code(t, err, c.code)
			if e.Reason != c.reason && c.reason != "" || !strings.Contains(err.Error(), c.says) {
				t.Errorf("reason %q, %q; want %q and %q", e.Reason, err, c.reason, c.says)
			}
			if created || run.ID != "" || h.runs() != 0 {
				t.Errorf("created %v: %+v; %d runs are there", created, run, h.runs())
			}
			select {
			case <-changed:
				t.Error("watchers were told")
			default:
			}
		})
	}
}

func TestAPromptIsKeptWhole(t *testing.T) {
	h := newHall(t)
	for name, size := range map[string]int{"none": 0, "short": 5, "as much as a row holds": tallyman.MaxInline, "one byte more": tallyman.MaxInline + 1, "large": 5 << 20} {
		prompt := strings.Repeat("ü\x01x", size/4+1)[:size]
		run := h.submit(command(func(r *tallyman.Request) { r.Prompt = prompt }))
		detail, err := h.store.Detail(t.Context(), run.ID)
		if err != nil {
			t.Fatal(err)
		}
		if inRow := len(detail.Prompt) == size; inRow != (size <= tallyman.MaxInline) || detail.PromptSize != int64(size) {
			t.Errorf("%s: %d bytes are in the row, blob %q", name, len(detail.Prompt), detail.PromptBlob)
		}
		if strings.Contains(string(detail.Request), "üüü") {
			t.Errorf("%s: the request holds the prompt once more", name)
		}
		body, n, err := h.Prompt(t.Context(), run.ID)
		if err != nil {
			t.Fatal(err)
		}
		b, err := io.ReadAll(body)
		if err = errors.Join(err, body.Close()); err != nil || string(b) != prompt || n != int64(size) {
			t.Errorf("%s: %d of %d bytes come back: %v", name, len(b), size, err)
		}
	}
	_, _, err := h.Prompt(t.Context(), "01JZ0000000000000000000000")
	code(t, err, tallyman.NotFound)
}

func TestAKeyBringsOneRun(t *testing.T) {
	h := newHall(t)
	h.agent("worker", tallyman.AgentSpec{Harness: "exec", Command: []string{"make"}})
	keyed := func(change ...func(*tallyman.Request)) tallyman.Request {
		r := tallyman.Request{Agent: "worker", Prompt: "p", Key: "k", Labels: map[string]string{"a": "1"}}
		for _, c := range change {
			c(&r)
		}
		return r
	}
	run := h.submit(keyed())
	again, created, err := h.Submit(t.Context(), keyed())
	if err != nil || created || again.ID != run.ID {
		t.Errorf("the same request: created %v, %s, %v", created, again.ID, err)
	}
	for name, change := range map[string]func(*tallyman.Request){
		"another prompt":   func(r *tallyman.Request) { r.Prompt = "q" },
		"another label":    func(r *tallyman.Request) { r.Labels = map[string]string{"a": "2"} },
		"another agent":    func(r *tallyman.Request) { r.Agent = "exec" },
		"a limit":          func(r *tallyman.Request) { r.Limits.MaxTurns = ptr(1) },
		"even a wrong one": func(r *tallyman.Request) { r.Limits.MaxTurns = ptr(-1) },
	} {
		_, created, err := h.Submit(t.Context(), keyed(change))
		if e := code(t, err, tallyman.Conflict); created || !strings.Contains(e.Message, run.ID) {
			t.Errorf("%s: created %v, %v", name, created, err)
		}
	}
	other := h.submit(keyed(func(r *tallyman.Request) { r.Source = tallyman.SourceCron }))
	if other.ID == run.ID {
		t.Error("another source got the run")
	}
	// The agent may be gone, the disk full and the backend refuse: it is here.
	delete(h.agents, "worker")
	h.full, h.backend.refuse = tallyman.Errorf(tallyman.Unavailable, "full"), errors.New("no")
	if again, _, err := h.Submit(t.Context(), keyed()); err != nil || again.ID != run.ID {
		t.Errorf("without its agent: %s, %v", again.ID, err)
	}
	r := h.start(run.ID)
	r.ends(tallyman.Completed, func(s *tallyman.Settlement) { s.Outcome.Result = strings.Repeat("r", 100_000) })
	if err := h.Delete(t.Context(), run.ID, dropNothing); err != nil {
		t.Fatal(err)
	}
	gone, created, err := h.Submit(t.Context(), keyed())
	if err != nil || created || gone.ID != run.ID || gone.State != tallyman.Succeeded || len(gone.Result) != 100_000 {
		t.Errorf("after it was removed: created %v, %s is %s with a result of %d, %v", created, gone.ID, gone.State, len(gone.Result), err)
	}
	_, _, err = h.Submit(t.Context(), keyed(func(r *tallyman.Request) { r.Prompt = "q" }))
	code(t, err, tallyman.Conflict)
	if n := h.runs(); n != 1 {
		t.Errorf("%d runs are there, want that of the other source", n)
	}
}

func TestAKeyOfANamespaceThatIsServedNoMore(t *testing.T) {
	h := newHall(t)
	h.serves("team")
	r := tallyman.Request{Namespace: "team", Agent: "worker", Key: "k", Inline: &tallyman.Agent{Name: "worker", Spec: tallyman.AgentSpec{Harness: "exec", Command: []string{"make"}}}}
	run := h.submit(r)
	h.serves()
	if again, created, err := h.Submit(t.Context(), r); err != nil || created || again.ID != run.ID {
		t.Errorf("created %v, %s, %v", created, again.ID, err)
	}
	r.Key = "another"
	_, _, err := h.Submit(t.Context(), r)
	code(t, err, tallyman.Invalid)
}

func TestOfManyWithOneKeyOneCreates(t *testing.T) {
	h := newHall(t)
	var all sync.WaitGroup
	var mu sync.Mutex
	ids, creators := map[string]bool{}, 0
	for range 20 {
		all.Go(func() {
			run, created, err := h.Submit(t.Context(), command(func(r *tallyman.Request) { r.Key = "k" }))
			if err != nil {
				t.Error(err)
			}
			mu.Lock()
			defer mu.Unlock()
			ids[run.ID] = true
			if created {
				creators++
			}
		})
	}
	all.Wait()
	if creators != 1 || len(ids) != 1 || h.runs() != 1 {
		t.Errorf("%d created, %d ids, %d runs", creators, len(ids), h.runs())
	}
}
