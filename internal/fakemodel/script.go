package fakemodel

import (
	"encoding/json"
	"regexp"

	"github.com/tallyman-dev/tallyman"
)

// Script says how a Server answers. The zero value follows directives and
// otherwise repeats what it was told.
type Script struct {
	// Models are listed by the model endpoints. Any name may be asked for.
	Models []string `yaml:"models"`
	// Usage is what a call reports unless its reply says otherwise; DefaultUsage
	// when nil.
	Usage *Usage `yaml:"usage"`
	// Rules are tried in order; the first that matches answers.
	Rules []Rule `yaml:"rules"`
}

// Rule answers the calls that it matches, with Reply or, one per model call
// of a conversation, with Turns. Exactly one of the two is given.
type Rule struct {
	Match Match   `yaml:"match"`
	Times int     `yaml:"times"` // matches so often in the life of the server; 0: always
	Reply *Reply  `yaml:"reply"`
	Turns []Reply `yaml:"turns"`
}

// Match says which calls a rule is for. All that is given must hold; an empty
// one matches every call.
type Match struct {
	Contains   string         `yaml:"contains"`   // within the last user text
	Matches    *regexp.Regexp `yaml:"matches"`    // the last user text
	Model      string         `yaml:"model"`      // within the name of the model asked for
	Format     Format         `yaml:"format"`     // anthropic, responses, chat or gemini
	ToolResult *bool          `yaml:"toolResult"` // whether the call brings results of tools
	Result     string         `yaml:"result"`     // within those results
	Call       int            `yaml:"call"`       // the nth model call since the last user text, from 1
}

// Reply is what one model call is answered with.
type Reply struct {
	Blocks []Block `yaml:"blocks"`
	Usage  *Usage  `yaml:"usage"`
	// Stop is the stop reason in Anthropic's words; the other formats translate
	// it. By default it follows from the blocks.
	Stop  string            `yaml:"stop"`
	Chunk int               `yaml:"chunk"` // runes in a piece of text; by default 24, and at most 256 pieces a block
	Delay tallyman.Duration `yaml:"delay"` // between two pieces
}

// Block is one step of a reply; exactly one field is given.
type Block struct {
	Text       string `yaml:"text"`
	Thinking   string `yaml:"thinking"`
	Tool       *Tool  `yaml:"tool"`
	Agent      *Agent `yaml:"agent"`
	Refusal    string `yaml:"refusal"`
	ToolResult bool   `yaml:"toolResult"` // text: what the tools answered last
	Flood      int    `yaml:"flood"`      // that many bytes of text, at most MaxFlood
	Error      *Fault `yaml:"error"`
	Stall      *Pause `yaml:"stall"`
	Cut        *Break `yaml:"cut"`
}

// Tool is a tool call.
type Tool struct {
	Name  string         `yaml:"name"`
	Input map[string]any `yaml:"input"`
	// raw is the input as a directive wrote it.
	raw json.RawMessage
}

// Agent is a sub-agent call, by whichever of Claude Code's tools Agent and
// Task is offered.
type Agent struct {
	Description string `yaml:"description"`
	Prompt      string `yaml:"prompt"`
}

// Fault is an error in the provider's shape. Type and Message have defaults
// that fit the status; Body replaces the whole body of an HTTP error.
type Fault struct {
	Status     int               `yaml:"status"`
	Type       string            `yaml:"type"`
	Message    string            `yaml:"message"`
	Body       string            `yaml:"body"`
	RetryAfter tallyman.Duration `yaml:"retryAfter"` // told in whole seconds, rounded up
	After      int               `yaml:"after"`
	Times      int               `yaml:"times"`
}

// Pause holds a stream, for a duration or, with none, until the client goes
// or the server is told to release.
type Pause struct {
	For   tallyman.Duration `yaml:"for"`
	After int               `yaml:"after"`
	Times int               `yaml:"times"`
}

// Break cuts the connection.
type Break struct {
	After int `yaml:"after"`
	Times int `yaml:"times"`
}

// Usage is the tokens that a call reports, by kind, without overlap: Input
// counts neither kind of cache. Formats that report sums get sums.
type Usage struct {
	Input      int64 `yaml:"input"`
	Output     int64 `yaml:"output"`
	CacheRead  int64 `yaml:"cacheRead"`
	CacheWrite int64 `yaml:"cacheWrite"`
}

// DefaultUsage is what a call reports that nothing else is said about. Every
// kind is there, so that a reader who mixes them up is found out.
var DefaultUsage = Usage{Input: 12, Output: 23, CacheRead: 100, CacheWrite: 5}

// MaxFlood is the most text that one block may make, in bytes.
const MaxFlood = 256 << 20

// Format is a provider's wire format.
type Format string

// The formats.
const (
	Anthropic Format = "anthropic" // POST /v1/messages
	Responses Format = "responses" // POST /v1/responses
	Chat      Format = "chat"      // POST /v1/chat/completions
	Gemini    Format = "gemini"    // POST /v1beta/models/MODEL:generateContent and :streamGenerateContent
)

var formats = []Format{Anthropic, Responses, Chat, Gemini}

var stops = []string{"end_turn", "tool_use", "max_tokens", "stop_sequence", "refusal", "pause_turn", "model_context_window_exceeded"}
