package interpreter

import (
	"context"

	sourcev1 "github.com/fluxcd/source-controller/api/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	toolscache "k8s.io/client-go/tools/cache"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/terrier-iac/terrier/internal/controller/sources"
)

// Watch has changed called whenever a source that a policy names has another artifact, or
// is created or deleted. Kinds of sources that the API server does not have are left out.
func (p *Programs) Watch(ctx context.Context, mgr ctrl.Manager, changed func()) error {
	for _, kind := range []string{sourcev1.GitRepositoryKind, sourcev1.OCIRepositoryKind, sourcev1.BucketKind} {
		gvk := sourcev1.GroupVersion.WithKind(kind)
		if _, err := mgr.GetRESTMapper().RESTMapping(gvk.GroupKind(), gvk.Version); meta.IsNoMatchError(err) {
			continue
		} else if err != nil {
			return err
		}
		obj, err := sources.New(kind)
		if err != nil {
			return err
		}
		informer, err := mgr.GetCache().GetInformer(ctx, obj)
		if err != nil {
			return err
		}
		notice := func(o any) {
			if s, ok := o.(sources.Object); ok && p.uses(kind, s) {
				changed()
			}
		}
		if _, err := informer.AddEventHandler(toolscache.ResourceEventHandlerFuncs{
			AddFunc: notice,
			DeleteFunc: func(o any) {
				if gone, ok := o.(toolscache.DeletedFinalStateUnknown); ok {
					o = gone.Obj
				}
				notice(o)
			},
			UpdateFunc: func(before, after any) {
				was, ok := before.(sources.Object)
				is, too := after.(sources.Object)
				if ok && too && digestOf(was) != digestOf(is) {
					notice(after)
				}
			},
		}); err != nil {
			return err
		}
	}
	return nil
}

func digestOf(s sources.Object) string {
	if a := s.GetArtifact(); a != nil {
		return a.Digest
	}
	return ""
}
