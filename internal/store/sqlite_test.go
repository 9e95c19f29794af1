package store_test

import (
	"context"
	"path/filepath"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/tallyman-dev/tallyman"
	"github.com/tallyman-dev/tallyman/internal/database"
	"github.com/tallyman-dev/tallyman/internal/database/sqlite"
	"github.com/tallyman-dev/tallyman/internal/store"
	"github.com/tallyman-dev/tallyman/internal/store/storetest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestSQLite(t *testing.T) {
	storetest.Run(t, func(tb testing.TB) *store.Store {
		s, _ := open(tb, filepath.Join(tb.TempDir(), "control.db"))
		return s
	})
}

// open opens the file; close, or the test's end, closes it.
func open(tb testing.TB, path string) (s *store.Store, close func()) {
	tb.Helper()
	db, err := sqlite.Open(context.Background(), path)
	if err != nil {
		tb.Fatal(err)
	}
	close = func() {
		if err := db.Close(); err != nil {
			tb.Error(err)
		}
	}
	tb.Cleanup(close)
	s, err = store.Open(context.Background(), db.Writer, db.Reader, database.SQLite)
	if err != nil {
		tb.Fatal(err)
	}
	return s, close
}

func TestWhatWasCommittedIsThereAfterARestart(t *testing.T) {
	path := filepath.Join(t.TempDir(), "control.db")
	r := tallyman.Run{ID: "01HZX000000000000000000001", Namespace: "default", Name: "x", State: tallyman.Queued}
	s, close := open(t, path)
	if err := s.InTx(t.Context(), func(tx *store.Tx) error { return tx.InsertRun(r, store.Detail{Prompt: "p"}) }); err != nil {
		t.Fatal(err)
	}
	close()
	s, close = open(t, path)
	defer close()
	got, err := s.Run(t.Context(), "x")
	if err != nil || got.ID != r.ID {
		t.Errorf("after a restart: %+v, %v", got, err)
	}
	if d, err := s.Detail(t.Context(), r.ID); err != nil || d.Prompt != "p" {
		t.Errorf("details after a restart: %+v, %v", d, err)
	}
}

func TestKeysOfTheCommandLineAreThoseOfTheAPI(t *testing.T) {
	path := filepath.Join(t.TempDir(), "control.db")
	_, close := open(t, path)
	close()
	db, err := sqlite.Open(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	for _, statement := range []string{
		"DELETE FROM store_migrations WHERE version_id = 4",
		`INSERT INTO idempotency_keys (scope, key, digest, run_id, at) VALUES
			('default/cli', 'mine', '', 'of-cli', 0), ('default/cli', 'both', '', 'of-cli', 0), ('default/api', 'both', '', 'of-api', 0), ('default/kafka', 'mine', '', 'of-kafka', 0)`,
	} {
		if _, err := db.Writer.Exec(statement); err != nil {
			t.Fatal(err)
		}
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	s, _ := open(t, path)
	for key, want := range map[string]string{"mine": "of-cli", "both": "of-api"} {
		if k, err := s.KeyRun(t.Context(), store.KeyScope("default", tallyman.SourceCLI), key); err != nil || k.RunID != want {
			t.Errorf("%s: %+v, %v; want %s", key, k, err, want)
		}
	}
	if k, err := s.KeyRun(t.Context(), "default/kafka", "mine"); err != nil || k.RunID != "of-kafka" {
		t.Errorf("kafka's: %+v, %v", k, err)
	}
}

func TestANewerSchemaIsRefused(t *testing.T) {
	path := filepath.Join(t.TempDir(), "control.db")
	_, close := open(t, path)
	close()
	db, err := sqlite.Open(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	if _, err := db.Writer.Exec("INSERT INTO store_migrations (version_id, is_applied) VALUES (999, TRUE)"); err != nil {
		t.Fatal(err)
	}
	_, err = store.Open(t.Context(), db.Writer, db.Reader, database.SQLite)
	if tallyman.CodeOf(err) != tallyman.Unsupported || !strings.Contains(err.Error(), "999") {
		t.Errorf("a newer schema: %v, want Unsupported that names it", err)
	}
}

func TestAnUnknownDialectIsRefused(t *testing.T) {
	if _, err := store.Open(t.Context(), nil, nil, "oracle"); tallyman.CodeOf(err) != tallyman.Unsupported {
		t.Errorf("Open: %v, want Unsupported", err)
	}
}
