package catalog

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"

	"github.com/santhosh-tekuri/jsonschema/v6"
)

// schemaURL is what a schema is called while it is compiled.
const schemaURL = "schema:///"

// compileSchema reads a JSON Schema. It looks nothing up elsewhere.
func compileSchema(schema json.RawMessage) (*jsonschema.Schema, error) {
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(schema))
	if err != nil {
		return nil, fmt.Errorf("this is no JSON: %w", err)
	}
	c := jsonschema.NewCompiler()
	c.UseLoader(jsonschema.SchemeURLLoader{})
	if err := c.AddResource(schemaURL, doc); err != nil {
		return nil, err
	}
	return c.Compile(schemaURL)
}

// CheckSchema reads a JSON document to its end and checks it.
func CheckSchema(schema json.RawMessage, file io.Reader) error {
	compiled, err := compileSchema(schema)
	if err != nil {
		return fmt.Errorf("read the schema: %w", err)
	}
	value, err := jsonschema.UnmarshalJSON(file)
	if err != nil {
		return fmt.Errorf("not JSON: %w", err)
	}
	return compiled.Validate(value)
}
