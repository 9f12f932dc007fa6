package controller

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/terrier-iac/terrier/internal/audit"
	"github.com/terrier-iac/terrier/internal/controller/policies"
	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/policy"
	"github.com/terrier-iac/terrier/internal/record"
	"github.com/terrier-iac/terrier/internal/review"
	"github.com/terrier-iac/terrier/internal/runner"
	"github.com/terrier-iac/terrier/internal/stack"
)

// saying are policies that find one thing in every plan.
type saying struct {
	found []policy.Finding
	asked int
}

func (*saying) Sees() review.Document { return review.Masked }

func (s *saying) Review(context.Context, *review.Plan) (review.Answer, error) {
	s.asked++
	a := review.Answer{Policies: []policy.Judge{{Policy: "ClusterPolicy/a", Digest: "1"}}, Findings: s.found}
	if policy.Combine(s.found) == policy.Hold {
		a.Outcome, a.Why = review.Hold, policy.Text(policy.Hold, s.found)
	}
	return a, nil
}

// changing are policies that a test changes.
type changing struct {
	Policies
	set *policies.Set
}

func (c changing) For(context.Context, client.Object) (policies.Set, error) { return *c.set, nil }

// A policy that changes, and finds in a plan what it found before, costs no write to the API
// server: the verdict is kept beside the plan, also for the next process, and is written with
// the next change. Another verdict is written at once.
func TestAVerdictThatRepeatsIsNotWritten(t *testing.T) {
	l := newFrugal(t, "judged")
	by := &saying{}
	set := &policies.Set{}
	l.loader.policies = changing{(*policies.Policies)(nil), set}
	l.creates(t)
	obj := l.stored(t)
	obj.Spec.ApprovePlan = ""
	if err := l.k.Client.Update(t.Context(), obj); err != nil {
		t.Fatal(err)
	}
	l.works(t, stack.PlanRun)
	l.runs.ends(func(r *runner.Report) { r.Changes, r.ChangesHash = stack.Changes{Add: 1}, "sha256:c" },
		map[string]string{runner.FilePlan: "a plan", runner.FilePlanDoc: "{}", runner.FileLog: "planned"})
	l.looks(t)
	version := l.stored(t).ResourceVersion
	// The first policy has nothing against the plan.
	*set = policies.Set{Digest: "1", Reviewer: by, Guards: true}
	l.looks(t)
	if got := l.stored(t).ResourceVersion; got != version {
		t.Errorf("the object has the version %s, want %s: the first verdict was not written", got, version)
	}
	// now is what a pass decides from, and what the record beside the plan says.
	now := func() (status stack.Status, kept policy.Judgement) {
		t.Helper()
		p, err := l.loader.load(t.Context(), l.ref())
		if err != nil || p.o.Status.Review == nil {
			t.Fatalf("the verdict is %+v, %v", p.o.Status.Review, err)
		}
		if kept, err = record.Verdict(p.id, p.o.Status.Pending.Digest).Read(t.Context(), l.records.Blobs); err != nil {
			t.Fatal(err)
		}
		return p.o.Status, kept
	}
	is, kept := now()
	if first := is.Review; !first.Passed || kept.By != first.By || by.asked != 1 {
		t.Fatalf("judged %d times: %+v and %+v", by.asked, first, kept)
	}
	first := is

	set.Digest = "2"
	l.looks(t)
	l.looks(t)
	if got := l.stored(t).ResourceVersion; got != version || by.asked != 2 {
		t.Errorf("judged %d times; the object has the version %s, want %s: it was not written", by.asked, got, version)
	}
	is, kept = now()
	if is.Review.By == first.Review.By || kept.By != is.Review.By || !stack.JudgedAs(is, *is.Pending, kept) {
		t.Errorf("the pass knows %+v and the record %+v, want that of the changed policy", is.Review, kept)
	}

	// Another process finds it beside the plan, and asks no program again.
	l.whole.index.drop(string(obj.UID))
	set.Guards = false
	l.looks(t)
	if again, _ := now(); again.Review.By != is.Review.By || by.asked != 2 || l.reviews.Asked(review.Question{Stack: string(obj.UID)}) || l.stored(t).ResourceVersion != version {
		t.Errorf("after a restart the pass knows %+v, and policies were asked %d times", again.Review, by.asked)
	}

	// What the status says is another thing: the policies are asked again.
	set.Guards = true
	by.found = []policy.Finding{{Policy: "ClusterPolicy/a", Rule: "r", Effect: policy.Hold, Message: "wait"}}
	set.Digest = "3"
	l.looks(t)
	if held := l.stored(t); held.ResourceVersion == version || by.asked != 3 {
		t.Errorf("judged %d times: another verdict was not written", by.asked)
	}
	held, _ := now()
	if !held.Review.Held || held.Pending.Name == first.Pending.Name {
		t.Errorf("the verdict is %+v of the plan %s, want that it is held under another name", held.Review, held.Pending.Name)
	}
	set.Digest = "4"
	version = l.stored(t).ResourceVersion
	l.looks(t)
	if again, _ := now(); again.Review.By == held.Review.By || again.Pending.Name != held.Pending.Name || l.stored(t).ResourceVersion != version {
		t.Errorf("a hold that repeats: %+v, the object was written: %v", again.Review, l.stored(t).ResourceVersion != version)
	}
}

// An apply waits until its tenant may destroy more, says until when, and is in the ledger before
// it begins. A pass that was told that it fits in is refused when another run was before it.
func TestAnApplyWaitsForTheHour(t *testing.T) {
	l := newFrugal(t, "hour")
	log, err := audit.Open(t.TempDir(), audit.Options{Now: time.Now})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := log.Close(); err != nil {
			t.Error(err)
		}
	})
	ledger := policies.NewHours(log, time.Now)
	l.auditor.auditLog, l.auditor.destroys, l.observer.destroys = log, ledger, ledger
	set := &policies.Set{Tenant: l.key.Namespace, PerHour: []policies.PerHour{{Policy: "ClusterPolicy/p", Tenant: l.key.Namespace, Most: 5}}}
	l.loader.policies = changing{(*policies.Policies)(nil), set}
	another := func(n int) {
		t.Helper()
		for _, what := range []audit.What{audit.ApplyStarted, audit.Applied} {
			if err := log.Record(t.Context(), audit.Entry{
				What: what, Run: fmt.Sprint("apply-", n), Object: audit.Object{UID: "another"}, Changes: stack.Changes{Destroy: n}, Details: map[string]string{policies.TenantDetail: l.key.Namespace},
			}); err != nil {
				t.Fatal(err)
			}
		}
	}
	another(4)
	l.creates(t)
	l.works(t, stack.PlanRun)
	l.runs.ends(func(r *runner.Report) { r.Changes, r.ChangesHash = stack.Changes{Destroy: 3}, "sha256:c" },
		map[string]string{runner.FilePlan: "a plan", runner.FilePlanDoc: "{}", runner.FileLog: "planned"})
	l.looks(t)
	applies := func() bool { return l.runs.job != nil && l.runs.job.Kind == stack.ApplyRun }
	if applies() || l.wait < 55*time.Minute {
		t.Errorf("it applies: %v, and the next pass comes in %s, want it to wait for the hour: %v", applies(), l.wait, l.stored(t).Status.Conditions)
	}
	if said := l.stored(t).Status.Conditions; !slices.ContainsFunc(said, func(c metav1.Condition) bool { return c.Reason == string(stack.ApplyWithheld) }) {
		t.Errorf("the conditions are %v, want %s", said, stack.ApplyWithheld)
	}

	// The pass knows nothing of the other run, and the ledger does.
	l.observer.destroys = nil
	for range 3 {
		if _, err := l.whole.reconcile(t.Context(), l.ref()); err != nil && fault.Of(err) != fault.Conflict {
			t.Fatal(err)
		}
	}
	if applies() {
		t.Fatal("it applies beyond the limit")
	}

	l.observer.destroys, set.PerHour = ledger, []policies.PerHour{{Policy: "ClusterPolicy/p", Tenant: l.key.Namespace, Most: 7}}
	l.works(t, stack.ApplyRun)
	if got, err := ledger.Destroyed(t.Context(), l.key.Namespace); err != nil || len(got) != 2 || got[1].Stack != string(l.stored(t).UID) || got[1].Resources != 3 || got[1].Ended {
		t.Errorf("the ledger has %+v, %v; want the apply that began", got, err)
	}
}
