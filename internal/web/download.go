package web

import (
	"bufio"
	"errors"
	"io"
	"mime"
	"net/http"
	"path"

	"github.com/tallyman-dev/tallyman"
	"github.com/tallyman-dev/tallyman/internal/render"
)

// plain says that what follows is text to read, never a page.
func plain(w http.ResponseWriter) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
}

// attach says that what follows is a file to save.
func attach(w http.ResponseWriter, name, kind string) {
	w.Header().Set("Content-Type", kind)
	w.Header().Set("Content-Disposition", mime.FormatMediaType("attachment", map[string]string{"filename": name}))
}

// event answers with one event: its text, its input (?part=input), or its
// JSON (?part=raw).
func (s *site) event(w http.ResponseWriter, r *http.Request) {
	id, err := tallyman.ParseEventID(r.PathValue("event"))
	if err == nil && id.Cursor == 0 {
		err = tallyman.Errorf(tallyman.Invalid, "%q is not an event", r.PathValue("event"))
	}
	if err != nil {
		s.fail(w, r, err)
		return
	}
	run, err := s.src.Run(r.Context(), r.PathValue("id"))
	if err != nil {
		s.fail(w, r, err)
		return
	}
	var found []byte
	before := tallyman.EventID{Attempt: id.Attempt, Cursor: id.Cursor - 1}
	err = s.src.Events(r.Context(), run.ID, before, func(at tallyman.EventID, line []byte) error {
		if at == id {
			found = append([]byte(nil), line...)
		}
		return errEnough
	})
	if err != nil && !errors.Is(err, errEnough) {
		s.fail(w, r, err)
		return
	}
	if found == nil {
		s.fail(w, r, tallyman.Errorf(tallyman.NotFound, "run %s has no event %s", run.Name, id))
		return
	}
	if r.FormValue("part") == "raw" {
		w.Header().Set("Content-Type", "application/json")
		w.Write(found)
		return
	}
	e, err := render.Decode(found)
	if err != nil {
		s.fail(w, r, err)
		return
	}
	plain(w)
	if r.FormValue("part") == "input" {
		io.WriteString(w, render.Input(e.Data))
		return
	}
	for _, l := range render.New(render.Options{Exec: run.Harness == "exec"}).Event(id, e) {
		io.WriteString(w, l.Body)
	}
}

// rawEvents answers with every stored event, one a line.
func (s *site) rawEvents(w http.ResponseWriter, r *http.Request) {
	run, err := s.src.Run(r.Context(), r.PathValue("id"))
	if err != nil {
		s.fail(w, r, err)
		return
	}
	attach(w, run.Name+".ndjson", "application/x-ndjson")
	out := bufio.NewWriterSize(w, 64<<10)
	err = s.src.Events(r.Context(), run.ID, tallyman.EventID{}, func(id tallyman.EventID, line []byte) error {
		// The id goes first: {"id":"1.42","time":…
		if len(line) > 1 && line[0] == '{' {
			out.WriteString(`{"id":"` + id.String() + `",`)
			line = line[1:]
		}
		out.Write(line)
		return out.WriteByte('\n')
	})
	s.finish(r, out, err)
}

// transcriptText answers with the transcript as a terminal would show it.
func (s *site) transcriptText(w http.ResponseWriter, r *http.Request) {
	run, err := s.src.Run(r.Context(), r.PathValue("id"))
	if err != nil {
		s.fail(w, r, err)
		return
	}
	exec := run.Harness == "exec"
	if exec {
		attach(w, run.Name+".txt", "text/plain; charset=utf-8")
	} else {
		w.Header().Set("Content-Disposition", mime.FormatMediaType("inline", map[string]string{"filename": run.Name + ".txt"}))
		plain(w)
	}
	out := bufio.NewWriterSize(w, 64<<10)
	lines, printer := render.New(render.Options{Exec: exec}), render.NewPrinter(out, render.Style{Exec: exec})
	err = s.src.Events(r.Context(), run.ID, tallyman.EventID{}, func(id tallyman.EventID, line []byte) error {
		e, err := render.Decode(line)
		if err != nil {
			return err
		}
		return printer.Print(lines.Event(id, e))
	})
	s.finish(r, out, err)
}

// finish flushes a download. One that breaks off must not look whole.
func (s *site) finish(r *http.Request, out *bufio.Writer, err error) {
	if err == nil {
		err = out.Flush()
	}
	if err == nil || r.Context().Err() != nil {
		return
	}
	s.log.ErrorContext(r.Context(), "download", "path", r.URL.Path, "err", err)
	panic(http.ErrAbortHandler)
}

func (s *site) prompt(w http.ResponseWriter, r *http.Request) {
	text, err := s.src.Prompt(r.Context(), r.PathValue("id"))
	if err != nil {
		s.fail(w, r, err)
		return
	}
	plain(w)
	io.WriteString(w, text)
}

// artifact answers with a file that a run left, always as a download: an
// agent wrote it, so it must not be a page of ours.
func (s *site) artifact(w http.ResponseWriter, r *http.Request) {
	body, a, err := s.src.OpenArtifact(r.Context(), r.PathValue("id"), r.PathValue("name"))
	if err != nil {
		s.fail(w, r, err)
		return
	}
	defer body.Close()
	attach(w, path.Base(a.Name), "application/octet-stream")
	w.Header().Set("Content-Security-Policy", "sandbox; default-src 'none'")
	http.ServeContent(w, r, "", a.At, body)
}
