package sqlite

import (
	"database/sql/driver"
	"fmt"
	"path/filepath"
	"testing"
)

func TestStatementsAreUsedAgain(t *testing.T) {
	db, err := Open(t.Context(), filepath.Join(t.TempDir(), "a.db"))
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	exec := func(text string, args ...any) {
		t.Helper()
		if _, err := db.Writer.Exec(text, args...); err != nil {
			t.Fatalf("%s: %v", text, err)
		}
	}
	sum := func(text string, args ...any) (n int) {
		t.Helper()
		if err := db.Reader.QueryRow(text, args...).Scan(&n); err != nil {
			t.Fatalf("%s: %v", text, err)
		}
		return n
	}
	exec("CREATE TABLE t (x INTEGER); CREATE INDEX i ON t (x)")
	for x := range 10 {
		exec("INSERT INTO t VALUES (?)", x)
	}
	// The schema changes under what is kept, and its next use sees that.
	for turn := range 3 {
		if got := sum("SELECT sum(x) FROM t WHERE x < ?", 5); got != 10+turn {
			t.Errorf("turn %d: %d", turn, got)
		}
		exec(fmt.Sprintf("ALTER TABLE t ADD COLUMN y%d", turn))
		exec("INSERT INTO t (x) VALUES (1)")
	}
	if _, err := db.Writer.Exec("INSERT INTO t (x) VALUES (?)"); err == nil {
		t.Error("a place without a value was taken")
	}
	exec("INSERT INTO t (x) VALUES (?)", 7)

	c, err := db.Writer.Conn(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	err = c.Raw(func(driven any) error {
		if idle := driven.(*conn).idle; idle["INSERT INTO t (x) VALUES (?)"] == nil {
			t.Errorf("the statement is not among the %d kept", len(idle))
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	r, err := db.Reader.Conn(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	for n := range maxStatements + 1 {
		var got int
		if err := r.QueryRowContext(t.Context(), fmt.Sprintf("SELECT -%d", n)).Scan(&got); err != nil || got != -n {
			t.Fatalf("SELECT -%d is %d, %v", n, got, err)
		}
	}
	err = r.Raw(func(driven any) error {
		if n := len(driven.(*conn).idle); n != maxStatements {
			t.Errorf("%d statements are kept, want %d", n, maxStatements)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// A statement whose rows are being read is not the one that the same text gets
// meanwhile.
func TestTheSameTextInItsOwnRows(t *testing.T) {
	db, err := Open(t.Context(), filepath.Join(t.TempDir(), "a.db"))
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	tx, err := db.Writer.Begin()
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback()
	const text = "SELECT value FROM json_each(?)"
	for range 3 {
		outer, err := tx.Query(text, "[1,2,3]")
		if err != nil {
			t.Fatal(err)
		}
		seen := ""
		for outer.Next() {
			var a, b int
			if err := outer.Scan(&a); err != nil {
				t.Fatal(err)
			}
			if err := tx.QueryRow(text, "[7,8]").Scan(&b); err != nil {
				t.Fatal(err)
			}
			seen += fmt.Sprintf("%d %d;", a, b)
		}
		if err := outer.Err(); err != nil || seen != "1 7;2 7;3 7;" {
			t.Errorf("%q, %v", seen, err)
		}
	}
}

// counted is a statement of a driver, and how often it was closed.
type counted struct {
	prepared
	closed int
}

func (c *counted) Close() error { c.closed++; return nil }

// closable is a connection of a driver.
type closable struct{ engine }

func (closable) Close() error { return nil }

func TestWhatIsNotKeptIsClosed(t *testing.T) {
	kept, second := &counted{}, &counted{}
	c := &conn{closable{}, map[string]driver.Stmt{}}
	for _, s := range []*counted{kept, second} {
		if err := (&stmt{s, c, "SELECT 1"}).Close(); err != nil {
			t.Fatal(err)
		}
	}
	if kept.closed != 0 || second.closed != 1 {
		t.Errorf("closed %d and %d times, want the second one once", kept.closed, second.closed)
	}
	if err := c.Close(); err != nil || kept.closed != 1 || second.closed != 1 {
		t.Errorf("with the connection: closed %d and %d times, %v", kept.closed, second.closed, err)
	}
}
