package aftersteps

import (
	"context"
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"github.com/terrier-iac/terrier/internal/afterapply"
	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/kube"
	"github.com/terrier-iac/terrier/internal/stack"
)

// targetsLabel is on ConfigMaps with targets, by which a monitoring finds them.
const targetsLabel = "terrier.dev/targets"

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
		return nil
	default:
		err = c.Update(ctx, is, client.FieldOwner(kube.FieldManager))
	}
	if err != nil {
		return fmt.Errorf("writing the ConfigMap %s with targets: %w", targetsName(owner), err)
	}
	return nil
}

// RemoveTargets removes the ConfigMap with the targets of a stack, if it is the stack's.
func RemoveTargets(ctx context.Context, c client.Client, owner client.Object) error {
	is := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: owner.GetNamespace(), Name: targetsName(owner)}}
	err := c.Get(ctx, client.ObjectKeyFromObject(is), is)
	if err == nil && metav1.IsControlledBy(is, owner) {
		err = c.Delete(ctx, is)
	}
	if apierrors.IsNotFound(err) || err == nil {
		return nil
	}
	return fmt.Errorf("removing the ConfigMap %s with targets: %w", targetsName(owner), err)
}
