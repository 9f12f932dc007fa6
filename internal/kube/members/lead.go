package members

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"sync"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/kube"
	"github.com/terrier-iac/terrier/internal/shard"
)

// Lead divides the shards among the members, until ctx ends. Only the leader calls it.
func (m *Members) Lead(ctx context.Context) error {
	leases := m.API.CoordinationV1().Leases(m.Namespace)
	changed := wakes(ctx, func() (watch.Interface, error) { return leases.Watch(ctx, m.ofGroup()) })
	tick := time.NewTicker(m.Every)
	defer tick.Stop()
	for {
		if err := m.divide(ctx); err != nil && ctx.Err() == nil && !apierrors.IsConflict(err) {
			m.Log.Warn("shards are not divided among the controllers", "err", err) // tried again
		}
		select {
		case <-changed:
		case <-tick.C:
		case <-ctx.Done():
			return nil
		}
	}
}

func (m *Members) ofGroup() metav1.ListOptions {
	return metav1.ListOptions{LabelSelector: labels.SelectorFromSet(labels.Set{LabelGroup: m.Group}).String()}
}

// divide writes the next Map, if it differs.
func (m *Members) divide(ctx context.Context) error {
	// The Map first: a member that is alive in it is looked up afterwards.
	now, in, err := m.read(ctx)
	if err != nil {
		return err
	}
	live, err := m.leases(ctx, now.Members)
	if err != nil {
		return err
	}
	if in == nil {
		if now, err = m.remembered(live); err != nil {
			return err
		}
	}
	next, changed := shard.Plan(now, m.ID, live)
	if !changed {
		return nil
	}
	text, err := json.Marshal(next)
	if err != nil {
		return err
	}
	maps := m.API.CoreV1().ConfigMaps(m.Namespace)
	if in == nil {
		in = &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: m.Namespace, Name: ConfigMap(m.Group)}, Data: map[string]string{mapKey: string(text)}}
		_, err = maps.Create(ctx, in, metav1.CreateOptions{FieldManager: kube.FieldManager})
	} else {
		in.Data = map[string]string{mapKey: string(text)} // of the version that was read: another leader's is not replaced
		_, err = maps.Update(ctx, in, metav1.UpdateOptions{FieldManager: kube.FieldManager})
	}
	if err != nil {
		return fmt.Errorf("writing which controller owns which shard: %w", err)
	}
	m.Log.Info("shards divided", "generation", next.Generation, "controllers", len(next.Members))
	return nil
}

// remembered is the Map while its ConfigMap is gone. Generations go on: members ignore a
// Map that is older than the one they know.
func (m *Members) remembered(live []shard.Live) (shard.Map, error) {
	m.mu.Lock()
	now := m.known
	m.mu.Unlock()
	for _, l := range live {
		if l.Seen > 0 && now.Generation == 0 {
			return now, fault.New(fault.Broken, "ShardsLost", fmt.Errorf(
				"ConfigMap %s/%s is gone, and this controller never read it, while the controller %s owns shards: stop all controllers, then start them again", m.Namespace, ConfigMap(m.Group), l.ID))
		}
		now.Generation = max(now.Generation, l.Seen)
	}
	return now, nil
}

// keepLease is how long the Lease of a member that is gone stays, for people to look at.
const keepLease = 10 * time.Minute

// leases reads the Leases of the group, and returns the members that are live and have
// been announced. A member of the Map whose Lease was deleted goes on until it notices,
// which takes no longer than its Lease would have lasted.
func (m *Members) leases(ctx context.Context, known []shard.Member) ([]shard.Live, error) {
	asked := m.Now()
	list, err := m.API.CoordinationV1().Leases(m.Namespace).List(ctx, m.ofGroup())
	if err != nil {
		return nil, fmt.Errorf("listing the Leases of the controllers: %w", err)
	}
	var live []shard.Live
	names, told := map[string]bool{}, ""
	for i := range list.Items {
		l := &list.Items[i]
		if h := l.Spec.HolderIdentity; h != nil && *h != "" && l.Name != LeaseName(m.Group, *h) {
			continue // no member made it
		}
		names[l.Name] = true
		if l.Name == m.Lease {
			told = l.Annotations[annotationKey]
		}
		gone, since := m.watched.expired(l, asked)
		if url := l.Annotations[annotationURL]; !gone && url != "" {
			seen, _ := strconv.ParseUint(l.Annotations[annotationSeen], 10, 64) // not a number: it acknowledged nothing
			live = append(live, shard.Live{Member: shard.Member{ID: *l.Spec.HolderIdentity, URL: url}, Seen: seen})
		}
		if gone && m.Now().Sub(since) > keepLease {
			err := m.API.CoordinationV1().Leases(m.Namespace).Delete(ctx, l.Name, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &l.UID, ResourceVersion: &l.ResourceVersion}})
			if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
				return nil, fmt.Errorf("removing the Lease %s of a controller that is gone: %w", l.Name, err)
			}
		}
	}
	m.mu.Lock()
	m.told = told
	m.mu.Unlock()
	m.watched.forget(names)
	for _, was := range known {
		if name := LeaseName(m.Group, was.ID); !names[name] && m.watched.missing(name, asked) <= m.lasts() {
			live = append(live, shard.Live{Member: was})
		}
	}
	return live, nil
}

// observed is when each Lease was seen to change last. The clocks of the members may
// differ, so that a time in a Lease means nothing to another one.
type observed struct {
	now func() time.Time

	mu   sync.Mutex
	last map[string]sight     // by name
	gone map[string]time.Time // since when a Lease that is asked for is not there
}

// missing is how long a Lease was not there before a request of the time asked.
func (o *observed) missing(name string, asked time.Time) time.Duration {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.gone == nil {
		o.gone = map[string]time.Time{}
	}
	since, known := o.gone[name]
	if !known {
		since = o.now()
		o.gone[name] = since
	}
	return asked.Sub(since)
}

// absent reports whether a Lease was not there when the Leases were read last.
func (o *observed) absent(name string) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	_, gone := o.gone[name]
	return gone
}

type sight struct {
	holder  string
	renewed metav1.MicroTime
	at      time.Time // when it was first seen like this
}

// expired reports whether the holder of a Lease, as it was read by a request of the time
// asked, can hold it no more, and since when it was seen so.
func (o *observed) expired(l *coordinationv1.Lease, asked time.Time) (bool, time.Time) {
	is := sight{at: o.now()}
	if l.Spec.HolderIdentity != nil {
		is.holder = *l.Spec.HolderIdentity
	}
	if l.Spec.RenewTime != nil {
		is.renewed = *l.Spec.RenewTime
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.last == nil {
		o.last = map[string]sight{}
	}
	was, known := o.last[l.Name]
	if known && was.holder == is.holder && was.renewed.Equal(&is.renewed) {
		is.at = was.at
	}
	o.last[l.Name] = is
	if is.holder == "" {
		return true, is.at // it was released
	}
	var lasts time.Duration
	if l.Spec.LeaseDurationSeconds != nil {
		lasts = time.Duration(*l.Spec.LeaseDurationSeconds) * time.Second
	}
	return asked.Sub(is.at) > lasts, is.at
}

// forget drops the Leases that are gone.
func (o *observed) forget(but map[string]bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for name := range o.last {
		if !but[name] {
			delete(o.last, name)
		}
	}
	for name := range but {
		delete(o.gone, name)
	}
}

// lasts is how long the Lease of a member lasts.
func (m *Members) lasts() time.Duration { return cmp.Or(m.Lasts, 15*time.Second) }

// Division names how the shards of a group are divided now; it is empty if they never
// were. It differs after any controller shared stacks.
func Division(ctx context.Context, m *Members) (string, error) {
	now, in, err := m.read(ctx)
	if err != nil || in == nil {
		return "", err
	}
	return fmt.Sprintf("%s/%d", in.UID, now.Generation), nil
}

// Others lists the members of a group that are live, without being one: the holders of
// its Leases that changed within their duration, or were never seen before. A controller
// that shares nothing waits for them before it begins.
func Others(ctx context.Context, m *Members) ([]string, error) {
	live, err := m.leases(ctx, nil)
	if err != nil {
		return nil, err
	}
	var ids []string
	for _, l := range live {
		ids = append(ids, l.ID)
	}
	return ids, nil
}
