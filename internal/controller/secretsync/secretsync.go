// Package secretsync writes Secrets that hold what is in OpenBao or Vault: for ExternalSecrets
// of external-secrets.io, where External Secrets Operator does not serve them, and for
// ServiceAccounts with the annotations of Vault's agent.
//
// A reconciler observes (the object, its Secret, its store, Vault), has package
// externalsecret decide, writes at most one Secret, restarts the workloads that use it, and
// reports. The last Secret stays while Vault does not answer, is sealed, or refuses. Every
// reading is in the audit log before its value is used. No value is in a status, an event or
// a log.
//
// A store uses ServiceAccounts and Secrets of its own namespace. A ClusterSecretStore uses
// those that it names.
//
// Start reading at reconciler.Reconcile.
package secretsync

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/terrier-iac/terrier/internal/audit"
	"github.com/terrier-iac/terrier/internal/controller/passes"
	"github.com/terrier-iac/terrier/internal/externalsecret"
	"github.com/terrier-iac/terrier/internal/outbound"
	"github.com/terrier-iac/terrier/internal/secret"
	"github.com/terrier-iac/terrier/internal/share"
)

// Version is the version of the objects that is read and written. Others are converted by
// the API server.
const Version = "v1"

// manager owns the fields that this package writes.
const manager = "terrier-external-secrets"

// Options are what the reconcilers stand on.
type Options struct {
	Live client.Client // reads and writes Secrets; nothing of them is cached
	Out  interface {   // to the servers of stores
		HTTP(outbound.Options) (*http.Client, error)
		PlainHTTP() bool
	}
	Accounts interface { // makes tokens of ServiceAccounts
		TokenFor(ctx context.Context, account types.NamespacedName, audiences []string) (secret.Text, error)
	}
	Audit interface {
		Record(context.Context, audit.Entry) error
	}
	Events interface {
		Event(obj client.Object, kind, reason, message string)
	}
	Records Records     // of what is handed out
	Key     secret.Text // of digests
	Default *Default    // for ServiceAccounts with annotations; nil without a server
	Now     func() time.Time
	Log     *slog.Logger

	Workers int // 8 if zero
	// MinInterval is the shortest interval between two readings of one object, so that its
	// author fills no audit log; 10 seconds if zero.
	MinInterval time.Duration
}

// Records keep what is handed out, sealed.
type Records interface {
	Put(ctx context.Context, key string, r io.Reader) error
	Get(ctx context.Context, key string) (io.ReadCloser, error)
	Delete(ctx context.Context, key string) error
	List(ctx context.Context, prefix string) ([]string, error)
}

// GVK is the kind of an object, of the version that is read.
func GVK(kind string) schema.GroupVersionKind {
	return schema.GroupVersionKind{Group: externalsecret.Group, Version: Version, Kind: kind}
}

// kindOf is the kind of the objects that name stores.
const kindOf = "ExternalSecret"

func object(kind string) *unstructured.Unstructured {
	o := &unstructured.Unstructured{}
	o.SetGroupVersionKind(GVK(kind))
	return o
}

// Followed is the kind of objects in whose namespaces Secrets are watched.
func Followed() client.Object { return object(kindOf) }

func list(kind string) *unstructured.UnstructuredList {
	l := &unstructured.UnstructuredList{}
	l.SetGroupVersionKind(GVK(kind + "List"))
	return l
}

// Indexes of ExternalSecrets.
const (
	indexTarget = "terrier.target" // the Secret that one writes
	indexStore  = "terrier.store"  // the store that one names, as Kind/name
)

// Setup adds the reconcilers to mgr.
func Setup(mgr ctrl.Manager, o Options) error {
	if o.Live == nil || o.Out == nil || o.Accounts == nil || o.Audit == nil || o.Records == nil || o.Events == nil || o.Now == nil || o.Log == nil || o.Key.Empty() {
		return errors.New("setting up external secrets: an option is missing")
	}
	o.Now = newSteady(o.Now, time.Now()).Now
	guard := &guard{live: o.Live, now: o.Now, log: o.Log}
	r := newReconciler(o, mgr.GetCache(), guard)
	if err := r.setup(mgr); err != nil {
		return fmt.Errorf("setting up external secrets: %w", err)
	}
	for _, kind := range []string{externalsecret.SecretStore, externalsecret.ClusterSecretStore} {
		if err := (&storeReconciler{stores: r.stores, kind: kind, cache: mgr.GetCache(), guard: guard, Options: o}).setup(mgr); err != nil {
			return fmt.Errorf("setting up stores of external secrets: %w", err)
		}
	}
	accounts := &accountReconciler{Options: o, cache: mgr.GetCache(), guard: guard}
	if err := accounts.setup(mgr); err != nil {
		return fmt.Errorf("setting up the secrets of ServiceAccounts: %w", err)
	}
	return nil
}

func newReconciler(o Options, cached client.Reader, g *guard) *reconciler {
	if o.MinInterval == 0 {
		o.MinInterval = 10 * time.Second
	}
	if o.Workers == 0 {
		o.Workers = 8
	}
	r := &reconciler{
		Options: o, cache: cached, guard: g, stores: newStores(o, cached), leases: newLeases(o, cached), turns: newTurns(o.Workers),
		backoff: workqueue.NewTypedItemExponentialFailureRateLimiter[reconcile.Request](time.Second, latestRetry),
	}
	r.pace.least, r.pace.last.Size = o.MinInterval, pacedMost
	return r
}

// newTurns are the turns of the passes. The authors of stores choose the servers, and one that
// never answers holds a pass up for a minute: with all workers it would keep the credentials of
// other namespaces from being renewed in time. A quarter of the workers is sure to each namespace
// that comes in time. It takes up to a half while a quarter of all workers is left to others.
func newTurns(workers int) *passes.Turns {
	return passes.New(share.Bounds{All: workers, Most: max(1, workers/2), Sure: max(1, workers/4)})
}

func (r *reconciler) setup(mgr ctrl.Manager) error {
	of := object(kindOf)
	indexes := map[string]func(externalsecret.Spec, string) string{
		indexTarget: func(s externalsecret.Spec, name string) string {
			if s.Target.Name != "" {
				return s.Target.Name
			}
			return name
		},
		indexStore: func(s externalsecret.Spec, _ string) string { return storeKey(s.SecretStoreRef) },
	}
	for name, value := range indexes {
		err := mgr.GetFieldIndexer().IndexField(context.Background(), of, name, func(o client.Object) []string {
			spec, _ := decode[externalsecret.Spec](o) // what can be read of it
			return []string{value(spec, o.GetName())}
		})
		if err != nil {
			return err
		}
	}
	changed := predicate.Or(predicate.GenerationChangedPredicate{}, predicate.AnnotationChangedPredicate{}, predicate.LabelChangedPredicate{})
	build := ctrl.NewControllerManagedBy(mgr).
		Named("externalsecret").
		For(of, builder.WithPredicates(changed)).
		WatchesMetadata(&corev1.Secret{}, handler.EnqueueRequestsFromMapFunc(r.writing), builder.WithPredicates(predicate.ResourceVersionChangedPredicate{})).
		WithOptions(controller.Options{MaxConcurrentReconciles: r.Workers})
	for _, kind := range []string{externalsecret.SecretStore, externalsecret.ClusterSecretStore} {
		build = build.Watches(object(kind), handler.EnqueueRequestsFromMapFunc(r.using), builder.WithPredicates(appeared{}))
	}
	if err := mgr.Add(r.leases); err != nil {
		return err
	}
	return build.WatchesRawSource(r.turns).WatchesRawSource(source.Channel(r.leases.wakes, &handler.EnqueueRequestForObject{})).Complete(r)
}

// appeared passes objects that are new or have another spec.
type appeared struct {
	predicate.GenerationChangedPredicate
}

// Delete implements predicate.Predicate: what named the object notices when it reads again.
func (appeared) Delete(event.DeleteEvent) bool { return false }

func storeKey(ref externalsecret.StoreRef) string {
	if ref.Kind == "" {
		ref.Kind = externalsecret.SecretStore
	}
	return ref.Kind + "/" + ref.Name
}

// writing maps a Secret to the objects that write it.
func (r *reconciler) writing(ctx context.Context, o client.Object) []reconcile.Request {
	return r.find(ctx, o.GetNamespace(), client.MatchingFields{indexTarget: o.GetName()})
}

// using maps a store to the objects that name it.
func (r *reconciler) using(ctx context.Context, o client.Object) []reconcile.Request {
	kind := o.GetObjectKind().GroupVersionKind().Kind
	return r.find(ctx, o.GetNamespace(), client.MatchingFields{indexStore: kind + "/" + o.GetName()})
}

func (r *reconciler) find(ctx context.Context, namespace string, by client.MatchingFields) []reconcile.Request {
	found := list(kindOf)
	if err := r.cache.List(ctx, found, client.InNamespace(namespace), by); err != nil {
		r.Log.Error("external secrets not woken", "err", err) // they are read again by themselves
		return nil
	}
	var all []reconcile.Request
	for _, o := range found.Items {
		all = append(all, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(&o)})
	}
	return all
}

// The labels by which a definition shows whose it is.
const (
	partOf        = "app.kubernetes.io/part-of"
	ours          = "terrier"
	operatorLabel = "external-secrets.io/component"
)

// Theirs names a definition that External Secrets Operator, or another program, has
// installed; empty if there is none. Two programs that write the same Secrets would
// undo each other's work.
func Theirs(ctx context.Context, live client.Reader) (string, error) {
	for _, plural := range []string{"externalsecrets", "secretstores", "clustersecretstores"} {
		m := &metav1.PartialObjectMetadata{}
		m.SetGroupVersionKind(schema.GroupVersionKind{Group: "apiextensions.k8s.io", Version: "v1", Kind: "CustomResourceDefinition"})
		name := plural + "." + externalsecret.Group
		err := live.Get(ctx, client.ObjectKey{Name: name}, m)
		if apierrors.IsNotFound(err) {
			continue
		}
		if err != nil {
			return "", fmt.Errorf("reading the definition %s: %w", name, err)
		}
		if _, operator := m.Labels[operatorLabel]; operator || m.Labels[partOf] != ours {
			return name, nil
		}
	}
	return "", nil
}

// Beside says why this program does not serve external secrets, for the log.
const Beside = "external secrets are off: another program installed their definition and serves them. Start this controller without --external-secrets, or remove that program and its definitions"

// guard notices that External Secrets Operator was installed meanwhile.
type guard struct {
	live client.Reader
	now  func() time.Time
	log  *slog.Logger

	mu     sync.Mutex
	asked  time.Time
	theirs string
}

// recheck is how long an answer about the definitions counts.
const recheck = time.Minute

// off reports whether nothing may be written.
func (g *guard) off(ctx context.Context) (bool, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if now := g.now(); g.asked.IsZero() || now.Sub(g.asked) >= recheck {
		theirs, err := Theirs(ctx, g.live)
		if err != nil {
			return true, err
		}
		if theirs != "" && g.theirs == "" {
			g.log.Warn(strings.TrimSuffix(Beside, "."), "definition", theirs)
		}
		g.asked, g.theirs = now, theirs
	}
	return g.theirs != "", nil
}
