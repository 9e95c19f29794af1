package fakemodel_test

import (
	"flag"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tallyman-dev/tallyman/internal/fakemodel"
)

var update = flag.Bool("update", false, "write the golden files anew")

// volatile matches what differs between two runs.
var volatile = regexp.MustCompile(`"((?:msg|toolu|resp|rs|fc|call|req)_|chatcmpl-)[A-Z0-9]{20}"|("responseId":)"[A-Z0-9]{20}"|("created(?:_at)?":)[0-9]+`)

// everything has each kind of block that ends well.
const everything = `%%chunk 12%% %%think Two thoughts.%% %%say "Some <text> in pieces.\n"%% %%tool Bash {"command": "echo hi"}%% %%tool Read {"path": "a"}%%`

func bodies(prompt string) map[string]struct{ path, body string } {
	q := quote(prompt)
	return map[string]struct{ path, body string }{
		"anthropic": {"/v1/messages", `{"model":"m","max_tokens":9,"stream":STREAM,"messages":[{"role":"user","content":` + q + `}]}`},
		"responses": {"/v1/responses", `{"model":"m","stream":STREAM,"input":[{"type":"message","role":"user","content":[{"type":"input_text","text":` + q + `}]}]}`},
		"chat":      {"/v1/chat/completions", `{"model":"m","stream":STREAM,"messages":[{"role":"user","content":` + q + `}]}`},
		"gemini":    {"/v1beta/models/m:VERB", `{"contents":[{"role":"user","parts":[{"text":` + q + `}]}]}`},
	}
}

func (s *server) ask(format, prompt string, stream bool) *http.Response {
	s.t.Helper()
	b := bodies(prompt)[format]
	verb, streams := "generateContent", "false"
	if stream {
		verb, streams = "streamGenerateContent?alt=sse", "true"
	}
	return s.post(strings.Replace(b.path, "VERB", verb, 1), strings.Replace(b.body, "STREAM", streams, 1))
}

func TestWireFormats(t *testing.T) {
	scenes := map[string]string{
		"all":     everything,
		"refusal": "%%refuse I will not.%%",
		"fault":   "%%say begun%% %%error 529%%",
		"limit":   "%%say so far%% %%stop max_tokens%% %%usage input=1 output=2 cache-read=3 cache-write=4%%",
	}
	for format := range bodies("") {
		for scene, prompt := range scenes {
			for _, stream := range []bool{true, false} {
				name := format + "-" + scene + map[bool]string{true: ".sse", false: ".json"}[stream]
				t.Run(name, func(t *testing.T) {
					s := serve(t, fakemodel.Script{})
					resp := s.ask(format, prompt, stream)
					if want := map[bool]string{true: "text/event-stream; charset=utf-8", false: "application/json"}[stream]; resp.Header.Get("Content-Type") != want {
						t.Errorf("content type %q, want %q", resp.Header.Get("Content-Type"), want)
					}
					golden(t, name, body(t, resp.Body))
				})
			}
		}
	}
}

// golden compares with a file, after ids and times were made the same.
func golden(t *testing.T, name, got string) {
	t.Helper()
	got = volatile.ReplaceAllStringFunc(got, func(s string) string {
		m := volatile.FindStringSubmatch(s)
		switch {
		case m[1] != "":
			return `"` + m[1] + `ID"`
		case m[2] != "":
			return m[2] + `"ID"`
		default:
			return m[3] + "0"
		}
	})
	file := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("differs from %s (-want +got):\n%s", file, diff)
	}
}

// A client pairs a call with its answer by id, so the open and the finished
// item must carry the same one, and no two calls the same.
func TestIDsPairUpAndDiffer(t *testing.T) {
	s := serve(t, fakemodel.Script{})
	text := body(t, s.ask("responses", everything, true).Body)
	ids := map[string]int{}
	for _, id := range regexp.MustCompile(`"call_id":"(call_[A-Z0-9]+)"`).FindAllStringSubmatch(text, -1) {
		ids[id[1]]++
	}
	if len(ids) != 2 {
		t.Errorf("two calls have %d ids", len(ids))
	}
	for id, n := range ids {
		if n != 3 { // added, done, completed
			t.Errorf("%s is told %d times, want 3", id, n)
		}
	}
}

func TestGeminiStreamWithoutEventsIsAList(t *testing.T) {
	s := serve(t, fakemodel.Script{})
	got := body(t, s.post("/v1beta/models/m:streamGenerateContent", strings.Replace(bodies("%%say hi%%")["gemini"].body, "STREAM", "true", 1)).Body)
	if !strings.HasPrefix(got, "[{") || !strings.Contains(got, `"text":"hi"`) {
		t.Errorf("got %s", got)
	}
}

func TestMalformedRequestsAreAnsweredInTheProvidersShape(t *testing.T) {
	tests := map[string]struct{ path, body, want string }{
		"no JSON":               {"/v1/messages", `{"model":`, `"type":"invalid_request_error"`},
		"no model":              {"/v1/messages", `{"max_tokens":1,"messages":[{"role":"user","content":"x"}]}`, `model: Field required`},
		"no max_tokens":         {"/v1/messages", `{"model":"m","messages":[{"role":"user","content":"x"}]}`, `max_tokens: Field required`},
		"no messages":           {"/v1/messages", `{"model":"m","max_tokens":1,"messages":[]}`, `at least one message`},
		"a role that is none":   {"/v1/messages", `{"model":"m","max_tokens":1,"messages":[{"role":"tool","content":"x"}]}`, `messages.0.role`},
		"content of wrong type": {"/v1/messages", `{"model":"m","max_tokens":1,"messages":[{"role":"user","content":7}]}`, `invalid_request_error`},
		"a null in the list":    {"/v1/messages", `{"model":"m","max_tokens":1,"messages":[null]}`, `messages.0.role`},
		"bad directive":         {"/v1/messages", `{"model":"m","max_tokens":1,"messages":[{"role":"user","content":"%%error soon%%"}]}`, `directive %%error`},
		"count of no JSON":      {"/v1/messages/count_tokens", `nope`, `"type":"invalid_request_error"`},
		"responses, no JSON":    {"/v1/responses", `[`, `"type":"invalid_request_error"`},
		"responses, no model":   {"/v1/responses", `{"input":"x"}`, `'model'`},
		"responses, no input":   {"/v1/responses", `{"model":"m"}`, `'input'`},
		"responses, odd input":  {"/v1/responses", `{"model":"m","input":7}`, `'input'`},
		"responses, empty":      {"/v1/responses", `{"model":"m","input":[]}`, `'input'`},
		"chat, no model":        {"/v1/chat/completions", `{"messages":[{"role":"user","content":"x"}]}`, `model parameter`},
		"chat, no messages":     {"/v1/chat/completions", `{"model":"m"}`, `'messages'`},
		"gemini, no JSON":       {"/v1beta/models/m:generateContent", ``, `"status":"INVALID_ARGUMENT"`},
		"gemini, no contents":   {"/v1beta/models/m:generateContent", `{}`, `contents is not specified`},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			s := serve(t, fakemodel.Script{})
			resp := s.post(tc.path, tc.body)
			got := body(t, resp.Body)
			if resp.StatusCode != http.StatusBadRequest || !strings.Contains(got, tc.want) {
				t.Errorf("status %d, body %s, want 400 with %s", resp.StatusCode, got, tc.want)
			}
		})
	}
}

func TestOtherEndpoints(t *testing.T) {
	tests := map[string]struct {
		method, path, body string
		status             int
		want               string
	}{
		"front page":     {"GET", "/", "", 200, "scripted model server"},
		"liveness":       {"HEAD", "/", "", 200, ""},
		"models":         {"GET", "/v1/models", "", 200, `"id":"fake-model"`},
		"gemini models":  {"GET", "/v1beta/models", "", 200, `"name":"models/fake-model"`},
		"count":          {"POST", "/v1/messages/count_tokens?beta=true", `{"messages":[]}`, 200, `{"input_tokens":4}`},
		"gemini count":   {"POST", "/v1beta/models/m:countTokens", `{"contents":[]}`, 200, `{"totalTokens":4}`},
		"gemini unknown": {"POST", "/v1beta/models/m:embedContent", `{}`, 404, `"status":"NOT_FOUND"`},
		"unknown":        {"GET", "/v1/files", "", 404, `"type":"not_found_error"`},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			s := serve(t, fakemodel.Script{})
			req, err := http.NewRequest(tc.method, s.URL+tc.path, strings.NewReader(tc.body))
			if err != nil {
				t.Fatal(err)
			}
			resp, err := http.DefaultClient.Do(req)
			if err != nil {
				t.Fatal(err)
			}
			defer resp.Body.Close()
			if got := body(t, resp.Body); resp.StatusCode != tc.status || !strings.Contains(got, tc.want) {
				t.Errorf("status %d, body %s, want %d with %s", resp.StatusCode, got, tc.status, tc.want)
			}
			if n := s.fake.Stats().Calls; n != 0 {
				t.Errorf("%d calls counted; this is none", n)
			}
		})
	}
}

func TestErrorsHaveTheProvidersShapeAndHeaders(t *testing.T) {
	tests := map[string]struct{ format, directive, want string }{
		"anthropic 401": {"anthropic", "401", `"error":{"message":"The API key is invalid.","type":"authentication_error"}`},
		"anthropic 403": {"anthropic", "403", `"type":"permission_error"`},
		"anthropic 429": {"anthropic", "429 retry-after=1500ms slow down", `"error":{"message":"slow down","type":"rate_limit_error"}`},
		"anthropic 500": {"anthropic", "500", `"type":"api_error"`},
		"anthropic 529": {"anthropic", "529", `"type":"overloaded_error"`},
		"anthropic own": {"anthropic", "400 type=odd_error x=y is odd", `"error":{"message":"x=y is odd","type":"odd_error"}`},
		"responses 401": {"responses", "401", `"code":"invalid_api_key"`},
		"responses 429": {"responses", "429", `"type":"rate_limit_exceeded"`},
		"responses own": {"responses", "429 type=insufficient_quota", `"code":"insufficient_quota"`},
		"chat 500":      {"chat", "500", `"type":"server_error"`},
		"gemini 401":    {"gemini", "401", `"error":{"code":401,"message":"The API key is invalid.","status":"UNAUTHENTICATED"}`},
		"gemini 429":    {"gemini", "429", `"status":"RESOURCE_EXHAUSTED"`},
		"gemini 503":    {"gemini", "503", `"status":"UNAVAILABLE"`},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			s := serve(t, fakemodel.Script{})
			resp := s.ask(tc.format, "%%error "+tc.directive+"%%", true)
			got := body(t, resp.Body)
			if want := strings.Fields(tc.directive)[0]; !strings.HasPrefix(resp.Status, want) {
				t.Errorf("status %s, want %s", resp.Status, want)
			}
			if !strings.Contains(got, tc.want) {
				t.Errorf("body %s, want %s", got, tc.want)
			}
			if want := map[bool]string{true: "2"}[strings.Contains(tc.directive, "retry-after")]; resp.Header.Get("Retry-After") != want {
				t.Errorf("retry-after %q, want %q", resp.Header.Get("Retry-After"), want)
			}
		})
	}
}
