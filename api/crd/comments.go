package main

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"reflect"
	"strings"
)

// field is one field of a type, as JSON has it.
type field struct{ about, typ string }

// comments reads what the root says beside the fields of its types: by type,
// then by the field's name in JSON.
func comments(files ...string) (map[string]map[string]field, error) {
	all := map[string]map[string]field{}
	for _, name := range files {
		f, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.ParseComments)
		if err != nil {
			return nil, err
		}
		ast.Inspect(f, func(n ast.Node) bool {
			t, ok := n.(*ast.TypeSpec)
			if !ok {
				return true
			}
			s, ok := t.Type.(*ast.StructType)
			if !ok {
				return true
			}
			all[t.Name.Name] = fieldsOf(s)
			return false
		})
	}
	if all["AgentSpec"] == nil {
		return nil, fmt.Errorf("there is no AgentSpec in %s", strings.Join(files, ", "))
	}
	return all, nil
}

func fieldsOf(s *ast.StructType) map[string]field {
	fields := map[string]field{}
	for _, f := range s.Fields.List {
		if f.Tag == nil {
			continue
		}
		tag, _, _ := strings.Cut(reflect.StructTag(strings.Trim(f.Tag.Value, "`")).Get("json"), ",")
		fields[tag] = field{strings.TrimSpace(f.Comment.Text()), typeOf(f.Type)}
	}
	return fields
}

// typeOf names the type that a field has, or its items, or what it points to.
func typeOf(e ast.Expr) string {
	switch t := e.(type) {
	case *ast.Ident:
		return t.Name
	case *ast.StarExpr:
		return typeOf(t.X)
	case *ast.ArrayType:
		return typeOf(t.Elt)
	}
	return ""
}

// describe puts what is said beside the fields into their schemas.
func describe(schema map[string]any, typ string, all map[string]map[string]field) {
	props, _ := schema["properties"].(map[string]any)
	for name, p := range props {
		s, ok := p.(map[string]any)
		f, known := all[typ][name]
		if !ok || !known {
			continue
		}
		if f.about != "" {
			s["description"] = f.about
		}
		if items, ok := s["items"].(map[string]any); ok {
			s = items
		}
		describe(s, f.typ, all)
	}
}
