// Package auth says who may call: the owner over the socket, whoever has the
// token, and a browser that came by the login link. On loopback a foreign
// Host header is refused, so that a page elsewhere cannot reach the server
// through a name of its own.
package auth

import (
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/tallyman-dev/tallyman"
)

const (
	cookieName = "tallyman"
	sessionAge = 7 * 24 * time.Hour
	linkAge    = 15 * time.Minute
	minToken   = 16 // characters
)

// Auth checks requests of one server.
type Auth struct {
	token []byte // its SHA-256
	key   []byte // signs cookies; made of the token, so that both live as long
	cross http.CrossOriginProtection

	mu    sync.Mutex
	codes map[string]time.Time // one-time login codes and their end
}

// Open reads the token of a data folder, and makes one where there is none.
func Open(path string) (*Auth, error) {
	token, err := ReadToken(path)
	if errors.Is(err, fs.ErrNotExist) {
		token = rand.Text()
		err = writeToken(path, token)
	}
	if err != nil {
		return nil, err
	}
	sum := sha256.Sum256([]byte(token))
	mac := hmac.New(sha256.New, []byte(token))
	mac.Write([]byte("tallyman cookie"))
	return &Auth{token: sum[:], key: mac.Sum(nil), codes: map[string]time.Time{}}, nil
}

// ReadToken reads a token file.
func ReadToken(path string) (string, error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return "", fmt.Errorf("read the token: %w", err)
	}
	token := strings.TrimSpace(string(b))
	if len(token) < minToken {
		return "", fmt.Errorf("the token in %s has %d characters, at least %d are needed", path, len(token), minToken)
	}
	if strings.ContainsFunc(token, func(r rune) bool { return r <= ' ' || r > '~' }) {
		return "", fmt.Errorf("%s holds no token: a token is one word", path)
	}
	return token, nil
}

// writeToken writes the token so that after a crash all of it is there, or
// nothing.
func writeToken(path, token string) error {
	tmp := filepath.Join(filepath.Dir(path), ".token-"+rand.Text())
	f, err := os.OpenFile(tmp, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return fmt.Errorf("write the token: %w", err)
	}
	_, err = f.WriteString(token + "\n")
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err == nil {
		err = os.Rename(tmp, path)
	}
	if err != nil {
		return errors.Join(fmt.Errorf("write the token: %w", err), os.Remove(tmp))
	}
	return syncFolder(filepath.Dir(path))
}

// syncFolder makes the names in a folder durable.
func syncFolder(dir string) error {
	d, err := os.Open(dir)
	if err == nil {
		err = errors.Join(d.Sync(), d.Close())
	}
	if err != nil {
		return fmt.Errorf("write the token: %w", err)
	}
	return nil
}

// LoginCode makes a code that logs one browser in, once, within 15 minutes.
func (a *Auth) LoginCode() string {
	code := rand.Text()
	a.mu.Lock()
	defer a.mu.Unlock()
	now := time.Now()
	for c, end := range a.codes {
		if now.After(end) {
			delete(a.codes, c)
		}
	}
	a.codes[code] = now.Add(linkAge)
	return code
}

func (a *Auth) redeem(code string) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	end, ok := a.codes[code]
	delete(a.codes, code)
	return ok && time.Now().Before(end)
}

// ownerKey marks requests that came over the socket from the owner.
type ownerKey struct{}

// Owner marks the connections of a socket whose peer is the owner.
func Owner(ctx context.Context) context.Context { return context.WithValue(ctx, ownerKey{}, true) }

// IsOwner reports whether a request came over the socket.
func IsOwner(ctx context.Context) bool { return ctx.Value(ownerKey{}) == true }

// Require lets a request pass to next when it may; open paths always pass.
func (a *Auth) Require(next http.Handler, open ...string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !IsOwner(r.Context()) && foreignHost(r) {
			http.Error(w, "this server is not "+r.Host+": call it by its loopback address", http.StatusMisdirectedRequest)
			return
		}
		if r.URL.Path == "/login" {
			a.login(w, r)
			return
		}
		for _, p := range open {
			if r.URL.Path == p || strings.HasSuffix(p, "/") && strings.HasPrefix(r.URL.Path, p) {
				next.ServeHTTP(w, r)
				return
			}
		}
		if a.may(r) {
			next.ServeHTTP(w, r)
			return
		}
		if strings.Contains(r.Header.Get("Accept"), "text/html") {
			w.Header().Set("Content-Type", "text/html; charset=utf-8")
			w.WriteHeader(http.StatusUnauthorized)
			fmt.Fprint(w, loginPage)
			return
		}
		w.Header().Set("Content-Type", "application/problem+json")
		w.Header().Set("WWW-Authenticate", "Bearer")
		w.WriteHeader(http.StatusUnauthorized)
		fmt.Fprintln(w, `{"status":401,"title":"Unauthorized","code":"unauthorized","detail":"the token is missing or wrong: send the one in the data folder's file token as a bearer token; on the command line name a file that holds it with --token-file"}`)
	})
}

const loginPage = `<!doctype html><html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<title>Log in · tallyman</title><style>
:root { color-scheme: light dark }
body { margin: 16vh auto; max-width: 480px; padding: 0 16px; font: 15px/24px system-ui, sans-serif; background: light-dark(#fff, #0f1216); color: light-dark(#1b1f24, #e6e9ed) }
h1 { font-size: 18px } pre, code { font: 13px ui-monospace, monospace } pre { padding: 12px 16px; border-radius: 6px; background: light-dark(#f6f7f9, #161a20) }
</style><body><main><h1>Log in</h1><p>Open the link that <code>tallyman up</code> has printed. It works once; this prints another:</p>
<pre>tallyman config --login-link</pre></main></body></html>`

// foreignHost reports whether a request to a loopback address names another
// host.
func foreignHost(r *http.Request) bool {
	local, ok := r.Context().Value(http.LocalAddrContextKey).(net.Addr)
	if !ok {
		return false
	}
	tcp, ok := local.(*net.TCPAddr)
	if !ok || !tcp.IP.IsLoopback() {
		return false
	}
	host := r.Host
	if h, _, err := net.SplitHostPort(host); err == nil {
		host = h
	}
	if host == "localhost" {
		return false
	}
	ip := net.ParseIP(strings.Trim(host, "[]"))
	return ip == nil || !ip.IsLoopback()
}

func (a *Auth) may(r *http.Request) bool {
	if IsOwner(r.Context()) {
		return true
	}
	if values := r.Header.Values("Authorization"); len(values) > 0 {
		token, ok := strings.CutPrefix(values[0], "Bearer ")
		sum := sha256.Sum256([]byte(token))
		return len(values) == 1 && ok && subtle.ConstantTimeCompare(sum[:], a.token) == 1
	}
	// SameSite lets the other ports of this machine pass as the same site: a
	// change that another origin's page asks for counts as not logged in.
	_, ok := a.session(r)
	return ok && a.cross.Check(r) == nil
}

// login redeems a code for a cookie. Whoever only asks whether the link leads
// somewhere (HEAD) does not use it up, and does not learn whether it works.
func (a *Auth) login(w http.ResponseWriter, r *http.Request) {
	switch r.Method {
	case http.MethodGet:
	case http.MethodHead:
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		w.Header().Set("Cache-Control", "no-store")
		return
	default:
		w.Header().Set("Allow", "GET, HEAD")
		http.Error(w, "a login link is opened with GET", http.StatusMethodNotAllowed)
		return
	}
	if !a.redeem(r.URL.Query().Get("code")) {
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		w.WriteHeader(http.StatusUnauthorized)
		fmt.Fprint(w, loginPage)
		return
	}
	end := time.Now().Add(sessionAge)
	body := rand.Text() + "." + strconv.FormatInt(end.Unix(), 10)
	http.SetCookie(w, &http.Cookie{
		Name: cookieName, Value: body + "." + a.sign(body), Path: "/", Expires: end,
		HttpOnly: true, SameSite: http.SameSiteStrictMode, Secure: r.TLS != nil,
	})
	// A redirect would come from another site's link without the new cookie.
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.Header().Set("Cache-Control", "no-store")
	fmt.Fprint(w, `<!doctype html><meta charset="utf-8"><meta http-equiv="refresh" content="0; url=/"><title>tallyman</title><a href="/">go on</a>`)
}

func (a *Auth) sign(s string) string {
	mac := hmac.New(sha256.New, a.key)
	mac.Write([]byte(s))
	return base64.RawURLEncoding.EncodeToString(mac.Sum(nil))
}

// session returns the signed body of a browser's cookie.
func (a *Auth) session(r *http.Request) (string, bool) {
	c, err := r.Cookie(cookieName)
	if err != nil {
		return "", false
	}
	i := strings.LastIndexByte(c.Value, '.')
	if i < 0 {
		return "", false
	}
	body, sig := c.Value[:i], c.Value[i+1:]
	if !hmac.Equal([]byte(sig), []byte(a.sign(body))) {
		return "", false
	}
	_, end, _ := strings.Cut(body, ".")
	unix, err := strconv.ParseInt(end, 10, 64)
	if err != nil || time.Now().Unix() > unix {
		return "", false
	}
	return body, true
}

// CSRF is what a form of this browser must send back.
func (a *Auth) CSRF(r *http.Request) string {
	body, _ := a.session(r)
	return a.sign("csrf " + body)
}

// CheckCSRF refuses a form that was not made for this browser.
func (a *Auth) CheckCSRF(r *http.Request) error {
	if hmac.Equal([]byte(r.PostFormValue("csrf")), []byte(a.CSRF(r))) {
		return nil
	}
	return tallyman.Errorf(tallyman.Unauthorized, "this form has expired: load the page again")
}
