package database

import (
	"context"
	"database/sql"
	"fmt"
	"io/fs"

	"github.com/pressly/goose/v3"

	"github.com/tallyman-dev/tallyman"
)

// Migrate brings a schema up to date with the files in migrations/, and keeps
// in the table which of them were applied. A schema that a newer version made
// is refused as Unsupported: this one would not know what it must not break.
func Migrate(ctx context.Context, db *sql.DB, d Dialect, files fs.FS, table string) error {
	if !d.Known() {
		return tallyman.Errorf(tallyman.Unsupported, "no such dialect: %q", d)
	}
	files, err := fs.Sub(files, "migrations")
	if err != nil {
		return err
	}
	p, err := goose.NewProvider(d.migrations(), db, files, goose.WithDisableGlobalRegistry(true), goose.WithTableName(table))
	if err != nil {
		return err
	}
	current, target, err := p.GetVersions(ctx)
	if err != nil {
		return err
	}
	if current > target {
		return tallyman.Errorf(tallyman.Unsupported,
			"the database has schema %d, this version knows up to %d: it was written by a newer tallyman, use that one", current, target)
	}
	if _, err := p.Up(ctx); err != nil {
		return fmt.Errorf("migrate from schema %d: %w", current, err)
	}
	return nil
}
