package web

import (
	"maps"
	"net/http"
	"slices"
	"strings"

	"github.com/tallyman-dev/tallyman"
)

// form reads and checks a POST. It answers itself when that must not be done.
func (s *site) form(w http.ResponseWriter, r *http.Request) bool {
	r.Body = http.MaxBytesReader(w, r.Body, maxForm)
	err := s.cross.Check(r)
	if err == nil {
		if err = r.ParseForm(); err != nil {
			s.fail(w, r, tallyman.Errorf(tallyman.TooLarge, "the form cannot be read: more than 12 MB go through the command line or the API"))
			return false
		}
		err = s.allowed(r)
	}
	if err != nil {
		s.fail(w, r, tallyman.Errorf(tallyman.Unauthorized, "this form is not of your session any more: load the page again, or log in"))
		return false
	}
	return true
}

func (s *site) allowed(r *http.Request) error {
	if s.o.Check == nil {
		return tallyman.Errorf(tallyman.Unauthorized, "no session")
	}
	return s.o.Check(r)
}

// done leads back to a run after something was asked of it.
func (s *site) done(w http.ResponseWriter, r *http.Request, run tallyman.Run, err error) {
	if err != nil {
		s.fail(w, r, err)
		return
	}
	http.Redirect(w, r, s.runURL(run), http.StatusSeeOther)
}

func (s *site) stop(w http.ResponseWriter, r *http.Request) {
	if !s.form(w, r) {
		return
	}
	run, err := s.src.Stop(r.Context(), r.PathValue("id"))
	s.done(w, r, run, err)
}

// rerun submits a run again; fields named set.KEY change its request.
func (s *site) rerun(w http.ResponseWriter, r *http.Request) {
	if !s.form(w, r) {
		return
	}
	set := map[string]string{}
	for field, values := range r.PostForm {
		if key, ok := strings.CutPrefix(field, "set."); ok && len(values) > 0 && values[0] != "" {
			set[key] = values[0]
		}
	}
	run, err := s.src.Rerun(r.Context(), r.PathValue("id"), set)
	s.done(w, r, run, err)
}

func (s *site) remove(w http.ResponseWriter, r *http.Request) {
	if !s.form(w, r) {
		return
	}
	if err := s.src.Delete(r.Context(), r.PathValue("id")); err != nil {
		s.fail(w, r, err)
		return
	}
	http.Redirect(w, r, s.base+"/runs", http.StatusSeeOther)
}

// newPage is the form for a new run, empty or as it was sent.
type newPage struct {
	Agents  []tallyman.Agent
	Agent   string
	Model   string
	Prompt  string
	From    *tallyman.Run // the run whose request is edited
	Problem string
}

// newRun shows the form; ?from=ID fills it with what that run was asked.
func (s *site) newRun(w http.ResponseWriter, r *http.Request) {
	p := newPage{Agent: r.FormValue("agent")}
	if from := r.FormValue("from"); from != "" {
		run, err := s.src.Run(r.Context(), from)
		if err != nil {
			s.fail(w, r, err)
			return
		}
		if p.Prompt, err = s.src.Prompt(r.Context(), run.ID); err != nil && tallyman.CodeOf(err) != tallyman.NotFound {
			s.fail(w, r, err)
			return
		}
		p.From, p.Agent, p.Model = &run, tallyman.AgentName(run.Namespace, run.Agent), run.Model
	}
	s.showNew(w, r, p, http.StatusOK)
}

func (s *site) showNew(w http.ResponseWriter, r *http.Request, p newPage, status int) {
	agents, err := s.src.Agents(r.Context())
	if err != nil {
		s.fail(w, r, err)
		return
	}
	// What needs a command line of its own cannot be run by a prompt.
	agents = slices.DeleteFunc(slices.Clone(agents), func(a tallyman.Agent) bool {
		return a.Spec.Harness == "exec" && len(a.Spec.Command) == 0 && a.Spec.Runner != tallyman.RunnerBare
	})
	p.Agents = slices.SortedFunc(slices.Values(agents), func(a, b tallyman.Agent) int {
		return strings.Compare(tallyman.AgentName(a.Namespace, a.Name), tallyman.AgentName(b.Namespace, b.Name))
	})
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.WriteHeader(status)
	s.show(w, r, "new.html", s.page(r, "New run", p))
}

// submit takes the form. What is wrong with it is told above the form, which
// keeps what was typed.
func (s *site) submit(w http.ResponseWriter, r *http.Request) {
	if !s.form(w, r) {
		return
	}
	p := newPage{Agent: r.PostFormValue("agent"), Model: strings.TrimSpace(r.PostFormValue("model")), Prompt: strings.ReplaceAll(r.PostFormValue("prompt"), "\r\n", "\n")}
	var run tallyman.Run
	var err error
	if from := r.PostFormValue("from"); from != "" {
		set := map[string]string{"prompt": p.Prompt, "agent": p.Agent, "model": p.Model}
		maps.DeleteFunc(set, func(k, v string) bool { return v == "" && k != "prompt" })
		run, err = s.src.Rerun(r.Context(), from, set)
	} else {
		run, err = s.src.Submit(r.Context(), tallyman.Request{Agent: p.Agent, Model: p.Model, Prompt: p.Prompt, Source: tallyman.SourceWeb})
	}
	if err != nil {
		status, told := s.told(r, err)
		p.Problem = told
		s.showNew(w, r, p, status)
		return
	}
	http.Redirect(w, r, s.runURL(run), http.StatusSeeOther)
}
