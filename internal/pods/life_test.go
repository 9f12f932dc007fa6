package pods

import (
	"errors"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/yaml"

	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/runner"
	"github.com/terrier-iac/terrier/internal/runner/remote"
	"github.com/terrier-iac/terrier/internal/stack"
)

const whatMakesItCertain = ". Once the machine is certainly off, delete its Node, or taint that with node.kubernetes.io/out-of-service=nodeshutdown:NoExecute. " +
	"Do not delete the pod by force: a second run could begin beside it"

// What the status of a pod means. The statuses are as the scheduler and the kubelet of
// Kubernetes 1.37 write them.
func TestLife(t *testing.T) {
	now := time.Date(2026, 1, 1, 1, 0, 0, 0, time.UTC)
	lacks := map[string]remote.Lack{"no room": remote.Room, "no image": remote.Image, "no image of an init container": remote.Image}
	for name, tt := range map[string]struct {
		status  string
		deleted bool // it had to end now
		state   remote.State
		reason  string
		message string
	}{
		"just created": {`phase: Pending`, false, remote.Pending, "", ""},
		"no room": {`
phase: Pending
conditions: [{type: PodScheduled, status: "False", reason: Unschedulable, lastTransitionTime: "2026-01-01T00:59:00Z", message: "0/3 nodes are available: 3 Insufficient cpu."}]`,
			false, remote.Pending, "Unschedulable", "the pod p waits for a node: 0/3 nodes are available: 3 Insufficient cpu."},
		"held back by another program": {`
phase: Pending
conditions: [{type: PodScheduled, status: "False", reason: SchedulingGated, message: "Scheduling is blocked due to non-empty scheduling gates"}]`,
			false, remote.Pending, "SchedulingGated", "the pod p waits for a node: Scheduling is blocked due to non-empty scheduling gates"},
		"being prepared": {`
phase: Pending
containerStatuses: [{name: terrier-runner, state: {waiting: {reason: ContainerCreating}}}]`, false, remote.Pending, "", ""},
		"no image": {`
phase: Pending
containerStatuses: [{name: terrier-runner, state: {waiting: {reason: ImagePullBackOff, message: "Back-off pulling image \"x\""}}}]`,
			false, remote.Pending, "ImagePullBackOff", `the pod p waits for its image registry.example/x:1 (ImagePullBackOff): Back-off pulling image "x". The operator of the platform chose the image with --run-image` + theAttempts},
		"no image of an init container": {`
phase: Pending
initContainerStatuses: [{name: fetch, state: {waiting: {reason: ErrImagePull, message: "connection refused"}}}]
containerStatuses: [{name: terrier-runner, state: {waiting: {reason: PodInitializing}}}]`,
			false, remote.Pending, "ErrImagePull", "the pod p waits for its image registry.example/fetch:1 (ErrImagePull): connection refused" + theAttempts},
		"a setting is missing": {`
phase: Pending
containerStatuses: [{name: terrier-runner, state: {waiting: {reason: CreateContainerConfigError, message: "secret \"y\" not found"}}}]`,
			false, remote.Pending, "CreateContainerConfigError", `the pod p cannot start (CreateContainerConfigError): secret "y" not found`},
		"at work": {`
phase: Running
containerStatuses: [{name: terrier-runner, state: {running: {startedAt: "2026-01-01T00:00:00Z"}}}]`, false, remote.Running, "", ""},
		"being deleted and at work": {`
phase: Running
containerStatuses: [{name: terrier-runner, state: {running: {startedAt: "2026-01-01T00:00:00Z"}}}]`, true, remote.Running, "", ""},
		"failed on a node that does not answer": {`
phase: Failed
reason: NodeLost
containerStatuses: [{name: terrier-runner, state: {running: {startedAt: "2026-01-01T00:00:00Z"}}}]`, false, remote.Running, "", ""},
		"not ready, as its kubelet says": {`
phase: Running
conditions: [{type: Ready, status: "False", reason: ContainersNotReady}]
containerStatuses: [{name: terrier-runner, state: {running: {startedAt: "2026-01-01T00:00:00Z"}}}]`, false, remote.Running, "", ""},
		"on a node that does not answer": {`
phase: Running
conditions: [{type: Ready, status: "False"}]
containerStatuses: [{name: terrier-runner, state: {running: {startedAt: "2026-01-01T00:00:00Z"}}}]`,
			false, remote.Running, "", "the node n does not answer, and the pod p may go on there" + whatMakesItCertain},
		"out of memory": {`
phase: Failed
containerStatuses: [{name: terrier-runner, state: {terminated: {exitCode: 137, reason: OOMKilled}}}]`,
			false, remote.Ended, runner.OutOfMemory, "the pod reached its memory limit of 64 MiB and was killed by the kernel"},
		"evicted from a full node": {`
phase: Failed
reason: Evicted
message: "The node was low on resource: memory."
containerStatuses: [{name: terrier-runner, state: {terminated: {exitCode: 137, reason: Error}}}]`,
			false, remote.Ended, "Evicted", "the pod was evicted from its node: The node was low on resource: memory."},
		"drained": {`
phase: Failed
conditions: [{type: DisruptionTarget, status: "True", reason: EvictionByEvictionAPI, message: "Eviction API: evicting"}]
containerStatuses: [{name: terrier-runner, state: {terminated: {exitCode: 4, reason: Error}}}]`,
			false, remote.Ended, "EvictionByEvictionAPI", "the pod was taken from its node (EvictionByEvictionAPI): Eviction API: evicting"},
		"an agent that says why": {`
phase: Failed
containerStatuses: [{name: terrier-runner, state: {terminated: {exitCode: 1, reason: Error, message: "the controller cannot be reached\n"}}}]`,
			false, remote.Ended, "Error", "the pod ended with exit code 1: the controller cannot be reached"},
		"over with a container beside it": {`
phase: Running
containerStatuses:
- {name: sidecar, state: {running: {}}}
- {name: terrier-runner, state: {terminated: {exitCode: 0, reason: Completed}}}`, false, remote.Ended, "Completed", "the pod has ended"},
		"refused by its node": {`
phase: Failed
reason: OutOfcpu
message: "Pod was rejected: Node didn't have enough resource: cpu"`,
			false, remote.Ended, "OutOfcpu", "the pod ended before the run began (OutOfcpu): Pod was rejected: Node didn't have enough resource: cpu"},
		"an init container that failed": {`
phase: Failed
initContainerStatuses: [{name: fetch, state: {terminated: {exitCode: 2, reason: Error, message: "no network"}}}]
containerStatuses: [{name: terrier-runner, state: {waiting: {reason: PodInitializing}}}]`,
			false, remote.Ended, "InitContainerFailed", "the init container fetch ended with exit code 2: no network"},
	} {
		t.Run(name, func(t *testing.T) {
			pod := &corev1.Pod{
				ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "p"},
				Spec: corev1.PodSpec{NodeName: "n", InitContainers: []corev1.Container{{Name: "fetch", Image: "registry.example/fetch:1"}}, Containers: []corev1.Container{{
					Name: "terrier-runner", Image: "registry.example/x:1", Resources: corev1.ResourceRequirements{Limits: quantities(t, map[string]string{"memory": "64Mi"})},
				}}},
			}
			if tt.deleted {
				pod.DeletionTimestamp = new(metav1.NewTime(now))
			}
			if err := yaml.UnmarshalStrict([]byte(tt.status), &pod.Status); err != nil {
				t.Fatal(err)
			}
			seen, err := slim(pod) // as it is in the cache
			if err != nil {
				t.Fatal(err)
			}
			got := lifeOf(seen.(*corev1.Pod), "registry.example/x:1", now)
			if got.State != tt.state || got.Reason != tt.reason || got.Message != tt.message {
				t.Errorf("lifeOf() = %s, %q, %q; want %s, %q, %q", got.State, got.Reason, got.Message, tt.state, tt.reason, tt.message)
			}
			if want := lacks[name]; got.Lacks != want {
				t.Errorf("it lacks %q, want %q", got.Lacks, want)
			}
		})
	}
}

// A pod whose end is not reported is no silent wait, and its run is not dead.
func TestAPodThatDoesNotEnd(t *testing.T) {
	due := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "p", DeletionTimestamp: new(metav1.NewTime(due))},
		Spec:       corev1.PodSpec{NodeName: "n"}, Status: corev1.PodStatus{Phase: corev1.PodRunning},
	}
	for after, want := range map[time.Duration]string{
		0:               "",
		2 * time.Minute: "the pod p had to end by 2026-01-01T00:00:00Z, and the node n did not report its end" + whatMakesItCertain,
	} {
		if got := lifeOf(pod, "", due.Add(after)); got.State != remote.Running || got.Message != want {
			t.Errorf("after %s: lifeOf() = %s, %q; want it to run, and %q", after, got.State, got.Message, want)
		}
	}
}

// Each refusal of the API server has the kind of failure that it is, and names what the
// user or the operator can change.
func TestRefusals(t *testing.T) {
	pods := schema.GroupResource{Resource: "pods"}
	forbidden := func(text string) error { return apierrors.NewForbidden(pods, "p", errors.New(text)) }
	terminating := apierrors.NewForbidden(pods, "p", errors.New("unable to create new content in namespace team-a because it is being terminated"))
	terminating.ErrStatus.Details.Causes = append(terminating.ErrStatus.Details.Causes, metav1.StatusCause{Type: corev1.NamespaceTerminatingCause})
	for name, tt := range map[string]struct {
		err    error
		kind   fault.Kind
		reason string
		says   string
	}{
		"a quota that is used up": {
			forbidden("exceeded quota: terraform-runners, requested: pods=1, used: pods=10, limited: pods=10"), fault.Later, runner.NoRoom,
			"the ResourceQuota of the namespace team-a has no room for the pod of the run: exceeded quota: terraform-runners, requested: pods=1",
		},
		"no ServiceAccount": {
			forbidden(`error looking up service account team-a/net: serviceaccount "net" not found`), fault.Missing, "ServiceAccountMissing",
			"the ServiceAccount net does not exist in the namespace team-a: create it, or ask the operator of the kind",
		},
		"no PriorityClass":               {forbidden(`no PriorityClass with name terraform was found`), fault.Missing, "PriorityClassMissing", "the PriorityClass terraform does not exist"},
		"Pod Security":                   {forbidden(`violates PodSecurity "restricted:latest": privileged (…)`), fault.Denied, "PodSecurityDenied", "the Pod Security of the namespace team-a forbids"},
		"a namespace leaves":             {terminating, fault.Denied, "NamespaceTerminating", "the namespace team-a is being deleted"},
		"no right":                       {forbidden(`User "x" cannot create resource "pods"`), fault.Denied, "PodDenied", "cannot create resource"},
		"a name that exists":             {apierrors.NewAlreadyExists(pods, "p"), fault.Conflict, "PodExists", "a pod team-a/p exists"},
		"a busy server":                  {apierrors.NewTooManyRequests("later", 1), fault.Later, "APIServerBusy", "later"},
		"a server that may have done it": {apierrors.NewTimeoutError("slow", 1), fault.Broken, "", "slow"},
		"an invalid pod":                 {apierrors.NewInvalid(schema.GroupKind{Kind: "Pod"}, "p", nil), fault.Invalid, "PodInvalid", "the words of the kind"},
	} {
		t.Run(name, func(t *testing.T) {
			pod := &corev1.Pod{
				ObjectMeta: metav1.ObjectMeta{Namespace: "team-a", Name: "p"},
				Spec:       corev1.PodSpec{ServiceAccountName: "net", PriorityClassName: "terraform"},
			}
			w := stack.Words{PodTemplate: "the words of the kind", Account: "ask the operator of the kind", Priority: "ask the operator of the kind"}
			err := refused(tt.err, pod, w)
			if fault.Of(err) != tt.kind || fault.Reason(err, "") != tt.reason || !strings.Contains(err.Error(), tt.says) {
				t.Errorf("refused() = %s, %s, %v; want %s, %s, and %q in it", fault.Of(err), fault.Reason(err, ""), err, tt.kind, tt.reason, tt.says)
			}
		})
	}
}
