package runner

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/tallyman-dev/tallyman"
	"github.com/tallyman-dev/tallyman/internal/journal"
)

// maxResult is how much of a result is kept in an outcome. Encoded it may be
// six times as long, and is still less than a record, or a report, may be.
const maxResult = 8 << 20

// maxText is how long an event may get by its text. The raw line may have
// MaxRaw bytes, and a text that is made of it as many; what is longer was made
// so by encoding, and a server holds several of them at a time.
const maxText = 20 << 20

// appendEvent encodes an event. A text that made it too long is kept as its
// ends, and whole as the raw line. What would be no record even so, because
// one line gave too much, keeps the ends of everything that is long in it.
func appendEvent(b []byte, e *tallyman.Event) []byte {
	start := len(b)
	b = e.AppendJSON(b)
	if len(b)-start > maxText && len(e.Text) > 2*keepEnds {
		if e.Raw == nil && e.RawB64 == nil && e.RawCut == nil {
			e.RawB64 = []byte(e.Text)
		}
		e.Text = ends(e.Text)
		b = e.AppendJSON(b[:start])
	}
	if len(b)-start <= journal.MaxRecord {
		return b
	}
	shrink(e)
	return e.AppendJSON(b[:start])
}

// shrink keeps head and tail of everything in an event that is long.
func shrink(e *tallyman.Event) {
	for _, s := range []*string{&e.Parent, &e.ToolID, &e.Name, &e.Text} {
		*s = ends(*s)
	}
	if len(e.Data) > 2*keepEnds {
		e.Data = data(map[string]any{
			"cut_bytes": len(e.Data),
			"head":      strings.ToValidUTF8(string(e.Data[:keepEnds]), ""),
			"tail":      strings.ToValidUTF8(string(e.Data[len(e.Data)-keepEnds:]), ""),
		})
	}
	for _, raw := range [][]byte{e.Raw, e.RawB64} {
		if len(raw) > 2*keepEnds {
			sum := sha256.Sum256(raw)
			e.RawCut = &tallyman.RawCut{
				Bytes: int64(len(raw)), SHA256: hex.EncodeToString(sum[:]),
				Head: bytes.Clone(raw[:keepEnds]), Tail: bytes.Clone(raw[len(raw)-keepEnds:]),
			}
			e.Raw, e.RawB64 = nil, nil
		}
	}
}

// ends is a text without its middle, when it is long.
func ends(s string) string {
	if len(s) <= 2*keepEnds {
		return s
	}
	head, tail := strings.ToValidUTF8(s[:keepEnds], ""), strings.ToValidUTF8(s[len(s)-keepEnds:], "")
	return fmt.Sprintf("%s\n[… %d bytes are not kept …]\n%s", head, len(s)-len(head)-len(tail), tail)
}

// fit cuts what an outcome holds of a result to what a record can hold.
func fit(out tallyman.Outcome) tallyman.Outcome {
	if n := len(out.Result); n > maxResult {
		kept := strings.ToValidUTF8(out.Result[:maxResult], "")
		out.Result = fmt.Sprintf("%s\n[… the last %d bytes of the result are not kept]", kept, n-len(kept))
	}
	if n := len(out.Structured); n > maxResult {
		out.Structured = nil // half a document is none
		out.Message = strings.TrimPrefix(fmt.Sprintf("%s; the structured result, %d bytes, is too long to be kept", out.Message, n), "; ")
	}
	return out
}

// encode encodes a value without what HTML would need: that makes a sign in
// it six times as long.
func encode(v any) ([]byte, error) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return nil, err
	}
	return bytes.TrimSuffix(b.Bytes(), []byte{'\n'}), nil
}

// data is the particular part of an event: our own plain values, which cannot
// fail to encode.
func data(v any) json.RawMessage {
	b, err := encode(v)
	if err != nil {
		return nil
	}
	return b
}
