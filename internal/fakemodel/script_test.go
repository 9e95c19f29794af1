package fakemodel_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tallyman-dev/tallyman"
	"github.com/tallyman-dev/tallyman/internal/fakemodel"
)

const weather = `
models: [claude-sonnet-4-5, small]
usage: {input: 1, output: 2}
rules:
  - match: {contains: weather, model: sonnet}
    turns:
      - blocks:
          - thinking: I had better look.
          - tool: {name: Bash, input: {command: "echo sun"}}
      - blocks: [{text: "It says: "}, {toolResult: true}]
        usage: {input: 3}
  - match: {matches: "(?i)^fail"}
    times: 2
    reply:
      blocks: [{error: {status: 429, retryAfter: 1s, body: '{"odd": true}'}}]
  - match: {toolResult: true, result: sun}
    reply: {blocks: [{text: I saw the sun.}]}
  - match: {toolResult: false, contains: untouched}
    reply: {blocks: [{text: No tool yet.}]}
  - match: {format: gemini}
    reply: {blocks: [{text: Hello from afar.}]}
  - match: {contains: second, call: 2}
    reply: {blocks: [{agent: {prompt: look}}]}
`

func TestRules(t *testing.T) {
	sun := called("sun")
	tests := map[string]struct {
		talk []message
		want string
	}{
		"the first turn":                 {[]message{said("the weather?")}, "thinking: I had better look.\ntool Bash {\"command\":\"echo sun\"}\ntool_use"},
		"the second turn":                {append([]message{said("the weather?")}, sun...), "text: It says: \ntext: sun\nend_turn"},
		"turns used up, another rule":    {append(append([]message{said("the weather?")}, sun...), sun...), "text: I saw the sun.\nend_turn"},
		"another result than the rule's": {append([]message{said("hm")}, called("rain")...), "text: The scripted model has seen the tool's answer: rain\nend_turn"},
		"no result where one is asked":   {[]message{said("sun")}, "text: The scripted model has read: sun\nend_turn"},
		"no result, as asked":            {[]message{said("untouched")}, "text: No tool yet.\nend_turn"},
		"a result where none is asked":   {append([]message{said("untouched")}, called("rain")...), "text: The scripted model has seen the tool's answer: rain\nend_turn"},
		"nth call":                       {[]message{said("the second"), answered("x"), said("second"), answered("y")}, "tool Agent {\"description\":\"sub-agent\",\"prompt\":\"look\",\"subagent_type\":\"general-purpose\"}\ntool_use"},
		"not the nth call":               {[]message{said("the second")}, "text: The scripted model has read: the second\nend_turn"},
		"directives come after rules":    {[]message{said("%%say other%%")}, "text: other\nend_turn"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			s := serve(t, mustParse(t, weather))
			if diff := cmp.Diff(tc.want, s.answer(tc.talk...)); diff != "" {
				t.Errorf("answer differs (-want +got):\n%s", diff)
			}
		})
	}
}

func TestARuleWithTimesIsOverAfterThem(t *testing.T) {
	s := serve(t, mustParse(t, weather))
	for i, want := range []int{429, 429, 200} {
		resp := s.post("/v1/messages", request(true, said("FAIL")))
		if got := body(t, resp.Body); resp.StatusCode != want || (want == 429 && got != `{"odd": true}`) {
			t.Errorf("call %d: %d %s, want %d", i, resp.StatusCode, got, want)
		}
	}
}

func TestRulesByFormatModelAndUsage(t *testing.T) {
	s := serve(t, mustParse(t, weather))
	for want, got := range map[string]string{ // what, in which answer
		`Hello from afar.`:      body(t, s.ask("gemini", "hi", true).Body),
		`"ead: hi"`:             body(t, s.ask("chat", "hi", true).Body),
		`has read: the weather`: body(t, s.ask("chat", "the weather", false).Body), // another model than the rule's
		`"usage":{"cache_creation_input_tokens":0,"cache_read_input_tokens":0,"input_tokens":1,"output_tokens":2}`: body(t, s.ask("anthropic", "hi", false).Body),
		`"input_tokens":3,"output_tokens":0`: body(t, s.post("/v1/messages", request(false, append([]message{said("weather")}, called("sun")...)...)).Body),
	} {
		if !strings.Contains(got, want) {
			t.Errorf("%s lacks %s", got, want)
		}
	}
	resp := body(t, s.post("/v1/messages/count_tokens", "{}").Body)
	if resp != "{\"input_tokens\":1}\n" {
		t.Errorf("count: %s", resp)
	}
}

func TestAScriptMayBeJSON(t *testing.T) {
	s := serve(t, mustParse(t, `{"rules": [{"match": {}, "reply": {"blocks": [{"text": "tab\t \ud83d\ude00 \u00e9"}]}}]}`))
	if got, want := s.answer(said("x")), "text: tab\t 😀 é\nend_turn"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestAnEmptyScriptIsTheDefault(t *testing.T) {
	for _, text := range []string{"", "\n", "# nothing\n", "{}"} {
		s, err := fakemodel.ParseScript([]byte(text))
		if err != nil || s.Rules != nil {
			t.Errorf("%q: %+v, %v", text, s, err)
		}
	}
}

func TestBadScriptsAreRefusedWithTheirPlace(t *testing.T) {
	const reply = "    reply: {blocks: [{text: a}]}\n"
	tests := map[string]struct{ script, want string }{
		"no YAML":               {"rules: [", `line 1, column 8: sequence end token ']' not found`},
		"YAML too odd":          {"rules:\n !- ", `the document is too odd to be read`},
		"unknown key":           {"rules:\n  - mach: {}\n", `line 2, column 5: unknown field "mach"`},
		"unknown key deep":      {"rules:\n  - match: {}\n    reply:\n      blocks:\n        - txt: a\n", `line 5, column 11: unknown field "txt"`},
		"wrong type":            {"usage:\n  input: many\n", `line 2, column 10: cannot unmarshal string into Go struct field Script.Usage of type int64`},
		"a bad duration":        {"rules:\n  - reply:\n      delay: soon\n", `"soon" is not a duration`},
		"a bad expression":      {"rules:\n  - match: {matches: '('}\n" + reply, "missing closing )"},
		"twice the same key":    {"usage: {}\nusage: {}\n", `line 2, column 1: mapping key "usage" already defined at [1:1]`},
		"neither reply":         {"rules:\n  - match: {}\n", `line 2, column 5: rules[0]: give either reply or turns`},
		"both replies":          {"rules:\n  - turns: [{}]\n" + reply, `rules[0]: give either reply or turns`},
		"an empty block":        {"rules:\n  - reply:\n      blocks:\n        - text: ''\n", `line 4, column 11: rules[0].reply.blocks[0]: a block has exactly one of`},
		"a double block":        {"rules:\n  - reply:\n      blocks: [{text: a, thinking: b}]\n", `this one has 2`},
		"unknown format":        {"rules:\n  - match: {format: xml}\n" + reply, `line 2, column 21: rules[0].match.format: "xml" is no format; there are [anthropic responses chat gemini]`},
		"unknown stop":          {"rules:\n  - turns:\n      - stop: soon\n", `line 3, column 15: rules[0].turns[0].stop: "soon" is no stop reason`},
		"no status":             {"rules:\n  - reply:\n      blocks:\n        - error: {message: x}\n", `rules[0].reply.blocks[0].error.status: 0 is no error status`},
		"a nameless tool":       {"rules:\n  - reply: {blocks: [{tool: {input: {}}}]}\n", `tool.name: a tool call needs a name`},
		"input that is no JSON": {"rules:\n  - reply: {blocks: [{tool: {name: A, input: {x: .inf}}}]}\n", `tool.input: cannot be written as JSON`},
		"no prompt":             {"rules:\n  - reply: {blocks: [{agent: {description: x}}]}\n", `agent.prompt: a sub-agent needs a prompt`},
		"a negative count":      {"rules:\n  - times: -1\n" + reply, `line 2, column 12: rules[0].times: -1 is negative`},
		"a negative usage":      {"usage: {output: -2}\n", `line 1, column 17: usage.output: -2 is negative`},
		"a negative after":      {"rules:\n  - reply: {blocks: [{stall: {after: -1}}, {cut: {times: -3}}]}\n", `cut.times: -3 is negative`},
		"a flood too large":     {"rules:\n  - reply: {blocks: [{flood: 1000000000}]}\n", `flood: 1000000000 is not between 1 and 268435456`},
		"all at once":           {"usage: {input: -1}\nrules:\n  - match: {call: -1}\n" + reply, "usage.input: -1 is negative\nline 3, column 19: rules[0].match.call: -1 is negative"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			_, err := fakemodel.ParseScript([]byte(tc.script))
			if err == nil || !strings.Contains(err.Error(), tc.want) || tallyman.CodeOf(err) != tallyman.Invalid {
				t.Errorf("error %q with code %q, want %q with code invalid", err, tallyman.CodeOf(err), tc.want)
			}
		})
	}
}
