// Package runner works one attempt: it prepares the workspace, supervises the
// harness, writes the journal and carries it to the server. It is a process
// of its own, so that neither a server's death nor an agent's excess takes
// the record of the work with it.
package runner

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/tallyman-dev/tallyman"
	"github.com/tallyman-dev/tallyman/internal/fault"
	"github.com/tallyman-dev/tallyman/internal/harness"
	"github.com/tallyman-dev/tallyman/internal/journal"
	"github.com/tallyman-dev/tallyman/internal/mask"
)

// Descriptors that a local runner inherits: the bootstrap to read, and the
// lock that proves that it lives.
const (
	BootstrapFD = 3
	LockFD      = 4
)

// Exit codes of a runner's process.
const (
	ExitOK      = 0
	ExitFailed  = 1 // could not do its work: a bad bootstrap, a broken journal
	ExitRefused = 3 // the server refused it: final, stale or superseded
)

const (
	startPatience = 10 * time.Minute // for a first answer from a server
	eofGrace      = 2 * time.Second  // for streams that outlive the harness
	killPatience  = 30 * time.Second // for processes to vanish after KILL
	usagePeriod   = time.Second
	printGrace    = 5 * time.Second // for a transcript that nobody reads
)

// Main is the runner's process. It reads its bootstrap from an inherited
// pipe and returns the exit code.
func Main(version string, stderr io.Writer) int {
	log := slog.New(slog.NewTextHandler(stderr, nil))
	boot, err := readBootstrap()
	if err != nil {
		log.Error("reading the bootstrap", "err", err)
		return ExitFailed
	}
	if err := takeLock(); err != nil {
		log.Error("taking the lock over", "err", err)
		return ExitFailed
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	// Caught and not ignored: what is ignored here would stay so in the agent.
	signal.Notify(make(chan os.Signal, 1), syscall.SIGHUP, syscall.SIGPIPE)
	return exitCode(Run(ctx, boot, version, log), log)
}

// exitCode is what a runner's process ends with.
func exitCode(err error, log *slog.Logger) int {
	switch code := tallyman.CodeOf(err); {
	case err == nil:
		return ExitOK
	case code == tallyman.Stale, code == tallyman.Unauthorized, code == tallyman.Conflict, errors.Is(err, errFinal):
		log.Error("refused by the server", "err", err)
		return ExitRefused
	default:
		log.Error("working the attempt", "err", err)
		return ExitFailed
	}
}

// takeLock keeps the inherited lock to this process and writes its pid into
// the locked file, for who must kill it.
func takeLock() error {
	syscall.CloseOnExec(LockFD)
	_, err := syscall.Pwrite(LockFD, []byte(strconv.Itoa(os.Getpid())+"\n"), 0)
	return err
}

// readBootstrap reads the pipe to its end. A server that died while writing
// leaves half of it, and the runner ends without having done anything.
func readBootstrap() (tallyman.Bootstrap, error) {
	var b tallyman.Bootstrap
	f := os.NewFile(BootstrapFD, "bootstrap")
	if f == nil {
		return b, errors.New("there is no bootstrap on descriptor 3: a runner is started by a server")
	}
	defer f.Close()
	if err := json.NewDecoder(f).Decode(&b); err != nil {
		return b, fmt.Errorf("read descriptor 3: %w", err)
	}
	return b, nil
}

// run is one attempt in work.
type run struct {
	boot    tallyman.Bootstrap
	spec    tallyman.RunnerSpec
	adapter harness.Adapter
	rec     *recorder
	journal *journal.Writer
	up      *uplink
	log     *slog.Logger

	reach      time.Duration // how long nobody may answer the first hello; 0: as long as it may
	inherited  []string      // the harness's environment before ours, in a Pod
	secrets    []mask.Secret // known from elsewhere than the spec
	transcript io.Writer     // what is printed of it, nil: nothing
	alone      bool          // nothing but this attempt is in our control group

	oomKills   func() (n int, counted bool) // in our control group so far
	promptPath string
	began      time.Time
	ended      time.Time // of the agent's work: its result, or its exit without one

	outcome     *tallyman.Outcome // of the final event, nil before it
	finalCursor uint64
}

// path is a place in the attempt's folder.
func (r *run) path(name string) string { return filepath.Join(r.boot.Dir, name) }

// Run works the attempt to its end. An end by the harness, whatever it is, is
// no error; an error says that the attempt could not be worked or reported.
func Run(ctx context.Context, boot tallyman.Bootstrap, version string, log *slog.Logger) error {
	r := &run{boot: boot, log: log, began: time.Now(), oomKills: oomKills}
	return r.attempt(ctx, version)
}

// attempt is what Run says.
func (r *run) attempt(ctx context.Context, version string) error {
	if err := becomeSubreaper(); err != nil {
		return fmt.Errorf("become the reaper of orphans: %w", err)
	}
	ref, err := tallyman.ParseAttemptRef(r.boot.Attempt)
	if err != nil {
		return err
	}
	dir := r.path("journal")
	header := journal.Header{Journal: rand.Text(), Run: ref.RunID, Attempt: ref.Number, Created: r.began.UTC()}
	if r.journal, err = journal.Create(dir, header, journal.Options{Reserve: lastSpace}); err != nil {
		return err
	}
	fault.Point(fault.RunnerJournalCreated)
	if r.up, err = newUplink(r.boot, version, strconv.Itoa(os.Getpid()), r.log); err != nil {
		return errors.Join(err, r.journal.Close())
	}
	r.up.journal, r.up.dir, r.up.header = r.journal, dir, header
	r.rec = newRecorder(r.journal, r.up.provisional)
	r.rec.sent = r.up.delivered

	patience, cancel := context.WithTimeout(ctx, startPatience)
	r.up.reach = r.reach
	welcome, err := r.up.hello(patience)
	cancel()
	r.up.reach = 0
	if err != nil {
		return errors.Join(fmt.Errorf("introduce the runner to the server: %w", err), r.journal.Close())
	}
	fault.Point(fault.RunnerWelcomed)
	r.spec = welcome.Spec
	r.rec.mask = mask.New(append(secrets(r.spec.Env), r.secrets...))

	sending, stopSending := context.WithCancel(context.WithoutCancel(ctx))
	refused := make(chan error, 1)
	go func() { refused <- r.up.run(sending) }()
	lost := make(chan struct{})
	var upErr error
	go func() { upErr = <-refused; close(lost) }()

	endPrinting := r.printing(ctx)

	outcome := r.work(ctx, lost)
	fault.Point(fault.RunnerEnding)
	last := r.end(outcome)
	fault.Point(fault.RunnerEnded)
	endPrinting()
	err = r.drain(last, lost)
	fault.Point(fault.RunnerDrained)
	stopSending()
	<-lost
	return errors.Join(err, upErr, r.journal.Close())
}

// errUnreached says that nobody has answered a hello.
var errUnreached = errors.New("no server has answered")

// printing prints the transcript where one is wanted, until the returned
// function is called.
func (r *run) printing(ctx context.Context) (end func()) {
	if r.transcript == nil {
		return func() {}
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := r.print(ctx); err != nil {
			r.log.Error("printing", "err", err)
		}
	}()
	return func() {
		cancel()
		select {
		case <-done:
		case <-time.After(printGrace):
		}
	}
}

// secrets are the values that no journal may hold.
func secrets(env []tallyman.EnvVar) []mask.Secret {
	var all []mask.Secret
	for _, v := range env {
		if v.Mask != nil && *v.Mask {
			all = append(all, mask.Secret{Name: v.Name, Value: v.Value})
		}
	}
	return all
}

// work does everything between hello and the final event.
func (r *run) work(ctx context.Context, lost <-chan struct{}) tallyman.Outcome {
	started := map[string]any{"version": r.up.version, "pid": os.Getpid(), "attempt": r.boot.Attempt}
	if r.spec.LastFailure != "" {
		started["last_failure"] = r.spec.LastFailure
	}
	r.rec.event(tallyman.Event{Type: tallyman.EventRunnerStarted, Data: data(started)})
	for _, note := range r.spec.Notes {
		r.rec.event(tallyman.Event{Type: tallyman.EventNotice, Name: "note", Text: note})
	}
	adapter, err := harness.Lookup(r.spec.Agent.Harness)
	if err != nil {
		return tallyman.Outcome{Reason: tallyman.InvalidSpec, Message: err.Error()}
	}
	r.adapter = adapter
	r.rec.event(tallyman.Event{Type: tallyman.EventSetupStarted})
	l, stopped, err := r.prepare(ctx)
	if stopped != nil || err != nil {
		return r.unprepared(ctx, stopped, err)
	}
	if l.prompt != nil {
		defer l.prompt.Close()
	}
	ready := r.rec.event(tallyman.Event{Type: tallyman.EventSetupFinished})
	// From here on the agent may have run: that must be known before it is true.
	if err := r.journal.Wait(context.WithoutCancel(ctx), ready); err != nil {
		return tallyman.Outcome{Reason: tallyman.BackendError, Message: fmt.Sprintf("the journal cannot be written: %v", err)}
	}
	return r.supervise(ctx, l, lost)
}

// supervise starts the harness and sees it to its end.
func (r *run) supervise(ctx context.Context, l launch, lost <-chan struct{}) tallyman.Outcome {
	oomBefore, counted := r.oomKills()
	var prompt io.Reader
	if l.prompt != nil {
		prompt = l.prompt
	}
	since := time.Now()
	fault.Point(fault.RunnerAgentStarting)
	a, err := startAgent(l.inv, r.spec.WorkDir, l.env, r.boot.Attempt, prompt)
	if err != nil {
		return harness.StartError(err, l.inv.Argv)
	}
	fault.Point(fault.RunnerAgentForked)
	started := time.Now()
	r.rec.overspent = func(p harness.Progress) *order { return overspent(r.spec.Agent.Limits, r.spec.Used, p) }
	r.rec.started(started, r.adapter.NewParser(r.spec))
	cursor := r.rec.event(tallyman.Event{Time: started, Type: tallyman.EventAgentStarted, Data: data(map[string]any{
		"program": l.inv.Argv[0], "pid": a.cmd.Process.Pid, "dir": r.spec.WorkDir,
	})})
	r.up.fact(tallyman.Fact{Cursor: cursor, Kind: tallyman.FactStarted, At: started})
	fault.Point(fault.RunnerAgentRecorded)
	a.follow(r.rec)

	how := r.watch(ctx, a, lost)
	r.ended = time.Now()
	if w, _ := r.rec.look(); w.finished() {
		r.ended = w.result
	}

	killing, cancel := context.WithTimeout(context.WithoutCancel(ctx), killPatience)
	defer cancel()
	exit, killed, err := a.finish(killing, eofGrace)
	if err != nil {
		r.log.Error("killing the tree", "err", err)
		r.rec.event(tallyman.Event{Type: tallyman.EventError, Name: "survivors", Text: err.Error()})
	}
	fault.Point(fault.RunnerAgentExited)
	r.rec.closeStream()
	if w, _ := r.rec.look(); how.intent == nil && w.crossed != nil {
		how.intent = w.crossed // it ended before we could
	}
	r.rec.event(tallyman.Event{Type: tallyman.EventAgentExited, Data: data(map[string]any{
		"exit_code": exit.Code, "signal": exit.Signal, "sent": exit.Sent, "killed": killed,
	})})
	oomAfter, _ := r.oomKills()
	moved := 0
	if counted {
		moved = oomAfter - oomBefore
	}
	out := judge(r.rec.outcome(exit), exit, how, memory{kills: moved, own: r.alone, any: r.spec.Agent.Harness == "exec"})
	out.Started = true
	r.noteKills(out)
	if verdict := r.outputs(context.WithoutCancel(ctx), lost, since); verdict != nil && out.Reason == tallyman.Completed {
		out.Reason, out.Message = verdict.reason, verdict.message
	}
	return out
}

// noteKills says that the agent has succeeded though the kernel has killed
// something of it for memory.
func (r *run) noteKills(out tallyman.Outcome) {
	if out.Reason != tallyman.Completed || out.OOMKills == 0 {
		return
	}
	text := "the kernel killed the agent for memory after its result"
	if out.Signal == "" {
		text = "the kernel killed a process of the agent for memory, and the agent went on"
	}
	r.rec.event(tallyman.Event{Type: tallyman.EventNotice, Name: "oom", Text: fmt.Sprintf("%s (kills in its control group: %d)", text, out.OOMKills)})
}

// end records the final event and tells control. It returns its cursor.
func (r *run) end(out tallyman.Outcome) uint64 {
	out.OutputTail, out.StderrTail = r.rec.tails()
	out.Result = r.rec.mask.String(out.Result)
	out.Structured = r.rec.mask.JSON(out.Structured)
	out.Message = cut(r.rec.mask.String(out.Message), 2000)
	out = fit(out)
	cursor := r.rec.event(tallyman.Event{Type: tallyman.EventRunnerEnded, Data: data(out)})
	if err := r.broken(cursor); err != nil {
		return r.endBroken(out, err)
	}
	if r.ended.IsZero() {
		r.ended = time.Now()
	}
	r.outcome, r.finalCursor = &out, cursor
	r.up.fact(tallyman.Fact{Cursor: cursor, Kind: tallyman.FactFinal, At: r.ended, Outcome: &out})
	return cursor
}

// drain waits until the server has everything, for the drain budget at most.
func (r *run) drain(last uint64, lost <-chan struct{}) error {
	budget := time.NewTimer(r.spec.DrainBudget.D())
	defer budget.Stop()
	for !r.up.drained(last) {
		select {
		case <-r.up.moved:
		case <-lost:
			return nil
		case <-budget.C:
			return errors.New("the server did not take the rest of the journal in time; it stays on disk")
		}
	}
	return nil
}

func cut(s string, n int) string {
	if len(s) <= n {
		return s
	}
	return strings.ToValidUTF8(s[:n], "") + "…"
}
