package main

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/cloudnativelabs/kube-router/v2/pkg/controllers/netpol"
	"github.com/cloudnativelabs/kube-router/v2/pkg/healthcheck"
	"github.com/cloudnativelabs/kube-router/v2/pkg/options"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
)

// enforcePolicies makes rules of iptables from network policies, until the context
// ends. It is a process of its own since the controller exits when a rule fails.
func enforcePolicies(ctx context.Context, s state) error {
	config, err := connect(s)
	if err != nil {
		return err
	}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return fmt.Errorf("making a client: %w", err)
	}
	set := options.NewKubeRouterConfig()
	set.RunFirewall, set.EnableIPv4, set.ClusterIPCIDRs, set.HostnameOverride = true, true, []string{services}, nodeName
	rules, sets, err := netpol.NewIPTablesHandlers(set)
	if err != nil {
		return fmt.Errorf("preparing rules: %w", err)
	}
	all := informers.NewSharedInformerFactory(client, 0)
	pods, namespaces, policies := all.Core().V1().Pods().Informer(), all.Core().V1().Namespaces().Informer(), all.Networking().V1().NetworkPolicies().Informer()
	all.Start(ctx.Done())
	for kind, ok := range all.WaitForCacheSync(ctx.Done()) {
		if !ok {
			return fmt.Errorf("listing %s: %w", kind, ctx.Err())
		}
	}
	controller, err := netpol.NewNetworkPolicyController(client, set, pods, policies, namespaces, &sync.Mutex{}, rules, sets)
	if err != nil {
		return fmt.Errorf("making the controller of network policies: %w", err)
	}
	_, podsErr := pods.AddEventHandler(controller.PodEventHandler)
	_, namespacesErr := namespaces.AddEventHandler(controller.NamespaceEventHandler)
	_, policiesErr := policies.AddEventHandler(controller.NetworkPolicyEventHandler)
	if err := errors.Join(podsErr, namespacesErr, policiesErr); err != nil {
		return fmt.Errorf("watching network policies: %w", err)
	}
	// The supervisor sees when this process ends, and needs no heartbeat.
	beats := make(chan *healthcheck.ControllerHeartbeat)
	go func() {
		for range beats {
		}
	}()
	var running sync.WaitGroup
	running.Add(1)
	controller.Run(beats, ctx.Done(), &running)
	running.Wait()
	return nil
}
