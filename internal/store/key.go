package store

import (
	"context"
	"fmt"
	"time"

	"github.com/tallyman-dev/tallyman"
)

// KeyRow remembers which run an idempotency key made. It outlives the run.
type KeyRow struct {
	Scope    string // see KeyScope
	Key      string
	Digest   string // of the request: tallyman.Request.Digest
	RunID    string
	LastJSON []byte // the run as it last was, kept when it is deleted
	At       time.Time
}

// KeyScope is in what a key is unique: NAMESPACE/SOURCE. People and programs
// that ask for themselves share one, whichever door they take.
func KeyScope(namespace string, source tallyman.Source) string {
	return namespace + "/" + string(source.Door())
}

// KeyRun returns what the key made, or NotFound.
func (s *Store) KeyRun(ctx context.Context, scope, key string) (k KeyRow, err error) {
	err = s.read(ctx, "KeyRun", func(c conn) error {
		k, err = keyRow(ctx, c, scope, key)
		return err
	})
	return k, err
}

// Key returns what the key made, or NotFound.
func (tx *Tx) Key(scope, key string) (k KeyRow, err error) {
	err = tx.do("Key", func() error {
		k, err = keyRow(tx.ctx, tx.conn, scope, key)
		return err
	})
	return k, err
}

func keyRow(ctx context.Context, c conn, scope, key string) (KeyRow, error) {
	k, found, err := first(ctx, c, scanKey, `SELECT scope, key, digest, run_id, last, at FROM idempotency_keys
		WHERE scope = ? AND key = ?`, scope, clean(key))
	if err != nil {
		return k, fmt.Errorf("read key %q: %w", key, err)
	}
	if !found {
		return k, tallyman.Errorf(tallyman.NotFound, "no key %q in %s", key, scope)
	}
	return k, nil
}

func scanKey(from row) (k KeyRow, err error) {
	err = from.Scan(&k.Scope, text{&k.Key}, &k.Digest, &k.RunID, &k.LastJSON, at{&k.At})
	return k, err
}

// PutKey writes what a key made. A key never changes its run: it is Conflict
// when it has made another.
func (tx *Tx) PutKey(k KeyRow) error {
	return tx.do("PutKey", func() error {
		n, err := tx.conn.exec(tx.ctx, `INSERT INTO idempotency_keys (scope, key, digest, run_id, last, at) VALUES (?, ?, ?, ?, ?, ?)
			ON CONFLICT (scope, key) DO UPDATE SET digest = excluded.digest, last = excluded.last, at = excluded.at
			WHERE idempotency_keys.run_id = excluded.run_id`,
			k.Scope, text{&k.Key}, k.Digest, k.RunID, k.LastJSON, at{&k.At})
		if err != nil {
			return fmt.Errorf("write key %q: %w", k.Key, err)
		}
		if n == 0 {
			return tallyman.Errorf(tallyman.Conflict, "key %q in %s belongs to another run", k.Key, k.Scope)
		}
		return nil
	})
}

// PruneKeys deletes the keys written before then and returns how many.
func (tx *Tx) PruneKeys(then time.Time) (n int, err error) {
	err = tx.do("PruneKeys", func() error {
		deleted, err := tx.conn.exec(tx.ctx, `DELETE FROM idempotency_keys WHERE at < ?`, at{&then})
		if err != nil {
			return fmt.Errorf("prune keys: %w", err)
		}
		n = int(deleted)
		return nil
	})
	return n, err
}
