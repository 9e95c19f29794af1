package database

import (
	"fmt"
	"testing"
)

func TestPlaceholdersAreWrittenForTheEngine(t *testing.T) {
	const query = "SELECT a FROM b WHERE c = ? AND d IN (?, ?)"
	for d, want := range map[Dialect]string{
		SQLite:   query,
		Postgres: "SELECT a FROM b WHERE c = $1 AND d IN ($2, $3)",
	} {
		if got := d.Bind(query); got != want {
			t.Errorf("%s: %q, want %q", d, got, want)
		}
	}
}

type engineError struct {
	code  int
	state string
}

func (e engineError) Error() string    { return "engine" }
func (e engineError) Code() int        { return e.code }
func (e engineError) SQLState() string { return e.state }

func TestOnlyABusyEngineIsAskedAgain(t *testing.T) {
	for _, tc := range []struct {
		dialect Dialect
		err     error
		want    bool
	}{
		{SQLite, engineError{code: 5}, true},
		{SQLite, engineError{code: 517}, true}, // SQLITE_BUSY_SNAPSHOT
		{SQLite, engineError{code: 6}, true},
		{SQLite, engineError{code: 19}, false},
		{SQLite, fmt.Errorf("plain"), false},
		{SQLite, nil, false},
		{Postgres, engineError{state: "40001"}, true},
		{Postgres, engineError{state: "40P01"}, true},
		{Postgres, engineError{state: "23505"}, false},
		{Postgres, engineError{code: 5}, false},
	} {
		err := tc.err
		if err != nil {
			err = fmt.Errorf("wrapped: %w", err)
		}
		if got := tc.dialect.Retryable(err); got != tc.want {
			t.Errorf("%s %+v: %v, want %v", tc.dialect, tc.err, got, tc.want)
		}
	}
}
