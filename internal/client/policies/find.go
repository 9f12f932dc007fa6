package policies

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/terrier-iac/terrier/api/policy/v1alpha1"
	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/review/rego"
	"github.com/terrier-iac/terrier/policies"
)

// text is a policy as it was found, before it is compiled.
type text struct {
	name       string // how its findings call it
	namespace  string // of a Policy; empty of others
	programs   []rego.Part
	parameters any
	spec       *v1alpha1.PolicySpec // of a manifest; nil of others
}

// find reads the text of policies.
func find(where string, o Options) ([]text, error) {
	read := func(dir fs.FS, name string) ([]text, error) {
		parts, err := rego.Read(dir, o.read())
		return []text{{name: name, programs: parts, parameters: o.Parameters}}, err
	}
	info, err := os.Stat(where)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		name := filepath.Base(where)
		if dir, ok := policies.Named(name); ok {
			return read(dir, name)
		}
		return nil, unknown(name)
	case err != nil:
		return nil, err
	case info.IsDir():
		return read(os.DirFS(where), filepath.Base(where))
	case info.Size() > fileBytes:
		return nil, invalid("%s is larger than %d MiB", where, fileBytes>>20)
	}
	b, err := os.ReadFile(where)
	if err != nil {
		return nil, err
	}
	name := filepath.Base(where)
	switch {
	case filepath.Ext(where) == ".rego":
		return []text{{name: name, programs: []rego.Part{{Source: o.source(map[string]string{name: string(b)})}}, parameters: o.Parameters}}, nil
	case o.Format == string(rego.Weave):
		parts, err := rego.ReadWeaveFile(name, b)
		return []text{{name: name, programs: parts}}, err
	default:
		return fromManifests(b, o)
	}
}

func unknown(name string) error {
	return fault.New(fault.Missing, "PolicyMissing", fmt.Errorf("%s is no directory and no file, and no policy of that name comes with Terrier; these do: %s", name, strings.Join(policies.Names(), ", ")))
}

// source is a policy that is no directory.
func (o Options) source(modules map[string]string) rego.Source {
	r := o.read()
	return rego.Source{Format: r.Format, Version: r.Version, Namespaces: r.Namespaces, Modules: modules}
}

func invalid(format string, args ...any) error {
	return fault.New(fault.Invalid, "PolicyInvalid", fmt.Errorf(format, args...))
}

// manifest is a ClusterPolicy or a Policy.
type manifest struct {
	metav1.TypeMeta `json:",inline"`
	Metadata        metav1.ObjectMeta   `json:"metadata"`
	Spec            v1alpha1.PolicySpec `json:"spec"`
	Status          any                 `json:"status"`
}

// fromManifests reads the policies of a file. Other objects in it are passed over.
func fromManifests(b []byte, o Options) ([]text, error) {
	var out []text
	var others []string
	for _, doc := range bytes.Split(append([]byte("\n"), b...), []byte("\n---")) {
		var is metav1.TypeMeta
		if err := yaml.Unmarshal(doc, &is); err != nil {
			return nil, invalid("reading the manifest of a policy: %w", err)
		}
		switch {
		case len(bytes.TrimSpace(doc)) == 0:
			continue
		case is.GroupVersionKind().Group != v1alpha1.GroupVersion.Group || is.Kind != v1alpha1.ClusterPolicyKind && is.Kind != v1alpha1.PolicyKind:
			others = append(others, strings.TrimSpace(is.APIVersion+" "+is.Kind))
			continue
		}
		var of manifest
		if err := yaml.UnmarshalStrict(doc, &of); err != nil { // the API server would drop a field that it does not know
			return nil, invalid("reading the manifest of a policy: %w", err)
		}
		t, err := of.text(o)
		if err != nil {
			return nil, err
		}
		out = append(out, t)
	}
	if len(out) == 0 {
		return nil, invalid("the file has neither a ClusterPolicy nor a Policy of %s: it has %s", v1alpha1.GroupVersion.Group, cmp.Or(strings.Join(others, ", "), "no object"))
	}
	return out, nil
}

// text is the policy of a manifest with its program.
func (m manifest) text(o Options) (text, error) {
	t := text{name: m.Kind + "/" + m.Metadata.Name, spec: &m.Spec}
	if m.Kind == v1alpha1.PolicyKind {
		t.namespace = cmp.Or(m.Metadata.Namespace, "default")
		t.name = m.Kind + "/" + t.namespace + "/" + m.Metadata.Name
	}
	r := m.Spec.Rego
	switch {
	case r == nil && m.Spec.Guards == nil && m.Spec.Drift == nil:
		return t, invalid("%s: the policy says nothing: set spec.guards, spec.rego or spec.drift", t.name)
	case r == nil:
		return t, nil
	}
	o.Format, o.Namespaces = cmp.Or(o.Format, r.Format), append(o.Namespaces, r.Namespaces...)
	if t.parameters = o.Parameters; t.parameters == nil && r.Parameters != nil {
		var err error
		if t.parameters, err = Parameters(r.Parameters.Raw); err != nil {
			return t, err
		}
	}
	if r.SourceRef == nil {
		t.programs = []rego.Part{{Source: o.source(r.Modules)}}
		return t, nil
	}
	if o.Source == "" {
		return t, invalid("%s: spec.rego.sourceRef: the program is in a source: add --source with the directory of the files of that source", t.name)
	}
	dir := filepath.Join(o.Source, filepath.FromSlash(path.Clean("/"+r.Path)))
	if info, err := os.Stat(dir); err != nil || !info.IsDir() {
		return t, invalid("%s: spec.rego.path: there is no directory %s", t.name, dir)
	}
	var err error
	t.programs, err = rego.Read(os.DirFS(dir), o.read())
	return t, err
}
