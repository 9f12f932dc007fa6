// Package interpreter asks policies that are written in Rego: it finds their text in objects
// and in artifacts of sources, compiles it once, and makes their input of what is known of a
// stack and its plan. It decides nothing.
//
// Start reading at Programs.Compile and Programs.Judge.
package interpreter

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"strings"
	"sync"

	sourcev1 "github.com/fluxcd/source-controller/api/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/terrier-iac/terrier/api/policy/v1alpha1"
	"github.com/terrier-iac/terrier/internal/archive"
	"github.com/terrier-iac/terrier/internal/cache"
	"github.com/terrier-iac/terrier/internal/controller/policies"
	"github.com/terrier-iac/terrier/internal/dialect"
	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/review/rego"
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

	compiled rego.Cache
	unpacked cache.Map[string, []rego.Part] // by artifact, directory and options
	judge    *rego.Judge

	mu   sync.Mutex
	used map[string]bool // sources that policies name, by kind and key
}

var _ policies.Programs = (*Programs)(nil)

// New returns Programs that read sources and tenants with reader, and unpack artifacts below dir.
func New(reader client.Reader, dialects dialect.Registry, artifacts Artifacts, records Records, dir string) *Programs {
	return &Programs{reader: reader, dialects: dialects, artifacts: artifacts, records: records, dir: dir, judge: rego.NewJudge(), used: map[string]bool{}}
}

// program is a compiled policy.
type program struct {
	sets       []*rego.Set
	weave      []*rego.WeavePolicy // of each set; nil of others
	parameters []any               // of each set
}

// Compile implements policies.Programs.
func (p *Programs) Compile(ctx context.Context, of client.Object, r v1alpha1.Rego) (policies.Program, string, error) {
	parameters, raw, err := parametersOf(r)
	if err != nil {
		return nil, "", err
	}
	parts, err := p.parts(ctx, of, r)
	if err != nil {
		return nil, "", err
	}
	out := &program{}
	digests := []any{string(raw)}
	for _, part := range parts {
		set, err := p.compiled.Compile(ctx, part.Source)
		if err != nil {
			return nil, "", err
		}
		given := parameters
		if part.Weave != nil {
			given = part.Parameters
			digests = append(digests, part.Weave.Spec, part.Parameters)
		}
		out.sets, out.weave, out.parameters = append(out.sets, set), append(out.weave, part.Weave), append(out.parameters, given)
		digests = append(digests, set.Digest())
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

// parts finds the text of a policy.
func (p *Programs) parts(ctx context.Context, of client.Object, r v1alpha1.Rego) ([]rego.Part, error) {
	o := rego.Options{Format: rego.Format(cmp.Or(r.Format, string(rego.Terrier))), Namespaces: r.Namespaces}
	if r.SourceRef == nil {
		if r.Digest != "" {
			return nil, invalid("digest: it is that of the artifact of a source, and there is no sourceRef")
		}
		modules := map[string]string{}
		for name, text := range r.Modules {
			if !strings.HasSuffix(name, ".rego") {
				name += ".rego"
			}
			modules[name] = text
		}
		return []rego.Part{{Source: rego.Source{Format: o.Format, Namespaces: o.Namespaces, Modules: modules}}}, nil
	}
	key := types.NamespacedName{Namespace: cmp.Or(r.SourceRef.Namespace, of.GetNamespace()), Name: r.SourceRef.Name}
	switch {
	case of.GetNamespace() != "" && key.Namespace != of.GetNamespace():
		return nil, invalid("sourceRef.namespace: the source of a Policy is in its own namespace, %s", of.GetNamespace())
	case key.Namespace == "":
		return nil, invalid("sourceRef.namespace: a ClusterPolicy has no namespace, so its source needs one")
	}
	p.use(r.SourceRef.Kind, key)
	a, err := p.artifact(ctx, r.SourceRef.Kind, key)
	if err != nil {
		return nil, err
	}
	if r.Digest != "" && a.Digest != r.Digest {
		return nil, invalid("digest: the source %s %s has the artifact %s of the revision %s, and only %s may be used: change spec.rego.digest, or have the source follow the right revision",
			r.SourceRef.Kind, key, a.Digest, a.Revision, r.Digest)
	}
	below := path.Join(a.Directory, r.Path)
	return p.unpacked.Load(ctx, stack.Digest([]any{a.Digest, below, o}), func(ctx context.Context) ([]rego.Part, error) { return p.unpack(ctx, a, below, o) })
}

// artifact is what the source has now. A source that cannot be reached keeps its last
// artifact, which counts until there is a newer one.
func (p *Programs) artifact(ctx context.Context, kind string, key types.NamespacedName) (source.Artifact, error) {
	obj, err := sourceOf(kind)
	if err != nil {
		return source.Artifact{}, err
	}
	if err := p.reader.Get(ctx, key, obj); err != nil {
		if client.IgnoreNotFound(err) == nil {
			err = fault.New(fault.Missing, "", fmt.Errorf("sourceRef: %s %s does not exist", kind, key))
		}
		return source.Artifact{}, err
	}
	a := obj.GetArtifact()
	if a == nil {
		return source.Artifact{}, fault.New(fault.Missing, "", fmt.Errorf("sourceRef: %s %s is not ready: it has no artifact", kind, key))
	}
	out := source.Artifact{URL: a.URL, Revision: a.Revision, Digest: a.Digest, Directory: a.Metadata[source.DirectoryFound]}
	if a.Size != nil {
		out.Size = *a.Size
	}
	return out, nil
}

// sourceObject is a source of any kind.
type sourceObject interface {
	client.Object
	sourcev1.Source
}

func sourceOf(kind string) (sourceObject, error) {
	switch kind {
	case sourcev1.GitRepositoryKind:
		return &sourcev1.GitRepository{}, nil
	case sourcev1.OCIRepositoryKind:
		return &sourcev1.OCIRepository{}, nil
	case sourcev1.BucketKind:
		return &sourcev1.Bucket{}, nil
	default:
		return nil, invalid("sourceRef.kind: %q is none of GitRepository, OCIRepository and Bucket", kind)
	}
}

// limits bound the archive of a policy.
var limits = archive.Limits{Entries: 10_000, Bytes: 64 << 20, File: 16 << 20}

// unpack reads the policies in a directory of an artifact.
func (p *Programs) unpack(ctx context.Context, a source.Artifact, below string, o rego.Options) (parts []rego.Part, err error) {
	file, err := p.artifacts.Get(ctx, a)
	if err != nil {
		return nil, err
	}
	f, err := os.Open(file)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if err := os.MkdirAll(p.dir, 0o700); err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp(p.dir, "policy-")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	if err := archive.Extract(f, dir, limits); err != nil {
		return nil, fmt.Errorf("unpacking the artifact of the revision %s: %w", a.Revision, err)
	}
	root, err := os.OpenRoot(dir) // no link of the archive leads out of it
	if err != nil {
		return nil, err
	}
	defer root.Close()
	below = path.Clean("/" + below)[1:]
	if below == "" {
		below = "."
	}
	info, err := root.Stat(below)
	if err != nil || !info.IsDir() {
		return nil, invalid("path: the revision %s has no directory %s", a.Revision, below)
	}
	in, err := fs.Sub(root.FS(), below)
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
