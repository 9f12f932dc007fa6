package members_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/terrier-iac/terrier/internal/kube/members"
	"github.com/terrier-iac/terrier/internal/shard"
	"github.com/terrier-iac/terrier/internal/testkit"
)

// register is who works on which shard, over all members of a test.
type register struct {
	mu     sync.Mutex
	owners map[int]string
	faults []string
}

// worker is the work of one member.
type worker struct {
	id    string
	in    *register
	fails *atomic.Bool // a Take does its work, and then fails; nil if none does
}

func (w worker) Take(_ context.Context, _ uint64, shards []int) error {
	w.in.mu.Lock()
	defer w.in.mu.Unlock()
	for _, i := range shards {
		if other := w.in.owners[i]; other != "" && other != w.id {
			w.in.faults = append(w.in.faults, fmt.Sprintf("%s takes shard %d of %s", w.id, i, other))
		}
		w.in.owners[i] = w.id
	}
	if w.fails != nil && w.fails.Load() {
		return errors.New("the runs cannot be found")
	}
	return nil
}

func (w worker) Give(_ context.Context, shards []int) error {
	w.in.mu.Lock()
	defer w.in.mu.Unlock()
	for _, i := range shards {
		delete(w.in.owners, i)
	}
	return nil
}

// share counts the shards of each member.
func (r *register) share() map[string]int {
	r.mu.Lock()
	defer r.mu.Unlock()
	out := map[string]int{}
	for _, id := range r.owners {
		out[id]++
	}
	return out
}

// died says that a member works on nothing any more.
func (r *register) died(id string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for i, owner := range r.owners {
		if owner == id {
			delete(r.owners, i)
		}
	}
}

// member is one member of a test.
type member struct {
	*members.Members
	stop context.CancelFunc // of everything but the Lease
	die  context.CancelFunc // of the renewals
}

// lease makes the Lease of a member, as its elector does.
func (m *member) lease(t *testing.T) {
	t.Helper()
	seconds := int32(m.Lasts / time.Second)
	now := metav1.NowMicro()
	_, err := m.API.CoordinationV1().Leases(m.Namespace).Create(t.Context(), &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Namespace: m.Namespace, Name: m.Lease},
		Spec:       coordinationv1.LeaseSpec{HolderIdentity: &m.ID, LeaseDurationSeconds: &seconds, RenewTime: &now},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
}

// join starts a member whose Lease is renewed until die.
func join(t *testing.T, api kubernetes.Interface, namespace, id string, lasts time.Duration, w members.Worker) *member {
	t.Helper()
	leases := api.CoordinationV1().Leases(namespace)
	name := members.LeaseName("group", id)
	joined := &member{}
	m := members.New(members.Config{API: api, Namespace: namespace, Group: "group", ID: id, Lease: name, Lasts: lasts, Every: 100 * time.Millisecond, Now: time.Now, Log: slog.New(slog.NewTextHandler(t.Output(), nil)),
		Sealing: func() string { return "key of " + id }})
	joined.Members = m
	joined.lease(t)
	if err := m.Announce(t.Context(), "https://"+id); err != nil {
		t.Fatal(err)
	}
	renewing, die := context.WithCancel(t.Context())
	following, stop := context.WithCancel(t.Context())
	var work sync.WaitGroup
	work.Go(func() {
		for tick := time.Tick(lasts / 8); ; {
			select {
			case <-tick:
			case <-renewing.Done():
				return
			}
			patch := fmt.Sprintf(`{"spec":{"renewTime":%q}}`, time.Now().UTC().Format("2006-01-02T15:04:05.000000Z07:00"))
			if _, err := leases.Patch(renewing, name, "application/merge-patch+json", []byte(patch), metav1.PatchOptions{}); err != nil && !apierrors.IsNotFound(err) && renewing.Err() == nil {
				t.Errorf("renewing %s: %v", name, err)
			}
		}
	})
	work.Go(func() { _ = m.Follow(following, w) })
	t.Cleanup(func() { die(); stop(); work.Wait() })
	joined.stop, joined.die = stop, die
	return joined
}

// Members come, the leader goes without a word and another one leads, and one is
// released. No shard ever has two owners, and all have one again each time.
func TestShardsAreDivided(t *testing.T) {
	t.Parallel()
	k := testkit.Kube(t)
	api, err := kubernetes.NewForConfig(k.Config)
	if err != nil {
		t.Fatal(err)
	}
	r := &register{owners: map[int]string{}}
	shared := func(want map[string]int) {
		t.Helper()
		testkit.Eventually(t, testkit.Patience, fmt.Sprint("the shares are ", want), func(context.Context) error {
			if got := r.share(); fmt.Sprint(got) != fmt.Sprint(want) {
				return fmt.Errorf("they are %v", got)
			}
			return nil
		})
		r.mu.Lock()
		defer r.mu.Unlock()
		for _, f := range r.faults {
			t.Error(f)
		}
	}
	lead := func(m *member) context.CancelFunc {
		leading, resign := context.WithCancel(t.Context())
		var work sync.WaitGroup
		work.Go(func() { _ = m.Lead(leading) })
		t.Cleanup(func() { resign(); work.Wait() })
		return resign
	}
	const lasts = 15 * time.Second // longer than a loaded machine holds a renewal up
	a := join(t, api, k.Namespace, "a", lasts, worker{id: "a", in: r})
	resign := lead(a)
	shared(map[string]int{"a": 256})
	b := join(t, api, k.Namespace, "b", lasts, worker{id: "b", in: r})
	shared(map[string]int{"a": 128, "b": 128})
	c := join(t, api, k.Namespace, "c", lasts, worker{id: "c", in: r})
	shared(map[string]int{"a": 85, "b": 86, "c": 85})

	a.stop()
	resign()
	a.die()
	r.died("a") // nothing of it is running, but its Lease is there
	lead(b)
	shared(map[string]int{"b": 128, "c": 128})
	if leader, ok := c.Leader(); !ok || leader.ID != "b" {
		t.Errorf("the leader is %v", leader)
	}
	testkit.Eventually(t, testkit.Patience, "the last leader is reported as stale, and the others with their shards", func(ctx context.Context) error {
		r, err := members.ReportOf(ctx, c.Members)
		all := map[string]members.Standing{}
		for _, s := range r.Members {
			all[s.ID] = s
		}
		if err != nil || r.Leader != "b" || r.Unowned > 0 || r.Moving > 0 || len(all) != 3 || !all["a"].Stale || all["a"].Shards != 0 || all["a"].Seen.IsZero() ||
			all["b"].Stale || all["b"].Shards != 128 || all["c"].URL != "https://c" || all["c"].Lease != members.LeaseName("group", "c") {
			return fmt.Errorf("ReportOf() = %+v, %v", r, err)
		}
		return nil
	})
	for _, stack := range []string{"one", "two", "three"} {
		owner, ok := c.Owner(stack)
		if !ok || owner.ID != r.owners[shard.Of(stack)] || owner.URL != "https://"+owner.ID {
			t.Errorf("the owner of %s is %v, want %s", stack, owner, r.owners[shard.Of(stack)])
		}
		if b.Owns(stack) == c.Owns(stack) {
			t.Errorf("the stack %s has no owner, or two", stack)
		}
	}

	// A Lease that a user deletes costs its member nothing, and gives nothing of it away.
	if err := api.CoordinationV1().Leases(k.Namespace).Delete(t.Context(), members.LeaseName("group", "c"), metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	c.lease(t)
	testkit.Eventually(t, testkit.Patience, "the member announces itself again", func(ctx context.Context) error {
		l, err := api.CoordinationV1().Leases(k.Namespace).Get(ctx, members.LeaseName("group", "c"), metav1.GetOptions{})
		if err == nil && l.Labels[members.LabelGroup] != "group" {
			err = errors.New("its Lease has no label")
		}
		return err
	})
	shared(map[string]int{"b": 128, "c": 128})

	c.stop()
	c.die()
	r.died("c")
	patch := []byte(`{"spec":{"holderIdentity":""}}`)
	if _, err := api.CoordinationV1().Leases(k.Namespace).Patch(t.Context(), members.LeaseName("group", "c"), "application/merge-patch+json", patch, metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	shared(map[string]int{"b": 256})
}

// Shards whose takeover failed half-way are given up like any other before they are
// another member's.
func TestShardsTakenInPartAreGiven(t *testing.T) {
	t.Parallel()
	k := testkit.Kube(t)
	api, err := kubernetes.NewForConfig(k.Config)
	if err != nil {
		t.Fatal(err)
	}
	r := &register{owners: map[int]string{}}
	var fails atomic.Bool
	fails.Store(true)
	a := join(t, api, k.Namespace, "a", 15*time.Second, worker{id: "a", in: r, fails: &fails})
	leading, resign := context.WithCancel(t.Context())
	var work sync.WaitGroup
	work.Go(func() { _ = a.Lead(leading) })
	t.Cleanup(func() { resign(); work.Wait() })
	share := func(of string, want int) {
		t.Helper()
		testkit.Eventually(t, testkit.Patience, fmt.Sprintf("%s works on %d shards", of, want), func(context.Context) error {
			if got := r.share()[of]; got != want {
				return fmt.Errorf("it works on %d", got)
			}
			return nil
		})
	}
	share("a", 256)
	if held := a.Held(); len(held) > 0 {
		t.Errorf("a has %d shards although none could be taken", len(held))
	}
	join(t, api, k.Namespace, "b", 15*time.Second, worker{id: "b", in: r})
	share("b", 128)
	share("a", 128)
	fails.Store(false)
	testkit.Eventually(t, testkit.Patience, "a has its shards", func(context.Context) error {
		if held := a.Held(); len(held) != 128 {
			return fmt.Errorf("it has %d", len(held))
		}
		return nil
	})
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, f := range r.faults {
		t.Error(f)
	}
}

// What a member said in a Lease that is lost, it says again in the next one: which shards it gave
// up, without which they would have no owner, and with which key it encrypts records.
func TestWhatALeaseSaidIsSaidAgain(t *testing.T) {
	t.Parallel()
	k := testkit.Kube(t)
	api, err := kubernetes.NewForConfig(k.Config)
	if err != nil {
		t.Fatal(err)
	}
	r := &register{owners: map[int]string{}}
	a := join(t, api, k.Namespace, "a", 15*time.Second, worker{id: "a", in: r})
	leases := api.CoordinationV1().Leases(k.Namespace)
	one, _ := shard.Plan(shard.Map{}, "a", []shard.Live{{Member: a.Me()}})
	two, moved := shard.Plan(one, "a", []shard.Live{{Member: a.Me()}, {Member: shard.Member{ID: "b", URL: "https://b"}}})
	if !moved || !two.Unacknowledged("a", one.Generation) {
		t.Fatal("no shard is moved")
	}
	text, err := json.Marshal(two)
	if err != nil {
		t.Fatal(err)
	}
	divided := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: members.ConfigMap("group")}, Data: map[string]string{"shards.json": string(text)}}
	if _, err := api.CoreV1().ConfigMaps(k.Namespace).Create(t.Context(), divided, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	said := func() {
		t.Helper()
		testkit.Eventually(t, testkit.Patience, "the Lease says what was given up, and the key", func(ctx context.Context) error {
			l, err := leases.Get(ctx, a.Lease, metav1.GetOptions{})
			if err == nil && (l.Annotations["terrier.dev/acknowledged"] != fmt.Sprint(two.Generation) || l.Annotations["terrier.dev/records-key"] != "key of a") {
				err = fmt.Errorf("it says %v", l.Annotations)
			}
			return err
		})
	}
	said()
	if err := leases.Delete(t.Context(), a.Lease, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	a.lease(t)
	said()
}

// The keys that processes say they encrypt records with are those of all that hold a Lease of the
// group, one that has said nothing yet included.
func TestKeysOfProcesses(t *testing.T) {
	t.Parallel()
	k := testkit.Kube(t)
	api, err := kubernetes.NewForConfig(k.Config)
	if err != nil {
		t.Fatal(err)
	}
	a := join(t, api, k.Namespace, "a", 15*time.Second, worker{id: "a", in: &register{owners: map[int]string{}}})
	lasts, now := int32(15), metav1.NowMicro()
	for id, holder := range map[string]string{"begins": "begins", "released": ""} {
		_, err := api.CoordinationV1().Leases(k.Namespace).Create(t.Context(), &coordinationv1.Lease{
			ObjectMeta: metav1.ObjectMeta{Name: members.LeaseName("group", id), Labels: map[string]string{members.LabelGroup: "group"}},
			Spec:       coordinationv1.LeaseSpec{HolderIdentity: &holder, LeaseDurationSeconds: &lasts, RenewTime: &now},
		}, metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
	}
	testkit.Eventually(t, testkit.Patience, "the keys are those of the processes that hold a Lease", func(ctx context.Context) error {
		keys, err := members.Keys(ctx, a.Members)
		if want := map[string]string{"a": "key of a", "begins": ""}; err == nil && !maps.Equal(keys, want) {
			err = fmt.Errorf("they are %q, want %q", keys, want)
		}
		return err
	})
}
