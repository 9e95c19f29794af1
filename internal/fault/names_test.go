package fault_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"slices"
	"strconv"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tallyman-dev/tallyman/internal/fault"
)

func TestNamesListsEveryPointOnce(t *testing.T) {
	file, err := parser.ParseFile(token.NewFileSet(), "names.go", nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	var declared []string
	for _, d := range file.Decls {
		g, ok := d.(*ast.GenDecl)
		if !ok || g.Tok != token.CONST {
			continue
		}
		for _, s := range g.Specs {
			for _, v := range s.(*ast.ValueSpec).Values {
				name, err := strconv.Unquote(v.(*ast.BasicLit).Value)
				if err != nil {
					t.Fatal(err)
				}
				declared = append(declared, name)
			}
		}
	}
	listed := fault.Names()
	slices.Sort(declared)
	slices.Sort(listed)
	if diff := cmp.Diff(declared, listed); diff != "" {
		t.Errorf("declared and listed differ:\n%s", diff)
	}
	if u := slices.Compact(slices.Clone(listed)); len(u) != len(listed) {
		t.Errorf("a name is there twice: %q", listed)
	}
}

func TestAPointCostsNothingInAnOrdinaryBuild(t *testing.T) {
	if n := testing.AllocsPerRun(100, func() { fault.Point(fault.RunnerStreaming) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
