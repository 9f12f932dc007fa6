package aftersteps

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"github.com/terrier-iac/terrier/internal/afterapply"
	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/kube"
	"github.com/terrier-iac/terrier/internal/stack"
)

// targetsLabel is on ConfigMaps and ScrapeConfigs with targets, by which a monitoring finds them.
// targetsOf is on ScrapeConfigs, and has the UID of their stack.
const (
	targetsLabel = "terrier.dev/targets"
	targetsOf    = "terrier.dev/targets-of"
)

// targetsName is the ConfigMap with the targets of a stack.
func targetsName(owner client.Object) string { return owner.GetName() + "-targets" }

// HasTargets reports whether any step is about targets of a monitoring.
func HasTargets(steps []afterapply.Step) bool {
	return slices.ContainsFunc(steps, func(s afterapply.Step) bool { return s.Targets != nil })
}

// WriteTargets writes the targets of those steps that succeeded into the ConfigMap of the
// stack, one key for each. Those of a step that did not are left as they were, and those of a
// step that is gone are removed. It refuses a ConfigMap that is not the stack's.
func WriteTargets(ctx context.Context, c client.Client, owner client.Object, steps []afterapply.Step, outputs map[string]kube.Output, results []stack.StepResult) error {
	values := valuesOf(outputs)
	is := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: owner.GetNamespace(), Name: targetsName(owner)}}
	err := c.Get(ctx, client.ObjectKeyFromObject(is), is)
	there := err == nil
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("reading the ConfigMap %s with targets: %w", targetsName(owner), err)
	}
	if there && !metav1.IsControlledBy(is, owner) {
		return fault.New(fault.Denied, "TargetsOwned", fmt.Errorf("the ConfigMap %s is not of this stack, so its targets are not written there: delete it, or give the stack another name", targetsName(owner)))
	}
	before := is.DeepCopy()
	data := map[string]string{}
	for _, s := range steps {
		if s.Targets == nil {
			continue
		}
		key := s.Name + ".json"
		if old, ok := is.Data[key]; ok {
			data[key] = old
		}
		if !slices.ContainsFunc(results, func(r stack.StepResult) bool { return r.Name == s.Name && r.State == stack.StepSucceeded }) {
			continue
		}
		g, err := s.Given(values)
		if err != nil {
			return fault.New(fault.Invalid, "", fmt.Errorf("the step %s: %w", s.Name, err))
		}
		data[key] = string(g.Targets)
	}
	is.Data, is.BinaryData = data, nil
	if is.Labels == nil {
		is.Labels = map[string]string{}
	}
	is.Labels[targetsLabel] = "true"
	if err := controllerutil.SetControllerReference(owner, is, c.Scheme()); err != nil {
		return fmt.Errorf("naming the owner of the targets: %w", err)
	}
	switch {
	case !there:
		err = c.Create(ctx, is, client.FieldOwner(kube.FieldManager))
	case maps.Equal(before.Data, is.Data) && maps.Equal(before.Labels, is.Labels):
	default:
		err = c.Update(ctx, is, client.FieldOwner(kube.FieldManager))
	}
	if err != nil {
		return fmt.Errorf("writing the ConfigMap %s with targets: %w", targetsName(owner), err)
	}
	return writeScrapes(ctx, c, owner, steps, data)
}

// scrapeKind is the kind of the operator of Prometheus that has targets.
var scrapeKind = schema.GroupVersionKind{Group: "monitoring.coreos.com", Version: "v1alpha1", Kind: "ScrapeConfig"}

// scrapeName is the ScrapeConfig of a step.
func scrapeName(owner client.Object, step string) string { return owner.GetName() + "-" + step }

// writeScrapes writes a ScrapeConfig for each step that asks for one, with the targets in data,
// and removes those of other steps. A kind that is not served is an error only if a step asks.
func writeScrapes(ctx context.Context, c client.Client, owner client.Object, steps []afterapply.Step, data map[string]string) error {
	wanted := map[string]*unstructured.Unstructured{}
	for _, s := range steps {
		if s.Targets == nil || s.Targets.ScrapeConfig == nil || data[s.Name+".json"] == "" {
			continue
		}
		o, err := scrapeOf(owner, s, data[s.Name+".json"])
		if err == nil {
			err = controllerutil.SetControllerReference(owner, o, c.Scheme())
		}
		if err != nil {
			return fmt.Errorf("making the ScrapeConfig of the step %s: %w", s.Name, err)
		}
		wanted[o.GetName()] = o
	}
	served, err := servesScrapes(c)
	switch {
	case err != nil:
		return err
	case !served && len(wanted) > 0:
		return notServed()
	case !served:
		return nil
	}
	if err := removeScrapes(ctx, c, owner, wanted); err != nil && (len(wanted) > 0 || !apierrors.IsForbidden(err)) {
		return err
	}
	for _, name := range slices.Sorted(maps.Keys(wanted)) {
		if err := writeScrape(ctx, c, owner, wanted[name]); err != nil {
			return err
		}
	}
	return nil
}

// notServed is the error of a step that asks for a ScrapeConfig where there is no such kind.
func notServed() error {
	return fault.New(fault.Denied, "ScrapeConfigNotServed", errors.New("the cluster has no kind ScrapeConfig (monitoring.coreos.com/v1alpha1), which a step asks for: install the operator of Prometheus, or remove scrapeConfig. The ConfigMap has the targets"))
}

// scrapeOf is the ScrapeConfig of a step.
func scrapeOf(owner client.Object, s afterapply.Step, targets string) (*unstructured.Unstructured, error) {
	var groups []any
	if err := json.Unmarshal([]byte(targets), &groups); err != nil {
		return nil, err
	}
	spec := map[string]any{"staticConfigs": groups}
	if p := s.Targets.ScrapeConfig.Path; p != "" {
		spec["metricsPath"] = p
	}
	if scheme := s.Targets.ScrapeConfig.Scheme; scheme != "" {
		spec["scheme"] = scheme
	}
	o := &unstructured.Unstructured{Object: map[string]any{"spec": spec}}
	o.SetGroupVersionKind(scrapeKind)
	o.SetNamespace(owner.GetNamespace())
	o.SetName(scrapeName(owner, s.Name))
	labels := maps.Clone(s.Targets.ScrapeConfig.Labels)
	if labels == nil {
		labels = map[string]string{}
	}
	labels[targetsLabel], labels[targetsOf] = "true", string(owner.GetUID())
	o.SetLabels(labels)
	return o, nil
}

func writeScrape(ctx context.Context, c client.Client, owner client.Object, o *unstructured.Unstructured) error {
	is := &unstructured.Unstructured{}
	is.SetGroupVersionKind(scrapeKind)
	err := c.Get(ctx, client.ObjectKeyFromObject(o), is)
	switch {
	case apierrors.IsNotFound(err):
		err = c.Create(ctx, o, client.FieldOwner(kube.FieldManager))
	case err != nil:
	case !metav1.IsControlledBy(is, owner):
		return fault.New(fault.Denied, "TargetsOwned", fmt.Errorf("the ScrapeConfig %s is not of this stack, so its targets are not written there: delete it, or give the step another name", o.GetName()))
	case equality.Semantic.DeepEqual(is.Object["spec"], o.Object["spec"]) && maps.Equal(is.GetLabels(), o.GetLabels()):
	default:
		o.SetResourceVersion(is.GetResourceVersion())
		err = c.Update(ctx, o, client.FieldOwner(kube.FieldManager))
	}
	if apierrors.IsNotFound(err) || meta.IsNoMatchError(err) {
		return notServed()
	}
	if err != nil {
		return fmt.Errorf("writing the ScrapeConfig %s: %w", o.GetName(), err)
	}
	return nil
}

// removeScrapes removes the ScrapeConfigs of a stack that are not wanted.
func removeScrapes(ctx context.Context, c client.Client, owner client.Object, wanted map[string]*unstructured.Unstructured) error {
	list := &unstructured.UnstructuredList{}
	list.SetGroupVersionKind(scrapeKind.GroupVersion().WithKind(scrapeKind.Kind + "List"))
	if err := c.List(ctx, list, client.InNamespace(owner.GetNamespace()), client.MatchingLabels{targetsOf: string(owner.GetUID())}); apierrors.IsNotFound(err) || meta.IsNoMatchError(err) {
		return nil // the kind was removed from the cluster, and its objects with it
	} else if err != nil {
		return fmt.Errorf("listing the ScrapeConfigs of the stack: %w", err)
	}
	for i := range list.Items {
		o := &list.Items[i]
		if wanted[o.GetName()] != nil || !metav1.IsControlledBy(o, owner) {
			continue
		}
		if err := c.Delete(ctx, o); client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("removing the ScrapeConfig %s: %w", o.GetName(), err)
		}
	}
	return nil
}

// servesScrapes reports whether the cluster has the kind.
func servesScrapes(c client.Client) (bool, error) {
	_, err := c.RESTMapper().RESTMapping(scrapeKind.GroupKind(), scrapeKind.Version)
	if meta.IsNoMatchError(err) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("asking for the kind ScrapeConfig: %w", err)
	}
	return true, nil
}

// RemoveTargets removes the ConfigMap with the targets of a stack, if it is the stack's, and its
// ScrapeConfigs, if steps had any.
func RemoveTargets(ctx context.Context, c client.Client, owner client.Object, steps []afterapply.Step) error {
	served, err := servesScrapes(c)
	if err == nil && served {
		err = removeScrapes(ctx, c, owner, nil)
	}
	asked := slices.ContainsFunc(steps, func(s afterapply.Step) bool { return s.Targets != nil && s.Targets.ScrapeConfig != nil })
	if err != nil && (asked || !apierrors.IsForbidden(err)) { // without the right nothing was written, either
		return err
	}

	is := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: owner.GetNamespace(), Name: targetsName(owner)}}
	err = c.Get(ctx, client.ObjectKeyFromObject(is), is)
	if err == nil && metav1.IsControlledBy(is, owner) {
		err = c.Delete(ctx, is)
	}
	if apierrors.IsNotFound(err) || err == nil {
		return nil
	}
	return fmt.Errorf("removing the ConfigMap %s with targets: %w", targetsName(owner), err)
}
