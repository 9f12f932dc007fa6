package runner_test

import (
	"maps"
	"slices"
	"testing"

	"github.com/terrier-iac/terrier/internal/runner"
	"github.com/terrier-iac/terrier/internal/stack"
)

// A run says how many bytes of providers init gave it and where they came from,
// and says nothing if its directory had them and no init was needed.
func TestProvidersAreMeasured(t *testing.T) {
	s, m, _ := withProviders(t, "", "")
	s.Job.Files[0].Content = []byte(things(m, 1, ""))
	first := s.Must(stack.PlanRun)
	from := slices.Collect(maps.Keys(first.Providers))
	if !slices.Equal(from, []runner.ProviderSource{runner.FromMirror}) || first.Providers[runner.FromMirror] < 1<<20 {
		t.Errorf("the first run was given %v, want a provider of the mirror; steps %+v\n%s", first.Providers, first.Steps, first.Log)
	}
	if again := s.Must(stack.PlanRun); !again.InitSkipped || len(again.Providers) != 0 {
		t.Errorf("the second run was given %v (init skipped: %v), want nothing anew", again.Providers, again.InitSkipped)
	}
}
