package command_test

import (
	"context"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/terrier-iac/terrier/api/infra/v1alpha2"
	"github.com/terrier-iac/terrier/internal/access"
	"github.com/terrier-iac/terrier/internal/command"
	"github.com/terrier-iac/terrier/internal/dialect"
	"github.com/terrier-iac/terrier/internal/dialect/infra"
	"github.com/terrier-iac/terrier/internal/dialect/kinds"
	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/plan"
	"github.com/terrier-iac/terrier/internal/query"
	"github.com/terrier-iac/terrier/internal/record"
	"github.com/terrier-iac/terrier/internal/stack"
	"github.com/terrier-iac/terrier/internal/testkit"
)

var noon = time.Date(2026, 3, 1, 12, 0, 0, 123456789, time.UTC)

// cluster is a namespace with one stack, net, in it.
type cluster struct {
	*testkit.Cluster
	t       *testing.T
	kube    client.WithWatch
	records shelf
}

func newCluster(t *testing.T) cluster {
	t.Helper()
	c := cluster{Cluster: testkit.Kube(t, v1alpha2.AddToScheme), t: t, records: shelf{}}
	c.Apply(t, `
apiVersion: infra.contrib.fluxcd.io/v1alpha2
kind: Terraform
metadata: {name: net, labels: {team: net}}
spec:
  sourceRef: {kind: GitRepository, name: modules}
  writeOutputsToSecret: {name: net-outputs}
`)
	var err error
	if c.kube, err = access.NewClient(c.Config, kinds.All()); err != nil {
		t.Fatal(err)
	}
	return c
}

func (c cluster) key() query.Key { return query.Key{Namespace: c.Namespace, Name: "net"} }

// stacks are the service as the administrator, with what interferes.
func (c cluster) stacks(interfere interceptor.Funcs) *command.Stacks {
	return command.New(interceptor.NewClient(c.kube, interfere), kinds.All(), query.NewBlobs(c.records, c.records, time.Millisecond), func() time.Time { return noon })
}

func (c cluster) object() *v1alpha2.Terraform {
	c.t.Helper()
	var o v1alpha2.Terraform
	if err := c.kube.Get(c.t.Context(), types.NamespacedName{Namespace: c.Namespace, Name: "net"}, &o); err != nil {
		c.t.Fatal(err)
	}
	return &o
}

// status writes the status as the controller does.
func (c cluster) status(change func(*v1alpha2.TerraformStatus)) {
	c.t.Helper()
	o := c.object()
	change(&o.Status)
	if err := c.kube.Status().Update(c.t.Context(), o); err != nil {
		c.t.Fatal(err)
	}
}

// spec edits the spec as its owner does.
func (c cluster) spec(change func(*v1alpha2.TerraformSpec)) {
	c.t.Helper()
	o := c.object()
	change(&o.Spec)
	if err := c.kube.Update(c.t.Context(), o); err != nil {
		c.t.Fatal(err)
	}
}

// waits makes a plan wait.
func waits(t *testing.T, name, digest string) func(*v1alpha2.TerraformStatus) {
	return func(s *v1alpha2.TerraformStatus) {
		raw, err := json.Marshal(stack.Status{Plans: stack.Plans{Pending: &stack.Plan{Name: name, Digest: digest, Changes: stack.Changes{Destroy: 1}}}})
		if err != nil {
			t.Fatal(err)
		}
		s.Plan.Pending = name
		s.Terrier = &v1alpha2.TerrierStatus{Phase: "AwaitingApproval", Memory: &apiextensionsv1.JSON{Raw: raw}}
	}
}

var shown = query.PlanInfo{Name: "plan-main-b8e362c206", Digest: "sha256:shown"}

func TestApprove(t *testing.T) {
	c := newCluster(t)
	for name, tt := range map[string]struct {
		spec    func(*v1alpha2.TerraformSpec)
		pending query.PlanInfo
		want    fault.Kind
		reason  string
	}{
		"the plan that was shown":              {nil, shown, fault.None, ""},
		"another plan waits":                   {nil, query.PlanInfo{Name: "plan-main-0000000000", Digest: "sha256:other"}, fault.Conflict, query.ReasonPlanChanged},
		"another plan waits by the same name":  {nil, query.PlanInfo{Name: shown.Name, Digest: "sha256:other"}, fault.Conflict, query.ReasonPlanChanged},
		"no plan waits":                        {nil, query.PlanInfo{}, fault.Conflict, query.ReasonNoPlan},
		"every plan is applied without asking": {func(s *v1alpha2.TerraformSpec) { s.ApprovePlan = "auto" }, shown, fault.Invalid, query.ReasonNotManual},
		"no plan is ever applied":              {func(s *v1alpha2.TerraformSpec) { s.PlanOnly = true }, shown, fault.Invalid, query.ReasonNotManual},
		"the stack is only watched":            {func(s *v1alpha2.TerraformSpec) { s.ApprovePlan = "disable" }, shown, fault.Invalid, query.ReasonNotManual},
	} {
		t.Run(name, func(t *testing.T) {
			c := c
			c.t = t
			c.spec(func(s *v1alpha2.TerraformSpec) {
				s.ApprovePlan, s.PlanOnly = "", false
				if tt.spec != nil {
					tt.spec(s)
				}
			})
			before := c.object().Spec.ApprovePlan
			c.status(waits(t, tt.pending.Name, tt.pending.Digest))
			_, err := c.stacks(interceptor.Funcs{}).Approve(t.Context(), c.key(), shown, "")
			if fault.Of(err) != tt.want || fault.Reason(err, "") != tt.reason {
				t.Errorf("Approve() is %v, want %s %s", err, tt.want, tt.reason)
			}
			want := shown.Name
			if tt.want != fault.None {
				want = before
			}
			if got := c.object().Spec.ApprovePlan; got != want {
				t.Errorf("approvePlan is %q, want %q", got, want)
			}
		})
	}
}

// Between the look and the edit another plan takes the place: the approval must
// not reach it, though the edit itself would be possible.
func TestApproveNeverReachesAnotherPlan(t *testing.T) {
	c := newCluster(t)
	c.status(waits(t, shown.Name, shown.Digest))
	edited := false
	_, err := c.stacks(interceptor.Funcs{Patch: func(ctx context.Context, k client.WithWatch, o client.Object, p client.Patch, opts ...client.PatchOption) error {
		if !edited {
			edited = true
			c.status(waits(t, shown.Name, "sha256:other"))
		}
		return k.Patch(ctx, o, p, opts...)
	}}).Approve(t.Context(), c.key(), shown, "")
	if fault.Of(err) != fault.Conflict || fault.Reason(err, "") != query.ReasonPlanChanged {
		t.Errorf("Approve() is %v, want a conflict about the plan", err)
	}
	if got := c.object().Spec.ApprovePlan; got != "" {
		t.Errorf("approvePlan is %q, want nothing", got)
	}
}

// A change that has nothing to do with the plan does not stand in the way.
func TestApproveSurvivesOtherWrites(t *testing.T) {
	c := newCluster(t)
	c.status(waits(t, shown.Name, shown.Digest))
	writes := 0
	_, err := c.stacks(interceptor.Funcs{Patch: func(ctx context.Context, k client.WithWatch, o client.Object, p client.Patch, opts ...client.PatchOption) error {
		if writes < 3 {
			writes++
			c.status(func(s *v1alpha2.TerraformStatus) { s.ReconciliationFailures++ })
		}
		return k.Patch(ctx, o, p, opts...)
	}}).Approve(t.Context(), c.key(), shown, "")
	if err != nil {
		t.Fatal(err)
	}
	if got := c.object().Spec.ApprovePlan; got != shown.Name {
		t.Errorf("approvePlan is %q, want %q", got, shown.Name)
	}
}

func TestReject(t *testing.T) {
	c := newCluster(t)
	c.status(waits(t, shown.Name, shown.Digest))
	s := c.stacks(interceptor.Funcs{})
	if _, err := s.Approve(t.Context(), c.key(), shown, ""); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Reject(t.Context(), c.key(), shown, ""); err != nil {
		t.Fatal(err)
	}
	o := c.object()
	if o.Spec.ApprovePlan != "" || o.Annotations[dialect.Rejected] != shown.Name {
		t.Errorf("approvePlan is %q and rejected %q, want the approval taken back and a note", o.Spec.ApprovePlan, o.Annotations[dialect.Rejected])
	}
	if _, err := s.Approve(t.Context(), c.key(), shown, ""); err != nil {
		t.Fatal(err)
	}
	if note, has := c.object().Annotations[dialect.Rejected]; has {
		t.Errorf("rejected is still %q after an approval", note)
	}
}

// A rejection of a plan that a run applies is noted, and its author is told that it
// came too late.
func TestRejectTooLate(t *testing.T) {
	c := newCluster(t)
	s := c.stacks(interceptor.Funcs{})
	for name, tt := range map[string]struct {
		reason  string
		cancels bool // the hint names terrier cancel
		status  func(*v1alpha2.TerraformStatus)
	}{
		"a run applies it": {query.ReasonTooLate, true, func(s *v1alpha2.TerraformStatus) {
			waits(t, shown.Name, shown.Digest)(s)
			s.Terrier.Run = &v1alpha2.RunStatus{ID: "apply-1", Kind: "apply"}
		}},
		"it was applied": {query.ReasonWasApplied, false, func(s *v1alpha2.TerraformStatus) {
			raw, err := json.Marshal(stack.Status{Resources: stack.Resources{Applied: &stack.Plan{Name: shown.Name, Digest: shown.Digest}, AppliedAt: noon}})
			if err != nil {
				t.Fatal(err)
			}
			s.Plan.Pending, s.Terrier = "", &v1alpha2.TerrierStatus{Phase: "Applied", Memory: &apiextensionsv1.JSON{Raw: raw}}
		}},
	} {
		t.Run(name, func(t *testing.T) {
			c := c
			c.t = t
			c.status(tt.status)
			c.spec(func(s *v1alpha2.TerraformSpec) { s.ApprovePlan = shown.Name })
			_, err := s.Reject(t.Context(), c.key(), shown, "no, wait")
			if fault.Of(err) != fault.Conflict || fault.Reason(err, "") != tt.reason {
				t.Errorf("Reject() is %v, want a conflict: %s", err, tt.reason)
			}
			if hint := command.Hint(err); strings.Contains(hint, "terrier cancel") != tt.cancels || hint == "" {
				t.Errorf("Hint() is %q, want it to name terrier cancel: %v", hint, tt.cancels)
			}
			if o := c.object(); o.Annotations[dialect.Rejected] != shown.Name || o.Annotations[dialect.Comment] != "no, wait" {
				t.Errorf("the annotations are %v, want the rejection for the audit log", o.Annotations)
			}
		})
	}
}

// A second approval of a plan that was applied meanwhile is told so.
func TestPendingOfAnAppliedPlan(t *testing.T) {
	s := query.Stack{Namespace: "apps", Name: "net", Approved: shown.Name, DecidedBy: "ann", Applied: &shown, AppliedAt: noon}
	if got, err := command.Pending(s, shown.Name); err != nil || got.Digest != shown.Digest {
		t.Errorf("Pending() of its name is %+v, %v; want the plan", got, err)
	}
	_, err := command.Pending(s, "")
	if want := "the plan plan-main-b8e362c206 was approved by ann, and was applied at "; fault.Reason(err, "") != query.ReasonNoPlan || !strings.Contains(err.Error(), want) {
		t.Errorf("Pending() is %v, want %q", err, want)
	}
	if _, err := command.Pending(s, "plan-main-0"); fault.Reason(err, "") != query.ReasonNoPlan {
		t.Errorf("Pending() of another plan is %v, want that there is none", err)
	}
}

func TestReplanAndItsAnswer(t *testing.T) {
	c := newCluster(t)
	s := c.stacks(interceptor.Funcs{})
	request, err := s.Replan(t.Context(), c.key())
	if err != nil {
		t.Fatal(err)
	}
	if got := c.object().Annotations[infra.RequestedAt]; got != request {
		t.Fatalf("the annotation is %q, want %q", got, request)
	}
	answered := make(chan query.Stack, 1)
	failed := make(chan error, 1)
	ctx, cancel := context.WithTimeout(t.Context(), testkit.Patience)
	defer cancel()
	go func() {
		st, err := command.Answered(ctx, s, c.key(), request, func(string) {})
		failed <- err
		answered <- st
	}()
	busy := metav1.Condition{Type: "Reconciling", Status: "True", Reason: "Progressing", LastTransitionTime: metav1.Now()}
	c.status(func(s *v1alpha2.TerraformStatus) {
		s.LastHandledReconcileAt, s.Conditions = noon.Add(-time.Hour).Format(time.RFC3339), []metav1.Condition{busy}
	})
	c.status(func(s *v1alpha2.TerraformStatus) { s.LastHandledReconcileAt = request })
	select {
	case err := <-failed:
		t.Fatalf("answered while the stack is still on its way: %v", err)
	default:
	}
	c.status(func(s *v1alpha2.TerraformStatus) { s.Conditions = nil; s.Plan.Pending = "plan-x" })
	if err := <-failed; err != nil {
		t.Fatal(err)
	}
	if st := <-answered; st.Pending != "plan-x" {
		t.Errorf("answered with %+v, want the stack at rest", st)
	}
}

// An attempt that failed is an answer: its retry may be an hour away.
func TestAnsweredByAFailedAttempt(t *testing.T) {
	for _, phase := range []stack.Reason{stack.RetryLater, stack.LockedByOther, stack.DestroyFailed} {
		t.Run(string(phase), func(t *testing.T) {
			c := newCluster(t)
			s := c.stacks(interceptor.Funcs{})
			request, err := s.Replan(t.Context(), c.key())
			if err != nil {
				t.Fatal(err)
			}
			c.status(func(s *v1alpha2.TerraformStatus) {
				s.Terrier = &v1alpha2.TerrierStatus{Phase: string(phase)}
				s.Conditions = []metav1.Condition{{Type: "Reconciling", Status: "True", Reason: "Progressing", LastTransitionTime: metav1.Now()}}
			})
			short, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			if _, err := command.Answered(short, s, c.key(), request, func(string) {}); fault.Of(err) != fault.Later {
				t.Errorf("Answered() before the attempt = %v, want that the request is not answered yet", err)
			}
			c.status(func(s *v1alpha2.TerraformStatus) { s.LastHandledReconcileAt = request })
			long, cancel := context.WithTimeout(t.Context(), testkit.Patience)
			defer cancel()
			st, err := command.Answered(long, s, c.key(), request, func(string) {})
			if err != nil || st.Phase != string(phase) {
				t.Errorf("Answered() after the attempt = %q, %v, want %s", st.Phase, err, phase)
			}
		})
	}
}

// A stack that cannot answer before a user acts ends the wait, and so does the end of
// the time: both say what the stack waits for.
func TestAnsweredSaysWhatItWaitsFor(t *testing.T) {
	c := newCluster(t)
	s := c.stacks(interceptor.Funcs{})
	request, err := s.Replan(t.Context(), c.key())
	if err != nil {
		t.Fatal(err)
	}
	c.status(func(s *v1alpha2.TerraformStatus) {
		s.Terrier = &v1alpha2.TerrierStatus{Phase: "SourceNotReady"}
		s.Conditions = []metav1.Condition{{Type: "Ready", Status: "False", Reason: "SourceNotReady", Message: "the source has no artifact", LastTransitionTime: metav1.Now()}}
	})
	short, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	var told []string
	_, err = command.Answered(short, s, c.key(), request, func(what string) { told = append(told, what) })
	if fault.Of(err) != fault.Later || !strings.Contains(err.Error(), "SourceNotReady: the source has no artifact") || strings.Contains(err.Error(), "context") {
		t.Errorf("Answered() when its time is over = %v, want what the stack waits for", err)
	}
	if diff := cmp.Diff([]string{"SourceNotReady: the source has no artifact"}, told); diff != "" {
		t.Errorf("told (-want +got):\n%s", diff)
	}
	c.status(func(s *v1alpha2.TerraformStatus) {
		s.Terrier.Phase = "ModuleInvalid"
		s.Conditions = []metav1.Condition{
			{Type: "Ready", Status: "False", Reason: "ModuleInvalid", Message: "main.tf line 3: no such thing", LastTransitionTime: metav1.Now()},
			{Type: "Stalled", Status: "True", Reason: "ModuleInvalid", LastTransitionTime: metav1.Now()},
		}
	})
	_, err = command.Answered(t.Context(), s, c.key(), request, func(string) {})
	if fault.Of(err) != fault.Invalid || !strings.Contains(err.Error(), "ModuleInvalid: main.tf line 3: no such thing") {
		t.Errorf("Answered() of a stalled stack = %v, want the end of the wait", err)
	}
	c.status(func(s *v1alpha2.TerraformStatus) { s.LastHandledReconcileAt = request })
	st, err := command.Answered(t.Context(), s, c.key(), request, func(string) {})
	if err != nil {
		t.Fatal(err)
	}
	if err := command.NotPlanned(st); fault.Of(err) != fault.Invalid || !strings.Contains(err.Error(), "main.tf line 3: no such thing") {
		t.Errorf("NotPlanned() of a stack that could not plan = %v, want why", err)
	}
}

func TestSuspendAndResume(t *testing.T) {
	c := newCluster(t)
	s := c.stacks(interceptor.Funcs{})
	if err := s.Suspend(t.Context(), c.key()); err != nil || !c.object().Spec.Suspend {
		t.Errorf("Suspend() = %v, suspend is %v", err, c.object().Spec.Suspend)
	}
	if _, err := s.Replan(t.Context(), c.key()); fault.Of(err) != fault.Invalid {
		t.Errorf("Replan() of a suspended stack is %v, want it to be invalid", err)
	}
	if err := s.Resume(t.Context(), c.key()); err != nil || c.object().Spec.Suspend {
		t.Errorf("Resume() = %v, suspend is %v", err, c.object().Spec.Suspend)
	}
	if err := s.Suspend(t.Context(), query.Key{Namespace: c.Namespace, Name: "none"}); fault.Of(err) != fault.Missing {
		t.Errorf("Suspend() of nothing is %v, want it to be missing", err)
	}
}

func TestUnlockBreaksOnlyTheLockInTheWay(t *testing.T) {
	c := newCluster(t)
	s := c.stacks(interceptor.Funcs{})
	if err := s.Unlock(t.Context(), c.key(), "l1"); fault.Of(err) != fault.Conflict {
		t.Errorf("Unlock() without a lock is %v, want a conflict", err)
	}
	c.status(func(s *v1alpha2.TerraformStatus) { s.Lock.Pending = "l2" })
	if err := s.Unlock(t.Context(), c.key(), "l1"); fault.Of(err) != fault.Conflict {
		t.Errorf("Unlock() of another lock is %v, want a conflict", err)
	}
	if err := s.Unlock(t.Context(), c.key(), "l2"); err != nil {
		t.Fatal(err)
	}
	if got := c.object().Spec.TfState; got == nil || got.ForceUnlock != "yes" || got.LockIdentifier != "l2" {
		t.Errorf("tfstate is %+v, want exactly this lock to be broken", got)
	}
}

func TestListAndWatch(t *testing.T) {
	c := newCluster(t)
	s := c.stacks(interceptor.Funcs{})
	for selector, want := range map[string]int{"": 1, "team=net": 1, "team=other": 0} {
		list, err := s.List(t.Context(), query.Filter{Namespace: c.Namespace, Selector: selector})
		if err != nil || len(list) != want {
			t.Errorf("List(%q) = %d stacks, %v; want %d", selector, len(list), err, want)
		}
	}
	if _, err := s.List(t.Context(), query.Filter{Selector: "=="}); fault.Of(err) != fault.Invalid {
		t.Errorf("List() with a selector that is none is %v, want it to be invalid", err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), testkit.Patience)
	defer cancel()
	var got []string
	for change, err := range s.Watch(ctx, query.Filter{Namespace: c.Namespace, Name: "net"}) {
		if err != nil {
			t.Fatal(err)
		}
		if change.Gone {
			got = append(got, "gone")
			break
		}
		got = append(got, change.Phase)
		switch change.Phase {
		case "":
			c.status(func(s *v1alpha2.TerraformStatus) { s.Terrier = &v1alpha2.TerrierStatus{Phase: "Planning"} })
		case "Planning":
			if err := c.kube.Delete(t.Context(), c.object()); err != nil {
				t.Fatal(err)
			}
		}
	}
	if diff := cmp.Diff(got, []string{"", "Planning", "gone"}); diff != "" {
		t.Errorf("Watch() (-got +want):\n%s", diff)
	}
}

func TestOutputs(t *testing.T) {
	c := newCluster(t)
	s := c.stacks(interceptor.Funcs{})
	if _, err := s.Outputs(t.Context(), c.key(), true); fault.Of(err) != fault.Missing {
		t.Errorf("Outputs() before they are written is %v, want them to be missing", err)
	}
	secret := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: c.Namespace, Name: "net-outputs", Annotations: map[string]string{"terrier.dev/public-outputs": "id,zones"}},
		Data:       map[string][]byte{"id": []byte("vpc-1"), "zones": []byte(`["a"]`), "zones__type": []byte(`["list","string"]`), "password": []byte("hunter22")},
	}
	if err := c.kube.Create(t.Context(), secret); err != nil {
		t.Fatal(err)
	}
	text := func(show bool) string {
		t.Helper()
		list, err := s.Outputs(t.Context(), c.key(), show)
		if err != nil {
			t.Fatal(err)
		}
		var lines []string
		for _, o := range list {
			lines = append(lines, o.Name+"="+string(o.Value))
		}
		return strings.Join(lines, " ")
	}
	if got, want := text(false), `id="vpc-1" password= zones=["a"]`; got != want {
		t.Errorf("Outputs() = %s, want %s", got, want)
	}
	if got, want := text(true), `id="vpc-1" password="hunter22" zones=["a"]`; got != want {
		t.Errorf("Outputs() shown = %s, want %s", got, want)
	}
	known := plan.Remembered{Key: []byte("k")}
	known.Add([]string{"vpc-1"})
	raw, err := json.Marshal(known)
	if err != nil {
		t.Fatal(err)
	}
	c.records[record.Secrets(string(c.object().UID))] = string(raw)
	if got, want := text(false), `id= password= zones=["a"]`; got != want {
		t.Errorf("Outputs() once an identifier came from a Secret = %s, want %s", got, want)
	}
	if got, want := text(true), `id="vpc-1" password="hunter22" zones=["a"]`; got != want {
		t.Errorf("Outputs() shown = %s, want %s", got, want)
	}
	c.records[record.Secrets(string(c.object().UID))] = "damaged"
	if got, want := text(false), `id= password= zones=`; got != want {
		t.Errorf("Outputs() while it is not known what came from Secrets = %s, want %s", got, want)
	}
	list, err := s.Outputs(t.Context(), c.key(), false)
	if err != nil || !strings.Contains(list[0].Masked, "did not say which values came from Secrets") || list[1].Masked != "" {
		t.Errorf("Outputs() = %+v, %v; want the reason why the public ones are masked", list, err)
	}
	if got, want := text(true), `id="vpc-1" password="hunter22" zones=["a"]`; got != want {
		t.Errorf("Outputs() shown while it is not known = %s, want %s", got, want)
	}
	secret.Annotations = nil
	if err := c.kube.Update(t.Context(), secret); err != nil {
		t.Fatal(err)
	}
	if got, want := text(false), `id= password= zones=`; got != want {
		t.Errorf("Outputs() of somebody who does not say what is public = %s, want %s", got, want)
	}
}

func TestDescribeShowsEvents(t *testing.T) {
	c := newCluster(t)
	o := c.object()
	event := &corev1.Event{
		ObjectMeta:     metav1.ObjectMeta{Namespace: c.Namespace, Name: "net.1"},
		InvolvedObject: corev1.ObjectReference{Kind: "Terraform", Namespace: c.Namespace, Name: "net", UID: o.UID},
		Reason:         "Planned", Message: "Planned.", Type: "Normal", LastTimestamp: metav1.NewTime(noon),
	}
	if err := c.kube.Create(t.Context(), event); err != nil {
		t.Fatal(err)
	}
	c.status(waits(t, shown.Name, shown.Digest))
	d, err := c.stacks(interceptor.Funcs{}).Describe(t.Context(), c.key())
	if err != nil {
		t.Fatal(err)
	}
	if len(d.Events) != 1 || d.Events[0].Reason != "Planned" || d.Plan == nil || d.Plan.Digest != shown.Digest || d.Means.Do == "" {
		t.Errorf("Describe() = %+v, want the event, the plan and what to do", d)
	}
}

// An object that upstream's controller left has no memory of ours.
func TestViewOfAnAdoptedStack(t *testing.T) {
	c := newCluster(t)
	c.status(func(s *v1alpha2.TerraformStatus) {
		s.Plan.Pending, s.LastAppliedRevision = "plan-main-0000000000", "main@sha1:1"
	})
	st, err := c.stacks(interceptor.Funcs{}).Get(t.Context(), c.key())
	if err != nil {
		t.Fatal(err)
	}
	if st.Pending != "plan-main-0000000000" || st.Plan != nil || st.Revision != "main@sha1:1" {
		t.Errorf("Get() = %+v, want the name of the plan and nothing made up", st)
	}
}
