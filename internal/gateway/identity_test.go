package gateway_test

import (
	"context"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/tallyman-dev/tallyman"
	"github.com/tallyman-dev/tallyman/internal/gateway"
)

// cluster knows one token.
type cluster struct{ asked []string }

func (c *cluster) Identify(_ context.Context, ref tallyman.AttemptRef, token, name string) (string, error) {
	c.asked = append(c.asked, token+" of "+name)
	switch token {
	case "a.good.token":
		return "pod-1", nil
	case "a.token.later":
		return "", tallyman.Errorf(tallyman.Unavailable, "the cluster cannot be asked")
	default:
		return "", tallyman.Errorf(tallyman.Unauthorized, "attempt %s: this is not the token of a runner's Pod", ref)
	}
}

// door records what proof a hello came with.
type door struct {
	gateway.Control
	proofs []tallyman.Proof
}

func (d *door) Greet(_ context.Context, _ tallyman.AttemptRef, p tallyman.Proof, _ tallyman.Hello) (tallyman.Welcome, tallyman.HelloVerdict, error) {
	d.proofs = append(d.proofs, p)
	w := tallyman.Welcome{Epoch: 1}
	if p.Pod != "" {
		w.AttemptKey = "THEKEY"
	}
	return w, tallyman.HelloWelcome, nil
}

func TestATokenIsShownToTheClusterAndAKeyIsNot(t *testing.T) {
	c, d := &cluster{}, &door{}
	g := gateway.New(d, nil, nil, 1, slog.New(slog.DiscardHandler))
	g.Trust(c)
	mux := http.NewServeMux()
	g.Routes(mux)
	w := &world{t: t, server: httptest.NewServer(mux)}
	defer w.server.Close()
	const attempt = "01JZ0000000000000000000001-1"
	for _, call := range []struct {
		bearer string
		status int
		says   string
	}{
		{"Bearer a.good.token", http.StatusOK, `"attempt_key":"THEKEY"`},
		{"Bearer a.bad.token", http.StatusUnauthorized, "not the token"},
		{"Bearer a.token.later", http.StatusServiceUnavailable, "cannot be asked"},
		{"Bearer AKEYHASNODOTS", http.StatusOK, `"epoch":1`},
	} {
		a := w.call(http.MethodPost, attempt, "hello", strings.NewReader(`{"journal_id":"J"}`), call.bearer)
		if a.status != call.status || !strings.Contains(a.body, call.says) {
			t.Errorf("%s: %d %s", call.bearer, a.status, a.body)
		}
	}
	if got := strings.Join(c.asked, ", "); got != "a.good.token of , a.bad.token of , a.token.later of " {
		t.Errorf("the cluster was asked for %s", got)
	}
	if len(d.proofs) != 2 || d.proofs[0] != (tallyman.Proof{Pod: "pod-1"}) || d.proofs[1] != (tallyman.Proof{Key: "AKEYHASNODOTS"}) {
		t.Errorf("the service saw %v", d.proofs)
	}
}
