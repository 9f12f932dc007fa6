package cluster

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
)

// restricted makes a pod one that the Pod Security standard restricted admits, with a
// read-only root and a volume at /tmp.
func restricted(p *corev1.Pod) {
	p.Spec.SecurityContext = &corev1.PodSecurityContext{
		RunAsNonRoot: new(true), SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault},
	}
	p.Spec.Volumes = []corev1.Volume{{Name: "tmp", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}}}
	c := &p.Spec.Containers[0]
	c.SecurityContext = &corev1.SecurityContext{
		AllowPrivilegeEscalation: new(false), ReadOnlyRootFilesystem: new(true),
		Capabilities: &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}},
	}
	c.VolumeMounts = []corev1.VolumeMount{{Name: "tmp", MountPath: "/tmp"}}
}

func openRestricted(t *testing.T) *Cluster {
	return Open(t, "pod-security.kubernetes.io/enforce", "restricted")
}

// printed runs a pod to its end, and returns what it printed.
func printed(t *testing.T, c *Cluster, name, image string, args []string, change ...func(*corev1.Pod)) string {
	t.Helper()
	c.Pod(t, name, image, args, append([]func(*corev1.Pod){restricted}, change...)...)
	p := c.AwaitPod(t, name, "ended", Ended)
	text := c.Logs(t, name)
	if p.Status.Phase != corev1.PodSucceeded {
		t.Errorf("pod %s failed: %s", name, text)
	}
	return text
}

func TestImagesRunUnderPodSecurityRestricted(t *testing.T) {
	t.Parallel()
	c := openRestricted(t)
	runner := PushImage(t, "terrier-runner")
	for name, run := range map[string]struct {
		image   string
		command []string
		want    string
	}{
		"terrier": {PushImage(t, "terrier"), []string{"/usr/local/bin/terrier", "version"}, "v"},
		"runner":  {runner, []string{"/usr/local/bin/terrier-runner", "version"}, "terrier-runner v"},
		"engine":  {runner, []string{"/usr/local/bin/tofu", "version"}, "OpenTofu v1."},
		"git":     {runner, []string{"/usr/bin/git", "--version"}, "git version 2."},
		"tmp":     {runner, []string{"/usr/bin/sh", "-c", "echo x >/tmp/x && echo written"}, "written"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := printed(t, c, name, run.image, nil, func(p *corev1.Pod) { p.Spec.Containers[0].Command = run.command })
			if !strings.Contains(got, run.want) {
				t.Errorf("%q printed %q, want %q", run.command, got, run.want)
			}
		})
	}
}

// docs/images.md says which level of isolation runs can have in such a pod.
func TestIsolationUnderPodSecurityRestricted(t *testing.T) {
	t.Parallel()
	// The image of the probe names no user.
	got := printed(t, openRestricted(t), "isolation", probe(t), []string{"isolation"}, func(p *corev1.Pod) {
		p.Spec.Containers[0].SecurityContext.RunAsUser = new(int64(65532))
	})
	want := "level kernel "
	if strings.Contains(got, "no Landlock") || strings.Contains(got, "knows no ports") {
		want = "level basic " // the kernel of this machine is older
	}
	if !strings.HasPrefix(got, want) {
		t.Errorf("the sandbox has %q, want %q", got, want)
	}
}
