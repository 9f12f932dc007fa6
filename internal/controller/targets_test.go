package controller

import (
	"slices"
	"testing"

	sourcev1 "github.com/fluxcd/source-controller/api/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/terrier-iac/terrier/api/infra/v1alpha2"
	"github.com/terrier-iac/terrier/internal/afterapply"
	"github.com/terrier-iac/terrier/internal/dialect/infra"
	"github.com/terrier-iac/terrier/internal/kube"
	"github.com/terrier-iac/terrier/internal/record"
	"github.com/terrier-iac/terrier/internal/runner"
	"github.com/terrier-iac/terrier/internal/schedule"
	"github.com/terrier-iac/terrier/internal/stack"
)

// The deletion of a stack destroys everything, whatever is targeted, and its preview shows that.
// A plan that the spec asks for is of the targets. What a destroy or a rollback is made from
// keeps the targets in either case.
func TestAPreviewOfADestroyIsOfEverything(t *testing.T) {
	targets := []string{"module.a"}
	for name, tt := range map[string]struct {
		kind  stack.RunKind
		whole bool
	}{
		"a preview": {stack.PreviewRun, true},
		"a plan":    {stack.PlanRun, false},
		"a check":   {stack.CheckRun, false},
	} {
		t.Run(name, func(t *testing.T) {
			runs := &taker{}
			c := takeApart(&Stacks{States: &lockOnly{}, Blobs: openRecords(t), Runner: runs, Queue: queueOf(1)})
			p := &pass{dialect: infra.Dialect{}, id: "uid", entry: &entry{id: "uid"}, obj: &v1alpha2.Terraform{}, job: &runner.Job{Options: runner.Options{Targets: targets}}, note: note{State: &kube.StateRef{}}}
			p.o.Spec.Preview = "asked"
			if err := c.actor.start(t.Context(), p, stack.Start{Kind: tt.kind}); err != nil {
				t.Fatal(err)
			}
			if got := len(runs.job.Options.Targets) == 0; got != tt.whole || p.note.Cause.Whole != tt.whole {
				t.Errorf("the job targets %v, and its cause is whole: %v", runs.job.Options.Targets, p.note.Cause.Whole)
			}
			kept, err := record.At[snapshot](p.note.Cause.Snapshot).Read(t.Context(), c.snapshots.blobs)
			if err != nil || !slices.Equal(kept.Job.Options.Targets, targets) || kept.Job.Options.Destroy {
				t.Errorf("the record has %+v, %v", kept.Job.Options, err)
			}
		})
	}
}

// A destroy of everything takes the hosts of the stack out of what watches them and out of the
// files that Terrier wrote. One of targets leaves resources, and their hosts are still there. The
// plan says which it is, also once the object is deleted.
func TestADestroyOfTargetsLeavesTheHosts(t *testing.T) {
	for name, tt := range map[string]struct {
		targets  []string
		whole    bool // the plan
		deleting bool
		ends     bool // all resources
	}{
		"of everything":                     {nil, true, false, true},
		"of targets":                        {[]string{"module.a"}, false, false, false},
		"of everything, of a deleted stack": {[]string{"module.a"}, true, true, true},
		"of targets, of a deleted stack":    {[]string{"module.a"}, false, true, false},
		"by a plan of an earlier release":   {nil, false, false, true},
	} {
		t.Run(name, func(t *testing.T) {
			watched := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: "net-targets", Labels: map[string]string{"terrier.dev/targets": "true"}}}
			obj := &v1alpha2.Terraform{ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: "net", UID: "uid"}}
			watched.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(obj, v1alpha2.GroupVersion.WithKind("Terraform"))}
			live := fake.NewClientBuilder().WithObjects(watched).Build()
			c := takeApart(&Stacks{States: &lockOnly{}, Blobs: openRecords(t), Runner: &starter{}, Queue: queueOf(1), Live: live, Events: &events{}})
			c.whole.Queue.Admit("other", schedule.Candidate{Tenant: "b"}) // so that the run only waits for its turn
			p := &pass{dialect: infra.Dialect{}, id: "uid", entry: &entry{id: "uid"}, obj: obj, job: &runner.Job{Options: runner.Options{Targets: tt.targets}}, note: note{State: &kube.StateRef{}}}
			p.st.Configuration.Source = &stack.Ref{Kind: sourcev1.GitRepositoryKind, Name: "estate"}
			p.st.Configuration.AfterApply = []afterapply.Step{
				{Name: "watch", Targets: &afterapply.Targets{HostsFrom: "hosts", Port: 80}},
				{Name: "hosts", Inventory: &afterapply.Inventory{Path: "hosts.yml", HostsFrom: "hosts", Mode: afterapply.Commit}},
			}
			p.o.Deleting, p.o.Corrected = tt.deleting, true // the job is that of the object
			plan := stack.Plan{Name: "p", Digest: "d", Destroy: true, Whole: tt.whole}
			if err := c.records.Put(t.Context(), record.Plan("uid", "d", "plan.bin"), []byte("plan")); err != nil {
				t.Fatal(err)
			}
			if err := c.actor.apply(t.Context(), p, plan); err != nil {
				t.Fatal(err)
			}
			if p.o.Queued == "" || (len(p.job.Options.Targets) == 0) != tt.ends {
				t.Errorf("the run waits for %q, and targets %v", p.o.Queued, p.job.Options.Targets)
			}
			if removes := len(p.note.Hosts) > 0; removes != tt.ends {
				t.Errorf("hosts are removed from files: %+v", p.note.Hosts)
			}
			err := live.Get(t.Context(), client.ObjectKeyFromObject(watched), watched)
			if watches := err == nil; watches == tt.ends {
				t.Errorf("the hosts are still watched: %v, %v", watches, err)
			}
		})
	}
}
