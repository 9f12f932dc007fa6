package cluster

import (
	"encoding/json"
	"log/slog"
	"os"
	"path/filepath"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/terrier-iac/terrier/internal/engine"
	"github.com/terrier-iac/terrier/internal/pods/podstest"
	"github.com/terrier-iac/terrier/internal/runner"
	"github.com/terrier-iac/terrier/internal/runner/runnertest"
	"github.com/terrier-iac/terrier/internal/stack"
	"github.com/terrier-iac/terrier/internal/testkit"
)

// Pods of a real node keep the contract of a runner. They have a directory of the node for
// what the suite puts there, and reach the servers of the suite through the network of pods.
func TestRunsKeepTheContract(t *testing.T) {
	t.Parallel()
	c := Open(t)
	shared := t.TempDir()
	for _, dir := range []string{filepath.Dir(shared), shared} {
		if err := os.Chmod(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	template, err := json.Marshal(corev1.PodTemplateSpec{Spec: corev1.PodSpec{
		Volumes:    []corev1.Volume{{Name: "shared", VolumeSource: corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: shared}}}},
		Containers: []corev1.Container{{Name: stack.PodContainer, VolumeMounts: []corev1.VolumeMount{{Name: "shared", MountPath: shared}}}},
	}})
	if err != nil {
		t.Fatal(err)
	}
	site := podstest.Site{API: c.Config, Namespace: c.Namespace, Image: PushImage(t, "terrier-runner"), Address: NodeAddress, Log: slog.New(slog.NewTextHandler(t.Output(), nil))}
	runnertest.Run(t, runnertest.Fixture{
		New:      func(t testing.TB) runnertest.Runner { return site.Open(t) },
		Registry: podstest.Reach, Identity: podstest.ReachIssuer,
		Engine: engine.Engine{Name: "tofu", Version: "1.12.6"}, // of the image
		Mirror: filepath.Join(testkit.Repository(t), "bin", "mirror"),
		Adapt: func(j *runner.Job) {
			j.Name, j.Pod = c.Namespace+"/net", &runner.Pod{Namespace: c.Namespace, Template: template}
			j.Sandbox.Network = "host" // that of the pod
		},
		Fresh: true, Shared: shared, Address: NodeAddress, Parallel: true,
	})
}
