package controller

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/terrier-iac/terrier/internal/audit"
	"github.com/terrier-iac/terrier/internal/controller/aftersteps"
	"github.com/terrier-iac/terrier/internal/controller/modules"
	"github.com/terrier-iac/terrier/internal/controller/provenance"
	"github.com/terrier-iac/terrier/internal/controller/sources"
	"github.com/terrier-iac/terrier/internal/controller/vaults"
	"github.com/terrier-iac/terrier/internal/dialect"
	"github.com/terrier-iac/terrier/internal/engine"
	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/identity"
	"github.com/terrier-iac/terrier/internal/input"
	"github.com/terrier-iac/terrier/internal/kube"
	"github.com/terrier-iac/terrier/internal/plan"
	"github.com/terrier-iac/terrier/internal/review"
	"github.com/terrier-iac/terrier/internal/runner"
	"github.com/terrier-iac/terrier/internal/secret"
	"github.com/terrier-iac/terrier/internal/stack"
	"github.com/terrier-iac/terrier/internal/vault"
	"github.com/terrier-iac/terrier/internal/workdir"
	"github.com/terrier-iac/terrier/internal/workdir/module"
)

// inputs are what a plan is made from, found and resolved.
type inputs struct {
	archive  string      // path of the module's archive; empty if it is inline
	root     module.Root // as the source has it
	template string      // the text of the module's main.tf.tpl; empty if it has none
	origin   string      // the URL that the archive is certainly from; empty if it is not certain
	revision string      // the one of the source that the archive is from, whatever the plan inputs name
	artifact string      // digest of the artifact that the archive is of, or of which it is a part
	imports  *workdir.File

	input.Inputs
}

// jobs finds what a run is made from, and makes the job of it. It only reads, except that
// the cache of artifacts may fetch one, and release gives credentials back.
type jobs struct {
	accounts   Accounts
	artifacts  Artifacts
	cache      client.Reader
	config     Config
	engine     func(ctx context.Context, name string) (engine.Engine, error)
	identifier identifier
	imaging    *imaging // nil makes no images
	key        secret.Text
	live       client.Reader
	modules    *modules.Reader
	referrals  *referrals
	reviewers  review.Reviewers
	vaults     *vaults.Vaults // nil without a Vault
	sealing    sealing
	named      func(client.Object) audit.Object
}

// findSource resolves the source to an archive on disk.
func (jb *jobs) findSource(ctx context.Context, p *pass) *stack.Blocked {
	ref := p.st.Configuration.Source
	if ref == nil {
		p.o.PlanInputs.Source = stack.Digest(p.st.Configuration.Inline)
		p.o.PlanInputs.Revision = p.o.PlanInputs.Source
		p.in.revision = p.o.PlanInputs.Revision
		return nil
	}
	key := keyOf(*ref, p.obj)
	if err := jb.referrals.check(ctx, p.dialect, p.obj, sourceReferent(ref.Kind, key)); err != nil {
		reason := stack.SourceDenied
		if fault.Of(err) != fault.Denied {
			reason = stack.SourceNotReady
		}
		return blockedBy(fmt.Errorf("sourceRef: %w", err), reason)
	}
	artifact, err := sources.Artifact(ctx, jb.cache, ref.Kind, key, provenance.Key{Text: jb.key})
	if err != nil {
		b := blockedBy(err, stack.SourceNotReady)
		if fields := p.st.OwnedFields; fields != "" && strings.Contains(b.Message, "spec.") {
			b.Message += ". The stack writes this source: " + fields
		}
		return b
	}
	if p.in.archive, err = jb.artifacts.Get(ctx, artifact); err != nil {
		return blockedBy(fmt.Errorf("fetching the artifact of %s %s: %w", ref.Kind, key, err), stack.SourceFailed)
	}
	p.in.origin, p.in.revision, p.in.artifact = artifact.Origin, artifact.Revision, artifact.Digest
	p.o.PlanInputs.Source, p.o.PlanInputs.Revision, p.o.SourceAt = artifact.Digest, artifact.Revision, artifact.At
	if b := p.below(artifact.Directory); b != nil {
		return b
	}
	return selectPaths(jb.modules, p)
}

// pathsOf are the files and directories of the source that a configuration names, from the root
// of the source.
func pathsOf(c stack.Configuration) []string {
	var all []string
	for _, f := range c.VarFiles {
		all = append(all, path.Clean(f)) // relative to the root of the source
	}
	if s := c.Script; s != nil {
		for _, text := range []stack.ScriptText{s.Apply, s.Destroy} {
			all = append(all, path.Join(c.Path, text.Path))
		}
		if s.PostDeploy != nil {
			all = append(all, path.Join(c.Path, s.PostDeploy.Path))
		}
	}
	return append(all, aftersteps.Used(c.Path, c.AfterApply)...)
}

// selectPaths puts the part of the source that the stack depends on in the place of the
// source, if the stack names it. Everything from here on is about this part: a commit that
// does not touch it changes nothing.
func selectPaths(reader *modules.Reader, p *pass) *stack.Blocked {
	c := p.st.Configuration
	if len(c.SourcePaths) == 0 {
		return nil
	}
	always := pathsOf(c)
	if slices.Contains(c.SourcePaths, stack.SourceAuto) {
		always = append(always, aftersteps.Beside(c.Path, c.AfterApply)...)
	}
	part, err := reader.Subset(p.in.archive, p.o.PlanInputs.Source, c.Path, c.SourcePaths, always)
	if err != nil {
		return blockedBy(fmt.Errorf("the annotation %s: %w", dialect.SourcePaths, err), stack.SourceFailed)
	}
	p.in.archive, p.o.PlanInputs.Source, p.entry.wholeSource = part.File, part.Digest, part.Whole
	// The part is as it was: its plans keep the name of the revision that they were made
	// from, and the status needs no write. What a token says of the source of a run is that of
	// the archive: this name is from the status, and may be of another source.
	if was := p.o.Status.Planned; part.Whole == "" && was.Source == part.Digest && was.Revision != "" {
		p.o.PlanInputs.Revision = was.Revision
	}
	return nil
}

// below puts the root module below the directory that the URL of its source names. A
// pass may find its source twice.
func (p *pass) below(directory string) *stack.Blocked {
	if directory == "" || p.within == directory {
		return nil
	}
	if !filepath.IsLocal(directory) {
		return blockedBy(fault.New(fault.Invalid, "", fmt.Errorf("the source names the directory %q, which is not in it", directory)), stack.SourceFailed)
	}
	p.within = directory
	p.st.Configuration.Path = path.Join(directory, p.st.Configuration.Path)
	p.o.PlanInputs.Shape = p.st.Configuration.Shape()
	return nil
}

func (jb *jobs) findEngine(ctx context.Context, p *pass) *stack.Blocked {
	e, err := jb.engine(ctx, p.st.Configuration.Engine)
	if err != nil {
		return blockedBy(err, stack.EngineMissing)
	}
	p.o.PlanInputs.Engine = e.String()
	return nil
}

// findModule reads what the root module declares.
func (jb *jobs) findModule(_ context.Context, p *pass) *stack.Blocked {
	var err error
	if p.st.Configuration.Source == nil {
		p.in.root, err = jb.modules.Inline(p.st.Configuration.Inline, nil)
	} else {
		p.in.root, p.in.template, err = jb.modules.Archive(p.in.archive, p.o.PlanInputs.Source, p.st.Configuration.Path, nil)
	}
	if err != nil {
		return blockedBy(err, stack.ModuleInvalid)
	}
	if s := p.o.Spec; s.Script && s.Mode == stack.Manual && len(p.in.root.Files) == 0 {
		return &stack.Blocked{Kind: fault.Invalid, Reason: stack.ModuleInvalid, Message: fmt.Sprintf(
			"The directory %q has no configuration, so no plan can be made for a user to approve. To run the script without an approval, remove the annotation terrier.dev/approval", "/"+p.st.Configuration.Path)}
	}
	return nil
}

// findInputs resolves variables, credentials and files.
func (jb *jobs) findInputs(ctx context.Context, p *pass) *stack.Blocked {
	var err error
	p.in.Inputs, err = jb.resolver(p).Resolve(ctx, input.Module{Root: p.in.root, Template: p.in.template, With: func(files map[string][]byte) (module.Root, error) {
		if p.st.Configuration.Source == nil {
			return jb.modules.Inline(p.st.Configuration.Inline, files)
		}
		root, _, err := jb.modules.Archive(p.in.archive, p.o.PlanInputs.Source, p.st.Configuration.Path, files)
		return root, err
	}})
	if err != nil {
		b := blockedBy(err, stack.InputsFailed)
		b.Message = plan.NewRedactor(p.in.Mask).String(b.Message) // a template may have said a value
		return b
	}
	if err := jb.mayMount(ctx, p); err != nil {
		return blockedBy(fmt.Errorf("runnerPodTemplate: %w", err), stack.InputsFailed)
	}
	p.o.PlanInputs.Inputs = p.in.Digest
	if until := p.in.Until; !until.IsZero() {
		p.recheckIn(max(time.Second, until.Sub(p.o.Now))) // before an input stops being valid
	}
	return nil
}

// identifier gives runs the identities that their stacks ask for.
type identifier struct {
	identities Identities // nil if the platform issues none
	logins     *vaults.Vaults
}

// findIdentity reports that the runs of a stack may not sign in as the stack asks.
func (i identifier) findIdentity(ctx context.Context, p *pass) *stack.Blocked {
	q := p.st.Configuration.Identity
	if q == nil {
		return nil
	}
	if i.identities == nil {
		return blockedBy(fault.New(fault.Invalid, "", fmt.Errorf("%s: this platform gives its runs no identity. As the operator, set --identity-issuer; else remove the annotation", identity.Annotation)), stack.SpecInvalid)
	}
	err := i.identities.Allows(ctx, p.obj.GetNamespace(), *q)
	if err == nil {
		if why := q.Conflict(p.in.Resolved.Environment); why != nil {
			err = fault.New(fault.Invalid, "", why)
		}
	}
	if err == nil {
		for _, phase := range []identity.Phase{identity.Plan, identity.Apply} {
			if _, why := p.identity("", phase).Subject(); why != nil {
				err = fault.New(fault.Invalid, "", why)
			}
		}
	}
	if err == nil {
		return nil
	}
	reason := stack.SpecInvalid
	if k := fault.Of(err); k != fault.Denied && k != fault.Invalid {
		reason = stack.InputsFailed
	}
	return blockedBy(fmt.Errorf("%s: %w", identity.Annotation, err), reason)
}

// identity is who a run of the stack is, as far as this package knows.
func (p *pass) identity(id string, phase identity.Phase) identity.Run {
	return identity.Run{
		ID: id, Phase: phase, Namespace: p.obj.GetNamespace(), Stack: p.obj.GetName(), StackUID: string(p.obj.GetUID()),
		StackKind: strings.ToLower(dialect.KindOf(p.dialect)),
	}
}

// identify gives a job the identity that its stack asks for. Only this copy of the job has
// the grant of the run: no record has it. A recorded job may have credentials in its
// environment that the stack has an identity in place of now. It returns who the run is; the
// zero Identified for one that has no identity.
func (i identifier) identify(ctx context.Context, p *pass, job *runner.Job) (Identified, error) {
	q := p.st.Configuration.Identity
	job.Identity = nil
	if q == nil || job.Kind == stack.HealthRun {
		return Identified{}, nil
	}
	if b := i.findIdentity(ctx, &pass{dialect: p.dialect, obj: p.obj, st: p.st}); b != nil {
		return Identified{}, fault.New(b.Kind, string(b.Reason), errors.New(b.Message))
	}
	job.Env = maps.Clone(job.Env)
	for _, name := range q.Variables() {
		delete(job.Env, name)
	}
	run := p.identity(job.ID, identity.PhaseOf(job.Kind.Writes() || job.Kind == stack.StepsRun))
	run.RunKind = string(job.Kind)
	if job.Tree.Digest != "" && job.Tree.Digest == p.o.PlanInputs.Source && len(p.st.Configuration.Besides()) == 0 && !bringsCode(job) {
		run.SourceURL, run.SourceRevision = p.in.origin, p.in.revision
	}
	by := Identified{Run: run, Key: job.Key(), Request: *q, Until: p.o.Now.Add(job.Limits.Longest() + startMost)}
	var err error
	job.Identity, err = i.identities.Of(ctx, by)
	if err != nil {
		return Identified{}, fmt.Errorf("giving the run its identity: %w", err)
	}
	return by, nil
}

// login signs a run in to the Vault of its identity, if its stack asks for that. It is called
// once the run has room: what waits holds no session.
func (i identifier) login(ctx context.Context, p *pass, job *runner.Job, by Identified) error {
	use, asked := by.Request.Login(by.Run.Phase)
	if !asked {
		return nil
	}
	at, err := url.Parse(by.Request.Vault.Address)
	if err != nil {
		return fault.New(fault.Invalid, "", fmt.Errorf("%s: vault.address: %w", identity.Annotation, err))
	}
	jwt, err := i.identities.Token(ctx, by, use)
	if err != nil {
		return fmt.Errorf("giving the run its identity: %w", err)
	}
	mount, role := by.Request.Vault.At(by.Run.Phase)
	p.entry.login = vaults.Known{}
	token, err := i.logins.Login(ctx, p.id, job.ID, vault.Server{URL: at, Namespace: by.Request.Vault.Namespace}, vault.SignIn{Method: vault.JWT, Path: mount, Role: role, Identity: jwt})
	if err != nil {
		return fmt.Errorf("%s: %w", identity.Annotation, err)
	}
	job.Env = maps.Clone(job.Env)
	if job.Env == nil {
		job.Env = map[string]string{}
	}
	job.Env[identity.EnvVaultToken], job.Env[identity.EnvVaultChild] = token.Reveal(), "true"
	job.Mask = append(slices.Clone(job.Mask), token.Reveal())
	return nil
}

// bringsCode reports whether a job, which may have been recorded before the object was
// changed, runs code that is not in its source: configuration among its files, files at home,
// the text of a script, programs in its pod, the command of a user, or steps after an apply.
func bringsCode(job *runner.Job) bool {
	s := job.Script
	return job.Kind == stack.BreakGlassRun || job.Kind == stack.StepsRun || s != nil && (len(s.Apply) > 0 || len(s.Destroy) > 0) || len(job.Home) > 0 ||
		job.Pod != nil && len(stack.Pod{Template: job.Pod.Template}.Brings()) > 0 ||
		slices.ContainsFunc(job.Files, func(f workdir.File) bool {
			return workdir.IsConfiguration(path.Base(f.Path)) && f.Path != workdir.BackendOverridePath && f.Path != workdir.ImportsPath
		})
}

// resolver resolves the inputs of a stack.
func (jb *jobs) resolver(p *pass) input.Resolver {
	return input.Resolver{
		Reader: jb.reader(p), Key: jb.key, Refer: jb.referrals.refer(p), Settable: jb.config.Settable, Configuration: p.st.Configuration,
		Object: input.Object{
			Name: p.obj.GetName(), Namespace: p.obj.GetNamespace(), UID: string(p.obj.GetUID()),
			Labels: ownLabels(p.obj.GetLabels()), Annotations: p.obj.GetAnnotations(),
		},
	}
}

// reader reads the inputs of a stack: objects, and secrets of a Vault where there is one.
func (jb *jobs) reader(p *pass) input.Reader {
	if jb.vaults == nil {
		return jb.objects(p)
	}
	return jb.vaults.Reader(readerOf(jb, p))
}

// readerOf is the stack of a pass, as a Vault knows it: by the ServiceAccount of its runs.
func readerOf(jb *jobs, p *pass) vaults.Stack {
	account := cmp.Or(p.st.Configuration.Pod.Account, jb.config.Account)
	return vaults.Stack{UID: p.id, Account: types.NamespacedName{Namespace: p.obj.GetNamespace(), Name: account}, Object: jb.named(p.obj), Objects: jb.objects(p)}
}

// objects reads Secrets and ConfigMaps: where the operator says so with the rights of the
// ServiceAccount of the stack, which is that of its pods.
func (jb *jobs) objects(p *pass) input.Reader {
	if jb.config.ReadAs == "" {
		return kube.Objects{Client: jb.live}
	}
	namespace, pod := p.obj.GetNamespace(), p.st.Configuration.Pod
	all := input.References(p.st.Configuration, namespace).Reads
	if mounts, err := kube.Mounts(pod.Template, namespace); err == nil { // else mayMount says so
		all = append(all, mounts...)
	}
	return kube.AccountObjects{Accounts: jb.accounts, Account: types.NamespacedName{Namespace: namespace, Name: cmp.Or(pod.Account, jb.config.ReadAs)}, All: all}
}

// mayMount refuses a pod that would get from its kubelet what its ServiceAccount may not
// read. A kubelet asks for no right but its own.
func (jb *jobs) mayMount(ctx context.Context, p *pass) error {
	if jb.config.ReadAs == "" || !jb.config.Pods {
		return nil
	}
	mounts, err := kube.Mounts(p.st.Configuration.Pod.Template, p.obj.GetNamespace())
	if err != nil {
		return fault.New(fault.Invalid, "", err)
	}
	reader := jb.reader(p)
	for _, ref := range mounts {
		if _, _, err := reader.Read(ctx, ref); err != nil && fault.Of(err) != fault.Missing { // one that is missing, the pod waits for
			return err
		}
	}
	return nil
}

// release gives back what inputs handed out for a stack that is gone.
func (jb *jobs) release(ctx context.Context, id string) error {
	if err := errors.Join(jb.vaults.Release(ctx, id), jb.identifier.logins.Release(ctx, id)); err != nil {
		return err
	}
	return input.Release(ctx, kube.Objects{Client: jb.live}, id)
}

// keyed hashes what stands in the status or in the name of a directory under the
// platform's key.
func (jb *jobs) keyed(what any) string { return input.Digest(jb.key, what) }

// installation tells the runs of this installation from those of others.
func (jb *jobs) installation() string {
	return jb.keyed("installation")[len(input.DigestPrefix):][:16]
}

// backendDigest names where a state is: credentials are not part of it.
func backendDigest(c stack.Configuration, settings map[string]string) string {
	parts := []any{c.Backend, c.Workspace}
	if settings != nil {
		parts = append(parts, module.LastingSettings(settings))
	}
	return stack.Digest(parts)
}

// destroyScript completes a recorded job, which has no script that destroys, with that of
// now: the user wrote it after the last apply.
func (jb *jobs) destroyScript(ctx context.Context, p *pass, to *runner.Script) error {
	text, err := jb.resolver(p).DestroyScript(ctx)
	if err != nil {
		return fmt.Errorf("reading the script that destroys the resources: %w", err)
	}
	now := p.st.Configuration.Script.Destroy
	to.Destroy, to.DestroyPath, to.DestroyArgs = text, now.Path, now.Args
	return nil
}

// given are the files of a job that stand for f.
func (jb *jobs) given(f input.Files) ([]workdir.File, error) {
	mirror := workdir.Mirror{Dir: runner.MirrorInside, Providers: jb.config.MirrorProviders, Only: jb.config.MirrorOnly}
	if err := f.CLI.Check(mirror); err != nil {
		return nil, err
	}
	config := f.CLI.File(mirror)
	config.Path = runner.CLIConfig
	files := append([]workdir.File{config}, f.Work...)
	if f.Settings == nil {
		return files, nil
	}
	settings, err := module.BackendSettings(runner.BackendFile, f.Settings)
	return append(files, settings), err
}

// refresh renews the credentials of a recorded job where they still are: those
// in its environment, its files, its backend and the configuration of its
// command line. The record stands in for what is gone, each by itself. Variables
// stay as recorded: they say what was applied. A proxy that the operator no longer
// lets stacks set gives way to that of the platform, and so do other places of
// providers where only the mirror counts.
func (jb *jobs) refresh(ctx context.Context, p *pass, job *runner.Job) {
	fresh := jb.resolver(p).Refresh(ctx)
	p.in.Mask = fresh.Mask
	for name := range job.Env {
		if workdir.IsProxy(name) && workdir.CheckEnvironment(name, jb.config.Settable...) != nil {
			delete(job.Env, name)
			continue
		}
		if v, ok := fresh.Environment[name]; ok {
			job.Env[name] = v
		}
	}
	job.Home = renew(job.Home, fresh.Files.Home)
	if fresh.NoSettings || backendDigest(p.st.Configuration, fresh.Files.Settings) != p.note.Backend {
		fresh.Files.Settings = nil // other settings are of another state
	}
	if jb.config.MirrorOnly {
		fresh.Files.CLI.Install = nil
	}
	if files, err := jb.given(fresh.Files); err == nil {
		if fresh.NoCLI {
			files = slices.DeleteFunc(files, func(f workdir.File) bool { return f.Path == runner.CLIConfig })
		}
		job.Files = renew(job.Files, files)
	}
	for _, s := range p.in.Mask {
		if !slices.Contains(job.Mask, s) {
			job.Mask = append(job.Mask, s)
		}
	}
}

// renew puts fresh files in the place of old ones, and adds none.
func renew(old, fresh []workdir.File) []workdir.File {
	for i, o := range old {
		if n := slices.IndexFunc(fresh, func(f workdir.File) bool { return f.Path == o.Path }); n >= 0 {
			old[i] = fresh[n]
		}
	}
	return old
}

// findImports turns the repair that a person asked for into the imports of a
// plan, which is then another plan than one without them.
func (p *pass) findImports() *stack.Blocked {
	var imports []module.Import
	for _, u := range p.o.Imports() {
		if u.ID == "" {
			return &stack.Blocked{Kind: fault.Invalid, Reason: stack.StateIncomplete, Message: fmt.Sprintf(
				"The repair cannot be planned: the identifier of %s is not known. Say it with terrier repair %[2]s --id '%[1]s=…', or say that it does not exist with --absent '%[1]s'", u.Address, p.o.Spec.Words.Argument)}
		}
		imports = append(imports, module.Import{Address: u.Address, ID: u.ID})
	}
	if len(imports) == 0 {
		return nil
	}
	file, err := module.ImportsFile(imports)
	if err != nil {
		return blockedBy(err, stack.StateIncomplete)
	}
	p.in.imports = &file
	p.o.PlanInputs.Shape = stack.Digest([]any{p.o.PlanInputs.Shape, imports})
	return nil
}
