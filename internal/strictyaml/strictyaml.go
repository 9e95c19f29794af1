// Package strictyaml reads YAML and JSON that people write. What does not fit
// the Go type is told with file, line, column and the nearest right name, all
// of it at once. Nothing is ignored: an unknown key, a key given twice and a
// value of the wrong type are faults.
//
//	bytes ── Parse ──► Documents ── Decode ──► a Go value, and faults
//	                       └── Fault ◄── what the caller finds wrong later
package strictyaml

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"github.com/goccy/go-yaml/ast"
)

// MaxSize is how large a file may be, in bytes.
const MaxSize = 1 << 20

// maxTold is how many faults of one file are told.
const maxTold = 50

// Fault is one thing that is wrong, and where.
type Fault struct {
	File    string
	Line    int // from 1
	Column  int // from 1, in characters
	Message string
}

// Error writes FILE:LINE:COL: message.
func (f *Fault) Error() string {
	return fmt.Sprintf("%s:%d:%d: %s", f.File, f.Line, f.Column, f.Message)
}

// Join makes one error of the faults of one file, in the order of the file;
// nil when there are none. Beyond 50 they are only counted.
func Join(faults []*Fault) error {
	faults = slices.Clone(faults)
	slices.SortStableFunc(faults, func(a, b *Fault) int {
		return cmp.Or(cmp.Compare(a.Line, b.Line), cmp.Compare(a.Column, b.Column))
	})
	var errs []error
	for i, f := range faults {
		if i == maxTold {
			errs = append(errs, fmt.Errorf("%s: and %d more", f.File, len(faults)-i))
			break
		}
		errs = append(errs, f)
	}
	return errors.Join(errs...)
}

// Document is one YAML document of a file.
type Document struct {
	file    string
	body    ast.Node
	aliases map[*ast.AliasNode]ast.Node
	places  map[string]place
	doubted []string // paths that have a fault
}

type place struct{ line, column int }

// Parse splits a file into its documents; those without content are left out.
// The error joins Faults: bad syntax (then nothing else is known), more than
// MaxSize bytes, bytes that are no UTF-8 text, nesting beyond any sense.
func Parse(file string, data []byte) ([]*Document, error) {
	data = bytes.TrimPrefix(data, []byte("\ufeff"))
	if fault := checkBytes(file, data); fault != nil {
		return nil, fault
	}
	tree, fault := parse(file, data)
	if fault != nil {
		return nil, fault
	}
	var docs []*Document
	for _, doc := range tree.Docs {
		switch doc.Body.(type) {
		case nil, *ast.DirectiveNode, *ast.CommentGroupNode, *ast.NullNode:
			continue
		}
		docs = append(docs, &Document{
			file: file, body: doc.Body, aliases: resolveAliases(doc.Body), places: map[string]place{"": at(doc.Body)},
		})
	}
	return docs, nil
}

// Decode fills what v points to, by its json tags, and returns everything in
// the document that does not fit; v then has what does. A null is like a key
// that is not there. Where text is usual but people write 8080 or true, text
// lists the paths that take them as written, with [] for every index:
// "spec.env[].value".
func (d *Document) Decode(v any, text ...string) []*Fault {
	w := &walker{doc: d, text: text, noted: map[Fault]bool{}}
	out, ok := w.value("", d.body, reflect.TypeOf(v).Elem())
	if !ok {
		return w.faults
	}
	if err := json.Unmarshal(out, v); err != nil {
		w.fault("", d.body, "%v", err)
	}
	return w.faults
}

// Given reports whether the document, once decoded, has something at the path,
// like spec.env[0].name.
func (d *Document) Given(path string) bool {
	_, ok := d.places[path]
	return ok
}

// Doubtful reports whether Decode found a fault at the path, under it or
// above it, so that a further complaint about it would mislead.
func (d *Document) Doubtful(path string) bool {
	return slices.ContainsFunc(d.doubted, func(bad string) bool {
		return within(path, bad) || within(bad, path)
	})
}

// Fault makes a fault at the path. What is not in the document is placed at
// what should have held it.
func (d *Document) Fault(path, format string, args ...any) *Fault {
	p, ok := d.places[path]
	for up := path; !ok && up != ""; {
		up = up[:max(0, strings.LastIndexAny(up, ".["))]
		p, ok = d.places[up]
	}
	return &Fault{File: d.file, Line: p.line, Column: p.column, Message: fmt.Sprintf(format, args...)}
}

// within reports whether path is base or lies under it.
func within(path, base string) bool {
	rest, ok := strings.CutPrefix(path, base)
	return ok && (rest == "" || base == "" || rest[0] == '.' || rest[0] == '[')
}
