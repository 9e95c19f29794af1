package tallyman

import "testing"

func TestAnAgentWithItsNamespace(t *testing.T) {
	for _, c := range []struct {
		namespace, agent         string
		wantNamespace, wantAgent string
		refused                  bool
	}{
		{"", "", "", "", false},
		{"", "reviewer", "", "reviewer", false},
		{"team", "reviewer", "team", "reviewer", false},
		{"", "team/reviewer", "team", "reviewer", false},
		{"", "team/", "team", "", false},
		{"team", "team/reviewer", "team", "reviewer", false},
		{"other", "team/reviewer", "", "", true},
	} {
		f, err := Filter{Namespace: c.namespace, Agent: c.agent}.Split()
		if (err != nil) != c.refused || CodeOf(err) != map[bool]Code{true: Invalid}[c.refused] {
			t.Errorf("%s of %s: %v", c.agent, c.namespace, err)
		}
		if err == nil && (f.Namespace != c.wantNamespace || f.Agent != c.wantAgent) {
			t.Errorf("%s of %s: got %s of %s", c.agent, c.namespace, f.Agent, f.Namespace)
		}
	}
}
