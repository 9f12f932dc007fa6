package policies

import (
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/terrier-iac/terrier/internal/audit"
	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/policy"
	"github.com/terrier-iac/terrier/internal/stack"
)

// world has the audit log of a controller, a ledger, and a clock.
type world struct {
	dir string
	log *audit.Log
	now time.Time
	*Hours
}

func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{dir: t.TempDir(), now: time.Unix(1e9, 0).UTC()}
	if err := w.start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = w.log.Close() })
	return w
}

// start begins a process that knows nothing but what is on the disk.
func (w *world) start() (err error) {
	clock := func() time.Time { return w.now }
	if w.log, err = audit.Open(w.dir, audit.Options{Now: clock, SegmentBytes: 2000}); err == nil {
		w.Hours = NewHours(w.log, clock)
	}
	return err
}

// restart is a new process after the last one was killed.
func (w *world) restart(t interface{ Fatal(...any) }) {
	if err := w.log.Close(); err != nil {
		t.Fatal(err)
	}
	if err := w.start(); err != nil {
		t.Fatal(err)
	}
}

// limitOf is the limit of a tenant in these tests.
func limitOf(tenant string, most int) []PerHour {
	return []PerHour{{Policy: "ClusterPolicy/p", Tenant: tenant, Most: most}}
}

// entryOf is what the audit log has of a run.
func entryOf(what audit.What, tenant, stackID, run string, n int) audit.Entry {
	return audit.Entry{
		ID: stackID + "/" + string(what) + "/" + run, What: what, Run: run, Object: audit.Object{Kind: "Terraform", Namespace: "ns", Name: stackID, UID: stackID},
		Changes: stack.Changes{Destroy: n}, Details: map[string]string{TenantDetail: tenant},
	}
}

// What the stacks of a tenant destroyed within the last hour counts, whichever controller began
// it and whatever became of the stack and of the controller. A plan waits until so much of it is older
// than an hour that it fits in.
func TestDestroysOfTheLastHour(t *testing.T) {
	w := newWorld(t)
	begin := func(what, stackID, run string, n int, fits bool) {
		t.Helper()
		err := w.Begin(t.Context(), Beginning{entryOf(audit.ApplyStarted, "a", stackID, run, n), limitOf("a", 5)})
		if (err == nil) != fits || err != nil && (fault.Of(err) != fault.Conflict || fault.Reason(err, "") != Changed) {
			t.Errorf("%s: Begin() of %d resources = %v, want that it fits in: %v", what, n, err, fits)
		}
	}
	record := func(e audit.Entry) {
		t.Helper()
		if err := w.log.Record(t.Context(), e); err != nil {
			t.Fatal(err)
		}
	}
	waits := func(what string, n int, want time.Duration) {
		t.Helper()
		got, err := Withheld(t.Context(), w, w.now, "another", limitOf("a", 5), n)
		if err != nil {
			t.Fatal(err)
		}
		if got.None() != (want == 0) || !got.None() && (!got.Until.Equal(w.now.Add(want)) || got.Rule != policy.MaxDestroysPerHour) {
			t.Errorf("%s: %+v at %s, want a wait of %s", what, got, w.now, want)
		}
	}
	waits("nothing was destroyed", 5, 0)
	begin("the first", "s1", "r1", 2, true)
	waits("it fits in", 3, 0)
	waits("a run goes on", 4, time.Hour)
	waits("more than an hour allows is for an approval", 6, 0)
	w.now = w.now.Add(10 * time.Minute)
	record(entryOf(audit.Applied, "", "s1", "r1", 2))
	begin("the same stack", "s1", "r2", 2, true)
	record(entryOf(audit.ApplyFailed, "", "s1", "r2", 2))
	w.now = w.now.Add(10 * time.Minute)
	record(entryOf(audit.Deleted, "", "s1", "", 0))
	w.restart(t)
	waits("after a restart both applies of the stack count, which is gone", 2, 50*time.Minute)
	begin("after a restart", "s2", "r1", 2, false)
	begin("what is left of the limit", "s2", "r1", 1, true)
	record(entryOf(audit.ApplyStarted, "b", "s9", "r1", 100))
	waits("another tenant does not count", 1, 50*time.Minute)
	begin("a run that did not begin is tried again", "s2", "r1", 1, true)
	w.now = w.now.Add(2 * time.Hour)
	waits("a run goes on for hours", 5, time.Hour)
	waits("and leaves the rest", 4, 0)
	w.restart(t)
	waits("a run goes on for hours beyond a restart", 5, time.Hour)
	record(entryOf(audit.Applied, "", "s2", "r1", 1))
	w.now = w.now.Add(59 * time.Minute)
	waits("an hour from its end", 5, time.Minute)
	w.now = w.now.Add(time.Minute)
	waits("it is over", 5, 0)
}

// A run that never began keeps its share for itself, until the stack goes on without it.
func TestARunThatNeverBegan(t *testing.T) {
	w := newWorld(t)
	first := entryOf(audit.ApplyStarted, "a", "s", "r1", 4)
	if err := w.Begin(t.Context(), Beginning{first, limitOf("a", 5)}); err != nil {
		t.Fatal(err)
	}
	w.now = w.now.Add(90 * time.Minute)
	if got, err := Withheld(t.Context(), w, w.now, "s", limitOf("a", 5), 5); err != nil || !got.None() {
		t.Errorf("its own stack waits: %+v, %v", got, err)
	}
	if err := w.log.Record(t.Context(), entryOf(audit.Rejected, "", "s", "", 0)); err != nil {
		t.Fatal(err)
	}
	if got, err := w.Destroyed(t.Context(), "a"); err != nil || len(got) != 0 {
		t.Errorf("a rejected plan counts: %+v, %v", got, err)
	}
	// The same run begins at last: the audit log has its name already.
	if err := w.Begin(t.Context(), Beginning{first, limitOf("a", 5)}); err != nil {
		t.Fatal(err)
	}
	w.restart(t)
	if got, err := w.Destroyed(t.Context(), "a"); err != nil || len(got) != 1 || got[0].Ended || got[0].Resources != 4 {
		t.Errorf("Destroyed() = %+v, %v; want the run that began", got, err)
	}
}

// A ledger that cannot read says so, and lets nothing begin.
func TestALedgerWithoutItsAuditLog(t *testing.T) {
	w := newWorld(t)
	if err := w.log.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := Withheld(t.Context(), w, w.now, "s", limitOf("a", 5), 1); fault.Of(err) != fault.Later {
		t.Errorf("Withheld() = %v, want Later", err)
	}
	if err := w.Begin(t.Context(), Beginning{entryOf(audit.ApplyStarted, "a", "s", "r", 1), limitOf("a", 5)}); fault.Of(err) != fault.Later {
		t.Errorf("Begin() = %v, want Later", err)
	}
	if err := w.start(); err != nil {
		t.Fatal(err)
	}
	if got, err := w.Destroyed(t.Context(), "a"); err != nil || len(got) != 0 {
		t.Errorf("Destroyed() = %+v, %v; want none", got, err)
	}
}

// Runs that begin at once were all told that they fit in.
func TestRunsThatBeginAtOnce(t *testing.T) {
	w := newWorld(t)
	var all sync.WaitGroup
	var began atomic.Int32
	for n := range 8 {
		all.Go(func() {
			if err := w.Begin(t.Context(), Beginning{entryOf(audit.ApplyStarted, "a", fmt.Sprint("s", n), "r", 2), limitOf("a", 5)}); err == nil {
				began.Add(1)
			}
		})
	}
	if all.Wait(); began.Load() != 2 {
		t.Errorf("%d runs began, want 2: five resources in an hour, and two of each", began.Load())
	}
}

// Whenever the controller is killed, and whatever became of the stacks, no hour has more destroys
// than its limit.
func TestNoHourHasMoreThanItsLimit(t *testing.T) {
	const most = 6
	rapid.Check(t, func(rt *rapid.T) {
		w := newWorld(t)
		type span struct {
			from, to time.Time // to is zero while it goes on
			n        int
		}
		var spans []*span
		runs := map[string]*span{} // of the stacks, those that go on
		for step := range rapid.IntRange(1, 30).Draw(rt, "steps") {
			id := fmt.Sprint("s", rapid.IntRange(0, 3).Draw(rt, "stack"))
			run := fmt.Sprint("r", step)
			switch rapid.SampledFrom([]string{"begin", "begin", "end", "time", "kill", "delete"}).Draw(rt, "what") {
			case "begin":
				if runs[id] != nil {
					continue
				}
				n := rapid.IntRange(1, most).Draw(rt, "resources")
				err := w.Begin(rt.Context(), Beginning{entryOf(audit.ApplyStarted, "a", id, run, n), limitOf("a", most)})
				if err == nil {
					one := &span{from: w.now, n: n}
					spans, runs[id] = append(spans, one), one
				} else if fault.Of(err) != fault.Conflict {
					rt.Fatal(err)
				}
			case "end":
				if one := runs[id]; one != nil {
					got, err := w.Destroyed(rt.Context(), "a")
					if err != nil {
						rt.Fatal(err)
					}
					for _, d := range got {
						if d.Stack == id && !d.Ended {
							if err := w.log.Record(rt.Context(), entryOf(audit.Applied, "", id, d.Run, d.Resources)); err != nil {
								rt.Fatal(err)
							}
						}
					}
					one.to = w.now
					delete(runs, id)
				}
			case "time":
				w.now = w.now.Add(time.Duration(rapid.IntRange(1, 45).Draw(rt, "minutes")) * time.Minute)
			case "kill":
				w.restart(rt)
			case "delete":
				if runs[id] == nil {
					if err := w.log.Record(rt.Context(), entryOf(audit.Deleted, "", id, run, 0)); err != nil {
						rt.Fatal(err)
					}
				}
			}
			sum := 0
			for _, one := range spans {
				if one.to.IsZero() || w.now.Sub(one.to) < time.Hour {
					sum += one.n
				}
			}
			if sum > most {
				rt.Fatalf("%d resources count at %s, and %d in an hour are allowed", sum, w.now, most)
			}
		}
	})
}
