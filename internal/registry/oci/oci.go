// Package oci serves modules and providers of a registry as repositories of an OCI
// registry, to engines that install from oci:// and through oci_mirror, and to any client
// that pulls.
//
//	NAMESPACE/modules/NAME/SYSTEM              a module that a user published
//	NAMESPACE/providers/TYPE                   a provider that a user published
//	NAMESPACE/mirror/HOST/NAMESPACE/TYPE       a provider of another registry, for a tenant
//
// Nothing is pushed here. Manifests are made from the index for each request, from nothing
// but names, checksums and sizes, so they are the same in every process. Archives are the
// bytes that the registry has. A module that is no zip archive is made into one once.
//
// All other names are for the handler inside. Start reading at Handler.
package oci

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/terrier-iac/terrier/internal/address"
	"github.com/terrier-iac/terrier/internal/blob"
	"github.com/terrier-iac/terrier/internal/cache"
	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/registry"
	"github.com/terrier-iac/terrier/internal/registry/mirror"
	"github.com/terrier-iac/terrier/internal/registry/protocol"
	"github.com/terrier-iac/terrier/internal/registry/room"
)

// Options are what a handler serves, and how.
type Options struct {
	Registry *registry.Registry
	Mirror   *mirror.Mirror // nil without one
	Rights   protocol.Rights
	Store    blob.Versions // of the registry: zip archives of modules that have none are kept in it

	// Inside answers all that is not served here; nil if there is nothing else. Pushed
	// reports whether users have pushed a repository to it.
	Inside http.Handler
	Pushed func(repository string) (bool, error)

	Scratch    string        // the directory for archives that are being converted; that of the system
	Room       *room.Room    // of the disk of Scratch
	MaxArchive int64         // of one archive, in bytes; 1 GiB
	Stall      time.Duration // how long a client may take for a part of an archive; one minute
	Now        func() time.Time
	Log        *slog.Logger

	// Served is called with what a tenant got of an archive of the registry; it may be nil.
	Served func(tenant, key string, bytes int64)
}

// prefix is where all repositories are.
const prefix = "/v2/"

// Handler serves repositories below /v2/.
type Handler struct {
	Options
	zips     *zips
	searched cache.Map[string, bool] // repositories of which every version was read a short while ago
}

// New returns a handler.
func New(o Options) (*Handler, error) {
	if o.Registry == nil || o.Rights == nil || o.Store == nil || (o.Inside == nil) != (o.Pushed == nil) {
		return nil, errors.New("a registry over OCI needs its content, rights, a store, and both or none of what is inside")
	}
	o.Scratch, o.MaxArchive, o.Stall = cmp.Or(o.Scratch, os.TempDir()), cmp.Or(o.MaxArchive, 1<<30), cmp.Or(o.Stall, time.Minute)
	if o.Room == nil {
		o.Room = room.Of(o.Scratch)
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	return &Handler{Options: o, zips: newZips(o), searched: cache.Map[string, bool]{Size: 10_000, TTL: time.Minute, Now: o.Now}}, nil
}

// ServeHTTP implements http.Handler.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	to, ours := parse(r.URL.Path)
	if ours && !to.mirrored() && h.Pushed != nil {
		pushed, err := h.Pushed(to.name())
		if err != nil {
			h.answer(w, r, err)
			return
		}
		ours = !pushed
	}
	if !ours && h.Inside != nil {
		h.Inside.ServeHTTP(w, r)
		return
	}
	w.Header().Set("Docker-Distribution-API-Version", "registry/2.0")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	if err := h.serve(w, r, to, ours); err != nil {
		h.answer(w, r, err)
	}
}

func (h *Handler) serve(w http.ResponseWriter, r *http.Request, to route, ours bool) error {
	c, err := h.Rights.Caller(r)
	if err != nil {
		return err
	}
	switch {
	case r.URL.Path == prefix || r.URL.Path+"/" == prefix:
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write([]byte("{}")) // the client may have left
		return nil
	case !ours:
		return refuse(http.StatusNotFound, "NAME_UNKNOWN", "there is no such repository: modules are at NAMESPACE/modules/NAME/SYSTEM, providers at NAMESPACE/providers/TYPE, and those of the mirror at NAMESPACE/mirror/HOST/NAMESPACE/TYPE")
	}
	s, tenant, err := h.source(r.Context(), c, to)
	if err != nil {
		return err
	}
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		w.Header().Set("Allow", "GET, HEAD")
		return refuse(http.StatusMethodNotAllowed, "UNSUPPORTED", to.name()+" is "+s.what()+", and nothing can be pushed to it or deleted in it: "+s.instead())
	}
	repo := repository{h, s, to.name()}
	switch to.kind {
	case "tags":
		return repo.tags(w, r)
	case "manifests":
		return repo.manifest(w, r, to.rest)
	case "blobs":
		return repo.blob(w, r, to.rest, tenant)
	default:
		return refuse(http.StatusNotFound, "UNSUPPORTED", "the registry has no "+to.kind+" of modules and providers")
	}
}

// source is what a repository is made from, if a caller may read it, and the tenant whose
// traffic it is.
func (h *Handler) source(ctx context.Context, c protocol.Caller, to route) (source, string, error) {
	if to.mirrored() {
		return h.mirrored(ctx, c, to)
	}
	if err := h.Rights.May(ctx, c, protocol.Read, registry.Kind(to.shape).Namespace(to.namespace)); err != nil {
		return nil, "", err
	}
	if to.shape == string(registry.Modules) {
		m, err := address.NewModule(to.namespace, to.parts[0], to.parts[1])
		return moduleSource{h, m}, c.Tenant, err
	}
	p, err := address.NewProvider("", to.namespace, to.parts[0])
	return providerSource{h, p}, c.Tenant, err
}

// route is a request to a repository of a registry.
type route struct {
	namespace string
	shape     string   // modules, providers or mirror
	parts     []string // of the name after that
	kind      string   // tags, manifests, blobs, uploads or referrers
	rest      string
}

const mirrorShape = "mirror"

func (to route) mirrored() bool { return to.shape == mirrorShape }

func (to route) name() string {
	return to.namespace + "/" + to.shape + "/" + strings.Join(to.parts, "/")
}

// parse reads the path of a request. It is false for all that is of other repositories. A
// name is of ours by its number of parts, so that "team/modules/vpc" is not.
func parse(path string) (route, bool) {
	path, ok := strings.CutPrefix(path, prefix)
	all := strings.Split(path, "/")
	if !ok || len(all) < 4 {
		return route{}, false
	}
	to := route{namespace: all[0], shape: all[1]}
	names := map[string]int{string(registry.Modules): 2, string(registry.Providers): 1, mirrorShape: 3}[to.shape]
	if names == 0 || len(all) < 2+names+2 || slices.Contains(all[:2+names], "") {
		return route{}, false
	}
	to.parts = all[2 : 2+names]
	rest := all[2+names:]
	to.kind, to.rest = rest[0], rest[1]
	switch {
	case to.mirrored() && !strings.Contains(to.parts[0], "."):
		return route{}, false // no host
	case len(rest) == 2 && to.kind == "tags":
		return to, to.rest == "list"
	case len(rest) == 3 && to.kind == "blobs" && to.rest == "uploads":
		to.kind = to.rest
		return to, true
	default:
		return to, len(rest) == 2 && slices.Contains([]string{"manifests", "blobs", "referrers"}, to.kind)
	}
}

// repository answers requests to one repository.
type repository struct {
	*Handler
	source source
	name   string
}

// source is what a repository is made from.
type source interface {
	// entries are the versions that have tags.
	entries(context.Context) ([]entry, error)
	// layers are the archives of a version.
	layers(context.Context, address.Version) ([]layer, error)
	// open opens an archive. The context is that of the request.
	open(context.Context, layer) (registry.Archive, error)
	// of makes the manifests of a version from its archives.
	of(address.Version, []layer) []manifest
	// what it is, and instead how to publish it.
	what() string
	instead() string
}

// entry is a version. Its layers are nil if an archive has to be read to know them.
type entry struct {
	version address.Version
	layers  []layer
}

func (repo repository) tags(w http.ResponseWriter, r *http.Request) error {
	all, err := repo.source.entries(r.Context())
	if err != nil {
		return err
	}
	tags := make([]string, 0, len(all))
	for _, e := range all {
		tags = append(tags, string(e.version))
	}
	slices.Sort(tags) // as the specification says, and last needs it
	q := r.URL.Query()
	if last := q.Get("last"); last != "" {
		at, found := slices.BinarySearch(tags, last)
		if found {
			at++
		}
		tags = tags[at:]
	}
	if text := q.Get("n"); text != "" {
		n, err := strconv.Atoi(text)
		if err != nil || n < 0 {
			return refuse(http.StatusBadRequest, "PAGINATION_NUMBER_INVALID", "n is not a number of tags")
		}
		if n < len(tags) {
			tags = tags[:n]
			if n > 0 {
				next := url.URL{Path: prefix + repo.name + "/tags/list", RawQuery: url.Values{"n": {text}, "last": {tags[n-1]}}.Encode()}
				w.Header().Set("Link", "<"+next.String()+`>; rel="next"`)
			}
		}
	}
	body, err := json.Marshal(map[string]any{"name": repo.name, "tags": tags})
	if err != nil {
		return err
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-cache")
	http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(body))
	return nil
}

func (repo repository) manifest(w http.ResponseWriter, r *http.Request, reference string) error {
	var found manifest
	if strings.Contains(reference, ":") {
		sum, err := hexOf(reference)
		if err != nil {
			return err
		}
		if found, err = repo.find(r.Context(), sum); err != nil {
			return err
		}
	} else {
		v, err := address.ParseVersion(reference)
		if err != nil {
			return refuse(http.StatusNotFound, "MANIFEST_UNKNOWN", fmt.Sprintf("%s has no tag %.128q: its tags are versions, as 1.2.3", repo.name, reference))
		}
		layers, err := repo.source.layers(r.Context(), v)
		if err != nil {
			return err
		}
		found = repo.source.of(v, layers)[0]
	}
	w.Header().Set("Content-Type", found.mediaType)
	w.Header().Set("Docker-Content-Digest", digest(found.sum))
	w.Header().Set("ETag", `"`+digest(found.sum)+`"`)
	w.Header().Set("Cache-Control", "no-cache") // a version may be retracted
	http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(found.content))
	return nil
}

// find is the manifest with a checksum, of all versions that have tags.
func (repo repository) find(ctx context.Context, sum string) (manifest, error) {
	var found manifest
	err := repo.search(ctx, func(v address.Version, layers []layer) bool {
		for _, m := range repo.source.of(v, layers) {
			if m.sum == sum {
				found = m
				return true
			}
		}
		return false
	})
	if err == nil && found.sum == "" {
		err = refuse(http.StatusNotFound, "MANIFEST_UNKNOWN", fmt.Sprintf("%s has no manifest sha256:%s: its version may have been retracted", repo.name, sum))
	}
	return found, err
}

func (repo repository) blob(w http.ResponseWriter, r *http.Request, reference, tenant string) error {
	sum, err := hexOf(reference)
	if err != nil {
		return err
	}
	w.Header().Set("Docker-Content-Digest", reference)
	w.Header().Set("Content-Type", "application/octet-stream")
	if sum == emptySum {
		http.ServeContent(w, r, "", time.Time{}, strings.NewReader(empty))
		return nil
	}
	var found layer
	err = repo.search(r.Context(), func(_ address.Version, layers []layer) bool {
		at := slices.IndexFunc(layers, func(l layer) bool { return l.sha256 == sum })
		if at >= 0 {
			found = layers[at]
		}
		return at >= 0
	})
	if err == nil && found.key == "" {
		err = refuse(http.StatusNotFound, "BLOB_UNKNOWN", fmt.Sprintf("%s has no archive sha256:%s: its version may have been retracted", repo.name, sum))
	}
	if err != nil {
		return err
	}
	w = protocol.Transfer(w, r, repo.Stall, repo.Now)
	a, err := repo.source.open(r.Context(), found)
	if err != nil {
		return err
	}
	sent, err := protocol.Send(w, r, a, sum)
	if err != nil {
		repo.Log.Error("archive not sent", "key", found.key, "bytes", sent, "err", err)
	}
	if served := repo.served(); served != nil && sent > 0 {
		served(tenant, found.key, sent)
	}
	return nil
}

// served is what counts archives of this repository.
func (repo repository) served() func(tenant, key string, bytes int64) {
	if _, ok := repo.source.(mirrorSource); ok {
		return repo.Mirror.Served
	}
	return repo.Served
}

// search looks at the archives of versions, the highest first, until is returns true.
// Those that are known come first. The others are read, once a minute, in case that the
// manifest was made by a process whose records are gone.
func (repo repository) search(ctx context.Context, is func(address.Version, []layer) bool) error {
	all, err := repo.source.entries(ctx)
	if err != nil {
		return err
	}
	slices.Reverse(all)
	unknown := slices.DeleteFunc(slices.Clone(all), func(e entry) bool { return e.layers != nil })
	for _, e := range all {
		if e.layers != nil && is(e.version, e.layers) {
			return nil
		}
	}
	if _, ok := repo.source.(mirrorSource); ok || len(unknown) == 0 {
		return nil
	}
	if _, done := repo.searched.Get(repo.name); done {
		return nil
	}
	repo.searched.Put(repo.name, true)
	for _, e := range unknown {
		layers, err := repo.source.layers(ctx, e.version)
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if err != nil {
			repo.Log.Warn("version not served over OCI", "repository", repo.name, "version", string(e.version), "err", err)
		} else if is(e.version, layers) {
			return nil
		}
	}
	return nil
}

// refusal is an answer in the words of the specification.
type refusal struct {
	status        int
	code, message string
}

func (r refusal) Error() string { return r.message }

func refuse(status int, code, message string) error { return refusal{status, code, message} }

// answer sends an error in the form that clients of OCI registries show.
func (h *Handler) answer(w http.ResponseWriter, r *http.Request, err error) {
	said, ok := errors.AsType[refusal](err)
	if !ok {
		said = h.refusal(r, err)
	}
	if said.status == http.StatusUnauthorized {
		w.Header().Set("WWW-Authenticate", `Basic realm="registry"`) // a Bearer challenge would send clients to look for a token server
	}
	if said.status == http.StatusServiceUnavailable {
		w.Header().Set("Retry-After", "5")
	}
	for _, header := range []string{"Content-Length", "Docker-Content-Digest", "ETag"} {
		w.Header().Del(header)
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	type problem struct {
		Code    string `json:"code"`
		Message string `json:"message"`
	}
	w.WriteHeader(said.status)
	// There is no reader when this fails.
	_ = json.NewEncoder(w).Encode(map[string][]problem{"errors": {{said.code, fault.Shorten(said.message, 2<<10)}}})
}

// refusal says what a fault is in the words of the specification.
func (h *Handler) refusal(r *http.Request, err error) refusal {
	switch kind := fault.Of(err); {
	case protocol.IsUnauthenticated(err):
		return refusal{http.StatusUnauthorized, "UNAUTHORIZED", err.Error()}
	case mirror.OfUpstream(err): // the caller learns what is wrong with it
		h.Log.Warn("upstream is wrong", "path", r.URL.Path, "err", err)
		return refusal{http.StatusBadGateway, "UNAVAILABLE", err.Error()}
	case kind == fault.Denied:
		return refusal{http.StatusForbidden, "DENIED", err.Error()}
	case kind == fault.Missing:
		code := map[string]string{registry.ModuleMissing: "NAME_UNKNOWN", registry.ProviderMissing: "NAME_UNKNOWN", reasonGone: "BLOB_UNKNOWN"}[fault.Reason(err, "")]
		return refusal{http.StatusNotFound, cmp.Or(code, "MANIFEST_UNKNOWN"), err.Error()}
	case kind == fault.Invalid:
		return refusal{http.StatusBadRequest, "NAME_INVALID", err.Error()}
	case kind == fault.Later, errors.Is(err, context.DeadlineExceeded):
		return refusal{http.StatusServiceUnavailable, "UNAVAILABLE", err.Error()}
	}
	if r.Context().Err() == nil {
		h.Log.Error("request failed", "method", r.Method, "path", r.URL.Path, "err", err)
	}
	return refusal{http.StatusInternalServerError, "UNKNOWN", "internal error of the registry: its log has details"}
}
