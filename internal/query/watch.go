package query

import (
	"context"
	"iter"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/terrier-iac/terrier/api/infra/v1alpha2"
	"github.com/terrier-iac/terrier/internal/access"
)

// Change is a stack as it is now, or the last that was observed of one that is gone.
type Change struct {
	Stack
	Gone bool
}

// Watch yields the stacks that f chooses as they are, and then each one that
// changes, until ctx ends or an error, which is the last that it yields.
func (s *Stacks) Watch(ctx context.Context, f Filter) iter.Seq2[Change, error] {
	return func(yield func(Change, error) bool) {
		for o, err := range s.Objects(ctx, f) {
			if err != nil {
				yield(Change{}, err)
				return
			}
			if !yield(Change{Stack: View(o.Object), Gone: o.Gone}, nil) {
				return
			}
		}
	}
}

type Observed struct {
	Object *v1alpha2.Terraform
	Gone   bool
}

// objects lists and then watches, and begins again when the server has forgotten
// the version that it got to; what did not change in between comes again.
func (s *Stacks) Objects(ctx context.Context, f Filter) iter.Seq2[Observed, error] {
	return func(yield func(Observed, error) bool) {
		opts, err := f.options()
		if err != nil {
			yield(Observed{}, err)
			return
		}
		for ctx.Err() == nil {
			more, err := s.watchOnce(ctx, opts, yield)
			if err != nil && ctx.Err() == nil {
				yield(Observed{}, access.Fault(err, "stacks"))
			}
			if !more || err != nil {
				return
			}
		}
	}
}

// watchOnce reports whether to begin again.
func (s *Stacks) watchOnce(ctx context.Context, opts []client.ListOption, yield func(Observed, error) bool) (bool, error) {
	var list v1alpha2.TerraformList
	if err := s.Kube.List(ctx, &list, opts...); err != nil {
		return false, err
	}
	for i := range list.Items {
		if !yield(Observed{Object: &list.Items[i]}, nil) {
			return false, nil
		}
	}
	from := append(opts[:len(opts):len(opts)], &client.ListOptions{Raw: &metav1.ListOptions{ResourceVersion: list.ResourceVersion}})
	w, err := s.Kube.Watch(ctx, &v1alpha2.TerraformList{}, from...)
	if err != nil {
		return false, err
	}
	defer w.Stop()
	for event := range w.ResultChan() {
		switch event.Type {
		case watch.Error:
			err := apierrors.FromObject(event.Object)
			if apierrors.IsResourceExpired(err) || apierrors.IsGone(err) {
				return true, nil
			}
			return false, err
		case watch.Added, watch.Modified, watch.Deleted:
			o, ok := event.Object.(*v1alpha2.Terraform)
			if ok && !yield(Observed{Object: o, Gone: event.Type == watch.Deleted}, nil) {
				return false, nil
			}
		}
	}
	return true, nil // the server ends watches now and then
}
