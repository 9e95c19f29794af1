package fakemodel

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
)

// frame is one server-sent event.
type frame struct {
	event string // "" where the format has no names
	data  any    // JSON, or a string that is sent as it is
	piece bool   // a part of a block: counted and delayed
}

// wire writes replies in one format. It is used for one reply only. Blocks
// are text, thinking, tool calls and refusals.
type wire interface {
	begin() []frame // is called first
	block(b Block, pieces []string) []frame
	fail(f *Fault) []frame
	end() []frame
	// whole is the answer to a call that does not stream.
	whole(blocks []Block) any
}

// player sends one reply.
type player struct {
	server *Server
	call   *call
	w      http.ResponseWriter
	out    *http.ResponseController
	talk   *talk
	reply  Reply

	wire    wire
	started bool    // the status is sent
	over    bool    // a fault has ended the reply
	pending []Block // faults, stalls and cuts that wait for more pieces
}

// play sends the reply. Its error says that it was not sent to its end.
func (p *player) play(ctx context.Context) error {
	p.wire = newWire(p.talk, p.reply)
	if !p.talk.stream {
		return p.playWhole(ctx)
	}
	for _, b := range p.reply.Blocks {
		if err := p.step(ctx, b); err != nil || p.over {
			return err
		}
	}
	for len(p.pending) > 0 {
		b := p.pending[0]
		p.pending = p.pending[1:]
		if err := p.act(ctx, b); err != nil || p.over {
			return err
		}
	}
	frames := p.greet()
	return p.send(ctx, append(frames, p.wire.end()...))
}

// greet returns what comes before all else, once.
func (p *player) greet() []frame {
	if p.started {
		return nil
	}
	return p.wire.begin()
}

func (p *player) step(ctx context.Context, b Block) error {
	switch {
	case b.after() > 0:
		p.pending = append(p.pending, b)
		return nil
	case b.Error != nil, b.Stall != nil, b.Cut != nil:
		return p.act(ctx, b)
	default:
		frames := p.greet()
		return p.send(ctx, append(frames, p.wire.block(b, p.reply.pieces(b))...))
	}
}

// after is how many pieces are let pass before the block is carried out.
func (b Block) after() int {
	switch {
	case b.Error != nil:
		return b.Error.After
	case b.Stall != nil:
		return b.Stall.After
	case b.Cut != nil:
		return b.Cut.After
	default:
		return 0
	}
}

// act carries out a fault, a stall or a cut.
func (p *player) act(ctx context.Context, b Block) error {
	switch {
	case b.Stall != nil:
		return p.server.stall(ctx, b.Stall.For.D())
	case b.Cut != nil:
		return errCut
	}
	p.over = true
	if p.started {
		return p.write(ctx, p.wire.fail(b.Error))
	}
	if err := p.server.gate(ctx); err != nil {
		return err
	}
	return p.server.refuse(p.w, p.call, b.Error)
}

// playWhole answers a call that does not stream: what would interrupt the
// stream comes before the answer.
func (p *player) playWhole(ctx context.Context) error {
	var blocks []Block
	for _, b := range p.reply.Blocks {
		if b.Error == nil && b.Stall == nil && b.Cut == nil {
			blocks = append(blocks, b)
			continue
		}
		if err := p.act(ctx, b); err != nil || p.over {
			return err
		}
	}
	if err := p.server.gate(ctx); err != nil {
		return err
	}
	p.server.status(p.call, http.StatusOK)
	writeJSON(p.w, http.StatusOK, p.wire.whole(blocks))
	return nil
}

// send writes frames, and carries out what is due between two pieces.
func (p *player) send(ctx context.Context, frames []frame) error {
	for _, f := range frames {
		if f.piece && p.reply.Delay > 0 {
			if err := sleep(ctx, p.reply.Delay.D()); err != nil {
				return err
			}
		}
		if err := p.write(ctx, []frame{f}); err != nil {
			return err
		}
		if !f.piece {
			continue
		}
		if err := p.passed(ctx); err != nil || p.over {
			return err
		}
	}
	return nil
}

// passed counts one piece and carries out what has waited for it.
func (p *player) passed(ctx context.Context) error {
	waiting := p.pending
	p.pending = nil
	for _, b := range waiting {
		if b = b.oneLess(); b.after() > 0 {
			p.pending = append(p.pending, b)
			continue
		}
		if err := p.act(ctx, b); err != nil || p.over {
			return err
		}
	}
	return nil
}

// oneLess is the block with one piece less to wait for.
func (b Block) oneLess() Block {
	switch {
	case b.Error != nil:
		f := *b.Error
		f.After--
		b.Error = &f
	case b.Stall != nil:
		s := *b.Stall
		s.After--
		b.Stall = &s
	case b.Cut != nil:
		c := *b.Cut
		c.After--
		b.Cut = &c
	}
	return b
}

// write sends frames as they are, the status before the first.
func (p *player) write(ctx context.Context, frames []frame) error {
	for _, f := range frames {
		if err := p.server.gate(ctx); err != nil {
			return err
		}
		if !p.started {
			p.started = true
			p.server.status(p.call, http.StatusOK)
			h := p.w.Header()
			h.Set("Content-Type", "text/event-stream; charset=utf-8")
			h.Set("Cache-Control", "no-cache")
			h.Set("Request-Id", newID("req_"))
			p.w.WriteHeader(http.StatusOK)
		}
		b, err := f.encode()
		if err != nil {
			return err
		}
		if _, err := p.w.Write(b); err != nil {
			return fmt.Errorf("write to the client: %w", err)
		}
		if err := p.out.Flush(); err != nil {
			return fmt.Errorf("write to the client: %w", err)
		}
	}
	return nil
}

func (f frame) encode() ([]byte, error) {
	var b []byte
	if f.event != "" {
		b = append(append(append(b, "event: "...), f.event...), '\n')
	}
	b = append(b, "data: "...)
	if s, ok := f.data.(string); ok {
		b = append(b, s...)
	} else {
		data, err := json.Marshal(f.data)
		if err != nil {
			return nil, fmt.Errorf("encode %s: %w", f.event, err)
		}
		b = append(b, data...)
	}
	return append(b, "\n\n"...), nil
}

// pieces cuts what a block says, by runes.
func (r Reply) pieces(b Block) []string {
	text := b.Text + b.Thinking + b.Refusal // one of them
	if b.Tool != nil {
		text = string(b.Tool.raw)
	}
	size := r.Chunk
	if size == 0 {
		size = max(24, len(text)/256+1)
	}
	var list []string
	start, n := 0, 0
	for i := range text {
		if n == size {
			list = append(list, text[start:i])
			start, n = i, 0
		}
		n++
	}
	return append(list, text[start:])
}

func newWire(t *talk, r Reply) wire {
	switch t.format {
	case Responses:
		return newResponsesWire(t, r)
	case Chat:
		return newChatWire(t, r)
	case Gemini:
		return newGeminiWire(t, r)
	default:
		return newAnthropicWire(t, r)
	}
}

// parse reads a request's body in its format.
func parse(f Format, r *http.Request, body []byte) (*talk, *Fault) {
	switch f {
	case Responses:
		return parseResponses(body)
	case Chat:
		return parseChat(body)
	case Gemini:
		return parseGemini(r, body)
	default:
		return parseAnthropic(body)
	}
}
