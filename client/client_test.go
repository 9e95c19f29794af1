package client_test

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tallyman-dev/tallyman"
	"github.com/tallyman-dev/tallyman/client"
)

// serve starts a server of one handler, and a client of it with a token.
func serve(t *testing.T, h http.HandlerFunc) *client.Client {
	t.Helper()
	s := httptest.NewServer(h)
	t.Cleanup(s.Close)
	c, err := client.New(s.URL+"/", "the-token")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

func TestOnlyAddressesOfServersAreTaken(t *testing.T) {
	for _, base := range []string{"", "localhost", "localhost:7333", "127.0.0.1:7333", "ftp://x", "http://", "/run/x.sock", "http://a b"} {
		if _, err := client.New(base, ""); tallyman.CodeOf(err) != tallyman.Invalid {
			t.Errorf("%q: %v", base, err)
		}
	}
	for _, base := range []string{"http://127.0.0.1:7333", "https://x.example/prefix/"} {
		if _, err := client.New(base, ""); err != nil {
			t.Errorf("%q: %v", base, err)
		}
	}
}

func TestErrorsCarryCodes(t *testing.T) {
	for name, c := range map[string]struct {
		status int
		body   string
		code   tallyman.Code
		says   string
	}{
		"a code of the API's":        {409, `{"status":409,"detail":"it runs","code":"conflict"}`, tallyman.Conflict, "it runs"},
		"a code beside its status":   {400, `{"detail":"not here","code":"unsupported"}`, tallyman.Unsupported, "not here"},
		"what does not fit, each":    {400, `{"detail":"validation failed","code":"invalid","errors":[{"location":"query.limit","message":"too large"},{"message":"and more"}]}`, tallyman.Invalid, "validation failed\nquery.limit: too large\nand more"},
		"no token":                   {401, `{"detail":"send the token"}`, tallyman.Unauthorized, "send the token"},
		"another host":               {421, "this server is not x\n", tallyman.Unauthorized, "this server is not x"},
		"not found, as text":         {404, "no such page", tallyman.NotFound, "no such page"},
		"too large":                  {413, ``, tallyman.TooLarge, ""},
		"gone":                       {410, ``, tallyman.Stale, ""},
		"a proxy without its server": {502, "<html>bad gateway", tallyman.Unavailable, "<html>bad gateway"},
		"a server that is ending":    {503, `{"detail":"ask again","code":"unavailable"}`, tallyman.Unavailable, "ask again"},
		"an internal error":          {500, `{"detail":"internal error","code":"internal"}`, tallyman.Internal, "the server answered 500 Internal Server Error: internal error"},
		"nothing that we know":       {418, "tea", tallyman.Internal, "the server answered 418 I'm a teapot: tea"},
	} {
		t.Run(name, func(t *testing.T) {
			cl := serve(t, func(w http.ResponseWriter, _ *http.Request) {
				w.WriteHeader(c.status)
				_, _ = io.WriteString(w, c.body)
			})
			_, err := cl.Run(t.Context(), "x")
			if tallyman.CodeOf(err) != c.code || err == nil || err.Error() != c.says {
				t.Errorf("got %s: %v", tallyman.CodeOf(err), err)
			}
		})
	}
}

func TestAReasonComesAlong(t *testing.T) {
	c := serve(t, func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(400)
		_, _ = io.WriteString(w, `{"detail":"too long","code":"invalid","reason":"InvalidSpec"}`)
	})
	_, err := c.Submit(t.Context(), tallyman.Request{})
	var e *tallyman.Error
	if !errors.As(err, &e) || e.Reason != tallyman.InvalidSpec {
		t.Errorf("got %v", err)
	}
}

// closed is an address at which nobody listens.
func closed(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return "http://" + l.Addr().String()
}

func TestNobodyListens(t *testing.T) {
	c, err := client.New(closed(t), "")
	if err != nil {
		t.Fatal(err)
	}
	socket := client.NewSocket(filepath.Join(t.TempDir(), "s"))
	for name, c := range map[string]*client.Client{"at the address": c, "at the socket": socket} {
		if _, err := c.Info(t.Context()); tallyman.CodeOf(err) != tallyman.Unavailable {
			t.Errorf("%s: %v", name, err)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := c.Info(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("a caller that has gone: %v", err)
	}
}

func TestAnAnswerThatIsCutIsUnavailable(t *testing.T) {
	c := serve(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Length", "100")
		_, _ = io.WriteString(w, `{"id":`)
	})
	if _, err := c.Run(t.Context(), "x"); tallyman.CodeOf(err) != tallyman.Unavailable {
		t.Errorf("a run: %v", err)
	}
	if _, err := c.Prompt(t.Context(), "x"); tallyman.CodeOf(err) != tallyman.Unavailable {
		t.Errorf("a prompt: %v", err)
	}
}

func TestTheSocketIsTriedAgainOnceSomebodyCame(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	c := client.NewSocket(path)
	defer c.Close()
	calls := 0
	refuse := errors.New("nobody may come")
	c.OnAbsent(func(context.Context) error { calls++; return refuse })
	if _, err := c.Info(t.Context()); !errors.Is(err, refuse) || tallyman.CodeOf(err) != tallyman.Unavailable {
		t.Errorf("refused: %v", err)
	}
	c.OnAbsent(func(context.Context) error {
		calls++
		l, err := net.Listen("unix", path)
		if err != nil {
			return err
		}
		s := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, `{"version":"v9"}`) })}
		go func() { _ = s.Serve(l) }()
		t.Cleanup(func() { _ = s.Close() })
		return nil
	})
	for range 2 {
		if i, err := c.Info(t.Context()); err != nil || i.Version != "v9" {
			t.Errorf("with a server: %+v, %v", i, err)
		}
	}
	if calls != 2 {
		t.Errorf("asked %d times", calls)
	}
}

// asked is a call as the server got it.
type asked struct {
	Method, Path, Query, Auth, Type, Body string
}

func TestCallsAsTheServerGetsThem(t *testing.T) {
	var got asked
	c := serve(t, func(w http.ResponseWriter, r *http.Request) {
		b, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		got = asked{r.Method, r.URL.EscapedPath(), r.URL.RawQuery, r.Header.Get("Authorization"), r.Header.Get("Content-Type"), string(b)}
		_, _ = io.WriteString(w, `{"items":[],"next":"n","url":"u"}`)
	})
	ctx := t.Context()
	const kind, auth = "application/json", "Bearer the-token"
	for name, call := range map[string]struct {
		do   func() error
		want asked
	}{
		"submit":    {func() error { _, err := c.Submit(ctx, tallyman.Request{Agent: "a", Prompt: "é"}); return err }, asked{"POST", "/api/v1/runs", "", auth, kind, `{"agent":"a","prompt":"é"}`}},
		"run":       {func() error { _, err := c.Run(ctx, "x"); return err }, asked{Method: "GET", Path: "/api/v1/runs/x", Auth: auth}},
		"stop":      {func() error { _, err := c.Stop(ctx, "x"); return err }, asked{Method: "POST", Path: "/api/v1/runs/x/stop", Auth: auth}},
		"rerun":     {func() error { _, err := c.Rerun(ctx, "x", map[string]string{"model": "m"}); return err }, asked{"POST", "/api/v1/runs/x/rerun", "", auth, kind, `{"set":{"model":"m"}}`}},
		"delete":    {func() error { return c.Delete(ctx, "x") }, asked{Method: "DELETE", Path: "/api/v1/runs/x", Auth: auth}},
		"attempts":  {func() error { _, err := c.Attempts(ctx, "x"); return err }, asked{Method: "GET", Path: "/api/v1/runs/x/attempts", Auth: auth}},
		"timeline":  {func() error { _, err := c.Timeline(ctx, "x"); return err }, asked{Method: "GET", Path: "/api/v1/runs/x/timeline", Auth: auth}},
		"artifacts": {func() error { _, err := c.Artifacts(ctx, "x"); return err }, asked{Method: "GET", Path: "/api/v1/runs/x/artifacts", Auth: auth}},
		"agents":    {func() error { _, err := c.Agents(ctx); return err }, asked{Method: "GET", Path: "/api/v1/agents", Auth: auth}},
		"link":      {func() error { _, err := c.LoginLink(ctx); return err }, asked{Method: "POST", Path: "/api/v1/login-link", Auth: auth}},
		"prune": {func() error {
			_, err := c.Prune(ctx, tallyman.PruneRequest{Age: tallyman.Duration(time.Hour), DryRun: true})
			return err
		}, asked{"POST", "/api/v1/prune", "", auth, kind, `{"age":"1h0m0s","dry_run":true}`}},
		"list": {func() error {
			_, next, err := c.Runs(ctx, tallyman.Filter{Namespace: "n", States: []tallyman.State{"running", "failed"}, Agent: "a&b", Labels: map[string]string{"k": "v,=w"}, Text: "x y", Limit: 7, After: "c"})
			if next != "n" {
				t.Errorf("next %q", next)
			}
			return err
		}, asked{Method: "GET", Path: "/api/v1/runs", Query: "agent=a%26b&cursor=c&label=k%3Dv%2C%3Dw&limit=7&namespace=n&q=x+y&state=running%2Cfailed", Auth: auth}},
	} {
		t.Run(name, func(t *testing.T) {
			if err := call.do(); err != nil {
				t.Fatal(err)
			}
			if d := cmp.Diff(call.want, got); d != "" {
				t.Error(d)
			}
		})
	}
}

func TestOddIDsAreNamesAndNothingElse(t *testing.T) {
	var got []string
	mux := http.NewServeMux()
	note := func(w http.ResponseWriter, r *http.Request) {
		got = append(got, r.Pattern, r.PathValue("id"), r.URL.RawQuery)
		_, _ = io.WriteString(w, `{}`)
	}
	mux.HandleFunc("GET /api/v1/runs/{id}", note)
	mux.HandleFunc("POST /api/v1/runs/{id}/stop", note)
	mux.HandleFunc("/", note)
	c := serve(t, mux.ServeHTTP)
	for _, id := range []string{"a/b", "../info", "..", ".", "...", "a?b=c", "a#b", "a%2Fb", "a b", "ü", "a/../../b", "//", "\x00", `\`, "..%2f.."} {
		got = nil
		if _, err := c.Run(t.Context(), id); err != nil {
			t.Errorf("%q: %v", id, err)
		}
		if _, err := c.Stop(t.Context(), id); err != nil {
			t.Errorf("%q: %v", id, err)
		}
		if want := []string{"GET /api/v1/runs/{id}", id, "", "POST /api/v1/runs/{id}/stop", id, ""}; !slices.Equal(got, want) {
			t.Errorf("%q reaches %q", id, got)
		}
	}
}

func TestWithoutATokenNoneIsSent(t *testing.T) {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if _, sent := r.Header["Authorization"]; sent {
			t.Error("a token is sent")
		}
		_, _ = io.WriteString(w, `{}`)
	}))
	defer s.Close()
	c, err := client.New(s.URL, "")
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, err := c.Info(t.Context()); err != nil {
		t.Error(err)
	}
}

func TestTheTokenIsNotForOtherServers(t *testing.T) {
	var leaked atomic.Bool
	elsewhere := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		leaked.Store(r.Header.Get("Authorization") != "")
		_, _ = io.WriteString(w, `{}`)
	}))
	defer elsewhere.Close()
	target, err := url.Parse(elsewhere.URL)
	if err != nil {
		t.Fatal(err)
	}
	c := serve(t, func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, "http://localhost:"+target.Port()+"/", http.StatusTemporaryRedirect)
	})
	if _, err := c.Info(t.Context()); err != nil {
		t.Error(err)
	}
	if leaked.Load() {
		t.Error("a redirect took the token to another host")
	}
}

func TestFiles(t *testing.T) {
	c := serve(t, func(w http.ResponseWriter, r *http.Request) {
		if strings.HasSuffix(r.URL.Path, "/prompt") {
			_, _ = io.WriteString(w, "do it")
			return
		}
		b, err := json.Marshal(r.URL.Query())
		if err != nil {
			t.Error(err)
		}
		_, _ = w.Write(b)
	})
	if p, err := c.Prompt(t.Context(), "x"); p != "do it" || err != nil {
		t.Errorf("prompt %q, %v", p, err)
	}
	f, size, err := c.Artifact(t.Context(), "x", "a&b=c/ü.txt")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	b, err := io.ReadAll(f)
	if want := `{"name":["a\u0026b=c/ü.txt"]}`; err != nil || string(b) != want || size != int64(len(want)) {
		t.Errorf("artifact %s with size %d, %v", b, size, err)
	}
}
