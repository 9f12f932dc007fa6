package app

import (
	"context"
	"time"

	"github.com/terrier-iac/terrier/internal/plural"
	"github.com/terrier-iac/terrier/internal/runner"
)

// drainEvery is how often the runs are listed whose end was not heard of.
const drainEvery = time.Second

// drain waits until all runs have ended, and interrupts them after a while. It is for
// a program whose end ends its runs, too, as that of a container does. No new run
// starts meanwhile: the controllers have ended.
func drain(runs runner.Runner, within time.Duration, o Options) {
	if within == 0 {
		return
	}
	late := time.After(within)
	tick := time.NewTicker(drainEvery)
	defer tick.Stop()
	for {
		reports, err := runs.List()
		if err != nil {
			o.progress("the runs cannot be listed: %v", err)
		}
		active := 0
		for _, r := range reports {
			if r.Phase != runner.Done {
				active++
			}
		}
		if active == 0 && err == nil {
			return
		}
		select {
		case <-runs.Ended():
		case <-tick.C:
		case <-late:
			o.progress("interrupting %s, not ended within %s", plural.Count(active, "run"), within)
			for _, r := range reports {
				if r.Phase == runner.Done {
					continue
				}
				if err := runs.Cancel(context.Background(), r.Key(), r.ID); err != nil {
					o.progress("  %s of %s was not interrupted: %v", r.Kind, r.Name, err)
				}
			}
		}
	}
}
