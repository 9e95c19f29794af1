// Package fault names the places at which a crash must be survivable, so that
// a test can make it happen exactly there. In an ordinary build a point is
// nothing at all. With the build tag faults the environment of a process
// decides:
//
//	TALLYMAN_FAULT=NAME:N,…   the Nth pass of that point kills this process,
//	                          as kill -9 does
//	TALLYMAN_FAULT_LOG=FILE   every pass is appended to the file as "PID NAME",
//	                          one that kills as "PID NAME killed"
//
// A runner inherits the environment of its server; points that begin with
// runner. are passed by runners alone, all others by servers alone.
package fault

import "slices"

// The points of a runner, in the order of an attempt.
const (
	RunnerJournalCreated = "runner.journal-created"
	RunnerWelcomed       = "runner.welcomed"       // hello was answered
	RunnerAgentStarting  = "runner.agent-starting" // nothing of the agent runs yet
	RunnerAgentForked    = "runner.agent-forked"   // it runs, and no record says so
	RunnerAgentRecorded  = "runner.agent-recorded" // agent.started is on its way to the disk
	RunnerReporting      = "runner.reporting"      // facts are durable, control has not heard of them
	RunnerReported       = "runner.reported"       // control has answered, and this is not noted yet
	RunnerStreaming      = "runner.streaming"      // a piece of the agent's output was recorded
	RunnerAgentExited    = "runner.agent-exited"   // nothing of the agent runs any more
	RunnerEnding         = "runner.ending"         // the outcome is known to nobody else
	RunnerEnded          = "runner.ended"          // the final event is on its way to the disk
	RunnerDrained        = "runner.drained"        // the server has everything
)

// The points of a server. Committing is inside a transaction that is about to
// be committed; Committed is after it, and nobody was told.
const (
	SubmitCommitting = "service.submit-committing"
	SubmitCommitted  = "service.submit-committed"
	AdmitCommitting  = "service.admit-committing"
	AdmitCommitted   = "service.admit-committed"
	GreetCommitting  = "service.greet-committing"
	GreetCommitted   = "service.greet-committed"
	ReportCommitting = "service.report-committing"
	ReportCommitted  = "service.report-committed"
	EndCommitting    = "service.end-committing"
	EndCommitted     = "service.end-committed"
	GoneCommitting   = "service.gone-committing"
	GoneCommitted    = "service.gone-committed"

	LocalLocked       = "local.locked"       // an attempt's lock is taken, no runner was started
	LocalForked       = "local.forked"       // the runner lives and does not know its attempt
	LocalBootstrapped = "local.bootstrapped" // it was told

	ExecutorSettled    = "executor.settled"    // the verdict is made, nothing is written
	ExecutorEnded      = "executor.ended"      // the attempt has ended, its slot is taken
	ExecutorDelivering = "executor.delivering" // what a dead runner left is about to be stored

	GatewayStored = "gateway.stored" // events are stored, the runner has no answer
)

var names = []string{
	RunnerJournalCreated, RunnerWelcomed, RunnerAgentStarting, RunnerAgentForked, RunnerAgentRecorded,
	RunnerReporting, RunnerReported, RunnerStreaming, RunnerAgentExited, RunnerEnding, RunnerEnded, RunnerDrained,

	SubmitCommitting, SubmitCommitted, AdmitCommitting, AdmitCommitted, GreetCommitting, GreetCommitted,
	ReportCommitting, ReportCommitted, EndCommitting, EndCommitted, GoneCommitting, GoneCommitted,
	LocalLocked, LocalForked, LocalBootstrapped,
	ExecutorSettled, ExecutorEnded, ExecutorDelivering,
	GatewayStored,
}

// Names returns the name of every point.
func Names() []string { return slices.Clone(names) }
