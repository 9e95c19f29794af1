package harness

import (
	_ "embed"
	"encoding/json"
	"slices"
)

//go:embed demo.json
var demo []byte

// DemoSteps returns the steps of the built-in agent demo: it shows what a
// transcript can hold, takes about a second, and repeats the prompt in its
// answer and in its result.
func DemoSteps() json.RawMessage { return slices.Clone(demo) }
