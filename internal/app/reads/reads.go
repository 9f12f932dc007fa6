// Package reads lets runs read from the registry of the platform: it gives each run a token
// of its own, and tells the HTTP API what the owner of such a token may do.
//
// A run may read the modules and providers of the namespace of its stack, those of other
// namespaces whose roles allow it to a ServiceAccount of that namespace, and what the rules
// of the mirror allow. It may do nothing else.
//
// Start reading at Open.
package reads

import (
	"context"
	"fmt"
	"net/http"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/terrier-iac/terrier/internal/access"
	"github.com/terrier-iac/terrier/internal/address"
	"github.com/terrier-iac/terrier/internal/controller"
	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/registry/runtoken"
	"github.com/terrier-iac/terrier/internal/runner"
	"github.com/terrier-iac/terrier/internal/runner/remote"
	"github.com/terrier-iac/terrier/internal/secret"
	"github.com/terrier-iac/terrier/internal/web"
	"github.com/terrier-iac/terrier/internal/workdir"
)

// Options say how runs reach the registry.
type Options struct {
	Key     string // derived for runtoken.Purpose
	Names   []string
	Mirror  func() bool // whether providers of other registries come from there, too, but for
	Direct  []string    // these, as CheckDirect has them
	Pods    bool        // runs are pods, and reach it by way of their agents
	Account string      // the ServiceAccount in the namespace of a stack whose roles count

	// Server is the address of the HTTP API, and the authority of its certificate in PEM.
	Server func() (url string, authority []byte)
	Now    func() time.Time

	// Current is the report of the run that has a key; nil if it has none. With Pods it is not
	// asked: their tokens never leave this process.
	Current func(key string) (*runner.Report, error)
}

// Registry is the registry as runs reach it.
type Registry struct {
	o       Options
	tokens  *runtoken.Signer
	handler http.Handler // the HTTP API
}

// Open returns it.
func Open(o Options) (*Registry, error) {
	tokens, err := runtoken.New(secret.New(o.Key))
	return &Registry{o: o, tokens: tokens}, err
}

// CheckNames reports a name that no address of a module can have.
func CheckNames(names []string) error {
	for _, n := range names {
		if !workdir.IsHost(n) || n != strings.ToLower(n) || !strings.Contains(n, ".") {
			return fault.New(fault.Invalid, "Usage", fmt.Errorf("--registry-host: %q is no name that the address of a module can begin with, such as registry.example.com, in lower case", n))
		}
	}
	return nil
}

// CheckDirect reports a pattern that names no providers of a registry. Engines know a * in the
// last parts alone.
func CheckDirect(patterns []string) error {
	for _, pattern := range patterns {
		parts := strings.Split(pattern, "/")
		if len(parts) == 3 && parts[2] == "*" {
			parts[2] = "x"
			if parts[1] == "*" {
				parts[1] = "x"
			}
		}
		valid := len(parts) == 3 && workdir.IsHost(parts[0]) && strings.Contains(parts[0], ".") && pattern == strings.ToLower(pattern)
		if valid {
			_, err := address.NewProvider("", parts[1], parts[2])
			valid = err == nil
		}
		if !valid {
			return fault.New(fault.Invalid, "Usage", fmt.Errorf("--run-direct: %q names no providers of a registry: write HOST/NAMESPACE/TYPE, HOST/NAMESPACE/* or HOST/*/*, in lower case", pattern))
		}
	}
	return nil
}

// Of is what the job of a run has.
func (r *Registry) Of(by controller.RegistryReader) (*runner.Registry, error) {
	url, authority := r.o.Server()
	g := &runner.Registry{Hosts: r.names(url), Mirror: r.o.Mirror(), Direct: r.o.Direct}
	if r.o.Pods {
		return g, nil
	}
	token, err := r.tokens.Issue(runtoken.Claims{Run: by.Run, Key: by.Key, Namespace: by.Namespace, Expires: by.Until})
	if err != nil {
		return nil, err
	}
	g.URL, g.Authority, g.Token = url, authority, token.Reveal()
	return g, nil
}

// Hosts are the names of the registry in addresses of modules and providers.
func (r *Registry) Hosts() []string {
	url, _ := r.o.Server()
	return r.names(url)
}

// names are those that the operator has given, and the address of the HTTP API.
func (r *Registry) names(url string) []string {
	names := slices.Clone(r.o.Names)
	if own := strings.TrimPrefix(url, "https://"); workdir.IsHost(own) && strings.Contains(own, ".") && !slices.Contains(names, own) {
		names = append(names, own)
	}
	return names
}

// Serve is where Answer asks: the HTTP API of this process.
func (r *Registry) Serve(h http.Handler) { r.handler = h }

// answered is how long the token of one request is valid.
const answered = 15 * time.Minute

// read are the paths of the registry that runs read.
var read = []string{"/v1/modules/", "/v1/providers/", "/v1/mirror/", "/v1/archives/"}

// Answer answers the agent of a run with what the HTTP API says to that run.
func (r *Registry) Answer(w http.ResponseWriter, req *http.Request, by remote.Reader) error {
	if !slices.ContainsFunc(read, func(p string) bool { return strings.HasPrefix(req.URL.Path, p) }) || path.Clean(req.URL.Path) != req.URL.Path {
		http.NotFound(w, req)
		return nil
	}
	token, err := r.tokens.Issue(runtoken.Claims{Run: by.Run, Key: by.Stack, Namespace: by.Namespace, Expires: r.o.Now().Add(answered)})
	if err != nil {
		return err
	}
	req.Header.Set("Authorization", "Bearer "+token.Reveal())
	r.handler.ServeHTTP(w, req)
	return nil
}

// user is how the name of a run begins, as a user of the HTTP API. Its namespace follows.
const user = access.OwnUsers + "run:"

// Namespace is that of the run which a user is; empty if it is no run.
func Namespace(u access.User) string {
	namespace, _ := strings.CutPrefix(u.Name, user)
	if namespace == u.Name {
		return ""
	}
	return namespace
}

// Known makes auth know runs as well.
func (r *Registry) Known(auth web.Auth) web.Auth { return known{auth, r} }

type known struct {
	web.Auth
	registry *Registry
}

// Authenticate implements web.Auth.
func (k known) Authenticate(ctx context.Context, token secret.Text) (access.User, error) {
	if !runtoken.Is(token.Reveal()) {
		return k.Auth.Authenticate(ctx, token)
	}
	c, err := k.registry.tokens.Check(token.Reveal(), k.registry.o.Now())
	if err != nil {
		return access.User{}, fault.New(fault.Denied, access.ReasonUnknownUser, err)
	}
	if err := k.registry.goesOn(c); err != nil {
		return access.User{}, err
	}
	return access.User{Name: user + c.Namespace}, nil
}

// goesOn refuses the token of a run that has ended, although it has not expired: the time of a
// token is that of the limits of its run.
func (r *Registry) goesOn(c runtoken.Claims) error {
	if r.o.Pods {
		return nil
	}
	rep, err := r.o.Current(c.Key)
	if err != nil {
		return fmt.Errorf("looking up the run %s, whose token is shown: %w", c.Run, err)
	}
	if rep == nil || rep.ID != c.Run || rep.Phase == runner.Done {
		return fault.New(fault.Denied, access.ReasonUnknownUser, fmt.Errorf("the run %s does not go on, and its token ended with it", c.Run))
	}
	return nil
}

// Authorize implements web.Auth. Roles of other namespaces are those of a ServiceAccount in
// the namespace of the run, so that an operator writes them as for any other program.
func (k known) Authorize(ctx context.Context, u access.User, a access.Request) error {
	namespace := Namespace(u)
	if namespace == "" {
		return k.Auth.Authorize(ctx, u, a)
	}
	if a.Verb != "get" || a.Resource != access.ResourceRegistry || a.Namespace == "" {
		return fault.New(fault.Denied, "Forbidden", fmt.Errorf("a run reads modules and providers, and nothing else"))
	}
	if a.Namespace == namespace {
		return nil
	}
	err := k.Auth.Authorize(ctx, access.User{
		Name:   "system:serviceaccount:" + namespace + ":" + k.registry.o.Account,
		Groups: []string{"system:serviceaccounts", "system:serviceaccounts:" + namespace, "system:authenticated"},
	}, a)
	if fault.Of(err) == fault.Denied {
		return fault.New(fault.Denied, "Forbidden", fmt.Errorf(
			"runs of the namespace %[1]s may not read modules and providers of %[2]s: let the group system:serviceaccounts:%[1]s get terraforms.infra.contrib.fluxcd.io/registry in the namespace %[2]s", namespace, a.Namespace))
	}
	return err
}
