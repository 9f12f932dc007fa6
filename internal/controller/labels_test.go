package controller

import (
	"log/slog"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"

	"github.com/terrier-iac/terrier/api/infra/v1alpha2"
	"github.com/terrier-iac/terrier/internal/dialect"
	"github.com/terrier-iac/terrier/internal/dialect/infra"
	"github.com/terrier-iac/terrier/internal/stack"
	"github.com/terrier-iac/terrier/internal/testkit"
)

func TestStatusLabelsFollowFromTheStatus(t *testing.T) {
	const yes = "true"
	plan, drift := &stack.Plan{Name: "plan-main"}, &stack.Drift{}
	held, next := stack.Wait{}, stack.Apply{}
	for name, c := range map[string]struct {
		memory stack.Status
		d      stack.Decision
		run    *stack.Run
		wait   string
		want   statusLabels
	}{
		"nothing is to be done":              {d: stack.Decision{Action: held, Ready: stack.Ready}},
		"a plan waits":                       {memory: stack.Status{Plans: stack.Plans{Pending: plan}}, d: stack.Decision{Action: held}, want: statusLabels{yes}},
		"a plan waits while another is made": {memory: stack.Status{Plans: stack.Plans{Pending: plan}}, d: stack.Decision{Action: held}, run: &stack.Run{Kind: stack.PlanRun}, want: statusLabels{yes}},
		"a plan is about to be applied":      {memory: stack.Status{Plans: stack.Plans{Pending: plan}}, d: stack.Decision{Action: next}},
		"a plan waits for its turn":          {memory: stack.Status{Plans: stack.Plans{Pending: plan}}, d: stack.Decision{Action: next}, wait: "4 runs are at work"},
		"drift waits for its turn":           {memory: stack.Status{Plans: stack.Plans{Pending: plan}, Resources: stack.Resources{Drift: drift}}, d: stack.Decision{Action: next}, wait: "4 runs are at work", want: statusLabels{1: yes}},
		"a plan is being applied":            {memory: stack.Status{Plans: stack.Plans{Pending: plan}}, d: stack.Decision{Action: held}, run: &stack.Run{Kind: stack.ApplyRun}},
		"drift waits for somebody":           {memory: stack.Status{Plans: stack.Plans{Pending: plan}, Resources: stack.Resources{Drift: drift}}, d: stack.Decision{Action: held}, want: statusLabels{yes, yes}},
		"drift is about to be put right":     {memory: stack.Status{Plans: stack.Plans{Pending: plan}, Resources: stack.Resources{Drift: drift}}, d: stack.Decision{Action: next}},
		"the last attempt failed":            {memory: stack.Status{Failure: stack.Failure{Failures: 1}}, d: stack.Decision{Action: held, Ready: stack.Reconciling}, want: statusLabels{2: yes}},
		"another attempt is at work":         {memory: stack.Status{Failure: stack.Failure{Failures: 1}}, d: stack.Decision{Action: held}, run: &stack.Run{Kind: stack.ApplyRun}, want: statusLabels{2: yes}},
		"somebody must do something":         {d: stack.Decision{Action: held, Ready: stack.Stalled}, want: statusLabels{2: yes}},
		"it waits for its source":            {d: stack.Decision{Action: held, Ready: stack.Reconciling}},
	} {
		p := &pass{dialect: infra.Dialect{}, decision: c.d}
		p.o.Queued, p.o.Status, p.o.Run = c.wait, c.memory, c.run
		if got := statusLabelsOf(p); got != c.want {
			t.Errorf("%s: statusLabelsOf() = %q, want %q", name, got, c.want)
		}
	}
}

func TestWhoseLabelsWakeAStack(t *testing.T) {
	c := takeApart(&Stacks{})
	c.whole.index.make("u-1", objectRef{dialect: infra.Dialect{}}).noteLabels(statusLabels{"true"}, time.Time{})
	wakes := c.labelsChanged()
	for name, l := range map[string]struct {
		was, is map[string]string
		want    bool
	}{
		"ours, as we wrote them":       {nil, map[string]string{PendingPlanLabel: "true"}, false},
		"ours, taken away":             {map[string]string{PendingPlanLabel: "true"}, nil, true},
		"ours, forged":                 {map[string]string{PendingPlanLabel: "true"}, map[string]string{PendingPlanLabel: "no"}, true},
		"ours, one more":               {map[string]string{PendingPlanLabel: "true"}, map[string]string{PendingPlanLabel: "true", DriftedLabel: "true"}, true},
		"another one":                  {map[string]string{"team": "net"}, map[string]string{"team": "web"}, true},
		"another one, together":        {nil, map[string]string{PendingPlanLabel: "true", "team": "web"}, true},
		"none, the status was written": {map[string]string{"team": "net"}, map[string]string{"team": "net"}, false},
		"wrong before, and untouched":  {map[string]string{FailingLabel: "true"}, map[string]string{FailingLabel: "true"}, false},
	} {
		of := func(labels map[string]string) client.Object {
			return &v1alpha2.Terraform{ObjectMeta: metav1.ObjectMeta{UID: "u-1", Labels: labels}}
		}
		if got := wakes.Update(event.UpdateEvent{ObjectOld: of(l.was), ObjectNew: of(l.is)}); got != l.want {
			t.Errorf("%s: it wakes: %v, want %v", name, got, l.want)
		}
	}
}

// A plan must not cause the next one.
func TestStatusLabelsAreNoInput(t *testing.T) {
	obj := &v1alpha2.Terraform{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"team": "net", DriftedLabel: "true"}}}
	for path, want := range map[string]string{"metadata.labels['team']": "net", "metadata.labels['" + DriftedLabel + "']": ""} {
		if got := (takeApart(&Stacks{})).resolver(&pass{dialect: infra.Dialect{}, obj: obj}).Object.Field(path); got != want {
			t.Errorf("%s is %q, want %q", path, got, want)
		}
	}
}

// marker is a stack on a real API server whose labels are written.
type marker struct {
	*apart
	t    *testing.T
	kube *testkit.Cluster
	now  time.Time
	wait stack.Decision
}

func newMarker(t *testing.T) *marker {
	t.Helper()
	k := testkit.Kube(t, v1alpha2.AddToScheme)
	k.Apply(t, `
apiVersion: infra.contrib.fluxcd.io/v1alpha2
kind: Terraform
metadata: {name: stack, labels: {team: net}}
spec: {interval: 1h, path: ./, sourceRef: {kind: GitRepository, name: code}}
`)
	return &marker{
		apart: takeApart(&Stacks{Live: k.Client, Dialects: dialect.NewRegistry(infra.Dialect{}), Log: slog.New(slog.DiscardHandler)}),
		t:     t, kube: k, now: time.Unix(1e9, 0), wait: stack.Decision{Action: stack.Wait{}},
	}
}

func (m *marker) object() *v1alpha2.Terraform {
	m.t.Helper()
	var o v1alpha2.Terraform
	if err := m.kube.Client.Get(m.t.Context(), client.ObjectKey{Namespace: m.kube.Namespace, Name: "stack"}, &o); err != nil {
		m.t.Fatal(err)
	}
	return &o
}

// pass writes the labels of the stack as those of one with this status, and
// returns them.
func (m *marker) pass(memory stack.Status) (labels map[string]string, later time.Duration) {
	m.t.Helper()
	p := &pass{dialect: infra.Dialect{}, obj: m.object()}
	p.id, p.o.Status, p.o.Now, p.decision = string(p.obj.GetUID()), memory, m.now, m.wait
	p.entry = m.whole.index.make(p.id, objectRef{infra.Dialect{}, client.ObjectKeyFromObject(p.obj)})
	if err := m.writeLabels(m.t.Context(), p); err != nil {
		m.t.Fatal(err)
	}
	return m.object().Labels, p.recheck
}

// become sets a label as another client does.
func (m *marker) become(patch string) {
	m.t.Helper()
	m.kube.Patch(m.t, "stack", `{"metadata":{"labels":`+patch+`}}`)
}

func TestLabelsAreThereWhileTheyAreTrue(t *testing.T) {
	m := newMarker(t)
	pending := stack.Status{Plans: stack.Plans{Pending: &stack.Plan{Name: "plan-main"}}}
	labels, _ := m.pass(pending)
	if labels[PendingPlanLabel] != "true" || labels["team"] != "net" || len(labels) != 2 {
		t.Fatalf("with a plan that waits, the labels are %v", labels)
	}
	version := m.object().ResourceVersion
	if m.pass(pending); m.object().ResourceVersion != version {
		t.Error("labels that are right were written again")
	}
	if got := managers(m.object())[labelManager]; got != "Update" {
		t.Errorf("the labels are managed by %v", managers(m.object()))
	}
	if labels, _ := m.pass(stack.Status{}); len(labels) != 1 || labels["team"] != "net" {
		t.Errorf("with nothing to say, the labels are %v", labels)
	}
}

func managers(o client.Object) map[string]string {
	out := map[string]string{}
	for _, f := range o.GetManagedFields() {
		out[f.Manager] = string(f.Operation)
	}
	return out
}

// A label that another client changed is restored at once, but not again and again:
// two controllers that disagree would write for ever.
func TestForgedLabelsAreRestored(t *testing.T) {
	m := newMarker(t)
	m.become(`{"` + DriftedLabel + `":"true"}`)
	if labels, later := m.pass(stack.Status{}); len(labels) != 1 || later != 0 {
		t.Fatalf("after the first time the labels are %v, and it waits for %s", labels, later)
	}
	m.become(`{"` + DriftedLabel + `":"yes"}`)
	if labels, later := m.pass(stack.Status{}); labels[DriftedLabel] != "yes" || later != labelPause {
		t.Errorf("right after it the labels are %v, and it waits for %s, want %s", labels, later, labelPause)
	}
	m.now = m.now.Add(labelPause)
	if labels, later := m.pass(stack.Status{}); len(labels) != 1 || later != 0 {
		t.Errorf("after the pause the labels are %v, and it waits for %s", labels, later)
	}
	if labels, later := m.pass(stack.Status{Failure: stack.Failure{Failures: 1}}); labels[FailingLabel] != "true" || later != 0 {
		t.Errorf("what is new waits for nothing: the labels are %v, and it waits for %s", labels, later)
	}
}

// A stack that was deleted and created under the same name is another one.
func TestLabelsOfAFormerStackReachNoOther(t *testing.T) {
	m := newMarker(t)
	p := &pass{dialect: infra.Dialect{}, obj: m.object(), id: "00000000-0000-0000-0000-000000000000", entry: &entry{}}
	p.o.Status, p.o.Now, p.decision = stack.Status{Failure: stack.Failure{Failures: 1}}, m.now, m.wait
	if err := m.writeLabels(t.Context(), p); err != nil || p.recheck == 0 {
		t.Error("nothing was said to come of it")
	}
	if labels := m.object().Labels; len(labels) != 1 {
		t.Errorf("the labels are %v", labels)
	}
}
