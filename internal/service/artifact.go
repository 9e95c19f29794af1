package service

import (
	"context"
	"fmt"
	"io"

	"github.com/tallyman-dev/tallyman"
	"github.com/tallyman-dev/tallyman/internal/store"
)

// maxChecked is how large a file may be to be checked against a schema.
const maxChecked = 64 << 20

// Artifact records a file that an attempt left. Invalid, with the reason
// OutputInvalid, when the run declares a schema that it does not satisfy; the
// file is kept all the same.
func (s *Service) Artifact(ctx context.Context, a tallyman.Artifact) error {
	err := s.store.InTx(ctx, func(tx *store.Tx) error { return tx.PutArtifact(a) })
	if err != nil {
		return fmt.Errorf("record artifact %s of run %s: %w", a.Name, a.RunID, err)
	}
	f, _, err := s.frozen(ctx, a.RunID)
	if err != nil {
		return err
	}
	for _, out := range f.Agent.Outputs {
		if len(out.Schema) == 0 || !tallyman.MatchPath(out.Path, a.Name) {
			continue
		}
		if err := s.checkSchema(ctx, a, out); err != nil {
			return err
		}
	}
	return nil
}

func (s *Service) checkSchema(ctx context.Context, a tallyman.Artifact, out tallyman.Output) error {
	wrong := func(format string, args ...any) error {
		return &tallyman.Error{Code: tallyman.Invalid, Reason: tallyman.OutputInvalid, Message: fmt.Sprintf(format, args...)}
	}
	if a.Size > maxChecked {
		return wrong("has %d bytes, a schema is checked up to %d", a.Size, maxChecked)
	}
	file, _, err := s.blobs.Open(ctx, a.Digest)
	if err != nil {
		return fmt.Errorf("open artifact %s of run %s: %w", a.Name, a.RunID, err)
	}
	defer file.Close()
	if err := s.checks.Schema(out.Schema, io.LimitReader(file, maxChecked)); err != nil {
		return wrong("does not satisfy the schema of outputs %q: %v", out.Path, err)
	}
	return nil
}
