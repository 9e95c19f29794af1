package strictyaml

import (
	"regexp"
	"strconv"

	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/token"
)

// kind is what a node is to a reader of the file.
type kind int

const (
	kindOther kind = iota
	kindNull
	kindText
	kindNumber
	kindBool
	kindList
	kindMapping
)

// resolveAliases finds for each alias the last such anchor that ends before it;
// an alias without one is not in the result. So nothing contains itself.
func resolveAliases(body ast.Node) map[*ast.AliasNode]ast.Node {
	v := &aliasVisitor{anchors: map[string]ast.Node{}, aliases: map[*ast.AliasNode]ast.Node{}}
	ast.Walk(v, body)
	return v.aliases
}

type aliasVisitor struct {
	anchors map[string]ast.Node
	aliases map[*ast.AliasNode]ast.Node
}

// Visit implements ast.Visitor.
func (v *aliasVisitor) Visit(n ast.Node) ast.Visitor {
	switch n := n.(type) {
	case *ast.AnchorNode:
		if n.Value != nil {
			ast.Walk(v, n.Value)
		}
		v.anchors[nodeName(n.Name)] = n.Value
		return nil
	case *ast.AliasNode:
		if target, ok := v.anchors[nodeName(n.Value)]; ok {
			v.aliases[n] = target
		}
	}
	return v
}

func nodeName(n ast.Node) string {
	if n == nil || n.GetToken() == nil {
		return ""
	}
	return n.GetToken().Value
}

var jsonNumber = regexp.MustCompile(`^-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][-+]?[0-9]+)?$`)

// kindOf tells what a resolved node is and, of a scalar, how it was written:
// of a text its content.
func kindOf(n ast.Node) (kind, string) {
	switch n := n.(type) {
	case nil, *ast.NullNode:
		return kindNull, ""
	case *ast.StringNode:
		// The parser takes 1e3 and whole numbers beyond 64 bits for text.
		if n.Token.Type == token.StringType && jsonNumber.MatchString(n.Value) {
			return kindNumber, n.Value
		}
		return kindText, n.Value
	case *ast.LiteralNode:
		return kindText, n.Value.Value
	case *ast.IntegerNode, *ast.FloatNode, *ast.InfinityNode, *ast.NanNode:
		return kindNumber, n.GetToken().Value
	case *ast.BoolNode:
		return kindBool, n.GetToken().Value
	case *ast.SequenceNode:
		return kindList, ""
	case ast.MapNode:
		return kindMapping, ""
	default:
		return kindOther, ""
	}
}

// describe says what was found, for "… is a number; write …".
func describe(k kind, text string) string {
	if r := []rune(text); len(r) > 40 {
		text = string(r[:40]) + "…"
	}
	switch k {
	case kindNull:
		return "this is empty"
	case kindText:
		return strconv.Quote(text) + " is text"
	case kindNumber:
		return text + " is a number"
	case kindBool:
		return text + " is true or false"
	case kindList:
		return "this is a list"
	case kindMapping:
		return "this is a mapping"
	default:
		return "this cannot be read"
	}
}

// at is where a reader would look for the node: its first key, its first word.
func at(n ast.Node) place {
	if m, ok := n.(ast.MapNode); ok {
		if first := m.MapRange(); first.Next() && !isFlow(n) {
			n = first.Key()
		}
	}
	if n == nil || n.GetToken() == nil || n.GetToken().Position == nil {
		return place{1, 1}
	}
	p := n.GetToken().Position
	return place{line: max(1, p.Line), column: max(1, p.Column)}
}

func isFlow(n ast.Node) bool {
	m, ok := n.(*ast.MappingNode)
	return ok && m.IsFlowStyle
}
