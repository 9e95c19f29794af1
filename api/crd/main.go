// Crd writes the CustomResourceDefinition of our kinds: what controller-gen
// makes of the Go types, and what those cannot say, from the same lists by
// which agent files are checked.
//
//	crd CONTROLLER-GEN [-check] FILE
package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"

	"sigs.k8s.io/yaml"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "crd:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	if len(args) < 2 || len(args) == 3 && args[1] != "-check" || len(args) > 3 {
		return errors.New("write crd CONTROLLER-GEN [-check] FILE")
	}
	file := args[len(args)-1]
	cmd := exec.Command("go", "run", args[0], "crd:allowDangerousTypes=true", "paths=./api/v1alpha1", "output:stdout")
	cmd.Stderr = os.Stderr
	made, err := cmd.Output()
	if err != nil {
		return fmt.Errorf("%s: %w", args[0], err)
	}
	made, err = complete(made)
	if err != nil {
		return err
	}
	if len(args) == 2 {
		return os.WriteFile(file, made, 0o644)
	}
	have, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	if !bytes.Equal(have, made) {
		return fmt.Errorf("%s is not what the types say: make generate", file)
	}
	return nil
}

// complete adds to a definition what Go types cannot say.
func complete(made []byte) ([]byte, error) {
	var crd map[string]any
	if err := yaml.Unmarshal(made, &crd); err != nil {
		return nil, fmt.Errorf("read what was generated: %w", err)
	}
	described, err := comments("agent.go", "limits.go")
	if err != nil {
		return nil, err
	}
	spec := crd["spec"].(map[string]any)["versions"].([]any)[0].(map[string]any)["schema"].(map[string]any)["openAPIV3Schema"].(map[string]any)
	root := spec["properties"].(map[string]any)["spec"].(map[string]any)
	describe(root, "AgentSpec", described)
	for _, r := range rules {
		s, err := find(root, r.path)
		if err != nil {
			return nil, err
		}
		for key, value := range r.says {
			s[key] = value
		}
	}
	return yaml.Marshal(crd)
}
