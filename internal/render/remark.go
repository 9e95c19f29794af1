package render

import (
	"encoding/json"
	"strconv"
	"strings"

	"github.com/tallyman-dev/tallyman"
)

// remark tells the events that are neither text nor calls.
func remark(l *Line, e tallyman.Event) {
	name, first := OneLine(e.Name, maxHead), OneLine(e.Text, maxHead)
	switch e.Type {
	case tallyman.EventError:
		l.Kind, l.Failed = KindError, true
		l.Head, l.Body = joined("error", name, first), beyond(e.Text)
	case tallyman.EventRetry:
		l.Kind, l.Head = KindNotice, joined("retry", name, first)
	case tallyman.EventSubtask:
		l.Kind, l.Muted = KindSubtask, !e.Failed
		l.Head, l.Body = joined("sub-agent", name, first), beyond(e.Text)
		if first == "" && l.Muted {
			l.Kind = KindMark // it says no more than that something is going on
		}
	case tallyman.EventHook:
		l.Kind, l.Muted = KindNotice, !e.Failed
		l.Head, l.Body = joined("hook", name, verdict(e.Failed), first), beyond(e.Text)
	case tallyman.EventPermission:
		l.Kind, l.Head = KindNotice, joined("permission", name, first)
		l.Body = beyond(e.Text)
	case tallyman.EventCommandRefused:
		l.Kind, l.Failed, l.Head = KindError, true, joined("command refused", name, first)
	case tallyman.EventAgentLost:
		l.Kind, l.Failed, l.Head = KindError, true, joined("agent lost", first)
	case tallyman.EventArtifact:
		l.Kind, l.Head = KindArtifact, joined("artifact", name, artifactSize(e.Data))
	case tallyman.EventUsage:
		l.Kind, l.Muted, l.Head = KindMark, true, joined("usage", usage(e.Usage))
	case tallyman.EventTurnStarted:
		l.Kind, l.Muted, l.Head = KindMark, true, joined("turn "+strconv.Itoa(e.Turn)+" started", name)
	case tallyman.EventTurnCompleted:
		l.Kind, l.Muted, l.Head = KindMark, true, joined("turn "+strconv.Itoa(e.Turn)+" completed", usage(e.Usage))
	case tallyman.EventRunnerStarted, tallyman.EventAgentStarted, tallyman.EventAgentExited,
		tallyman.EventCommandAdmitted, tallyman.EventCommandDone:
		l.Kind, l.Muted = KindMark, true
		l.Head = joined(strings.ReplaceAll(string(e.Type), ".", " "), name, first, process(e))
	case tallyman.EventNotice:
		l.Kind, l.Muted = KindNotice, !e.Failed
		if strings.HasPrefix(name, "system/") && !e.Failed {
			l.Kind = KindMark // what a harness tells of itself and we know nothing of
		}
		if name == "note" {
			name = ""
		}
		l.Head, l.Body = joined(name, first, rawCut(e.RawCut)), beyond(e.Text)
		if l.Head == "" {
			l.Head = "notice"
		}
	default:
		l.Kind, l.Muted = KindNotice, true
		l.Head, l.Body = joined(OneLine(string(e.Type), maxHead), name, first), beyond(e.Text)
		if l.Head == "" {
			l.Head = "an event without a type"
		}
	}
}

// process says which program was started, or how it ended.
func process(e tallyman.Event) string {
	var p struct {
		Program  string `json:"program"`
		ExitCode *int   `json:"exit_code"`
		Signal   string `json:"signal"`
	}
	switch {
	case e.Type != tallyman.EventAgentStarted && e.Type != tallyman.EventAgentExited || json.Unmarshal(e.Data, &p) != nil:
		return ""
	case p.Signal != "":
		return "by " + OneLine(p.Signal, maxHead)
	case p.ExitCode != nil:
		return "with code " + strconv.Itoa(*p.ExitCode)
	default:
		return OneLine(p.Program, maxHead)
	}
}

// beyond returns the text when the one line of the head does not tell it all.
func beyond(text string) string {
	clean := strings.TrimSpace(Clean(text))
	if OneLine(text, maxHead) == clean {
		return ""
	}
	return clean
}

func verdict(failed bool) string {
	if failed {
		return "failed"
	}
	return "ok"
}

func usage(u *tallyman.Usage) string {
	if u == nil {
		return ""
	}
	cost := "cost unknown"
	if u.CostSource == tallyman.CostHarness || u.CostSource == tallyman.CostEstimated {
		cost = Cost(u.CostUSD)
	}
	return Tokens(*u) + ", " + cost
}

func artifactSize(data json.RawMessage) string {
	var a struct {
		Size *int64 `json:"size"`
	}
	if json.Unmarshal(data, &a) != nil || a.Size == nil {
		return ""
	}
	return Bytes(*a.Size)
}

func rawCut(c *tallyman.RawCut) string {
	if c == nil {
		return ""
	}
	return "a line of " + Bytes(c.Bytes) + ", kept in part"
}
