package v1alpha1

import (
	"reflect"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/tallyman-dev/tallyman"
)

// copySpec returns a spec that shares nothing with the given one. The root's
// types have no methods of Kubernetes, so it goes by reflection, and a field
// that is new there needs nothing here.
func copySpec(s tallyman.AgentSpec) tallyman.AgentSpec {
	return deep(reflect.ValueOf(s)).Interface().(tallyman.AgentSpec)
}

func deep(v reflect.Value) reflect.Value {
	out := reflect.New(v.Type()).Elem()
	out.Set(v)
	switch v.Kind() {
	case reflect.Pointer:
		if !v.IsNil() {
			out.Set(reflect.New(v.Type().Elem()))
			out.Elem().Set(deep(v.Elem()))
		}
	case reflect.Slice:
		if !v.IsNil() {
			out.Set(reflect.MakeSlice(v.Type(), v.Len(), v.Len()))
			for i := range v.Len() {
				out.Index(i).Set(deep(v.Index(i)))
			}
		}
	case reflect.Map:
		if !v.IsNil() {
			out.Set(reflect.MakeMapWithSize(v.Type(), v.Len()))
			for it := v.MapRange(); it.Next(); {
				out.SetMapIndex(it.Key(), deep(it.Value()))
			}
		}
	case reflect.Struct:
		for i := range v.NumField() {
			out.Field(i).Set(deep(v.Field(i)))
		}
	}
	return out
}

// DeepCopyInto copies the agent to out.
func (a *Agent) DeepCopyInto(out *Agent) {
	*out = *a
	a.ObjectMeta.DeepCopyInto(&out.ObjectMeta)
	out.Spec = copySpec(a.Spec)
	a.Status.DeepCopyInto(&out.Status)
}

// DeepCopy returns a copy that shares nothing with the agent.
func (a *Agent) DeepCopy() *Agent {
	if a == nil {
		return nil
	}
	out := new(Agent)
	a.DeepCopyInto(out)
	return out
}

// DeepCopyObject is DeepCopy, as a scheme needs it.
func (a *Agent) DeepCopyObject() runtime.Object { return a.DeepCopy() }

// DeepCopyInto copies the status to out.
func (s *AgentStatus) DeepCopyInto(out *AgentStatus) {
	*out = *s
	if s.Conditions != nil {
		out.Conditions = make([]metav1.Condition, len(s.Conditions))
		for i := range s.Conditions {
			s.Conditions[i].DeepCopyInto(&out.Conditions[i])
		}
	}
}

// DeepCopy returns a copy that shares nothing with the status.
func (s *AgentStatus) DeepCopy() *AgentStatus {
	if s == nil {
		return nil
	}
	out := new(AgentStatus)
	s.DeepCopyInto(out)
	return out
}

// DeepCopyInto copies the list to out.
func (l *AgentList) DeepCopyInto(out *AgentList) {
	*out = *l
	l.ListMeta.DeepCopyInto(&out.ListMeta)
	if l.Items != nil {
		out.Items = make([]Agent, len(l.Items))
		for i := range l.Items {
			l.Items[i].DeepCopyInto(&out.Items[i])
		}
	}
}

// DeepCopy returns a copy that shares nothing with the list.
func (l *AgentList) DeepCopy() *AgentList {
	if l == nil {
		return nil
	}
	out := new(AgentList)
	l.DeepCopyInto(out)
	return out
}

// DeepCopyObject is DeepCopy, as a scheme needs it.
func (l *AgentList) DeepCopyObject() runtime.Object { return l.DeepCopy() }
