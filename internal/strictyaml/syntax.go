package strictyaml

import (
	"bytes"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/lexer"
	"github.com/goccy/go-yaml/parser"
	"github.com/goccy/go-yaml/token"
)

// The parser recurses, and a stack overflow ends the process; and it takes the
// square of the number of siblings. So both are bounded before it runs.
const (
	maxDepth  = 100    // of lists and mappings within each other
	maxTokens = 50_000 // words, values and signs
)

// checkBytes refuses what is no text, or too much of it.
func checkBytes(file string, data []byte) *Fault {
	if len(data) > MaxSize {
		return &Fault{File: file, Line: 1, Column: 1, Message: fmt.Sprintf("more than %d bytes; split the file", MaxSize)}
	}
	for i := 0; i < len(data); {
		r, size := utf8.DecodeRune(data[i:])
		if r == 0 || r == utf8.RuneError && size == 1 {
			p := placeOf(data, i)
			return &Fault{File: file, Line: p.line, Column: p.column, Message: fmt.Sprintf("byte 0x%02x is no text; write the file as UTF-8", data[i])}
		}
		i += size
	}
	return nil
}

func placeOf(data []byte, offset int) place {
	before := data[:offset]
	line := bytes.LastIndexByte(before, '\n') + 1
	return place{line: bytes.Count(before, []byte("\n")) + 1, column: utf8.RuneCount(before[line:]) + 1}
}

func tooDeep(file string, p place) *Fault {
	return &Fault{File: file, Line: p.line, Column: p.column, Message: fmt.Sprintf("nested more than %d deep", maxDepth)}
}

// parse makes the tree of a file. The parser is not ours and has panicked on
// nonsense before: that is bad syntax like any other.
func parse(file string, data []byte) (tree *ast.File, fault *Fault) {
	defer func() {
		if r := recover(); r != nil {
			tree, fault = nil, &Fault{File: file, Line: 1, Column: 1, Message: "bad YAML: it cannot be parsed"}
		}
	}()
	tokens := lexer.Tokenize(string(data))
	if fault := checkTokens(file, tokens); fault != nil {
		return nil, fault
	}
	tree, err := parser.Parse(withoutEmpty(tokens), 0, parser.AllowDuplicateMapKey())
	if err != nil {
		return nil, syntaxFault(file, err)
	}
	return tree, nil
}

// withoutEmpty leaves out comments and the heads (---) of documents without
// content, because the parser drops all that follows two heads in a row.
func withoutEmpty(tokens token.Tokens) token.Tokens {
	var kept token.Tokens
	for _, t := range tokens {
		if t.Type == token.CommentType {
			continue
		}
		if last := len(kept) - 1; t.Type == token.DocumentHeaderType && last >= 0 && kept[last].Type == t.Type {
			kept = kept[:last]
		}
		kept = append(kept, t)
	}
	return kept
}

// checkTokens bounds how many there are and how deep brackets nest, dashes and
// question marks by their column: each level of a block begins further right.
func checkTokens(file string, tokens token.Tokens) *Fault {
	if len(tokens) > maxTokens {
		p := tokens[maxTokens].Position
		return &Fault{File: file, Line: p.Line, Column: max(1, p.Column), Message: fmt.Sprintf("more than %d words and signs in one file; split it", maxTokens)}
	}
	depth := 0
	for _, t := range tokens {
		switch t.Type {
		case token.SequenceStartType, token.MappingStartType:
			depth++
		case token.SequenceEndType, token.MappingEndType:
			depth--
		case token.SequenceEntryType, token.MappingKeyType:
			if t.Position.Column > 10*maxDepth {
				return tooDeep(file, place{t.Position.Line, t.Position.Column})
			}
		default:
			continue
		}
		if depth > maxDepth {
			return tooDeep(file, place{t.Position.Line, t.Position.Column})
		}
	}
	return nil
}

func syntaxFault(file string, err error) *Fault {
	f := &Fault{File: file, Line: 1, Column: 1, Message: "bad YAML: " + err.Error()}
	detailed, ok := err.(interface {
		GetToken() *token.Token
		GetMessage() string
	})
	if !ok {
		return f
	}
	if t := detailed.GetToken(); t != nil && t.Position != nil {
		f.Line, f.Column = t.Position.Line, max(1, t.Position.Column)
	}
	f.Message = "bad YAML: " + detailed.GetMessage()
	if strings.Contains(f.Message, `'`+"\t"+`'`) {
		f.Message = "bad YAML: a tab cannot indent; use spaces"
	}
	return f
}
