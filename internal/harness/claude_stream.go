package harness

import (
	"strconv"
	"strings"

	"github.com/tallyman-dev/tallyman"
)

// streamEvent reads an event of the model's own stream. The whole blocks
// follow in assistant lines, so text is told here as deltas only.
func (p *claudeParser) streamEvent(event []byte, parent string, out *Batch) {
	var kind, index, delta, block, message, usage []byte
	for key, value := range fields(event) {
		switch string(key) {
		case "type":
			kind = value
		case "index":
			index = value
		case "delta":
			delta = value
		case "content_block":
			block = value
		case "message":
			message = value
		case "usage":
			usage = value
		}
	}
	switch inner(kind) {
	case "content_block_delta":
		p.delta(number(index), delta, parent, out)
	case "content_block_start":
		if kind := blockKind(block); kind != "" {
			p.blocks.start(parent, p.messages[parent], number(index), kind)
		}
	case "message_start":
		p.blocks.abandon(p.turn, parent, out)
		p.messageStart(message, parent)
	case "message_delta":
		if p.spent.see(p.messages[parent], "", usage, parent == "") {
			total := p.spent.total()
			e := p.event(tallyman.EventUsage, parent)
			e.Usage = &total
			out.Events = append(out.Events, e)
		}
	}
}

func (p *claudeParser) messageStart(message []byte, parent string) {
	var id, model, usage []byte
	for key, value := range fields(message) {
		switch string(key) {
		case "id":
			id = value
		case "model":
			model = value
		case "usage":
			usage = value
		}
	}
	if len(p.messages) < maxOpen {
		p.messages[strings.Clone(parent)] = strings.Clone(inner(id))
	}
	p.spent.see(inner(id), inner(model), usage, parent == "")
}

func blockKind(block []byte) tallyman.EventType {
	for key, value := range fields(block) {
		if string(key) != "type" {
			continue
		}
		switch inner(value) {
		case "text":
			return tallyman.EventText
		case "thinking":
			return tallyman.EventThinking
		}
	}
	return ""
}

func (p *claudeParser) delta(index int, delta []byte, parent string, out *Batch) {
	for key, value := range fields(delta) {
		switch string(key) {
		case "text":
			p.blocks.add(parent, p.messages[parent], index, tallyman.EventText, p.text.of(value), out)
		case "thinking":
			p.blocks.add(parent, p.messages[parent], index, tallyman.EventThinking, p.text.of(value), out)
		}
	}
}

// number reads a small whole number, 0 for anything else.
func number(v []byte) int {
	n, err := strconv.Atoi(view(v))
	if err != nil {
		return 0
	}
	return n
}
