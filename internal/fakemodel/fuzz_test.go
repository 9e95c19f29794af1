package fakemodel_test

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/tallyman-dev/tallyman/internal/fakemodel"
)

// Whatever a client sends, the answer is one that HTTP knows, or the
// connection breaks because the prompt says so.
func FuzzCalls(f *testing.F) {
	paths := []string{
		"/v1/messages", "/v1/responses", "/v1/chat/completions",
		"/v1beta/models/m:generateContent", "/v1beta/models/m:streamGenerateContent?alt=sse", "/v1/messages/count_tokens",
	}
	for i, prompt := range []string{everything, "%%error 429 after=1%% %%say a%%", "%%agent a%% %%agent b%% %%end%% %%end%%", "%%cut%%", "%%chunk 0%% %%say ünï%%"} {
		for _, b := range bodies(prompt) {
			f.Add(i, strings.Replace(b.body, "STREAM", "true", 1))
		}
	}
	f.Add(0, request(false, called("x")...))
	f.Fuzz(func(t *testing.T, path int, body string) {
		if strings.Contains(body, "flood") || path < 0 {
			return // correct, but slow
		}
		ctx, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
		defer cancel()
		w := httptest.NewRecorder()
		defer func() {
			if p := recover(); p != nil {
				if err, ok := p.(error); !ok || !errors.Is(err, http.ErrAbortHandler) {
					panic(p)
				}
			}
		}()
		fakemodel.New(fakemodel.Script{}, nil).ServeHTTP(w, httptest.NewRequestWithContext(ctx, "POST", paths[path%len(paths)], strings.NewReader(body)))
		if w.Code != 200 && (w.Code < 400 || w.Code > 599) {
			t.Errorf("status %d", w.Code)
		}
	})
}

func FuzzParseScript(f *testing.F) {
	f.Add(weather)
	f.Add("rules:\n  - turns: [{blocks: [{stall: {for: 3s}}]}]\n")
	f.Add(`{"rules": [{"match": {"matches": "("}}]}`)
	f.Add("rules:\n !- ")
	f.Fuzz(func(t *testing.T, text string) {
		s, err := fakemodel.ParseScript([]byte(text))
		if err != nil {
			return
		}
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		fakemodel.New(s, nil).ServeHTTP(httptest.NewRecorder(), httptest.NewRequestWithContext(ctx, "POST", "/v1/messages", strings.NewReader(request(true, said("the weather")))))
	})
}
