package metrics

import (
	"context"
	"log/slog"
	"time"

	"github.com/terrier-iac/terrier/internal/app/interval"
	"github.com/terrier-iac/terrier/internal/query"
)

// capacityEvery is how often the need for slots is compared with the slots that are
// there. It changes slowly: an average over many runs decides.
const capacityEvery = 10 * time.Minute

// capacityLog tells the operator when the stacks need more runs at once than are
// allowed, once until that is over.
type capacityLog struct {
	capacity func() (query.CapacityInfo, error)
	log      *slog.Logger
	short    bool
}

func (c *capacityLog) run(ctx context.Context) error {
	for range interval.Turns(ctx, capacityEvery) {
		c.compare()
	}
	return nil
}

func (c *capacityLog) compare() {
	is, err := c.capacity()
	if err != nil {
		return // not all stacks are read yet
	}
	if !is.CycleMet && !c.short {
		c.log.Warn("more slots are needed", "stacks", is.Stacks, "needed", is.SlotsNeeded, "slots", is.Slots, "why", is.Warning)
	}
	c.short = !is.CycleMet
}
