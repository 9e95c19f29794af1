package catalog

import (
	"bytes"
	_ "embed"
	"fmt"
	"text/template"

	"github.com/tallyman-dev/tallyman"
)

//go:embed template.yaml
var templateText string

var agentTemplate = template.Must(template.New("agent").Parse(templateText))

// Template returns an agent file to start from: it works as it is, and what
// else it may say is there as comments. "" as the harness is claude. The error
// is Invalid: a name or harness that cannot be.
func Template(name, harness string) ([]byte, error) {
	if harness == "" {
		harness = "claude"
	}
	if err := tallyman.ValidName("agent", name); err != nil {
		return nil, err
	}
	if wrong := validHarness(harness); wrong != nil {
		return nil, tallyman.Errorf(tallyman.Invalid, "%w", wrong)
	}
	var out bytes.Buffer
	if err := agentTemplate.Execute(&out, struct {
		APIVersion, Kind, Name, Harness string
		Keys                            []string
	}{tallyman.APIVersion, tallyman.KindAgent, name, harness, providers[harness].keys}); err != nil {
		return nil, fmt.Errorf("write the template of an agent: %w", err)
	}
	return out.Bytes(), nil
}
