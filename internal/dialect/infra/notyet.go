package infra

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/terrier-iac/terrier/api/infra/v1alpha2"
	"github.com/terrier-iac/terrier/internal/fault"
)

// gap is a field that is accepted and does not work yet.
type gap struct {
	path   string // as in docs/compatibility.md
	set    func(*v1alpha2.TerraformSpec) bool
	refuse string // why a stack that sets it is not run; empty if it is
}

// gaps lists what does not work yet. A field is refused if passing over it
// could touch the wrong things: another state, or a plan that somebody was to
// be asked about.
func gaps() []gap {
	type spec = v1alpha2.TerraformSpec
	return []gap{
		{"spec.alwaysCleanupRunnerPod", func(s *spec) bool { return s.AlwaysCleanupRunnerPod != nil && !*s.AlwaysCleanupRunnerPod }, ""},
		{"spec.branchPlanner", func(s *spec) bool { return s.BranchPlanner != nil }, ""},
		{"spec.breakTheGlass", func(s *spec) bool { return s.BreakTheGlass }, ""},
		{"spec.cliConfigSecretRef", func(s *spec) bool { return s.CliConfigSecretRef != nil }, ""},
		{"spec.cloud", func(s *spec) bool { return s.Cloud != nil }, "without it another state would be used"},
		{"spec.enterprise", func(s *spec) bool { return s.Enterprise != nil }, ""},
		{"spec.runnerPodTemplate.metadata", func(s *spec) bool {
			return len(s.RunnerPodTemplate.Metadata.Labels)+len(s.RunnerPodTemplate.Metadata.Annotations) > 0
		}, ""},
		{"spec.serviceAccountName", func(s *spec) bool { return s.ServiceAccountName != "" && s.ServiceAccountName != "tf-runner" }, ""},
		{"spec.vars[].valueFrom.fileKeyRef", anyVar(func(f *corev1.EnvVarSource) bool { return f.FileKeyRef != nil }), "a run has no volumes that it could be in"},
		{"spec.vars[].valueFrom.resourceFieldRef", anyVar(func(f *corev1.EnvVarSource) bool { return f.ResourceFieldRef != nil }), "a run has no container whose resources it could name"},
	}
}

// NotYet returns the paths of the fields that s sets and that do not work yet,
// sorted. A field that holds its default is not set.
func NotYet(s *v1alpha2.TerraformSpec) []string {
	var paths []string
	for _, g := range gaps() {
		if g.set(s) {
			paths = append(paths, g.path)
		}
	}
	return paths
}

// refused names the fields that keep s from being run.
func refused(s *v1alpha2.TerraformSpec) error {
	var why []string
	for _, g := range gaps() {
		if g.refuse != "" && g.set(s) {
			why = append(why, fmt.Sprintf("%s is not supported: %s", g.path, g.refuse))
		}
	}
	if len(why) == 0 {
		return nil
	}
	return fault.New(fault.Invalid, "NotSupported", fmt.Errorf("%s", strings.Join(why, "; ")))
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

// templated reports whether t says anything.
func templated(t v1alpha2.RunnerPodTemplate) bool {
	m, s := t.Metadata, t.Spec
	return len(m.Labels)+len(m.Annotations) > 0 ||
		len(s.Env)+len(s.EnvFrom)+len(s.NodeSelector)+len(s.Tolerations) > 0 ||
		len(s.Volumes)+len(s.VolumeMounts)+len(s.InitContainers)+len(s.HostAliases) > 0 ||
		s.Image != "" || s.PriorityClassName != "" ||
		s.Affinity != nil || s.SecurityContext != nil || s.Resources != nil
}
