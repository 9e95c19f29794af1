package v1alpha1_test

import (
	"encoding/json"
	"os"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/tallyman-dev/tallyman"
	"github.com/tallyman-dev/tallyman/api/v1alpha1"
)

// full sets everything that a value can have, two of each in lists.
func full(v reflect.Value) {
	switch v.Kind() {
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		full(v.Elem())
	case reflect.Slice:
		if v.Type() == reflect.TypeFor[json.RawMessage]() {
			v.SetBytes([]byte(`{"a":1}`))
			return
		}
		v.Set(reflect.MakeSlice(v.Type(), 2, 2))
		full(v.Index(0))
		full(v.Index(1))
	case reflect.Map:
		v.Set(reflect.MakeMap(v.Type()))
		e := reflect.New(v.Type().Elem()).Elem()
		full(e)
		v.SetMapIndex(reflect.ValueOf("key"), e)
	case reflect.Struct:
		for i := range v.NumField() {
			full(v.Field(i))
		}
	case reflect.String:
		v.SetString("text")
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Int, reflect.Int64:
		v.SetInt(int64(3 * time.Second))
	case reflect.Float64:
		v.SetFloat(1.5)
	}
}

func fullAgent() *v1alpha1.Agent {
	a := &v1alpha1.Agent{ObjectMeta: metav1.ObjectMeta{Name: "a", Labels: map[string]string{"k": "v"}}}
	full(reflect.ValueOf(&a.Spec).Elem())
	a.Status.Conditions = []metav1.Condition{{Type: v1alpha1.Ready}}
	return a
}

// What Kubernetes keeps of an agent is what was written.
func TestAnAgentComesBackAsItWas(t *testing.T) {
	a := fullAgent()
	b, err := json.Marshal(a)
	if err != nil {
		t.Fatal(err)
	}
	var back v1alpha1.Agent
	if err := json.Unmarshal(b, &back); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(*a, back); diff != "" {
		t.Error(diff)
	}
}

// A copy is equal and shares nothing: no pointer, slice or map of it is one of
// the original.
func TestACopySharesNothing(t *testing.T) {
	a := &v1alpha1.AgentList{Items: []v1alpha1.Agent{*fullAgent()}}
	c := a.DeepCopy()
	if diff := cmp.Diff(a, c); diff != "" {
		t.Fatal(diff)
	}
	mine := map[uintptr]string{}
	pointers(reflect.ValueOf(a).Elem(), "", func(p uintptr, path string) { mine[p] = path })
	pointers(reflect.ValueOf(c).Elem(), "", func(p uintptr, path string) {
		if _, shared := mine[p]; shared {
			t.Errorf("%s is shared", path)
		}
	})
	if len(mine) < 30 {
		t.Errorf("only %d pointers were looked at", len(mine))
	}
}

func pointers(v reflect.Value, path string, fn func(uintptr, string)) {
	switch v.Kind() {
	case reflect.Pointer:
		if !v.IsNil() {
			fn(v.Pointer(), path)
			pointers(v.Elem(), path, fn)
		}
	case reflect.Slice:
		if v.Len() > 0 {
			fn(v.Pointer(), path)
		}
		for i := range v.Len() {
			pointers(v.Index(i), path+"[]", fn)
		}
	case reflect.Map:
		if v.Len() > 0 {
			fn(v.Pointer(), path)
		}
		for it := v.MapRange(); it.Next(); {
			pointers(it.Value(), path+"{}", fn)
		}
	case reflect.Struct:
		if v.Type() == reflect.TypeFor[metav1.Time]() {
			return
		}
		for i := range v.NumField() {
			pointers(v.Field(i), path+"."+v.Type().Field(i).Name, fn)
		}
	}
}

// The schema has each field of the spec, and no other: a field that is new in
// the root is refused by clusters until it is generated.
func TestTheSchemaHasEveryField(t *testing.T) {
	b, err := os.ReadFile("../../deploy/crds/tallyman.dev_agents.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var crd struct {
		Spec struct {
			Versions []struct {
				Schema struct{ OpenAPIV3Schema node }
			}
		}
	}
	if err := yaml.Unmarshal(b, &crd); err != nil {
		t.Fatal(err)
	}
	spec := crd.Spec.Versions[0].Schema.OpenAPIV3Schema.Properties["spec"]
	compare(t, "spec", spec, reflect.TypeFor[tallyman.AgentSpec]())
}

type node struct {
	Type       string          `json:"type"`
	Properties map[string]node `json:"properties"`
	Items      *node           `json:"items"`
	Unknown    bool            `json:"x-kubernetes-preserve-unknown-fields"`
}

func compare(t *testing.T, path string, n node, typ reflect.Type) {
	t.Helper()
	for typ.Kind() == reflect.Pointer {
		typ = typ.Elem()
	}
	raw := typ == reflect.TypeFor[json.RawMessage]()
	switch {
	case raw && path != "spec.podTemplate" && !n.Unknown:
		t.Errorf("%s: what is in it would be dropped", path)
	case raw || typ.Kind() == reflect.Map:
	case n.Unknown:
		t.Errorf("%s: what is unknown in it would be kept", path)
	case typ.Kind() == reflect.Slice:
		if n.Type != "array" || n.Items == nil {
			t.Errorf("%s is %q, want an array", path, n.Type)
			return
		}
		compare(t, path+"[]", *n.Items, typ.Elem())
	case typ.Kind() == reflect.Struct:
		known := map[string]bool{}
		for i := range typ.NumField() {
			name, _, _ := strings.Cut(typ.Field(i).Tag.Get("json"), ",")
			known[name] = true
			p, ok := n.Properties[name]
			if !ok {
				t.Errorf("%s.%s is not in the schema: make generate", path, name)
				continue
			}
			compare(t, path+"."+name, p, typ.Field(i).Type)
		}
		for name := range n.Properties {
			if !known[name] {
				t.Errorf("%s.%s is no field: make generate", path, name)
			}
		}
	}
}
