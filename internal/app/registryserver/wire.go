package registryserver

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/terrier-iac/terrier/internal/app/interval"
	"github.com/terrier-iac/terrier/internal/blob"
	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/outbound"
	"github.com/terrier-iac/terrier/internal/query/catalog"
	"github.com/terrier-iac/terrier/internal/registry"
	"github.com/terrier-iac/terrier/internal/registry/inspect"
	"github.com/terrier-iac/terrier/internal/registry/mirror"
	"github.com/terrier-iac/terrier/internal/registry/oci"
	"github.com/terrier-iac/terrier/internal/registry/origin"
	"github.com/terrier-iac/terrier/internal/registry/protocol"
	"github.com/terrier-iac/terrier/internal/registry/room"
)

// Wiring is what a registry is made of, alone or below the HTTP API of a controller.
type Wiring struct {
	Store      blob.Versions
	Rights     protocol.Rights
	Signer     protocol.Signer // of the addresses of archives
	Services   map[string]any  // that discovery names besides modules and providers
	Settings   string          // the file of the mirror; its defaults if empty
	Scratch    string          // a directory
	Allow      []string        // --allow-host
	Registerer prometheus.Registerer
	Quota      func(ctx context.Context, namespace string) (registry.Quota, error) // nil if there is none
	Exists     func(ctx context.Context, namespace string) error                   // Missing for a namespace in which nothing can be published; nil if every name is one
	Audit      AuditLog                                                            // of what users change; nil if it is not recorded
	Stall      time.Duration                                                       // one minute if zero

	// Repositories say which repositories have modules whose tags become versions; nil if
	// none are registered here. Out reaches their servers. With Alone, the storage says which
	// of several replicas checks them.
	Repositories origin.Source
	Out          *outbound.Client
	Alone        bool

	// Inside has the repositories that users push, and Pushed says which; nil if there are
	// none.
	Inside http.Handler
	Pushed func(repository string) (bool, error)

	Log *slog.Logger
	Now func() time.Time
}

// Registry is the handler of a registry with its mirror.
type Registry struct {
	http.Handler
	Catalog      *catalog.Catalog // of what it has
	published    *registry.Registry
	repositories *oci.Handler
	mirror       *mirror.Mirror
	origins      *origin.Poller // nil without registered repositories
	log          *slog.Logger
}

// Wire makes a registry.
func Wire(w Wiring) (*Registry, error) {
	settings, err := readSettings(w.Settings)
	if err != nil {
		return nil, err
	}
	allow, err := outbound.ParseAllow(w.Allow...)
	if err != nil {
		return nil, err
	}
	tenants := newTenants()
	counts, err := newMirrorCounts(w.Registerer, tenants, w.Log)
	if err != nil {
		return nil, err
	}
	sent, err := newPackageCounts(w.Registerer, tenants)
	if err != nil {
		return nil, err
	}
	now := w.Now
	if now == nil {
		now = time.Now
	}
	disk := room.Of(cmp.Or(w.Scratch, os.TempDir()))
	published := registry.New(w.Store, registry.Options{Scratch: w.Scratch, Room: disk, Quota: w.Quota, Exists: w.Exists, Record: recording(w.Audit), Now: w.Now, Log: w.Log})
	documents := inspect.NewReader(published, cmp.Or(w.Scratch, os.TempDir()), disk, now)
	own, err := protocol.New(protocol.Options{
		Registry: published, Documents: documents, Rights: w.Rights, Signer: w.Signer, Services: w.Services, Served: sent.over(overHTTP), Stall: w.Stall, Now: w.Now, Log: w.Log,
	})
	if err != nil {
		return nil, fmt.Errorf("making the registry: %w", err)
	}
	m, err := mirror.New(w.Store, mirror.Options{
		Settings: settings, Policy: outbound.Policy{Allow: allow, Proxy: true}, Scratch: w.Scratch, Room: disk, Counts: counts, Now: w.Now, Log: w.Log,
	})
	if err != nil {
		return nil, err
	}
	own.ServeMirror(m)
	origins, err := w.origins(published, disk)
	if err != nil {
		return nil, err
	}
	if origins != nil {
		own.ServeOrigins(origins)
	}
	repositories, err := oci.New(oci.Options{
		Registry: published, Mirror: m, Rights: w.Rights, Store: w.Store, Inside: w.Inside, Pushed: w.Pushed,
		Scratch: w.Scratch, Room: disk, Served: sent.over(overOCI), Stall: w.Stall, Now: w.Now, Log: w.Log,
	})
	if err != nil {
		return nil, err
	}
	var tagged func(context.Context) ([]catalog.Repository, error)
	if origins != nil {
		tagged = origins.States
	}
	answers := catalog.New(catalog.Options{
		Repositories: tagged,
		Registry:     published, Documents: documents, Mirror: m, Room: disk, Figures: counts.figures, Now: now,
		Archive: func(key, sha256 string) string { return own.Path(protocol.Link{Key: key, SHA256: sha256}) },
	})
	for _, k := range []catalog.Kind{catalog.Modules, catalog.Providers} {
		own.HandleList(string(k), func(w http.ResponseWriter, r *http.Request, sees func(string) bool) error {
			q, err := searchOf(r, k)
			if err != nil {
				return err
			}
			found, err := answers.Search(r.Context(), sees, q)
			if err == nil {
				own.JSON(w, r, found)
			}
			return err
		})
	}
	return &Registry{beside(own, repositories), answers, published, repositories, m, origins, w.Log}, nil
}

// searchOf is what a request asks a list of the registry for.
func searchOf(r *http.Request, k catalog.Kind) (catalog.Query, error) {
	v := r.URL.Query()
	q := catalog.Query{Kind: k, Text: v.Get("q"), Namespace: v.Get("namespace"), Sort: catalog.Sort(v.Get("sort"))}
	if q.Sort != catalog.ByName && q.Sort != catalog.Newest {
		return q, fault.New(fault.Invalid, "QueryInvalid", fmt.Errorf("the parameter sort takes newest, not %.80q", q.Sort))
	}
	for name, to := range map[string]*int{"offset": &q.Offset, "limit": &q.Limit} {
		if text := v.Get(name); text != "" {
			n, err := strconv.Atoi(text)
			if err != nil || n < 0 {
				return q, fault.New(fault.Invalid, "QueryInvalid", fmt.Errorf("the parameter %s takes a number that is not negative, not %.80q", name, text))
			}
			*to = n
		}
	}
	return q, nil
}

// origins makes the poller of registered repositories; nil if there can be none.
func (w Wiring) origins(published *registry.Registry, disk *room.Room) (*origin.Poller, error) {
	if w.Repositories == nil {
		return nil, nil
	}
	counts, err := newOriginCounts(w.Registerer)
	if err != nil {
		return nil, err
	}
	return origin.New(origin.Options{
		Registry: published, Store: w.Store, Source: w.Repositories, Out: w.Out, Scratch: filepath.Join(cmp.Or(w.Scratch, os.TempDir()), "tags"), Room: disk,
		Counts: counts, Alone: w.Alone, Now: w.Now, Log: w.Log,
	})
}

// Follow makes versions of the tags of registered repositories, until ctx ends. One replica
// does it at a time.
func (r *Registry) Follow(ctx context.Context) error {
	if r.origins == nil {
		<-ctx.Done()
		return nil
	}
	return r.origins.Run(ctx)
}

// beside serves repositories of OCI below /v2/, and the registry at all other paths.
func beside(own, repositories http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/v2" && !strings.HasPrefix(r.URL.Path, "/v2/") {
			own.ServeHTTP(w, r)
			return
		}
		r.Pattern = "/v2/" // as figures name the route
		repositories.ServeHTTP(w, r)
	})
}

// settingsBytes bounds the file of the mirror.
const settingsBytes = 4 << 20

// readSettings reads the file of the mirror.
func readSettings(file string) (mirror.Settings, error) {
	if file == "" {
		return mirror.Defaults(), nil
	}
	text, err := readBounded(file, settingsBytes)
	if err != nil {
		return mirror.Settings{}, usage("reading the settings of the mirror: %w", err)
	}
	s, err := mirror.ParseSettings(text)
	if err != nil {
		return s, fmt.Errorf("%s: %w", file, err)
	}
	return s, nil
}

func readBounded(file string, most int64) ([]byte, error) {
	text, err := os.ReadFile(file)
	if err == nil && int64(len(text)) > most {
		err = fmt.Errorf("%s is larger than %d bytes", file, most)
	}
	return text, err
}

// sweepEvery is how often files are deleted that no client needs.
const sweepEvery = 24 * time.Hour

// Run deletes what no client needs, until ctx ends: files of providers that users have
// uploaded and not published for a week, zip archives of modules that were made a month
// ago, and what the settings of the mirror say. Other replicas may do the same at the
// same time.
func (r *Registry) Run(ctx context.Context) error {
	var wait sync.WaitGroup
	defer wait.Wait()
	wait.Go(func() { r.mirror.Run(ctx) })
	for range interval.Turns(ctx, sweepEvery) {
		if err := r.published.Sweep(ctx); err != nil && ctx.Err() == nil {
			r.log.Warn("uploads not swept", "err", err)
		}
		if err := r.repositories.Sweep(ctx); err != nil && ctx.Err() == nil {
			r.log.Warn("zip archives of modules not swept", "err", err)
		}
	}
	return nil
}

// Close ends what the registry has open.
func (r *Registry) Close() { r.mirror.Close() }
