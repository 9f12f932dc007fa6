package infra

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/terrier-iac/terrier/api/infra/v1alpha2"
	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/input"
)

// unsupported is a field that is accepted and does not work yet, or not everywhere.
type unsupported struct {
	path   string // as in docs/compatibility.md
	set    func(*v1alpha2.TerraformSpec) bool
	refuse string // why a stack that sets it is not run; empty if it is
	pods   bool   // it works where runs are pods
}

// unsupportedFields lists what does not work yet, or only where runs are pods. A field is refused if ignoring
// it could touch the wrong things: another state, or a plan that needs a review.
func unsupportedFields() []unsupported {
	type spec = v1alpha2.TerraformSpec
	return []unsupported{
		{path: "spec.alwaysCleanupRunnerPod", set: func(s *spec) bool { return s.AlwaysCleanupRunnerPod != nil && !*s.AlwaysCleanupRunnerPod }},
		{path: "spec.branchPlanner", set: func(s *spec) bool { return s.BranchPlanner != nil }},
		{path: "spec.enterprise", set: func(s *spec) bool { return s.Enterprise != nil }},
		{path: "spec.runnerPodTemplate.metadata", pods: true, set: func(s *spec) bool {
			return len(s.RunnerPodTemplate.Metadata.Labels)+len(s.RunnerPodTemplate.Metadata.Annotations) > 0
		}},
		pod("affinity", func(s podSpec) bool { return s.Affinity != nil }),
		pod("hostAliases", func(s podSpec) bool { return len(s.HostAliases) > 0 }),
		pod("image", func(s podSpec) bool { return s.Image != "" }),
		pod("initContainers", func(s podSpec) bool { return len(s.InitContainers) > 0 }),
		pod("nodeSelector", func(s podSpec) bool { return len(s.NodeSelector) > 0 }),
		pod("priorityClassName", func(s podSpec) bool { return s.PriorityClassName != "" }),
		pod("securityContext", func(s podSpec) bool { return s.SecurityContext != nil }),
		pod("tolerations", func(s podSpec) bool { return len(s.Tolerations) > 0 }),
		pod("volumeMounts", func(s podSpec) bool { return len(s.VolumeMounts) > 0 }),
		pod("volumes", func(s podSpec) bool { return len(s.Volumes) > 0 }),
		{path: "spec.serviceAccountName", pods: true, set: func(s *spec) bool { return account(s) != "" && !namesVault(s) }},
		{path: "spec.vars[].valueFrom.fileKeyRef", set: anyVar(func(f *corev1.EnvVarSource) bool { return f.FileKeyRef != nil }), refuse: "a run has no volumes that it could be in"},
		{path: "spec.vars[].valueFrom.resourceFieldRef", set: anyVar(func(f *corev1.EnvVarSource) bool { return f.ResourceFieldRef != nil }), refuse: "a run has no container whose resources it could name"},
	}
}

// notYet returns the paths of the fields that s sets and that do not work yet,
// sorted. A field that holds its default is not set.
func notYet(s *v1alpha2.TerraformSpec) []string { return unsupportedIn(s, false) }

// onlyPods returns the same of the fields that work only where runs are pods.
func onlyPods(s *v1alpha2.TerraformSpec) []string { return unsupportedIn(s, true) }

func unsupportedIn(s *v1alpha2.TerraformSpec, pods bool) []string {
	var paths []string
	for _, f := range unsupportedFields() {
		if f.pods == pods && f.set(s) {
			paths = append(paths, f.path)
		}
	}
	return paths
}

// refused names the fields that keep s from being run.
func refused(s *v1alpha2.TerraformSpec) error {
	var why []string
	for _, f := range unsupportedFields() {
		if f.refuse != "" && f.set(s) {
			why = append(why, fmt.Sprintf("%s is not supported: %s", f.path, f.refuse))
		}
	}
	if len(why) == 0 {
		return nil
	}
	return fault.New(fault.Invalid, "NotSupported", fmt.Errorf("%s", strings.Join(why, "; ")))
}

// namesVault reports whether a stack reads secrets of a Vault, which it does as its
// ServiceAccount, also where runs are no pods.
func namesVault(s *v1alpha2.TerraformSpec) bool {
	text, err := json.Marshal(s)
	return err == nil && bytes.Contains(text, []byte(`"`+input.VaultScheme))
}

func anyVar(from func(*corev1.EnvVarSource) bool) func(*v1alpha2.TerraformSpec) bool {
	return func(s *v1alpha2.TerraformSpec) bool {
		for _, v := range s.Vars {
			if v.ValueFrom != nil && from(v.ValueFrom) {
				return true
			}
		}
		return false
	}
}

type podSpec = v1alpha2.RunnerPodSpec

// pod is a setting of the runner pod that works only where runs are pods.
func pod(field string, set func(podSpec) bool) unsupported {
	return unsupported{path: podField + field, pods: true, set: func(s *v1alpha2.TerraformSpec) bool { return set(s.RunnerPodTemplate.Spec) }}
}
