package kube

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
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
