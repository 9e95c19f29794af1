package harness

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/tallyman-dev/tallyman"
)

// maxArgument is how long one argument may be: Linux allows 128 KiB.
const maxArgument = 120 << 10

// claudeOptions is what an agent of harness claude may set.
type claudeOptions struct {
	PermissionMode     string
	AllowedTools       []string
	DisallowedTools    []string
	SystemPrompt       string
	AppendSystemPrompt string
	JSONSchema         json.RawMessage
	Settings           json.RawMessage
	PluginDirs         []string
	AddDirs            []string
	IncludeHookEvents  bool
	Effort             string
	FallbackModel      string
	Args               []string

	mcp      map[string]json.RawMessage // without what is ours
	required []string                   // servers that must be connected
}

// keys are the settings by name, and where each goes.
func (o *claudeOptions) keys() map[string]any {
	return map[string]any{
		"permissionMode":     &o.PermissionMode,
		"allowedTools":       &o.AllowedTools,
		"disallowedTools":    &o.DisallowedTools,
		"systemPrompt":       &o.SystemPrompt,
		"appendSystemPrompt": &o.AppendSystemPrompt,
		"jsonSchema":         &o.JSONSchema,
		"settings":           &o.Settings,
		"pluginDirs":         &o.PluginDirs,
		"addDirs":            &o.AddDirs,
		"includeHookEvents":  &o.IncludeHookEvents,
		"effort":             &o.Effort,
		"fallbackModel":      &o.FallbackModel,
		"args":               &o.Args,
	}
}

func (o claudeOptions) skipsPermissions() bool {
	return o.PermissionMode == "" || o.PermissionMode == "bypassPermissions"
}

// readClaudeOptions returns everything that is wrong at once.
func readClaudeOptions(agent tallyman.AgentSpec) (claudeOptions, error) {
	var o claudeOptions
	wrong := o.readSettings(agent.Settings)
	wrong = append(wrong, o.readServers(agent.MCPServers)...)
	if strings.HasPrefix(agent.Model, "-") {
		wrong = append(wrong, fmt.Sprintf("model %q is not a model: it begins with a dash", agent.Model))
	}
	if len(wrong) > 0 {
		return o, invalidSpec("%s", strings.Join(wrong, "; "))
	}
	return o, nil
}

func (o *claudeOptions) readSettings(settings map[string]json.RawMessage) (wrong []string) {
	keys := o.keys()
	for _, key := range slices.Sorted(maps.Keys(settings)) {
		target, ok := keys[key]
		if !ok {
			known := slices.Sorted(maps.Keys(keys))
			wrong = append(wrong, fmt.Sprintf("settings.%s is unknown%s", key, didYouMean(key, known)))
			continue
		}
		if err := setOption(target, settings[key]); err != nil {
			wrong = append(wrong, fmt.Sprintf("settings.%s: %v", key, err))
		}
	}
	return wrong
}

func setOption(target any, value json.RawMessage) error {
	switch t := target.(type) {
	case *string:
		if err := json.Unmarshal(value, t); err != nil {
			return fmt.Errorf("a string is wanted")
		}
		if len(*t) > maxArgument {
			return fmt.Errorf("%d bytes are more than an argument can hold (%d)", len(*t), maxArgument)
		}
	case *[]string:
		if err := json.Unmarshal(value, t); err != nil {
			return fmt.Errorf("a list of strings is wanted")
		}
	case *bool:
		if err := json.Unmarshal(value, t); err != nil {
			return fmt.Errorf("true or false is wanted")
		}
	case *json.RawMessage:
		var object map[string]json.RawMessage
		if err := json.Unmarshal(value, &object); err != nil || object == nil {
			return fmt.Errorf("an object is wanted")
		}
		*t = value
	default:
		return fmt.Errorf("settings cannot hold a %T", target)
	}
	return nil
}

func (o *claudeOptions) readServers(servers map[string]json.RawMessage) (wrong []string) {
	if len(servers) > 0 {
		o.mcp = make(map[string]json.RawMessage, len(servers))
	}
	for _, name := range slices.Sorted(maps.Keys(servers)) {
		var server map[string]json.RawMessage
		if err := json.Unmarshal(servers[name], &server); err != nil || server == nil {
			wrong = append(wrong, fmt.Sprintf("mcpServers.%s: an object is wanted", name))
			continue
		}
		switch string(server["required"]) {
		case "true":
			o.required = append(o.required, name)
		case "false", "":
		default:
			wrong = append(wrong, fmt.Sprintf("mcpServers.%s.required: true or false is wanted", name))
		}
		delete(server, "required")
		o.mcp[name] = encode(server)
	}
	return wrong
}

// mcpFile is what claude reads with --mcp-config.
func (o claudeOptions) mcpFile() []byte {
	return encode(map[string]any{"mcpServers": o.mcp})
}

// encode writes what cannot fail to be written: maps of decoded JSON and
// structs of our own.
func encode(v any) []byte {
	var b strings.Builder
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		return nil
	}
	return []byte(strings.TrimSuffix(b.String(), "\n"))
}
