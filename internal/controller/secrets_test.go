package controller

import (
	"slices"
	"strings"
	"testing"

	"github.com/terrier-iac/terrier/internal/plan"
	"github.com/terrier-iac/terrier/internal/record"
	"github.com/terrier-iac/terrier/internal/runner"
	"github.com/terrier-iac/terrier/internal/stack"
)

// A stack whose record of secret values is damaged is planned and applied. The next
// run replaces the record and says so once, and the first plan is masked whole.
func TestADamagedRecordOfSecretsBlocksNothing(t *testing.T) {
	l := newFrugal(t, "spoilt")
	l.creates(t)
	uid := string(l.stored(t).UID)
	if err := l.records.Put(t.Context(), record.Secrets(uid), []byte(`{"key":`)); err != nil {
		t.Fatal(err)
	}
	l.works(t, stack.PlanRun)
	l.runs.ends(func(r *runner.Report) {
		r.Changes, r.ChangesHash = stack.Changes{Add: 1}, "sha256:c"
	}, map[string]string{runner.FilePlan: "a plan", runner.FilePlanTxt: "x = once-secret\n", runner.FileLog: "planned"})
	l.works(t, stack.ApplyRun)
	keys, err := l.records.Blobs.List(t.Context(), record.Plans(uid))
	if err != nil {
		t.Fatal(err)
	}
	keys = slices.DeleteFunc(keys, func(key string) bool { return !strings.HasSuffix(key, "/plan.txt") })
	if len(keys) != 1 {
		t.Fatalf("plans for people: %v, want one", keys)
	}
	if text, err := l.records.Get(t.Context(), keys[0]); err != nil || string(text) != plan.Mask+"\n" {
		t.Errorf("the plan reads %q, %v, want it masked", text, err)
	}
	l.runs.ends(func(r *runner.Report) { r.State, r.Resources = idOf(thing("l", 1)), 1 },
		map[string]string{runner.FileState: string(thing("l", 1)), runner.FileLog: "applied"})
	l.looks(t)
	told := slices.DeleteFunc(slices.Clone(l.said.all), func(reason string) bool { return reason != "SecretRecordDamaged" })
	if len(told) != 1 {
		t.Errorf("SecretRecordDamaged was told %d times, want once: %v", len(told), l.said.all)
	}
	if p, err := l.records.SecretPrints(t.Context(), uid); err != nil || !p.All {
		t.Errorf("SecretPrints() before the next run = %+v, %v, want every value hidden", p, err)
	}
}
