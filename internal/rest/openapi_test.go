package rest_test

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/tallyman-dev/tallyman"
)

// document reads the API's description.
func document(t *testing.T) map[string]any {
	t.Helper()
	return answer[map[string]any](t, newAPI(t, &source{}).call("GET", "/openapi.json", ""), 200)
}

// at walks into a document: keys, joined by spaces.
func at(v any, path string) any {
	for _, key := range strings.Fields(path) {
		m, ok := v.(map[string]any)
		if !ok {
			return nil
		}
		v = m[key]
	}
	return v
}

// each visits every object of a document.
func each(v any, fn func(map[string]any)) {
	switch v := v.(type) {
	case map[string]any:
		fn(v)
		for _, inner := range v {
			each(inner, fn)
		}
	case []any:
		for _, inner := range v {
			each(inner, fn)
		}
	}
}

func TestTheDescriptionIsWhole(t *testing.T) {
	doc := document(t)
	for path, want := range map[string]string{
		"paths /api/v1/runs post requestBody content application/json schema $ref":            "#/components/schemas/Request",
		"paths /api/v1/runs/{id}/rerun post requestBody content application/json schema $ref": "#/components/schemas/RerunBody",
		"components securitySchemes token scheme":                                             "bearer",
	} {
		if got := at(doc, path); got != want {
			t.Errorf("%s is %v, want %s", path, got, want)
		}
	}
	if v, _ := doc["openapi"].(string); !strings.HasPrefix(v, "3.1") || at(doc, "info version") != "v9" {
		t.Errorf("openapi %v, info %v", doc["openapi"], doc["info"])
	}
	refs := 0
	each(doc, func(m map[string]any) {
		ref, ok := m["$ref"].(string)
		if !ok {
			return
		}
		refs++
		if path, ok := strings.CutPrefix(ref, "#/"); !ok || at(doc, strings.ReplaceAll(path, "/", " ")) == nil {
			t.Errorf("%s leads nowhere", ref)
		}
	})
	if refs < 30 {
		t.Errorf("only %d references: are they seen?", refs)
	}
}

func TestEveryCallIsDescribed(t *testing.T) {
	doc := document(t)
	paths, _ := doc["paths"].(map[string]any)
	ids := map[string]bool{}
	for path, item := range paths {
		operations, _ := item.(map[string]any)
		for method, o := range operations {
			id, _ := at(o, "operationId").(string)
			summary, _ := at(o, "summary").(string)
			if id == "" || summary == "" || ids[id] {
				t.Errorf("%s %s: id %q, summary %q", method, path, id, summary)
			}
			ids[id] = true
			if got := at(o, "responses default content application/problem+json schema $ref"); got != "#/components/schemas/Problem" {
				t.Errorf("%s: errors are %v", id, got)
			}
			content, _ := at(o, "requestBody content").(map[string]any)
			for kind := range content {
				if kind != "application/json" {
					t.Errorf("%s takes %s", id, kind)
				}
			}
		}
	}
	if len(ids) != 18 {
		t.Errorf("%d calls: %v", len(ids), ids)
	}
	if at(doc, "components schemas Problem properties code") == nil || at(doc, "components schemas Problem properties detail") == nil {
		t.Error("a problem is described without its code")
	}
	for _, status := range []string{"200", "201"} {
		if at(paths["/api/v1/runs"], "post responses "+status+" content application/json schema $ref") != "#/components/schemas/Run" {
			t.Errorf("a submit's %s is not described", status)
		}
	}
}

func TestTheDescriptionSaysHowThingsAreWritten(t *testing.T) {
	schemas := document(t)["components"]
	for path, want := range map[string]string{
		"schemas Limits properties deadline type":         `"string"`,
		"schemas Limits properties idle type":             `"string"`,
		"schemas Retry properties backoff type":           `"string"`,
		"schemas PruneRequest properties age type":        `"string"`,
		"schemas Limits properties maxTurns type":         `"integer"`,
		"schemas Run properties created_at format":        `"date-time"`,
		"schemas Request properties prompt type":          `"string"`,
		"schemas RerunBody properties set type":           `"object"`,
		"schemas Run properties Version":                  `null`,
		"schemas AgentSpec properties podTemplate type":   `null`,
		"schemas Request properties workspace properties": `null`,
	} {
		got, err := json.Marshal(at(schemas, path))
		if err != nil || string(got) != want {
			t.Errorf("%s: %s, want %s", path, got, want)
		}
	}
}

func TestAnswersAreAsDescribed(t *testing.T) {
	c := jsonschema.NewCompiler()
	if err := c.AddResource("mem://api", document(t)); err != nil {
		t.Fatal(err)
	}
	now, code := time.Now(), 7
	full := tallyman.Run{
		Name: "full", Labels: map[string]string{"a": "b"}, Waiting: &tallyman.Waiting{Reason: tallyman.AgentCap}, ExitCode: &code,
		StartedAt: &now, EndedAt: &now, StopRequestedAt: &now, NotBefore: &now, Limits: tallyman.Limits{Deadline: new(tallyman.Duration), MaxTurns: &code},
	}
	a := newAPI(t, &source{runs: []tallyman.Run{{Name: "bare"}, full}})
	for _, answer := range []struct{ schema, text string }{
		{"Run", a.call("GET", "/api/v1/runs/bare", "").Body.String()},
		{"Run", a.call("GET", "/api/v1/runs/full", "").Body.String()},
		{"Page", a.call("GET", "/api/v1/runs", "").Body.String()},
		{"AttemptsBody", a.call("GET", "/api/v1/runs/full/attempts", "").Body.String()},
		{"Info", a.call("GET", "/api/v1/info", "").Body.String()},
		{"Problem", a.call("GET", "/api/v1/runs/absent", "").Body.String()},
		{"Problem", a.call("GET", "/api/v1/runs?limit=0", "").Body.String()},
		{"Problem", a.call("GET", "/api/v1/nothing", "").Body.String()},
		{"Attempt", `{"run_id":"","number":1,"reason":"","message":"","exit_code":null,"usage":` + usage + `,"oom_kills":0,"backend":"","queued_at":"2026-01-02T03:04:05Z","admitted_at":"2026-01-02T03:04:05Z","started_at":null,"first_event_at":null,"ended_at":null,"last_cursor":0,"final_cursor":0}`},
	} {
		schema, err := c.Compile("mem://api#/components/schemas/" + answer.schema)
		if err != nil {
			t.Fatal(err)
		}
		v, err := jsonschema.UnmarshalJSON(strings.NewReader(answer.text))
		if err != nil {
			t.Fatal(err)
		}
		if err := schema.Validate(v); err != nil {
			t.Errorf("%s: %v", answer.text, err)
		}
	}
}

const usage = `{"input_tokens":0,"output_tokens":0,"cache_read_tokens":0,"cache_write_tokens":0,"cost_usd":0,"turns":0}`
