package web

import (
	"bytes"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"fmt"
	"html/template"
	"io"
	"net/http"
	"path"
	"strings"
)

//go:embed assets templates
var files embed.FS

// assets are the files that pages load, each under a name that holds its
// content's hash, so that it may be kept for ever.
type assets struct {
	base   string
	byName map[string]string // app.css → app.3f….css
	byFile map[string]asset
}

type asset struct {
	mime    string
	content []byte
}

var mimes = map[string]string{".css": "text/css; charset=utf-8", ".js": "text/javascript; charset=utf-8", ".svg": "image/svg+xml"}

// loadAssets reads what is embedded; that it can be read is known when it is
// built.
func loadAssets(base string) *assets {
	a := &assets{base: base, byName: map[string]string{}, byFile: map[string]asset{}}
	entries, _ := files.ReadDir("assets")
	for _, e := range entries {
		content, err := files.ReadFile("assets/" + e.Name())
		if err != nil {
			continue
		}
		sum := sha256.Sum256(content)
		ext := path.Ext(e.Name())
		file := strings.TrimSuffix(e.Name(), ext) + "." + hex.EncodeToString(sum[:6]) + ext
		a.byName[e.Name()] = file
		a.byFile[file] = asset{mimes[ext], content}
	}
	return a
}

func (a *assets) url(name string) string { return a.base + "/assets/" + a.byName[name] }

func (a *assets) serve(w http.ResponseWriter, r *http.Request) {
	f, ok := a.byFile[r.PathValue("file")]
	if !ok {
		http.NotFound(w, r)
		return
	}
	w.Header().Set("Content-Type", f.mime)
	w.Header().Set("Cache-Control", "public, max-age=31536000, immutable")
	w.Write(f.content)
}

// pages are the templates: one set a page, all of them with the shared parts.
type pages struct {
	byName map[string]*template.Template
	parts  *template.Template
}

func loadPages(base string, a *assets) *pages {
	parts := template.Must(template.New("parts").Funcs(funcs(base, a)).ParseFS(files, "templates/part-*.html"))
	p := &pages{byName: map[string]*template.Template{}, parts: parts}
	for _, name := range []string{"list.html", "run.html", "new.html", "error.html"} {
		p.byName[name] = template.Must(template.Must(parts.Clone()).ParseFS(files, "templates/layout.html", "templates/"+name))
	}
	return p
}

// render writes a page, whole or not at all.
func (p *pages) render(w http.ResponseWriter, name string, data page) error {
	var b bytes.Buffer
	if err := p.byName[name].ExecuteTemplate(&b, "layout", data); err != nil {
		http.Error(w, "internal error", http.StatusInternalServerError)
		return fmt.Errorf("render %s: %w", name, err)
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	_, err := io.Copy(w, &b)
	return err
}

// part returns a shared part as HTML.
func (p *pages) part(name string, data any) (template.HTML, error) {
	var b strings.Builder
	if err := p.parts.ExecuteTemplate(&b, name, data); err != nil {
		return "", fmt.Errorf("render %s: %w", name, err)
	}
	return template.HTML(b.String()), nil
}
