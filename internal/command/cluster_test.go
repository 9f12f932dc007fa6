package command_test

import (
	"encoding/json"
	"testing"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/terrier-iac/terrier/api/infra/v1alpha2"
	"github.com/terrier-iac/terrier/internal/access"
	"github.com/terrier-iac/terrier/internal/command"
	"github.com/terrier-iac/terrier/internal/dialect/kinds"
	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/query"
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
