// Package client speaks tallyman's HTTP API, over TCP with a token or over
// the socket of a data folder. Its errors carry the codes of the root
// package: NotFound, Invalid, Conflict, Unauthorized, Unavailable (no server
// answered) …
package client

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/tallyman-dev/tallyman"
)

// Client calls one server.
type Client struct {
	base   string
	token  string
	http   *http.Client
	absent func(ctx context.Context) error
}

// New makes a client of a server by its URL. token may be "".
func New(base, token string) (*Client, error) {
	u, err := url.Parse(base)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		return nil, tallyman.Errorf(tallyman.Invalid, "server %q: write it like http://127.0.0.1:7333", base)
	}
	return &Client{base: strings.TrimRight(base, "/"), token: token, http: &http.Client{}}, nil
}

// TrustOnly makes the client take nobody's word for the server but that of
// these authorities, PEM. It is to be called before the first call.
func (c *Client) TrustOnly(pem []byte) error {
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(pem) {
		return tallyman.Errorf(tallyman.Invalid, "who vouches for server %s: there is no certificate", c.base)
	}
	t := http.DefaultTransport.(*http.Transport).Clone()
	t.TLSClientConfig = &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12}
	c.http = &http.Client{Transport: t}
	return nil
}

// NewSocket makes a client of the server behind a socket.
func NewSocket(path string) *Client {
	d := &net.Dialer{Timeout: 5 * time.Second}
	c := &Client{base: "http://tallyman"}
	c.http = &http.Client{Transport: &http.Transport{
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			for try := 0; ; try++ {
				conn, err := d.DialContext(ctx, "unix", path)
				if err == nil || c.absent == nil || try == absentTries {
					return conn, err
				}
				if err := c.absent(ctx); err != nil {
					return nil, err
				}
			}
		},
		DisableCompression: true,
		ReadBufferSize:     64 << 10,
	}}
	return c
}

// absentTries is how often a socket is tried again: who was there a moment ago
// may have gone.
const absentTries = 5

// OnAbsent sets what is called when nobody listens on the socket, before the
// call is given up: when it returns nil, the socket is tried again. Nothing
// has been sent by then. It is set before the first call, and may be called
// from several goroutines.
func (c *Client) OnAbsent(f func(ctx context.Context) error) { c.absent = f }

// Close drops idle connections.
func (c *Client) Close() { c.http.CloseIdleConnections() }

func (c *Client) do(ctx context.Context, method, path string, body io.Reader) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, method, c.base+path, body)
	if err != nil {
		return nil, tallyman.Errorf(tallyman.Invalid, "call %s: %w", path, err)
	}
	if body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	if c.token != "" {
		req.Header.Set("Authorization", "Bearer "+c.token)
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return nil, tallyman.Errorf(tallyman.Unavailable, "call the server: %w", err)
	}
	if resp.StatusCode >= 300 {
		return nil, errors.Join(problem(resp), resp.Body.Close())
	}
	return resp, nil
}

var codes = map[int]tallyman.Code{
	http.StatusBadRequest: tallyman.Invalid, http.StatusUnprocessableEntity: tallyman.Invalid,
	http.StatusNotFound: tallyman.NotFound, http.StatusConflict: tallyman.Conflict,
	http.StatusUnauthorized: tallyman.Unauthorized, http.StatusForbidden: tallyman.Unauthorized,
	http.StatusMisdirectedRequest: tallyman.Unauthorized, http.StatusRequestEntityTooLarge: tallyman.TooLarge,
	http.StatusServiceUnavailable: tallyman.Unavailable, http.StatusBadGateway: tallyman.Unavailable,
	http.StatusGone: tallyman.Stale,
}

// problem reads an error's body.
func problem(resp *http.Response) error {
	b, err := io.ReadAll(io.LimitReader(resp.Body, 1<<20))
	if err != nil {
		return tallyman.Errorf(tallyman.Unavailable, "read the server's answer: %w", err)
	}
	var p struct {
		Detail string          `json:"detail"`
		Code   tallyman.Code   `json:"code"`
		Reason tallyman.Reason `json:"reason"`
		Errors []struct {
			Location string `json:"location"`
			Message  string `json:"message"`
		} `json:"errors"`
	}
	text := strings.TrimSpace(string(b))
	if json.Unmarshal(b, &p) == nil && p.Detail != "" {
		text = p.Detail
		for _, e := range p.Errors {
			text += "\n" + strings.TrimPrefix(e.Location+": ", ": ") + e.Message
		}
	}
	code := codes[resp.StatusCode]
	if code == "" {
		code = tallyman.Internal
		text = "the server answered " + resp.Status + ": " + text
	}
	if p.Code != "" {
		code = p.Code
	}
	return &tallyman.Error{Code: code, Message: text, Reason: p.Reason}
}

func (c *Client) call(ctx context.Context, method, path string, in, out any) error {
	var body io.Reader
	if in != nil {
		b, err := json.Marshal(in)
		if err != nil {
			return fmt.Errorf("encode the request: %w", err)
		}
		body = bytes.NewReader(b)
	}
	resp, err := c.do(ctx, method, path, body)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if out == nil {
		return nil
	}
	if err := json.NewDecoder(resp.Body).Decode(out); err != nil {
		return tallyman.Errorf(tallyman.Unavailable, "read the server's answer to %s: %w", path, err)
	}
	return nil
}

// runPath is the path of a run; a name of dots alone stays a name.
func runPath(id string) string {
	if id == "." || id == ".." {
		return "/api/v1/runs/" + strings.ReplaceAll(id, ".", "%2E")
	}
	return "/api/v1/runs/" + url.PathEscape(id)
}

// Submit submits a run. With a key the same run comes back for the same
// request; Conflict for another.
func (c *Client) Submit(ctx context.Context, req tallyman.Request) (run tallyman.Run, err error) {
	err = c.call(ctx, http.MethodPost, "/api/v1/runs", req, &run)
	return run, err
}

// Preview is what a submit would make in the server's cluster, as JSON.
// Nothing is created.
func (c *Client) Preview(ctx context.Context, req tallyman.Request) (object json.RawMessage, err error) {
	err = c.call(ctx, http.MethodPost, "/api/v1/preview", req, &object)
	return object, err
}

// Run returns a run by its id, name, or a unique part of the id.
func (c *Client) Run(ctx context.Context, id string) (run tallyman.Run, err error) {
	err = c.call(ctx, http.MethodGet, runPath(id), nil, &run)
	return run, err
}

// Runs returns a page of runs, the newest first, and the next page's cursor,
// "" at the end.
func (c *Client) Runs(ctx context.Context, f tallyman.Filter) (items []tallyman.Run, next string, err error) {
	q := url.Values{}
	states := make([]string, 0, len(f.States))
	for _, s := range f.States {
		states = append(states, string(s))
	}
	if len(states) > 0 {
		q.Set("state", strings.Join(states, ","))
	}
	for k, v := range f.Labels {
		q.Add("label", k+"="+v)
	}
	set := func(name, value string) {
		if value != "" {
			q.Set(name, value)
		}
	}
	set("namespace", f.Namespace)
	set("agent", f.Agent)
	set("q", f.Text)
	set("cursor", f.After)
	if f.Limit > 0 {
		q.Set("limit", strconv.Itoa(f.Limit))
	}
	var page struct {
		Items []tallyman.Run `json:"items"`
		Next  string         `json:"next"`
	}
	err = c.call(ctx, http.MethodGet, "/api/v1/runs?"+q.Encode(), nil, &page)
	return page.Items, page.Next, err
}

// Stop asks a run to end.
func (c *Client) Stop(ctx context.Context, id string) (run tallyman.Run, err error) {
	err = c.call(ctx, http.MethodPost, runPath(id)+"/stop", nil, &run)
	return run, err
}

// Rerun submits a run's request again, with changes.
func (c *Client) Rerun(ctx context.Context, id string, set map[string]string) (run tallyman.Run, err error) {
	err = c.call(ctx, http.MethodPost, runPath(id)+"/rerun", map[string]any{"set": set}, &run)
	return run, err
}

// Delete removes an ended run.
func (c *Client) Delete(ctx context.Context, id string) error {
	return c.call(ctx, http.MethodDelete, runPath(id), nil, nil)
}

// Attempts returns the attempts of a run.
func (c *Client) Attempts(ctx context.Context, id string) ([]tallyman.Attempt, error) {
	return items[tallyman.Attempt](ctx, c, runPath(id)+"/attempts")
}

// Timeline returns what the server decided and saw about a run.
func (c *Client) Timeline(ctx context.Context, id string) ([]tallyman.TimelineEntry, error) {
	return items[tallyman.TimelineEntry](ctx, c, runPath(id)+"/timeline")
}

// Artifacts returns the files that a run left.
func (c *Client) Artifacts(ctx context.Context, id string) ([]tallyman.Artifact, error) {
	return items[tallyman.Artifact](ctx, c, runPath(id)+"/artifacts")
}

// Agents returns the agents that the server knows.
func (c *Client) Agents(ctx context.Context) ([]tallyman.Agent, error) {
	return items[tallyman.Agent](ctx, c, "/api/v1/agents")
}

func items[T any](ctx context.Context, c *Client, path string) ([]T, error) {
	var page struct {
		Items []T `json:"items"`
	}
	err := c.call(ctx, http.MethodGet, path, nil, &page)
	return page.Items, err
}

// Artifact opens a file that a run left.
func (c *Client) Artifact(ctx context.Context, id, name string) (io.ReadCloser, int64, error) {
	resp, err := c.do(ctx, http.MethodGet, runPath(id)+"/artifact?name="+url.QueryEscape(name), nil)
	if err != nil {
		return nil, 0, err
	}
	return resp.Body, resp.ContentLength, nil
}

// Prompt returns the whole prompt of a run.
func (c *Client) Prompt(ctx context.Context, id string) (string, error) {
	resp, err := c.do(ctx, http.MethodGet, runPath(id)+"/prompt", nil)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		return "", tallyman.Errorf(tallyman.Unavailable, "read the prompt: %w", err)
	}
	return string(b), nil
}

// Info asks the server who it is.
func (c *Client) Info(ctx context.Context) (i tallyman.Info, err error) {
	err = c.call(ctx, http.MethodGet, "/api/v1/info", nil, &i)
	return i, err
}

// LoginLink makes a link that logs one browser in, once.
func (c *Client) LoginLink(ctx context.Context) (string, error) {
	var link struct {
		URL string `json:"url"`
	}
	err := c.call(ctx, http.MethodPost, "/api/v1/login-link", nil, &link)
	return link.URL, err
}

// Prune removes runs that ended longer ago than an age.
func (c *Client) Prune(ctx context.Context, p tallyman.PruneRequest) (r tallyman.PruneResult, err error) {
	err = c.call(ctx, http.MethodPost, "/api/v1/prune", p, &r)
	return r, err
}
