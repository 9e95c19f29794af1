package tallyman

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
)

// Request asks for a run.
type Request struct {
	Agent     string            `json:"agent"`
	Namespace string            `json:"namespace,omitempty"`
	Prompt    string            `json:"prompt,omitempty"`
	Command   []string          `json:"command,omitempty"` // exec: instead of the agent's
	Env       []EnvVar          `json:"env,omitempty"`
	Labels    map[string]string `json:"labels,omitempty"`
	Model     string            `json:"model,omitempty"`
	Priority  *int              `json:"priority,omitempty"`
	Limits    Limits            `json:"limits,omitzero"`
	Workspace *Workspace        `json:"workspace,omitempty"`
	Outputs   []Output          `json:"outputs,omitempty"` // in addition to the agent's
	Source    Source            `json:"source,omitempty"`
	Parent    string            `json:"parent,omitempty"`
	Key       string            `json:"key,omitempty"` // idempotency key

	// Inline is the agent as the caller has it; taken only over the socket.
	Inline *Agent `json:"inline,omitempty"`
}

// Digest identifies what the request asks for: the same key with another
// digest is a conflict. Left out is what may differ when a caller asks for the
// same thing again: the key, the door, the inline agent, of which the name
// counts, and with a built-in inline agent the workspace, which then is the
// folder that the caller happens to be in. So the same command line brings the
// first run from another folder, from another machine, and after an upgrade.
func (r Request) Digest() string {
	r.Key, r.Source = "", r.Source.Door()
	if r.Inline != nil {
		if r.Agent == "" {
			r.Agent = r.Inline.Name
		}
		if r.Inline.Origin == BuiltIn {
			r.Workspace = nil
		}
		r.Inline = nil
	}
	b, err := json.Marshal(r) // maps are written in order
	if err != nil {
		return ""
	}
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:])
}
