package command

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	tenantsv1 "github.com/terrier-iac/terrier/api/tenants/v1"
	"github.com/terrier-iac/terrier/internal/access"
	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/query"
)

// LynqImport is what the hubs and forms of Lynq are imported as. Nodes are not
// imported: the registry makes Tenants of the same names from the same rows.
type LynqImport struct {
	Objects []ImportedObject `json:"objects"` // registries before templates
	Nodes   int              `json:"nodes"`   // that exist now
}

// ImportedObject is an object that is made from one of Lynq's.
type ImportedObject struct {
	From   string         `json:"from"` // kind, namespace and name
	Object map[string]any `json:"object"`
	Notes  []string       `json:"notes,omitempty"` // what is different, or was not imported
}

// ImportLynq reads the hubs and forms of a namespace, or of all of them, and
// converts them. It writes nothing. Registries are suspended, so that they begin
// when a user resumes them.
func (t *Tenants) ImportLynq(ctx context.Context, namespace string) (LynqImport, error) {
	var out LynqImport
	for _, kind := range []struct {
		name    string
		convert func(*unstructured.Unstructured) ImportedObject
	}{{access.LynqHub, convertHub}, {access.LynqForm, convertForm}} {
		list, err := t.lynq(ctx, kind.name, namespace)
		if err != nil {
			return out, err
		}
		for i := range list {
			out.Objects = append(out.Objects, kind.convert(&list[i]))
		}
	}
	nodes, err := t.lynq(ctx, access.LynqNode, namespace)
	if err != nil {
		return out, err
	}
	out.Nodes = len(nodes)
	out.check()
	return out, nil
}

// lynq lists the objects of one of Lynq's kinds, by namespace and name.
func (t *Tenants) lynq(ctx context.Context, kind, namespace string) ([]unstructured.Unstructured, error) {
	var list unstructured.UnstructuredList
	list.SetGroupVersionKind(access.LynqGroup.WithKind(kind + "List"))
	err := access.Fault(t.Kube.List(ctx, &list, client.InNamespace(namespace)), "objects of the kind "+kind)
	if fault.Reason(err, "") == access.ReasonNotInstalled {
		return nil, fault.New(fault.Missing, query.ReasonNoLynq, fmt.Errorf("this cluster does not know the kind %s of %s", kind, access.LynqGroup.Group))
	}
	if err != nil {
		return nil, err
	}
	slices.SortFunc(list.Items, func(a, b unstructured.Unstructured) int {
		return cmp.Or(cmp.Compare(a.GetNamespace(), b.GetNamespace()), cmp.Compare(a.GetName(), b.GetName()))
	})
	return list.Items, nil
}

// Manifest is the import as YAML, with its notes as comments.
func (i LynqImport) Manifest() ([]byte, error) {
	var b bytes.Buffer
	for _, o := range i.Objects {
		fmt.Fprintf(&b, "---\n# from %s\n", o.From)
		for _, note := range o.Notes {
			fmt.Fprintf(&b, "# ! %s\n", strings.Join(strings.Fields(note), " "))
		}
		raw, err := yaml.Marshal(o.Object)
		if err != nil {
			return nil, fmt.Errorf("writing %s: %w", o.From, err)
		}
		b.Write(raw)
	}
	return b.Bytes(), nil
}

// WriteImport creates the objects of an import. One that exists already stays as it
// is, and is an error.
func (t *Tenants) WriteImport(ctx context.Context, i LynqImport) error {
	var errs []error
	for _, o := range i.Objects {
		object := &unstructured.Unstructured{Object: o.Object}
		what := object.GetKind() + " " + object.GetNamespace() + "/" + object.GetName()
		errs = append(errs, query.TenantsFault(t.Kube.Create(ctx, object.DeepCopy(), client.FieldOwner(access.FieldManager)), what))
	}
	return errors.Join(errs...)
}

// imported is the frame of an object that is made from one of Lynq's.
func imported(from *unstructured.Unstructured, kind string, spec map[string]any, notes []string) ImportedObject {
	meta := map[string]any{"name": from.GetName(), "namespace": from.GetNamespace()}
	for name, all := range map[string]map[string]string{"labels": from.GetLabels(), "annotations": from.GetAnnotations()} {
		kept := map[string]any{}
		for k, v := range all {
			if !strings.Contains(k, "lynq.sh/") && !strings.HasPrefix(k, "kubectl.kubernetes.io/") && !strings.HasPrefix(k, "helm.sh/") && !strings.HasPrefix(k, "meta.helm.sh/") {
				kept[k] = v
			}
		}
		if len(kept) > 0 {
			meta[name] = kept
		}
	}
	return ImportedObject{
		From:   from.GetKind() + " " + from.GetNamespace() + "/" + from.GetName(),
		Object: map[string]any{"apiVersion": tenantsv1.GroupVersion.String(), "kind": kind, "metadata": meta, "spec": spec},
		Notes:  notes,
	}
}
