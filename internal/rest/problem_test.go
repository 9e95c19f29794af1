package rest_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/tallyman-dev/tallyman"
)

func TestEveryCodeHasItsStatus(t *testing.T) {
	for code, status := range map[tallyman.Code]int{
		tallyman.Invalid: 400, tallyman.Unsupported: 400, tallyman.Unauthorized: 403, tallyman.NotFound: 404,
		tallyman.Conflict: 409, tallyman.Stale: 410, tallyman.TooLarge: 413, tallyman.Unavailable: 503,
	} {
		t.Run(string(code), func(t *testing.T) {
			err := &tallyman.Error{Code: code, Message: "one sentence", Reason: tallyman.InvalidSpec}
			a := newAPI(t, &source{err: fmt.Errorf("do it: %w", err)})
			p := problem(t, a.call("GET", "/api/v1/runs/x", ""), status)
			if p.Code != code || p.Detail != "do it: one sentence" || p.Reason != tallyman.InvalidSpec {
				t.Errorf("got %+v", p)
			}
			if a.log.Len() > 0 {
				t.Errorf("logged: %s", a.log)
			}
		})
	}
}

func TestInternalErrorsAreToldFlatAndLogged(t *testing.T) {
	for name, err := range map[string]error{"without a code": errors.New("disk /dev/x: I/O error"), "internal": tallyman.Errorf(tallyman.Internal, "disk /dev/x: I/O error")} {
		t.Run(name, func(t *testing.T) {
			a := newAPI(t, &source{err: err})
			for _, c := range [][3]string{
				{"GET", "/api/v1/runs", ""}, {"GET", "/api/v1/runs/x", ""}, {"GET", "/api/v1/agents", ""}, {"GET", "/api/v1/runs/x/events", ""},
				{"GET", "/api/v1/runs/x/attempts", ""}, {"GET", "/api/v1/runs/x/timeline", ""}, {"GET", "/api/v1/runs/x/artifacts", ""},
				{"GET", "/api/v1/runs/x/artifact?name=y", ""}, {"GET", "/api/v1/runs/x/prompt", ""}, {"POST", "/api/v1/runs", "{}"},
				{"POST", "/api/v1/runs/x/stop", ""}, {"POST", "/api/v1/runs/x/rerun", "{}"}, {"DELETE", "/api/v1/runs/x", ""}, {"POST", "/api/v1/prune", `{"age":"1h"}`},
			} {
				a.log.Reset()
				p := problem(t, a.call(c[0], c[1], c[2]), 500)
				if p.Code != tallyman.Internal || strings.Contains(p.Detail, "disk") || !strings.Contains(p.Detail, "internal error") {
					t.Errorf("%s %s: told %+v", c[0], c[1], p)
				}
				if !strings.Contains(a.log.String(), "I/O error") {
					t.Errorf("%s %s: not logged", c[0], c[1])
				}
			}
		})
	}
}

func TestACallThatTheServersEndCutsOffIsToBeMadeAgain(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	a := newAPI(t, &source{err: fmt.Errorf("list runs: %w", context.Canceled)})
	p := problem(t, a.call("GET", "/api/v1/runs", "", func(r *http.Request) { *r = *r.WithContext(ctx) }), 503)
	if p.Code != tallyman.Unavailable || a.log.Len() > 0 {
		t.Errorf("got %+v, logged %s", p, a.log)
	}
}

func TestWhatTheRouterRefusesIsAProblemToo(t *testing.T) {
	a := newAPI(t, &source{runs: some()})
	for _, c := range []struct {
		method, target string
		status         int
		code           tallyman.Code
		says           string
	}{
		{"GET", "/api/v1/nothing", 404, tallyman.NotFound, "GET /api/v1/nothing is no call"},
		{"PUT", "/api/v1/runs", 404, tallyman.NotFound, "PUT /api/v1/runs"},
		{"GET", "/api/v2/runs", 404, tallyman.NotFound, "openapi.json"},
		{"GET", "/api/v1/runs/" + strings.Repeat("x", 129), 400, tallyman.Invalid, "validation"},
		{"GET", "/api/v1/runs?limit=0", 400, tallyman.Invalid, "validation"},
		{"GET", "/api/v1/runs?limit=1001", 400, tallyman.Invalid, "validation"},
		{"GET", "/api/v1/runs?limit=x", 400, tallyman.Invalid, "validation"},
		{"GET", "/api/v1/runs/exec-a/artifact", 400, tallyman.Invalid, "validation"},
		{"GET", "/api/v1/runs/exec-a/events?follow=perhaps", 400, tallyman.Invalid, "validation"},
		{"GET", "/api/v1/runs/exec-a/events?after=1-2", 400, tallyman.Invalid, "ATTEMPT.CURSOR"},
	} {
		t.Run(c.method+" "+c.target[:min(40, len(c.target))], func(t *testing.T) {
			p := problem(t, a.call(c.method, c.target, ""), c.status)
			if p.Code != c.code || !strings.Contains(p.Detail, c.says) {
				t.Errorf("got %+v", p)
			}
			if c.says == "validation" && (len(p.Errors) != 1 || p.Errors[0].Message == "" || p.Errors[0].Location == "") {
				t.Errorf("does not say what is wrong: %+v", p.Errors)
			}
		})
	}
}

func TestABodyThatIsTooLarge(t *testing.T) {
	a := newAPI(t, &source{})
	p := problem(t, a.call("POST", "/api/v1/prune", `{"age":"`+strings.Repeat("1", 1<<20)+`h"}`), http.StatusRequestEntityTooLarge)
	if p.Code != tallyman.TooLarge {
		t.Errorf("got %+v", p)
	}
}
