//go:build kube

package kube_test

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tallyman-dev/tallyman"
)

// token makes a token of the namespace's default account, bound to a Pod if
// one is given.
func (p *place) token(audience string, pod *corev1.Pod) string {
	p.Helper()
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "default", Namespace: p.namespace}}
	request := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{Audiences: []string{audience}}}
	if pod != nil {
		request.Spec.BoundObjectRef = &authenticationv1.BoundObjectReference{APIVersion: "v1", Kind: "Pod", Name: pod.Name, UID: pod.UID}
	}
	p.must(kube.SubResource("token").Create(p.Context(), account, request))
	return request.Status.Token
}

// hello says hello as whoever has these headers, and returns the status.
func (p *place) hello(attempt string, header http.Header) int {
	p.Helper()
	pem, err := os.ReadFile(filepath.Join(p.dir, "data", "ca.pem"))
	p.must(err)
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(pem)
	c := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots}, DisableKeepAlives: true}}
	_, port, err := net.SplitHostPort(p.address)
	p.must(err)
	req, err := http.NewRequestWithContext(p.Context(), http.MethodPost, "https://127.0.0.1:"+port+"/runner/v1/attempts/"+attempt+"/hello",
		bytes.NewReader([]byte(`{"journal_id":"FORGED","last_cursor":0,"version":"x"}`)))
	p.must(err)
	req.Header = header
	resp, err := c.Do(req)
	p.must(err)
	defer resp.Body.Close()
	_, _ = io.Copy(io.Discard, resp.Body)
	return resp.StatusCode
}

func bearer(tokens ...string) http.Header {
	h := http.Header{}
	for _, t := range tokens {
		h.Add("Authorization", "Bearer "+t)
	}
	return h
}

// Nobody but the attempt's own Pod says hello for it, and who tries changes
// nothing.
func TestOnlyTheAttemptsPodIsHeard(t *testing.T) {
	p := newPlace(t)
	p.agent("first", shell("sleep 20; echo end"))
	p.agent("second", shell("sleep 20"))
	run, other := p.detach("first"), p.detach("second")
	p.running(run)
	p.running(other)
	attempt := run.ID + "-1"
	mine, its := p.pods(run)[0], p.pods(other)[0]
	stranger := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "stranger", Namespace: p.namespace, Labels: mine.Labels},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "agent", Image: shellImage, Command: []string{"sleep", "60"}}}},
	}
	delete(stranger.Labels, "batch.kubernetes.io/controller-uid")
	delete(stranger.Labels, "controller-uid")
	p.must(kube.Create(t.Context(), stranger))
	wrongCluster := bearer(p.token(tallyman.TokenAudience, &mine))
	wrongCluster.Set(tallyman.ClusterHeader, "another")
	for name, c := range map[string]struct {
		header http.Header
		want   int
	}{
		"no token":                           {bearer(), 401},
		"two tokens":                         {bearer(p.token(tallyman.TokenAudience, &mine), "x"), 401},
		"no token at all":                    {bearer("a.b.c"), 401},
		"a guessed key":                      {bearer("ABCDEFGHIJKLMNOPQRSTUVWXYZ"), 401},
		"another audience":                   {bearer(p.token("https://kubernetes.default.svc", &mine)), 401},
		"an account without a Pod":           {bearer(p.token(tallyman.TokenAudience, nil)), 401},
		"another cluster":                    {wrongCluster, 401},
		"the Pod of another attempt":         {bearer(p.token(tallyman.TokenAudience, &its)), 410},
		"a Pod with our labels, not our own": {bearer(p.token(tallyman.TokenAudience, stranger)), 410},
	} {
		if got := p.hello(attempt, c.header); got != c.want {
			t.Errorf("%s: status %d, want %d", name, got, c.want)
		}
	}
	if got := p.show(run.ID); got.State != tallyman.Running {
		t.Errorf("the run is %s (%s)", got.State, got.Message)
	}
	if got := p.hello(attempt, bearer(p.token(tallyman.TokenAudience, &mine))); got != 409 {
		t.Errorf("another journal: status %d, want 409", got)
	}
	p.holds(p.ended(run.ID), tallyman.JournalMismatch)
}
