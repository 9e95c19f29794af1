package runner

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"

	"github.com/tallyman-dev/tallyman"
)

// errFinal says that the server has closed the attempt: its state takes
// nothing more, events still may come.
var errFinal = errors.New("the attempt is final")

// errBusy says that a server is there and cannot take something now. Without
// it, Unavailable means that nobody answered.
var errBusy = errors.New("try again")

// call does one exchange. An error has the code that the answer's status
// stands for; Unavailable when there was no answer.
func (u *uplink) call(ctx context.Context, method, path string, body io.Reader, answer any) error {
	ctx, cancel := context.WithTimeout(ctx, callPeriod)
	defer cancel()
	req, err := u.request(ctx, method, path, body)
	if err != nil {
		return err
	}
	resp, err := u.http.Do(req)
	if err != nil {
		return tallyman.Errorf(tallyman.Unavailable, "call %s: %w", path, err)
	}
	defer resp.Body.Close()
	if err := statusError(resp); err != nil {
		return err
	}
	u.touch()
	if answer == nil {
		_, _ = io.Copy(io.Discard, resp.Body) // so that the connection is used again
		return nil
	}
	if err := json.NewDecoder(resp.Body).Decode(answer); err != nil {
		return tallyman.Errorf(tallyman.Unavailable, "read the answer to %s: %w", path, err)
	}
	return nil
}

func (u *uplink) request(ctx context.Context, method, path string, body io.Reader) (*http.Request, error) {
	req, err := http.NewRequestWithContext(ctx, method, u.base+path, body)
	if err != nil {
		return nil, fmt.Errorf("make a request for %s: %w", path, err)
	}
	key, err := u.proof()
	if err != nil {
		return nil, err
	}
	req.Header.Set("Authorization", "Bearer "+key)
	if u.cluster != "" {
		req.Header.Set(tallyman.ClusterHeader, u.cluster)
	}
	return req, nil
}

// proof is what a call is sent with: the key, or until there is one the Pod's
// token as it is now.
func (u *uplink) proof() (string, error) {
	u.mu.Lock()
	key := u.key
	u.mu.Unlock()
	if key != "" || u.token == "" {
		return key, nil
	}
	token, err := os.ReadFile(u.token)
	if err != nil {
		return "", fmt.Errorf("read the Pod's token: %w", err)
	}
	return strings.TrimSpace(string(token)), nil
}

// statusError is the error that an answer stands for, nil for a good one: a
// *tallyman.GapError, errFinal, or one with a code.
func statusError(resp *http.Response) error {
	if resp.StatusCode < 300 {
		return nil
	}
	b, _ := io.ReadAll(io.LimitReader(resp.Body, 4096)) // a cut problem is told as it is
	text := strings.TrimSpace(string(b))
	var problem struct {
		Detail   string `json:"detail"`
		Expected uint64 `json:"expected"`
	}
	if json.Unmarshal(b, &problem) == nil && problem.Detail != "" {
		text = problem.Detail
	}
	switch resp.StatusCode {
	case http.StatusConflict:
		if problem.Expected > 0 {
			return &tallyman.GapError{Expected: problem.Expected}
		}
		return tallyman.Errorf(tallyman.Conflict, "%s", text)
	case http.StatusGone:
		if resp.Header.Get("Tallyman-Final") != "" {
			return errFinal
		}
		return tallyman.Errorf(tallyman.Stale, "%s", text)
	case http.StatusUnauthorized, http.StatusForbidden:
		return tallyman.Errorf(tallyman.Unauthorized, "%s", text)
	case http.StatusNotFound:
		return tallyman.Errorf(tallyman.NotFound, "%s", text)
	case http.StatusBadRequest, http.StatusUnprocessableEntity:
		return tallyman.Errorf(tallyman.Invalid, "%s", text)
	case http.StatusRequestEntityTooLarge:
		return tallyman.Errorf(tallyman.TooLarge, "%s", text)
	}
	return tallyman.Errorf(tallyman.Unavailable, "%w: the server answered %s: %s", errBusy, resp.Status, text)
}
