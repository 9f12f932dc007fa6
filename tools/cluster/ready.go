package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	watchtools "k8s.io/client-go/tools/watch"
)

// waitReady waits until pods start and names resolve, and tells how to use it.
func waitReady(ctx context.Context, s state) error {
	begin := time.Now()
	ctx, cancel := context.WithTimeoutCause(ctx, 5*time.Minute, errors.New("the cluster did not become ready within 5 minutes"))
	defer cancel()
	var config *rest.Config
	// Another up may be about to write the kubeconfig.
	if err := poll(ctx, 100*time.Millisecond, func() (err error) { config, err = connect(s); return err }); err != nil {
		return err
	}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return fmt.Errorf("making a client: %w", err)
	}
	said := func(what string) { fmt.Printf("cluster: %s after %.1f s\n", what, time.Since(begin).Seconds()) }
	if err := waitServing(ctx, client); err != nil {
		return err
	}
	said("API server ready")
	if err := until(ctx, client.CoreV1().RESTClient(), "nodes", "", nodeName, &corev1.Node{}, func(o runtime.Object) bool {
		for _, c := range o.(*corev1.Node).Status.Conditions {
			if c.Type == corev1.NodeReady {
				return c.Status == corev1.ConditionTrue
			}
		}
		return false
	}); err != nil {
		return fmt.Errorf("waiting for the node: %w", err)
	}
	said("node ready")
	if err := until(ctx, client.AppsV1().RESTClient(), "deployments", "kube-system", "coredns", &appsv1.Deployment{}, func(o runtime.Object) bool {
		return o.(*appsv1.Deployment).Status.AvailableReplicas > 0
	}); err != nil {
		return fmt.Errorf("waiting for the DNS server: %w", err)
	}
	said("DNS server ready")
	fmt.Printf("cluster: use it with: export KUBECONFIG=%s\n", s.kubeconfig())
	return nil
}

// until watches one object until it is as wanted.
func until(ctx context.Context, client rest.Interface, resource, namespace, name string, of runtime.Object, wanted func(runtime.Object) bool) error {
	one := cache.NewListWatchFromClient(client, resource, namespace, fields.OneTermEqualSelector("metadata.name", name))
	_, err := watchtools.UntilWithSync(ctx, one, of, nil, func(e watch.Event) (bool, error) {
		return e.Type != watch.Deleted && wanted(e.Object), nil
	})
	if err != nil {
		return errors.Join(err, context.Cause(ctx))
	}
	return nil
}
