package kube

import (
	"context"
	"fmt"
	"io/fs"
	"slices"
	"strings"
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
// until the API server serves them. Those of the group shared belong to whoever
// installed them first: if that was somebody else they are left alone.
func InstallDefinitions(ctx context.Context, c client.Client, files fs.FS, shared string) error {
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
		if strings.HasSuffix(u.GetName(), "."+shared) {
			theirs, err := foreign(ctx, c, u.GetName())
			if err != nil {
				return err
			}
			if theirs {
				continue
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

// foreign reports whether somebody else installed a definition.
func foreign(ctx context.Context, c client.Client, name string) (bool, error) {
	key := types.NamespacedName{Name: name}
	var there apiextensionsv1.CustomResourceDefinition
	err := c.Get(ctx, key, &there)
	if client.IgnoreNotFound(err) != nil {
		return false, mark(err, "CustomResourceDefinition", key)
	}
	ours := slices.ContainsFunc(there.ManagedFields, func(m metav1.ManagedFieldsEntry) bool { return m.Manager == FieldManager })
	return err == nil && !ours, nil
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
