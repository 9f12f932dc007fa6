package query

import (
	"context"
	"iter"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/terrier-iac/terrier/api/infra/v1alpha2"
	"github.com/terrier-iac/terrier/internal/access"
)

// Objects reads the objects of stacks as they are in the cluster, for questions
// and commands.
type Objects struct {
	Kube    client.WithWatch
	Records Records
	Now     func() time.Time
}

// Read fetches the object of a stack.
func (s *Objects) Read(ctx context.Context, key Key) (*v1alpha2.Terraform, error) {
	if err := key.Check(); err != nil {
		return nil, err
	}
	var o v1alpha2.Terraform
	if err := s.Kube.Get(ctx, types.NamespacedName(key), &o); err != nil {
		return nil, access.Fault(err, "stack "+key.String())
	}
	return &o, nil
}

// All lists the objects that f chooses.
func (s *Objects) All(ctx context.Context, f Filter) ([]v1alpha2.Terraform, error) {
	opts, err := f.options()
	if err != nil {
		return nil, err
	}
	var list v1alpha2.TerraformList
	if err := s.Kube.List(ctx, &list, opts...); err != nil {
		return nil, access.Fault(err, "stacks")
	}
	return list.Items, nil
}

// Observed is an object as it is now, or as it was last if it is gone.
type Observed struct {
	Object *v1alpha2.Terraform
	Gone   bool
}

// Changes lists and then watches the objects that f chooses. It begins again when the API
// server has forgotten the version that it got to; then objects that did not change
// in between come again.
func (s *Objects) Changes(ctx context.Context, f Filter) iter.Seq2[Observed, error] {
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
func (s *Objects) watchOnce(ctx context.Context, opts []client.ListOption, yield func(Observed, error) bool) (bool, error) {
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
