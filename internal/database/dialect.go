// Package database is what the stores that keep their state in SQL share: the
// engines and what sets them apart, migrations, and a writer whose callers
// share commits.
package database

import (
	"database/sql"
	"errors"
	"strconv"
	"strings"

	"github.com/pressly/goose/v3"
)

// Dialect says which engine an open database is. All that the engines do not
// share is in this file.
type Dialect string

// The dialects that are known.
const (
	SQLite   Dialect = "sqlite"
	Postgres Dialect = "postgres"
)

// Known reports whether it is one of the dialects.
func (d Dialect) Known() bool { return d == SQLite || d == Postgres }

// Bind writes the ? placeholders the way the engine reads them. No statement
// of ours has a question mark of another meaning.
func (d Dialect) Bind(query string) string {
	if d != Postgres {
		return query
	}
	var b strings.Builder
	b.Grow(len(query) + 16)
	for n := 1; ; n++ {
		before, after, found := strings.Cut(query, "?")
		b.WriteString(before)
		if !found {
			return b.String()
		}
		b.WriteByte('$')
		b.WriteString(strconv.Itoa(n))
		query = after
	}
}

// Snapshot are the options of a transaction that reads one state throughout.
func (d Dialect) Snapshot() *sql.TxOptions {
	o := &sql.TxOptions{ReadOnly: true}
	if d == Postgres {
		o.Isolation = sql.LevelRepeatableRead
	}
	return o
}

// writing are the options of a transaction that writes.
func (d Dialect) writing() *sql.TxOptions {
	if d == Postgres {
		return &sql.TxOptions{Isolation: sql.LevelSerializable}
	}
	return nil
}

// migrations is the engine's name among the migrator's dialects.
func (d Dialect) migrations() goose.Dialect {
	if d == Postgres {
		return goose.DialectPostgres
	}
	return goose.DialectSQLite3
}

// Retryable reports whether the same transaction may succeed when run again:
// the engine was busy, or another transaction came first.
func (d Dialect) Retryable(err error) bool {
	if d == Postgres {
		var e interface{ SQLState() string }
		return errors.As(err, &e) && (e.SQLState() == "40001" || e.SQLState() == "40P01")
	}
	const busy, locked = 5, 6
	var e interface{ Code() int }
	return errors.As(err, &e) && (e.Code()&0xff == busy || e.Code()&0xff == locked)
}

// full reports whether the engine's disk has no room.
func (d Dialect) full(err error) bool {
	if d == Postgres {
		var e interface{ SQLState() string }
		return errors.As(err, &e) && e.SQLState() == "53100"
	}
	const full = 13
	var e interface{ Code() int }
	return errors.As(err, &e) && e.Code()&0xff == full
}
