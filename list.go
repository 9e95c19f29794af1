package tallyman

// Filter says which runs to list, newest first. What is not given does not
// narrow.
type Filter struct {
	Namespace string
	States    []State // any of them
	Agent     string
	Labels    map[string]string // all of them
	// Text is words that must all occur, in any case, in the name, the agent,
	// the labels or the beginning of the prompt.
	Text  string
	Limit int    // of a page: 1 to 1000; 0 is 50
	After string // the cursor that the page before ended with
}
