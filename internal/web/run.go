package web

import (
	"context"
	"html/template"
	"net/http"
	"strings"
	"time"

	"github.com/tallyman-dev/tallyman"
	"github.com/tallyman-dev/tallyman/internal/render"
)

// runPage is what the page of a run shows.
type runPage struct {
	URL     string
	Run     tallyman.Run
	Facts   facts
	Command string // as a shell would read it; exec only
	Prompt  clip
	Window  window
	Live    string // where the live stream is; "" for an earlier part
	Later   bool   // this is an earlier part of the transcript
}

// run shows a run: its last events, or with ?before=ID earlier ones.
func (s *site) run(w http.ResponseWriter, r *http.Request) {
	ctx := r.Context()
	before, err := tallyman.ParseEventID(r.FormValue("before"))
	if err != nil {
		s.fail(w, r, err)
		return
	}
	run, err := s.src.Run(ctx, r.PathValue("id"))
	if err != nil {
		s.fail(w, r, err)
		return
	}
	f, err := s.facts(ctx, run, s.token(r), time.Now())
	if err != nil {
		s.fail(w, r, err)
		return
	}
	win, err := s.window(ctx, run, f.Attempts, before)
	if err != nil {
		s.fail(w, r, err)
		return
	}
	command, err := s.command(ctx, run)
	if err != nil {
		s.fail(w, r, err)
		return
	}
	p := runPage{Command: command, URL: f.URL, Run: run, Facts: f, Window: win, Later: before != tallyman.EventID{}}
	if p.Prompt, err = s.promptClip(r, run, f.URL); err != nil {
		s.fail(w, r, err)
		return
	}
	if !p.Later {
		p.Live = f.URL + "/live?after=" + win.After.String()
	}
	s.show(w, r, "run.html", s.page(r, run.Name, p))
}

// command writes the command line of an exec run.
func (s *site) command(ctx context.Context, run tallyman.Run) (string, error) {
	if run.Harness != "exec" {
		return "", nil
	}
	args, err := s.src.Command(ctx, run.ID)
	words := make([]string, len(args))
	for i, a := range args {
		words[i] = quote(render.Clean(a))
	}
	return strings.Join(words, " "), err
}

func (s *site) promptClip(r *http.Request, run tallyman.Run, at string) (clip, error) {
	text, err := s.src.Prompt(r.Context(), run.ID)
	if err != nil {
		if tallyman.CodeOf(err) == tallyman.NotFound {
			return clip{}, nil
		}
		return clip{}, err
	}
	c := (&transcript{}).clip(render.Clean(text), shownOutput, tallyman.EventID{}, "")
	if c.More != "" {
		c.More = at + "/prompt"
	}
	return c, nil
}

// earlier answers with the part of a transcript that lies before ?before=ID,
// as a fragment.
func (s *site) earlier(w http.ResponseWriter, r *http.Request) {
	ctx := r.Context()
	before, err := tallyman.ParseEventID(r.FormValue("before"))
	if err == nil && before == (tallyman.EventID{}) {
		err = tallyman.Errorf(tallyman.Invalid, "say before which event: ?before=ATTEMPT.CURSOR")
	}
	if err != nil {
		s.fail(w, r, err)
		return
	}
	run, err := s.src.Run(ctx, r.PathValue("id"))
	if err != nil {
		s.fail(w, r, err)
		return
	}
	attempts, err := s.src.Attempts(ctx, run.ID)
	if err != nil {
		s.fail(w, r, err)
		return
	}
	win, err := s.window(ctx, run, attempts, before)
	if err != nil {
		s.fail(w, r, err)
		return
	}
	body, err := s.pages.part("window", struct {
		URL    string
		Window window
	}{s.runURL(run), win})
	if err != nil {
		s.fail(w, r, err)
		return
	}
	writeHTML(w, body)
}

func writeHTML(w http.ResponseWriter, body template.HTML) {
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.Write([]byte(body))
}
