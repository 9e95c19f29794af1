package harness

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/tidwall/gjson"

	"github.com/tallyman-dev/tallyman"
)

// system reads what claude tells about itself. What it leaves without an
// event becomes a notice.
func (p *claudeParser) system(subtype string, out *Batch) {
	switch subtype {
	case "init":
		p.init(out)
	case "api_retry":
		p.retry(out)
	case "hook_started", "hook_progress", "hook_response":
		p.hook(subtype, out)
	case "task_started", "task_progress", "task_updated", "task_notification":
		p.task(subtype, out)
	case "background_tasks_changed":
		p.tasksChanged()
	case "session_state_changed":
		if p.str("state") == "idle" {
			clear(p.background)
			p.queued = false
		}
	case "permission_denied":
		e := p.event(tallyman.EventPermission, "")
		e.Name, e.ToolID, e.Text = p.str("tool_name"), p.str("tool_use_id"), p.str("message")
		e.Failed = true
		out.Events = append(out.Events, e)
	}
}

// init comes at the start of each turn; the newest counts.
func (p *claudeParser) init(out *Batch) {
	p.begun = true
	began := p.openTurn()
	line := view(p.clean)
	if model := gjson.Get(line, "model").String(); model != "" {
		p.spent.model = strings.Clone(model)
	}
	p.servers = p.servers[:0]
	gjson.Get(line, "mcp_servers").ForEach(func(_, s gjson.Result) bool {
		p.servers = append(p.servers, mcpServer{
			name: strings.Clone(s.Get("name").String()), status: strings.Clone(s.Get("status").String()),
		})
		return true
	})
	p.pluginErrors = p.pluginErrors[:0]
	gjson.Get(line, "plugin_errors").ForEach(func(_, e gjson.Result) bool {
		p.pluginErrors = append(p.pluginErrors, firstWords(e.Get("plugin").String()+": "+e.Get("message").String()))
		return true
	})
	e := p.event(tallyman.EventNotice, "")
	e.Name, e.Data = "init", initData(line)
	e.Text = fmt.Sprintf("claude %s, model %s, %d tools", gjson.Get(line, "claude_code_version"),
		p.spent.model, gjson.Get(line, "tools.#").Int())
	out.Events = append(out.Events, e)
	if began {
		out.Events = append(out.Events, p.event(tallyman.EventTurnStarted, ""))
	}
}

// initData is the part of an init line that people ask for: lists of names
// are counted.
func initData(line string) []byte {
	b := []byte{'{'}
	add := func(key, value string) {
		if value == "" {
			return
		}
		if len(b) > 1 {
			b = append(b, ',')
		}
		b = append(append(append(b, '"'), key...), `":`...)
		b = append(b, value...)
	}
	for _, key := range []string{"model", "session_id", "claude_code_version", "permissionMode", "cwd", "mcp_servers", "plugins", "plugin_errors"} {
		add(key, gjson.Get(line, key).Raw)
	}
	for _, key := range []string{"tools", "skills", "agents", "slash_commands"} {
		if list := gjson.Get(line, key); list.IsArray() {
			add(key, strconv.Itoa(int(list.Get("#").Int())))
		}
	}
	return data(append(b, '}'))
}

func (p *claudeParser) retry(out *Batch) {
	line := view(p.clean)
	attempt, most := count(gjson.Get(line, "attempt")), count(gjson.Get(line, "max_retries"))
	delay, status := count(gjson.Get(line, "retry_delay_ms")), count(gjson.Get(line, "error_status"))
	e := p.event(tallyman.EventRetry, "")
	e.Name = p.str("error")
	e.Text = fmt.Sprintf("retry %d of %d in %d ms", attempt, most, delay)
	if e.Name != "" {
		e.Text += ": " + e.Name
	}
	if status != 0 {
		e.Text += fmt.Sprintf(" (%d)", status)
	}
	e.Data = fmt.Appendf(nil, `{"attempt":%d,"max_retries":%d,"delay_ms":%d,"status":%d}`, attempt, most, delay, status)
	out.Events = append(out.Events, e)
}

func (p *claudeParser) hook(subtype string, out *Batch) {
	e := p.event(tallyman.EventHook, "")
	e.Name = p.str("hook_name")
	e.Text = p.str("output")
	outcome := p.str("outcome")
	e.Failed = outcome != "" && outcome != "success"
	phase := strings.TrimPrefix(subtype, "hook_")
	e.Data = fmt.Appendf(nil, `{"phase":%q,"exit_code":%d}`, phase, gjson.Get(view(p.clean), "exit_code").Int())
	out.Events = append(out.Events, e)
}

// task reads about sub-agents and background commands. Name is what happened:
// started, progress, updated or notification.
func (p *claudeParser) task(subtype string, out *Batch) {
	line := view(p.clean)
	id := p.str("task_id")
	status := p.str("status")
	if status == "" {
		status = gjson.Get(line, "patch.status").String()
	}
	e := p.event(tallyman.EventSubtask, "")
	e.Name, e.ToolID = strings.TrimPrefix(subtype, "task_"), p.str("tool_use_id")
	for _, key := range []string{"summary", "description"} {
		if e.Text == "" {
			e.Text = p.str(key)
		}
	}
	e.Failed = status == "failed"
	e.Data = taskData(id, status, p.str("task_type"))
	out.Events = append(out.Events, e)
	switch {
	case subtype == "task_started" && len(p.background) < maxOpen:
		p.background[strings.Clone(id)] = true
	case subtype == "task_notification", slices.Contains([]string{"completed", "failed", "killed", "stopped"}, status):
		delete(p.background, id)
	}
}

func taskData(id, status, kind string) []byte {
	b := tallyman.AppendString([]byte(`{"task_id":`), id)
	if status != "" {
		b = tallyman.AppendString(append(b, `,"status":`...), status)
	}
	if kind != "" {
		b = tallyman.AppendString(append(b, `,"task_type":`...), kind)
	}
	return append(b, '}')
}

// tasksChanged takes the full set of tasks that live.
func (p *claudeParser) tasksChanged() {
	clear(p.background)
	for task := range elements(p.get("tasks")) {
		id := gjson.GetBytes(task, "task_id").String()
		if id == "" {
			id = gjson.GetBytes(task, "id").String()
		}
		if id != "" && len(p.background) < maxOpen {
			p.background[id] = true
		}
	}
}

func (p *claudeParser) rateLimit(out *Batch) {
	info := p.get("rate_limit_info")
	e := p.event(tallyman.EventNotice, "")
	e.Name, e.Data = "rate_limit_event", data(info)
	e.Text = strings.TrimSpace(gjson.GetBytes(info, "status").String() + " " + gjson.GetBytes(info, "rateLimitType").String())
	out.Events = append(out.Events, e)
}
