package kube

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/stack"
)

// establishTime bounds the wait until the API server serves a new definition.
const establishTime = time.Minute

// busyTime is how long an API server that is busy is asked again, and busyPause how often.
const (
	busyTime  = time.Minute
	busyPause = 250 * time.Millisecond
)

// InstallDefinitions applies every CustomResourceDefinition in files and waits
// until the API server serves them. Definitions of a group in shared belong to
// their first installer: those that another program installed are left alone.
func InstallDefinitions(ctx context.Context, c client.Client, files fs.FS, shared ...string) error {
	all, err := readDefinitions(files)
	if err != nil {
		return err
	}
	for _, u := range all {
		_, group, _ := strings.Cut(u.GetName(), ".")
		if slices.Contains(shared, group) {
			theirs, err := Foreign(ctx, c, u.GetName())
			if err != nil {
				return err
			}
			if theirs {
				continue
			}
		}
		if err := ApplyOnce(ctx, c, u); err != nil {
			return err
		}
	}
	return AwaitDefinitions(ctx, c, files)
}

// annotationApplied is the digest of what ApplyOnce applied last.
const annotationApplied = "terrier.dev/applied"

// ApplyOnce gives an object the fields of u, unless an earlier apply did and no other
// program has changed any of them. Each start would write all definitions otherwise.
func ApplyOnce(ctx context.Context, c client.Client, u *unstructured.Unstructured) error {
	text, err := u.MarshalJSON()
	if err != nil {
		return fmt.Errorf("encoding %s %s: %w", u.GetKind(), u.GetName(), err)
	}
	digest := stack.Sum(text)
	annotations := u.GetAnnotations()
	if annotations == nil {
		annotations = map[string]string{}
	}
	annotations[annotationApplied] = digest
	u.SetAnnotations(annotations)
	live := &unstructured.Unstructured{}
	live.SetGroupVersionKind(u.GroupVersionKind())
	if err := c.Get(ctx, client.ObjectKeyFromObject(u), live); err == nil && includes(live.Object, u.Object) {
		return nil
	}
	return Apply(ctx, c, u)
}

// includes reports whether a value of JSON has all that another one has. A list has the
// same elements in the same order.
func includes(has, wanted any) bool {
	switch wanted := wanted.(type) {
	case map[string]any:
		m, ok := has.(map[string]any)
		for key, value := range wanted {
			ok = ok && includes(m[key], value)
		}
		return ok
	case []any:
		l, ok := has.([]any)
		ok = ok && len(l) == len(wanted)
		for i := 0; ok && i < len(wanted); i++ {
			ok = includes(l[i], wanted[i])
		}
		return ok
	default:
		return has == wanted || number(wanted) != nil && number(has) != nil && *number(has) == *number(wanted)
	}
}

// number is a value that is a number, else nil: a file has it as another type than an
// answer of the API server.
func number(v any) *float64 {
	switch v := v.(type) {
	case int64:
		return new(float64(v))
	case float64:
		return &v
	default:
		return nil
	}
}

// Foreign reports whether another program installed a definition.
func Foreign(ctx context.Context, c client.Client, name string) (bool, error) {
	key := types.NamespacedName{Name: name}
	var live apiextensionsv1.CustomResourceDefinition
	err := c.Get(ctx, key, &live)
	if client.IgnoreNotFound(err) != nil {
		return false, mark(err, "CustomResourceDefinition", key)
	}
	ours := slices.ContainsFunc(live.ManagedFields, func(m metav1.ManagedFieldsEntry) bool { return m.Manager == FieldManager })
	return err == nil && !ours, nil
}

// Apply gives an object the fields of u. No caller repeats what a program does at its start, so
// an API server that is busy is asked again for busyTime.
func Apply(ctx context.Context, c client.Client, u *unstructured.Unstructured) error {
	key := client.ObjectKeyFromObject(u)
	var last error
	err := wait.PollUntilContextTimeout(ctx, busyPause, busyTime, true, func(ctx context.Context) (bool, error) {
		last = mark(c.Apply(ctx, client.ApplyConfigurationFromUnstructured(u), client.FieldOwner(FieldManager), client.ForceOwnership), u.GetKind(), key)
		return fault.Of(last) != fault.Later, nil
	})
	return cmp.Or(last, err)
}

// AwaitDefinitions waits until the API server serves the kinds of every
// CustomResourceDefinition in files. The condition Established is not enough: a
// definition keeps it over a restart of the server, which serves it a moment later.
func AwaitDefinitions(ctx context.Context, c client.Client, files fs.FS) error {
	all, err := readDefinitions(files)
	if err != nil {
		return err
	}
	for _, u := range all {
		var crd apiextensionsv1.CustomResourceDefinition
		var last error
		err := wait.PollUntilContextTimeout(ctx, 50*time.Millisecond, establishTime, true, func(ctx context.Context) (bool, error) {
			if last = c.Get(ctx, client.ObjectKeyFromObject(u), &crd); last == nil {
				last = served(c, &crd)
			}
			return last == nil, nil
		})
		if err != nil {
			return fmt.Errorf("waiting for the definition %s: %w: %w", u.GetName(), err, last)
		}
	}
	return nil
}

// served says why the kind of a definition is not served, if it is not.
func served(c client.Client, crd *apiextensionsv1.CustomResourceDefinition) error {
	for _, cond := range crd.Status.Conditions {
		if cond.Type == apiextensionsv1.Established && string(cond.Status) == string(metav1.ConditionTrue) {
			for _, v := range crd.Spec.Versions {
				if !v.Served {
					continue
				}
				if _, err := c.RESTMapper().RESTMapping(schema.GroupKind{Group: crd.Spec.Group, Kind: crd.Spec.Names.Kind}, v.Name); err != nil {
					return err
				}
			}
			return nil
		}
	}
	return errors.New("it is not established")
}

func readDefinitions(files fs.FS) ([]*unstructured.Unstructured, error) {
	names, err := fs.Glob(files, "*.yaml")
	if err != nil {
		return nil, err
	}
	var all []*unstructured.Unstructured
	for _, name := range names {
		b, err := fs.ReadFile(files, name)
		if err != nil {
			return nil, err
		}
		u := &unstructured.Unstructured{}
		if err := yaml.Unmarshal(b, &u.Object); err != nil {
			return nil, fmt.Errorf("reading %s: %w", name, err)
		}
		all = append(all, u)
	}
	return all, nil
}
