package cli

import (
	"testing"

	"github.com/terrier-iac/terrier/internal/query"
)

func TestTheWaveOfARollout(t *testing.T) {
	waves := []string{"canary", "some"}
	tests := map[string]struct {
		r    query.Rollout
		want string
	}{
		"there are none":                   {query.Rollout{Phase: query.RolloutInProgress}, ""},
		"one is in progress":               {query.Rollout{Phase: query.RolloutInProgress, Wave: "some", Waves: waves}, "some (of canary, some)"},
		"it has stopped in one":            {query.Rollout{Phase: query.RolloutFailed, Wave: "canary", Waves: waves}, "canary (of canary, some)"},
		"it has come to the others":        {query.Rollout{Phase: query.RolloutInProgress, Waves: waves}, "the rest (of canary, some)"},
		"all have the newest":              {query.Rollout{Phase: query.RolloutComplete, Waves: waves}, "none (of canary, some)"},
		"there is no tenant to update yet": {query.Rollout{Phase: query.RolloutIdle, Waves: waves}, "none (of canary, some)"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			if got := waveOf(tt.r); got != tt.want {
				t.Errorf("waveOf() = %q, want %q", got, tt.want)
			}
		})
	}
}
