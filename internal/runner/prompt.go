package runner

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"strings"

	"github.com/tallyman-dev/tallyman"
)

// promptPointer is what a harness gets on standard input when the prompt is
// in a file.
const promptPointer = "Your task is in the file %s. Read it and do what it says."

const promptFileName = "PROMPT.md"

// promptNames is how many names a prompt's file may try.
const promptNames = 100

// promptToFile keeps a prompt that is not in the spec, or that the agent
// wants as a file, on disk.
func (r *run) promptToFile(ctx context.Context) error {
	var prompt io.Reader = strings.NewReader(r.spec.Prompt)
	if r.spec.PromptSize != int64(len(r.spec.Prompt)) {
		r.promptPath = r.path("prompt")
		if err := r.fetchPrompt(ctx); err != nil {
			return err
		}
		f, err := os.Open(r.promptPath)
		if err != nil {
			return setupError(tallyman.SetupFailed, "read the prompt: %w", err)
		}
		defer f.Close()
		prompt = f
	}
	if !r.spec.Agent.PromptFile {
		return nil
	}
	f, err := r.createPrompt()
	if err != nil {
		return setupError(tallyman.SetupFailed, "make the prompt's file: %w", err)
	}
	_, err = io.Copy(f, prompt)
	if err = errors.Join(err, f.Close()); err != nil {
		return setupError(tallyman.SetupFailed, "write the prompt: %w", err)
	}
	return nil
}

// createPrompt makes a file in the workspace that was not there: what others
// have left under its name, a link maybe, is neither followed nor changed.
func (r *run) createPrompt() (*os.File, error) {
	root, err := os.OpenRoot(r.spec.WorkDir)
	if err != nil {
		return nil, err
	}
	defer root.Close()
	name := promptFileName
	for n := range promptNames {
		f, err := root.OpenFile(name, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
		if err == nil {
			r.promptPath = filepath.Join(r.spec.WorkDir, name)
			return f, nil
		}
		if !errors.Is(err, fs.ErrExist) {
			return nil, err
		}
		name = fmt.Sprintf("PROMPT-%d.md", r.spec.Attempt)
		if n > 0 {
			name = fmt.Sprintf("PROMPT-%d-%d.md", r.spec.Attempt, n+1)
		}
	}
	return nil, fmt.Errorf("%s and %d more names: %w", promptFileName, promptNames-1, fs.ErrExist)
}

// fetchPrompt brings the prompt into the attempt's own folder. A server that
// goes, or is busy, meanwhile is asked again, for as long as a first one is.
func (r *run) fetchPrompt(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, startPatience)
	defer cancel()
	for wait := shortest; ; pause(ctx, &wait) {
		err := r.fetchOnce(ctx)
		switch {
		case tallyman.CodeOf(err) != tallyman.Unavailable:
			return err
		case ctx.Err() != nil:
			return setupError(tallyman.ServerUnreachable, "fetch the prompt: %w", err)
		}
	}
}

// fetchOnce is one try of it. Unavailable: another may succeed.
func (r *run) fetchOnce(ctx context.Context) error {
	req, err := r.up.request(ctx, http.MethodGet, "files/prompt", nil)
	if err != nil {
		return err
	}
	resp, err := r.up.http.Do(req)
	if err != nil {
		return tallyman.Errorf(tallyman.Unavailable, "call the server: %w", err)
	}
	defer resp.Body.Close()
	if err := statusError(resp); err != nil {
		if tallyman.CodeOf(err) == tallyman.Unavailable {
			return err
		}
		return setupError(tallyman.SetupFailed, "fetch the prompt: %w", err)
	}
	f, err := os.OpenFile(r.promptPath, os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o600)
	if err != nil {
		return setupError(tallyman.SetupFailed, "write the prompt: %w", err)
	}
	n, err := io.Copy(f, resp.Body)
	err = errors.Join(err, f.Close())
	var unwritten *fs.PathError
	switch {
	case errors.As(err, &unwritten):
		return setupError(tallyman.SetupFailed, "write the prompt to %s: %w", r.promptPath, err)
	case err != nil:
		return tallyman.Errorf(tallyman.Unavailable, "read the prompt: %w", err)
	}
	if n != r.spec.PromptSize {
		return setupError(tallyman.SetupFailed, "the prompt has %d bytes, %d arrived", r.spec.PromptSize, n)
	}
	return nil
}
