package runner

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/terrier-iac/terrier/internal/engine"
	"github.com/terrier-iac/terrier/internal/identity"
	"github.com/terrier-iac/terrier/internal/runner/disk"
	"github.com/terrier-iac/terrier/internal/runner/relay"
	"github.com/terrier-iac/terrier/internal/runner/tokens"
	"github.com/terrier-iac/terrier/internal/sandbox"
	"github.com/terrier-iac/terrier/internal/secret"
	"github.com/terrier-iac/terrier/internal/stack"
	"github.com/terrier-iac/terrier/internal/workdir"
)

// A run takes modules and providers from the registry of the platform by itself. The
// supervisor serves that inside the network of the sandbox (package relay) to the processes
// that install: init, and what a script calls. Where it is, is known only once the sandbox
// is there, so the CLI configuration is completed then, before the process begins:
//
//	prepare    the authority of the relay lies in the tree, and SSL_CERT_DIR names it
//	init       the sandbox listens → the address → terrier.tfrc → the engine begins
//	after it   the lock file gets the hashes that the mirror has said, of all platforms
//
// A later process finds a configuration with an address that nothing answers any more. It
// installs nothing, so it asks nothing.

// dirTrusted holds the authority of the relay, in the root module.
const dirTrusted = "terrier.trusted"

// registryRelay is the part of a run that serves the registry.
type registryRelay struct {
	*run
	relay  *relay.Relay // nil if the run has no registry
	direct bool         // the registry is away: providers come from their registries in this run
	away   string       // why it is away, in words of the registry
	lacks  []string     // providers that its mirror has not, so that they come from their registries
	failed error        // the configuration could not be completed
}

// open makes the relay, and returns what nothing may show.
func (r *registryRelay) open() (hidden []string, err error) {
	g := r.job.Registry
	if g == nil || g.URL == "" || r.job.Kind == stack.HealthRun {
		return nil, nil
	}
	token := func() (string, error) { return g.Token, nil }
	if g.TokenFile != "" {
		token = func() (string, error) {
			data, err := os.ReadFile(g.TokenFile)
			return strings.TrimSpace(string(data)), err
		}
	}
	if r.relay, err = relay.New(relay.Upstream{URL: g.URL, Authority: g.Authority, Token: token, Header: g.Header}, r.now()); err != nil {
		return nil, fmt.Errorf("serving the registry: %w", err)
	}
	hidden = []string{r.relay.Secret()}
	if g.Token != "" {
		hidden = append(hidden, g.Token)
	}
	for _, value := range g.Header {
		hidden = append(hidden, value)
	}
	return hidden, nil
}

// mirrors reports whether the registry has the providers that the mirror of this place
// lacks.
func (r *registryRelay) mirrors() bool { return r.relay != nil && r.job.Registry.Mirror && !r.direct }

// configure adds the files that the relay needs to those of the job.
func (r *registryRelay) configure() {
	if r.relay == nil {
		return
	}
	r.job.Files = slices.DeleteFunc(r.job.Files, func(f workdir.File) bool { return path.Dir(f.Path) == dirTrusted })
	r.job.Files = append(r.job.Files, workdir.File{Path: path.Join(dirTrusted, "authority.pem"), Mode: 0o600, Content: r.relay.Authority()})
	if !slices.ContainsFunc(r.job.Files, func(f workdir.File) bool { return f.Path == CLIConfig }) {
		config := workdir.CLIConfig(workdir.Mirror{})
		config.Path = CLIConfig
		r.job.Files = append(r.job.Files, config)
	}
}

// trustedDirectories are where systems keep certificates one by one, as Go looks for them.
const trustedDirectories = "/etc/ssl/certs:/etc/pki/tls/certs"

// trust adds the authority of the relay to those that the engine trusts, and to nothing else
// that it trusts.
func (r *registryRelay) trust(env map[string]string) {
	if r.relay == nil {
		return
	}
	others := env["SSL_CERT_DIR"]
	if others == "" {
		others = trustedDirectories
	}
	env["SSL_CERT_DIR"] = r.sandbox.config.PathInside(path.Join("/work", r.work.module(), dirTrusted)) + ":" + others
	env["TF_REGISTRY_CLIENT_TIMEOUT"] = "120" // seconds: the registry may have to ask another one
}

// announce completes the CLI configuration with the address of the relay.
func (r *registryRelay) announce(address string) {
	if r.relay == nil {
		return
	}
	r.failed = r.writeConfig(address)
}

func (r *registryRelay) writeConfig(address string) error {
	at := slices.IndexFunc(r.job.Files, func(f workdir.File) bool { return f.Path == CLIConfig })
	if at < 0 {
		return errors.New("the run has no CLI configuration")
	}
	m := workdir.Mirror{Dir: r.sandbox.config.PathInside(MirrorInside)}
	if r.host.Mirror != "" {
		all, err := workdir.MirrorProviders(os.DirFS(r.host.Mirror))
		if err != nil {
			return err
		}
		m.Providers = slices.DeleteFunc(all, func(p string) bool { return slices.Contains(r.directory.moved, p) })
	}
	content := workdir.Relay{
		Address: address, Secret: r.relay.Secret(), Hosts: r.job.Registry.Hosts, Mirror: r.mirrors(), Direct: slices.Concat(r.job.Registry.Direct, r.lacks),
	}.Complete(r.job.Files[at].Content, m)
	tree, err := r.work.open(dirTree)
	if err != nil {
		return err
	}
	defer tree.Close()
	if err := writeOwned(tree, path.Join(r.work.root, CLIConfig), content, 0o600); err != nil {
		return fmt.Errorf("writing the CLI configuration: %w", err)
	}
	return nil
}

// writeOwned writes a file that the sandbox may read and write.
func writeOwned(tree *os.Root, name string, content []byte, mode fs.FileMode) error {
	if err := disk.WriteFresh(tree, name, content, mode); err != nil {
		return err
	}
	f, err := tree.Open(name)
	if err != nil {
		return err
	}
	return errors.Join(sandbox.Own(f), f.Close())
}

// begin is called before each init.
func (r *registryRelay) begin() {
	if r.relay != nil {
		r.relay.Forget()
	}
}

// problem is why the registry did not serve the last init; nil if it did.
func (r *registryRelay) problem(err error) *relay.Problem {
	if e, failed := errors.AsType[ending](err); r.relay == nil || !failed || e.outcome != stack.Failed {
		return nil
	}
	return r.relay.Problem()
}

// withdraw makes providers come from their registries after an init that failed: all of them
// if the registry was away, else those that its mirror lacks. It is false where the operator,
// the network of the run, or a refusal of the registry forbids that.
func (r *registryRelay) withdraw(res result, err error) bool {
	e, failed := errors.AsType[ending](err)
	if !failed || e.outcome != stack.Failed || !r.mirrors() || r.host.MirrorOnly || r.sandbox.config.Network == sandbox.NoNetwork {
		return false
	}
	switch p := r.problem(err); {
	case p == nil:
		lacks := slices.DeleteFunc(r.lacking(res), func(a string) bool { return slices.Contains(r.lacks, a) })
		if len(lacks) == 0 {
			return false
		}
		r.lacks = append(r.lacks, lacks...)
		r.recorder.logf("The registry of this platform does not mirror %s. Init takes it from its registry.", strings.Join(lacks, " and "))
	case p.Away():
		r.direct, r.away = true, orStatus(p)
		r.recorder.logf("The registry of this platform does not answer: %s. Init takes providers from their registries.", r.away)
	default:
		return false
	}
	return true
}

// lacking are the providers that the mirror of the registry does not know. Where it knows
// some versions and none fits, its rules may have left out others. Those that do not come from
// there in any case are none of them.
func (r *registryRelay) lacking(res result) []string {
	name, diags := r.job.Engine.Name, res.output.diagnostics
	unfit := engine.UnfitProviders(name, diags)
	return slices.DeleteFunc(engine.MissingProviders(name, diags), func(a string) bool {
		host, _, _ := strings.Cut(a, "/")
		return slices.Contains(unfit, a) || slices.Contains(r.job.Registry.Hosts, host) || r.past(a) || r.mirrored(a) && !slices.Contains(r.directory.moved, a)
	})
}

// past reports whether the operator has a provider come from the registry of its address.
func (r *registryRelay) past(provider string) bool {
	return slices.ContainsFunc(r.job.Registry.Direct, func(pattern string) bool {
		named, all := strings.CutSuffix(pattern, "/*")
		return provider == pattern || all && strings.HasPrefix(provider, strings.TrimSuffix(named, "/*")+"/")
	})
}

// explain adds to the failure of an init what the registry has to do with it.
func (r *registryRelay) explain(res result, e *ending) bool {
	p := r.problem(*e)
	switch {
	case p == nil && r.direct && len(r.lacking(res)) > 0:
		e.permanent = false
		e.explain(fmt.Sprintf("The registry of this platform did not answer: %s. So init asked the registry of the address of %s. The run is tried again after a pause.",
			r.away, strings.Join(r.lacking(res), " and ")))
	case p == nil && r.relay != nil && r.job.Registry.Mirror && len(r.lacking(res)) > 0:
		lacks := strings.Join(r.lacking(res), " and ")
		why := ", so init asked the registry of its address."
		if r.host.MirrorOnly {
			why = ", and --provider-registries=false keeps init from the registry of its address."
		} else if r.sandbox.config.Network == sandbox.NoNetwork {
			why = ", and runs of this stack have no network to ask the registry of its address."
		}
		e.explain("The registry of this platform does not mirror " + lacks + why)
	case p == nil:
		return false
	case p.Away():
		e.permanent = false
		e.explain(fmt.Sprintf("The registry of this platform did not serve %s: %s. Runs take modules and providers from there. "+
			"The run is tried again after a pause; tell the operator of the platform if it goes on.", p.Path, orStatus(p)))
	case p.Status >= http.StatusInternalServerError:
		e.permanent = false
		e.explain(fmt.Sprintf("The registry of this platform refused %s: %s. Init takes it from no other registry. Tell the operator of the platform.", p.Path, orStatus(p)))
	default:
		e.explain(fmt.Sprintf("The registry of this platform refused %s: %s. Ask the operator of the platform to allow it for the namespace of this stack.", p.Path, orStatus(p)))
	}
	return true
}

func orStatus(p *relay.Problem) string {
	if p.Message == "" {
		return fmt.Sprintf("status %d", p.Status)
	}
	return strings.TrimSuffix(p.Message, ".")
}

// completes reports whether the lock file gets the hashes of a provider for all platforms.
func (r *registryRelay) completes(provider string) bool {
	if r.relay == nil || !r.mayComplete() {
		return false
	}
	for p, hashes := range r.relay.Hashes() {
		if p.Address == provider && len(hashes) > 0 {
			return true
		}
	}
	return false
}

// mayComplete reports whether the lock file of the run may get more hashes. A saved plan has
// those of its time, and the engine compares them.
func (r *registryRelay) mayComplete() bool { return r.job.Kind != stack.ApplyRun }

// completeLockFile adds the hashes of all platforms to the lock file. The engine writes those
// of its own platform, since it takes only what it has compared; the mirror has verified all.
func (r *registryRelay) completeLockFile() error {
	if r.relay == nil || !r.mayComplete() {
		return nil
	}
	known := r.relay.Hashes()
	if len(known) == 0 {
		return nil
	}
	tree, err := r.work.open(dirTree)
	if err != nil {
		return err
	}
	defer tree.Close()
	data, _, err := r.work.lockFile(tree)
	if err != nil || data == nil {
		return err
	}
	fuller := engine.CompleteLockFile(data, func(l engine.Locked) []string { return known[relay.Package{Address: l.Address, Version: l.Version}] })
	if string(fuller) == string(data) {
		return nil
	}
	if err := writeOwned(tree, path.Join(r.work.root, ".terraform.lock.hcl"), fuller, 0o644); err != nil {
		return fmt.Errorf("completing the dependency lock file: %w", err)
	}
	return nil
}

// runIdentity is the part of a run that signs in elsewhere.
type runIdentity struct {
	*run
	tokens *tokens.Tokens // nil if the run has none
}

// open gets the tokens of the run, before its first program.
func (r *runIdentity) open(ctx context.Context) error {
	d := r.job.Identity
	if d == nil || r.job.Kind == stack.HealthRun {
		return nil
	}
	if err := errors.Join(os.RemoveAll(r.work.path(dirWork, dirIdentity)), os.Mkdir(r.work.path(dirWork, dirIdentity), 0o700)); err != nil {
		return err
	}
	if err := r.own(); err != nil {
		return err
	}
	up := tokens.Upstream{URL: d.URL, Authority: d.Authority, Header: d.Header, Grant: secret.New(d.Grant)}
	if d.TokenFile != "" {
		up.Bearer = func() (string, error) {
			data, err := os.ReadFile(d.TokenFile)
			return strings.TrimSpace(string(data)), err
		}
	}
	r.hide.Learn(d.Grant)
	namespace, name, _ := strings.Cut(r.job.Name, "/")
	var err error
	r.tokens, err = tokens.Open(ctx, tokens.Options{
		Upstream: up, Request: d.Request, Phase: d.Phase, Session: identity.Session(namespace, name, r.job.ID),
		Inside: r.sandbox.config.PathInside("/work/" + dirIdentity), Open: func() (*os.Root, error) { return r.work.open(dirIdentity) }, Own: sandbox.Own,
		Hide: r.learn, Begin: r.hide.LearnPrefix, Told: r.told, Say: r.recorder.logf, Now: r.now,
	})
	if errors.Is(err, context.Canceled) {
		return ending{outcome: stack.Interrupted, message: "stopped before it had an identity"}
	}
	return err
}

// own gives the directory to the user of the programs.
func (r *runIdentity) own() error {
	f, err := os.Open(r.work.path(dirWork, dirIdentity))
	if err != nil {
		return err
	}
	return errors.Join(sandbox.Own(f), f.Close())
}

// learn hides new tokens, also in what a crash leaves of the output of an engine.
func (r *runIdentity) learn(values ...string) {
	r.hide.Learn(values...)
	if _, err := os.Stat(filepath.Join(r.dir, filePrints)); err == nil {
		if err := r.engine.writePrints(); err != nil {
			r.recorder.logf("The fingerprints of new tokens are not kept: %v.", err)
		}
	}
}

// told writes into the report which tokens the run has.
func (r *runIdentity) told(issued []identity.Issued) {
	used := Identified{Phase: r.job.Identity.Phase}
	uses := r.job.Identity.Request.Uses(used.Phase)
	for i, t := range issued {
		used.Tokens = append(used.Tokens, TokenOf{Name: t.Name, Audience: t.Audience, Role: uses[i].Role, ID: t.ID, Expires: t.Expires.UTC()})
	}
	r.reportFile.set(func(rep *Report) {
		if rep.Identity != nil {
			used.Renewed = rep.Identity.Renewed + 1
		}
		rep.Identity = &used
	})
}

// environ is what the environment of a program has that starts now.
func (r *runIdentity) environ() map[string]string { return r.tokens.Environ() }

// close ends the renewal of the tokens. They are removed with everything else of the run.
func (r *runIdentity) close() { r.tokens.Close() }
