package app

import (
	"strings"
	"testing"

	"github.com/spf13/pflag"

	"github.com/terrier-iac/terrier/internal/app/flags"
)

// Dockerfiles are built where Jobs are, and where the operator has nothing else.
func TestBuildsAreChecked(t *testing.T) {
	const kit = "moby/buildkit@sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
	inPods := Options{Pods: &PodsConfig{As: runsAsPods}, Cluster: &ClusterConfig{Namespaces: []string{"team-a"}}}
	for name, tt := range map[string]struct {
		o    Options
		args []string
		want string
	}{
		"off":                    {Options{}, []string{"--image-build-image", "moby/buildkit"}, ""},
		"on":                     {inPods, []string{"--image-build-namespace", "builds", "--image-build-image", kit}, ""},
		"where runs are no pods": {Options{Pods: &PodsConfig{As: runsAsProcesses}}, []string{"--image-build-namespace", "builds", "--image-build-image", kit}, "needs --runs-as=pods: BuildKit runs as a Job of the cluster"},
		"no namespace":           {inPods, []string{"--image-build-namespace", "a/b", "--image-build-image", kit}, "is no name of a namespace"},
		"one with stacks":        {inPods, []string{"--image-build-namespace", "team-a", "--image-build-image", kit}, "team-a has stacks"},
		"no digest":              {inPods, []string{"--image-build-namespace", "builds", "--image-build-image", "moby/buildkit:rootless"}, "has no digest"},
		"no time":                {inPods, []string{"--image-build-namespace", "builds", "--image-build-image", kit, "--image-build-timeout", "1s"}, "--image-build-timeout"},
		"no resources":           {inPods, []string{"--image-build-namespace", "builds", "--image-build-image", kit, "--image-build-resources", "memory"}, "--image-build-resources"},
	} {
		t.Run(name, func(t *testing.T) {
			var c BuildsConfig
			set := pflag.NewFlagSet("", pflag.ContinueOnError)
			if err := flags.Bind(set, &c, func(string) string { return "" }); err != nil {
				t.Fatal(err)
			}
			if err := set.Parse(tt.args); err != nil {
				t.Fatal(err)
			}
			err := c.check(tt.o)
			if (err == nil) != (tt.want == "") || err != nil && !strings.Contains(err.Error(), tt.want) {
				t.Errorf("check() = %v, want %q", err, tt.want)
			}
		})
	}
}
