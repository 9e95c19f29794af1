package rest_test

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"github.com/tallyman-dev/tallyman"
)

func TestABodyThatDoesNotFitIsExplained(t *testing.T) {
	for name, c := range map[string]struct{ body, want string }{
		"blank":                       {" \n", "the body is empty; a JSON object is expected"},
		"an unknown key":              {`{"agent":"exec",` + "\n" + `  "promt":"x"}`, `body, line 2, column 3: unknown key "promt"; did you mean "prompt"?`},
		"a key of another place":      {`{"agent":"exec","spec":{}}`, `body, line 1, column 17: unknown key "spec"; there is such a key, but not in this place`},
		"a nested unknown key":        {`{"limits":{"dedline":"1h"}}`, `body, line 1, column 12: unknown key "dedline"; did you mean "deadline"?`},
		"an unknown key like a value": {`{"agent":"promt","promt":"x"}`, `body, line 1, column 18: unknown key "promt"; did you mean "prompt"?`},
		"a key like nothing":          {`{"zzzzzz":1}`, `body, line 1, column 2: unknown key "zzzzzz"`},
		"a key with a quote":          {`{"a\"gent":1}`, `body, line 1, column 1: unknown key "a\"gent"; did you mean "agent"?`},
		"a key in escapes":            {`{"pr\u006fmt":1}`, `body, line 1, column 1: unknown key "promt"; did you mean "prompt"?`},
		"a list for the whole":        {`[]`, `body, line 1, column 2: the body is a list, expected is an object`},
		"a text for the whole":        {`"x"`, `body, line 1, column 4: the body is a text, expected is an object`},
		"a number for a text":         {`{"agent":7}`, `body, line 1, column 11: agent is a number, expected is a text`},
		"a number for a duration":     {`{"limits":{"deadline":7}}`, `body, line 1, column 24: limits.deadline is a number, expected is a text`},
		"an object for a duration":    {`{"limits":{"deadline":{}}}`, `body, line 1, column 24: limits.deadline is an object, expected is a text`},
		"a text for a number":         {`{"limits":{"budgetUSD":"1"}}`, `body, line 1, column 27: limits.budgetUSD is a text, expected is a number`},
		"a fraction of a turn":        {`{"limits":{"maxTurns":1.5}}`, `body, line 1, column 26: limits.maxTurns is a number 1.5, expected is a whole number`},
		"a text for a list":           {`{"command":"true"}`, `body, line 1, column 18: command is a text, expected is a list`},
		"a list for an object":        {`{"labels":["a"]}`, `body, line 1, column 12: labels is a list, expected is an object`},
		"a number for a truth":        {`{"env":[{"name":"A","value":"b","mask":1}]}`, `body, line 1, column 41: env.mask is a number, expected is true or false`},
		"a truth for a text":          {`{"agent":true}`, `body, line 1, column 14: agent is true or false, expected is a text`},
		"no duration":                 {"{\n" + ` "limits":{"idle":"90"}}`, `body, line 2, column 19: "90" is not a duration: write it like 90s, 15m or 2h`},
		"a negative duration":         {`{"limits":{"idle":"-1s"}}`, `body: duration -1s is negative`},
		"broken":                      {`{"agent":"exec",}`, `body, line 1, column 18: not JSON: invalid character '}' looking for beginning of object key string`},
		"not JSON":                    {`agent=exec`, `body, line 1, column 2: not JSON: invalid character 'a' looking for beginning of value`},
		"cut off":                     {"{\"agent\":\n\"ex", `body, line 2, column 4: not JSON: it ends too early`},
		"bytes that are no text":      {"{\"prompt\":\"\xff\"}", `the body is not UTF-8, as JSON must be`},
		"more after it":               {`{"agent":"exec"} x`, `the body goes on after its JSON object`},
		"two objects":                 {`{}{}`, `the body goes on after its JSON object`},
		"a bracket too many":          {`{}}`, `the body goes on after its JSON object`},
	} {
		t.Run(name, func(t *testing.T) {
			a := newAPI(t, &source{})
			p := problem(t, a.call("POST", "/api/v1/runs", c.body), 400)
			if p.Detail != c.want || p.Code != tallyman.Invalid {
				t.Errorf("got  %s %s\nwant %s", p.Code, p.Detail, c.want)
			}
			if len(a.asked) > 0 {
				t.Errorf("submitted: %+v", a.asked)
			}
		})
	}
}

func TestOtherBodiesAreReadAsStrictly(t *testing.T) {
	a := newAPI(t, &source{runs: some()})
	for _, c := range [][3]string{
		{"/api/v1/prune", `{"age":"1h","dryrun":true}`, `unknown key "dryrun"; did you mean "dry_run"?`},
		{"/api/v1/prune", ``, `request body is required`},
		{"/api/v1/prune", `{}`, `age is missing: write it like 720h`},
		{"/api/v1/runs", ``, `request body is required`},
		{"/api/v1/prune", `{"age":7}`, `age is a number, expected is a text`},
		{"/api/v1/runs/exec-a/rerun", `{"sets":{}}`, `unknown key "sets"; did you mean "set"?`},
		{"/api/v1/runs/exec-a/rerun", `{"set":{"priority":1}}`, `set is a number, expected is a text`},
	} {
		if p := problem(t, a.call("POST", c[0], c[1]), 400); !strings.Contains(p.Detail, c[2]) {
			t.Errorf("%s %s: %s", c[0], c[1], p.Detail)
		}
	}
}

// submitStatuses are what the description of a submit allows, problems included.
var submitStatuses = map[int]bool{200: true, 201: true, 400: true, 413: true}

func FuzzSubmitBody(f *testing.F) {
	for _, seed := range []string{
		``, `{}`, `null`, `[]`, `{"agent":"exec","command":["true"]}`, `{"agent":"a","limits":{"deadline":"1h","maxTurns":3}}`,
		`{"workspace":"/tmp"}`, `{"workspace":{"path":"fresh","keep":true}}`, `{"inline":{"name":"x"}}`, `{"a\"b":1}`, "{\"\xff\":1}",
		`{"limits":{"idle":"\""}}`, `{"outputs":[{"path":"*","schema":{}}]}`, `{} {}`, `{"agent":`, strings.Repeat("[", 20000),
	} {
		f.Add(seed, "k")
	}
	a := newAPI(f, &source{})
	f.Fuzz(func(t *testing.T, body, key string) {
		a.asked, a.keys, a.runs = nil, nil, nil
		w := a.call("POST", "/api/v1/runs", body, func(r *http.Request) { r.Header["Idempotency-Key"] = []string{key} })
		if !submitStatuses[w.Code] || !json.Valid(w.Body.Bytes()) {
			t.Fatalf("%q: %d %s", body, w.Code, w.Body)
		}
		if w.Code >= 400 {
			problem(t, w, w.Code)
			if len(a.asked) > 0 {
				t.Fatalf("%q is refused and submitted", body)
			}
			return
		}
		if r := a.asked[0]; r.Source != tallyman.SourceAPI || r.Inline != nil || r.Workspace != nil && strings.HasPrefix(r.Workspace.Path, "/") {
			t.Fatalf("%q asks for what only the owner may: %+v", body, r)
		}
	})
}
