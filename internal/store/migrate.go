package store

import (
	"context"
	"database/sql"
	"embed"
	"fmt"
	"io/fs"

	"github.com/pressly/goose/v3"

	"github.com/tallyman-dev/tallyman"
)

//go:embed migrations/*.sql
var migrations embed.FS

// migrate brings the schema up to date. A schema that a newer version made is
// refused: this one would not know what it must not break.
func migrate(ctx context.Context, db *sql.DB, d Dialect) error {
	files, err := fs.Sub(migrations, "migrations")
	if err != nil {
		return err
	}
	p, err := goose.NewProvider(d.migrations(), db, files, goose.WithDisableGlobalRegistry(true), goose.WithTableName("store_migrations"))
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
