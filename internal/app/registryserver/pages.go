package registryserver

import (
	"bytes"
	"errors"
	"log/slog"
	"net/http"
	"strconv"
	"time"

	"github.com/terrier-iac/terrier/internal/access"
	"github.com/terrier-iac/terrier/internal/address"
	"github.com/terrier-iac/terrier/internal/command"
	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/registry"
	"github.com/terrier-iac/terrier/internal/registry/protocol"
	"github.com/terrier-iac/terrier/internal/web/pages"
	"github.com/terrier-iac/terrier/internal/web/pages/browse"
)

// browsing serves the pages of the registry to browsers. They only read: a browser sends
// the token of its user as a password with every request, and there are no sessions.
type browsing struct {
	renderer *pages.Renderer
	backend  *pages.Backend
	rights   protocol.Rights
	log      *slog.Logger
	now      func() time.Time
}

// pageOptions are what pages say about the server.
type pageOptions struct {
	version   string
	authority []byte // of its certificate, if that is its own
	logins    bool   // "tofu login" gets a token
}

// newBrowsing returns the handler of pages for a mux, and registers it.
func newBrowsing(mux *http.ServeMux, r *Registry, rights protocol.Rights, o pageOptions, log *slog.Logger, now func() time.Time) error {
	renderer, err := pages.NewRenderer(o.version)
	if err != nil {
		return err
	}
	b := &browsing{renderer, &pages.Backend{Catalog: r.Catalog, Alone: true, Version: o.version, Authority: o.authority, Logins: o.logins}, rights, log, now}
	const module = "/registry/modules/{namespace}/{name}/{system}"
	mux.Handle("GET /{$}", http.RedirectHandler("/registry", http.StatusSeeOther))
	mux.Handle("GET "+pages.StaticPrefix+"/", http.StripPrefix(pages.StaticPrefix, renderer.Static()))
	mux.Handle("GET /registry", b.page("", browse.Registry))
	mux.Handle("GET /registry/", b.page("", func(*pages.Visit) (pages.Page, error) {
		return pages.Page{}, fault.New(fault.Missing, "NoRoute", errors.New("there is no page at this address"))
	}))
	mux.Handle("GET "+module, b.page(registry.Modules, browse.Module))
	mux.Handle("GET "+module+"/{version}/archive", b.guarded(registry.Modules, b.archive))
	mux.Handle("GET /registry/providers/{namespace}/{name}", b.page(registry.Providers, browse.Provider))
	mux.Handle("GET /registry/keys/{namespace}", b.page(registry.Providers, browse.Keys))
	mux.Handle("GET /registry/repositories", b.page("", browse.Repositories))
	mux.Handle("GET /registry/repositories/{namespace}/{name}", b.page(registry.Modules, browse.Repository))
	mux.Handle("GET "+browse.Authority, b.guarded("", b.authority))
	mux.Handle("GET /registry/mirror", b.page("", browse.Mirror))
	mux.Handle("GET /registry/mirror/{host}/{namespace}/{name}", b.page("", browse.Mirrored))
	return nil
}

// everything is a namespace that only callers may read who may read all of them.
const everything = "*"

// visit is a request as a page gets it.
func (b *browsing) visit(r *http.Request) *pages.Visit {
	v := &pages.Visit{
		Context: r.Context(), Backend: b.backend, Now: b.now(), Host: r.Host, Path: r.URL.Path, Query: r.URL.Query(), Names: map[string]string{},
		Can: func(access.Request) bool { return false },
	}
	for _, name := range []string{"namespace", "name", "system", "version", "host"} {
		v.Names[name] = r.PathValue(name)
	}
	return v
}

// guarded calls do for a caller that may read the namespace of the address. Without a
// kind, every known caller may.
func (b *browsing) guarded(k registry.Kind, do func(http.ResponseWriter, *http.Request, *pages.Visit) error) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("Cache-Control", "no-store")
		h.Set("X-Frame-Options", "DENY")
		h.Set("Referrer-Policy", "no-referrer")
		v := b.visit(r)
		c, err := b.rights.Caller(r)
		if err == nil {
			v.User.Name = c.Name
			v.Can = func(x access.Request) bool {
				namespace := x.Namespace
				if namespace == "" {
					namespace = everything
				}
				return x.Verb == "get" && b.rights.May(r.Context(), c, protocol.Read, namespace) == nil
			}
		}
		if err == nil && k != "" {
			err = b.rights.May(r.Context(), c, protocol.Read, k.Namespace(r.PathValue("namespace")))
		}
		if err == nil {
			err = do(w, r, v)
		}
		if err != nil {
			b.refuse(w, r, v, err)
		}
	})
}

func (b *browsing) page(k registry.Kind, handle pages.Handler) http.Handler {
	return b.guarded(k, func(w http.ResponseWriter, r *http.Request, v *pages.Visit) error {
		p, err := handle(v)
		if err != nil {
			return err
		}
		return b.show(w, http.StatusOK, v, p)
	})
}

func (b *browsing) show(w http.ResponseWriter, status int, v *pages.Visit, p pages.Page) error {
	p.Live = pages.Live{} // nothing says when a page changes
	html, err := b.renderer.Render(v, p)
	if err != nil {
		return err
	}
	w.Header().Set("Content-Security-Policy", p.ContentPolicy())
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.Header().Set("Content-Length", strconv.Itoa(len(html)))
	w.WriteHeader(status)
	if _, err := bytes.NewReader(html).WriteTo(w); err != nil {
		b.log.Debug("page not sent", "path", v.Path, "err", err)
	}
	return nil
}

// refuse shows why a page is not shown. A browser asks its user for a token when there is
// none.
func (b *browsing) refuse(w http.ResponseWriter, r *http.Request, v *pages.Visit, err error) {
	refusal := command.Refusal{Kind: fault.Of(err), Reason: fault.Reason(err, ""), Error: fault.Shorten(err.Error(), 2<<10)}
	status := refusal.Kind.Meaning().HTTP
	switch {
	case protocol.IsUnauthenticated(err):
		status = http.StatusUnauthorized
		refusal.Hint = "Load the page again. The browser asks for a name and a password: the password is your token, and the name may be anything."
		w.Header().Set("WWW-Authenticate", `Basic realm="registry: the password is your token", charset="UTF-8"`)
	case refusal.Kind == fault.Broken:
		b.log.Error("page failed", "path", r.URL.Path, "err", err)
		refusal.Error = "internal error of the registry: its log has details"
	}
	if failed := b.show(w, status, v, pages.Failed(v, refusal, "")); failed != nil {
		b.log.Error("page failed", "path", r.URL.Path, "err", failed)
		http.Error(w, "internal error of the registry", http.StatusInternalServerError)
	}
}

// authority is the certificate authority of the server.
func (b *browsing) authority(w http.ResponseWriter, _ *http.Request, _ *pages.Visit) error {
	if len(b.backend.Authority) == 0 {
		return browse.ErrNoAuthority()
	}
	h := w.Header()
	h.Set("Content-Type", browse.AuthorityType)
	h.Set("Content-Disposition", `attachment; filename="`+browse.AuthorityFile+`"`)
	h.Set("Content-Length", strconv.Itoa(len(b.backend.Authority)))
	if _, err := w.Write(b.backend.Authority); err != nil {
		b.log.Debug("certificate authority not sent", "err", err)
	}
	return nil
}

// archive leads to the signed address of an archive.
func (b *browsing) archive(w http.ResponseWriter, r *http.Request, _ *pages.Visit) error {
	m, err := address.NewModule(r.PathValue("namespace"), r.PathValue("name"), r.PathValue("system"))
	if err != nil {
		return err
	}
	v, err := address.ParseVersion(r.PathValue("version"))
	if err != nil {
		return err
	}
	at, err := b.backend.Catalog.ModuleArchive(r.Context(), m, v)
	if err != nil {
		return err
	}
	http.Redirect(w, r, at, http.StatusSeeOther)
	return nil
}
