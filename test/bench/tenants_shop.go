package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/terrier-iac/terrier/api/infra/v1alpha2"
	tenantsv1 "github.com/terrier-iac/terrier/api/tenants/v1"
	"github.com/terrier-iac/terrier/internal/testkit/database"
)

const (
	shopNamespace   = "shop"
	objectsOfTenant = 5
	ofTemplate      = "-app" // how the names of a tenant's five objects end
)

// shop is an estate of tenants: a table, a registry and a template.
type shop struct {
	estate
	rows *rowsOf
	raw  *kubernetes.Clientset // for what the API server says of itself
	seen *seen
}

// open makes everything but the template, and no row.
func (s *shop) open(ctx context.Context) error {
	config, err := clientcmd.BuildConfigFromFlags("", s.kubeconfig)
	if err != nil {
		return err
	}
	config.QPS = -1
	scheme := runtime.NewScheme()
	if err := errors.Join(clientgoscheme.AddToScheme(scheme), v1alpha2.AddToScheme(scheme), tenantsv1.AddToScheme(scheme)); err != nil {
		return err
	}
	if s.client, err = client.NewWithWatch(config, client.Options{Scheme: scheme}); err != nil {
		return err
	}
	if s.raw, err = kubernetes.NewForConfig(config); err != nil {
		return err
	}
	s.rows.exec("CREATE TABLE customers (id VARCHAR(40) PRIMARY KEY, url TEXT, active INTEGER, plan TEXT)")
	if err := s.create(ctx, fmt.Sprintf(registryOfShop, shopNamespace, database.Password, synced, s.rows.server.Port, database.Reader, database.Database)); err != nil {
		return err
	}
	c, err := cache.New(config, cache.Options{Scheme: scheme, DefaultNamespaces: map[string]cache.Config{shopNamespace: {}}})
	if err != nil {
		return err
	}
	go func() { _ = c.Start(ctx) }() // ends with ctx
	s.seen, err = watch(ctx, c)
	return err
}

func (s *shop) template(ctx context.Context, stacks bool) error {
	text := templateOfShop
	if stacks {
		text += stackOfShop
	}
	return s.create(ctx, text)
}

// create makes what a document of YAML lists.
func (s *shop) create(ctx context.Context, text string) error {
	for document := range strings.SplitSeq(text, "\n---\n") {
		o := &unstructured.Unstructured{}
		if err := yaml.Unmarshal([]byte(document), &o.Object); err != nil {
			return err
		}
		if o.GetKind() != "Namespace" {
			o.SetNamespace(shopNamespace)
		}
		if err := s.admitted(ctx, o); err != nil {
			return fmt.Errorf("creating the %s %s: %w", o.GetKind(), o.GetName(), err)
		}
	}
	return nil
}

// admitted creates an object. An API server that was just given our admission
// policy refuses what it is about until it knows the kind, see ADR 16.
func (s *shop) admitted(ctx context.Context, o *unstructured.Unstructured) error {
	var refused error
	err := wait.PollUntilContextTimeout(ctx, 100*time.Millisecond, time.Minute, true, func(ctx context.Context) (bool, error) {
		refused = s.client.Create(ctx, o)
		return refused == nil || apierrors.IsInvalid(refused) || apierrors.IsAlreadyExists(refused), nil
	})
	return cmp.Or(refused, err)
}

// insert is the one statement that makes n rows.
func insert(n int) string {
	rows := make([]string, n)
	for i := range rows {
		rows[i] = fmt.Sprintf("('t%05d', 'https://t%05d.example.com', 1, 'gold')", i, i)
	}
	return "INSERT INTO customers VALUES " + strings.Join(rows, ", ")
}

// seen is what watches have told. They cost the control plane a little, and
// asking again and again would cost it more.
type seen struct {
	mu      sync.Mutex
	made    int
	differs int
	ready   map[string]bool
}

func (s *seen) objects() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.made
}

func (s *seen) changed() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.differs
}

func (s *seen) applied() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.ready)
}

// watch begins to watch the objects of tenants.
func watch(ctx context.Context, c cache.Cache) (*seen, error) {
	s := &seen{ready: map[string]bool{}}
	for _, kind := range []string{"ConfigMap", "Secret", "ServiceAccount", "Service", "apps/Deployment"} {
		o := &metav1.PartialObjectMetadata{}
		group, name, ok := strings.Cut(kind, "/")
		if !ok {
			group, name = "", kind
		}
		o.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind(name).GroupKind().WithVersion("v1"))
		if ok {
			o.APIVersion = group + "/v1"
		}
		err := handle(ctx, c, o, toolscache.ResourceEventHandlerFuncs{AddFunc: s.add, UpdateFunc: s.update})
		if err != nil {
			return nil, err
		}
	}
	return s, handle(ctx, c, &v1alpha2.Terraform{}, toolscache.ResourceEventHandlerFuncs{UpdateFunc: s.stack})
}

func handle(ctx context.Context, c cache.Cache, o client.Object, h toolscache.ResourceEventHandler) error {
	informer, err := c.GetInformer(ctx, o)
	if err != nil {
		return err
	}
	_, err = informer.AddEventHandler(h)
	return err
}

func (s *seen) add(o any) {
	if strings.HasSuffix(o.(client.Object).GetName(), ofTemplate) {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.made++
	}
}

func (s *seen) update(before, after any) {
	was, is := before.(client.Object), after.(client.Object)
	if strings.HasSuffix(is.GetName(), ofTemplate) && was.GetResourceVersion() != is.GetResourceVersion() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.differs++
	}
}

func (s *seen) stack(_, after any) {
	t := after.(*v1alpha2.Terraform)
	s.mu.Lock()
	defer s.mu.Unlock()
	if meta.IsStatusConditionTrue(t.Status.Conditions, "Ready") {
		s.ready[t.Name] = true
	} else {
		delete(s.ready, t.Name)
	}
}
