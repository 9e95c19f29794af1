//go:build linux

package contract_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tallyman-dev/tallyman"
)

func TestRunShowsTheTranscriptAndEndsWithOneBlock(t *testing.T) {
	p := newPlace(t)
	o := p.want(0, "run", "demo", "say", "hello")
	p.contains(o.out, "Hello. I look around first.", "You said: say hello", "Bash")
	block := regexp.MustCompile(`(?s)\ndemo-[0-9a-z]{10}
  outcome   succeeded \(Completed\)
  turns     \d+
  tokens    .*3,700 in.*
  cost      \$0\.017, .*
  duration  \S+
$`)
	if !block.MatchString(o.err) {
		t.Errorf("the block at the end of:\n%s", o.err)
	}
}

// runFields are those that the run's JSON must have, whatever the run is.
var runFields = []string{
	"id", "name", "namespace", "agent", "harness", "model", "state", "reason", "message", "attempt", "exit_code",
	"result", "usage", "oom_kills", "waiting", "labels", "key", "source", "parent", "created_at", "started_at", "ended_at", "limits",
}

func TestRunAsJSONIsOneObjectAndNothingElse(t *testing.T) {
	p := newPlace(t)
	o := p.want(0, "run", "demo", "say hello", "-o", "json")
	if o.err != "" {
		t.Errorf("standard error has:\n%s", o.err)
	}
	var fields map[string]json.RawMessage
	p.object(o, &fields)
	for _, name := range runFields {
		if _, ok := fields[name]; !ok {
			t.Errorf("the run has no %q:\n%s", name, o.out)
		}
	}
	var usage map[string]json.RawMessage
	if err := json.Unmarshal(fields["usage"], &usage); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"input_tokens", "output_tokens", "cache_read_tokens", "cache_write_tokens", "cost_usd", "cost_source", "turns"} {
		if _, ok := usage[name]; !ok {
			t.Errorf("the usage has no %q: %s", name, fields["usage"])
		}
	}
	run := p.decode(o)
	if run.Result != "say hello" || run.State != tallyman.Succeeded || run.Attempt != 1 || run.Source != tallyman.SourceCLI ||
		run.Usage.InputTokens != 3700 || run.Usage.OutputTokens != 270 || run.Usage.CacheReadTokens != 2000 || run.Usage.CacheWriteTokens != 400 ||
		run.Usage.CostSource != tallyman.CostHarness || run.StartedAt == nil || run.EndedAt == nil {
		t.Errorf("got %+v", run)
	}
	if diff := cmp.Diff(run, p.show(run.Name)); diff != "" {
		t.Errorf("show tells another run:\n%s", diff)
	}
	if name := p.ok("show", run.ID, "-o", "name"); name != run.Name+"\n" {
		t.Errorf("-o name prints %q", name)
	}
	if shown := p.ok("show", run.ID[20:]); !strings.Contains(shown, "timeline") || !strings.Contains(shown, "queued: submitted by cli") {
		t.Errorf("show by a part of the id prints:\n%s", shown)
	}
}

func TestThePromptComesFromArgumentsFileOrStandardInput(t *testing.T) {
	p := newPlace(t)
	file := p.write("prompt.md", "from\na file\n")
	for name, c := range map[string]struct {
		stdin string
		args  []string
		want  string
	}{
		"arguments are joined":        {args: []string{"demo", "a", "b  c"}, want: "a b  c"},
		"a dash is standard input":    {stdin: "from\nstdin", args: []string{"demo", "-"}, want: "from\nstdin"},
		"a file":                      {args: []string{"demo", "--file", file}, want: "from\na file\n"},
		"a file that is a dash":       {stdin: "x", args: []string{"demo", "--file", "-"}, want: "x"},
		"what looks like a flag":      {args: []string{"demo", "a", "\"--x\" 'y' $z"}, want: "a \"--x\" 'y' $z"},
		"what is not ASCII, and long": {args: []string{"demo", strings.Repeat("ü€😀", 10_000)}, want: strings.Repeat("ü€😀", 10_000)},
	} {
		o := p.start(c.stdin, append([]string{"run", "-o", "json"}, c.args...)...).wait()
		if run := p.decode(o); run.Result != c.want {
			t.Errorf("%s: the result is %.200q, want %.200q", name, run.Result, c.want)
		}
	}
	p.contains(p.want(2, "run", "demo", "x", "--file", file).err, "not from both")
	p.contains(p.want(2, "run", "demo", "--file", "nowhere.md").err, "nowhere.md")
	p.contains(p.want(2, "run").err, "needs an agent")
	if n := strings.Count(p.ok("ls", "-o", "name"), "\n"); n != 6 {
		t.Errorf("%d runs are there, want 6", n)
	}
}

func TestFlagsReachTheRun(t *testing.T) {
	p := newPlace(t)
	folder := filepath.Join(p.dir, "elsewhere")
	if err := os.Mkdir(folder, 0o755); err != nil {
		t.Fatal(err)
	}
	p.set("TAKEN=from here")
	run := p.ends(tallyman.Completed, "exec", "--env", "A=1 = 2", "--env", "TAKEN", "--label", "team=web", "--label", "x=", "--model", "m-1",
		"--priority", "7", "--deadline", "90s", "--idle", "2m", "--max-turns", "5", "--max-tokens", "1000", "--budget-usd", "1.5",
		"--key", "k", "--workspace", folder, "--output", "*.txt", "--",
		"sh", "-c", `echo "$A|$TAKEN|$PWD"; echo left > out.txt`)
	l := run.Limits
	if run.Model != "m-1" || run.Priority != 7 || run.Key != "k" || !cmp.Equal(run.Labels, map[string]string{"team": "web", "x": ""}) ||
		l.Deadline.D() != 90*time.Second || l.Idle.D() != 2*time.Minute || *l.MaxTurns != 5 || *l.MaxTokens != 1000 || *l.BudgetUSD != 1.5 {
		t.Errorf("the run is %+v, its limits %+v", run, l)
	}
	if got := p.ok("logs", run.Name); got != "1 = 2|from here|"+folder+"\n" {
		t.Errorf("the command saw %q", got)
	}
	if got := p.ok("artifacts", "get", run.Name, "out.txt", "--to", "-"); got != "left\n" {
		t.Errorf("the artifact holds %q", got)
	}
	for _, bad := range [][]string{
		{"--env", "NOT_SET_ANYWHERE"}, {"--env", "=x"}, {"--label", "x"}, {"--deadline", "soon"}, {"--idle", "-1s"}, {"--max-turns", "-1"},
		{"--max-tokens", "x"}, {"--budget-usd", "-1"}, {"--budget-usd", "NaN"}, {"--priority", "9999999"}, {"--workspace", "git:"},
		{"--output", "../x"}, {"--nonsense", "1"}, {"-o", "xml"}, {"--harness", "exce"},
	} {
		p.want(2, append(append([]string{"run"}, bad...), "exec", "--", "true")...)
	}
	if n := strings.Count(p.ok("ls", "-o", "name"), "\n"); n != 1 {
		t.Errorf("%d runs are there, want 1", n)
	}
}

func TestHarnessExecNeedsNoAgentFile(t *testing.T) {
	p := newPlace(t)
	for _, args := range [][]string{
		{"run", "--harness", "exec", "--", "pwd"}, {"run", "exec", "--", "pwd"}, {"run", "exec", "pwd"},
	} {
		if o := p.want(0, args...); o.out != filepath.Join(p.dir, "work")+"\n" {
			t.Errorf("%v printed %q, want the caller's folder", args, o.out)
		}
	}
	steps := p.write("steps.yaml", "- say: by steps\n- result: {text: done}\n")
	if run := p.ends(tallyman.Completed, "--harness", "script", "--file", steps); run.Result != "done" {
		t.Errorf("the script's result is %q", run.Result)
	}
	p.contains(p.want(2, "run", "--harness", "script", "no steps").err, "steps")
	p.want(2, "run", "script", "hello") // a harness is no agent
	p.contains(p.want(2, "run", "exec").err, "command")
	p.contains(p.want(2, "run", "exec", "--").err, "command")
	p.contains(p.want(2, "run", "exec", "--", "no-such-program-here").err, "no-such-program-here", "PATH")
	for _, later := range []string{"codex", "gemini", "opencode"} {
		p.contains(p.want(2, "run", later, "hello").err, "not in this version")
	}
}

func TestExecPrintsLinesAsTheyAreWritten(t *testing.T) {
	p := newPlace(t)
	lines := "plain\n  two  spaces\ttab\n\n\x1b[31mred\x1b[0m\n{\"json\": 1.0}\nümlaut \xff\xfe bytes\n50%\r100%\nlast without newline"
	p.write("lines", lines)
	o := p.want(0, "run", "exec", "--", "sh", "-c", "echo to stderr >&2; cat lines")
	if o.out != lines+"\n" {
		t.Errorf("standard output differs:\n%s", cmp.Diff(lines+"\n", o.out))
	}
	p.contains(o.err, "to stderr\n", "outcome   succeeded (Completed)")
	id := strings.TrimSpace(p.ok("ls", "-o", "name"))
	logs := p.want(0, "logs", id)
	if logs.out != lines+"\n" || logs.err != "to stderr\n" {
		t.Errorf("logs differ:\n%s%s", cmp.Diff(lines+"\n", logs.out), logs.err)
	}
	events := p.events(id)
	var got []string
	for _, e := range events {
		if e.Type == tallyman.EventText {
			line := e.Text
			if len(e.RawB64) > 0 {
				line = string(e.RawB64)
			}
			got = append(got, line)
		}
		if e.Type == tallyman.EventResult {
			t.Errorf("exec has a result event: %+v", e)
		}
	}
	if diff := cmp.Diff(strings.Split(lines, "\n"), got); diff != "" {
		t.Errorf("text events:\n%s", diff)
	}
	if diff := cmp.Diff([]string{"to stderr"}, texts(events, tallyman.EventAgentStderr)); diff != "" {
		t.Errorf("stderr events:\n%s", diff)
	}
	if run := p.show(id); run.Result != "" || *run.ExitCode != 0 {
		t.Errorf("result %q, exit code %v", run.Result, run.ExitCode)
	}
}

func TestEventsAreGapFreeAndResumable(t *testing.T) {
	p := newPlace(t)
	run := p.ends(tallyman.Completed, "demo", "hello")
	all := p.ok("events", run.ID, "-o", "json")
	events := p.parseEvents(all)
	if events[0].Type != tallyman.EventRunnerStarted || events[len(events)-1].Type != tallyman.EventRunnerEnded {
		t.Errorf("the events run from %s to %s", events[0].Type, events[len(events)-1].Type)
	}
	p.lacks(all, `"delta"`, `"queued"`)
	if got := p.ok("events", run.ID); got != all {
		t.Error("without -o json the events are others")
	}
	if got := p.ok("events", "-f", run.ID, "-o", "json"); got != all {
		t.Error("-f gives other events of an ended run")
	}
	_, rest, _ := strings.Cut(all, `{"id":"1.6"`)
	if got := p.ok("events", run.ID, "--after", "1.5"); got != `{"id":"1.6"`+rest {
		t.Errorf("after 1.5 come:\n%.300s", got)
	}
	if got := p.ok("events", run.ID, "--after", events[len(events)-1].ID); got != "" {
		t.Errorf("after the last comes %s", got)
	}
	p.contains(p.want(2, "events", run.ID, "--after", "x").err, "ATTEMPT.CURSOR")
}

func TestLogsTailAndSince(t *testing.T) {
	p := newPlace(t)
	run := p.ends(tallyman.Completed, "exec", "--", "sh", "-c", "for i in 1 2 3 4 5; do echo line $i; done")
	if got := p.ok("logs", run.ID, "-f"); got != "line 1\nline 2\nline 3\nline 4\nline 5\n" {
		t.Errorf("logs -f: %q", got)
	}
	if got := p.ok("logs", run.ID, "--tail", "2"); got != "line 4\nline 5\n" {
		t.Errorf("--tail 2: %q", got)
	}
	if got := p.ok("logs", run.ID, "--tail", "0"); got != "" {
		t.Errorf("--tail 0: %q", got)
	}
	if got := p.ok("logs", run.ID, "--since", "1h"); got != "line 1\nline 2\nline 3\nline 4\nline 5\n" {
		t.Errorf("--since 1h: %q", got)
	}
	if got := p.ok("logs", run.ID, "--since", "1ns"); got != "" {
		t.Errorf("--since 1ns: %q", got)
	}
}

func TestDetachedRunsAreFollowed(t *testing.T) {
	p := newPlace(t)
	run := p.detach("exec", "--", "sh", "-c", "echo first; while ! [ -e go ]; do sleep 0.05; done; echo second")
	if run.State != tallyman.Queued || run.Attempt != 0 {
		t.Errorf("-d prints a run that is %s in attempt %d, not as admitted to the queue", run.State, run.Attempt)
	}
	follow := p.start("", "logs", "-f", run.Name)
	p.eventually("the first line", func() bool { return strings.Contains(follow.out.String(), "first\n") })
	if got := p.ok("logs", run.Name); got != "first\n" {
		t.Errorf("logs of a running one: %q", got)
	}
	p.write("go", "")
	if o := follow.wait(); o.code != 0 || o.out != "first\nsecond\n" {
		t.Errorf("logs -f: %s", o)
	}
	p.holds(p.ended(run.ID), tallyman.Completed)
	// Nobody is left when nothing is to do.
	p.eventually("the server in the background has ended", func() bool { return len(p.processes()) == 0 })
}

func TestLsAsJSONHasItemsAndNext(t *testing.T) {
	p := newPlace(t)
	type page struct {
		Items []tallyman.Run `json:"items"`
		Next  *string        `json:"next"`
	}
	var empty page
	p.object(p.want(0, "ls", "-o", "json"), &empty)
	if empty.Items == nil || len(empty.Items) != 0 || empty.Next == nil || *empty.Next != "" {
		t.Errorf("nothing is listed as %+v", empty)
	}
	var names []string
	for _, code := range []string{"0", "1", "0"} {
		run, _ := p.run("exec", "--label", "code="+code, "--", "sh", "-c", "exit "+code)
		names = append(names, run.Name)
	}
	slices.Reverse(names)
	ls := func(args ...string) (got []string, next string) {
		var list page
		p.object(p.want(0, append([]string{"ls", "-o", "json"}, args...)...), &list)
		for _, r := range list.Items {
			got = append(got, r.Name)
		}
		return got, *list.Next
	}
	hold := func(want []string, args ...string) string {
		t.Helper()
		got, next := ls(args...)
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("ls %v:\n%s", args, diff)
		}
		return next
	}
	if next := hold(names); next != "" {
		t.Errorf("all runs have a next page %q", next)
	}
	next := hold(names[:2], "--limit", "2")
	if next == "" {
		t.Fatal("two of three have no next page")
	}
	hold(names[2:], "--limit", "2", "--cursor", next)
	hold(names[1:2], "--state", "failed")
	hold([]string{names[0], names[2]}, "--label", "code=0")
	hold(names, "--agent", "exec")
	hold(names, "--agent", "default/exec")
	hold(names, "--agent", "default/")
	hold(nil, "--agent", "demo")
	hold(nil, "--agent", "team/exec")
	p.contains(p.call("ls", "--agent", "nobody").err, "no such runs")
	hold(names[1:2], "--search", names[1])
	if got := p.ok("ls", "-o", "name"); got != strings.Join(names, "\n")+"\n" {
		t.Errorf("-o name: %q", got)
	}
	p.contains(p.ok("ls", "-o", "wide"), "NAME", "ID", names[0], "AgentError", "failed")
	for _, bad := range [][]string{{"--state", "done"}, {"--label", "x"}, {"--limit", "-1"}, {"--cursor", "?"}, {"--agent", "a/b", "--namespace", "c"}, {"x"}, {"-o", "yml"}} {
		p.want(2, append([]string{"ls"}, bad...)...)
	}
}

func TestAPromptThatIsNotTextIsRefused(t *testing.T) {
	p := newPlace(t)
	p.contains(p.want(2, "run", "exec", "--file", p.write("b.bin", "a\xff\xfeb"), "--", "cat").err, "is not UTF-8")
	p.contains(p.ok("run", "demo", "--", "--dash"), "You said: --dash")
}
