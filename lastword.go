package tallyman

import (
	"encoding/json"
	"strings"
	"time"
)

// MaxLastWord is how many bytes a last word may have: a cluster keeps 4 KiB of
// a container, and 12 KiB of a Pod.
const MaxLastWord = 2 << 10

// LastWord is what a runner in a cluster leaves as its container's termination
// message: how it ended, for when no server could be told.
type LastWord struct {
	Attempt     string    `json:"tallyman"`              // an AttemptRef; tells ours from other programs' words
	Cursor      uint64    `json:"cursor"`                // of runner.ended, 0: the journal has none
	At          time.Time `json:"at"`                    // of the end
	Outcome     Outcome   `json:"outcome"`               // without result and tails
	Undelivered uint64    `json:"undelivered,omitempty"` // events that no server has taken
}

// Encode writes at most MaxLastWord bytes of JSON: the message is cut as far as
// it needs to be.
func (w LastWord) Encode() []byte {
	w.Outcome.Result, w.Outcome.ResultBlob, w.Outcome.Structured = "", "", nil
	w.Outcome.StderrTail, w.Outcome.OutputTail = "", ""
	for {
		b, err := json.Marshal(w)
		if err != nil || len(b) <= MaxLastWord || w.Outcome.Message == "" {
			return b
		}
		// JSON writes a byte as six at most, so this never cuts too much at once.
		message := strings.TrimSuffix(w.Outcome.Message, "…")
		n := max(0, len(message)-1-(len(b)-MaxLastWord)/6)
		w.Outcome.Message = strings.ToValidUTF8(message[:n], "")
		if n > 0 {
			w.Outcome.Message += "…"
		}
	}
}

// ParseLastWord reads what Encode writes; ok is false for anything else.
func ParseLastWord(text string) (w LastWord, ok bool) {
	if err := json.Unmarshal([]byte(text), &w); err != nil {
		return LastWord{}, false
	}
	_, err := ParseAttemptRef(w.Attempt)
	return w, err == nil
}
