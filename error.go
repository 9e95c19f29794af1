package tallyman

import (
	"errors"
	"fmt"
)

// Code says to a machine what kind of error it has; doors translate it once
// (HTTP status, exit code). An error without a code is Internal.
type Code string

// The codes. Invalid: the request is wrong and stays wrong. NotFound: no such
// thing, or not yours to see. Conflict: true when asked, not any more.
// Unavailable: try again. Stale: another connection or attempt took over.
const (
	Invalid      Code = "invalid"
	NotFound     Code = "not_found"
	Conflict     Code = "conflict"
	Unauthorized Code = "unauthorized"
	TooLarge     Code = "too_large"
	Unavailable  Code = "unavailable"
	Stale        Code = "stale"
	Unsupported  Code = "unsupported"
	Internal     Code = "internal"
)

// Error is an error with a code for machines and one sentence for people.
type Error struct {
	Code    Code
	Message string
	// Reason is why a run would have ended so, where one applies.
	Reason Reason
	// Wait is the gate that has to open first, where one is known.
	Wait WaitReason
	// Err is what caused it; the message already tells it.
	Err error
}

// Error returns the sentence.
func (e *Error) Error() string { return e.Message }

// Unwrap returns what caused the error.
func (e *Error) Unwrap() error { return e.Err }

// Errorf makes an error with a code. What a %w names is kept as its cause.
func Errorf(code Code, format string, args ...any) error {
	err := fmt.Errorf(format, args...)
	return &Error{Code: code, Message: err.Error(), Err: errors.Unwrap(err)}
}

// CodeOf returns the code of err, Internal when it has none, "" for nil.
func CodeOf(err error) Code {
	if err == nil {
		return ""
	}
	var e *Error
	if errors.As(err, &e) {
		return e.Code
	}
	return Internal
}

// GapError is what History answers events with that do not follow what it
// has: it expects that cursor next.
type GapError struct {
	Journal  string
	Expected uint64
}

// Error says which cursor is expected.
func (e *GapError) Error() string {
	return fmt.Sprintf("journal %s: cursor %d is expected next", e.Journal, e.Expected)
}
