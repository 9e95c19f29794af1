package store

import (
	"strings"

	"github.com/tallyman-dev/tallyman"
)

// A run's columns: those that it is born with, and those that change. The
// functions list the fields in the same order.
const (
	bornColumns = `id, namespace, name, agent, harness, source, parent, idempotency_key, labels, created_at, limits`

	changingColumns = `model, state, reason, attempt, exit_code,
		input_tokens, output_tokens, cache_read_tokens, cache_write_tokens, cost_usd, cost_source, turns,
		oom_kills, wait_reason, wait_detail, priority,
		started_at, ended_at, stop_requested_at, not_before, stop_reason, result_blob, version, message, result`

	attemptColumns = `run_id, number, reason, exit_code, signal,
		input_tokens, output_tokens, cache_read_tokens, cache_write_tokens, cost_usd, cost_source, turns,
		oom_kills, backend, process, queued_at, admitted_at, started_at, first_at, ended_at, last_contact,
		journal, last_cursor, final_cursor, epoch, key_hash, gone, owed, message, final, stderr_tail, output_tail, object, evidence`
)

func bornFields(r *tallyman.Run) []any {
	return []any{&r.ID, &r.Namespace, text{&r.Name}, &r.Agent, text{&r.Harness}, &r.Source, text{&r.Parent}, text{&r.Key},
		labels{&r.Labels}, at{&r.CreatedAt}, asJSON[tallyman.Limits]{&r.Limits}}
}

func changingFields(r *tallyman.Run, w *waiting) []any {
	fields := []any{text{&r.Model}, &r.State, &r.Reason, &r.Attempt, mayInt{&r.ExitCode}}
	fields = append(fields, usageFields(&r.Usage)...)
	return append(fields, &r.OOMKills, &w.reason, &w.detail, &r.Priority,
		mayAt{&r.StartedAt}, mayAt{&r.EndedAt}, mayAt{&r.StopRequestedAt}, mayAt{&r.NotBefore},
		&r.StopReason, &r.ResultBlob, &r.Version, text{&r.Message}, text{&r.Result})
}

func attemptFields(a *tallyman.Attempt) []any {
	fields := []any{&a.RunID, &a.Number, &a.Reason, mayInt{&a.ExitCode}, text{&a.Signal}}
	fields = append(fields, usageFields(&a.Usage)...)
	return append(fields, &a.OOMKills, text{&a.Backend}, text{&a.Process},
		at{&a.QueuedAt}, at{&a.AdmittedAt}, mayAt{&a.StartedAt}, mayAt{&a.FirstAt}, mayAt{&a.EndedAt}, mayAt{&a.LastContact},
		text{&a.Journal}, &a.LastCursor, &a.FinalCursor, &a.Epoch, &a.KeyHash, &a.Gone, &a.Owed,
		text{&a.Message}, mayJSON[tallyman.Outcome]{&a.Final}, text{&a.StderrTail}, text{&a.OutputTail},
		text{&a.Object}, mayJSON[tallyman.Evidence]{&a.Evidence})
}

func usageFields(u *tallyman.Usage) []any {
	return []any{&u.InputTokens, &u.OutputTokens, &u.CacheReadTokens, &u.CacheWriteTokens, &u.CostUSD, &u.CostSource, &u.Turns}
}

// waiting is tallyman.Waiting as two columns that are NULL together.
type waiting struct{ reason, detail *string }

func waitingOf(r tallyman.Run) *waiting {
	if r.Waiting == nil {
		return &waiting{}
	}
	reason, detail := string(r.Waiting.Reason), clean(r.Waiting.Detail)
	return &waiting{&reason, &detail}
}

func (w waiting) put(r *tallyman.Run) {
	if w.reason != nil && w.detail != nil {
		r.Waiting = &tallyman.Waiting{Reason: tallyman.WaitReason(*w.reason), Detail: *w.detail}
	}
}

// row is what Scan reads from: sql.Row and sql.Rows.
type row interface{ Scan(dest ...any) error }

func scanRun(from row) (tallyman.Run, error) {
	var r tallyman.Run
	var w waiting
	err := from.Scan(append(bornFields(&r), changingFields(&r, &w)...)...)
	w.put(&r)
	return r, err
}

func scanAttempt(from row) (tallyman.Attempt, error) {
	var a tallyman.Attempt
	err := from.Scan(attemptFields(&a)...)
	return a, err
}

func scanString(from row) (s string, err error) {
	err = from.Scan(&s)
	return s, err
}

// of names the columns as those of a table, for statements with two.
func of(table, columns string) string {
	names := strings.Split(columns, ",")
	for i, name := range names {
		names[i] = table + "." + strings.TrimSpace(name)
	}
	return strings.Join(names, ", ")
}

// marks returns the placeholders for n values.
func marks(n int) string {
	return strings.TrimSuffix(strings.Repeat("?, ", n), ", ")
}

// sets writes the columns as an update's assignments.
func sets(columns string) string {
	names := strings.Split(columns, ",")
	for i, name := range names {
		names[i] = strings.TrimSpace(name) + " = ?"
	}
	return strings.Join(names, ", ")
}
