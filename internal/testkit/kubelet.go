package testkit

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	authnv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	typed "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"

	"github.com/terrier-iac/terrier/internal/runner/agent"
)

// Kubelet runs the pods of one namespace, or of all, as processes of this machine: a node as far as
// runs need one. An image is a program on this machine. Volumes are directories, of which that
// of a hostPath is the one of this machine; a projected token is one that the API server bound to the pod. It obeys a deletion as
// a kubelet does: SIGTERM, the grace of the pod, SIGKILL, and then the pod is gone.
//
// The node has no labels, so a pod with a node selector finds none.
//
// A container has no namespaces here, so its directories are elsewhere: the kubelet
// replaces them in the environment. Resources bound nothing.
type Kubelet struct {
	namespace string // empty for all
	set       kubernetes.Interface
	dir       string
	stop      context.CancelFunc
	work      sync.WaitGroup

	mu       sync.Mutex
	live     map[types.UID]*kubeletPod
	full     string // why no pod finds a node; empty if it does
	answer   string // of the registry about an image that is no program of the node
	seen     int    // pods that were ever started
	programs map[string]string
}

// kubeletPod is a pod whose container was started.
type kubeletPod struct {
	pod     *corev1.Pod
	dir     string
	command *exec.Cmd
	ended   chan struct{}
	lost    bool   // its node is gone: nothing is told to the API server
	reason  string // why it ended, if the kubelet or the kernel ended it
}

// NodeName is the node of every pod.
const NodeName = "node-of-the-test"

// StartKubelet runs the pods of a namespace until the end of the test. Images are
// programs of this machine by the name that a manifest has.
func StartKubelet(tb testing.TB, c *Cluster, images map[string]string) *Kubelet {
	tb.Helper()
	k, err := NewKubelet(c.Config, c.Namespace, tb.TempDir(), images)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(k.Close)
	return k
}

// NewKubelet runs the pods of a namespace until Close, and those of all if it has no
// name. What they need on the disk is below dir.
func NewKubelet(config *rest.Config, namespace, dir string, images map[string]string) (*Kubelet, error) {
	set, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	ctx, stop := context.WithCancel(context.Background())
	k := &Kubelet{namespace: namespace, set: set, dir: dir, stop: stop, live: map[types.UID]*kubeletPod{}, programs: images}
	ready := make(chan error, 1)
	k.work.Go(func() { k.follow(ctx, ready) })
	if err := <-ready; err != nil {
		stop()
		return nil, fmt.Errorf("watching the pods of %q: %w", namespace, err)
	}
	return k, nil
}

// Close kills the pods that run, and waits for their end.
func (k *Kubelet) Close() {
	k.stop()
	k.mu.Lock()
	for _, p := range k.live {
		p.lost = true
		p.kill()
	}
	k.mu.Unlock()
	k.work.Wait()
}

// Answer sets what the registry answers about an image that is no program of the node.
func (k *Kubelet) Answer(text string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.answer = text
}

// Fill keeps new pods from finding a node, with the words of a scheduler; empty lets
// them find one again.
func (k *Kubelet) Fill(why string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.full = why
}

// in are the pods of a namespace.
func (k *Kubelet) in(namespace string) typed.PodInterface { return k.set.CoreV1().Pods(namespace) }

// Started is how many pods were ever started.
func (k *Kubelet) Started() int {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.seen
}

// Running lists the pods whose processes are alive.
func (k *Kubelet) Running() []string {
	k.mu.Lock()
	defer k.mu.Unlock()
	var names []string
	for _, p := range k.live {
		names = append(names, p.pod.Name)
	}
	return names
}

// Log is what all pods said so far.
func (k *Kubelet) Log() string {
	var all strings.Builder
	logs, _ := filepath.Glob(filepath.Join(k.dir, "*", "log"))
	for _, name := range logs {
		text, err := os.ReadFile(name)
		fmt.Fprintf(&all, "%s:\n%s", filepath.Base(filepath.Dir(name)), text)
		if err != nil {
			fmt.Fprintln(&all, err)
		}
	}
	return all.String()
}

// Evict takes a pod from its node as a drain does: by the API, with its grace.
func (k *Kubelet) Evict(tb testing.TB, name string) {
	tb.Helper()
	if err := k.in(k.namespace).Delete(tb.Context(), name, metav1.DeleteOptions{}); err != nil {
		tb.Fatalf("evicting the pod %s: %v", name, err)
	}
}

// OutOfMemory kills a pod as the kernel does when its container has used all of its
// memory.
func (k *Kubelet) OutOfMemory(tb testing.TB, name string) {
	tb.Helper()
	k.end(tb, name, func(p *kubeletPod) { p.reason = "OOMKilled" })
}

// LoseNode kills a pod and leaves its status, as the loss of its node does. The pod stays as
// it was last seen until Forget.
func (k *Kubelet) LoseNode(tb testing.TB, name string) {
	tb.Helper()
	k.end(tb, name, func(p *kubeletPod) { p.lost = true })
	// The control plane marks the pods of a node that does not answer, with no reason.
	mark := `{"status":{"conditions":[{"type":"Ready","status":"False"}]}}`
	if _, err := k.in(k.namespace).Patch(tb.Context(), name, types.StrategicMergePatchType, []byte(mark), metav1.PatchOptions{}, "status"); err != nil {
		tb.Fatalf("marking the pod %s: %v", name, err)
	}
}

// Forget removes the object of a pod whose node is lost, as the control plane does once
// the node was removed.
func (k *Kubelet) Forget(tb testing.TB, name string) {
	tb.Helper()
	if err := k.in(k.namespace).Delete(tb.Context(), name, metav1.DeleteOptions{GracePeriodSeconds: new(int64)}); err != nil {
		tb.Fatalf("removing the pod %s: %v", name, err)
	}
}

func (k *Kubelet) end(tb testing.TB, name string, how func(*kubeletPod)) {
	tb.Helper()
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, p := range k.live {
		if p.pod.Name == name {
			how(p)
			p.kill()
			return
		}
	}
	tb.Fatalf("the pod %s does not run", name)
}

// follow starts and ends pods as the API server tells of them.
func (k *Kubelet) follow(ctx context.Context, ready chan<- error) {
	for ctx.Err() == nil {
		w, err := k.in(k.namespace).Watch(ctx, metav1.ListOptions{FieldSelector: fields.Everything().String()})
		select {
		case ready <- err:
		default:
		}
		if err != nil {
			continue // the server restarts, or the test has ended
		}
		for e := range w.ResultChan() {
			if pod, ok := e.Object.(*corev1.Pod); ok && e.Type != watch.Deleted {
				k.sync(ctx, pod)
			}
		}
	}
}

// sync does for one pod what its newest version asks for.
func (k *Kubelet) sync(ctx context.Context, pod *corev1.Pod) {
	k.mu.Lock()
	p, full := k.live[pod.UID], k.full
	k.mu.Unlock()
	if full == "" && len(pod.Spec.NodeSelector) > 0 {
		full = "0/1 nodes are available: 1 node(s) didn't match Pod's node affinity/selector."
	}
	over := pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed
	switch {
	case p != nil && !pod.DeletionTimestamp.IsZero():
		grace := time.Duration(*pod.DeletionGracePeriodSeconds) * time.Second
		k.work.Go(func() { p.end(grace) })
	case p == nil && !pod.DeletionTimestamp.IsZero() && pod.Status.Phase == corev1.PodPending && pod.Spec.NodeName != "":
		k.remove(ctx, pod) // none of its containers was started
	case p == nil && pod.DeletionTimestamp.IsZero() && !over && full != "":
		k.update(ctx, pod, func(s *corev1.PodStatus) {
			s.Conditions = []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: corev1.PodReasonUnschedulable, Message: full}}
		})
	case p == nil && pod.DeletionTimestamp.IsZero() && !over && pod.Spec.NodeName == "":
		if err := k.start(ctx, pod); err != nil {
			k.update(ctx, pod, func(s *corev1.PodStatus) {
				s.Phase, s.Reason, s.Message = corev1.PodFailed, "KubeletFailed", err.Error()
			})
		}
	}
}

// start binds a pod to the node and starts its container.
func (k *Kubelet) start(ctx context.Context, pod *corev1.Pod) error {
	binding := &corev1.Binding{
		ObjectMeta: metav1.ObjectMeta{Namespace: pod.Namespace, Name: pod.Name, UID: pod.UID},
		Target:     corev1.ObjectReference{Kind: "Node", Name: NodeName},
	}
	if err := k.in(pod.Namespace).Bind(ctx, binding, metav1.CreateOptions{}); err != nil {
		return err
	}
	c := pod.Spec.Containers[0]
	k.mu.Lock()
	answer := k.answer
	k.mu.Unlock()
	program, ok := k.programs[c.Image]
	if !ok {
		k.update(ctx, pod, func(s *corev1.PodStatus) {
			s.ContainerStatuses = []corev1.ContainerStatus{{Name: c.Name, State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{
				Reason: "ImagePullBackOff", Message: fmt.Sprintf("Back-off pulling image %q: ErrImagePull: %s", c.Image, answer),
			}}}}
		})
		return nil
	}
	dir := filepath.Join(k.dir, pod.Name)
	mounts, err := k.mount(ctx, pod, dir)
	if err != nil {
		return err
	}
	log, err := os.OpenFile(filepath.Join(dir, "log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer log.Close()
	command := exec.Command(program, c.Args...)
	command.Stdout, command.Stderr, command.Dir = log, log, dir
	command.Env = []string{"PATH=" + filepath.Dir(program) + ":" + os.Getenv("PATH")}
	for _, e := range c.Env {
		if e.Name != agent.EnvSurroundings { // here they would be the whole machine
			command.Env = append(command.Env, e.Name+"="+moved(e.Value, mounts))
		}
	}
	command.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	p := &kubeletPod{pod: pod, dir: dir, command: command, ended: make(chan struct{})}
	if err := command.Start(); err != nil {
		return err
	}
	k.mu.Lock()
	k.live[pod.UID] = p
	k.seen++
	k.mu.Unlock()
	k.update(ctx, pod, func(s *corev1.PodStatus) {
		s.Phase = corev1.PodRunning
		s.ContainerStatuses = []corev1.ContainerStatus{{Name: c.Name, Started: new(true), Ready: true, State: corev1.ContainerState{
			Running: &corev1.ContainerStateRunning{StartedAt: metav1.Now()},
		}}}
	})
	// Only now: it may have ended, and an API server takes no other phase after the last one.
	k.work.Go(func() { k.reap(ctx, p) })
	return nil
}

// mount makes the volumes of a pod, and returns where each directory of its container
// is.
func (k *Kubelet) mount(ctx context.Context, pod *corev1.Pod, dir string) (map[string]string, error) {
	at := map[string]string{}
	for _, v := range pod.Spec.Volumes {
		if v.HostPath != nil {
			at[v.Name] = v.HostPath.Path
			continue
		}
		at[v.Name] = filepath.Join(dir, v.Name)
		if err := os.MkdirAll(at[v.Name], 0o700); err != nil {
			return nil, err
		}
		if v.Projected == nil {
			continue
		}
		for _, s := range v.Projected.Sources {
			t := s.ServiceAccountToken
			if t == nil {
				continue
			}
			token, err := k.token(ctx, pod, t.Audience, *t.ExpirationSeconds)
			if err == nil {
				err = os.WriteFile(filepath.Join(at[v.Name], t.Path), []byte(token), 0o400)
			}
			if err != nil {
				return nil, err
			}
		}
	}
	mounts := map[string]string{}
	for _, m := range pod.Spec.Containers[0].VolumeMounts {
		mounts[m.MountPath] = at[m.Name]
	}
	return mounts, nil
}

// token has the API server issue a token that is bound to a pod.
func (k *Kubelet) token(ctx context.Context, pod *corev1.Pod, audience string, seconds int64) (string, error) {
	issued, err := k.set.CoreV1().ServiceAccounts(pod.Namespace).CreateToken(ctx, pod.Spec.ServiceAccountName, &authnv1.TokenRequest{
		Spec: authnv1.TokenRequestSpec{
			Audiences: []string{audience}, ExpirationSeconds: &seconds,
			BoundObjectRef: &authnv1.BoundObjectReference{APIVersion: "v1", Kind: "Pod", Name: pod.Name, UID: pod.UID},
		},
	}, metav1.CreateOptions{})
	if err != nil {
		return "", err
	}
	return issued.Status.Token, nil
}

// moved replaces the directories of a container in a value by those of this machine.
func moved(value string, mounts map[string]string) string {
	for inside, here := range mounts {
		if value == inside || strings.HasPrefix(value, inside+"/") {
			return here + strings.TrimPrefix(value, inside)
		}
	}
	return value
}

// reap waits for the end of a container and tells of it.
func (k *Kubelet) reap(ctx context.Context, p *kubeletPod) {
	_ = p.command.Wait() // its exit code is what matters
	p.killRest()
	k.mu.Lock()
	delete(k.live, p.pod.UID)
	lost, reason := p.lost, p.reason
	k.mu.Unlock()
	close(p.ended)
	if lost {
		return
	}
	code := p.command.ProcessState.ExitCode()
	if code < 0 {
		code = 128 + int(syscall.SIGKILL)
	}
	end := &corev1.ContainerStateTerminated{ExitCode: int32(code), Reason: reason, FinishedAt: metav1.Now()}
	phase := corev1.PodFailed
	if code == 0 {
		phase = corev1.PodSucceeded
	}
	switch {
	case end.Reason != "":
	case code == 0:
		end.Reason = "Completed"
	default:
		end.Reason = "Error"
	}
	deleted := k.update(ctx, p.pod, func(s *corev1.PodStatus) {
		s.Phase = phase
		s.ContainerStatuses = []corev1.ContainerStatus{{Name: p.pod.Spec.Containers[0].Name, State: corev1.ContainerState{Terminated: end}}}
	})
	if deleted {
		k.remove(ctx, p.pod)
	}
}

// remove says that nothing of a pod is left, which is being deleted.
func (k *Kubelet) remove(ctx context.Context, pod *corev1.Pod) {
	_ = k.in(pod.Namespace).Delete(ctx, pod.Name, metav1.DeleteOptions{GracePeriodSeconds: new(int64), Preconditions: &metav1.Preconditions{UID: &pod.UID}})
}

// update changes the status of a pod, and reports whether the pod is being deleted.
func (k *Kubelet) update(ctx context.Context, pod *corev1.Pod, change func(*corev1.PodStatus)) (deleted bool) {
	for ctx.Err() == nil {
		now, err := k.in(pod.Namespace).Get(ctx, pod.Name, metav1.GetOptions{})
		if err != nil || now.UID != pod.UID {
			return false
		}
		change(&now.Status)
		if _, err := k.in(pod.Namespace).UpdateStatus(ctx, now, metav1.UpdateOptions{}); err == nil {
			return !now.DeletionTimestamp.IsZero()
		}
	}
	return false
}

// end ends a container: SIGTERM, its grace, SIGKILL.
func (p *kubeletPod) end(grace time.Duration) {
	_ = p.command.Process.Signal(syscall.SIGTERM)
	select {
	case <-p.ended:
	case <-time.After(grace):
		p.kill()
	}
}

// kill kills every process of a container at once.
func (p *kubeletPod) kill() {
	_ = p.command.Process.Kill()
	p.killRest()
}

// killRest kills the supervisors that the container started: in a container they die with
// its first process.
func (p *kubeletPod) killRest() {
	for {
		left := 0
		for _, q := range processes() {
			if len(q.Args) > 2 && q.Args[1] == "supervise" && strings.HasPrefix(q.Args[2], p.dir+"/") {
				left++
				if err := syscall.Kill(q.PID, syscall.SIGKILL); errors.Is(err, syscall.ESRCH) {
					left--
				}
			}
		}
		if left == 0 {
			return
		}
	}
}
