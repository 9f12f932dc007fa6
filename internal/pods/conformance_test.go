package pods_test

import (
	"log/slog"
	"path/filepath"
	"testing"

	"github.com/terrier-iac/terrier/internal/engine"
	"github.com/terrier-iac/terrier/internal/pods/podstest"
	"github.com/terrier-iac/terrier/internal/runner"
	"github.com/terrier-iac/terrier/internal/runner/runnertest"
	"github.com/terrier-iac/terrier/internal/testkit"
)

// Pods keep the contract of a runner: those of a simulated kubelet on a real API server.
// The tests of test/cluster have those of a real node.
func TestConformance(t *testing.T) {
	c := testkit.Kube(t)
	bin := filepath.Join(testkit.Repository(t), "bin")
	k := testkit.StartKubelet(t, c, map[string]string{"terrier-runner": filepath.Join(bin, "terrier-runner")})
	t.Cleanup(func() {
		if t.Failed() {
			t.Log(k.Log())
		}
	})
	site := podstest.Site{API: c.Config, Namespace: c.Namespace, Image: "terrier-runner", Address: "127.0.0.1", Log: slog.New(slog.DiscardHandler)}
	runnertest.Run(t, runnertest.Fixture{
		New:      func(t testing.TB) runnertest.Runner { return site.Open(t) },
		Registry: podstest.Reach, Identity: podstest.ReachIssuer,
		Engine: engine.Engine{Path: filepath.Join(bin, "tofu"), Name: "tofu", Version: "1.12.6"},
		Mirror: filepath.Join(bin, "mirror"),
		Adapt: func(j *runner.Job) {
			j.Name, j.Pod = c.Namespace+"/net", &runner.Pod{Namespace: c.Namespace}
		},
		Fresh: true, Parallel: true,
	})
}
