package job

import (
	"encoding/json"
	"errors"
	"reflect"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/tallyman-dev/tallyman"
)

// Whatever a podTemplate may say is in the Pod, or is refused: every field that
// there is is said alone, beside all of ours that could be in its way.
func TestNothingOfATemplateIsLost(t *testing.T) {
	for _, runner := range tallyman.RunnerModes {
		t.Run(string(runner), func(t *testing.T) {
			kept, refused := 0, 0
			say := func(where string, template corev1.PodTemplateSpec) {
				given, err := json.Marshal(template)
				if err != nil {
					t.Fatal(err)
				}
				c := testCluster
				c.CAConfigMap, c.Account, c.OpenShift = "roots", "agents", true
				pod, err := c.Pod(work(func(w *Work) {
					w.Spec.Runner, w.Spec.Harness = runner, "exec"
					if runner != tallyman.RunnerBare {
						w.Spec.Command = []string{"true"}
					}
					w.Spec.Env = []tallyman.EnvVar{{Name: "OURS", Value: "1"}}
					w.Spec.EnvFrom = []tallyman.EnvSource{{SecretRef: &tallyman.SecretRef{Name: "all"}}, {SecretRef: &tallyman.SecretRef{Name: "one", Key: "ONE"}}}
					w.Spec.PodTemplate = given
				}))
				if err != nil {
					var e *tallyman.Error
					if !errors.As(err, &e) || e.Reason != tallyman.InvalidSpec || !strings.HasPrefix(e.Message, "spec.podTemplate.") {
						t.Errorf("%s: %v", where, err)
					}
					refused++
					return
				}
				kept++
				made, err := json.Marshal(pod)
				if err != nil {
					t.Fatal(err)
				}
				var want, got any
				if err := errors.Join(json.Unmarshal(given, &want), json.Unmarshal(made, &got)); err != nil {
					t.Fatal(err)
				}
				if dropped := strings.HasSuffix(where, ".Capabilities.Drop[]"); !dropped && !within(want, got) { // all are
					t.Errorf("%s is lost: %s", where, given)
				}
			}
			each(reflect.TypeFor[corev1.PodSpec](), "spec", func(where string, v reflect.Value) {
				say(where, corev1.PodTemplateSpec{Spec: v.Interface().(corev1.PodSpec)})
			})
			each(reflect.TypeFor[corev1.Container](), "spec.containers[agent]", func(where string, v reflect.Value) {
				agent := v.Interface().(corev1.Container)
				agent.Name = "agent"
				say(where, corev1.PodTemplateSpec{Spec: corev1.PodSpec{Containers: []corev1.Container{agent}}})
			})
			each(reflect.TypeFor[metav1.ObjectMeta](), "metadata", func(where string, v reflect.Value) {
				say(where, corev1.PodTemplateSpec{ObjectMeta: v.Interface().(metav1.ObjectMeta)})
			})
			t.Logf("%d fields are kept, %d are refused", kept, refused)
			if kept < 800 || refused < 50 {
				t.Errorf("only %d fields were kept and %d refused", kept, refused)
			}
		})
	}
}

// keys are the fields by which the elements of lists are told apart.
var keys = []string{"Name", "MountPath", "DevicePath", "IP", "ContainerPort", "TopologyKey", "Key", "ResourceClaimName"}

// each calls f for each field below a type, with a value that has this alone,
// and the keys of the lists that it is in.
func each(t reflect.Type, where string, f func(where string, v reflect.Value)) {
	whole := func(x any) { v := reflect.New(t).Elem(); v.Set(reflect.ValueOf(x).Convert(t)); f(where, v) }
	switch t {
	case reflect.TypeFor[resource.Quantity]():
		whole(resource.MustParse("3"))
		return
	case reflect.TypeFor[intstr.IntOrString]():
		whole(intstr.FromInt32(7))
		return
	case reflect.TypeFor[metav1.FieldsV1]():
		whole(*metav1.NewFieldsV1("{}"))
		return
	case reflect.TypeFor[metav1.Time]():
		whole(metav1.Unix(1, 0))
		return
	}
	switch t.Kind() {
	case reflect.String:
		whole("x")
	case reflect.Bool:
		whole(true)
	case reflect.Int32, reflect.Int64:
		whole(7)
	case reflect.Uint8:
		whole(uint8(7))
	case reflect.Pointer:
		each(t.Elem(), where, func(where string, e reflect.Value) {
			v := reflect.New(t.Elem())
			v.Elem().Set(e)
			f(where, v)
		})
	case reflect.Slice:
		each(t.Elem(), where+"[]", func(where string, e reflect.Value) {
			v := reflect.MakeSlice(t, 1, 1)
			v.Index(0).Set(e)
			for _, key := range keys {
				if e.Kind() == reflect.Struct && e.FieldByName(key).IsValid() && v.Index(0).FieldByName(key).IsZero() {
					each(e.FieldByName(key).Type(), "", func(_ string, k reflect.Value) { v.Index(0).FieldByName(key).Set(k) })
				}
			}
			f(where, v)
		})
	case reflect.Map:
		each(t.Elem(), where+"{}", func(where string, e reflect.Value) {
			v := reflect.MakeMap(t)
			v.SetMapIndex(reflect.ValueOf("x").Convert(t.Key()), e)
			f(where, v)
		})
	case reflect.Struct:
		for i := range t.NumField() {
			field := t.Field(i)
			each(field.Type, where+"."+field.Name, func(where string, e reflect.Value) {
				v := reflect.New(t).Elem()
				v.Field(i).Set(e)
				f(where, v)
			})
		}
	default:
		panic(where + ": a " + t.String())
	}
}

// within reports whether all of one JSON value is in another: the elements of
// a list anywhere in the other, the rest in its place.
func within(want, got any) bool {
	switch want := want.(type) {
	case map[string]any:
		g, ok := got.(map[string]any)
		for key, v := range want {
			if empty, is := v.(map[string]any); is && len(empty) == 0 {
				continue // what encoding/json cannot leave out
			}
			ok = ok && within(v, g[key])
		}
		return ok
	case []any:
		all, ok := got.([]any)
		for _, w := range want {
			there := false
			for _, g := range all {
				there = there || within(w, g)
			}
			ok = ok && there
		}
		return ok
	case nil:
		return true
	default:
		return want == got
	}
}

// A variable has one value: the last of spec.env's, which go before the
// template's.
func TestVariablesOfABareImage(t *testing.T) {
	for _, others := range []string{"", `,{"name": "db"}`} {
		c := testCluster
		c.Account = "agents"
		pod, err := c.Pod(work(func(w *Work) {
			w.Spec.Runner, w.Spec.Harness = tallyman.RunnerBare, "exec"
			w.Spec.Env = []tallyman.EnvVar{{Name: "A", Value: "1"}, {Name: "B", Value: "x"}, {Name: "B", Value: ""}}
			w.Spec.PodTemplate = json.RawMessage(`{"spec": {"serviceAccount": "mine", "containers": [{"name": "agent", "env": [
				{"name": "A", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}, {"name": "B", "value": "theirs"}, {"name": "C", "value": "c"}]}` + others + `]}}`)
		}))
		if err != nil {
			t.Fatal(err)
		}
		got := map[string][]corev1.EnvVar{}
		for _, v := range pod.Spec.Containers[0].Env {
			got[v.Name] = append(got[v.Name], v)
		}
		for name, value := range map[string]string{"A": "1", "B": "", "C": "c"} {
			if diff := cmp.Diff([]corev1.EnvVar{{Name: name, Value: value}}, got[name]); diff != "" {
				t.Errorf("%s: %s", name, diff)
			}
		}
		if pod.Spec.ServiceAccountName != "" || pod.Spec.DeprecatedServiceAccount != "mine" {
			t.Errorf("its account is %q, also %q", pod.Spec.ServiceAccountName, pod.Spec.DeprecatedServiceAccount)
		}
	}
}

// A template with several faults is refused for the same one each time: the
// reason stands in a status that is written when it changes.
func TestRefusedForTheSameReason(t *testing.T) {
	const faults = `{"metadata": {"labels": {"job-name": "a", "controller-uid": "b"}}}`
	const containers = `{"spec": {"initContainers": [{"name": "tallyman-a"}], "containers": [{"name": "tallyman-b"}]}}`
	for template, want := range map[string]string{faults: "controller-uid", containers: "initContainers"} {
		for range 50 {
			_, err := testCluster.Pod(work(func(w *Work) { w.Spec.PodTemplate = json.RawMessage(template) }))
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Fatalf("%s is refused with %v", template, err)
			}
		}
	}
}
