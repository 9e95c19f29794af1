package tallyman

import (
	"encoding/base64"
	"encoding/json"
	"strconv"
	"time"
	"unicode/utf8"
)

// EventType names what an event tells.
type EventType string

// The event types.
const (
	EventRunnerStarted   EventType = "runner.started"
	EventRunnerEnded     EventType = "runner.ended" // the last of a journal; data is an Outcome
	EventSetupStarted    EventType = "setup.started"
	EventSetupOutput     EventType = "setup.output"
	EventSetupFinished   EventType = "setup.finished"
	EventAgentStarted    EventType = "agent.started"
	EventAgentExited     EventType = "agent.exited"
	EventAgentLost       EventType = "agent.lost"
	EventAgentStderr     EventType = "agent.stderr"
	EventCommandAdmitted EventType = "command.admitted"
	EventCommandRefused  EventType = "command.refused"
	EventCommandDone     EventType = "command.done"
	EventTurnStarted     EventType = "turn.started"
	EventTurnCompleted   EventType = "turn.completed"
	EventText            EventType = "text"
	EventThinking        EventType = "thinking"
	EventToolStarted     EventType = "tool.started"
	EventToolOutput      EventType = "tool.output"
	EventToolFinished    EventType = "tool.finished"
	EventSubtask         EventType = "subtask"
	EventUsage           EventType = "usage"
	EventRetry           EventType = "retry"
	EventHook            EventType = "hook"
	EventPermission      EventType = "permission"
	EventNotice          EventType = "notice"
	EventError           EventType = "error"
	EventArtifact        EventType = "artifact"
	EventResult          EventType = "result"
)

// MaxRaw is how large a line may be to be kept whole; of a larger one the
// journal keeps head, tail and digest.
const MaxRaw = 8 << 20

// Event is one entry of a journal. It does not hold its cursor: its place in
// the journal is its cursor, and attempt.cursor its id within the run.
type Event struct {
	Time   time.Time `json:"time"`
	Type   EventType `json:"type"`
	Turn   int       `json:"turn,omitempty"`
	Parent string    `json:"parent,omitempty"`  // the tool call whose sub-agent this belongs to
	ToolID string    `json:"tool_id,omitempty"` // pairs tool.started with tool.finished
	Name   string    `json:"name,omitempty"`    // of the tool, hook, artifact; the kind of a notice
	Text   string    `json:"text,omitempty"`
	Failed bool      `json:"failed,omitempty"` // of a tool, hook or set-up step
	// Partial: the block was open when the stream ended.
	Partial bool            `json:"partial,omitempty"`
	Usage   *Usage          `json:"usage,omitempty"` // totals of the attempt so far
	Data    json.RawMessage `json:"data,omitempty"`  // particular to the type: a tool's input, an outcome
	// Raw is the line that the harness wrote, on the first event it gave.
	Raw    json.RawMessage `json:"raw,omitempty"`
	RawB64 []byte          `json:"raw_b64,omitempty"` // the line, when it is not valid UTF-8 or not JSON
	RawCut *RawCut         `json:"raw_cut,omitempty"` // instead of a line above MaxRaw
}

// RawCut stands for a line that is too long to keep.
type RawCut struct {
	Bytes  int64  `json:"bytes"`
	SHA256 string `json:"sha256"`
	Head   []byte `json:"head"` // base64; the first 64 KiB
	Tail   []byte `json:"tail"` // base64; the last 64 KiB
}

// EventTime is how times are written: UTC, microseconds.
const EventTime = "2006-01-02T15:04:05.000000Z"

// AppendJSON appends the event as one line of JSON, without the newline. Raw
// and Data must be valid JSON without line breaks. Invalid UTF-8 in strings
// becomes U+FFFD.
func (e *Event) AppendJSON(b []byte) []byte {
	b = append(b, `{"time":"`...)
	b = e.Time.UTC().AppendFormat(b, EventTime)
	b = append(b, `","type":"`...)
	b = append(b, e.Type...)
	b = append(b, '"')
	if e.Turn != 0 {
		b = append(b, `,"turn":`...)
		b = strconv.AppendInt(b, int64(e.Turn), 10)
	}
	b = appendField(b, `,"parent":`, e.Parent)
	b = appendField(b, `,"tool_id":`, e.ToolID)
	b = appendField(b, `,"name":`, e.Name)
	b = appendField(b, `,"text":`, e.Text)
	if e.Failed {
		b = append(b, `,"failed":true`...)
	}
	if e.Partial {
		b = append(b, `,"partial":true`...)
	}
	if e.Usage != nil {
		b = appendValue(b, `,"usage":`, e.Usage)
	}
	if len(e.Data) > 0 {
		b = append(append(b, `,"data":`...), e.Data...)
	}
	if len(e.Raw) > 0 {
		b = append(append(b, `,"raw":`...), e.Raw...)
	}
	if len(e.RawB64) > 0 {
		b = append(b, `,"raw_b64":"`...)
		b = base64.StdEncoding.AppendEncode(b, e.RawB64)
		b = append(b, '"')
	}
	if e.RawCut != nil {
		b = appendValue(b, `,"raw_cut":`, e.RawCut)
	}
	return append(b, '}')
}

func appendField(b []byte, key, value string) []byte {
	if value == "" {
		return b
	}
	return AppendString(append(b, key...), value)
}

// appendValue encodes what cannot fail to encode: our own plain structs. A
// float that JSON has no word for is left out.
func appendValue(b []byte, key string, v any) []byte {
	j, err := json.Marshal(v)
	if err != nil {
		return b
	}
	return append(append(b, key...), j...)
}

const hexDigits = "0123456789abcdef"

// AppendString appends s as a JSON string. Invalid UTF-8 becomes U+FFFD.
func AppendString(b []byte, s string) []byte {
	b = append(b, '"')
	start := 0
	for i := 0; i < len(s); {
		c := s[i]
		if c < utf8.RuneSelf {
			if c >= 0x20 && c != '"' && c != '\\' && c != 0x7f {
				i++
				continue
			}
			b = append(b, s[start:i]...)
			switch c {
			case '"', '\\':
				b = append(b, '\\', c)
			case '\n':
				b = append(b, '\\', 'n')
			case '\r':
				b = append(b, '\\', 'r')
			case '\t':
				b = append(b, '\\', 't')
			default:
				b = append(b, '\\', 'u', '0', '0', hexDigits[c>>4], hexDigits[c&15])
			}
			i++
			start = i
			continue
		}
		r, n := utf8.DecodeRuneInString(s[i:])
		if r == utf8.RuneError && n == 1 {
			b = append(b, s[start:i]...)
			b = append(b, "\uFFFD"...)
			i += n
			start = i
			continue
		}
		i += n
	}
	b = append(b, s[start:]...)
	return append(b, '"')
}
