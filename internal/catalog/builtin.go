package catalog

import (
	"encoding/json"
	"slices"

	"github.com/tallyman-dev/tallyman"
)

// providers are the variables that log a harness in, and those that only say
// where its provider is and how to use it. The latter are no secrets: an address that is masked
// would black out half a transcript.
var providers = map[string]struct{ keys, places []string }{
	"claude": {
		keys: []string{"ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN", "CLAUDE_CODE_OAUTH_TOKEN", "AWS_BEARER_TOKEN_BEDROCK"},
		places: []string{
			"ANTHROPIC_BASE_URL", "ANTHROPIC_MODEL", "ANTHROPIC_SMALL_FAST_MODEL", "CLAUDE_CODE_USE_BEDROCK", "AWS_REGION",
			"CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC", "CLAUDE_CODE_MAX_RETRIES", "IS_SANDBOX",
		},
	},
	"codex": {
		keys:   []string{"OPENAI_API_KEY", "CODEX_API_KEY"},
		places: []string{"OPENAI_BASE_URL", "CODEX_HOME"},
	},
	"gemini": {
		keys:   []string{"GEMINI_API_KEY", "GOOGLE_API_KEY"},
		places: []string{"GOOGLE_GEMINI_BASE_URL", "GOOGLE_GENAI_USE_VERTEXAI", "GOOGLE_CLOUD_PROJECT", "GOOGLE_CLOUD_LOCATION"},
	},
	"opencode": {
		keys:   []string{"ANTHROPIC_API_KEY", "OPENAI_API_KEY", "GEMINI_API_KEY", "GOOGLE_GENERATIVE_AI_API_KEY", "OPENROUTER_API_KEY"},
		places: []string{"ANTHROPIC_BASE_URL", "OPENAI_BASE_URL"},
	},
}

// Builtin returns the agents that come with tallyman, by name. demo plays the
// steps it is given; the agents of providers take their keys from the
// environment of the server's process, where those are set.
func Builtin(demoSteps json.RawMessage) []tallyman.Agent {
	return []tallyman.Agent{
		builtin("claude", "Claude Code, with your own key or login", withProvider("claude")),
		builtin("codex", "Codex CLI, with your own key or login", withProvider("codex")),
		builtin("demo", "repeats the prompt; needs no model and no key", tallyman.AgentSpec{
			Harness: "script", Settings: map[string]json.RawMessage{"steps": slices.Clone(demoSteps)},
		}),
		builtin("exec", "any command, given with the run: tallyman run exec -- COMMAND", tallyman.AgentSpec{Harness: "exec"}),
		builtin("gemini", "Gemini CLI, with your own key or login", withProvider("gemini")),
		builtin("opencode", "opencode, with your own key or login", withProvider("opencode")),
	}
}

func builtin(name, description string, spec tallyman.AgentSpec) tallyman.Agent {
	return tallyman.Agent{Name: name, Namespace: tallyman.DefaultNamespace, Origin: tallyman.BuiltIn, Description: description, Spec: spec}
}

func withProvider(harness string) tallyman.AgentSpec {
	p, plain := providers[harness], false
	return tallyman.AgentSpec{Harness: harness, EnvFrom: []tallyman.EnvSource{
		{Host: slices.Clone(p.keys), Optional: true},
		{Host: slices.Clone(p.places), Optional: true, Mask: &plain},
	}}
}
