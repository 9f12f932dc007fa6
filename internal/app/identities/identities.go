// Package identities gives runs their identities at other systems: it asks the rules of the
// operator, makes the grants by which supervisors get tokens, gives the tokens, and writes
// into the audit log which ones.
//
// A supervisor beside the controller asks the HTTP API with its grant, and the agent of one in
// a pod asks as it does for everything else. Either gets tokens only while its run goes on.
//
// Start reading at Open.
package identities

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"os"
	"slices"
	"time"

	"sigs.k8s.io/yaml"

	"github.com/terrier-iac/terrier/internal/access"
	"github.com/terrier-iac/terrier/internal/audit"
	"github.com/terrier-iac/terrier/internal/cache"
	"github.com/terrier-iac/terrier/internal/controller"
	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/identity"
	"github.com/terrier-iac/terrier/internal/issuer"
	"github.com/terrier-iac/terrier/internal/runner"
	"github.com/terrier-iac/terrier/internal/runner/remote"
	"github.com/terrier-iac/terrier/internal/sealed"
	"github.com/terrier-iac/terrier/internal/secret"
)

// Config is what an operator says.
type Config struct {
	Issuer string        // the address of the issuer; off if empty
	Rules  string        // a file
	Life   time.Duration // of a token
}

// Check returns what is wrong with the settings.
func (c Config) Check() error {
	usage := func(format string, args ...any) error {
		return fault.New(fault.Invalid, "Usage", fmt.Errorf(format, args...))
	}
	if c.Life < issuer.LeastLife || c.Life > issuer.MostLife {
		return usage("--identity-token-life is at least %s and at most %s, and not %s", issuer.LeastLife, issuer.MostLife, c.Life)
	}
	if c.Issuer == "" {
		if c.Rules != "" {
			return usage("--identity-rules needs --identity-issuer, the address by which verifiers reach the keys")
		}
		return nil
	}
	if err := issuer.CheckURL(c.Issuer); err != nil {
		return usage("--identity-issuer: %w", err)
	}
	_, err := readRules(c.Rules)
	return err
}

// maxRules bounds the file of rules, in bytes.
const maxRules = 1 << 20

// readRules reads the file of rules; without one nothing is allowed.
func readRules(path string) (identity.Rules, error) {
	var r identity.Rules
	if path == "" {
		return r, nil
	}
	invalid := func(err error) error {
		return fault.New(fault.Invalid, "Usage", fmt.Errorf("--identity-rules: %s: %w", path, err))
	}
	data, err := os.ReadFile(path)
	if err != nil {
		return r, invalid(err)
	}
	if len(data) > maxRules {
		return r, invalid(fmt.Errorf("it has %d bytes, more than %d", len(data), maxRules))
	}
	if err := yaml.UnmarshalStrict(data, &r); err != nil {
		return r, invalid(err)
	}
	if err := r.Check(); err != nil {
		return r, invalid(err)
	}
	return r, nil
}

// Options are what Identities need.
type Options struct {
	Config
	Key    string // derived for issuer.Purpose
	Store  issuer.Store
	Times  identity.Times
	Pods   bool   // runs are pods, and ask by way of their agents
	Label  string // of a namespace: its value is the tenant
	Object func(run identity.Run) audit.Object
	Audit  func(context.Context, audit.Entry) error

	// Current is the report of the run that a key has; nil if it has none.
	Current func(key string) (*runner.Report, error)
	// Namespace reads a namespace of the cluster.
	Namespace func(ctx context.Context, name string) (access.Namespace, error)
	// Here are the addresses of the API server of this cluster.
	Here []string
	// Cluster is the UID of the cluster; empty if it is not known.
	Cluster func() string
	// Server is the address of the HTTP API, and the authority of its certificate in PEM.
	Server func() (url string, authority []byte)

	Now func() time.Time
	Log *slog.Logger
}

// Identities are the identities of runs.
type Identities struct {
	o      Options
	rules  identity.Rules
	issuer *issuer.Issuer
	grants *sealed.Texts[issuer.Grant]
	given  cache.Map[string, []identity.Issued] // newest tokens by the grant, for a part of their life
}

// Bounds of what is remembered of tokens.
const (
	givenMost = 4096             // runs
	issueTime = 30 * time.Second // to make and record the tokens of a run
)

var _ controller.Identities = (*Identities)(nil)

// Open returns them; nil if the operator names no issuer.
func Open(o Options) (*Identities, error) {
	if o.Issuer == "" {
		return nil, nil
	}
	rules, err := readRules(o.Rules)
	if err != nil {
		return nil, err
	}
	grants, err := issuer.NewGrants(secret.New(o.Key))
	if err != nil {
		return nil, err
	}
	s := &Identities{o: o, rules: rules, grants: grants, issuer: issuer.New(issuer.Options{
		URL: o.Issuer, Store: o.Store, Times: o.Times, Life: o.Life, Now: o.Now, Log: o.Log,
	})}
	s.given.Size, s.given.TTL, s.given.Now = givenMost, o.Life/4, o.Now
	return s, nil
}

// Allows implements controller.Identities.
func (s *Identities) Allows(ctx context.Context, namespace string, q identity.Request) error {
	found, err := s.o.Namespace(ctx, namespace)
	if err != nil {
		return fault.New(fault.Later, "NamespaceUnknown", fmt.Errorf("reading the namespace of the stack: %w", err))
	}
	if err := s.rules.Allows(namespace, found.UID, s.o.Here, q); err != nil {
		return fault.New(fault.Denied, "IdentityDenied", fmt.Errorf("%w. As the operator, change the rules in the file of --identity-rules", err))
	}
	return nil
}

// Of implements controller.Identities.
func (s *Identities) Of(ctx context.Context, by controller.Identified) (*runner.Identity, error) {
	run, err := s.complete(ctx, by.Run)
	if err != nil {
		return nil, err
	}
	grant, err := s.grants.Seal(issuer.Grant{Run: run, Key: by.Key, Uses: by.Request.Uses(run.Phase), Expires: by.Until})
	if err != nil {
		return nil, fault.New(fault.Invalid, "IdentityInvalid", err)
	}
	d := &runner.Identity{Request: by.Request, Phase: run.Phase, Grant: grant.Reveal()}
	if !s.o.Pods {
		d.URL, d.Authority = s.o.Server()
	}
	return d, nil
}

// complete adds what only the namespace of a run says.
func (s *Identities) complete(ctx context.Context, run identity.Run) (identity.Run, error) {
	found, err := s.o.Namespace(ctx, run.Namespace)
	if err != nil {
		return run, fault.New(fault.Later, "NamespaceUnknown", fmt.Errorf("reading the namespace of the stack: %w", err))
	}
	// Users may change the labels of a stack, and not those of its namespace.
	run.NamespaceUID, run.Tenant, run.Cluster = found.UID, found.Labels[s.o.Label], s.o.Cluster()
	return run, nil
}

// Token implements controller.Identities.
func (s *Identities) Token(ctx context.Context, by controller.Identified, use identity.Use) (secret.Text, error) {
	run, err := s.complete(ctx, by.Run)
	if err != nil {
		return secret.Text{}, err
	}
	tokens, err := s.issue(ctx, issuer.Grant{Run: run, Key: by.Key, Uses: []identity.Use{use}, Expires: by.Until})
	if err != nil {
		return secret.Text{}, err
	}
	return secret.New(tokens[0].Token), nil
}

// ServeHTTP serves the documents of the issuer, and tokens to supervisors beside the
// controller.
func (s *Identities) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	if req.URL.Path != identity.PathTokens {
		s.issuer.ServeHTTP(w, req)
		return
	}
	if s.o.Pods || req.Method != http.MethodPost {
		http.NotFound(w, req)
		return
	}
	grant, err := s.open(req)
	if err == nil {
		err = s.goesOn(grant)
	}
	if err == nil {
		err = s.give(w, req, grant)
	}
	if err != nil {
		status := http.StatusServiceUnavailable
		if k := fault.Of(err); k == fault.Denied || k == fault.Invalid {
			status = http.StatusForbidden
		}
		http.Error(w, err.Error(), status)
	}
}

// Answer gives the agent of a run its tokens. The credential of its place says which run it
// is, and its caller knows that the run goes on.
func (s *Identities) Answer(w http.ResponseWriter, req *http.Request, by remote.Reader) error {
	grant, err := s.open(req)
	if err == nil && (grant.ID != by.Run || grant.Key != by.Stack || grant.Namespace != by.Namespace) {
		err = fault.New(fault.Denied, issuer.ReasonGrant, errors.New("the grant is of another run"))
	}
	if fault.Of(err) == fault.Denied {
		http.Error(w, err.Error(), http.StatusForbidden)
		return nil
	}
	if err != nil {
		return err
	}
	return s.give(w, req, grant)
}

func (s *Identities) open(req *http.Request) (issuer.Grant, error) {
	return s.grants.Open(req.Header.Get(identity.HeaderGrant), s.o.Now())
}

// goesOn refuses the grant of a run that has ended.
func (s *Identities) goesOn(g issuer.Grant) error {
	rep, err := s.o.Current(g.Key)
	if err != nil {
		return err
	}
	if rep == nil || rep.ID != g.ID || rep.Phase == runner.Done {
		return fault.New(fault.Denied, issuer.ReasonGrant, fmt.Errorf("the run %s does not go on", g.ID))
	}
	return nil
}

// give sends the tokens of a run. A run that asks again within a quarter of their life gets
// the same ones: a node whose clock is wrong, and code that has the files of an agent, may ask
// as often as they like.
func (s *Identities) give(w http.ResponseWriter, req *http.Request, g issuer.Grant) error {
	tokens, err := s.given.Load(req.Context(), req.Header.Get(identity.HeaderGrant), func(ctx context.Context) ([]identity.Issued, error) {
		ctx, cancel := context.WithTimeout(ctx, issueTime)
		defer cancel()
		return s.issue(ctx, g)
	})
	if err != nil {
		return err
	}
	answer := identity.Answer{Tokens: slices.Clone(tokens)}
	for i := range answer.Tokens {
		answer.Tokens[i].Issued = s.o.Now()
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	return json.NewEncoder(w).Encode(answer)
}

// issue makes the tokens of a run. The audit log has their IDs then.
func (s *Identities) issue(ctx context.Context, g issuer.Grant) (all []identity.Issued, err error) {
	tokens, err := s.issuer.Issue(ctx, g.Run, g.Uses)
	if err != nil {
		return nil, err
	}
	subject, err := g.Subject()
	if err != nil {
		return nil, err
	}
	for i, t := range tokens {
		d := map[string]string{"audience": t.Audience, "token": t.ID, "subject": subject, "expires": t.Expires.UTC().Format(time.RFC3339), "phase": string(g.Phase)}
		if role := g.Uses[i].Role; role != "" {
			d["role"] = role
		}
		if err := s.o.Audit(ctx, audit.Entry{
			ID: "identity/" + t.ID, What: audit.IdentityIssued, Via: audit.ViaController, Object: s.o.Object(g.Run), Run: g.ID, Details: d,
		}); err != nil {
			return nil, fault.New(fault.Later, "AuditLog", fmt.Errorf("recording the token: %w", err))
		}
		all = append(all, identity.Issued{Name: t.Name, Audience: t.Audience, ID: t.ID, Expires: t.Expires, Token: t.Text.Reveal()})
	}
	return all, nil
}

// Host is that of the issuer, by which verifiers reach the HTTP API; empty without one.
func (s *Identities) Host() string {
	if s == nil {
		return ""
	}
	u, err := url.Parse(s.o.Issuer)
	if err != nil {
		return "" // Check has parsed it
	}
	return u.Hostname()
}

// rotateMost is the longest pause between two tries to rotate the keys.
const (
	rotateMost  = time.Hour
	rotateRetry = 10 * time.Second
)

// Run makes and drops keys when it is time for that, until ctx ends. One controller of an
// installation calls it.
func (s *Identities) Run(ctx context.Context) error {
	for {
		next, err := s.issuer.Rotate(ctx)
		wait := min(max(next.Sub(s.o.Now()), time.Second), rotateMost)
		if err != nil {
			s.o.Log.Error("the keys of identities are not rotated", "err", err)
			wait = rotateRetry
		}
		select {
		case <-time.After(wait):
		case <-ctx.Done():
			return nil
		}
	}
}
