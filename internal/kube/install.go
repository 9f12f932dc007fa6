package kube

import (
	"context"
	"fmt"
	"io/fs"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"
)

// establishTime bounds the wait until the API server serves a new definition.
const establishTime = time.Minute

// InstallDefinitions applies every CustomResourceDefinition in files and waits
// until the API server serves them. skip names definitions that are left to
// somebody else when they are there already.
func InstallDefinitions(ctx context.Context, c client.Client, files fs.FS, skip func(name string) bool) error {
	names, err := fs.Glob(files, "*.yaml")
	if err != nil {
		return err
	}
	var installed []string
	for _, name := range names {
		b, err := fs.ReadFile(files, name)
		if err != nil {
			return err
		}
		var u unstructured.Unstructured
		if err := yaml.Unmarshal(b, &u.Object); err != nil {
			return fmt.Errorf("reading %s: %w", name, err)
		}
		if skip(u.GetName()) {
			var there apiextensionsv1.CustomResourceDefinition
			if err := c.Get(ctx, types.NamespacedName{Name: u.GetName()}, &there); err == nil {
				continue
			} else if client.IgnoreNotFound(err) != nil {
				return mark(err, "CustomResourceDefinition", types.NamespacedName{Name: u.GetName()})
			}
		}
		if err := Apply(ctx, c, &u); err != nil {
			return err
		}
		installed = append(installed, u.GetName())
	}
	for _, name := range installed {
		if err := established(ctx, c, name); err != nil {
			return fmt.Errorf("waiting for the definition %s: %w", name, err)
		}
	}
	return nil
}

// Apply makes an object what u says, as far as u says anything.
func Apply(ctx context.Context, c client.Client, u *unstructured.Unstructured) error {
	key := client.ObjectKeyFromObject(u)
	return mark(c.Apply(ctx, client.ApplyConfigurationFromUnstructured(u), client.FieldOwner(FieldManager), client.ForceOwnership), u.GetKind(), key)
}

func established(ctx context.Context, c client.Client, name string) error {
	return wait.PollUntilContextTimeout(ctx, 50*time.Millisecond, establishTime, true, func(ctx context.Context) (bool, error) {
		var crd apiextensionsv1.CustomResourceDefinition
		if err := c.Get(ctx, types.NamespacedName{Name: name}, &crd); err != nil {
			return false, client.IgnoreNotFound(err)
		}
		for _, cond := range crd.Status.Conditions {
			if cond.Type == apiextensionsv1.Established {
				return string(cond.Status) == string(metav1.ConditionTrue), nil
			}
		}
		return false, nil
	})
}
