package members_test

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
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
	id string
	in *register
}

func (w worker) Take(_ context.Context, _ uint64, shards []int) error {
	w.in.mu.Lock()
	defer w.in.mu.Unlock()
	for _, i := range shards {
		if other := w.in.owners[i]; other != "" {
			w.in.faults = append(w.in.faults, fmt.Sprintf("%s takes shard %d of %s", w.id, i, other))
		}
		w.in.owners[i] = w.id
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

// join starts a member whose Lease is renewed until die.
func join(t *testing.T, api kubernetes.Interface, namespace, id string, lasts time.Duration, w members.Worker) *member {
	t.Helper()
	leases := api.CoordinationV1().Leases(namespace)
	name := members.LeaseName("group", id)
	seconds := int32(lasts / time.Second)
	now := metav1.NowMicro()
	_, err := leases.Create(t.Context(), &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec:       coordinationv1.LeaseSpec{HolderIdentity: &id, LeaseDurationSeconds: &seconds, RenewTime: &now},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	m := members.New(members.Config{API: api, Namespace: namespace, Group: "group", ID: id, Lease: name, Every: 100 * time.Millisecond, Now: time.Now, Log: slog.New(slog.NewTextHandler(t.Output(), nil))})
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
			if _, err := leases.Patch(renewing, name, "application/merge-patch+json", []byte(patch), metav1.PatchOptions{}); err != nil && renewing.Err() == nil {
				t.Errorf("renewing %s: %v", name, err)
			}
		}
	})
	work.Go(func() { _ = m.Follow(following, w) })
	t.Cleanup(func() { die(); stop(); work.Wait() })
	return &member{m, stop, die}
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
	a := join(t, api, k.Namespace, "a", lasts, worker{"a", r})
	resign := lead(a)
	shared(map[string]int{"a": 256})
	b := join(t, api, k.Namespace, "b", lasts, worker{"b", r})
	shared(map[string]int{"a": 128, "b": 128})
	c := join(t, api, k.Namespace, "c", lasts, worker{"c", r})
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
	for _, stack := range []string{"one", "two", "three"} {
		owner, ok := c.Owner(stack)
		if !ok || owner.ID != r.owners[shard.Of(stack)] || owner.URL != "https://"+owner.ID {
			t.Errorf("the owner of %s is %v, want %s", stack, owner, r.owners[shard.Of(stack)])
		}
		if b.Owns(stack) == c.Owns(stack) {
			t.Errorf("the stack %s has no owner, or two", stack)
		}
	}

	c.stop()
	c.die()
	r.died("c")
	patch := []byte(`{"spec":{"holderIdentity":""}}`)
	if _, err := api.CoordinationV1().Leases(k.Namespace).Patch(t.Context(), members.LeaseName("group", "c"), "application/merge-patch+json", patch, metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	shared(map[string]int{"b": 256})
}
