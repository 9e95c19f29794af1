package harness

import (
	"cmp"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/tallyman-dev/tallyman"
)

// maxOpen bounds what is remembered of a stream that opens things and never
// closes them.
const maxOpen = 10_000

// openTools are the tool calls that have begun and not ended.
type openTools struct {
	calls map[string]openCall
	count int
}

type openCall struct {
	name, parent string
	order        int
}

func (o *openTools) start(id, name, parent string) {
	if o.calls == nil {
		o.calls = map[string]openCall{}
	}
	if id == "" || len(o.calls) >= maxOpen {
		return
	}
	o.count++
	o.calls[strings.Clone(id)] = openCall{strings.Clone(name), strings.Clone(parent), o.count}
}

// finish returns the name under which the call was started.
func (o *openTools) finish(id string) string {
	name := o.calls[id].name
	delete(o.calls, id)
	return name
}

// abandon ends every call for which which is true: their results will not come.
func (o *openTools) abandon(turn int, out *Batch, which func(parent string) bool) {
	ids := slices.SortedFunc(maps.Keys(o.calls), func(a, b string) int {
		return cmp.Compare(o.calls[a].order, o.calls[b].order)
	})
	for _, id := range ids {
		call := o.calls[id]
		if !which(call.parent) {
			continue
		}
		delete(o.calls, id)
		out.Events = append(out.Events, tallyman.Event{
			Type: tallyman.EventToolFinished, Turn: turn, Parent: call.parent,
			ToolID: id, Name: call.name, Failed: true, Partial: true,
		})
	}
}

// openBlocks are the blocks of text whose deltas have come and whose whole
// has not: one list for the main agent (parent "") and for each sub-agent.
type openBlocks struct{ of map[string][]*openBlock }

type openBlock struct {
	index int
	kind  tallyman.EventType
	key   string
	text  []byte
}

// start opens a block of a message.
func (o *openBlocks) start(parent, message string, index int, kind tallyman.EventType) *openBlock {
	if o.of == nil {
		o.of = map[string][]*openBlock{}
	}
	b := &openBlock{index: index, kind: kind, key: message + "." + strconv.Itoa(index)}
	if len(o.of[parent]) < maxOpen {
		o.of[strings.Clone(parent)] = append(o.of[parent], b)
	}
	return b
}

// add appends a delta to its block, opening one whose beginning was not seen.
func (o *openBlocks) add(parent, message string, index int, kind tallyman.EventType, words string, out *Batch) {
	var b *openBlock
	for _, open := range o.of[parent] {
		if open.index == index && open.kind == kind {
			b = open
		}
	}
	if b == nil {
		b = o.start(parent, message, index, kind)
	}
	if len(b.text) < maxText {
		b.text = append(b.text, words...)
	}
	out.Deltas = append(out.Deltas, tallyman.Delta{Delta: words, Type: kind, Parent: parent, Block: b.key})
}

// whole closes the oldest open block of a kind: its whole text has come.
func (o *openBlocks) whole(parent string, kind tallyman.EventType) {
	for i, b := range o.of[parent] {
		if b.kind == kind {
			o.of[parent] = slices.Delete(o.of[parent], i, i+1)
			return
		}
	}
}

// abandon ends the open blocks of a parent: their whole will not come.
func (o *openBlocks) abandon(turn int, parent string, out *Batch) {
	for _, b := range o.of[parent] {
		if len(b.text) > 0 {
			out.Events = append(out.Events, tallyman.Event{
				Type: b.kind, Turn: turn, Parent: parent, Text: string(b.text), Partial: true,
			})
		}
	}
	delete(o.of, parent)
}

func (o *openBlocks) abandonAll(turn int, out *Batch) {
	for _, parent := range slices.Sorted(maps.Keys(o.of)) {
		o.abandon(turn, parent, out)
	}
}
