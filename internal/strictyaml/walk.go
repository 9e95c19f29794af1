package strictyaml

import (
	"encoding"
	"encoding/json"
	"fmt"
	"reflect"
	"regexp"
	"slices"
	"strconv"

	"github.com/goccy/go-yaml/ast"
	"github.com/tallyman-dev/tallyman"
)

// What aliases may expand a document to. A file without them stays below.
const (
	maxNodes = 4 * maxTokens
	maxText  = 2 * MaxSize // bytes
)

// maxFaults is how many faults of a document are noted.
const maxFaults = 1000

var (
	rawType         = reflect.TypeFor[json.RawMessage]()
	durationType    = reflect.TypeFor[tallyman.Duration]()
	textUnmarshaler = reflect.TypeFor[encoding.TextUnmarshaler]()
	jsonUnmarshaler = reflect.TypeFor[json.Unmarshaler]()
)

// walker turns a tree into JSON that fits a Go type, and notes what does not.
type walker struct {
	doc    *Document
	text   []string // paths where any scalar is taken as text
	faults []*Fault
	noted  map[Fault]bool
	depth  int
	nodes  int // visited so far
	bytes  int // of text, so far
}

// fault notes a fault at a node; path is what it puts in doubt.
func (w *walker) fault(path string, n ast.Node, format string, args ...any) {
	w.faultAt(path, at(n), format, args...)
}

func (w *walker) faultAt(path string, p place, format string, args ...any) {
	f := Fault{File: w.doc.file, Line: p.line, Column: p.column, Message: fmt.Sprintf(format, args...)}
	if w.noted[f] || len(w.faults) == maxFaults {
		return // aliases bring the same place again and again
	}
	w.noted[f] = true
	w.doc.doubted = append(w.doc.doubted, path)
	w.faults = append(w.faults, &f)
}

// wrong notes a value of the wrong type and how to write it.
func (w *walker) wrong(path string, n ast.Node, k kind, text, want string) ([]byte, bool) {
	message := describe(k, text) + "; " + want
	if path != "" {
		message = path + ": " + message
	}
	w.fault(path, n, "%s", message)
	return nil, false
}

// spend counts a node and its text, and reports whether there may be more.
func (w *walker) spend(n ast.Node, bytes int) bool {
	if w.over() {
		return false
	}
	w.nodes, w.bytes = w.nodes+1, w.bytes+bytes
	if w.over() {
		w.fault("", n, "aliases make too much of this file: over %d values, or %d bytes of text", maxNodes, maxText)
	}
	return !w.over()
}

func (w *walker) over() bool { return w.nodes > maxNodes || w.bytes > maxText }

// enter goes one level down. Its end is always leave.
func (w *walker) enter(path string, n ast.Node) bool {
	w.depth++
	if w.depth > maxDepth {
		w.fault(path, n, "nested more than %d deep", maxDepth)
		return false
	}
	return true
}

func (w *walker) leave() { w.depth-- }

// value returns the JSON of a node that is to become a t. False: it does not
// fit, and a fault says why.
func (w *walker) value(path string, outer ast.Node, t reflect.Type) ([]byte, bool) {
	defer w.leave()
	if !w.enter(path, outer) {
		return nil, false
	}
	n, k, text, ok := w.resolve(path, outer)
	if !ok || !w.spend(outer, len(text)) {
		return nil, false
	}
	if k == kindNull && t != rawType {
		return []byte("null"), true
	}
	if _, known := w.doc.places[path]; !known {
		w.doc.places[path] = at(outer)
	}
	switch {
	case t == rawType:
		return w.raw(path, n)
	case t.Kind() == reflect.Pointer:
		return w.value(path, outer, t.Elem())
	case t == durationType && k == kindNumber && text != "0":
		return w.wrong(path, outer, k, text, "write a duration like 90s")
	case reflect.PointerTo(t).Implements(textUnmarshaler):
		return w.unmarshalText(path, outer, k, text, t)
	case k == kindText && t.Kind() == reflect.Struct && reflect.PointerTo(t).Implements(jsonUnmarshaler):
		return quote(text), true
	}
	switch t.Kind() {
	case reflect.Struct:
		return w.structure(path, outer, n, t)
	case reflect.Map:
		return w.mapping(path, outer, n, t)
	case reflect.Slice:
		return w.list(path, outer, n, t)
	default:
		return w.scalar(path, outer, n, t)
	}
}

// resolve looks through anchors, aliases and tags to what is meant.
func (w *walker) resolve(path string, outer ast.Node) (n ast.Node, k kind, text string, ok bool) {
	n = outer
	asText := false
	for range maxDepth {
		switch wrap := n.(type) {
		case *ast.AnchorNode:
			n = wrap.Value
			continue
		case *ast.AliasNode:
			target, known := w.doc.aliases[wrap]
			if !known {
				w.fault(path, outer, "no anchor &%s ends before this alias", nodeName(wrap.Value))
				return nil, kindOther, "", false
			}
			n = target
			continue
		case *ast.TagNode:
			tag := wrap.Start.Value
			if !slices.Contains([]string{"!!str", "!!int", "!!float", "!!bool", "!!null", "!!map", "!!seq"}, tag) {
				w.fault(path, outer, "tag %s has no meaning here; leave it out", tag)
				return nil, kindOther, "", false
			}
			asText = asText || tag == "!!str"
			n = wrap.Value
			continue
		}
		k, text = kindOf(n)
		if asText && (k == kindNumber || k == kindBool) {
			k = kindText
		}
		return n, k, text, true
	}
	w.fault(path, outer, "nested more than %d deep", maxDepth)
	return nil, kindOther, "", false
}

func (w *walker) unmarshalText(path string, outer ast.Node, k kind, text string, t reflect.Type) ([]byte, bool) {
	if k != kindText && k != kindNumber && k != kindBool {
		return w.wrong(path, outer, k, text, "write text")
	}
	if err := reflect.New(t).Interface().(encoding.TextUnmarshaler).UnmarshalText([]byte(text)); err != nil {
		w.fault(path, outer, "%s: %v", path, err)
		return nil, false
	}
	return quote(text), true
}

func (w *walker) scalar(path string, outer, n ast.Node, t reflect.Type) ([]byte, bool) {
	_, k, text, _ := w.resolve(path, outer)
	switch t.Kind() {
	case reflect.String:
		switch {
		case k == kindText, (k == kindNumber || k == kindBool) && w.takesText(path):
			return quote(text), true
		case k == kindNumber || k == kindBool:
			return w.wrong(path, outer, k, text, fmt.Sprintf("write it in quotes: %q", text))
		}
		return w.wrong(path, outer, k, text, "write text")
	case reflect.Bool:
		if b, ok := n.(*ast.BoolNode); ok && k == kindBool {
			return strconv.AppendBool(nil, b.Value), true
		}
		return w.wrong(path, outer, k, text, "write true or false")
	case reflect.Int, reflect.Int64:
		if i, ok := n.(*ast.IntegerNode); ok && k == kindNumber {
			if v, err := strconv.ParseInt(fmt.Sprint(i.Value), 10, t.Bits()); err == nil {
				return strconv.AppendInt(nil, v, 10), true
			}
		}
		return w.wrong(path, outer, k, text, "write a whole number")
	case reflect.Float64:
		if out, ok := number(n); ok && k == kindNumber {
			return out, true
		}
		return w.wrong(path, outer, k, text, "write a number")
	default:
		w.fault(path, outer, "%s: a %s cannot be read from a file", path, t)
		return nil, false
	}
}

var index = regexp.MustCompile(`\[\d+\]`)

func (w *walker) takesText(path string) bool {
	return slices.Contains(w.text, index.ReplaceAllString(path, "[]"))
}
