package tallyman

import (
	"regexp"
	"strconv"
	"strings"
)

// AttemptRef names an attempt of a run.
type AttemptRef struct {
	RunID  string
	Number int
}

// String is how an attempt is named on the wire and in paths: RUNID-N.
func (r AttemptRef) String() string { return r.RunID + "-" + strconv.Itoa(r.Number) }

// ParseAttemptRef reads what String writes.
func ParseAttemptRef(s string) (AttemptRef, error) {
	id, n, ok := strings.Cut(s, "-")
	number, err := strconv.Atoi(n)
	if !ok || err != nil || number < 1 || !ulidShape.MatchString(id) {
		return AttemptRef{}, Errorf(Invalid, "%q is not an attempt: it is written RUN-NUMBER", s)
	}
	return AttemptRef{RunID: id, Number: number}, nil
}

var (
	ulidShape  = regexp.MustCompile(`^[0-7][0-9A-HJKMNP-TV-Z]{25}$`)
	agentShape = regexp.MustCompile(`^[a-z0-9]([-a-z0-9]{0,51}[a-z0-9])?$`)
)

// IsRunID reports whether s has the shape of a run's id.
func IsRunID(s string) bool { return ulidShape.MatchString(s) }

// ValidName checks the name of an agent or a namespace: lowercase letters,
// digits and dashes, at most 53, so that a run's name fits in 64.
func ValidName(what, s string) error {
	if agentShape.MatchString(s) {
		return nil
	}
	return Errorf(Invalid, "%s %q: use lowercase letters, digits and dashes, at most 53, with a letter or digit at both ends", what, s)
}

// AgentName is how people name an agent: NAME, or NAMESPACE/NAME where it is
// not in the default namespace.
func AgentName(namespace, name string) string {
	if namespace == "" || namespace == DefaultNamespace {
		return name
	}
	return namespace + "/" + name
}

// ParseAgentName reads what AgentName writes; the namespace is "" where none
// is given. What is no such name stays whole, to be refused.
func ParseAgentName(word string) (namespace, name string) {
	namespace, name, both := strings.Cut(word, "/")
	if !both || ValidName("namespace", namespace) != nil || ValidName("agent", name) != nil {
		return "", word
	}
	return namespace, name
}

// RunName is the default name of a run: AGENT-, and the last ten of its id.
func RunName(agent, id string) string {
	return agent + "-" + strings.ToLower(id[max(0, len(id)-10):])
}

// EventID is an event's id within its run: ATTEMPT.CURSOR.
type EventID struct {
	Attempt int
	Cursor  uint64
}

// String writes ATTEMPT.CURSOR.
func (id EventID) String() string {
	return strconv.Itoa(id.Attempt) + "." + strconv.FormatUint(id.Cursor, 10)
}

// ParseEventID reads what String writes; "" is the beginning.
func ParseEventID(s string) (EventID, error) {
	if s == "" {
		return EventID{}, nil
	}
	a, c, ok := strings.Cut(s, ".")
	attempt, err := strconv.Atoi(a)
	cursor, err2 := strconv.ParseUint(c, 10, 64)
	if !ok || err != nil || err2 != nil || attempt < 0 {
		return EventID{}, Errorf(Invalid, "%q is not the id of an event: it is written ATTEMPT.CURSOR, like 1.42", s)
	}
	return EventID{Attempt: attempt, Cursor: cursor}, nil
}
