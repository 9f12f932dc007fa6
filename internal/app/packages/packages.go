// Package packages mounts the registry of modules and providers below the HTTP API of a
// controller, with the rights of Kubernetes.
//
// It decides nothing about who may do what: the authority of the HTTP API does. Start
// reading at Open.
package packages

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/terrier-iac/terrier/internal/access"
	"github.com/terrier-iac/terrier/internal/access/regtoken"
	"github.com/terrier-iac/terrier/internal/app/reads"
	"github.com/terrier-iac/terrier/internal/app/registryserver"
	"github.com/terrier-iac/terrier/internal/blob/bucket"
	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/outbound"
	"github.com/terrier-iac/terrier/internal/registry/origin"
	"github.com/terrier-iac/terrier/internal/registry/protocol"
	"github.com/terrier-iac/terrier/internal/registry/rights"
	"github.com/terrier-iac/terrier/internal/secret"
	"github.com/terrier-iac/terrier/internal/source"
	"github.com/terrier-iac/terrier/internal/web"
	"github.com/terrier-iac/terrier/internal/web/login"
)

// KeyPurpose is what the key that signs addresses of archives is derived for.
const KeyPurpose = "addresses of archives of the registry"

// Options say where everything is.
type Options struct {
	Storage  string // --registry-storage
	Settings string // --registry-config
	Dir      string // the storage, if Storage is empty
	Scratch  string
	Key      string // derived for KeyPurpose
	Allow    []string
	Auth     web.Auth
	Inside   *source.Registry // the repositories that users push

	Quota      Quota
	Namespace  func(ctx context.Context, name string) (access.Namespace, error) // of the cluster
	Audit      registryserver.AuditLog
	Out        *outbound.Client // reaches git servers; without it no repository has versions in its tags
	KnownHosts string           // the file of --ssh-known-hosts
	Registerer prometheus.Registerer
	Environ    func(string) string
	Log        *slog.Logger
	Now        func() time.Time
}

// Check reports flags that cannot be.
func Check(on bool, storage, settings string, environ func(string) string) error {
	if !on && (storage != "" || settings != "") {
		return usage("--registry-storage and --registry-config need --registry")
	}
	if storage == "" || filepath.IsAbs(storage) {
		return nil
	}
	if _, err := bucket.Parse(storage, environ); err != nil {
		return usage("--registry-storage: %w: it is the absolute path of a directory, or the URL of a bucket: s3://BUCKET/PREFIX, gs://BUCKET/PREFIX or azblob://CONTAINER/PREFIX", err)
	}
	return nil
}

func usage(format string, args ...any) error {
	return fault.New(fault.Invalid, "Usage", fmt.Errorf(format, args...))
}

// Packages is the registry of modules and providers in this process.
type Packages struct {
	*registryserver.Registry
	declared *declared
	closer   io.Closer
}

// Run deletes what no client needs, until ctx ends.
func (p *Packages) Run(ctx context.Context) error {
	if p == nil {
		<-ctx.Done()
		return nil
	}
	return p.Registry.Run(ctx)
}

// Close closes the storage. A registry that is off has none.
func (p *Packages) Close() error {
	if p == nil {
		return nil
	}
	p.Registry.Close()
	return p.closer.Close()
}

// Open opens the registry.
func Open(ctx context.Context, o Options) (*Packages, error) {
	place := registryserver.Storage{Dir: o.Storage, Scratch: o.Scratch, Allow: o.Allow, Environ: o.Environ, Flag: "--registry-storage"}
	switch {
	case place.Dir == "":
		place.Dir = o.Dir
	case !filepath.IsAbs(place.Dir):
		place.Dir, place.Bucket = "", place.Dir
	}
	if err := os.MkdirAll(o.Scratch, 0o700); err != nil {
		return nil, err
	}
	store, closer, err := place.Open(ctx)
	if err != nil {
		return nil, fmt.Errorf("--registry-storage: %w", err)
	}
	d := &declared{known: o.KnownHosts}
	var repositories origin.Source
	if o.Out != nil {
		repositories = d
	}
	var pushed func(string) (bool, error)
	var inside http.Handler
	if o.Inside != nil {
		pushed, inside = o.Inside.Pushed, packagesOnly(o.Inside)
	}
	r, err := registryserver.Wire(registryserver.Wiring{
		Repositories: repositories, Out: o.Out,
		Store: store, Rights: ofCluster{o.Auth}, Signer: rights.NewSigner(secret.New(o.Key), o.Now), Settings: o.Settings,
		Scratch: o.Scratch, Allow: o.Allow, Quota: newQuotas(o.Quota, o.Namespace, o.Now, o.Log).of, Exists: newExisting(o.Namespace, o.Now, o.Log).check, Audit: o.Audit, Registerer: o.Registerer, Log: o.Log, Now: o.Now, Inside: inside, Pushed: pushed,
		Services: map[string]any{"login.v1": login.Service()},
	})
	if err != nil {
		return nil, errors.Join(err, closer.Close())
	}
	return &Packages{r, d, closer}, nil
}

// packagesOnly keeps tokens for the registry away from the repositories that users push: these
// have the code of stacks. Clients of OCI registries ask for /v2/ first, with any credentials.
func packagesOnly(inside http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !web.ByToken(r.Context()) || strings.Trim(r.URL.Path, "/") == "v2" {
			inside.ServeHTTP(w, r)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("Docker-Distribution-API-Version", "registry/2.0")
		w.WriteHeader(http.StatusForbidden)
		// There is no reader when this fails.
		_, _ = io.WriteString(w, `{"errors":[{"code":"DENIED","message":"a token for the registry opens modules, providers and the mirror: NAMESPACE/modules/NAME/SYSTEM, NAMESPACE/providers/TYPE and NAMESPACE/mirror/HOST/NAMESPACE/TYPE; use a token of the Kubernetes API for other repositories"}]}`+"\n")
	})
}

// Mirrors reports whether there are providers of other registries. The registry has them, if it
// is on.
func (p *Packages) Mirrors() bool { return p != nil }

// ofCluster are the rights of the cluster. The server has found out the user of a request.
type ofCluster struct{ auth web.Auth }

var errNoUser = errors.New("the registry needs a token: get one with tofu login, or put one into a credentials block of the CLI configuration")

// Caller implements protocol.Rights.
func (ofCluster) Caller(r *http.Request) (protocol.Caller, error) {
	user := web.User(r.Context())
	if user.Name == "" {
		return protocol.Caller{}, protocol.Unauthenticated(errNoUser)
	}
	return protocol.Caller{Name: user.Name, Tenant: tenantOf(user), Grant: user}, nil
}

// May implements protocol.Rights. The mirror is in no namespace, and every known user may
// read it: its own rules decide.
func (o ofCluster) May(ctx context.Context, c protocol.Caller, v protocol.Verb, namespace string) error {
	user, ok := c.Grant.(access.User)
	if !ok {
		return protocol.Unauthenticated(errNoUser)
	}
	if namespace == "" && v == protocol.Read {
		return nil
	}
	verb := map[protocol.Verb]string{protocol.Read: "get", protocol.Write: "update"}[v]
	return o.auth.Authorize(ctx, user, access.Request{Verb: verb, Resource: access.ResourceRegistry, Namespace: namespace})
}

// tenantOf is the namespace of a run, a token or a ServiceAccount. Persons have none: their names
// would be labels of metrics.
func tenantOf(u access.User) string {
	if namespace := reads.Namespace(u); namespace != "" {
		return namespace
	}
	if namespace, ok := regtoken.NamespaceOf(u); ok {
		return namespace
	}
	if account, ok := strings.CutPrefix(u.Name, "system:serviceaccount:"); ok {
		namespace, _, _ := strings.Cut(account, ":")
		return namespace
	}
	return ""
}
