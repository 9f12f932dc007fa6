// Package members is the controllers that share the stacks of a cluster. Each of them, a
// member, holds a Lease of its own, and one is the leader. The leader divides the shards
// of stacks among the members and writes the shard.Map into a ConfigMap; each member
// reads it, gives up and takes over shards, and acknowledges in its Lease what it gave up.
//
// It does not elect the leader, and does not know what work on a shard is: a Worker does.
//
// It refuses to take a member for dead before its Lease, seen without a change for its
// whole duration, has certainly expired.
//
// Start reading at Members.
package members

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"

	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/kube"
	"github.com/terrier-iac/terrier/internal/shard"
)

const (
	// LabelGroup is the label of the Leases of members; its value is the name of the Lease
	// that elects their leader. A Lease has it from the beginning, so that the one of a process
	// that ends before it announces itself is listed and removed, too.
	LabelGroup = "terrier.dev/member-of"

	annotationURL  = "terrier.dev/member-url"
	annotationSeen = "terrier.dev/acknowledged" // a generation of the shard.Map
	annotationKey  = "terrier.dev/records-key"  // the ID of the oldest key that it may encrypt a record with

	mapKey = "shards.json"
)

// ConfigMap is the name of the ConfigMap of a group.
func ConfigMap(group string) string { return group + "-shards" }

// Config is what Members needs.
type Config struct {
	API       kubernetes.Interface // whose writes are refused once the Lease of this member has expired
	Namespace string
	Group     string        // the name of the Lease that elects the leader
	ID        string        // of this member; the holder of its Lease
	Lease     string        // the name of the Lease of this member
	Lasts     time.Duration // of the Leases of members; 15 seconds if zero
	Every     time.Duration // at which the Map and the Leases are read, in case a change was missed; a second if zero
	Now       func() time.Time
	Log       *slog.Logger

	// Sealing is the ID of the oldest key with which this member may still encrypt a record;
	// nil if it writes none. The member says it in its Lease, for the others.
	Sealing func() string
}

// Worker works on shards.
type Worker interface {
	// Take begins the work on shards, which this member owns since a generation of the
	// Map. After an error it is asked again.
	Take(ctx context.Context, generation uint64, shards []int) error
	// Give ends the work on shards, and returns once none goes on. After an error it is
	// asked again.
	Give(ctx context.Context, shards []int) error
}

// Members is this member, and what it knows of the others.
type Members struct {
	Config

	mu    sync.Mutex
	me    shard.Member
	known shard.Map
	held  map[int]bool    // on which the worker works
	begun map[int]bool    // that the worker was asked to take, and not to give since
	alive map[string]bool // the IDs of members that are live
	told  string          // of Sealing, as the Lease said when the Leases were read last
	seen  uint64          // the generation that was acknowledged, likewise

	watched observed // the Leases of all members
}

// New returns a member that holds its Lease, and no shards.
func New(c Config) *Members {
	if c.Every <= 0 {
		c.Every = time.Second
	}
	return &Members{Config: c, me: shard.Member{ID: c.ID}, held: map[int]bool{}, begun: map[int]bool{}, watched: observed{now: c.Now}}
}

// Announce says in the Lease where this member is reached. From then on it gets shards.
func (m *Members) Announce(ctx context.Context, url string) error {
	if err := m.patch(ctx, map[string]string{annotationURL: url}); err != nil {
		return fmt.Errorf("announcing this controller to the others: %w", err)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.me.URL = url
	return nil
}

// patch changes the annotations of the Lease of this member.
func (m *Members) patch(ctx context.Context, annotations map[string]string) error {
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"labels": map[string]string{LabelGroup: m.Group}, "annotations": annotations}})
	if err != nil {
		return err
	}
	_, err = m.API.CoordinationV1().Leases(m.Namespace).Patch(ctx, m.Lease, types.MergePatchType, patch, metav1.PatchOptions{FieldManager: kube.FieldManager})
	return err
}

// Me is this member.
func (m *Members) Me() shard.Member {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.me
}

// Leader is the member that is the leader, as far as this one knows. There is none while
// the last one is not live.
func (m *Members) Leader() (shard.Member, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if !m.alive[m.known.Leader] {
		return shard.Member{}, false
	}
	return m.known.Member(m.known.Leader)
}

// Members are the members, as far as this one knows.
func (m *Members) Members() []shard.Member {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Clone(m.known.Members)
}

// Owner is the member that owns a stack. There is none while its shard is moved.
func (m *Members) Owner(stack string) (shard.Member, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.known.Owner(stack)
}

// Owns reports whether this member works on a stack.
func (m *Members) Owns(stack string) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.held[shard.Of(stack)]
}

// Held lists the shards on which this member works.
func (m *Members) Held() []int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.heldLocked()
}

func (m *Members) heldLocked() []int {
	out := make([]int, 0, len(m.held))
	for i := range m.held {
		out = append(out, i)
	}
	slices.Sort(out)
	return out
}

// Follow reads the shard.Map each time it changes, and has the worker give up and take
// shards, until ctx ends.
func (m *Members) Follow(ctx context.Context, w Worker) error {
	maps := m.API.CoreV1().ConfigMaps(m.Namespace)
	changed := wakes(ctx, func() (watch.Interface, error) {
		return maps.Watch(ctx, metav1.ListOptions{FieldSelector: fields.OneTermEqualSelector("metadata.name", ConfigMap(m.Group)).String()})
	})
	tick := time.NewTicker(m.Every)
	defer tick.Stop()
	for {
		if err := m.follow(ctx, w); err != nil && ctx.Err() == nil {
			m.Log.Warn("the shards of this controller are not up to date", "err", err) // tried again
		}
		select {
		case <-changed:
		case <-tick.C:
		case <-ctx.Done():
			return nil
		}
	}
}

// follow reads the Map and brings this member up to it.
func (m *Members) follow(ctx context.Context, w Worker) error {
	read, _, err := m.read(ctx)
	if err != nil {
		return err
	}
	live, err := m.leases(ctx, read.Members) // so that this member, should it lead next, knows who is alive
	if err != nil {
		return err
	}
	if err := m.stay(ctx, live); err != nil {
		return err
	}
	if err := m.tellKey(ctx); err != nil {
		return err
	}
	m.mu.Lock()
	m.alive = map[string]bool{}
	// What counts is what the Lease says: an acknowledgement is lost with a Lease that is
	// deleted, and is made again with the one that follows.
	m.seen = 0
	for _, l := range live {
		m.alive[l.ID] = true
		if l.ID == m.ID {
			m.seen = l.Seen
		}
	}
	if read.Generation >= m.known.Generation { // an old one says nothing
		m.known = read
	}
	now := m.known
	var give, take []int
	for i, s := range now.Shards {
		switch owned := s.Owned(m.ID); {
		case owned && !m.held[i]:
			take = append(take, i)
		case !owned && m.begun[i]:
			give = append(give, i)
		}
	}
	m.mu.Unlock()
	return m.bring(ctx, w, &now, give, take)
}

// bring gives up shards, acknowledges that, and takes others over.
func (m *Members) bring(ctx context.Context, w Worker, now *shard.Map, give, take []int) error {
	if len(give) > 0 {
		if err := w.Give(ctx, give); err != nil {
			return fmt.Errorf("giving up %d shards: %w", len(give), err)
		}
		m.mark(m.held, give, false)
		m.mark(m.begun, give, false)
		m.Log.Info("shards given up", "shards", len(give), "generation", now.Generation)
	}
	if now.Unacknowledged(m.ID, m.seen) {
		if err := m.patch(ctx, map[string]string{annotationSeen: strconv.FormatUint(now.Generation, 10)}); err != nil {
			return fmt.Errorf("acknowledging the shards that were given up: %w", err)
		}
		m.seen = now.Generation
	}
	if len(take) > 0 {
		m.mark(m.begun, take, true) // first: a part of them may be taken when it fails
		if err := w.Take(ctx, now.Generation, take); err != nil {
			return fmt.Errorf("taking %d shards over: %w", len(take), err)
		}
		m.mark(m.held, take, true)
		m.Log.Info("shards taken over", "shards", len(take), "generation", now.Generation)
	}
	return nil
}

func (m *Members) mark(set map[int]bool, shards []int, in bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, i := range shards {
		if in {
			set[i] = true
		} else {
			delete(set, i)
		}
	}
}

// stay announces this member again if its Lease was deleted, and made again by the elector
// without a word about this member.
func (m *Members) stay(ctx context.Context, live []shard.Live) error {
	me := m.Me()
	if me.URL == "" || slices.ContainsFunc(live, func(l shard.Live) bool { return l.ID == m.ID && !m.watched.absent(m.Lease) }) {
		return nil
	}
	return m.Announce(ctx, me.URL)
}

// tellKey says in the Lease with which key this member encrypts records, if the Lease says
// something else.
func (m *Members) tellKey(ctx context.Context) error {
	if m.Sealing == nil {
		return nil
	}
	key := m.Sealing()
	m.mu.Lock()
	told := m.told
	m.mu.Unlock()
	if key == told {
		return nil
	}
	if err := m.patch(ctx, map[string]string{annotationKey: key}); err != nil {
		return fmt.Errorf("telling the other controllers with which key this one encrypts records: %w", err)
	}
	return nil // the next list of Leases shows it
}

// read reads the Map; it is empty if there is none yet.
func (m *Members) read(ctx context.Context) (shard.Map, *corev1.ConfigMap, error) {
	var out shard.Map
	in, err := m.API.CoreV1().ConfigMaps(m.Namespace).Get(ctx, ConfigMap(m.Group), metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return out, nil, nil
	}
	if err != nil {
		return out, nil, err
	}
	if err := json.Unmarshal([]byte(in.Data[mapKey]), &out); err != nil {
		return out, nil, fault.New(fault.Broken, "ShardsUnreadable", fmt.Errorf("ConfigMap %s/%s, key %s: %w: stop all controllers and delete the ConfigMap, the next leader writes another one", m.Namespace, in.Name, mapKey, err))
	}
	return out, in, nil
}

// wakes signals each event of a watch, which is opened again when it ends.
func wakes(ctx context.Context, open func() (watch.Interface, error)) <-chan struct{} {
	out := make(chan struct{}, 1)
	go func() {
		for ctx.Err() == nil {
			if w, err := open(); err == nil {
				for range w.ResultChan() {
					select {
					case out <- struct{}{}:
					default:
					}
				}
				w.Stop()
			}
			select { // without a watch, changes are found by the ticks
			case <-time.After(time.Second):
			case <-ctx.Done():
			}
		}
	}()
	return out
}

// LeaseName is the name of the Lease of a member.
func LeaseName(group, id string) string {
	return group + "-member-" + strings.ToLower(strings.NewReplacer("_", "-", ".", "-").Replace(id))
}
