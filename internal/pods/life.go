package pods

import (
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/runner"
	"github.com/terrier-iac/terrier/internal/runner/remote"
	"github.com/terrier-iac/terrier/internal/stack"
)

// Reasons that the kubelet and the scheduler write.
const (
	reasonOOMKilled        = "OOMKilled"
	reasonDeadlineExceeded = "DeadlineExceeded"
	reasonEvicted          = "Evicted"
)

// longestMessage bounds a sentence of another program in bytes.
const longestMessage = 1024

// lifeOf says what the status of a pod means for its run. The run is dead only when its
// container is reported to have ended: a pod that is being deleted, or whose node does
// not answer, may go on.
//
// The image ours is that of the operator.
func lifeOf(pod *corev1.Pod, ours string, now time.Time) remote.Life {
	c := containerOf(pod, stack.PodContainer)
	over := pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed
	switch {
	case c != nil && c.State.Terminated != nil:
		return ended(pod, c.State.Terminated)
	case c != nil && c.State.Running != nil:
		return remote.Life{State: remote.Running, Since: c.State.Running.StartedAt.Time, Message: silence(pod, now)}
	case over:
		return neverBegan(pod)
	case pod.Status.Phase == corev1.PodRunning:
		return remote.Life{State: remote.Running, Since: pod.CreationTimestamp.Time, Message: silence(pod, now)}
	}
	l := waits(pod, ours)
	if l.Message == "" {
		l.Message = silence(pod, now)
	}
	if c := unscheduled(pod); c != nil && c.Reason == corev1.PodReasonUnschedulable {
		l.Lacks = remote.Room
		if at := c.LastTransitionTime.Time; at.After(l.Since) {
			l.Since = at
		}
	}
	return l
}

// unscheduled is why a pod has no node yet, nil if it has one or was not looked at.
func unscheduled(pod *corev1.Pod) *corev1.PodCondition {
	for i := range pod.Status.Conditions {
		if c := &pod.Status.Conditions[i]; c.Type == corev1.PodScheduled && c.Status == corev1.ConditionFalse {
			return c
		}
	}
	return nil
}

// lateEnd is how long after its grace a pod may take to be reported as ended.
const lateEnd = time.Minute

// silence says that the node of a pod does not answer, and what makes it certain that
// the run is dead; nothing if the node seems to be well.
func silence(pod *corev1.Pod, now time.Time) string {
	node := "its node"
	if pod.Spec.NodeName != "" {
		node = "the node " + pod.Spec.NodeName
	}
	var why string
	switch d := pod.DeletionTimestamp; {
	case markedNotReady(pod):
		why = fmt.Sprintf("%s does not answer, and the pod %s may go on there", node, pod.Name)
	case d != nil && now.After(d.Add(lateEnd)):
		why = fmt.Sprintf("the pod %s had to end by %s, and %s did not report its end", pod.Name, d.UTC().Format(time.RFC3339), node)
	default:
		return ""
	}
	return why + ". Once the machine is certainly off, delete its Node, or taint that with node.kubernetes.io/out-of-service=nodeshutdown:NoExecute. Do not delete the pod by force: a second run could begin beside it"
}

// markedNotReady reports whether the control plane has marked the pod because its node
// does not answer. A kubelet that says that a pod is not ready gives a reason.
func markedNotReady(pod *corev1.Pod) bool {
	for _, c := range pod.Status.Conditions {
		if c.Type == corev1.PodReady {
			return c.Status == corev1.ConditionFalse && c.Reason == ""
		}
	}
	return false
}

func containerOf(pod *corev1.Pod, name string) *corev1.ContainerStatus {
	for i := range pod.Status.ContainerStatuses {
		if c := &pod.Status.ContainerStatuses[i]; c.Name == name {
			return c
		}
	}
	return nil
}

// ended says how the container of a run ended.
func ended(pod *corev1.Pod, t *corev1.ContainerStateTerminated) remote.Life {
	l := remote.Life{State: remote.Ended, Reason: t.Reason, Exit: int(t.ExitCode), Since: t.FinishedAt.Time}
	disrupted := disruption(pod)
	switch {
	case t.Reason == reasonOOMKilled:
		l.Reason = runner.OutOfMemory
		l.Message = fmt.Sprintf("the pod reached its memory limit%s and was killed by the kernel", limitOf(pod))
	case pod.Status.Reason != "":
		l.Reason = pod.Status.Reason
		l.Message = endedBy(pod.Status.Reason) + said(pod.Status.Message)
	case disrupted != nil:
		l.Reason = disrupted.Reason
		l.Message = fmt.Sprintf("the pod was taken from its node (%s)", disrupted.Reason) + said(disrupted.Message)
	case t.ExitCode == 0 && t.Signal == 0:
		l.Message = "the pod has ended"
	default:
		l.Message = fmt.Sprintf("the pod ended with exit code %d", t.ExitCode) + said(t.Message)
	}
	return l
}

func endedBy(reason string) string {
	switch reason {
	case reasonEvicted:
		return "the pod was evicted from its node"
	case reasonDeadlineExceeded:
		return "the pod reached its deadline"
	default:
		return fmt.Sprintf("the pod was ended (%s)", reason)
	}
}

// neverBegan says why a pod is over whose container did not begin.
func neverBegan(pod *corev1.Pod) remote.Life {
	l := remote.Life{State: remote.Ended, Reason: pod.Status.Reason, Exit: 1, Since: lastChange(pod)}
	for _, c := range pod.Status.InitContainerStatuses {
		if t := c.State.Terminated; t != nil && t.ExitCode != 0 {
			l.Reason, l.Exit = "InitContainerFailed", int(t.ExitCode)
			l.Message = fmt.Sprintf("the init container %s ended with exit code %d", c.Name, t.ExitCode) + said(t.Message)
			return l
		}
	}
	l.Message = "the pod ended before the run began"
	if pod.Status.Reason != "" {
		l.Message += fmt.Sprintf(" (%s)", pod.Status.Reason)
	}
	l.Message += said(pod.Status.Message)
	return l
}

// waits says what a pod waits for; nothing in the moment in which it is prepared.
func waits(pod *corev1.Pod, ours string) remote.Life {
	l := remote.Life{State: remote.Pending, Since: pod.CreationTimestamp.Time}
	if c := unscheduled(pod); c != nil {
		l.Reason, l.Message = c.Reason, fmt.Sprintf("the pod %s waits for a node", pod.Name)+said(c.Message)
		return l
	}
	for _, list := range [][]corev1.ContainerStatus{pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses} {
		for _, c := range list {
			w := c.State.Waiting
			if w == nil || w.Reason == "" || w.Reason == "ContainerCreating" || w.Reason == "PodInitializing" {
				continue
			}
			l.Reason, l.Message = w.Reason, fmt.Sprintf("the pod %s cannot start (%s)", pod.Name, w.Reason)+said(w.Message)
			if noImage[w.Reason] {
				l.Lacks, l.Message = imageWait(pod, imageOf(pod, c.Name), ours, w)
			}
			return l
		}
	}
	return l
}

// imageOf is the image of a container by its name.
func imageOf(pod *corev1.Pod, name string) string {
	for _, list := range [][]corev1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
		for _, c := range list {
			if c.Name == name {
				return c.Image
			}
		}
	}
	return ""
}

// disruption is why something else ended the pod, nil if nothing did.
func disruption(pod *corev1.Pod) *corev1.PodCondition {
	for i := range pod.Status.Conditions {
		if c := &pod.Status.Conditions[i]; c.Type == corev1.DisruptionTarget && c.Status == corev1.ConditionTrue {
			return c
		}
	}
	return nil
}

// limitOf is the memory limit of the run's container, for messages.
func limitOf(pod *corev1.Pod) string {
	for _, c := range pod.Spec.Containers {
		if m := c.Resources.Limits.Memory(); c.Name == stack.PodContainer && !m.IsZero() {
			return fmt.Sprintf(" of %d MiB", m.Value()>>20)
		}
	}
	return ""
}

func lastChange(pod *corev1.Pod) (last time.Time) {
	for _, c := range pod.Status.Conditions {
		if c.LastTransitionTime.After(last) {
			last = c.LastTransitionTime.Time
		}
	}
	return last
}

// said is the message of another program behind our own.
func said(message string) string {
	if message = strings.TrimSpace(message); message == "" {
		return ""
	}
	return ": " + fault.Shorten(strings.Join(strings.Fields(message), " "), longestMessage)
}
