package runner

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"

	"github.com/santhosh-tekuri/jsonschema/v6"
)

// maxChecked is how large a file may be to be checked against a schema.
const maxChecked = 64 << 20

// checkSchema reads a JSON file below root and checks it against a schema.
func checkSchema(root *os.Root, name string, schema json.RawMessage) error {
	f, err := root.Open(name)
	if err != nil {
		return err
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, maxChecked+1))
	if err != nil {
		return err
	}
	if len(b) > maxChecked {
		return fmt.Errorf("is larger than the %d bytes that a schema is checked for", maxChecked)
	}
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(schema))
	if err != nil {
		return fmt.Errorf("its schema is not JSON: %w", err)
	}
	c := jsonschema.NewCompiler()
	if err := c.AddResource("tallyman:schema", doc); err != nil {
		return fmt.Errorf("its schema cannot be read: %w", err)
	}
	compiled, err := c.Compile("tallyman:schema")
	if err != nil {
		return fmt.Errorf("its schema cannot be compiled: %w", err)
	}
	value, err := jsonschema.UnmarshalJSON(bytes.NewReader(b))
	if err != nil {
		return fmt.Errorf("is not JSON: %w", err)
	}
	return compiled.Validate(value)
}
