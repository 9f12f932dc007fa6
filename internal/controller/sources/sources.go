// Package sources reconciles GitRepository, OCIRepository and Bucket objects with
// their origins, where Flux's source-controller does not. It fulfils the same
// contract: a reader of status.artifact cannot tell which of the two wrote it.
//
// One reconciler serves all kinds. It observes (the object, the origin, the store),
// decides (a pure function), acts (at most one artifact) and reports (at most one
// status write). A kind adds its spec and the place of its status. The package has
// no finalizer of its own, so that no deletion waits for it; it collects artifacts
// whose objects are gone. It refuses unsupported fields, with a condition that names
// them.
//
// Start reading at decide.
package sources

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/fluxcd/pkg/apis/meta"

	"github.com/terrier-iac/terrier/internal/archive"
	"github.com/terrier-iac/terrier/internal/controller/passes"
	"github.com/terrier-iac/terrier/internal/outbound"
	"github.com/terrier-iac/terrier/internal/secret"
	"github.com/terrier-iac/terrier/internal/share"
	"github.com/terrier-iac/terrier/internal/source"
)

// manager owns the fields of a source's status. It is the name that the
// objects' users already know.
const manager = "source-controller"

// Options are what the reconcilers stand on.
type Options struct {
	Store   *source.Store
	Out     *outbound.Client
	BaseURL func() string // below which the artifact handler answers: http://host:port/artifacts
	Key     secret.Text   // of the artifact handler
	Scratch string        // a directory of our own for the time of a fetch; Setup empties it
	// Pull returns additional credentials for the sources of a namespace, as a Docker
	// configuration: those of the built-in registry. It may be nil.
	Pull func(namespace string) []byte
	// KnownHosts is the file with the keys of ssh hosts for sources whose Secret has none.
	KnownHosts string
	// TrustedRoot is the file with the trusted root for signatures with certificates, for
	// sources that name none.
	TrustedRoot string
	// Roots returns the directories of the root modules that stacks have in a source, of
	// those stacks that are not suspended.
	Roots  func(ctx context.Context, kind string, source client.ObjectKey) ([]string, error)
	Events interface {
		Event(obj client.Object, kind, reason, message string)
	}
	Now func() time.Time
	Log *slog.Logger

	Limits  archive.Limits // zero means the defaults
	Workers int            // of each kind, of which a namespace has half at most; 8 if zero
	// MinInterval is the shortest interval between two checks of one origin; 5 seconds
	// if zero.
	MinInterval time.Duration
}

// How many artifacts of an object are kept besides those that a client may be
// fetching.
const (
	keep    = 2
	keepFor = time.Minute
)

// kind is what the reconciler has to know of a kind of source.
type kind struct {
	name   string
	reason string // of failures that do not say
	make   func() client.Object
	list   func() client.ObjectList
	wrap   func(client.Object) adapter
}

func kinds() []kind { return []kind{gitKind(), ociKind(), bucketKind()} }

// Setup adds the reconcilers to mgr.
func Setup(mgr ctrl.Manager, o Options) error {
	if o.Store == nil || o.Out == nil || o.BaseURL == nil || o.Roots == nil || o.Now == nil || o.Log == nil || o.Key.Empty() {
		return errors.New("setting up sources: an option is missing")
	}
	if err := source.OpenScratch(o.Scratch); err != nil {
		return fmt.Errorf("setting up sources: %w", err)
	}
	if o.Workers == 0 {
		o.Workers = 8
	}
	if o.MinInterval == 0 {
		o.MinInterval = 5 * time.Second
	}
	for _, k := range kinds() {
		r := &reconciler{
			Options: o, kind: k, client: mgr.GetClient(), live: mgr.GetAPIReader(),
			backoff: workqueue.NewTypedItemExponentialFailureRateLimiter[reconcile.Request](time.Second, 5*time.Minute),
			turns:   newTurns(max(1, o.Workers/2)),
		}
		if err := r.setup(mgr); err != nil {
			return fmt.Errorf("setting up sources: %w", err)
		}
	}
	return mgr.Add(&janitor{reader: mgr.GetClient(), store: o.Store, log: o.Log, every: time.Hour})
}

func (r *reconciler) setup(mgr ctrl.Manager) error {
	// Indexes are made before the manager starts.
	if err := mgr.GetFieldIndexer().IndexField(context.Background(), r.kind.make(), indexSecrets, r.kind.secrets); err != nil {
		return err
	}
	return ctrl.NewControllerManagedBy(mgr).
		Named(strings.ToLower(r.kind.name)).
		For(r.kind.make(), builder.WithPredicates(predicate.Or[client.Object](predicate.GenerationChangedPredicate{}, requested()))).
		WatchesMetadata(&corev1.Secret{}, handler.EnqueueRequestsFromMapFunc(r.referring), builder.WithPredicates(predicate.ResourceVersionChangedPredicate{})).
		WatchesRawSource(r.turns).
		WithOptions(controller.Options{MaxConcurrentReconciles: r.Workers}).
		Complete(r)
}

// newTurns are the turns of the reconciles, of which a namespace has so many at once at most. A
// server that is slow, or never answers, holds a worker until the timeout of its source. Most of
// them end soon, and none has a date, so that a source which comes takes a free place.
func newTurns(most int) *passes.Turns {
	return passes.New(share.Bounds{Most: most, Overtake: true})
}

// requested passes objects whose reconcile request is a new one.
func requested() predicate.Predicate {
	return predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
		return e.ObjectOld.GetAnnotations()[meta.ReconcileRequestAnnotation] != e.ObjectNew.GetAnnotations()[meta.ReconcileRequestAnnotation]
	}}
}

func (k kind) key(namespace, name string) source.Key {
	return source.Key{Kind: strings.ToLower(k.name), Namespace: namespace, Name: name}
}
