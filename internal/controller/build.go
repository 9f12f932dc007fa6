package controller

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/Masterminds/semver/v3"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/terrier-iac/terrier/internal/backend"
	"github.com/terrier-iac/terrier/internal/controller/states"
	"github.com/terrier-iac/terrier/internal/dialect"
	"github.com/terrier-iac/terrier/internal/encryption"
	"github.com/terrier-iac/terrier/internal/engine"
	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/runner"
	"github.com/terrier-iac/terrier/internal/stack"
	"github.com/terrier-iac/terrier/internal/workdir"
	"github.com/terrier-iac/terrier/internal/workdir/module"
)

// buildJob makes all of the job that does not depend on the kind of run.
func (jb *jobs) buildJob(ctx context.Context, p *pass) *stack.Blocked {
	c := p.st.Configuration
	e, err := jb.engine(ctx, p.st.Configuration.Engine)
	if err != nil {
		return blockedBy(err, stack.EngineMissing)
	}
	if err := checkOptions(c); err != nil {
		return blockedBy(err, stack.SpecInvalid)
	}
	place, ref, kind := states.Backend(c, p.obj.GetNamespace())
	if ref != nil {
		if err := ref.Check(p.o.Spec.Words); err != nil {
			return blockedBy(err, stack.SpecInvalid)
		}
	}
	if err := encryptable(p, e, ref != nil); err != nil {
		return blockedBy(err, stack.SpecInvalid)
	}
	plugged, err := jb.plugIn(p)
	if err != nil {
		return blockedBy(err, stack.SpecInvalid)
	}
	guard, err := module.Guard(p.in.Module, place)
	if err != nil {
		return blockedBy(err, stack.ModuleInvalid)
	}
	backendFile, err := module.BackendFile(place)
	if err != nil {
		return blockedBy(err, stack.SpecInvalid)
	}
	network, err := jb.network(c)
	if err == nil {
		err = jb.reviewable(c)
	}
	if err != nil {
		return blockedBy(err, stack.SpecInvalid)
	}
	files, err := jb.files(p, backendFile)
	if err != nil {
		return blockedBy(err, stack.InputsFailed)
	}
	if err := jb.unshadowed(p, guard); err != nil {
		return blockedBy(err, stack.InputsFailed)
	}
	p.note = note{State: ref, Backend: backendDigest(c, p.in.Files.Settings), In: states.Named(c, p.obj.GetNamespace())}
	p.job = &runner.Job{
		Stack: p.id, Name: p.obj.GetNamespace() + "/" + p.obj.GetName(), Created: p.o.Now,
		Engine: engineOf(c, e),
		Tree:   runner.Tree{Archive: p.archive(), Digest: p.o.PlanInputs.Source, Path: c.Path, Exclude: guard.Exclude},
		Files:  files,
		Env:    p.in.Resolved.Environment,
		Mask:   p.in.Mask,
		Home:   p.in.Files.Home,
		Pod:    podOf(p),

		Words: p.o.Spec.Words,

		Managed: ref != nil, Workspace: c.Workspace, Backend: plugged,
		Options: jb.options(c, ref == nil),
		Limits:  jb.limits(c), Sandbox: jb.sandbox(network),
	}
	if s := c.Script; s != nil {
		p.job.Script = &runner.Script{
			Apply: p.in.Scripts.Apply, ApplyPath: s.Apply.Path, ApplyArgs: s.Apply.Args,
			Destroy: p.in.Scripts.Destroy, DestroyPath: s.Destroy.Path, DestroyArgs: s.Destroy.Args,
		}
		if after := s.PostDeploy; after != nil {
			p.job.Script.PostDeploy, p.job.Script.PostDeployArgs = after.Path, after.Args
		}
	}
	p.job.Options.BackendType, p.job.Options.InitKey = kind, jb.initKey(p, backendFile, network)
	if p.in.Files.Settings != nil {
		p.job.Options.BackendFile = runner.BackendFile
	}
	return nil
}

// encryptable reports a stack whose state cannot be encrypted as it asks.
func encryptable(p *pass, e engine.Engine, managed bool) error {
	if !p.st.Configuration.Encrypted {
		return nil
	}
	var why string
	switch {
	case e.Name != "tofu":
		why = fmt.Sprintf("%s encrypts no state, and could not read one without Terrier. Use OpenTofu (the annotation %s), or remove %s", e, dialect.Engine, encryption.Annotation)
	case p.in.root.Encryption || p.in.Module.Encryption:
		why = fmt.Sprintf("the module has an encryption block of its own. Remove either of the two: %s encrypts the state with a key of the platform", encryption.Annotation)
	case !managed && p.st.Configuration.Backend.Kind == stack.Remote:
		why = "a cloud has to read the states that it keeps. Remove the annotation, or let Terrier keep the state"
	case !managed && !engineAsks(e.Version):
		why = fmt.Sprintf("%s does not ask another program to encrypt a state. Use OpenTofu %s or newer, or let Terrier keep the state", e, firstToAsk)
	default:
		return nil
	}
	return fault.New(fault.Invalid, "", fmt.Errorf("the annotation %s: %s", encryption.Annotation, why))
}

// firstToAsk is the first release of OpenTofu with external encryption methods.
const firstToAsk = "1.10.0"

func engineAsks(version string) bool {
	v, err := semver.NewVersion(version)
	return err != nil || !v.LessThan(semver.MustParse(firstToAsk)) // one of the operator's own may be called anything
}

// sealing has the keys of states in backends of their own.
type sealing struct{ keys encryption.Keys }

// of returns how a run has the engine store a state in a backend of the stack's own; nil if
// Terrier has no part in that.
func (s sealing) of(ctx context.Context, p *pass) (*runner.Encryption, error) {
	last, asked := p.o.Status.LastState, p.st.Configuration.Encrypted
	sealed := last.Encrypted && !last.Managed && last.Place == p.note.place()
	if p.note.State != nil || !asked && !sealed {
		return nil, nil
	}
	keys, err := s.keys(ctx, encryption.OfStack(dialect.KindOf(p.dialect), p.obj.GetNamespace(), p.obj.GetName()), "")
	if err != nil {
		return nil, fmt.Errorf("finding the keys of the state: %w", err)
	}
	return &runner.Encryption{Keys: keys, Plain: !sealed, End: !asked}, nil
}

// plugIn is the plug-in that keeps the state of a stack; nil if there is none.
func (jb *jobs) plugIn(p *pass) (*runner.Backend, error) {
	c := p.st.Configuration
	b := c.Backend
	if b.Kind != stack.Plugin {
		return nil, nil
	}
	if _, ok := backend.Find(b.Plugin); !ok && !slices.Contains(jb.config.Backends, b.Plugin) {
		names := slices.Sorted(slices.Values(append(backend.Names(), jb.config.Backends...)))
		return nil, fault.New(fault.Invalid, "", fmt.Errorf("unsupported backend: %.80q; there are %s", b.Plugin, strings.Join(names, ", ")))
	}
	if b.Plugin == backend.Local && jb.config.Pods {
		return nil, fault.New(fault.Denied, "", errors.New("the backend local keeps the state in a file of one machine, and runs are pods: the state would be lost with the pod. Use another backend"))
	}
	r := backend.For(b, p.obj.GetNamespace(), c.Workspace)
	plugged := &runner.Backend{
		Name: b.Plugin, Settings: b.Settings, Stack: r.Stack,
		Expected: (p.o.Status.Applied != nil || p.o.Status.Created) && !p.o.Status.Destroyed,
	}
	jb.config.own(plugged, p.obj)
	return plugged, nil
}

// own says to a plug-in which cluster a stack is of, and whose place that cluster takes.
// A recorded job does not know it: its record may be of another cluster, or of an
// earlier release that named none.
func (c Config) own(b *runner.Backend, o client.Object) {
	b.Stack.Cluster, b.Formerly = c.ClusterUID, slices.Clone(c.Formerly)
	if uid := o.GetAnnotations()[backend.AdoptStateOf]; uid != "" {
		b.Formerly = append(b.Formerly, uid)
	}
}

// options are those that the configuration decides. Outputs and inventory are read at
// the end of a run only from a foreign backend: a managed state is in our hands.
func (jb *jobs) options(c stack.Configuration, foreign bool) runner.Options {
	return runner.Options{
		Upgrade: c.Upgrade, Destroy: c.Destroy, Targets: c.Targets, VarFiles: c.VarFiles, Parallelism: c.Parallelism,
		NoLock: c.NoPlanLock, LockTimeout: c.LockTimeout,
		ReadableText: c.Readable == stack.ReadableHuman,
		Outputs:      foreign && (c.Outputs != nil || len(c.Checks) > 0),
		Inventory:    foreign && c.Inventory,
		NoReattach:   jb.config.NoReattach,
	}
}

// podOf is what the object says about the pod of a run.
func podOf(p *pass) *runner.Pod {
	c := p.st.Configuration.Pod
	return &runner.Pod{Namespace: p.obj.GetNamespace(), Account: c.Account, Template: c.Template}
}

// initKey covers all that an initialised directory depends on beside its tree.
func (jb *jobs) initKey(p *pass, place workdir.File, network string) string {
	parts := []any{p.o.PlanInputs.Engine, string(place.Content), p.st.Configuration.Workspace, jb.config.MirrorProviders, network}
	if p.in.Main != nil {
		parts = append(parts, string(p.in.Main))
	}
	for _, f := range p.in.Files.Work {
		if workdir.IsConfiguration(f.Path) {
			parts = append(parts, jb.keyed(f))
		}
	}
	if in := p.in.Files.CLI.Install; in != nil {
		parts = append(parts, in)
	}
	if jb.config.MirrorOnly {
		parts = append(parts, "mirror only")
	}
	if b := p.st.Configuration.Backend; b.Kind == stack.Plugin {
		parts = append(parts, backend.For(b, p.obj.GetNamespace(), ""))
	}
	return stack.Digest(parts)
}

// unshadowed makes sure that no file which the stack brings is one of those that
// must not be there.
func (jb *jobs) unshadowed(p *pass, g module.Guarded) error {
	for i, f := range p.st.Configuration.Files {
		if !f.Home && slices.Contains(g.Exclude, f.Path) || p.in.Main != nil && !f.Home && f.Path == workdir.InlinePath {
			return fault.New(fault.Denied, "", fmt.Errorf("fileMappings[%d]: %s would take the place of the module's own configuration", i, f.Path))
		}
	}
	return nil
}

// longestGrace is what a stack may wait at most for an engine that was
// interrupted.
const longestGrace = 24 * time.Hour

// limits are the platform's, or what the stack asks for where that is stricter.
// Its grace may only be longer: users have to repair by themselves what an apply
// that was cut off has left.
func (jb *jobs) limits(c stack.Configuration) runner.Limits {
	l := jb.config.Limits
	if c.Memory > 0 && (l.Memory == 0 || c.Memory < l.Memory) {
		l.Memory = c.Memory
	}
	l.CPUs = c.CPUs
	if c.Grace > cmp.Or(l.Grace, runner.DefaultGrace) {
		l.Grace = min(c.Grace, longestGrace)
	}
	return l
}

// parallelismMost is what the engine is told at most.
const parallelismMost = 1024

// checkOptions reports which field holds a value that the engine does not take.
func checkOptions(c stack.Configuration) error {
	for i, t := range c.Targets {
		if err := engine.CheckTarget(t); err != nil {
			return fault.New(fault.Invalid, "", fmt.Errorf("spec.targets[%d]: %w", i, err))
		}
	}
	for i, f := range c.VarFiles {
		if err := engine.CheckVarFile(f); err != nil {
			return fault.New(fault.Invalid, "", fmt.Errorf("spec.tfVarsFiles[%d]: %w", i, err))
		}
	}
	if c.Parallelism > parallelismMost {
		return fault.New(fault.Invalid, "", fmt.Errorf("spec.parallelism: %d is more than %d", c.Parallelism, parallelismMost))
	}
	return nil
}

// network is that of the platform, or what the stack asks for instead.
func (jb *jobs) network(c stack.Configuration) (string, error) {
	switch {
	case c.Network == "" || c.Network == jb.config.Network, c.Network == "none":
		return cmp.Or(c.Network, jb.config.Network), nil
	case c.Network == "host" && jb.config.HostNetwork:
		return c.Network, nil
	case c.Network == "host":
		return "", fault.New(fault.Denied, "", errors.New("terrier.dev/network: this platform does not let runs use the host's network"))
	default:
		return "", fault.New(fault.Invalid, "", fmt.Errorf("terrier.dev/network: %q is neither none nor host", c.Network))
	}
}

// sandbox describes the isolation of a run with that network.
func (jb *jobs) sandbox(network string) runner.Sandbox {
	return runner.Sandbox{Network: network, MinLevel: jb.config.MinLevel}
}

// archive is the digest of the module's archive; empty if the module is inline.
func (p *pass) archive() string {
	if p.in.archive == "" {
		return ""
	}
	return p.o.PlanInputs.Source
}

// engineOf names an engine in a job.
func engineOf(c stack.Configuration, e engine.Engine) runner.Engine {
	return runner.Engine{Asked: c.Engine, Name: e.Name, Version: e.Version}
}

// files are the generated files of every run.
func (jb *jobs) files(p *pass, place workdir.File) ([]workdir.File, error) {
	vars, err := workdir.TFVars(p.in.Resolved.Vars)
	if err != nil {
		return nil, err
	}
	files, err := jb.given(p.in.Files)
	if err != nil {
		return nil, err
	}
	files = append([]workdir.File{vars}, files...)
	if p.in.Main != nil {
		files = append(files, workdir.Inline(string(p.in.Main)))
	}
	if place.Path != "" {
		files = append(files, place)
	}
	if p.in.imports != nil {
		files = append(files, *p.in.imports)
	}
	if p.st.Configuration.Source == nil {
		files = append(files, workdir.Inline(p.st.Configuration.Inline))
	}
	return files, nil
}

// name gives a run the name of its cause: the same cause after the same past
// has the same name, so that starting it twice starts it once.
func (p *pass) name(kind stack.RunKind, cause stack.Cause) string {
	digest := stack.Digest([]any{p.id, kind, cause.PlanInputs, cause.Replan, cause.Preview, cause.Health, cause.Destroy, planDigest(cause.Plan), p.o.Status.LastRun, p.o.Status.Failures, p.o.CheckedAt})
	if kind == stack.StepsRun {
		digest = stack.Digest([]any{digest, cause.Steps})
	}
	if cause.Command != nil {
		digest = stack.Digest([]any{digest, cause.Command})
	}
	return string(kind) + "-" + digest[len("sha256:"):][:12]
}

func planDigest(p *stack.Plan) string {
	if p == nil {
		return ""
	}
	return p.Digest
}
