package infra

import (
	"encoding/json"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/terrier-iac/terrier/api/infra/v1alpha2"
	"github.com/terrier-iac/terrier/internal/dialect"
	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/stack"
	"github.com/terrier-iac/terrier/internal/workdir"
)

// podField is where the settings of a runner pod are, for messages.
const podField = "spec.runnerPodTemplate.spec."

// runnerPod reads the settings of a runner pod: those that a process can honour, too,
// into fields of their own, and all but the environment as a patch of the pod.
func runnerPod(p *stack.Configuration, s *v1alpha2.TerraformSpec) error {
	if g := s.RunnerTerminationGracePeriodSeconds; g != nil && *g > 0 {
		p.Grace = time.Duration(min(*g, int64(dialect.Never/time.Second))) * time.Second
	}
	t := s.RunnerPodTemplate.Spec
	for i, e := range t.Env {
		out, err := envVar(e)
		if err != nil {
			return fault.New(fault.Of(err), string(stack.SpecInvalid), fmt.Errorf("%senv[%d]: %w", podField, i, err))
		}
		p.Env = append(p.Env, out)
	}
	for i, e := range t.EnvFrom {
		out := stack.EnvFrom{Prefix: e.Prefix}
		switch {
		case e.SecretRef != nil:
			out.Kind, out.Name, out.Optional = "Secret", e.SecretRef.Name, isTrue(e.SecretRef.Optional)
		case e.ConfigMapRef != nil:
			out.Kind, out.Name, out.Optional = "ConfigMap", e.ConfigMapRef.Name, isTrue(e.ConfigMapRef.Optional)
		default:
			return invalid(fmt.Sprintf("%senvFrom[%d]", podField, i), "has neither a secretRef nor a configMapRef")
		}
		p.EnvFrom = append(p.EnvFrom, out)
	}
	if r := t.Resources; r != nil {
		p.Memory = max(0, r.Limits.Memory().Value())
		p.CPUs = int(max(0, r.Limits.Cpu().Value())) // rounded up
	}
	var err error
	p.Pod, err = podOf(s)
	return err
}

// defaultAccount is the default of spec.serviceAccountName, which stands for the
// choice of the platform.
const defaultAccount = "tf-runner"

// account is the ServiceAccount that s names; empty if that is the default.
func account(s *v1alpha2.TerraformSpec) string {
	if s.ServiceAccountName == defaultAccount {
		return ""
	}
	return s.ServiceAccountName
}

// podOf is what s says about the pod itself. The controller resolves env and envFrom,
// and a run gets both from the controller: a pod that had them would hold variables
// that no check has passed.
func podOf(s *v1alpha2.TerraformSpec) (stack.Pod, error) {
	out := stack.Pod{Account: account(s)}
	t := s.RunnerPodTemplate
	t.Spec.Env, t.Spec.EnvFrom = nil, nil
	if equality.Semantic.DeepEqual(t, v1alpha2.RunnerPodTemplate{}) {
		return out, nil
	}
	container := corev1.Container{
		Name: stack.PodContainer, Image: t.Spec.Image, VolumeMounts: t.Spec.VolumeMounts, SecurityContext: t.Spec.SecurityContext,
	}
	if t.Spec.Resources != nil {
		container.Resources = *t.Spec.Resources
	}
	patch := corev1.PodTemplateSpec{
		ObjectMeta: metav1.ObjectMeta{Labels: t.Metadata.Labels, Annotations: t.Metadata.Annotations},
		Spec: corev1.PodSpec{
			Containers: []corev1.Container{container}, InitContainers: t.Spec.InitContainers, Volumes: t.Spec.Volumes,
			NodeSelector: t.Spec.NodeSelector, Affinity: t.Spec.Affinity, Tolerations: t.Spec.Tolerations,
			HostAliases: t.Spec.HostAliases, PriorityClassName: t.Spec.PriorityClassName,
		},
	}
	var err error
	out.Template, err = json.Marshal(patch)
	return out, err
}

// envVar reads one environment variable. Names that control the engine are
// refused here, before anything is read for them. Which proxies a stack may set,
// the operator decides.
func envVar(e corev1.EnvVar) (stack.EnvVar, error) {
	out := stack.EnvVar{Name: e.Name, Value: e.Value}
	if err := workdir.CheckEnvironment(e.Name); err != nil && !workdir.IsProxy(e.Name) {
		return out, err
	}
	from := e.ValueFrom
	switch {
	case from == nil:
		return out, nil
	case e.Value != "":
		return out, fault.New(fault.Invalid, "", fmt.Errorf("%s has a value and a valueFrom", e.Name))
	case from.SecretKeyRef != nil:
		r := from.SecretKeyRef
		out.Secret = &stack.KeyRef{Name: r.Name, Key: r.Key, Optional: isTrue(r.Optional)}
	case from.ConfigMapKeyRef != nil:
		r := from.ConfigMapKeyRef
		out.Config = &stack.KeyRef{Name: r.Name, Key: r.Key, Optional: isTrue(r.Optional)}
	case from.FieldRef != nil && stack.IsField(from.FieldRef.FieldPath):
		out.Field = from.FieldRef.FieldPath
	case from.FieldRef != nil:
		return out, fault.New(fault.Invalid, "", fmt.Errorf("%s: valueFrom.fieldRef.fieldPath is %.80q: a run has %s", e.Name, from.FieldRef.FieldPath, stack.Fields))
	default:
		return out, fault.New(fault.Invalid, "", fmt.Errorf("%s: valueFrom needs a secretKeyRef, a configMapKeyRef or a fieldRef", e.Name))
	}
	return out, nil
}

func isTrue(b *bool) bool { return b != nil && *b }
