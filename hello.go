package tallyman

// HelloVerdict is what a hello is answered with.
type HelloVerdict string

// The verdicts. HelloWelcome binds the journal or takes the connection over;
// HelloMismatch and HelloRegressed fail the attempt as JournalMismatch;
// HelloStale writes nothing; HelloFinal: state takes nothing more, events of
// the attempt's own journal still may come.
const (
	HelloWelcome   HelloVerdict = "welcome"
	HelloRegressed HelloVerdict = "regressed"
	HelloMismatch  HelloVerdict = "mismatch"
	HelloStale     HelloVerdict = "stale"
	HelloFinal     HelloVerdict = "final"
)

// Greet decides about a hello of an attempt of run r, and returns the attempt
// as it is then. sameProcess tells whether the caller is the process, or Pod,
// that the backend started for it.
func (r Run) Greet(a Attempt, h Hello, sameProcess bool) (Attempt, HelloVerdict) {
	switch {
	case !sameProcess, a.Number > r.Attempt:
		return a, HelloStale
	case a.Number != r.Attempt, r.State.Terminal(), r.State == Queued, a.EndedAt != nil:
		return a, HelloFinal
	case h.JournalID == "":
		return a, HelloMismatch
	case a.Journal == "":
		a.Journal = h.JournalID
	case a.Journal != h.JournalID:
		return a, HelloMismatch
	case h.LastCursor < a.LastCursor:
		return a, HelloRegressed
	}
	a.Epoch++
	a.LastCursor = max(a.LastCursor, h.LastCursor)
	if h.Process != "" {
		a.Process = h.Process
	}
	return a, HelloWelcome
}
