package strictyaml

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strconv"

	"github.com/goccy/go-yaml/ast"
)

// raw returns the JSON of a node of any shape. Keys are texts in the order of
// the file; numbers keep their value.
func (w *walker) raw(path string, outer ast.Node) ([]byte, bool) {
	defer w.leave()
	if !w.enter(path, outer) {
		return nil, false
	}
	n, k, text, ok := w.resolve(path, outer)
	if !ok || !w.spend(outer, len(text)) {
		return nil, false
	}
	switch k {
	case kindNull:
		return []byte("null"), true
	case kindText:
		return quote(text), true
	case kindBool:
		return strconv.AppendBool(nil, n.(*ast.BoolNode).Value), true
	case kindNumber:
		if out, ok := number(n); ok {
			return out, true
		}
		return w.wrong(path, outer, k, text, "JSON has no such number; write it in quotes")
	case kindList:
		return w.rawList(path, n.(*ast.SequenceNode)), true
	case kindMapping:
		var out object
		for _, e := range w.entries(path, n) {
			if v, ok := w.raw(join(path, e.key), e.value); ok {
				out.add(e.key, v)
			}
		}
		return out.end(), true
	default:
		return w.wrong(path, outer, k, text, "write a value")
	}
}

func (w *walker) rawList(path string, n *ast.SequenceNode) []byte {
	var out bytes.Buffer
	out.WriteByte('[')
	for i, item := range n.Values {
		if i > 0 {
			out.WriteByte(',')
		}
		v, ok := w.raw(fmt.Sprintf("%s[%d]", path, i), item)
		if !ok {
			v = []byte("null")
		}
		out.Write(v)
	}
	out.WriteByte(']')
	return out.Bytes()
}

// number returns a number as JSON writes it; false for those it cannot.
func number(n ast.Node) ([]byte, bool) {
	switch n := n.(type) {
	case *ast.IntegerNode:
		switch v := n.Value.(type) {
		case int64:
			return strconv.AppendInt(nil, v, 10), true
		case uint64:
			return strconv.AppendUint(nil, v, 10), true
		}
	case *ast.StringNode: // in JSON's own form: see kindOf
		_, err := strconv.ParseFloat(n.Value, 64)
		return []byte(n.Value), err == nil
	case *ast.FloatNode:
		// Not the node's own value: that is 0 when the text is beyond all floats.
		v, err := strconv.ParseFloat(n.Token.Value, 64)
		if err != nil {
			return nil, false
		}
		out, err := json.Marshal(v)
		return out, err == nil
	}
	return nil, false
}

// quote writes a JSON string.
func quote(s string) []byte {
	var out bytes.Buffer
	enc := json.NewEncoder(&out)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(s); err != nil {
		return []byte(`""`) // a string always encodes
	}
	return bytes.TrimSuffix(out.Bytes(), []byte("\n"))
}

// object writes a JSON object key by key.
type object struct{ out bytes.Buffer }

func (o *object) add(key string, value []byte) {
	sep := byte(',')
	if o.out.Len() == 0 {
		sep = '{'
	}
	o.out.WriteByte(sep)
	o.out.Write(quote(key))
	o.out.WriteByte(':')
	o.out.Write(value)
}

func (o *object) end() []byte {
	if o.out.Len() == 0 {
		return []byte("{}")
	}
	o.out.WriteByte('}')
	return o.out.Bytes()
}
