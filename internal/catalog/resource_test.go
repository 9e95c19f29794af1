package catalog_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tallyman-dev/tallyman"
	"github.com/tallyman-dev/tallyman/internal/catalog"
)

func resource(namespace, name, spec string) catalog.Resource {
	return catalog.ParseResource("resource:g/Agent/"+namespace+"/"+name, namespace, name, "", []byte(spec))
}

// Files go before resources, and those before what is built in. A namespace
// has its own.
func TestResourcesHaveTheirPlace(t *testing.T) {
	dir := t.TempDir()
	text := "apiVersion: tallyman.dev/v1alpha1\nkind: Agent\nmetadata: {name: filed}\nspec: {harness: exec, image: file}\n"
	if err := os.WriteFile(filepath.Join(dir, "filed.yaml"), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	c := catalog.New([]string{dir}, catalog.Builtin([]byte("[]")), nil)
	for _, r := range []catalog.Resource{
		resource("default", "filed", `{"harness":"exec","image":"resource"}`),
		resource("default", "demo", `{"harness":"exec","image":"resource"}`),
		resource("team", "filed", `{"harness":"exec","image":"team"}`),
		resource("team", "bad", `{"harness":"exce"}`),
	} {
		c.SetResource(r)
	}
	for _, want := range []struct{ namespace, name, image, origin string }{
		{"", "filed", "file", filepath.Join(dir, "filed.yaml")},
		{"default", "demo", "resource", "resource:g/Agent/default/demo"},
		{"team", "filed", "team", "resource:g/Agent/team/filed"},
		{"team", "demo", "", tallyman.BuiltIn},
	} {
		a, err := c.Get(t.Context(), want.namespace, want.name)
		if err != nil || a.Spec.Image != want.image || a.Origin != want.origin {
			t.Errorf("%s/%s: %q from %q, %v; want %q from %q", want.namespace, want.name, a.Spec.Image, a.Origin, err, want.image, want.origin)
		}
	}
	agents, errs := c.List(t.Context())
	var names []string
	for _, a := range agents {
		if a.Origin != tallyman.BuiltIn {
			names = append(names, a.Namespace+"/"+a.Name)
		}
	}
	if got := strings.Join(names, " "); got != "default/demo default/filed team/filed" {
		t.Errorf("the list has %s", got)
	}
	if len(errs) != 1 || !strings.Contains(errs[0].Error(), `resource:g/Agent/team/bad: spec.harness: unknown harness "exce"`) {
		t.Errorf("it says %v", errs)
	}
	if _, err := c.Get(t.Context(), "team", "bad"); tallyman.CodeOf(err) != tallyman.Invalid || !strings.Contains(err.Error(), "spec.harness") {
		t.Errorf("bad: %v", err)
	}
	if _, err := c.Get(t.Context(), "team", "filled"); err == nil || !strings.Contains(err.Error(), `unknown agent "team/filled"; did you mean "team/filed"?`) {
		t.Errorf("a name that is nearly right: %v", err)
	}
	if _, err := c.Get(t.Context(), "", "bad"); err == nil || !strings.Contains(err.Error(), `unknown agent "bad"; there is team/bad`) {
		t.Errorf("a name without its namespace: %v", err)
	}
	if _, err := c.Get(t.Context(), "team", "xyz"); err == nil || !strings.Contains(err.Error(), `unknown agent "team/xyz"; in team there are `) {
		t.Errorf("a name like no other: %v", err)
	}
	c.DropResource("resource:g/Agent/team/filed")
	if _, err := c.Get(t.Context(), "team", "filed"); err == nil {
		t.Error("a resource that is gone is still there")
	}
}

// Of two kinds with one name, the same goes first whichever comes first.
func TestOneOfTwoKindsGoesFirst(t *testing.T) {
	old := catalog.Resource{Origin: "resource:a/Config/team/x", After: true, Agent: tallyman.Agent{Namespace: "team", Name: "x", Spec: tallyman.AgentSpec{Harness: "exec", Image: "old"}}}
	ours := resource("team", "x", `{"harness":"exec","image":"ours"}`)
	for _, order := range [][]catalog.Resource{{old, ours}, {ours, old}} {
		c := catalog.New(nil, nil, nil)
		for _, r := range order {
			c.SetResource(r)
		}
		if a, err := c.Get(t.Context(), "team", "x"); err != nil || a.Spec.Image != "ours" {
			t.Errorf("%q, %v", a.Spec.Image, err)
		}
		c.DropResource(ours.Origin)
		if a, err := c.Get(t.Context(), "team", "x"); err != nil || a.Spec.Image != "old" || a.Origin != old.Origin {
			t.Errorf("after the other has gone: %+v, %v", a, err)
		}
	}
}
