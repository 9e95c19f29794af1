package fakemodel

import (
	"cmp"
	"encoding/json"
	"io"
	"net/http"
)

// faultWords is how a provider names an error.
type faultWords struct{ anthropic, openai, gemini, message string }

func wordsFor(status int) faultWords {
	switch status {
	case http.StatusBadRequest:
		return faultWords{"invalid_request_error", "invalid_request_error", "INVALID_ARGUMENT", "The request is invalid."}
	case http.StatusUnauthorized:
		return faultWords{"authentication_error", "invalid_request_error", "UNAUTHENTICATED", "The API key is invalid."}
	case http.StatusForbidden:
		return faultWords{"permission_error", "invalid_request_error", "PERMISSION_DENIED", "The API key has no permission for this."}
	case http.StatusNotFound:
		return faultWords{"not_found_error", "invalid_request_error", "NOT_FOUND", "Not found."}
	case http.StatusRequestEntityTooLarge:
		return faultWords{"request_too_large", "invalid_request_error", "INVALID_ARGUMENT", "The request is too large."}
	case http.StatusTooManyRequests:
		return faultWords{"rate_limit_error", "rate_limit_exceeded", "RESOURCE_EXHAUSTED", "The rate limit is exceeded."}
	case 529:
		return faultWords{"overloaded_error", "server_error", "UNAVAILABLE", "Overloaded"}
	case http.StatusServiceUnavailable:
		return faultWords{"api_error", "server_error", "UNAVAILABLE", "The service is unavailable."}
	default:
		if status < 500 {
			return faultWords{"invalid_request_error", "invalid_request_error", "FAILED_PRECONDITION", "The request failed."}
		}
		return faultWords{"api_error", "server_error", "INTERNAL", "Internal server error."}
	}
}

// body returns a fault as the provider writes it.
func (f *Fault) body(format Format) any {
	w := wordsFor(f.Status)
	msg := cmp.Or(f.Message, w.message)
	switch format {
	case Gemini:
		return map[string]any{"error": map[string]any{
			"code": f.Status, "message": msg, "status": cmp.Or(f.Type, w.gemini),
		}}
	case Responses, Chat:
		return map[string]any{"error": map[string]any{
			"message": msg, "type": cmp.Or(f.Type, w.openai), "param": nil, "code": openAICode(f),
		}}
	default:
		return map[string]any{
			"type": "error", "error": map[string]any{"type": cmp.Or(f.Type, w.anthropic), "message": msg},
			"request_id": newID("req_"),
		}
	}
}

// openAICode is the code that OpenAI's clients tell errors apart by, if any.
func openAICode(f *Fault) any {
	switch {
	case f.Type != "":
		return f.Type
	case f.Status == http.StatusUnauthorized:
		return "invalid_api_key"
	case f.Status == http.StatusTooManyRequests:
		return "rate_limit_exceeded"
	case f.Status >= 500:
		return "server_error"
	default:
		return nil
	}
}

// writeFault answers with an HTTP error.
func writeFault(w http.ResponseWriter, format Format, f *Fault) {
	if f.RetryAfter > 0 {
		w.Header().Set("Retry-After", retryAfter(f.RetryAfter))
	}
	if f.Body == "" {
		writeJSON(w, f.Status, f.body(format))
		return
	}
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	if json.Valid([]byte(f.Body)) {
		w.Header().Set("Content-Type", "application/json")
	}
	w.WriteHeader(f.Status)
	_, _ = io.WriteString(w, f.Body)
}
