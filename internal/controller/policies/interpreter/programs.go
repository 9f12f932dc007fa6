// Package interpreter asks policies that are written in Rego: it finds their text in objects
// and in artifacts of sources, compiles it once, and makes their input of what is known of a
// stack and its plan. It decides nothing.
//
// Start reading at Programs.Find, Programs.Compile and Programs.Judge.
package interpreter

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/terrier-iac/terrier/api/policy/v1alpha1"
	"github.com/terrier-iac/terrier/internal/archive"
	"github.com/terrier-iac/terrier/internal/controller/policies"
	"github.com/terrier-iac/terrier/internal/controller/provenance"
	"github.com/terrier-iac/terrier/internal/controller/sources"
	"github.com/terrier-iac/terrier/internal/dialect"
	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/review/rego"
	"github.com/terrier-iac/terrier/internal/review/rego/worker"
	"github.com/terrier-iac/terrier/internal/source"
	"github.com/terrier-iac/terrier/internal/stack"
)

// Artifacts fetch the artifacts of sources. The path is that of a file that holds exactly
// the artifact.
type Artifacts interface {
	Get(context.Context, source.Artifact) (path string, err error)
}

// Programs implements policies.Programs. New makes one.
type Programs struct {
	reader    client.Reader // sources and tenants
	dialects  dialect.Registry
	artifacts Artifacts
	records   Records // nil if there are none
	dir       string  // for unpacking

	workers *worker.Pool

	mu   sync.Mutex
	used map[string]bool // sources that policies name, by kind and key
}

var _ policies.Programs = (*Programs)(nil)

// New returns Programs that read sources and tenants with reader, and unpack artifacts below
// dir. The policies are compiled and evaluated by workers.
func New(reader client.Reader, dialects dialect.Registry, artifacts Artifacts, records Records, dir string, workers *worker.Pool) *Programs {
	return &Programs{reader: reader, dialects: dialects, artifacts: artifacts, records: records, dir: dir, workers: workers, used: map[string]bool{}}
}

// program is a compiled policy.
type program struct {
	members []worker.Member
	weave   []*rego.WeavePolicy // of each member; nil of others
}

// text is where the text of a policy is: in its object, or in an artifact.
type text struct {
	parts      []rego.Part      // of an object; nil if the text is in an artifact
	artifact   *source.Artifact // nil if the text is in an object
	below      string           // the directory in the artifact
	options    rego.Options
	parameters any
	raw        []byte // parameters as they are written
}

// Find implements policies.Programs.
func (p *Programs) Find(ctx context.Context, of client.Object, r v1alpha1.Rego) (policies.Text, error) {
	t := &text{options: rego.Options{Format: rego.Format(cmp.Or(r.Format, string(rego.Terrier))), Namespaces: r.Namespaces}}
	var err error
	if t.parameters, t.raw, err = parametersOf(r); err != nil {
		return policies.Text{}, err
	}
	if r.SourceRef != nil {
		return p.inSource(ctx, t, of, r)
	}
	if r.Digest != "" {
		return policies.Text{}, invalid("digest: it is that of the artifact of a source, and there is no sourceRef")
	}
	modules := map[string]string{}
	for name, text := range r.Modules {
		if !strings.HasSuffix(name, ".rego") {
			name += ".rego"
		}
		modules[name] = text
	}
	t.parts = []rego.Part{{Source: rego.Source{Format: t.options.Format, Namespaces: t.options.Namespaces, Modules: modules}}}
	return t.found(), nil
}

// Weave reads a Policy object of the Weave policy agent. Its error is Invalid.
func Weave(object map[string]any) (policies.Weave, error) {
	w, err := rego.WeaveOf(object)
	if err != nil {
		return policies.Weave{}, err
	}
	out := policies.Weave{Judges: w.Judges(), Selects: w.Selects}
	if !out.Judges {
		return out, nil
	}
	parameters, err := w.Parameters()
	if err != nil {
		return out, err
	}
	t := &text{options: rego.Options{Format: rego.Weave}, parts: []rego.Part{{Source: w.Source(), Weave: &w, Parameters: parameters}}}
	out.Text = t.found()
	return out, nil
}

// found is the text as package policies knows it.
func (t *text) found() policies.Text {
	out := policies.Text{ID: stack.Digest([]any{t.parts, t.artifact, t.below, t.options, string(t.raw)}), What: t}
	if t.artifact != nil {
		out.Revision = t.artifact.Revision
	}
	return out
}

// Compile implements policies.Programs.
func (p *Programs) Compile(ctx context.Context, of policies.Text) (policies.Program, string, error) {
	t, ok := of.What.(*text)
	if !ok {
		panic(fmt.Sprintf("interpreter: %T is no text", of.What)) // Find made it
	}
	parts := t.parts
	if t.artifact != nil {
		var err error
		if parts, err = p.unpack(ctx, *t.artifact, t.below, t.options); err != nil {
			return nil, "", err
		}
	}
	out := &program{}
	digests := []any{string(t.raw)}
	for _, part := range parts {
		given := t.parameters
		if part.Weave != nil {
			given = part.Parameters
			digests = append(digests, part.Weave.Spec, part.Parameters)
		}
		if err := p.workers.Compile(ctx, part.Source, given); err != nil {
			return nil, "", err
		}
		digest := part.Source.Digest()
		out.members = append(out.members, worker.Member{Source: part.Source, Digest: digest, Parameters: given})
		out.weave = append(out.weave, part.Weave)
		digests = append(digests, digest)
	}
	return out, stack.Digest(digests), nil
}

func parametersOf(r v1alpha1.Rego) (value any, raw []byte, err error) {
	if r.Parameters == nil || len(r.Parameters.Raw) == 0 {
		return nil, nil, nil
	}
	dec := json.NewDecoder(strings.NewReader(string(r.Parameters.Raw)))
	dec.UseNumber()
	if err := dec.Decode(&value); err != nil {
		return nil, nil, fault.New(fault.Invalid, "PolicyInvalid", fmt.Errorf("parameters: %w", err))
	}
	return value, r.Parameters.Raw, nil
}

// inSource finds the artifact of a source that has the text of a policy.
func (p *Programs) inSource(ctx context.Context, t *text, of client.Object, r v1alpha1.Rego) (policies.Text, error) {
	kind, key := r.SourceRef.Kind, types.NamespacedName{Namespace: cmp.Or(r.SourceRef.Namespace, of.GetNamespace()), Name: r.SourceRef.Name}
	switch {
	case of.GetNamespace() != "" && key.Namespace != of.GetNamespace():
		return policies.Text{}, invalid("sourceRef.namespace: the source of a Policy is in its own namespace, %s", of.GetNamespace())
	case key.Namespace == "":
		return policies.Text{}, invalid("sourceRef.namespace: a ClusterPolicy has no namespace, so its source needs one")
	}
	p.use(kind, key)
	a, err := sources.Artifact(ctx, p.reader, kind, key, provenance.Key{})
	if err != nil {
		return policies.Text{}, fmt.Errorf("sourceRef: %w", err)
	}
	if r.Digest != "" && a.Digest != r.Digest {
		return policies.Text{}, invalid("digest: the source %s %s has the artifact %s of the revision %s, and only %s may be used: change spec.rego.digest, or have the source follow the right revision",
			kind, key, a.Digest, a.Revision, r.Digest)
	}
	a.At = time.Time{} // the time is no part of the text
	t.artifact, t.below = &a, path.Join(a.Directory, r.Path)
	return t.found(), nil
}

// limits bound the archive of a policy.
var limits = archive.Limits{Entries: 10_000, Bytes: 64 << 20, File: 16 << 20}

// unpack reads the policies in a directory of an artifact.
func (p *Programs) unpack(ctx context.Context, a source.Artifact, below string, o rego.Options) (parts []rego.Part, err error) {
	file, err := p.artifacts.Get(ctx, a)
	if err != nil {
		return nil, err
	}
	tree, err := archive.OpenScratch(file, p.dir, limits)
	if err != nil {
		return nil, fmt.Errorf("unpacking the artifact of the revision %s: %w", a.Revision, err)
	}
	defer func() { err = errors.Join(err, tree.Close()) }()
	below = path.Clean("/" + below)[1:]
	if below == "" {
		below = "."
	}
	info, err := tree.Root.Stat(below)
	if err != nil || !info.IsDir() {
		return nil, invalid("path: the revision %s has no directory %s", a.Revision, below)
	}
	in, err := fs.Sub(tree.Root.FS(), below)
	if err != nil {
		return nil, err
	}
	return rego.Read(in, o)
}

func invalid(format string, args ...any) error {
	return fault.New(fault.Invalid, "PolicyInvalid", fmt.Errorf(format, args...))
}

func (p *Programs) use(kind string, key types.NamespacedName) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.used[kind+"/"+key.String()] = true
}

func (p *Programs) uses(kind string, obj client.Object) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.used[kind+"/"+client.ObjectKeyFromObject(obj).String()]
}
