package situation

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"github.com/terrier-iac/terrier/internal/access"
	"github.com/terrier-iac/terrier/internal/plan"
	"github.com/terrier-iac/terrier/internal/plural"
)

// Object is one object of Flux.
type Object struct {
	Kind, Namespace, Name string
	Ready                 string // True, False or Unknown
	Reason, Message       string
	Revision              string
	Since                 time.Time
	Suspended             bool
}

// Listed are the objects that a user may list.
type Listed struct {
	Objects []Object
	Denied  []string // kinds that the user may list in no namespace
}

// fluxKinds are those that "flux get all" shows and that reconcile something. A cluster may
// have some of them, or none.
var fluxKinds = []schema.GroupVersionKind{
	{Group: "source.toolkit.fluxcd.io", Version: "v1", Kind: "GitRepository"},
	{Group: "source.toolkit.fluxcd.io", Version: "v1", Kind: "OCIRepository"},
	{Group: "source.toolkit.fluxcd.io", Version: "v1", Kind: "Bucket"},
	{Group: "source.toolkit.fluxcd.io", Version: "v1", Kind: "HelmRepository"},
	{Group: "source.toolkit.fluxcd.io", Version: "v1", Kind: "HelmChart"},
	{Group: "kustomize.toolkit.fluxcd.io", Version: "v1", Kind: "Kustomization"},
	{Group: "helm.toolkit.fluxcd.io", Version: "v2", Kind: "HelmRelease"},
}

// Bounds on what is listed of one kind.
const (
	fluxPage       = 500
	fluxNamespaces = 50 // that are asked one by one, if the user may not list all
)

// FluxObjects lists the objects of Flux with the rights of one user.
type FluxObjects struct{ objects dynamic.Interface }

// NewFluxObjects lists as the user of a configuration.
func NewFluxObjects(config *rest.Config) (*FluxObjects, error) {
	objects, err := dynamic.NewForConfig(config)
	return &FluxObjects{objects}, err
}

// List implements Objects: all kinds at once. A user who may not list a kind in all namespaces
// gets those of the namespaces in scope.
func (f *FluxObjects) List(ctx context.Context, scope access.Scope) (Listed, error) {
	found := make([]Listed, len(fluxKinds))
	errs := make([]error, len(fluxKinds))
	var all sync.WaitGroup
	for i, kind := range fluxKinds {
		all.Go(func() { found[i], errs[i] = f.kind(ctx, kind, scope) })
	}
	all.Wait()
	var out Listed
	for i, err := range errs {
		if err != nil {
			return out, err
		}
		out.Objects = append(out.Objects, found[i].Objects...)
		out.Denied = append(out.Denied, found[i].Denied...)
	}
	return out, nil
}

func (f *FluxObjects) kind(ctx context.Context, kind schema.GroupVersionKind, scope access.Scope) (Listed, error) {
	resource, _ := meta.UnsafeGuessKindToResource(kind)
	objects, err := f.all(ctx, resource, "")
	switch {
	case apierrors.IsNotFound(err):
		return Listed{}, nil
	case err == nil:
		return Listed{Objects: objects}, nil
	case !apierrors.IsForbidden(err):
		return Listed{}, access.Fault(err, resource.Resource)
	}
	out, allowed := Listed{}, false
	for _, namespace := range slices.Sorted(maps.Keys(scope.In))[:min(len(scope.In), fluxNamespaces)] {
		objects, err := f.all(ctx, resource, namespace)
		switch {
		case apierrors.IsForbidden(err), apierrors.IsNotFound(err):
			continue
		case err != nil:
			return Listed{}, access.Fault(err, resource.Resource)
		}
		allowed = true
		out.Objects = append(out.Objects, objects...)
	}
	if !allowed {
		out.Denied = []string{kind.Kind}
	}
	return out, nil
}

func (f *FluxObjects) all(ctx context.Context, resource schema.GroupVersionResource, namespace string) ([]Object, error) {
	var out []Object
	options := metav1.ListOptions{Limit: fluxPage}
	for {
		list, err := f.objects.Resource(resource).Namespace(namespace).List(ctx, options)
		if err != nil {
			return nil, err
		}
		for i := range list.Items {
			out = append(out, objectOf(&list.Items[i]))
		}
		if options.Continue = list.GetContinue(); options.Continue == "" {
			return out, nil
		}
	}
}

// objectOf reads what all kinds of Flux have. A field of another type counts as absent: other
// controllers write these objects.
func objectOf(u *unstructured.Unstructured) Object {
	o := Object{Kind: u.GetKind(), Namespace: u.GetNamespace(), Name: u.GetName(), Ready: string(metav1.ConditionUnknown)}
	o.Suspended, _, _ = unstructured.NestedBool(u.Object, "spec", "suspend")
	for _, path := range [][]string{{"status", "artifact", "revision"}, {"status", "lastAppliedRevision"}, {"status", "lastAttemptedRevision"}} {
		if revision, ok, _ := unstructured.NestedString(u.Object, path...); ok && o.Revision == "" {
			o.Revision = revision
		}
	}
	conditions, _, _ := unstructured.NestedSlice(u.Object, "status", "conditions")
	for _, c := range conditions {
		is, _ := c.(map[string]any)
		if is["type"] != "Ready" {
			continue
		}
		text := func(name string) string { s, _ := is[name].(string); return s }
		o.Ready, o.Reason = text("status"), text("reason")
		o.Message, _ = plan.MaskURLs(text("message"))
		o.Since, _ = time.Parse(time.RFC3339, text("lastTransitionTime"))
	}
	return o
}

func (a Asked) flux(ctx context.Context) Part {
	if a.Flux == nil {
		return Part{Name: Flux, Level: Unused, Text: "This server reads no objects of Flux"}
	}
	listed, err := a.Flux.List(ctx, a.Scope)
	if err != nil {
		return unanswered(Flux, err)
	}
	p := Part{Name: Flux, Level: Good}
	counts := map[string]int{}
	for _, o := range listed.Objects {
		counts[o.Kind]++
		if item, ok := o.item(); ok {
			p.Items = append(p.Items, item)
		}
	}
	var words []string
	for _, kind := range fluxKinds {
		if n := counts[kind.Kind]; n > 0 {
			words = append(words, plural.Count(n, kind.Kind))
		}
	}
	switch p.Text = strings.Join(words, ", "); {
	case len(words) > 0 && len(p.Items) == 0:
		p.Text += ": all ready"
	case len(words) == 0 && len(listed.Denied) == 0:
		p.Level, p.Text = Unused, "There is no object of Flux"
	case len(words) == 0:
		p.Level, p.Text = Unused, "No object of Flux that you may list"
	}
	if len(listed.Denied) > 0 && len(words) > 0 {
		p.Text += ". You may not list: " + strings.Join(listed.Denied, ", ")
	}
	return p
}

// item is an object that is not ready. One that was suspended on purpose, and one that is not
// reconciled yet, deserve attention.
func (o Object) item() (Item, bool) {
	i := Item{Kind: o.Kind, Namespace: o.Namespace, Name: o.Name, Message: o.Message, Since: o.Since, Next: fmt.Sprintf("kubectl describe %s %s -n %s", strings.ToLower(o.Kind), o.Name, o.Namespace)}
	switch {
	case o.Suspended:
		i.Level, i.Status, i.Next = Attention, "suspended", ""
	case o.Ready == string(metav1.ConditionFalse):
		i.Level, i.Status = Bad, "not ready"
	case o.Ready != string(metav1.ConditionTrue):
		i.Level, i.Status = Attention, "reconciling"
	default:
		return i, false
	}
	if o.Reason != "" {
		i.Status += ": " + o.Reason
	}
	return i, true
}
