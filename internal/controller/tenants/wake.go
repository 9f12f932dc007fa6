package tenants

import (
	"context"
	"log/slog"
	"maps"
	"reflect"
	"sync"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	tenantsv1 "github.com/terrier-iac/terrier/api/tenants/v1"
	"github.com/terrier-iac/terrier/internal/rows"
)

// wake listens to databases that notify of changed rows. Passes over registries set
// the wanted listeners; Run starts and stops them.
type wake struct {
	rows    Rows
	notify  func(types.NamespacedName) // before the pass over the registry
	log     *slog.Logger
	changed chan struct{} // holds one

	mu     sync.Mutex
	queue  workqueue.TypedRateLimitingInterface[reconcile.Request]
	wanted map[types.NamespacedName]channel
}

// channel is a channel of a database.
type channel struct {
	uid    types.UID
	config rows.Config
}

// listen sets the listener of a registry; nil stops it.
func (w *wake) listen(obj *tenantsv1.TenantRegistry, config *rows.Config) {
	key := client.ObjectKeyFromObject(obj)
	if config == nil || config.Channel == "" {
		w.forget(key)
		return
	}
	w.mu.Lock()
	w.wanted[key] = channel{uid: obj.UID, config: *config}
	w.mu.Unlock()
	w.poke()
}

func (w *wake) forget(key types.NamespacedName) {
	w.mu.Lock()
	delete(w.wanted, key)
	w.mu.Unlock()
	w.poke()
}

func (w *wake) poke() {
	select {
	case w.changed <- struct{}{}:
	default: // a change is signalled already
	}
}

// Run listens until ctx ends, and returns when all listeners have ended.
func (w *wake) Run(ctx context.Context) error {
	type listener struct {
		channel
		stop context.CancelFunc
	}
	var running sync.WaitGroup
	defer running.Wait()
	at := map[types.NamespacedName]listener{}
	for {
		wanted := w.all()
		for key, l := range at {
			if want, ok := wanted[key]; !ok || !reflect.DeepEqual(want, l.channel) {
				l.stop()
				delete(at, key)
			}
		}
		for key, want := range wanted {
			if _, ok := at[key]; ok {
				continue
			}
			listening, stop := context.WithCancel(ctx)
			at[key] = listener{want, stop}
			running.Go(func() {
				err := w.rows.Listen(listening, string(want.uid), want.config, func() { w.ring(key) })
				if err != nil && listening.Err() == nil {
					w.log.Warn("not notified of changed rows", "registry", key.String(), "err", err) // they are still read at intervals
				}
			})
		}
		select {
		case <-ctx.Done():
			for _, l := range at {
				l.stop()
			}
			return nil
		case <-w.changed:
		}
	}
}

func (w *wake) all() map[types.NamespacedName]channel {
	w.mu.Lock()
	defer w.mu.Unlock()
	return maps.Clone(w.wanted)
}

// ring makes a registry read its rows.
func (w *wake) ring(key types.NamespacedName) {
	w.notify(key)
	w.again(key)
}

// again has a registry reconciled.
func (w *wake) again(key types.NamespacedName) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.queue != nil {
		w.queue.Add(reconcile.Request{NamespacedName: key})
	}
}
