package tallyman_test

import (
	"encoding/json"
	"errors"
	"io"
	"os/exec"
	"slices"
	"strings"
	"testing"
)

const module = "github.com/tallyman-dev/tallyman"

// house is the plan: each room, and the doors it may open beside the root.
// A door needs a reason.
var house = map[string][]string{
	"":       {},
	"client": {},

	"internal/fault":      {}, // its door is for whoever has a place at which a crash must be survivable
	"internal/strictyaml": {},
	"internal/config":     {"strictyaml"}, // people write both, and want the same words for the same faults
	"internal/catalog":    {"strictyaml"},

	"internal/database":            {},
	"internal/database/sqlite":     {},
	"internal/store":               {"database"}, // engines, migrations and shared commits are no store's own
	"internal/store/storetest":     {"store"},
	"internal/history":             {"database"}, // likewise
	"internal/history/historytest": {"history"},
	"internal/blob":                {},
	"internal/service":             {"store", "history", "fault"}, // the hall: it alone writes runs, and joins them with their events for readers
	"internal/pace":                {},
	"internal/scheduler":           {"pace"},          // both are loops that many notices wake
	"internal/executor":            {"pace", "fault"}, // likewise

	"internal/envfrom":      {},
	"internal/journal":      {},
	"internal/mask":         {},
	"internal/price":        {},
	"internal/harness":      {"price"},                                         // what a model's tokens cost, where the harness does not say
	"internal/runner":       {"journal", "harness", "mask", "render", "fault"}, // a process of its own that is made of these
	"internal/local":        {"runner", "journal", "envfrom", "fault"},         // it kills what a dead runner left, and reads its journal
	"internal/kube":         {"envfrom", "kube/job", "kube/observe"},           // both backends resolve what an agent declares; it makes the one and asks for the other
	"internal/kube/job":     {"envfrom"},                                       // of variables of one name the last wins, wherever an agent runs
	"internal/kube/observe": {"kube/job"},                                      // it knows an attempt's objects by what was written on them
	"internal/gateway":      {"fault"},
	"api/v1alpha1":          {},
	"api/crd":               {"catalog"},                 // writes the schema from the lists by which agent files are checked
	"internal/controller":   {"api/v1alpha1", "catalog"}, // makes agents of resources
	"internal/fakemodel":    {},

	"internal/render":    {},
	"internal/auth":      {},
	"internal/telemetry": {},
	"internal/rest":      {"auth", "strictyaml"}, // the owner may ask for more; the nearest right name
	"internal/web":       {"render"},

	"internal/cli":        {"*"}, // puts the rooms together
	"cmd/tallyman":        {"*"},
	"cmd/tallyman-server": {"*"}, // hands the cluster in
	"cmd/tallyman-runner": {"runner", "harness"},
}

// pkg is what go list says of a package.
type pkg struct {
	ImportPath string
	Imports    []string
	Deps       []string
	Standard   bool
}

func list(t *testing.T, args ...string) []pkg {
	t.Helper()
	cmd := exec.Command("go", append([]string{"list", "-json=ImportPath,Imports,Deps,Standard"}, args...)...)
	out, err := cmd.Output()
	if err != nil {
		var exit *exec.ExitError
		if errors.As(err, &exit) {
			t.Fatalf("go list: %v: %s", err, exit.Stderr)
		}
		t.Fatal(err)
	}
	var all []pkg
	for d := json.NewDecoder(strings.NewReader(string(out))); ; {
		var p pkg
		if err := d.Decode(&p); errors.Is(err, io.EOF) {
			return all
		} else if err != nil {
			t.Fatal(err)
		}
		all = append(all, p)
	}
}

func TestEveryRoomHasOnlyItsDoors(t *testing.T) {
	for _, p := range list(t, "./...") {
		room := strings.TrimPrefix(strings.TrimPrefix(p.ImportPath, module), "/")
		if strings.HasPrefix(room, "test/") {
			continue // tests start the real thing
		}
		doors, known := house[room]
		if !known {
			t.Errorf("%s is no room of this house: write it down here, with its doors", room)
			continue
		}
		for _, name := range []string{"util", "common", "helpers", "types", "models"} {
			if strings.HasSuffix(room, "/"+name) {
				t.Errorf("%s: a room is named for what it does", room)
			}
		}
		for _, imp := range p.Imports {
			ours, ok := strings.CutPrefix(imp, module)
			if !ok || ours == "" {
				continue
			}
			door := strings.TrimPrefix(strings.TrimPrefix(ours, "/"), "internal/")
			if !slices.Contains(doors, door) && !slices.Contains(doors, "*") {
				t.Errorf("%s imports %s: not a door of this house", room, door)
			}
		}
	}
}

func TestTheRootNeedsOnlyTheStandardLibrary(t *testing.T) {
	for _, imp := range list(t, ".")[0].Imports {
		if strings.Contains(imp, ".") {
			t.Errorf("the root imports %s", imp)
		}
	}
}

func TestTheCommandLineHasNoClusterInIt(t *testing.T) {
	for _, dep := range list(t, "./cmd/tallyman")[0].Deps {
		if strings.HasPrefix(dep, "k8s.io/") || strings.Contains(dep, "/pgx") {
			t.Errorf("cmd/tallyman depends on %s", dep)
		}
	}
}

// runnerDeps are the only modules beside ours that the lean runner is made of.
var runnerDeps = []string{"golang.org/x/sys", "github.com/tidwall/"}

func TestTheRunnerIsLean(t *testing.T) {
	for _, dep := range list(t, "./cmd/tallyman-runner")[0].Deps {
		first, _, _ := strings.Cut(dep, "/")
		if !strings.Contains(first, ".") || strings.HasPrefix(dep, module) {
			continue
		}
		if !slices.ContainsFunc(runnerDeps, func(m string) bool { return strings.HasPrefix(dep, m) }) {
			t.Errorf("the runner depends on %s", dep)
		}
	}
}
