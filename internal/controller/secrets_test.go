package controller

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/terrier-iac/terrier/internal/plan"
	"github.com/terrier-iac/terrier/internal/record"
	"github.com/terrier-iac/terrier/internal/runner"
	"github.com/terrier-iac/terrier/internal/stack"
)

// A stack whose record of secret values is damaged is planned and applied. The next
// run replaces the record and says so once, the first plan is masked whole, and the
// first apply completes the record.
func TestADamagedRecordOfSecretsBlocksNothing(t *testing.T) {
	l := newFrugal(t, "spoilt")
	l.creates(t)
	obj := l.stored(t)
	uid := string(obj.UID)
	obj.Spec.EnableInventory = true
	if err := l.k.Client.Update(t.Context(), obj); err != nil {
		t.Fatal(err)
	}
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
	l.runs.ends(func(r *runner.Report) { r.State, r.Resources = idOf([]byte(withID(1))), 1 },
		map[string]string{runner.FileState: withID(1), runner.FileOutputs: `{"host":{"value":"h","type":"string"}}`, runner.FileLog: "applied"})
	l.looks(t)
	told := slices.DeleteFunc(slices.Clone(l.said.all), func(reason string) bool { return reason != "SecretRecordDamaged" })
	if len(told) != 1 {
		t.Errorf("SecretRecordDamaged was told %d times, want once: %v", len(told), l.said.all)
	}
	if p, err := l.records.SecretPrints(t.Context(), uid); err != nil || p.All {
		t.Errorf("SecretPrints() after the apply = %+v, %v, want them known", p, err)
	}
	l.shows(t, "i-1", "host")
}

// shows checks which ID the object lists, and which outputs are public.
func (l *frugal) shows(t *testing.T, id, public string) {
	t.Helper()
	listed := ""
	if inv := l.stored(t).Status.Inventory; inv != nil {
		for _, e := range inv.Entries {
			listed += e.Identifier
		}
	}
	var outputs corev1.Secret
	if err := l.k.Client.Get(t.Context(), types.NamespacedName{Namespace: l.key.Namespace, Name: "net-outputs"}, &outputs); err != nil {
		t.Fatal(err)
	}
	if got := outputs.Annotations["terrier.dev/public-outputs"]; listed != id || got != public {
		t.Errorf("the object lists %q, and public outputs are %q; want %q and %q", listed, got, id, public)
	}
}

// What was masked while the record was incomplete is shown once it is complete, also
// if the state stays as it is. A targeted run does not complete the record.
func TestWhatWasMaskedIsShownAgain(t *testing.T) {
	l := newFrugal(t, "masked")
	l.creates(t)
	obj := l.stored(t)
	obj.Spec.Targets, obj.Spec.EnableInventory = []string{"a.b"}, true
	if err := l.k.Client.Update(t.Context(), obj); err != nil {
		t.Fatal(err)
	}
	if err := l.records.Put(t.Context(), record.Secrets(string(obj.UID)), nil); err != nil {
		t.Fatal(err)
	}
	l.applies(t, 1)
	l.runs.left[runner.FileState] = withID(1)
	l.runs.report.State = idOf([]byte(withID(1)))
	l.looks(t)
	l.shows(t, "", "")
	obj = l.stored(t)
	obj.Spec.Targets = nil
	if err := l.k.Client.Update(t.Context(), obj); err != nil {
		t.Fatal(err)
	}
	l.works(t, stack.PlanRun)
	l.runs.ends(func(r *runner.Report) { r.State, r.Resources = idOf([]byte(withID(1))), 1 }, map[string]string{runner.FileLog: "planned"})
	l.looks(t)
	l.shows(t, "i-1", "host")
}

// withID is a state with one resource, i-1.
func withID(serial int) string {
	return fmt.Sprintf(`{"version":4,"lineage":"l","serial":%d,"resources":[{"mode":"managed","type":"a","name":"b","instances":[{"attributes":{"id":"i-1"}}]}]}`, serial)
}

// A record of secret values is complete only once a run left the whole state as its
// inputs want it.
func TestWhatCompletesTheRecordOfSecrets(t *testing.T) {
	some := stack.Changes{Change: 1}
	for name, tt := range map[string]struct {
		runs  []runner.Report
		part  bool // the runs are targeted
		whole bool
	}{
		"an apply":                                {runs: []runner.Report{{Kind: stack.ApplyRun, Changes: some}}, whole: true},
		"a plan without changes":                  {runs: []runner.Report{{Kind: stack.PlanRun}}, whole: true},
		"a drift check that found nothing":        {runs: []runner.Report{{Kind: stack.CheckRun}}, whole: true},
		"a destroy":                               {runs: []runner.Report{{Kind: stack.DestroyRun}}, whole: true},
		"a plan with changes, and a failed apply": {runs: []runner.Report{{Kind: stack.PlanRun, Changes: some}, {Kind: stack.ApplyRun, Outcome: stack.Failed}}},
		"a plan with changes, and a stale apply":  {runs: []runner.Report{{Kind: stack.PlanRun, Changes: some}, {Kind: stack.ApplyRun, Outcome: stack.Stale}}},
		"a destroy that failed":                   {runs: []runner.Report{{Kind: stack.DestroyRun, Outcome: stack.Failed}}},
		"a plan that failed":                      {runs: []runner.Report{{Kind: stack.PlanRun, Outcome: stack.Failed}}},
		"a drift check that found drift":          {runs: []runner.Report{{Kind: stack.CheckRun, Changes: some}}},
		"a preview":                               {runs: []runner.Report{{Kind: stack.PreviewRun}}},
		"health checks":                           {runs: []runner.Report{{Kind: stack.HealthRun}}},
		"a command of a person":                   {runs: []runner.Report{{Kind: stack.BreakGlassRun}}},
		"an apply of targets":                     {runs: []runner.Report{{Kind: stack.ApplyRun, Changes: some}}, part: true},
		"a plan of targets without changes":       {runs: []runner.Report{{Kind: stack.PlanRun}}, part: true},
	} {
		t.Run(name, func(t *testing.T) {
			c := takeApart(&Stacks{Blobs: openRecords(t)})
			if err := c.records.Put(t.Context(), record.Secrets("uid"), nil); err != nil {
				t.Fatal(err)
			}
			p := &pass{id: "uid", entry: &entry{id: "uid"}}
			for _, r := range tt.runs {
				if _, err := c.records.RememberSecrets(t.Context(), p.id, []string{"hunter2-hunter2"}, time.Now()); err != nil {
					t.Fatal(err)
				}
				r.Outcome = cmp.Or(r.Outcome, stack.Succeeded)
				if err := c.settleSecrets(t.Context(), p, &r, note{Cause: stack.Cause{Whole: !tt.part}}); err != nil {
					t.Fatal(err)
				}
			}
			if hidden, err := c.records.SecretPrints(t.Context(), p.id); err != nil || hidden.All == tt.whole {
				t.Errorf("SecretPrints() hides everything: %v, %v, want %v", hidden.All, err, !tt.whole)
			}
		})
	}
}
