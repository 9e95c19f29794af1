package kube

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/tallyman-dev/tallyman"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
)

// What to do about a cluster that does not answer as it must depends on who
// answers, and how.
func TestWhatToDoAboutAccess(t *testing.T) {
	server := httptest.NewTLSServer(http.NotFoundHandler())
	defer server.Close()
	found := Checkup{Config: &rest.Config{Host: server.URL}, Namespaces: []string{"agents"}}.Check(t.Context())
	if len(found) != 1 || !found[0].Broken || !strings.Contains(found[0].Mend, "certificate-authority-data") {
		t.Errorf("who is not vouched for: %+v", found)
	}
	for says, err := range map[string]error{
		"log in again":              apierrors.NewUnauthorized("expired"),
		"no rights at all":          apierrors.NewForbidden(schema.GroupResource{Resource: "pods"}, "", errors.New("no")),
		"check the address and the": errors.New("connection refused"),
	} {
		if got := mendAccess(err); !strings.Contains(got, says) {
			t.Errorf("%v: %s", err, got)
		}
	}
}

// What agents want of one Secret is one finding, and mended by one command.
func TestSecretsThatAgentsName(t *testing.T) {
	of := func(name string, keys ...string) (all []tallyman.EnvSource) {
		for _, key := range keys {
			all = append(all, tallyman.EnvSource{SecretRef: &tallyman.SecretRef{Name: name, Key: key}})
		}
		return all
	}
	named := func(name string, from ...[]tallyman.EnvSource) tallyman.Agent {
		return tallyman.Agent{Name: name, Spec: tallyman.AgentSpec{EnvFrom: slices.Concat(from...)}}
	}
	optional := of("missed", "A")
	optional[0].Optional = true
	live := fake.NewClientBuilder().WithObjects(&corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: "half", Namespace: "agents"}, Data: map[string][]byte{"A": []byte("x"), "EMPTY": {}},
	}).Build()
	found := Checkup{Namespaces: []string{"agents"}, Agents: []tallyman.Agent{
		named("one", of("half", "A", "B", "EMPTY"), of("absent", "X"), optional),
		named("two", of("half", "C"), of("absent", "X", "Y"), of("whole", "")),
	}}.secrets(t.Context(), live)
	want := []Finding{
		{What: "Secret half", Found: "in namespace agents has no key B, C; it is used by agents one, two", Broken: true, Mend: `kubectl -n agents patch secret half -p '{"stringData":{"B":"VALUE","C":"VALUE"}}'`},
		{What: "Secret absent", Found: "is not in namespace agents; it is used by agents one, two", Broken: true, Mend: "kubectl -n agents create secret generic absent --from-literal=X=VALUE --from-literal=Y=VALUE"},
		{What: "Secret whole", Found: "is not in namespace agents; it is used by agent two", Broken: true, Mend: "kubectl -n agents create secret generic whole --from-literal=NAME=VALUE"},
	}
	if !slices.Equal(found, want) {
		t.Errorf("%+v\nwant %+v", found, want)
	}
}
