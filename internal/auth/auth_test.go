package auth_test

import (
	"context"
	"errors"
	"io/fs"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tallyman-dev/tallyman"
	"github.com/tallyman-dev/tallyman/internal/auth"
)

const token = "a-token-of-this-test"

// open is an Auth with a token of its own.
func open(t *testing.T) *auth.Auth {
	t.Helper()
	path := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(path, []byte(token+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	a, err := auth.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// request is one that came over a loopback address.
func request(path string, change ...func(*http.Request)) *http.Request {
	r := httptest.NewRequest(http.MethodGet, path, nil)
	r.Host = "127.0.0.1:7333"
	r = r.WithContext(context.WithValue(r.Context(), http.LocalAddrContextKey, &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 7333}))
	for _, c := range change {
		c(r)
	}
	return r
}

func bearer(values ...string) func(*http.Request) {
	return func(r *http.Request) { r.Header["Authorization"] = values }
}

func cookies(list []*http.Cookie) func(*http.Request) {
	return func(r *http.Request) {
		for _, c := range list {
			r.AddCookie(c)
		}
	}
}

// answer is what a guarded server answers; it says "in" where one may.
func answer(a *auth.Auth, r *http.Request) *http.Response {
	w := httptest.NewRecorder()
	inner := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("in")) })
	a.Require(inner, "/healthz", "/assets/").ServeHTTP(w, r)
	return w.Result()
}

func body(t *testing.T, resp *http.Response) string {
	t.Helper()
	var b strings.Builder
	if err := resp.Write(&b); err != nil {
		t.Fatal(err)
	}
	_, text, _ := strings.Cut(b.String(), "\r\n\r\n")
	return text
}

func TestWhoMayCome(t *testing.T) {
	a := open(t)
	for name, c := range map[string]struct {
		r    *http.Request
		want int
	}{
		"nobody":                    {request("/"), 401},
		"the token":                 {request("/", bearer("Bearer "+token)), 200},
		"a part of it":              {request("/", bearer("Bearer "+token[1:])), 401},
		"more than it":              {request("/", bearer("Bearer "+token+"x")), 401},
		"the token twice":           {request("/", bearer("Bearer "+token, "Bearer "+token)), 401},
		"another scheme":            {request("/", bearer("Basic "+token)), 401},
		"no scheme":                 {request("/", bearer(token)), 401},
		"an empty token":            {request("/", bearer("Bearer ")), 401},
		"the token as a parameter":  {request("/?token=" + token), 401},
		"a cookie of its own":       {request("/", cookies([]*http.Cookie{{Name: "tallyman", Value: "x.99999999999.y"}})), 401},
		"a cookie that is empty":    {request("/", cookies([]*http.Cookie{{Name: "tallyman", Value: ""}})), 401},
		"the owner":                 {request("/", func(r *http.Request) { *r = *r.WithContext(auth.Owner(r.Context())) }), 200},
		"anybody, to an open path":  {request("/healthz"), 200},
		"anybody, to an open place": {request("/assets/app.css"), 200},
		"beside an open path":       {request("/healthz/x"), 401},
		"beside an open place":      {request("/assetsx"), 401},
		"out of an open place":      {request("/assets"), 401},
	} {
		if got := answer(a, c.r).StatusCode; got != c.want {
			t.Errorf("%s: %d, want %d", name, got, c.want)
		}
	}
}

func TestWhoIsRefusedLearnsNothing(t *testing.T) {
	a := open(t)
	var first string
	for _, r := range []*http.Request{
		request("/api/v1/runs"), request("/api/v1/runs/no-such-run"), request("/nowhere"), request("/api/v1/runs", bearer("Bearer wrong")),
		request("/api/v1/runs", bearer("a", "b")), request("/api/v1/runs", cookies([]*http.Cookie{{Name: "tallyman", Value: "x.y"}})),
	} {
		resp := answer(a, r)
		text := body(t, resp)
		if first == "" {
			first = text
		}
		if resp.StatusCode != 401 || text != first || !strings.Contains(text, `"status":401`) || resp.Header.Get("WWW-Authenticate") != "Bearer" ||
			resp.Header.Get("Content-Type") != "application/problem+json" {
			t.Errorf("%s: %d %v %s", r.URL, resp.StatusCode, resp.Header, text)
		}
	}
	page := answer(a, request("/runs", func(r *http.Request) { r.Header.Set("Accept", "text/html,*/*") }))
	if text := body(t, page); page.StatusCode != 401 || !strings.Contains(text, "tallyman config --login-link") {
		t.Errorf("a browser gets %d %s", page.StatusCode, text)
	}
}

func TestAForeignHostIsMisdirected(t *testing.T) {
	a := open(t)
	over := func(ip net.IP, host string) *http.Request {
		return request("/", bearer("Bearer "+token), func(r *http.Request) {
			r.Host = host
			*r = *r.WithContext(context.WithValue(r.Context(), http.LocalAddrContextKey, &net.TCPAddr{IP: ip, Port: 7333}))
		})
	}
	four, six, wide := net.IPv4(127, 0, 0, 1), net.IPv6loopback, net.IPv4(192, 0, 2, 1)
	for _, c := range []struct {
		ip   net.IP
		host string
		want int
	}{
		{four, "127.0.0.1:7333", 200}, {four, "127.0.0.1", 200}, {four, "localhost:7333", 200}, {four, "localhost", 200},
		{six, "[::1]:7333", 200}, {six, "[::1]", 200}, {four, "127.1.2.3:80", 200},
		{four, "evil.example", 421}, {four, "evil.example:7333", 421}, {four, "127.0.0.1.evil.example", 421}, {four, "localhost.evil.example", 421},
		{four, "", 421}, {four, "192.0.2.1:7333", 421}, {six, "evil.example", 421},
		{wide, "tallyman.example", 200}, {wide, "127.0.0.1", 200},
	} {
		if got := answer(a, over(c.ip, c.host)).StatusCode; got != c.want {
			t.Errorf("%s called %q: %d, want %d", c.ip, c.host, got, c.want)
		}
	}
	// Not even what is open, or the login: a page elsewhere could read it.
	for _, path := range []string{"/healthz", "/assets/app.css", "/login?code=" + a.LoginCode()} {
		if got := answer(a, request(path, func(r *http.Request) { r.Host = "evil.example" })).StatusCode; got != 421 {
			t.Errorf("%s: %d", path, got)
		}
	}
	// Over the socket there is no such thing.
	if got := answer(a, request("/", func(r *http.Request) {
		r.Host = "tallyman"
		*r = *r.WithContext(auth.Owner(r.Context()))
	})).StatusCode; got != 200 {
		t.Errorf("the owner: %d", got)
	}
}

// login redeems a code and returns the cookies.
func login(t *testing.T, a *auth.Auth, code string) []*http.Cookie {
	t.Helper()
	resp := answer(a, request("/login?code="+url.QueryEscape(code)))
	if resp.StatusCode != 200 {
		t.Fatalf("login: %d", resp.StatusCode)
	}
	return resp.Cookies()
}

func TestALoginLinkWorksOnce(t *testing.T) {
	a := open(t)
	code := a.LoginCode()
	for _, wrong := range []string{"", "x", code[1:], strings.ToLower(code)} {
		if resp := answer(a, request("/login?code="+wrong)); resp.StatusCode != 401 || len(resp.Cookies()) > 0 {
			t.Errorf("code %q: %d with %v", wrong, resp.StatusCode, resp.Cookies())
		}
	}
	got := login(t, a, code)
	if len(got) != 1 || !got[0].HttpOnly || got[0].SameSite != http.SameSiteStrictMode || got[0].Path != "/" || got[0].Secure {
		t.Errorf("the cookies are %v", got)
	}
	if resp := answer(a, request("/", cookies(got))); resp.StatusCode != 200 {
		t.Errorf("with the cookie: %d", resp.StatusCode)
	}
	if resp := answer(a, request("/login?code="+code)); resp.StatusCode != 401 || len(resp.Cookies()) > 0 {
		t.Errorf("the same link again: %d with %v", resp.StatusCode, resp.Cookies())
	}
	forged := *got[0]
	for name, value := range map[string]string{
		"another end":    strings.Replace(forged.Value, ".", ".9", 1),
		"no signature":   forged.Value[:strings.LastIndexByte(forged.Value, '.')+1],
		"a cut one":      forged.Value[:len(forged.Value)-1],
		"no parts":       strings.ReplaceAll(forged.Value, ".", ""),
		"another's body": "x" + forged.Value,
	} {
		forged.Value = value
		if resp := answer(a, request("/", cookies([]*http.Cookie{&forged}))); resp.StatusCode != 401 {
			t.Errorf("%s: %d", name, resp.StatusCode)
		}
		forged = *got[0]
	}
	// Another server, with another token, does not know it.
	other, err := auth.Open(filepath.Join(t.TempDir(), "token"))
	if err != nil {
		t.Fatal(err)
	}
	if resp := answer(other, request("/", cookies(got))); resp.StatusCode != 401 {
		t.Errorf("another server: %d", resp.StatusCode)
	}
}

func TestLinksAndCookiesExpire(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := open(t)
		early, late := a.LoginCode(), a.LoginCode()
		time.Sleep(15*time.Minute - time.Second)
		got := login(t, a, early)
		time.Sleep(time.Second)
		if resp := answer(a, request("/login?code="+late)); resp.StatusCode != 401 {
			t.Errorf("a link after a quarter of an hour: %d", resp.StatusCode)
		}
		time.Sleep(7*24*time.Hour - 2*time.Second)
		if resp := answer(a, request("/", cookies(got))); resp.StatusCode != 200 {
			t.Errorf("a cookie before a week: %d", resp.StatusCode)
		}
		time.Sleep(3 * time.Second)
		if resp := answer(a, request("/", cookies(got))); resp.StatusCode != 401 {
			t.Errorf("a cookie after a week: %d", resp.StatusCode)
		}
	})
}

func TestAFormIsTakenFromTheBrowserThatGotIt(t *testing.T) {
	a := open(t)
	mine, others := login(t, a, a.LoginCode()), login(t, a, a.LoginCode())
	form := func(token string, list []*http.Cookie) *http.Request {
		r := request("/runs", cookies(list))
		r.Method = http.MethodPost
		r.PostForm = url.Values{"csrf": {token}}
		return r
	}
	good := a.CSRF(request("/", cookies(mine)))
	if err := a.CheckCSRF(form(good, mine)); err != nil {
		t.Errorf("its own: %v", err)
	}
	for name, r := range map[string]*http.Request{
		"none": form("", mine), "another browser's": form(a.CSRF(request("/", cookies(others))), mine), "without a cookie": form(good, nil), "a made-up one": form("x"+good[1:], mine),
	} {
		if err := a.CheckCSRF(r); tallyman.CodeOf(err) != tallyman.Unauthorized {
			t.Errorf("%s: %v", name, err)
		}
	}
	// A token in the address is no token of a form.
	r := request("/runs?csrf="+url.QueryEscape(good), cookies(mine))
	r.Method = http.MethodPost
	if err := a.CheckCSRF(r); tallyman.CodeOf(err) != tallyman.Unauthorized {
		t.Errorf("in the address: %v", err)
	}
}

func TestTheTokenFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "token")
	if _, err := auth.ReadToken(path); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("without one: %v", err)
	}
	if _, err := auth.Open(path); err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(path)
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("it is made with mode %v, %v", info.Mode(), err)
	}
	made, err := auth.ReadToken(path)
	if err != nil || len(made) < 16 {
		t.Errorf("made was %q, %v", made, err)
	}
	a, err := auth.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	if got := answer(a, request("/", bearer("Bearer "+made))).StatusCode; got != 200 {
		t.Errorf("opened again, its token is answered with %d", got)
	}
	if left, err := filepath.Glob(filepath.Join(filepath.Dir(path), ".token-*")); err != nil || len(left) > 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
	for name, text := range map[string]string{"empty": "", "blank": " \n", "short": "hunter2\n"} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		_, err := auth.Open(path)
		if err == nil || !strings.Contains(err.Error(), path) || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("a file that is %s: %v", name, err)
		}
		if now, _ := os.ReadFile(path); string(now) != text {
			t.Errorf("a file that is %s was written", name)
		}
	}
	if _, err := auth.Open(filepath.Join(path, "x")); err == nil {
		t.Error("a place that cannot be is taken")
	}
}
