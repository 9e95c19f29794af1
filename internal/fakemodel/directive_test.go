package fakemodel_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tallyman-dev/tallyman/internal/fakemodel"
)

func TestDirectives(t *testing.T) {
	bash := called("the tool's answer")
	after := func(prompt string, more ...[]message) []message {
		return append([]message{said(prompt)}, slices.Concat(more...)...)
	}
	tests := map[string]struct {
		talk []message
		want string
	}{
		"prose is repeated":                 {after("hello there"), "text: The scripted model has read: hello there\nend_turn"},
		"percent signs are prose":           {after("100%% sure, %%maybe%% %%saying so%%"), "text: The scripted model has read: 100%% sure, %%maybe%% %%saying so%%\nend_turn"},
		"text outside is ignored":           {after("please %%say yes%% now"), "text: yes\nend_turn"},
		"blocks keep their order":           {after("%%think hm%%%%say a%%%%say b%%"), "thinking: hm\ntext: a\ntext: b\nend_turn"},
		"a JSON string may hold marks":      {after(`%%say "50%% off\nnow"%%`), "text: 50%% off\nnow\nend_turn"},
		"a quote is no JSON string":         {after(`%%say "quoted" words%%`), "text: \"quoted\" words\nend_turn"},
		"a call ends the reply":             {after(`%%say a%% %%tool Bash {"command":"x %% y"}%% %%say b%%`), "text: a\ntool Bash {\"command\":\"x %% y\"}\ntool_use"},
		"what follows is said next":         {after(`%%say a%% %%tool Bash {}%% %%say b%%`, bash), "text: b\nend_turn"},
		"calls in a row are parallel":       {after(`%%tool A {"x":1}%% %%tool B%%`), "tool A {\"x\":1}\ntool B {}\ntool_use"},
		"next parts two calls":              {after(`%%tool A%% %%next%% %%tool B%%`, bash), "tool B {}\ntool_use"},
		"next alone is a default answer":    {after(`%%next%% %%say later%%`), "text: The scripted model has read: %%next%% %%say later%%\nend_turn"},
		"after the last reply":              {after(`%%tool A%%`, bash), "text: The scripted model has seen the tool's answer: the tool's answer\nend_turn"},
		"loop begins again":                 {after(`%%tool A%% %%tool B%% %%next%% %%tool C%% %%loop%%`, bash, bash), "tool A {}\ntool B {}\ntool_use"},
		"result repeats the tool":           {after(`%%tool A%% %%result%%`, bash), "text: the tool's answer\nend_turn"},
		"result is of the last call":        {after(`%%tool A%% %%next%% %%tool B%% %%result%%`, called("old"), bash), "text: the tool's answer\nend_turn"},
		"results keep their order":          {after(`%%tool A%% %%tool B%% %%result%%`, []message{bash[0], {"user", `[{"type":"tool_result","content":"one"},{"type":"tool_result","content":[{"type":"text","text":"two"}]}]`}}), "text: one\ntwo\nend_turn"},
		"a word within a sentence is prose": {after("%%say: this%%"), "text: The scripted model has read: %%say: this%%\nend_turn"},
		"result without a tool":             {after(`%%result%%`), "text: There is no tool result.\nend_turn"},
		"a stop reason":                     {after(`%%say a%% %%stop max_tokens%%`), "text: a\nmax_tokens"},
		"a stop reason after a call":        {after(`%%tool A%% %%stop pause_turn%%`), "tool A {}\npause_turn"},
		"a refusal":                         {after(`%%refuse no%%`), "text: no\nrefusal"},
		"a flood":                           {after(`%%flood 12%%`), "text: line 1 of a \nend_turn"},
		"a sub-agent":                       {after(`%%agent look%% read %%say in%% %%end%% %%say out%%`), `tool Agent {"description":"look","prompt":"read %%say in%%","subagent_type":"general-purpose"}` + "\ntool_use"},
		"after the sub-agent":               {after(`%%agent look%% %%say in%% %%end%% %%say out%%`, bash), "text: out\nend_turn"},
		"a sub-agent within another":        {after(`%%agent a%% %%agent b%% %%say in%% %%end%% %%say mid%% %%end%% %%say out%%`), `tool Agent {"description":"a","prompt":"%%agent b%% %%say in%% %%end%% %%say mid%%","subagent_type":"general-purpose"}` + "\ntool_use"},
		"the newest prompt counts":          {append(after(`%%say old%%`), answered("old"), said("%%say new%%")), "text: new\nend_turn"},
		"a later message without any":       {append(after(`%%say one%% %%next%% %%say two%%`), answered("one"), said("go on")), "text: two\nend_turn"},
		"reminders are not read":            {after("<system-reminder>%%say wrong%%</system-reminder>%%say right%%"), "text: right\nend_turn"},
		"nor is what a tool answered":       {after(`%%tool A%% %%say right%%`, called("%%say wrong%%")), "text: right\nend_turn"},
		"nor what the model said":           {append(after("hello"), answered("%%say wrong%%"), said("more")), "text: The scripted model has read: more\nend_turn"},
		"an error":                          {after(`%%error 429%%`), "429 rate_limit_error: The rate limit is exceeded."},

		"unknown stop reason":     {after(`%%stop soon%%`), `400 invalid_request_error: directive %%stop: "soon" is no stop reason; there are end_turn, tool_use, max_tokens, stop_sequence, refusal, pause_turn, model_context_window_exceeded`},
		"no closing mark":         {after(`%%say hello`), "400 invalid_request_error: directive %%say: the closing %% is missing"},
		"no tool name":            {after(`%%tool {"a":1}%%`), "400 invalid_request_error: directive %%tool: the tool's name is missing"},
		"input that is no JSON":   {after(`%%tool Bash {echo}%%`), "400 invalid_request_error: directive %%tool: read JSON: invalid character 'e' looking for beginning of object key string"},
		"input that is a list":    {after(`%%tool Bash [1]%%`), "400 invalid_request_error: directive %%tool: the input of tool Bash is not a JSON object"},
		"input and no mark":       {after(`%%tool Bash {} now%%`), "400 invalid_request_error: directive %%tool: the closing %% is missing after the JSON value"},
		"agent without end":       {after(`%%agent a%% %%say b%%`), "400 invalid_request_error: directive %%agent: its %%end%% is missing"},
		"error without status":    {after(`%%error%%`), "400 invalid_request_error: directive %%error: the status is missing"},
		"error that is none":      {after(`%%error 200%%`), `400 invalid_request_error: directive %%error: "200" is no error status; give 400 to 599`},
		"a count that is none":    {after(`%%cut times=often%%`), `400 invalid_request_error: directive %%cut: times: "often" is not a number from 0 to 1073741824`},
		"an unknown option":       {after(`%%stall every=2%%`), `400 invalid_request_error: directive %%stall: "every=2" is not understood`},
		"a duration that is none": {after(`%%stall long%%`), `400 invalid_request_error: directive %%stall: "long" is not a duration: write it like 90s, 15m or 2h`},
		"a negative delay":        {after(`%%delay -1s%% %%say a%%`), "400 invalid_request_error: directive %%delay: duration -1s is negative"},
		"unknown usage":           {after(`%%usage total=3%%`), `400 invalid_request_error: directive %%usage: "total" is not input, output, cache-read or cache-write`},
		"usage without a number":  {after(`%%usage input%%`), `400 invalid_request_error: directive %%usage: input: "" is not a number from 0 to 1099511627776`},
		"too large a flood":       {after(`%%flood 999999999%%`), `400 invalid_request_error: directive %%flood: "999999999" is not a number from 0 to 268435456`},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			s := serve(t, fakemodel.Script{})
			if diff := cmp.Diff(tc.want, s.answer(tc.talk...)); diff != "" {
				t.Errorf("answer differs (-want +got):\n%s", diff)
			}
		})
	}
}

func TestTimesAreUsedUpAndResetBringsThemBack(t *testing.T) {
	s := serve(t, fakemodel.Script{})
	prompt := said("%%error 529 times=2%% %%say well%%")
	for i, want := range []string{"529 overloaded_error: Overloaded", "529 overloaded_error: Overloaded", "text: well\nend_turn", "text: well\nend_turn"} {
		if got := s.answer(prompt); got != want {
			t.Errorf("call %d: %q, want %q", i+1, got, want)
		}
	}
	if got, want := s.answer(said("another %%error 529 times=2%%")), "529 overloaded_error: Overloaded"; got != want {
		t.Errorf("another prompt: %q, want %q", got, want)
	}
	s.control("reset")
	if got, want := s.answer(prompt), "529 overloaded_error: Overloaded"; got != want {
		t.Errorf("after a reset: %q, want %q", got, want)
	}
}

// The state is the conversation: another server goes on where one stopped.
func TestARestartedServerGoesOn(t *testing.T) {
	talk := append([]message{said("%%tool A%% %%next%% %%tool B%% %%say end%%")}, called("one")...)
	for range 2 {
		if got, want := serve(t, fakemodel.Script{}).answer(talk...), "tool B {}\ntool_use"; got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

// Every format's conversation is read alike: the third reply is due.
func TestRepliesAreCountedInEveryFormat(t *testing.T) {
	prompt := quote("%%tool A%% %%tool B%% %%next%% %%tool C%% %%say third: %% %%result%%")
	tests := map[string]struct{ path, body string }{
		"responses": {"/v1/responses", `{"model":"m","input":[{"type":"message","role":"developer","content":"d"},{"role":"user","content":` + prompt + `},
			{"type":"reasoning","summary":[],"content":null},{"type":"function_call","call_id":"1","name":"A"},{"type":"function_call","call_id":"2","name":"B"},
			{"type":"function_call_output","call_id":"1","output":"x"},{"type":"function_call_output","call_id":"2","output":[{"type":"input_text","text":"y"}]},
			{"type":"message","role":"assistant","content":[{"type":"output_text","text":"t"}]},{"type":"function_call","call_id":"3","name":"C"},
			{"type":"function_call_output","call_id":"3","output":"the answer"}]}`},
		"chat": {"/v1/chat/completions", `{"model":"m","messages":[{"role":"system","content":"s"},{"role":"user","content":` + prompt + `},
			{"role":"assistant","content":null,"tool_calls":[]},{"role":"tool","content":"x"},{"role":"tool","content":"y"},
			{"role":"assistant","content":"t"},{"role":"tool","content":"the answer"}]}`},
		"gemini": {"/v1beta/models/m:generateContent", `{"contents":[{"role":"user","parts":[{"text":` + prompt + `}]},
			{"role":"model","parts":[{"functionCall":{}}]},{"role":"user","parts":[{"functionResponse":{"response":{"output":"x"}}}]},
			{"role":"model","parts":[{"functionCall":{}}]},{"role":"user","parts":[{"functionResponse":{"response":{"output":"the answer"}}}]}]}`},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			s := serve(t, fakemodel.Script{})
			got := body(t, s.post(tc.path, tc.body).Body)
			if !strings.Contains(got, "third:") || !strings.Contains(got, "the answer") {
				t.Errorf("not the third reply: %s", got)
			}
		})
	}
}

func TestSubAgentUsesTheToolThatIsOffered(t *testing.T) {
	for offered, want := range map[string]string{
		`[]`:                                 `"name":"Agent"`,
		`[{"name":"Task"}]`:                  `"name":"Task"`,
		`[{"name":"Task"},{"name":"Agent"}]`: `"name":"Agent"`,
	} {
		s := serve(t, fakemodel.Script{})
		got := body(t, s.post("/v1/messages", `{"model":"m","max_tokens":1,"tools":`+offered+`,"messages":[{"role":"user","content":"%%agent a%% x %%end%%"}]}`).Body)
		if !strings.Contains(got, want) {
			t.Errorf("offered %s: %s, want %s", offered, got, want)
		}
	}
}
