package pages

import (
	"bytes"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"fmt"
	"html/template"
	"io/fs"
	"net/http"
	"path"
	"strings"
	"time"

	"github.com/terrier-iac/terrier/internal/plural"
	"github.com/terrier-iac/terrier/internal/query"
	"github.com/terrier-iac/terrier/internal/stack"
	"github.com/terrier-iac/terrier/internal/web/ui"
)

//go:embed templates static
var files embed.FS

// Renderer turns pages into HTML.
type Renderer struct {
	pages   map[string]*template.Template
	static  string // the address below which static files are served: it changes with them
	sheets  []string
	version string
}

// NewRenderer parses all templates.
func NewRenderer(version string) (*Renderer, error) {
	r := &Renderer{pages: map[string]*template.Template{}, version: version}
	sum, err := digest("static")
	if err != nil {
		return nil, err
	}
	r.static = StaticPrefix + "/" + sum + "/"
	if r.sheets, err = sheets(r.static); err != nil {
		return nil, err
	}
	// All pages share the layout and the parts in templates/parts.
	base, err := template.New("layout").Funcs(r.functions()).ParseFS(files, "templates/layout.html", "templates/parts/*.html")
	if err != nil {
		return nil, err
	}
	names, err := fs.Glob(files, "templates/*.html")
	if err != nil {
		return nil, err
	}
	for _, name := range names {
		t, err := base.Clone()
		if err == nil {
			t, err = t.ParseFS(files, name)
		}
		if err != nil {
			return nil, err
		}
		r.pages[strings.TrimSuffix(path.Base(name), ".html")] = t
	}
	return r, nil
}

// sheets are the addresses of all style sheets. The common one comes
// first, so that a screen's own may refine it.
func sheets(static string) ([]string, error) {
	names, err := fs.Glob(files, "static/*.css")
	out := []string{static + "app.css"}
	for _, name := range names {
		if base := path.Base(name); base != "app.css" {
			out = append(out, static+base)
		}
	}
	return out, err
}

// digest is of all files below dir.
func digest(dir string) (string, error) {
	h := sha256.New()
	err := fs.WalkDir(files, dir, func(p string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		content, err := files.ReadFile(p)
		fmt.Fprintf(h, "%s\x00%d\x00", p, len(content))
		h.Write(content)
		return err
	})
	return hex.EncodeToString(h.Sum(nil))[:16], err
}

// view is what the layout is given.
type view struct {
	Page
	Visit   *Visit
	Said    string
	Static  string
	Sheets  []string
	Version string
}

// Render returns the HTML of a page.
func (r *Renderer) Render(v *Visit, p Page) ([]byte, error) {
	t := r.pages[p.Template]
	if t == nil {
		return nil, fmt.Errorf("there is no template %q", p.Template)
	}
	p.Live = v.filling(p.Live)
	var out bytes.Buffer
	err := t.ExecuteTemplate(&out, "layout", view{Page: p, Visit: v, Said: Sentence(Said(v.Query.Get("done"))), Static: r.static, Sheets: r.sheets, Version: r.version})
	return out.Bytes(), err
}

// StaticPrefix is where static files are served.
const StaticPrefix = "/static"

// Static serves the static files; StaticPrefix is taken off the path before.
// Their address changes with them, so that they may be kept for good.
func (r *Renderer) Static() http.Handler {
	dir, err := fs.Sub(files, "static")
	if err != nil {
		panic(err) // the directory is in the binary
	}
	serve := http.StripPrefix(strings.TrimPrefix(strings.TrimSuffix(r.static, "/"), StaticPrefix), http.FileServerFS(dir))
	return http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		if strings.HasSuffix(q.URL.Path, "/") {
			http.NotFound(w, q) // directories are not listed
			return
		}
		w.Header().Set("Cache-Control", "public, max-age=31536000, immutable")
		serve.ServeHTTP(w, q)
	})
}

// ContentPolicy is what browsers may do with a page: nothing but what comes
// from us, and nothing inline.
const ContentPolicy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; font-src 'self'; connect-src 'self'; " +
	"form-action 'self'; base-uri 'none'; frame-ancestors 'none'"

// ContentPolicy is that of p.
func (p Page) ContentPolicy() string {
	if p.LeadsTo == "" {
		return ContentPolicy
	}
	return strings.Replace(ContentPolicy, "form-action 'self'", "form-action 'self' "+p.LeadsTo, 1)
}

// functions are what templates may call besides what html/template has.
func (r *Renderer) functions() template.FuncMap {
	return template.FuncMap{
		"age":    ui.Age,
		"stamp":  func(t time.Time) string { return t.UTC().Format(time.RFC3339) },
		"path":   ui.PathOf,
		"count":  query.Count,
		"plural": plural.Of,
		"join":   strings.Join,

		// What parts are called with.
		"pill":     ui.PillOf,
		"status":   statusPill,
		"outcome":  outcomePill,
		"steppill": stepPill,
		"gatepill": gatePill,
		"moment":   func(now, at time.Time) ui.Moment { return ui.Moment{Now: now, At: at} },
		"problem":  func(title, text string) Problem { return Problem{Title: title, Error: text} },
		"cut":      ui.Cut,
		"ends":     ui.Ends,
		"revision": ui.Revision,
		"took":     ui.Took,
		"span":     ui.Span,
		"branch":   func(now time.Time, objects []*objectView) branch { return branch{now, objects} },

		"called":    func(name string) string { return strings.TrimPrefix(name, "system:serviceaccount:") },
		"thousands": ui.Thousands,
		"bytes":     func(n int64) string { return query.Size(int(n)) },
		"last":      func(from, n int) int { return from + n - 1 },
		"says": func(now time.Time, s said) struct {
			Now  time.Time
			Said said
		} {
			return struct {
				Now  time.Time
				Said said
			}{now, s}
		},
		"happened": func(now time.Time, m moment) struct {
			Now    time.Time
			Moment moment
		} {
			return struct {
				Now    time.Time
				Moment moment
			}{now, m}
		},
		"mode": func(m stack.Mode) string { return modes[m] },

		"effect":      query.EffectText,
		"findingtone": findingTone,
		"weblink":     webLink,
		"head": func(now time.Time, h stackHead) struct {
			Now  time.Time
			Head stackHead
		} {
			return struct {
				Now  time.Time
				Head stackHead
			}{now, h}
		},
	}
}
