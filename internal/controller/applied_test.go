package controller

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/terrier-iac/terrier/internal/record"
	"github.com/terrier-iac/terrier/internal/runner"
	"github.com/terrier-iac/terrier/internal/stack"
)

// The documents of the plans that were applied last outlive the next plans, and their saved
// plans do not. An apply that failed is none of them.
func TestThePlansThatWereAppliedLastAreKept(t *testing.T) {
	l := newFrugal(t, "applied")
	l.creates(t)
	uid := string(l.stored(t).UID)
	const applies = record.AppliedKept + 2
	plans := func(n int, outcome stack.Outcome) {
		t.Helper()
		l.k.Patch(t, l.key.Name, fmt.Sprintf(`{"metadata":{"annotations":{"reconcile.fluxcd.io/requestedAt":"%d"}}}`, n))
		l.works(t, stack.PlanRun)
		l.runs.ends(func(r *runner.Report) {
			r.Changes, r.ChangesHash = stack.Changes{Add: n}, "sha256:c"
			if n > 1 {
				r.State = idOf(thing("l", n-1))
			}
		}, map[string]string{runner.FilePlan: "a plan", runner.FilePlanDoc: fmt.Sprintf(`{"n":%d}`, n), runner.FileUses: "{}", runner.FilePlanTxt: "text", runner.FileLog: "planned"})
		l.works(t, stack.ApplyRun)
		state := thing("l", n)
		l.runs.ends(func(r *runner.Report) { r.State, r.Resources, r.Outcome = idOf(state), 1, outcome },
			map[string]string{runner.FileState: string(state), runner.FileLog: "applied"})
	}
	for n := range applies {
		plans(n+1, stack.Succeeded)
	}
	plans(applies+1, stack.Failed)
	l.looks(t)
	all, err := record.Applied(uid).Read(t.Context(), l.records.Blobs)
	if err != nil {
		t.Fatal(err)
	}
	keys, err := l.records.Blobs.List(t.Context(), record.Plans(uid))
	if err != nil {
		t.Fatal(err)
	}
	for i, a := range all {
		text, err := l.records.Get(t.Context(), record.Plan(uid, a.Plan.Digest, record.PlanFile))
		if want := fmt.Sprintf(`{"n":%d}`, applies-i); err != nil || string(text) != want || a.Plan.Changes.Add != applies-i || a.At.IsZero() || a.Bytes != int64(len(want)) {
			t.Errorf("%d: %+v says %s, %v, want %s", i, a, text, err, want)
		}
		var files []string
		for _, key := range keys {
			if file, ok := strings.CutPrefix(key, record.Plan(uid, a.Plan.Digest, "")); ok {
				files = append(files, file)
			}
		}
		slices.Sort(files)
		want := "[plan.json uses.json]"
		if i == 0 {
			want = "[plan.bin plan.json plan.txt uses.json]" // the status has it still
		}
		if got := fmt.Sprint(files); got != want {
			t.Errorf("of the plan %d %s are kept, want %s", i, got, want)
		}
	}
	if len(all) != record.AppliedKept {
		t.Errorf("%d plans are kept, want %d", len(all), record.AppliedKept)
	}
}
