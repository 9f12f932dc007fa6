package pods

import (
	"encoding/json"
	"errors"
	"fmt"
	"path"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/strategicpatch"

	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/runner"
	"github.com/terrier-iac/terrier/internal/stack"
)

// templateField is where a stack has its template, for messages.
const templateField = "spec.runnerPodTemplate"

// patched is a pod with a strategic merge patch, as `kubectl patch` merges it: what the
// patch says replaces what the pod has, a map or a list with keys is merged.
func patched(pod *corev1.Pod, patch json.RawMessage) (*corev1.Pod, error) {
	if len(patch) == 0 {
		return pod, nil
	}
	if err := checkTemplate(patch); err != nil {
		return nil, fault.New(fault.Invalid, "PodTemplateInvalid", err)
	}
	before, err := json.Marshal(pod)
	if err != nil {
		return nil, err
	}
	merged, err := strategicpatch.StrategicMergePatch(before, patch, corev1.Pod{})
	if err != nil {
		return nil, fault.New(fault.Invalid, "PodTemplateInvalid", fmt.Errorf("%s: %w", templateField, err))
	}
	var out corev1.Pod
	if err := json.Unmarshal(merged, &out); err != nil {
		return nil, fault.New(fault.Invalid, "PodTemplateInvalid", fmt.Errorf("%s: %w", templateField, err))
	}
	return &out, nil
}

// checkTemplate names what a template must leave alone: the volumes that a run lives by.
// Whether a pod may be privileged, or see the files of its node, is for the Pod Security
// of the namespace to say.
func checkTemplate(patch json.RawMessage) error {
	var t corev1.PodTemplateSpec
	if err := json.Unmarshal(patch, &t); err != nil {
		return fmt.Errorf("%s: %w", templateField, err)
	}
	if len(t.Spec.Containers) != 1 || t.Spec.Containers[0].Name != stack.PodContainer {
		return errors.New(templateField + " has containers beside that of the run")
	}
	for i, v := range t.Spec.Volumes {
		if strings.HasPrefix(v.Name, reservedVolumes) {
			return fmt.Errorf("%s.spec.volumes[%d].name: %q begins with %s, as the volumes of every run do: choose another name", templateField, i, v.Name, reservedVolumes)
		}
	}
	for kind, containers := range map[string][]corev1.Container{"containers": t.Spec.Containers, "initContainers": t.Spec.InitContainers} {
		for i, c := range containers {
			for j, m := range c.VolumeMounts {
				if strings.HasPrefix(m.Name, reservedVolumes) {
					return fmt.Errorf("%s.spec.%s[%d].volumeMounts[%d].name: %s is a volume of the run itself, which no template mounts", templateField, kind, i, j, m.Name)
				}
			}
		}
	}
	for i, m := range t.Spec.Containers[0].VolumeMounts {
		for _, ours := range append(runner.ReservedPaths(), dirTerrier) {
			if meet(path.Clean(m.MountPath), ours) {
				return fmt.Errorf("%s.spec.volumeMounts[%d].mountPath: %s is at, above or below %s, which the run needs for itself: choose another directory", templateField, i, m.MountPath, ours)
			}
		}
	}
	return nil
}

// meet reports whether one of two directories is the other one, or below it.
func meet(p, q string) bool {
	below := func(p, dir string) bool { return strings.HasPrefix(p+"/", strings.TrimSuffix(dir, "/")+"/") }
	return below(p, q) || below(q, p)
}
