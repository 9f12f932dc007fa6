package app

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/spf13/pflag"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/leaderelection/resourcelock"

	"github.com/terrier-iac/terrier/internal/access"
	"github.com/terrier-iac/terrier/internal/app/flags"
	"github.com/terrier-iac/terrier/internal/app/installation"
	"github.com/terrier-iac/terrier/internal/blob"
	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/kube/members"
	"github.com/terrier-iac/terrier/internal/record"
	"github.com/terrier-iac/terrier/internal/testkit"
)

// A controller that is pointed at the control plane of terrier up is refused,
// unless it has the same data directory, whose lock it waits for.
func TestACommandThatIsUpKeepsControllersOff(t *testing.T) {
	k := testkit.Kube(t)
	name, up := k.Namespace, t.TempDir() // the namespace of Leases is that of every test
	if err := ensureServerNamespace(t.Context(), k.Client); err != nil {
		t.Fatal(err)
	}
	keysOf := func(dir string) *installation.Keys {
		keys, err := installation.Local(dir, time.Now)
		if err != nil {
			t.Fatal(err)
		}
		return keys
	}
	if err := errors.Join(reserve(t.Context(), k.Client, name, keysOf(up).ID()), reserve(t.Context(), k.Client, name, keysOf(up).ID())); err != nil {
		t.Fatal(err)
	}
	lead, err := takeLead(t.Context(), k.Config, ClusterConfig{Lease: name, LeaseTime: 15 * time.Second}, newIdentity(), nil, time.Now, t.Logf)
	if err != nil {
		t.Fatal(err)
	}
	defer lead.release()
	other := t.TempDir()
	if err := lead.claim(t.Context(), keysOf(other), other); fault.Of(err) != fault.Denied {
		t.Errorf("claim() of another data directory = %v, want it refused", err)
	}
	if err := lead.claim(t.Context(), keysOf(up), t.TempDir()); fault.Of(err) != fault.Denied {
		t.Errorf("claim() of an empty data directory with the same keys = %v, want it refused", err)
	}
	if err := lead.claim(t.Context(), keysOf(up), up); err != nil {
		t.Errorf("claim() of the same data directory: %v", err)
	}
}

// No record is written or deleted that another controller took.
func TestTakenRecordsStay(t *testing.T) {
	files, err := blob.OpenFiles(t.TempDir(), 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	defer files.Close()
	if err := files.Put(t.Context(), "key", strings.NewReader("value")); err != nil {
		t.Fatal(err)
	}
	taken := errors.New("taken")
	f := fencedBlobs{files, func() error { return nil }, func(context.Context) error { return taken }}
	if err := f.Put(t.Context(), "key", strings.NewReader("other")); !errors.Is(err, taken) {
		t.Errorf("Put() = %v", err)
	}
	if err := f.Delete(t.Context(), "key"); !errors.Is(err, taken) {
		t.Errorf("Delete() = %v", err)
	}
	if got, err := record.Read(t.Context(), f, "key"); string(got) != "value" || err != nil {
		t.Errorf("the record is %q, %v", got, err)
	}
}

// Without --lease, a controller uses the Lease that terrier up reserves.
func TestTheLeaseOfControllersIsTheDefault(t *testing.T) {
	var k ClusterConfig
	if err := flags.Bind(pflag.NewFlagSet("", pflag.ContinueOnError), &k, func(string) string { return "" }); err != nil {
		t.Fatal(err)
	}
	if k.Lease != leaseOfControllers {
		t.Errorf("--lease is %q, want %q", k.Lease, leaseOfControllers)
	}
}

// slowLease is a Lease that is written after a while, or not at all.
type slowLease struct {
	resourcelock.Interface
	write func() error
}

func (s slowLease) Create(context.Context, resourcelock.LeaderElectionRecord) error { return s.write() }
func (s slowLease) Update(context.Context, resourcelock.LeaderElectionRecord) error { return s.write() }

// A Lease is held from when it was asked for, whenever that was heard.
func TestALeaseCountsFromWhenItWasAskedFor(t *testing.T) {
	const seconds = 15
	record := resourcelock.LeaderElectionRecord{LeaseDurationSeconds: seconds}
	for name, tt := range map[string]struct {
		answer time.Duration // after which it comes
		err    error
		later  time.Duration // after the answer
		want   bool
	}{
		"at once":                          {0, nil, 0, true},
		"just before it runs out":          {0, nil, seconds*time.Second - 1, true},
		"when it runs out":                 {0, nil, seconds * time.Second, false},
		"an answer that takes its time":    {5 * time.Second, nil, 9 * time.Second, true},
		"an answer does not make it later": {5 * time.Second, nil, 10 * time.Second, false},
		"stopped before the answer":        {time.Minute, nil, 0, false},
		"refused":                          {0, errors.New("another version"), 0, false},
	} {
		t.Run(name, func(t *testing.T) {
			now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
			lease := &datedLease{now: func() time.Time { return now }, Interface: slowLease{write: func() error {
				now = now.Add(tt.answer)
				return tt.err
			}}}
			for what, write := range map[string]func(context.Context, resourcelock.LeaderElectionRecord) error{"Create": lease.Create, "Update": lease.Update} {
				lease.until = time.Time{}
				if err := write(t.Context(), record); !errors.Is(err, tt.err) {
					t.Fatalf("%s() = %v, want %v", what, err, tt.err)
				}
				now = now.Add(tt.later)
				if got := lease.holds(); got != tt.want {
					t.Errorf("after %s: holds() = %t, want %t", what, got, tt.want)
				}
			}
		})
	}
}

// What was not renewed is lost when its time is over, and no earlier.
func TestARenewalThatFailsTakesNothingAway(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	var fails error
	lease := &datedLease{now: func() time.Time { return now }, Interface: slowLease{write: func() error { return fails }}}
	record := resourcelock.LeaderElectionRecord{LeaseDurationSeconds: 15}
	if err := lease.Create(t.Context(), record); err != nil {
		t.Fatal(err)
	}
	fails = errors.New("away")
	now = now.Add(10 * time.Second)
	if err := lease.Update(t.Context(), record); !errors.Is(err, fails) {
		t.Fatalf("Update() = %v, want %v", err, fails)
	}
	if !lease.holds() {
		t.Error("it is given up before its time is over")
	}
	now = now.Add(5 * time.Second)
	if lease.holds() {
		t.Error("it is held on to after its time is over")
	}
}

// A Lease that others count as free once it has expired is not renewed after that, also if
// no other process took it. One that elects a single controller is.
func TestAFinalLeaseIsNotRenewedLate(t *testing.T) {
	for final, want := range map[bool]error{true: errLapsed, false: nil} {
		now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
		lease := &datedLease{now: func() time.Time { return now }, final: final, Interface: slowLease{write: func() error { return nil }}}
		record := resourcelock.LeaderElectionRecord{LeaseDurationSeconds: 15}
		if err := lease.Create(t.Context(), record); err != nil {
			t.Fatal(err)
		}
		now = now.Add(15 * time.Second)
		if err := lease.Update(t.Context(), record); !errors.Is(err, want) || lease.holds() == final {
			t.Errorf("final %t: Update() after the end = %v, holds() = %t", final, err, lease.holds())
		}
	}
}

// A data directory is stale at a start that shares nothing, once after stacks were shared.
func TestSharingMakesADirectoryStale(t *testing.T) {
	k, dir := testkit.Kube(t), t.TempDir()
	if err := ensureServerNamespace(t.Context(), k.Client); err != nil {
		t.Fatal(err)
	}
	c := cluster{ClusterConfig: ClusterConfig{Lease: k.Namespace}, now: time.Now}
	start := func(want bool) {
		t.Helper()
		for range 2 { // a start that ends early is repeated
			if d, err := c.divided(t.Context(), k.Config, dir, slog.New(slog.DiscardHandler)); err != nil || d.stale != want {
				t.Errorf("divided() = %+v, %v; want it stale: %v", d, err, want)
			}
		}
		d, err := c.divided(t.Context(), k.Config, dir, slog.New(slog.DiscardHandler))
		if err := errors.Join(err, d.note()); err != nil {
			t.Fatal(err)
		}
	}
	start(false)
	shards := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: access.ServerNamespace, Name: members.ConfigMap(k.Namespace)}, Data: map[string]string{"shards.json": `{"generation":1}`}}
	if err := k.Client.Create(t.Context(), shards); err != nil {
		t.Fatal(err)
	}
	start(true)
	start(false)
	shards.Data["shards.json"] = `{"generation":2}`
	if err := k.Client.Update(t.Context(), shards); err != nil {
		t.Fatal(err)
	}
	start(true)
	start(false)
}

// The Lease of a process is listed with those of the others from the moment on at which it exists:
// one that ends before it announces itself leaves a Lease that the others remove.
func TestALeaseOfAMemberIsListedFromTheBeginning(t *testing.T) {
	k := testkit.Kube(t)
	c := cluster{ClusterConfig: ClusterConfig{Lease: k.Namespace, LeaseTime: 15 * time.Second}, now: time.Now, progress: io.Discard}
	r, err := c.join(t.Context(), k.Config, t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer r.release()
	set, err := kubernetes.NewForConfig(k.Config)
	if err != nil {
		t.Fatal(err)
	}
	m := members.New(members.Config{API: set, Namespace: access.ServerNamespace, Group: c.Lease, Now: time.Now, Log: slog.New(slog.DiscardHandler)})
	report, err := members.ReportOf(t.Context(), m)
	if err != nil || len(report.Members) != 1 || report.Members[0].Lease != r.member.name || report.Members[0].Stale {
		t.Errorf("ReportOf() = %+v, %v, want the process that has only its Lease", report, err)
	}
}
