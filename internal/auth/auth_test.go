package auth_test

import (
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tallyman-dev/tallyman"
	"github.com/tallyman-dev/tallyman/internal/auth"
)

const token = "0123456789abcdef"

// open is an Auth with a known token.
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

// call sends a request that has come in on a loopback address.
func call(a *auth.Auth, method, target string, change ...func(*http.Request)) *httptest.ResponseRecorder {
	mux := http.NewServeMux()
	mux.HandleFunc("/", func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("open or in")) })
	mux.HandleFunc("/secret", func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("secret")) })
	r := arrived(httptest.NewRequest(method, target, nil), &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 7333})
	for _, c := range change {
		c(r)
	}
	w := httptest.NewRecorder()
	a.Require(mux, "/healthz", "/assets/").ServeHTTP(w, r)
	return w
}

func arrived(r *http.Request, on net.Addr) *http.Request {
	r = r.WithContext(context.WithValue(r.Context(), http.LocalAddrContextKey, on))
	r.Host = "127.0.0.1:7333"
	return r
}

func with(name, value string) func(*http.Request) {
	return func(r *http.Request) { r.Header.Add(name, value) }
}

func host(h string) func(*http.Request) { return func(r *http.Request) { r.Host = h } }

func bearer(r *http.Request) { r.Header.Add("Authorization", "Bearer "+token) }

// cookie logs a browser in, and returns what it sends from then on.
func cookie(t *testing.T, a *auth.Auth) *http.Cookie {
	t.Helper()
	w := call(a, "GET", "/login?code="+a.LoginCode())
	if all := w.Result().Cookies(); w.Code == http.StatusOK && len(all) == 1 {
		return all[0]
	}
	t.Fatalf("login: %d with %v", w.Code, w.Header())
	return nil
}

func sends(c *http.Cookie) func(*http.Request) { return func(r *http.Request) { r.AddCookie(c) } }

func TestAForeignHostIsRefusedOnLoopback(t *testing.T) {
	a := open(t)
	for name, want := range map[string]int{
		"localhost": 200, "localhost:7333": 200, "localhost:1": 200, "127.0.0.1": 200, "127.0.0.1:9": 200,
		"127.8.9.10": 200, "[::1]": 200, "[::1]:7333": 200,
		"evil.example": 421, "evil.example:7333": 421, "localhost.evil.example": 421, "127.0.0.1.evil.example": 421,
		"10.0.0.1": 421, "0.0.0.0:7333": 421, "[2001:db8::1]:7333": 421, "": 421, ":7333": 421,
	} {
		for _, path := range []string{"/secret", "/healthz", "/login?code=" + a.LoginCode()} {
			if got := call(a, "GET", path, bearer, host(name)).Code; got != want {
				t.Errorf("host %q asks for %s: %d, want %d", name, path, got, want)
			}
		}
	}
}

func TestOtherAddressesHaveNamesOfTheirOwn(t *testing.T) {
	a := open(t)
	outside := func(r *http.Request) {
		*r = *arrived(r, &net.TCPAddr{IP: net.IPv4(192, 0, 2, 7), Port: 443})
		r.Host = "tallyman.example"
	}
	if w := call(a, "GET", "/secret", outside, bearer); w.Code != http.StatusOK {
		t.Errorf("with the token: %d", w.Code)
	}
	if w := call(a, "GET", "/secret", outside); w.Code != http.StatusUnauthorized {
		t.Errorf("without the token: %d", w.Code)
	}
}

func TestTheToken(t *testing.T) {
	a := open(t)
	for name, c := range map[string]struct {
		headers []string
		want    int
	}{
		"right":                  {[]string{"Bearer " + token}, 200},
		"wrong":                  {[]string{"Bearer " + token + "x"}, 401},
		"empty":                  {[]string{"Bearer "}, 401},
		"another scheme":         {[]string{"Basic " + token}, 401},
		"without its scheme":     {[]string{token}, 401},
		"given twice":            {[]string{"Bearer " + token, "Bearer " + token}, 401},
		"right, then wrong":      {[]string{"Bearer " + token, "Bearer x"}, 401},
		"two tokens in one line": {[]string{"Bearer " + token + ", Bearer " + token}, 401},
		"none":                   {nil, 401},
	} {
		t.Run(name, func(t *testing.T) {
			w := call(a, "GET", "/secret", func(r *http.Request) { r.Header["Authorization"] = c.headers })
			if w.Code != c.want || (w.Body.String() == "secret") != (c.want == 200) {
				t.Errorf("%d %s, want %d", w.Code, w.Body, c.want)
			}
		})
	}
}

func TestAWrongTokenIsNotForgivenForACookie(t *testing.T) {
	a := open(t)
	if w := call(a, "GET", "/secret", sends(cookie(t, a)), with("Authorization", "Bearer wrong")); w.Code != http.StatusUnauthorized {
		t.Errorf("got %d", w.Code)
	}
}

func TestTheOwnerNeedsNeitherTokenNorHost(t *testing.T) {
	a := open(t)
	owner := func(r *http.Request) { *r = *r.WithContext(auth.Owner(r.Context())); r.Host = "tallyman" }
	if w := call(a, "POST", "/secret", owner); w.Body.String() != "secret" {
		t.Errorf("got %d %s", w.Code, w.Body)
	}
	if auth.IsOwner(t.Context()) {
		t.Error("everybody is the owner")
	}
}

func TestOpenPathsAndNoOthers(t *testing.T) {
	a := open(t)
	for path, want := range map[string]int{
		"/healthz": 200, "/assets/app.css": 200, "/assets/": 200,
		"/": 401, "/healthz/": 401, "/healthzz": 401, "/assets": 401, "/secret": 401, "/metrics": 401,
	} {
		if w := call(a, "GET", path); w.Code != want {
			t.Errorf("%s: %d, want %d", path, w.Code, want)
		}
	}
	for _, path := range []string{"/assets/../secret", "/assets/..%2fsecret", "/assets/%2e%2e/secret", "/assets%2f../secret", "//assets/../secret"} {
		for _, method := range []string{"GET", "POST", "CONNECT"} {
			w := call(a, method, "/", func(r *http.Request) {
				u, err := url.ParseRequestURI(path)
				if err != nil {
					t.Fatal(err)
				}
				r.URL = u
			})
			if w.Body.String() == "secret" {
				t.Errorf("%s %s brings the secret", method, path)
			}
		}
	}
}

func TestBrowsersAreAnsweredWithAPageOthersWithAProblem(t *testing.T) {
	a := open(t)
	page := call(a, "GET", "/secret", with("Accept", "text/html,application/xhtml+xml"))
	if page.Code != 401 || !strings.HasPrefix(page.Header().Get("Content-Type"), "text/html") || !strings.Contains(page.Body.String(), "tallyman config --login-link") {
		t.Errorf("a browser gets %d %v %s", page.Code, page.Header(), page.Body)
	}
	w := call(a, "GET", "/secret", with("Accept", "application/json"))
	var p struct {
		Status        int
		Title, Detail string
		Code          tallyman.Code
	}
	if err := json.Unmarshal(w.Body.Bytes(), &p); err != nil {
		t.Fatal(err)
	}
	if w.Code != 401 || p.Status != 401 || p.Title == "" || p.Detail == "" || p.Code != tallyman.Unauthorized {
		t.Errorf("a program gets %d %+v", w.Code, p)
	}
	if h := w.Header(); h.Get("Content-Type") != "application/problem+json" || h.Get("WWW-Authenticate") != "Bearer" {
		t.Errorf("a program gets %v", h)
	}
}

func TestALoginLinkWorksOnce(t *testing.T) {
	a := open(t)
	code := a.LoginCode()
	w := call(a, "GET", "/login?code="+code)
	c := w.Result().Cookies()
	if w.Code != 200 || len(c) != 1 || !c[0].HttpOnly || c[0].SameSite != http.SameSiteStrictMode || c[0].Path != "/" || c[0].Secure {
		t.Fatalf("login: %d, %v", w.Code, c)
	}
	if w.Header().Get("Cache-Control") != "no-store" {
		t.Error("a login may be cached")
	}
	if w := call(a, "GET", "/secret", sends(c[0])); w.Body.String() != "secret" {
		t.Errorf("the cookie brings %d", w.Code)
	}
	for _, again := range []string{code, "", "x"} {
		if w := call(a, "GET", "/login?code="+again); w.Code != 401 || len(w.Result().Cookies()) > 0 {
			t.Errorf("code %q: %d", again, w.Code)
		}
	}
}

func TestOnlyOpeningALoginLinkUsesItUp(t *testing.T) {
	a := open(t)
	link := "/login?code=" + a.LoginCode()
	for _, c := range []struct {
		method, target string
		status         int
	}{{"HEAD", link, 200}, {"HEAD", "/login?code=x", 200}, {"POST", link, 405}, {"OPTIONS", link, 405}} {
		if w := call(a, c.method, c.target); w.Code != c.status || len(w.Result().Cookies()) > 0 {
			t.Errorf("%s %s: %d, %v", c.method, c.target, w.Code, w.Result().Cookies())
		}
	}
	if w := call(a, "GET", link); w.Code != 200 || len(w.Result().Cookies()) != 1 {
		t.Errorf("the link then brings %d", w.Code)
	}
}

func TestALoginLinkExpires(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := open(t)
		early, late := a.LoginCode(), a.LoginCode()
		time.Sleep(15*time.Minute - time.Second)
		if w := call(a, "GET", "/login?code="+early); w.Code != 200 {
			t.Errorf("a second before its end: %d", w.Code)
		}
		time.Sleep(time.Second)
		a.LoginCode() // forgets the dead ones
		if w := call(a, "GET", "/login?code="+late); w.Code != 401 {
			t.Errorf("at its end: %d", w.Code)
		}
	})
}

func TestACookieExpires(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := open(t)
		c := cookie(t, a)
		time.Sleep(7 * 24 * time.Hour)
		if w := call(a, "GET", "/secret", sends(c)); w.Code != 200 {
			t.Errorf("on its last day: %d", w.Code)
		}
		time.Sleep(2 * time.Second)
		if w := call(a, "GET", "/secret", sends(c)); w.Code != 401 {
			t.Errorf("after its end: %d", w.Code)
		}
	})
}

func TestACookieCannotBeForged(t *testing.T) {
	a := open(t)
	c := cookie(t, a)
	part := strings.Split(c.Value, ".")
	if len(part) != 3 {
		t.Fatalf("cookie %q", c.Value)
	}
	later := strconv.FormatInt(time.Now().Add(1000*time.Hour).Unix(), 10)
	form := httptest.NewRequest("GET", "/", nil)
	form.AddCookie(c)
	for name, value := range map[string]string{
		"another end":      part[0] + "." + later + "." + part[2],
		"another session":  "X" + part[0] + "." + part[1] + "." + part[2],
		"no signature":     part[0] + "." + part[1] + ".",
		"only a session":   part[0],
		"nothing":          "",
		"dots":             "..",
		"a form's word":    part[0] + "." + part[1] + "." + a.CSRF(form),
		"another server's": cookie(t, other(t)).Value,
	} {
		if w := call(a, "GET", "/secret", sends(&http.Cookie{Name: c.Name, Value: value})); w.Code != 401 {
			t.Errorf("%s: %d", name, w.Code)
		}
	}
}

// other is the Auth of another data folder.
func other(t *testing.T) *auth.Auth {
	t.Helper()
	a, err := auth.Open(filepath.Join(t.TempDir(), "token"))
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func TestCookiesOutliveTheServer(t *testing.T) {
	c := cookie(t, open(t))
	if w := call(open(t), "GET", "/secret", sends(c)); w.Code != 200 {
		t.Errorf("after a restart with the same token: %d", w.Code)
	}
}

func TestAnotherOriginsPageChangesNothing(t *testing.T) {
	a := open(t)
	c := cookie(t, a)
	for name, o := range map[string]struct {
		method  string
		headers map[string]string
		want    int
	}{
		"our own page":                      {"POST", map[string]string{"Sec-Fetch-Site": "same-origin", "Origin": "http://127.0.0.1:7333"}, 200},
		"an older browser, our page":        {"POST", map[string]string{"Origin": "http://127.0.0.1:7333"}, 200},
		"a program":                         {"POST", nil, 200},
		"another port of this machine":      {"POST", map[string]string{"Sec-Fetch-Site": "same-site", "Origin": "http://127.0.0.1:8000"}, 401},
		"an older browser, another port":    {"POST", map[string]string{"Origin": "http://127.0.0.1:8000"}, 401},
		"another site":                      {"DELETE", map[string]string{"Sec-Fetch-Site": "cross-site"}, 401},
		"another port, which only may look": {"GET", map[string]string{"Sec-Fetch-Site": "same-site"}, 200},
	} {
		t.Run(name, func(t *testing.T) {
			w := call(a, o.method, "/secret", sends(c), func(r *http.Request) {
				for k, v := range o.headers {
					r.Header.Set(k, v)
				}
			})
			if w.Code != o.want {
				t.Errorf("%d, want %d", w.Code, o.want)
			}
		})
	}
}

func TestFormsAreBoundToTheirBrowser(t *testing.T) {
	a := open(t)
	mine, theirs := cookie(t, a), cookie(t, a)
	of := func(c *http.Cookie) string {
		r := httptest.NewRequest("GET", "/", nil)
		r.AddCookie(c)
		return a.CSRF(r)
	}
	for name, c := range map[string]struct {
		word string
		ok   bool
	}{
		"its own":             {of(mine), true},
		"another browser's":   {of(theirs), false},
		"of nobody logged in": {a.CSRF(httptest.NewRequest("GET", "/", nil)), false},
		"none":                {"", false},
	} {
		r := httptest.NewRequest("POST", "/", strings.NewReader(url.Values{"csrf": {c.word}}.Encode()))
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		r.AddCookie(mine)
		err := a.CheckCSRF(r)
		if (err == nil) != c.ok || err != nil && tallyman.CodeOf(err) != tallyman.Unauthorized {
			t.Errorf("%s: %v", name, err)
		}
	}
	r := httptest.NewRequest("POST", "/?csrf="+url.QueryEscape(of(mine)), nil)
	r.AddCookie(mine)
	if a.CheckCSRF(r) == nil {
		t.Error("a word in the address is taken")
	}
}

func TestAFileThatHoldsNoToken(t *testing.T) {
	path := filepath.Join(t.TempDir(), "ca.pem")
	for text, good := range map[string]bool{
		strings.Repeat("A", 40) + "\n": true, "-----BEGIN CERTIFICATE-----\nMIIBszCCAVmgAwIBAgIRAK\n": false, strings.Repeat("é", 40): false,
	} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := auth.ReadToken(path); (err == nil) != good || err != nil && !strings.Contains(err.Error(), "holds no token") {
			t.Errorf("%q: %v", text, err)
		}
	}
}

func TestAMissingTokenIsMade(t *testing.T) {
	path := filepath.Join(t.TempDir(), "token")
	if _, err := auth.Open(path); err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(path)
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("mode %v, %v", info.Mode(), err)
	}
	first, err := auth.ReadToken(path)
	if err != nil || !regexp.MustCompile(`^[A-Z2-7]{26,}$`).MatchString(first) {
		t.Errorf("token %q, %v", first, err)
	}
	if _, err := auth.Open(path); err != nil {
		t.Fatal(err)
	}
	if again, err := auth.ReadToken(path); again != first {
		t.Errorf("the token has become another: %v", err)
	}
	if left, err := filepath.Glob(filepath.Join(filepath.Dir(path), ".token-*")); len(left) > 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}

func TestATokenThatCannotBeUsed(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{"short": "fifteen letters", "blank": strings.Repeat(" ", 40) + "\n", "empty": ""} {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		_, err := auth.Open(path)
		if err == nil || !strings.Contains(err.Error(), path) || text != "" && strings.Contains(err.Error(), "fifteen letters") {
			t.Errorf("%s: %v", name, err)
		}
		if b, _ := os.ReadFile(path); string(b) != text {
			t.Errorf("%s: the file has become %q", name, b)
		}
	}
	if _, err := auth.Open(filepath.Join(dir, "no", "folder")); err == nil {
		t.Error("a token in a folder that is not there")
	}
	if _, err := auth.Open(dir); err == nil {
		t.Error("a folder is no token")
	}
	if _, err := auth.ReadToken(filepath.Join(dir, "absent")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("absent: %v", err)
	}
}
