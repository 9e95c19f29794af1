package catalog

import (
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/tallyman-dev/tallyman"
	"github.com/tallyman-dev/tallyman/internal/strictyaml"
)

// agentFile is the form of a document in an agent file.
type agentFile struct {
	APIVersion string             `json:"apiVersion"`
	Kind       string             `json:"kind"`
	Metadata   metadata           `json:"metadata"`
	Spec       tallyman.AgentSpec `json:"spec"`
}

type metadata struct {
	Name        string            `json:"name"`
	Namespace   string            `json:"namespace"`
	Labels      map[string]string `json:"labels"`      // kept by Kubernetes; nothing here reads them
	Annotations map[string]string `json:"annotations"` // "description" says what the agent is for
}

// scalarsAsText are the paths where 8080 and true are taken as they are
// written, because people write them so.
var scalarsAsText = []string{"spec.env[].value", "spec.command[]"}

// Parse reads the agents of a file: YAML with any number of documents, or
// JSON. The error is Invalid and joins everything that is wrong, each as
// FILE:LINE:COL: message in the order of the file; then no agent is returned.
// Relative files and workspaces become absolute, from the folder of name.
// Values of env and words of command may be written as numbers and truths.
func Parse(name string, data []byte) ([]tallyman.Agent, error) {
	agents, _, err := parse(name, data)
	if err != nil {
		return nil, tallyman.Errorf(tallyman.Invalid, "%w", err)
	}
	return agents, nil
}

// parse is Parse, and tells also of a file with faults which agents it means
// to be about.
func parse(name string, data []byte) (agents []tallyman.Agent, claims []agentKey, err error) {
	docs, err := strictyaml.Parse(name, data)
	if err != nil {
		return nil, guessNames(name, data), err
	}
	origin, err := filepath.Abs(name)
	if err != nil {
		return nil, nil, fmt.Errorf("find the folder of %s: %w", name, err)
	}
	if len(docs) == 0 {
		none := &strictyaml.Fault{File: name, Line: 1, Column: 1, Message: "there is no agent in this file; `tallyman init NAME` writes one"}
		return nil, guessNames(name, data), none
	}
	var faults []*strictyaml.Fault
	for _, doc := range docs {
		a, wrong := decode(doc, origin)
		key := keyOf(a)
		if slices.Contains(claims, key) && a.Name != "" {
			wrong = append(wrong, doc.Fault("metadata.name", "metadata.name: agent %s is in this file twice", key))
		}
		agents, claims = append(agents, a), append(claims, key)
		faults = append(faults, wrong...)
	}
	if len(faults) > 0 {
		return nil, claims, strictyaml.Join(faults)
	}
	return agents, claims, nil
}

// decode reads one document and returns all that is wrong with it.
func decode(doc *strictyaml.Document, origin string) (tallyman.Agent, []*strictyaml.Fault) {
	var f agentFile
	faults := doc.Decode(&f, scalarsAsText...)
	a := tallyman.Agent{
		Name: f.Metadata.Name, Namespace: f.Metadata.Namespace, Origin: origin,
		Description: f.Metadata.Annotations["description"], Spec: f.Spec,
	}
	if a.Namespace == "" {
		a.Namespace = tallyman.DefaultNamespace
	}
	if f.Kind != "" && f.Kind != tallyman.KindAgent && strictyaml.Nearest(f.Kind, []string{tallyman.KindAgent}) == "" {
		// Something else altogether: its keys are none of our business.
		return a, []*strictyaml.Fault{doc.Fault("kind", "kind: %q is no agent; move the document to a place that is not searched for agents", f.Kind)}
	}
	relocate(&a.Spec, filepath.Dir(origin))
	wrong := append(head(f), validate(a)...)
	wrong = append(wrong, envTwice(a.Spec.Env)...)
	for _, w := range wrong {
		if !doc.Doubtful(w.Path) {
			faults = append(faults, doc.Fault(w.Path, "%s", w))
		}
	}
	return a, faults
}

// head checks what every document begins with.
func head(f agentFile) []*FieldError {
	var wrong []*FieldError
	if f.APIVersion != tallyman.APIVersion {
		wrong = append(wrong, expected("apiVersion", f.APIVersion, tallyman.APIVersion))
	}
	if f.Kind != tallyman.KindAgent {
		wrong = append(wrong, expected("kind", f.Kind, tallyman.KindAgent))
	}
	return wrong
}

func expected(path, got, want string) *FieldError {
	if got == "" {
		return fieldError(path, "is missing; write %s: %s", path, want)
	}
	return fieldError(path, "%q is not known; write %s", got, want)
}

// relocate makes the paths of a spec absolute that are relative to its file. A
// workspace that is nearly "fresh" stays as it is, to be refused: a folder of
// that name is written ./NAME.
func relocate(spec *tallyman.AgentSpec, folder string) {
	for i, from := range spec.EnvFrom {
		if from.File != "" && from.File[0] != '~' && !filepath.IsAbs(from.File) {
			spec.EnvFrom[i].File = filepath.Join(folder, from.File)
		}
	}
	path := spec.Workspace.Path
	if path == "" || path[0] == '~' || strings.HasPrefix(path, gitPrefix) || filepath.IsAbs(path) {
		return
	}
	if path[0] == '.' || strictyaml.Nearest(path, []string{fresh}) == "" {
		spec.Workspace.Path = filepath.Join(folder, path)
	}
}

// envTwice finds variables that a file sets twice. A request may well set one
// that its agent sets, so this is no rule about agents.
func envTwice(env []tallyman.EnvVar) []*FieldError {
	var wrong []*FieldError
	first := map[string]int{}
	for i, v := range env {
		if was, twice := first[v.Name]; twice && v.Name != "" {
			wrong = append(wrong, fieldError(fmt.Sprintf("spec.env[%d].name", i), "%s is set already by env[%d]", v.Name, was))
			continue
		}
		first[v.Name] = i
	}
	return wrong
}

var nameLine = regexp.MustCompile(`(?m)^[\s{]*"?name"?\s*:\s*["']?([a-z0-9][-a-z0-9]*)["']?\s*[,}]?\s*(#.*)?$`)

// guessNames tells which agents an unreadable file may be about: those of its
// lines with a name, and the one that the file is called after.
func guessNames(name string, data []byte) []agentKey {
	base := filepath.Base(name)
	keys := []agentKey{{tallyman.DefaultNamespace, strings.TrimSuffix(base, filepath.Ext(base))}}
	for _, m := range nameLine.FindAllSubmatch(data[:min(len(data), strictyaml.MaxSize)], -1) {
		keys = append(keys, agentKey{tallyman.DefaultNamespace, string(m[1])})
	}
	return keys
}

// ScriptSteps turns a list of script steps, in YAML or JSON, into JSON. What
// the steps mean is not looked at. The error is Invalid and tells line and
// column.
func ScriptSteps(yaml []byte) (json.RawMessage, error) {
	docs, err := strictyaml.Parse("steps", yaml)
	switch {
	case err != nil:
		return nil, tallyman.Errorf(tallyman.Invalid, "%w", err)
	case len(docs) != 1:
		return nil, tallyman.Errorf(tallyman.Invalid, "steps: %d documents; write one list of steps", len(docs))
	}
	var steps []json.RawMessage
	if err := strictyaml.Join(docs[0].Decode(&steps)); err != nil {
		return nil, tallyman.Errorf(tallyman.Invalid, "%w", err)
	}
	out, err := json.Marshal(steps)
	if err != nil {
		return nil, errors.Join(errors.New("encode the steps"), err)
	}
	return out, nil
}
