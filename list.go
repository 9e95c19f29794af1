package tallyman

import "strings"

// Filter says which runs to list, newest first. What is not given does not
// narrow.
type Filter struct {
	Namespace string
	States    []State           // any of them
	Agent     string            // or NAMESPACE/NAME, or NAMESPACE/ for all of those there
	Labels    map[string]string // all of them
	// Text is words that must all occur, in any case, in the name, the agent,
	// the labels or the beginning of the prompt.
	Text  string
	Limit int    // of a page: 1 to 1000; 0 is 50
	After string // the cursor that the page before ended with
}

// Split takes the namespace out of the agent's name. Another one beside it is
// Invalid.
func (f Filter) Split() (Filter, error) {
	namespace, name, both := strings.Cut(f.Agent, "/")
	if !both {
		return f, nil
	}
	if f.Namespace != "" && f.Namespace != namespace {
		return f, Errorf(Invalid, "agent %s is not in namespace %s; give one of them", f.Agent, f.Namespace)
	}
	f.Namespace, f.Agent = namespace, name
	return f, nil
}
