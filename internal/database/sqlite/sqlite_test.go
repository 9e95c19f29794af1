package sqlite_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tallyman-dev/tallyman/internal/database/sqlite"
)

func open(t *testing.T, path string) *sqlite.DB {
	t.Helper()
	db, err := sqlite.Open(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := db.Close(); err != nil {
			t.Error(err)
		}
	})
	return db
}

func TestCommitsAreDurableAndForeignKeysHold(t *testing.T) {
	db := open(t, filepath.Join(t.TempDir(), "a.db"))
	for pragma, want := range map[string]string{"journal_mode": "wal", "synchronous": "2", "foreign_keys": "1", "busy_timeout": "5000"} {
		var got string
		if err := db.Writer.QueryRow("PRAGMA " + pragma).Scan(&got); err != nil || got != want {
			t.Errorf("%s is %q, %v, want %q", pragma, got, err, want)
		}
	}
}

func TestReadersCannotWrite(t *testing.T) {
	db := open(t, filepath.Join(t.TempDir(), "a.db"))
	if _, err := db.Reader.Exec("CREATE TABLE t (x)"); err == nil {
		t.Error("a reader made a table")
	}
}

func TestReadersSeeTheLastCommitWhileAWriterIsAtWork(t *testing.T) {
	db := open(t, filepath.Join(t.TempDir(), "a.db"))
	if _, err := db.Writer.Exec("CREATE TABLE t (x)"); err != nil {
		t.Fatal(err)
	}
	tx, err := db.Writer.Begin()
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback()
	if _, err := tx.Exec("INSERT INTO t VALUES (1)"); err != nil {
		t.Fatal(err)
	}
	var n int
	if err := db.Reader.QueryRow("SELECT count(*) FROM t").Scan(&n); err != nil || n != 0 {
		t.Errorf("a reader saw %d rows, %v, want 0", n, err)
	}
}

func TestAnyPathMayBeUsed(t *testing.T) {
	path := filepath.Join(t.TempDir(), "odd ?#%41&x=1.db")
	db := open(t, path)
	if _, err := db.Writer.Exec("CREATE TABLE t (x)"); err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	if info.Mode().Perm() != 0o600 || info.Size() == 0 && noLog(path) {
		t.Errorf("the file has mode %v and %d bytes", info.Mode(), info.Size())
	}
	for _, suffix := range []string{"-wal", "-shm"} {
		if info, err := os.Stat(path + suffix); err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("%s: %v, %v, want mode 0600", suffix, info, err)
		}
	}
}

func noLog(path string) bool {
	info, err := os.Stat(path + "-wal")
	return err != nil || info.Size() == 0
}

func TestWhatCannotBeOpenedIsNamed(t *testing.T) {
	dir := t.TempDir()
	garbage := filepath.Join(dir, "garbage.db")
	if err := os.WriteFile(garbage, []byte(strings.Repeat("not a database ", 100)), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{garbage, filepath.Join(dir, "missing", "a.db"), dir} {
		if _, err := sqlite.Open(t.Context(), path); err == nil || !strings.Contains(err.Error(), path) {
			t.Errorf("Open(%s): %v, want an error that names it", path, err)
		}
	}
}
