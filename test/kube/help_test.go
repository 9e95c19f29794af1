//go:build kube

package kube_test

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tallyman-dev/tallyman"
)

func decode(r io.Reader, v any) error { return json.NewDecoder(r).Decode(v) }

// access is where the server is reached, the authority behind that, and a
// token.
func (p *place) access() (url string, pem []byte, token string) {
	p.Helper()
	data := filepath.Join(p.dir, "data")
	pem, err := os.ReadFile(filepath.Join(data, "ca.pem"))
	p.must(err)
	secret, err := os.ReadFile(filepath.Join(data, "token"))
	p.must(err)
	_, port, err := net.SplitHostPort(p.address)
	p.must(err)
	return "https://127.0.0.1:" + port, pem, strings.TrimSpace(string(secret))
}

// get asks the server's API.
func (p *place) get(path string, v any) {
	p.Helper()
	url, pem, token := p.access()
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(pem)
	c := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots}, DisableKeepAlives: true}}
	req, err := http.NewRequestWithContext(p.Context(), http.MethodGet, url+path, nil)
	p.must(err)
	req.Header.Set("Authorization", "Bearer "+token)
	resp, err := c.Do(req)
	p.must(err)
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	p.must(err)
	if resp.StatusCode != http.StatusOK {
		p.Fatalf("GET %s: %s\n%s", path, resp.Status, body)
	}
	if err := json.Unmarshal(body, v); err != nil {
		p.Fatalf("GET %s: %v\n%s", path, err, body)
	}
}

// attempts are a run's attempts, as the API tells them.
func (p *place) attempts(run tallyman.Run) []tallyman.Attempt {
	p.Helper()
	var all struct {
		Attempts []tallyman.Attempt `json:"attempts"`
		Items    []tallyman.Attempt `json:"items"`
	}
	p.get("/api/v1/runs/"+run.ID+"/attempts", &all)
	return append(all.Attempts, all.Items...)
}

// container is what the last attempt's evidence has about a container.
func (p *place) container(run tallyman.Run, name string) tallyman.ContainerState {
	p.Helper()
	attempts := p.attempts(run)
	if e := attempts[len(attempts)-1].Evidence; e != nil {
		for _, c := range e.Containers {
			if c.Name == name {
				return c
			}
		}
	}
	p.Errorf("nothing is kept of container %s", name)
	return tallyman.ContainerState{}
}

// probe is a Pod or a Job that is only asked about.
func probe(resource, namespace string) client.Object {
	meta := metav1.ObjectMeta{Name: "probe", Namespace: namespace}
	spec := corev1.PodSpec{RestartPolicy: corev1.RestartPolicyNever, Containers: []corev1.Container{{Name: "x", Image: shellImage}}}
	if resource == "jobs" {
		return &batchv1.Job{ObjectMeta: meta, Spec: batchv1.JobSpec{Template: corev1.PodTemplateSpec{Spec: spec}}}
	}
	return &corev1.Pod{ObjectMeta: meta, Spec: spec}
}
