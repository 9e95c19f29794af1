package strictyaml

import (
	"bytes"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"github.com/goccy/go-yaml/ast"
)

// entry is one key of a mapping with its value.
type entry struct {
	key   string
	at    place
	value ast.Node
}

// entries returns the keys of a mapping in order, those that a merge key (<<)
// brings in last. A key given twice is a fault.
func (w *walker) entries(path string, n ast.Node) []entry {
	var own []entry
	var merged []ast.Node
	first := map[string]place{}
	for kv := n.(ast.MapNode).MapRange(); kv.Next(); {
		if kv.Key().IsMergeKey() {
			merged = append(merged, kv.Value())
			continue
		}
		e := entry{key: w.key(kv.Key()), at: at(kv.Key()), value: kv.Value()}
		if !w.spend(kv.Key(), len(e.key)) {
			return nil
		}
		if was, twice := first[e.key]; twice {
			w.faultAt(join(path, e.key), e.at, "key %q is given twice in %s; the first is on line %d", e.key, whole(path), was.line)
			continue
		}
		first[e.key] = e.at
		own = append(own, e)
	}
	for _, m := range merged {
		for _, e := range w.merge(path, m) {
			if _, there := first[e.key]; !there {
				first[e.key] = e.at
				own = append(own, e)
			}
		}
	}
	return own
}

// merge returns what a merge key brings: a mapping's entries, or those of a
// list of mappings, where the earlier wins.
func (w *walker) merge(path string, outer ast.Node) []entry {
	defer w.leave()
	if !w.enter(path, outer) {
		return nil
	}
	n, k, _, ok := w.resolve(path, outer)
	if !ok || !w.spend(outer, 0) {
		return nil
	}
	switch k {
	case kindMapping:
		return w.entries(path, n)
	case kindList:
		var all []entry
		for _, item := range n.(*ast.SequenceNode).Values {
			all = append(all, w.merge(path, item)...)
		}
		return all
	default:
		w.fault(path, outer, "<< takes a mapping, or a list of mappings")
		return nil
	}
}

// key returns a key as it was written. A list or a mapping as a key gives "",
// which no type has.
func (w *walker) key(k ast.MapKeyNode) string {
	var n ast.Node = k
	if asked, ok := n.(*ast.MappingKeyNode); ok {
		n = asked.Value
	}
	switch n := n.(type) {
	case *ast.NullNode:
		return n.GetToken().Value
	case *ast.AnchorNode:
		_, text := kindOf(n.Value)
		return text
	}
	_, text := kindOf(n)
	return text
}

// structure returns the JSON of a mapping that is to become a struct.
func (w *walker) structure(path string, outer, n ast.Node, t reflect.Type) ([]byte, bool) {
	k, text := kindOf(n)
	if k != kindMapping {
		return w.wrong(path, outer, k, text, "write a mapping of keys to values")
	}
	fields, names := fieldsOf(t)
	var out object
	for _, e := range w.entries(path, n) {
		field, known := fields[e.key]
		if !known {
			w.unknown(path, e, names)
			continue
		}
		at := join(path, e.key)
		w.place(at, e)
		if v, ok := w.value(at, e.value, field); ok && string(v) != "null" {
			out.add(e.key, v)
		}
	}
	return out.end(), true
}

// unknown tells of a key that the struct has not, with the nearest it has.
// That one is then in doubt: it is surely meant.
func (w *walker) unknown(path string, e entry, names []string) {
	near := Nearest(e.key, names)
	if near == "" {
		w.faultAt(join(path, e.key), e.at, "unknown key %q in %s; it may have %s", e.key, whole(path), strings.Join(names, ", "))
		return
	}
	w.faultAt(join(path, near), e.at, "unknown key %q in %s; did you mean %q?", e.key, whole(path), near)
}

// mapping returns the JSON of a mapping with free keys.
func (w *walker) mapping(path string, outer, n ast.Node, t reflect.Type) ([]byte, bool) {
	k, text := kindOf(n)
	if k != kindMapping {
		return w.wrong(path, outer, k, text, "write a mapping of keys to values")
	}
	var out object
	for _, e := range w.entries(path, n) {
		at := join(path, e.key)
		w.place(at, e)
		if v, ok := w.value(at, e.value, t.Elem()); ok {
			out.add(e.key, v)
		}
	}
	return out.end(), true
}

// list returns the JSON of a list. An item that does not fit is null there, so
// that the others keep their index.
func (w *walker) list(path string, outer, n ast.Node, t reflect.Type) ([]byte, bool) {
	k, text := kindOf(n)
	if k != kindList {
		want := "write a list, each item after a dash"
		if t.Elem().Kind() == reflect.String {
			want = "write a list like [a, b]"
		}
		return w.wrong(path, outer, k, text, want)
	}
	var out bytes.Buffer
	out.WriteByte('[')
	for i, item := range n.(*ast.SequenceNode).Values {
		if i > 0 {
			out.WriteByte(',')
		}
		v, ok := w.value(fmt.Sprintf("%s[%d]", path, i), item, t.Elem())
		if !ok {
			v = []byte("null")
		}
		out.Write(v)
	}
	out.WriteByte(']')
	return out.Bytes(), true
}

// place notes where a key is whose value holds others; of a scalar the value
// itself is the place, which value notes.
func (w *walker) place(path string, e entry) {
	n := e.value
	if a, ok := n.(*ast.AnchorNode); ok {
		n = a.Value
	}
	if k, _ := kindOf(n); k == kindList || k == kindMapping {
		w.doc.places[path] = e.at
	}
}

// fieldsOf returns the keys of a struct with their types, and the keys in
// the order of the struct.
func fieldsOf(t reflect.Type) (map[string]reflect.Type, []string) {
	fields := make(map[string]reflect.Type, t.NumField())
	var names []string
	for i := range t.NumField() {
		name, _, _ := strings.Cut(t.Field(i).Tag.Get("json"), ",")
		if name == "" || name == "-" {
			continue
		}
		fields[name] = t.Field(i).Type
		names = append(names, name)
	}
	return fields, slices.Clip(names)
}

func join(path, key string) string {
	if path == "" {
		return key
	}
	return path + "." + key
}

// whole names the thing at a path in a sentence.
func whole(path string) string {
	if path == "" {
		return "the document"
	}
	return path
}
