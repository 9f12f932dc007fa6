package pods

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// namespaces are those whose pods are watched, nil for all.
func (p *Pods) namespaces() map[string]cache.Config {
	if len(p.config.Namespaces) == 0 {
		return nil
	}
	named := map[string]cache.Config{}
	for _, n := range p.config.Namespaces {
		named[n] = cache.Config{}
	}
	return named
}

// watch keeps the pods of this installation in the cache until ctx ends, and tells of
// each change.
func (p *Pods) watch(ctx context.Context) error {
	var err error
	if p.informer, err = p.seen.GetInformer(ctx, &corev1.Pod{}, cache.BlockUntilSynced(false)); err != nil {
		return err
	}
	tell := func(o any) {
		if gone, ok := o.(toolscache.DeletedFinalStateUnknown); ok {
			o = gone.Obj
		}
		pod, ok := o.(client.Object)
		if !ok {
			return
		}
		select {
		case p.changed <- placeOf(pod):
		case <-ctx.Done():
		}
	}
	if _, err := p.informer.AddEventHandler(toolscache.ResourceEventHandlerFuncs{
		AddFunc: tell, UpdateFunc: func(_, now any) { tell(now) }, DeleteFunc: tell,
	}); err != nil {
		return err
	}
	go func() {
		defer close(p.ended)
		if err := p.seen.Start(ctx); err != nil {
			p.config.Log.Error("pods of runs are not watched", "err", err)
		}
	}()
	return nil
}

// slim drops what no code here reads: a thousand pods are large otherwise.
func slim(o any) (any, error) {
	pod, ok := o.(*corev1.Pod)
	if !ok {
		return o, nil
	}
	kept := &corev1.Pod{
		TypeMeta: pod.TypeMeta,
		ObjectMeta: metav1.ObjectMeta{
			Namespace: pod.Namespace, Name: pod.Name, UID: pod.UID, ResourceVersion: pod.ResourceVersion, Labels: pod.Labels,
			CreationTimestamp: pod.CreationTimestamp, DeletionTimestamp: pod.DeletionTimestamp,
		},
		Spec:   corev1.PodSpec{NodeName: pod.Spec.NodeName},
		Status: pod.Status,
	}
	for _, c := range pod.Spec.Containers {
		kept.Spec.Containers = append(kept.Spec.Containers, corev1.Container{Name: c.Name, Image: c.Image, Resources: c.Resources})
	}
	for _, c := range pod.Spec.InitContainers {
		kept.Spec.InitContainers = append(kept.Spec.InitContainers, corev1.Container{Name: c.Name, Image: c.Image})
	}
	return kept, nil
}
