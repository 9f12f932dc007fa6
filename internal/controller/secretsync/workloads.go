package secretsync

import (
	"context"
	"fmt"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/terrier-iac/terrier/internal/externalsecret"
)

// Annotations of workloads and of external secrets.
const (
	// RestartAnnotation of a workload or of an ExternalSecret, with the value never, keeps
	// pods from being restarted.
	RestartAnnotation = "terrier.dev/restart"
	// RestartForAnnotation of a workload names Secrets, with commas between them, that it
	// is restarted for besides those that its pods refer to.
	RestartForAnnotation = "terrier.dev/restart-for"

	never = "never"
)

// workload is an object that makes pods, and makes them again if their template changes.
type workload struct {
	client.Object
	kind     string
	template *corev1.PodTemplateSpec
}

// workloads are those of a namespace, as they are in the cache.
func workloads(ctx context.Context, cached client.Reader, namespace string) ([]workload, error) {
	var deployments appsv1.DeploymentList
	var sets appsv1.StatefulSetList
	var daemons appsv1.DaemonSetList
	for _, list := range []client.ObjectList{&deployments, &sets, &daemons} {
		if err := cached.List(ctx, list, client.InNamespace(namespace)); err != nil {
			return nil, fmt.Errorf("listing the workloads of the namespace %s: %w", namespace, err)
		}
	}
	var all []workload
	for i := range deployments.Items {
		all = append(all, workload{&deployments.Items[i], "Deployment", &deployments.Items[i].Spec.Template})
	}
	for i := range sets.Items {
		all = append(all, workload{&sets.Items[i], "StatefulSet", &sets.Items[i].Spec.Template})
	}
	for i := range daemons.Items {
		all = append(all, workload{&daemons.Items[i], "DaemonSet", &daemons.Items[i].Spec.Template})
	}
	return all, nil
}

// secrets are the Secrets that the pods refer to.
func (w workload) secrets() []string {
	var all []string
	add := func(name string) {
		if name != "" && !slices.Contains(all, name) {
			all = append(all, name)
		}
	}
	pod := w.template.Spec
	for _, c := range slices.Concat(pod.InitContainers, pod.Containers) {
		for _, e := range c.Env {
			if e.ValueFrom != nil && e.ValueFrom.SecretKeyRef != nil {
				add(e.ValueFrom.SecretKeyRef.Name)
			}
		}
		for _, e := range c.EnvFrom {
			if e.SecretRef != nil {
				add(e.SecretRef.Name)
			}
		}
	}
	for _, v := range pod.Volumes {
		if v.Secret != nil {
			add(v.Secret.SecretName)
		}
		if v.Projected != nil {
			for _, s := range v.Projected.Sources {
				if s.Secret != nil {
					add(s.Secret.Name)
				}
			}
		}
	}
	return all
}

// restarts reports whether the workload is restarted for a Secret.
func (w workload) restarts(secret string) bool {
	if w.GetAnnotations()[RestartAnnotation] == never || !w.GetDeletionTimestamp().IsZero() {
		return false
	}
	return slices.Contains(w.secrets(), secret) || slices.Contains(words(w.GetAnnotations()[RestartForAnnotation]), secret)
}

// words are the parts of a list with commas between them.
func words(list string) []string {
	var all []string
	for word := range strings.SplitSeq(list, ",") {
		if word = strings.TrimSpace(word); word != "" {
			all = append(all, word)
		}
	}
	return all
}

// Slimmed are the kinds that Slim is for.
func Slimmed() []client.Object {
	return []client.Object{&appsv1.Deployment{}, &appsv1.StatefulSet{}, &appsv1.DaemonSet{}, &corev1.ServiceAccount{}}
}

// Slim drops from workloads and ServiceAccounts, before they are cached, what this package
// does not read.
func Slim(o any) (any, error) {
	switch o := o.(type) {
	case *appsv1.Deployment:
		return &appsv1.Deployment{ObjectMeta: slimMeta(o.ObjectMeta), Spec: appsv1.DeploymentSpec{Template: slimTemplate(o.Spec.Template)}}, nil
	case *appsv1.StatefulSet:
		return &appsv1.StatefulSet{ObjectMeta: slimMeta(o.ObjectMeta), Spec: appsv1.StatefulSetSpec{Template: slimTemplate(o.Spec.Template)}}, nil
	case *appsv1.DaemonSet:
		return &appsv1.DaemonSet{ObjectMeta: slimMeta(o.ObjectMeta), Spec: appsv1.DaemonSetSpec{Template: slimTemplate(o.Spec.Template)}}, nil
	case *corev1.ServiceAccount:
		return &corev1.ServiceAccount{ObjectMeta: slimMeta(o.ObjectMeta)}, nil
	}
	return o, nil
}

func slimMeta(m metav1.ObjectMeta) metav1.ObjectMeta {
	out := metav1.ObjectMeta{
		Namespace: m.Namespace, Name: m.Name, UID: m.UID, ResourceVersion: m.ResourceVersion, Generation: m.Generation,
		DeletionTimestamp: m.DeletionTimestamp, DeletionGracePeriodSeconds: m.DeletionGracePeriodSeconds, Finalizers: m.Finalizers,
	}
	for name, value := range m.Annotations {
		if strings.HasPrefix(name, "terrier.dev/") || strings.HasPrefix(name, "vault.hashicorp.com/") {
			out.Annotations = with(out.Annotations, map[string]string{name: value})
		}
	}
	return out
}

// slimTemplate keeps the references to Secrets, in one container.
func slimTemplate(t corev1.PodTemplateSpec) corev1.PodTemplateSpec {
	w := workload{template: &t}
	out := corev1.PodTemplateSpec{Spec: corev1.PodSpec{ServiceAccountName: t.Spec.ServiceAccountName}}
	for name, value := range t.Annotations {
		if strings.HasPrefix(name, strings.TrimSuffix(externalsecret.RestartName("x"), "x")) {
			out.Annotations = with(out.Annotations, map[string]string{name: value})
		}
	}
	c := corev1.Container{Name: "secrets"}
	for _, name := range w.secrets() {
		c.EnvFrom = append(c.EnvFrom, corev1.EnvFromSource{SecretRef: &corev1.SecretEnvSource{LocalObjectReference: corev1.LocalObjectReference{Name: name}}})
	}
	out.Spec.Containers = []corev1.Container{c}
	return out
}
