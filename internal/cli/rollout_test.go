package cli

import (
	"testing"

	"github.com/terrier-iac/terrier/internal/service"
)

func TestTheWaveOfARollout(t *testing.T) {
	waves := []string{"canary", "some"}
	tests := map[string]struct {
		r    service.Rollout
		want string
	}{
		"there are none":                {service.Rollout{Phase: service.RolloutInProgress}, ""},
		"one is under way":              {service.Rollout{Phase: service.RolloutInProgress, Wave: "some", Waves: waves}, "some (of canary, some)"},
		"it has stopped in one":         {service.Rollout{Phase: service.RolloutFailed, Wave: "canary", Waves: waves}, "canary (of canary, some)"},
		"it has come to the others":     {service.Rollout{Phase: service.RolloutInProgress, Waves: waves}, "the rest (of canary, some)"},
		"all have the newest":           {service.Rollout{Phase: service.RolloutComplete, Waves: waves}, "none (of canary, some)"},
		"there is nobody to change yet": {service.Rollout{Phase: service.RolloutIdle, Waves: waves}, "none (of canary, some)"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			if got := waveOf(tt.r); got != tt.want {
				t.Errorf("waveOf() = %q, want %q", got, tt.want)
			}
		})
	}
}
