// Package sqlite opens SQLite files the way tallyman's stores want them: one
// connection that writes, a few that read, and a commit that is on the disk
// when it returns.
package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"time"
)

// DB is one open file. Writer has a single connection and begins its
// transactions with the write lock; Reader refuses to write.
type DB struct {
	Writer *sql.DB
	Reader *sql.DB
}

// busyTimeout is how long a statement waits for another process's lock.
const busyTimeout = 5 * time.Second

// Open opens the file, and makes it with mode 0600 where there is none. The
// folder must exist.
func Open(ctx context.Context, path string) (*DB, error) {
	path, err := filepath.Abs(path)
	if err != nil {
		return nil, fmt.Errorf("open database: %w", err)
	}
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open database: %w", err)
	}
	if err := f.Close(); err != nil {
		return nil, fmt.Errorf("open database: %w", err)
	}
	writer, err := connect(ctx, path, 1, "_txlock=immediate",
		"journal_mode(WAL)", "synchronous(FULL)", "foreign_keys(1)",
		"cache_size(-16384)", "wal_autocheckpoint(4000)", "journal_size_limit(67108864)")
	if err != nil {
		return nil, err
	}
	reader, err := connect(ctx, path, max(4, runtime.GOMAXPROCS(0)), "",
		"query_only(1)", "cache_size(-16384)")
	if err != nil {
		return nil, errors.Join(err, writer.Close())
	}
	return &DB{Writer: writer, Reader: reader}, nil
}

// Close closes both pools; the last connection folds the log into the file.
func (db *DB) Close() error {
	return errors.Join(db.Reader.Close(), db.Writer.Close())
}

// connect opens a pool whose connections are kept, since each one warms a
// cache of its own, and proves that it works.
func connect(ctx context.Context, path string, conns int, option string, pragmas ...string) (*sql.DB, error) {
	query := []string{fmt.Sprintf("_pragma=busy_timeout(%d)", busyTimeout.Milliseconds())}
	if option != "" {
		query = append(query, option)
	}
	for _, p := range pragmas {
		query = append(query, "_pragma="+p)
	}
	dsn := "file:" + (&url.URL{Path: path}).EscapedPath() + "?" + strings.Join(query, "&")
	c, err := newConnector(dsn)
	if err != nil {
		return nil, fmt.Errorf("open database %s: %w", path, err)
	}
	db := sql.OpenDB(c)
	db.SetMaxOpenConns(conns)
	db.SetMaxIdleConns(conns)
	// A file that is not a database says so only when it is read.
	var n int
	if err := db.QueryRowContext(ctx, "SELECT count(*) FROM sqlite_master").Scan(&n); err != nil {
		return nil, errors.Join(fmt.Errorf("open database %s: %w", path, err), db.Close())
	}
	return db, nil
}
