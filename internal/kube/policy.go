package kube

import (
	"context"
	"errors"
	"fmt"
	"io/fs"

	"k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/terrier-iac/terrier/internal/fault"
)

// ErrNoPolicies is why policies are not in force: the API server does not have
// their kind, or forbids Terrier to write any.
var ErrNoPolicies = errors.New("the API server takes no admission policies from Terrier")

// InstallPolicies applies every policy and binding in files.
func InstallPolicies(ctx context.Context, c client.Client, files fs.FS) error {
	all, err := readDefinitions(files)
	if err != nil {
		return err
	}
	for _, u := range all {
		gvk := u.GroupVersionKind()
		if _, err := c.RESTMapper().RESTMapping(gvk.GroupKind(), gvk.Version); meta.IsNoMatchError(err) {
			return fmt.Errorf("%w: it has no kind %s of %s", ErrNoPolicies, gvk.Kind, gvk.GroupVersion())
		}
		if err := applyOnce(ctx, c, u); fault.Of(err) == fault.Denied {
			return fmt.Errorf("%w: %w", ErrNoPolicies, err)
		} else if err != nil {
			return err
		}
	}
	return nil
}

// PoliciesThere reports whether any policy or binding in files is installed.
func PoliciesThere(ctx context.Context, c client.Client, files fs.FS) (bool, error) {
	all, err := readDefinitions(files)
	if err != nil {
		return false, err
	}
	for _, u := range all {
		err := c.Get(ctx, client.ObjectKeyFromObject(u), u)
		switch {
		case err == nil:
			return true, nil
		case meta.IsNoMatchError(err), client.IgnoreNotFound(err) == nil, fault.Of(mark(err, u.GetKind(), client.ObjectKeyFromObject(u))) == fault.Denied:
		default:
			return false, mark(err, u.GetKind(), client.ObjectKeyFromObject(u))
		}
	}
	return false, nil
}
