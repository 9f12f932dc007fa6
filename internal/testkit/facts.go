package testkit

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	infrav1alpha2 "github.com/terrier-iac/terrier/api/infra/v1alpha2"
	"github.com/terrier-iac/terrier/internal/audit"
	"github.com/terrier-iac/terrier/internal/stack"
	"github.com/terrier-iac/terrier/internal/testkit/history"
)

// What the packages that own these names call them. Their tests use this package,
// so it cannot use them.
const (
	ourManager = "tf-controller"
	onDeletion = "terrier.dev/deletion"
	runDone    = "Done"
)

// report is what the validators need of a run's own.
type report struct {
	ID                string
	Stack             string
	Kind              stack.RunKind
	Phase             string
	Started, Finished time.Time
	Outcome           stack.Outcome
	Note              struct {
		Cause stack.Cause
		State *struct{ Namespace, Workspace, Suffix string }
	}
}

// stackFact is a version of an object in the words of the validators.
func stackFact(o *infrav1alpha2.Terraform, gone bool, now time.Time) history.Stack {
	s := history.Stack{
		Name: o.Name, UID: string(o.UID), At: now, Version: versionOf(o), Gone: gone,
		Deleting: !o.DeletionTimestamp.IsZero(),
		Approve:  o.Spec.ApprovePlan, Forced: o.Spec.Force, Destroys: o.Spec.DestroyResourcesOnDeletion,
	}
	switch o.Annotations[onDeletion] {
	case "destroy", "approve":
		s.Destroys = true
	case "retain":
		s.Destroys = false
	}
	if c := meta.FindStatusCondition(o.Status.Conditions, "Ready"); c != nil {
		s.Ready = c.Status == metav1.ConditionTrue
	}
	t := o.Status.Terrier
	if t == nil {
		return s
	}
	s.Phase, s.Waiting = stack.Reason(t.Phase), t.WaitingFor
	if t.Since != nil {
		s.Since = t.Since.Time
	}
	if t.NextAttempt != nil {
		s.Next = t.NextAttempt.Time
	}
	if t.RecheckEvery != nil {
		s.Every = t.RecheckEvery.Duration
	}
	s.Status, _ = StatusOf(o) // one that a test has spoilt is none
	if t.Run != nil {
		s.Run = &history.Run{ID: t.Run.ID, Stack: s.UID, Kind: stack.RunKind(t.Run.Kind)}
		if t.Run.StartedAt != nil {
			s.Run.Started = t.Run.StartedAt.Time
		}
		switch s.Run.Kind {
		case stack.ApplyRun, stack.ScriptRun:
			s.Run.Cause.Plan = s.Status.Pending
		case stack.DestroyRun:
			s.Run.Cause.Destroy = true
		}
	}
	return s
}

// versionOf is the revision of the API server's store at which an object became what it is, 0
// for one whose end was not seen.
func versionOf(o metav1.Object) uint64 {
	n, err := strconv.ParseUint(o.GetResourceVersion(), 10, 64)
	if err != nil {
		return 0
	}
	return n
}

// stateFact is a version of a state, if the Secret holds one.
func stateFact(o *corev1.Secret, gone bool, now time.Time) (history.State, bool) {
	packed, ok := o.Data["tfstate"]
	if !ok || !strings.HasPrefix(o.Name, "tfstate-") {
		return history.State{}, false
	}
	s := history.State{Name: o.Name, At: now, Version: versionOf(o), Gone: gone, Ours: wroteState(o)}
	text, err := unpackState(packed)
	if err != nil {
		return s, true // another has written there
	}
	var f struct {
		Lineage   string
		Serial    uint64
		Resources []struct {
			Mode      string
			Instances []json.RawMessage
		}
	}
	if json.Unmarshal(text, &f) != nil {
		return s, true
	}
	s.Lineage, s.Serial = f.Lineage, f.Serial
	for _, r := range f.Resources {
		if r.Mode == "managed" {
			s.Resources += len(r.Instances)
		}
	}
	return s, true
}

// wroteState reports whether Terrier wrote the state in a Secret: the manager that
// wrote a field last owns it.
func wroteState(o *corev1.Secret) bool {
	ours := false
	for _, m := range o.ManagedFields {
		if m.FieldsV1 == nil || !strings.Contains(m.FieldsV1.GetRawString(), `"f:tfstate"`) {
			continue
		}
		if m.Manager != ourManager {
			return false
		}
		ours = true
	}
	return ours
}

// lockFact is who holds the lock of a state, if the Lease is one.
func lockFact(o *coordinationv1.Lease, gone bool, now time.Time) (history.Lock, bool) {
	name, ok := strings.CutPrefix(o.Name, "lock-")
	l := history.Lock{Name: name, At: now}
	if h := o.Spec.HolderIdentity; h != nil && !gone {
		l.Holder = *h
	}
	return l, ok
}

// reports are the reports of all runs that the platform has a record of, and of
// those that are running or were not recorded yet.
func (p *Platform) reports(tb testing.TB) []history.Run {
	tb.Helper()
	records, err := filepath.Glob(filepath.Join(p.sharedRecords.at(p.Dir), "stacks", "*", "runs", "*", "report.json~"))
	if err != nil {
		tb.Fatal(err)
	}
	found := map[string]history.Run{}
	keep := func(text []byte) {
		r, err := runFact(text)
		if err != nil {
			tb.Errorf("reading a report: %v", err)
			return
		}
		if known, ok := found[r.Stack+"/"+r.ID]; !ok || !known.Done {
			found[r.Stack+"/"+r.ID] = r
		}
	}
	for _, path := range records {
		key, err := filepath.Rel(p.sharedRecords.at(p.Dir), strings.TrimSuffix(path, "~"))
		if err != nil {
			tb.Fatal(err)
		}
		if text := p.Record(tb, filepath.ToSlash(key)); text != nil {
			keep(text)
		}
	}
	open, err := filepath.Glob(filepath.Join(p.Dir, "runner", "runs", "*", "*", "run.json"))
	if err != nil {
		tb.Fatal(err)
	}
	for _, path := range open {
		if text, err := os.ReadFile(path); err == nil { // else it was recorded meanwhile
			keep(text)
		}
	}
	var all []history.Run
	for _, r := range found {
		all = append(all, r)
	}
	slices.SortFunc(all, func(a, b history.Run) int { return a.Started.Compare(b.Started) })
	return all
}

// runFact is a report in the words of the validators.
func runFact(text []byte) (history.Run, error) {
	var r report
	if err := json.Unmarshal(text, &r); err != nil {
		return history.Run{}, err
	}
	run := history.Run{
		ID: r.ID, Stack: r.Stack, Kind: r.Kind, Cause: r.Note.Cause,
		Started: r.Started, Finished: r.Finished, Done: r.Phase == runDone, Outcome: r.Outcome,
	}
	if s := r.Note.State; s != nil {
		run.State = s.Namespace + "/tfstate-" + s.Workspace + "-" + s.Suffix
	}
	return run, nil
}

// callsOf is what the worlds of a test were made to do.
func (p *Platform) callsOf(tb testing.TB) []history.Call {
	tb.Helper()
	p.mu.Lock()
	worlds := p.worlds[tb]
	p.mu.Unlock()
	var all []history.Call
	for _, w := range worlds {
		for _, c := range w.Calls() {
			if c.Phase == "begin" && c.Call != "read" && c.Call != "lookup" {
				all = append(all, history.Call{Call: c.Call, Name: c.Name, Begun: c.Time})
			}
		}
	}
	return all
}

// destroys are the destroy runs, by the audit log.
func (p *Platform) destroys(tb testing.TB) []history.Run {
	tb.Helper()
	page, err := audit.Read(p.sharedRecords.audit(tb, p), audit.Query{Limit: 1000})
	if err != nil {
		tb.Errorf("reading the audit log: %v", err)
	}
	var all []history.Run
	ended := map[string]history.Run{}
	for _, e := range page.Items { // the newest first
		key := e.Object.UID + "/" + e.Run
		switch r := ended[key]; e.What {
		case audit.Destroyed:
			ended[key] = history.Run{Finished: e.At, Done: true, Outcome: stack.Succeeded}
		case audit.DestroyFailed:
			ended[key] = history.Run{Finished: e.At, Done: true, Outcome: stack.Outcome(e.Outcome)}
		case audit.DestroyStarted:
			r.ID, r.Stack, r.Kind, r.Started = e.Run, e.Object.UID, stack.DestroyRun, e.At
			r.Cause = stack.Cause{Destroy: true, Why: e.Why}
			all = append(all, r)
		}
	}
	return all
}
