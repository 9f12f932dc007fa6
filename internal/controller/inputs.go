package controller

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	sourcev1 "github.com/fluxcd/source-controller/api/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/input"
	"github.com/terrier-iac/terrier/internal/kube"
	"github.com/terrier-iac/terrier/internal/plan"
	"github.com/terrier-iac/terrier/internal/runner"
	"github.com/terrier-iac/terrier/internal/source"
	"github.com/terrier-iac/terrier/internal/stack"
	"github.com/terrier-iac/terrier/internal/workdir"
	"github.com/terrier-iac/terrier/internal/workdir/module"
)

// inputs are what a plan is made from, found and resolved.
type inputs struct {
	archive  string // path of the module's archive; empty if it is inline
	engine   string
	root     module.Root // as the source has it
	template string      // the text of the module's main.tf.tpl; empty if it has none
	imports  *workdir.File

	input.Inputs
}

// findSource resolves the source to an archive on disk.
func (c *Stacks) findSource(ctx context.Context, p *pass) *stack.Blocked {
	ref := p.st.Configuration.Source
	if ref == nil {
		p.o.PlanInputs.Source = stack.Digest(p.st.Configuration.Inline)
		p.o.PlanInputs.Revision = p.o.PlanInputs.Source
		return nil
	}
	key := c.keyOf(*ref, p.obj)
	if key.Namespace != p.obj.GetNamespace() && !c.Config.CrossNamespace {
		return &stack.Blocked{Kind: fault.Denied, Reason: stack.SourceDenied,
			Message: fmt.Sprintf("sourceRef: %s %s is in another namespace, which this platform does not allow", ref.Kind, key)}
	}
	artifact, err := c.artifact(ctx, ref.Kind, key)
	if err != nil {
		return blockedBy(err, stack.SourceNotReady)
	}
	if p.in.archive, err = c.Artifacts.Get(ctx, artifact); err != nil {
		return blockedBy(fmt.Errorf("fetching the artifact of %s %s: %w", ref.Kind, key, err), stack.SourceFailed)
	}
	p.o.PlanInputs.Source, p.o.PlanInputs.Revision = artifact.Digest, artifact.Revision
	return nil
}

// sourceObject is what all kinds of sources have in common.
type sourceObject interface {
	client.Object
	sourcev1.Source
}

// newSource returns an empty source object of a kind.
func newSource(kind string) (sourceObject, error) {
	switch kind {
	case sourcev1.GitRepositoryKind:
		return &sourcev1.GitRepository{}, nil
	case sourcev1.OCIRepositoryKind:
		return &sourcev1.OCIRepository{}, nil
	case sourcev1.BucketKind:
		return &sourcev1.Bucket{}, nil
	default:
		return nil, fault.New(fault.Invalid, "", fmt.Errorf("sourceRef.kind: %q is none of GitRepository, OCIRepository and Bucket", kind))
	}
}

// artifact reads where a source's archive is.
func (c *Stacks) artifact(ctx context.Context, kind string, key types.NamespacedName) (source.Artifact, error) {
	obj, err := newSource(kind)
	if err != nil {
		return source.Artifact{}, err
	}
	if err := c.Client.Get(ctx, key, obj); err != nil {
		if client.IgnoreNotFound(err) == nil {
			err = fault.New(fault.Missing, "", fmt.Errorf("source not found: %s %s does not exist", kind, key))
		}
		return source.Artifact{}, err
	}
	a := obj.GetArtifact()
	if a == nil {
		//lint:ignore ST1005 clients know the message by this beginning
		return source.Artifact{}, fault.New(fault.Missing, "", fmt.Errorf("Source is not ready, artifact not found: %s %s%s", kind, key, notReady(obj)))
	}
	out := source.Artifact{URL: a.URL, Revision: a.Revision, Digest: a.Digest}
	if a.Size != nil {
		out.Size = *a.Size
	}
	return out, nil
}

// sourceSays is how much of what a source says of itself goes into a message.
const sourceSays = 400

// loginInURL is a name and a password in front of a host.
var loginInURL = regexp.MustCompile(`://[^/?#\s"']*@`)

// notReady is what a source says of why it is not ready, as the end of a
// sentence. While it only says that it is at it, that is nothing: the message
// must be the same however often it is made.
func notReady(obj sourceObject) string {
	holder, ok := obj.(interface{ GetConditions() []metav1.Condition })
	if !ok {
		return ""
	}
	r := meta.FindStatusCondition(holder.GetConditions(), "Ready")
	if r == nil || r.Status != metav1.ConditionFalse {
		return ""
	}
	said := loginInURL.ReplaceAllString(strings.Join(strings.Fields(r.Message), " "), "://***@")
	if runes := []rune(said); len(runes) > sourceSays {
		said = string(runes[:sourceSays]) + "…"
	}
	return ": " + r.Reason + ": " + said
}

func (c *Stacks) findEngine(ctx context.Context, p *pass) *stack.Blocked {
	e, err := c.Engine(ctx, p.st.Configuration.Engine)
	if err != nil {
		return blockedBy(err, stack.EngineMissing)
	}
	p.in.engine, p.o.PlanInputs.Engine = e.Path, e.String()
	return nil
}

// findModule reads what the root module declares.
func (c *Stacks) findModule(_ context.Context, p *pass) *stack.Blocked {
	var err error
	if p.st.Configuration.Source == nil {
		p.in.root, err = c.Modules.Inline(p.st.Configuration.Inline, nil)
	} else {
		p.in.root, p.in.template, err = c.Modules.Archive(p.in.archive, p.o.PlanInputs.Source, p.st.Configuration.Path, nil)
	}
	if err != nil {
		return blockedBy(err, stack.ModuleInvalid)
	}
	return nil
}

// findInputs resolves variables, credentials and files.
func (c *Stacks) findInputs(ctx context.Context, p *pass) *stack.Blocked {
	var err error
	p.in.Inputs, err = c.resolver(p).Resolve(ctx, input.Module{Root: p.in.root, Template: p.in.template, With: func(files map[string][]byte) (module.Root, error) {
		if p.st.Configuration.Source == nil {
			return c.Modules.Inline(p.st.Configuration.Inline, files)
		}
		root, _, err := c.Modules.Archive(p.in.archive, p.o.PlanInputs.Source, p.st.Configuration.Path, files)
		return root, err
	}})
	if err != nil {
		b := blockedBy(err, stack.InputsFailed)
		b.Message = plan.NewRedactor(p.in.Mask).String(b.Message) // a template may have said a value
		return b
	}
	p.o.PlanInputs.Inputs = p.in.Digest
	if until := p.in.Until; !until.IsZero() {
		p.recheckIn(max(time.Second, until.Sub(p.o.Now))) // before an input stops being valid
	}
	return nil
}

// resolver resolves the inputs of a stack.
func (c *Stacks) resolver(p *pass) input.Resolver {
	return input.Resolver{
		Reader: kube.Objects{Client: c.Live}, Key: c.Key, CrossNamespace: c.Config.CrossNamespace, Configuration: p.st.Configuration,
		Object: input.Object{
			Name: p.obj.GetName(), Namespace: p.obj.GetNamespace(), UID: string(p.obj.GetUID()),
			Labels: ownLabels(p.obj.GetLabels()), Annotations: p.obj.GetAnnotations(),
		},
	}
}

// keyed hashes what stands in the status or in the name of a directory under the
// platform's key.
func (c *Stacks) keyed(what any) string { return input.Digest(c.Key, what) }

// backendDigest names where a state is: credentials are not part of it.
func backendDigest(prog stack.Configuration, settings map[string]string) string {
	parts := []any{prog.Backend, prog.Workspace}
	if settings != nil {
		parts = append(parts, module.LastingSettings(settings))
	}
	return stack.Digest(parts)
}

// given are the files of a job that stand for f.
func (c *Stacks) given(f input.Files) ([]workdir.File, error) {
	config := f.CLI.File(c.Config.MirrorProviders, runner.MirrorInside)
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
// stay as recorded: they say what was applied.
func (c *Stacks) refresh(ctx context.Context, p *pass, job *runner.Job) {
	fresh := c.resolver(p).Refresh(ctx)
	p.in.Mask = fresh.Mask
	for name := range job.Env {
		if v, ok := fresh.Environment[name]; ok {
			job.Env[name] = v
		}
	}
	job.Home = renew(job.Home, fresh.Files.Home)
	if fresh.NoSettings || backendDigest(p.st.Configuration, fresh.Files.Settings) != p.note.Backend {
		fresh.Files.Settings = nil // other settings are of another state
	}
	if files, err := c.given(fresh.Files); err == nil {
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
