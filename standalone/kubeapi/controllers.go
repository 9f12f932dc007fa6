package kubeapi

import (
	"context"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apiserver/pkg/quota/v1/generic"
	"k8s.io/client-go/discovery/cached/memory"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/metadata/metadatainformer"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/restmapper"
	"k8s.io/controller-manager/pkg/informerfactory"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/pkg/controller"
	"k8s.io/kubernetes/pkg/controller/clusterroleaggregation"
	"k8s.io/kubernetes/pkg/controller/garbagecollector"
	"k8s.io/kubernetes/pkg/controller/namespace"
	"k8s.io/kubernetes/pkg/controller/resourcequota"
	"k8s.io/kubernetes/pkg/controller/serviceaccount"
	quotainstall "k8s.io/kubernetes/pkg/quota/v1/install"
)

const (
	// crdNoticed is how soon a new kind of object is collected and counted. It is
	// a discovery request that mostly answers 304.
	crdNoticed  = 5 * time.Second
	resync      = 5 * time.Minute
	firstSync   = 30 * time.Second
	nsWorkers   = 4
	gcWorkers   = 4
	someWorkers = 2
)

// controllers builds those of kube-controller-manager's controllers that objects
// need to come and go properly where there are no nodes.
type controllers struct {
	client   kubernetes.Interface
	metadata metadata.Interface
	typed    informers.SharedInformerFactory
	untyped  metadatainformer.SharedInformerFactory
	started  chan struct{} // closed once the informers run
	loops    []func(context.Context)
}

// startControllers returns what stops them.
func startControllers(ctx context.Context, config *rest.Config) (func(), error) {
	c := &controllers{started: make(chan struct{})}
	var err error
	if c.client, err = kubernetes.NewForConfig(config); err != nil {
		return nil, err
	}
	if c.metadata, err = metadata.NewForConfig(metadata.ConfigFor(config)); err != nil {
		return nil, err
	}
	c.typed = informers.NewSharedInformerFactory(c.client, 0)
	c.untyped = metadatainformer.NewSharedInformerFactory(c.metadata, 0)

	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	for _, add := range []func(context.Context) error{
		c.addNamespaces, c.addServiceAccounts, c.addClusterRoles, c.addGarbageCollector, c.addQuotas,
	} {
		if err := add(ctx); err != nil {
			cancel()
			return nil, err
		}
	}
	var running sync.WaitGroup
	for _, loop := range c.loops {
		running.Go(func() { loop(ctx) })
	}
	c.typed.Start(ctx.Done())
	c.untyped.Start(ctx.Done())
	close(c.started)
	return func() {
		cancel()
		running.Go(c.typed.Shutdown)
		running.Go(c.untyped.Shutdown)
		waitFor(&running, stopControllersWithin)
	}, nil
}

func (c *controllers) run(loops ...func(context.Context)) { c.loops = append(c.loops, loops...) }

func (c *controllers) addNamespaces(ctx context.Context) error {
	ns := namespace.NewNamespaceController(ctx, c.client, c.metadata, c.client.Discovery().ServerPreferredNamespacedResources,
		c.typed.Core().V1().Namespaces(), resync, corev1.FinalizerKubernetes)
	c.run(func(ctx context.Context) { ns.Run(ctx, nsWorkers) })
	return nil
}

func (c *controllers) addServiceAccounts(ctx context.Context) error {
	sa, err := serviceaccount.NewServiceAccountsController(klog.FromContext(ctx), c.typed.Core().V1().ServiceAccounts(),
		c.typed.Core().V1().Namespaces(), c.client, serviceaccount.DefaultServiceAccountsControllerOptions())
	if err != nil {
		return fmt.Errorf("service accounts: %w", err)
	}
	c.run(func(ctx context.Context) { sa.Run(ctx, 1) })
	return nil
}

func (c *controllers) addClusterRoles(context.Context) error {
	roles := clusterroleaggregation.NewClusterRoleAggregation(c.typed.Rbac().V1().ClusterRoles(), c.client.RbacV1())
	c.run(func(ctx context.Context) { roles.Run(ctx, 1) })
	return nil
}

func (c *controllers) addGarbageCollector(ctx context.Context) error {
	mapper := restmapper.NewDeferredDiscoveryRESTMapper(memory.NewMemCacheClient(c.client.Discovery()))
	gc, err := garbagecollector.NewGarbageCollector(ctx, c.client, c.metadata, mapper, garbagecollector.DefaultIgnoredResources(),
		informerfactory.NewInformerFactory(c.typed, c.untyped), c.started)
	if err != nil {
		return fmt.Errorf("garbage collector: %w", err)
	}
	c.run(
		func(ctx context.Context) { gc.Run(ctx, gcWorkers, firstSync) },
		func(ctx context.Context) { gc.Sync(ctx, c.client.Discovery(), crdNoticed) },
	)
	return nil
}

// addQuotas counts what a ResourceQuota limits. Without it a namespace that has
// one admits nothing, since admission waits for the first count.
func (c *controllers) addQuotas(ctx context.Context) error {
	discover := c.client.Discovery().ServerPreferredNamespacedResources
	counts, err := quotainstall.NewQuotaConfigurationForControllers(generic.ListerFuncForResourceFunc(c.typed.ForResource), c.typed)
	if err != nil {
		return fmt.Errorf("resource quotas: %w", err)
	}
	quotas, err := resourcequota.NewController(ctx, &resourcequota.ControllerOptions{
		QuotaClient:               c.client.CoreV1(),
		ResourceQuotaInformer:     c.typed.Core().V1().ResourceQuotas(),
		ResyncPeriod:              controller.StaticResyncPeriodFunc(resync),
		InformerFactory:           informerfactory.NewInformerFactory(c.typed, c.untyped),
		ReplenishmentResyncPeriod: controller.StaticResyncPeriodFunc(12 * time.Hour),
		DiscoveryFunc:             discover,
		IgnoredResourcesFunc:      counts.IgnoredResources,
		InformersStarted:          c.started,
		Registry:                  generic.NewRegistry(counts.Evaluators()),
		UpdateFilter:              quotainstall.DefaultUpdateFilter(),
	})
	if err != nil {
		return fmt.Errorf("resource quotas: %w", err)
	}
	c.run(
		func(ctx context.Context) { quotas.Run(ctx, someWorkers) },
		func(ctx context.Context) { quotas.Sync(ctx, discover, crdNoticed) },
	)
	return nil
}
