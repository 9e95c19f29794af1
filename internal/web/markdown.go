package web

import (
	"bytes"
	"html/template"
	"net/url"
	"strings"

	"github.com/yuin/goldmark"
	"github.com/yuin/goldmark/ast"
	"github.com/yuin/goldmark/extension"
	"github.com/yuin/goldmark/renderer"
	"github.com/yuin/goldmark/renderer/html"
	gmutil "github.com/yuin/goldmark/util"
)

// prose makes HTML of Markdown that nobody vouches for: HTML in it is shown as
// text, only absolute http, https and mailto links are links, and an image is
// the link to it, since loading it would tell others that it was read.
var prose = goldmark.New(
	goldmark.WithExtensions(extension.NewTable(extension.WithTableCellAlignMethod(extension.TableCellAlignAttribute)), extension.Strikethrough, extension.Linkify, extension.TaskList),
	goldmark.WithRendererOptions(html.WithHardWraps(), renderer.WithNodeRenderers(gmutil.Prioritized(careful{}, 1))),
)

// markdown renders text; what cannot be rendered is shown as it is.
func markdown(text string) template.HTML {
	var b bytes.Buffer
	if err := prose.Convert([]byte(text), &b); err != nil {
		return template.HTML("<pre>" + template.HTMLEscapeString(text) + "</pre>")
	}
	return template.HTML(b.String())
}

// careful renders the nodes that could do harm.
type careful struct{}

// RegisterFuncs names the nodes.
func (careful) RegisterFuncs(reg renderer.NodeRendererFuncRegisterer) {
	reg.Register(ast.KindLink, link)
	reg.Register(ast.KindAutoLink, autoLink)
	reg.Register(ast.KindImage, image)
	reg.Register(ast.KindRawHTML, rawHTML)
	reg.Register(ast.KindHTMLBlock, htmlBlock)
	reg.Register(ast.KindHeading, heading)
}

// safeLink returns the link when following it can only open a page or a mail.
func safeLink(dest string) (string, bool) {
	u, err := url.Parse(dest)
	if err != nil {
		return "", false
	}
	switch strings.ToLower(u.Scheme) {
	case "http", "https":
		return u.String(), u.Host != ""
	case "mailto":
		return u.String(), true
	default:
		return "", false
	}
}

func openLink(w gmutil.BufWriter, dest string) {
	w.WriteString(`<a rel="nofollow noreferrer noopener" href="` + template.HTMLEscapeString(dest) + `">`)
}

func link(w gmutil.BufWriter, _ []byte, node ast.Node, entering bool) (ast.WalkStatus, error) {
	dest, ok := safeLink(string(node.(*ast.Link).Destination))
	switch {
	case ok && entering:
		openLink(w, dest)
	case ok:
		w.WriteString("</a>")
	case !entering:
		w.WriteString(` <span class="dest">(` + template.HTMLEscapeString(string(node.(*ast.Link).Destination)) + `)</span>`)
	}
	return ast.WalkContinue, nil
}

func autoLink(w gmutil.BufWriter, source []byte, node ast.Node, entering bool) (ast.WalkStatus, error) {
	if !entering {
		return ast.WalkContinue, nil
	}
	n := node.(*ast.AutoLink)
	dest := string(n.URL(source))
	if n.AutoLinkType == ast.AutoLinkEmail && !strings.HasPrefix(strings.ToLower(dest), "mailto:") {
		dest = "mailto:" + dest
	}
	label := template.HTMLEscapeString(string(n.Label(source)))
	if safe, ok := safeLink(dest); ok {
		openLink(w, safe)
		w.WriteString(label + "</a>")
		return ast.WalkContinue, nil
	}
	w.WriteString(label)
	return ast.WalkContinue, nil
}

func image(w gmutil.BufWriter, source []byte, node ast.Node, entering bool) (ast.WalkStatus, error) {
	if !entering {
		return ast.WalkContinue, nil
	}
	dest, ok := safeLink(string(node.(*ast.Image).Destination))
	if ok {
		openLink(w, dest)
	}
	w.WriteString("image: ")
	for c := node.FirstChild(); c != nil; c = c.NextSibling() {
		if t, is := c.(*ast.Text); is {
			w.WriteString(template.HTMLEscapeString(string(t.Value(source))))
		}
	}
	if ok {
		w.WriteString("</a>")
	}
	return ast.WalkSkipChildren, nil
}

func rawHTML(w gmutil.BufWriter, source []byte, node ast.Node, entering bool) (ast.WalkStatus, error) {
	if entering {
		segments := node.(*ast.RawHTML).Segments
		for i := range segments.Len() {
			s := segments.At(i)
			w.WriteString(template.HTMLEscapeString(string(s.Value(source))))
		}
	}
	return ast.WalkSkipChildren, nil
}

func htmlBlock(w gmutil.BufWriter, source []byte, node ast.Node, entering bool) (ast.WalkStatus, error) {
	n := node.(*ast.HTMLBlock)
	if entering {
		w.WriteString("<pre>")
		for i := range n.Lines().Len() {
			s := n.Lines().At(i)
			w.WriteString(template.HTMLEscapeString(string(s.Value(source))))
		}
		return ast.WalkContinue, nil
	}
	if n.HasClosure() {
		w.WriteString(template.HTMLEscapeString(string(n.ClosureLine.Value(source))))
	}
	w.WriteString("</pre>\n")
	return ast.WalkContinue, nil
}

// heading keeps an agent's headings below the page's own.
func heading(w gmutil.BufWriter, _ []byte, node ast.Node, entering bool) (ast.WalkStatus, error) {
	level := string("0123456"[min(node.(*ast.Heading).Level+2, 6)])
	if entering {
		w.WriteString("<h" + level + ">")
	} else {
		w.WriteString("</h" + level + ">\n")
	}
	return ast.WalkContinue, nil
}
