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
	said, over := "", false
	late := time.After(within)
	tick := time.NewTicker(drainEvery)
	defer tick.Stop()
	for {
		reports, err := runs.List()
		if why := sayUnlisted(err); why != said {
			if said = why; why != "" {
				o.progress("%s", why)
			}
		}
		active := 0
		for _, r := range reports {
			if r.Phase != runner.Done {
				active++
			}
		}
		// A run that cannot be read may be alive, as when no more files can be opened for a
		// moment. It is waited for as the others are, and then left to the next start.
		if active == 0 && (err == nil || over && runner.Listed(err)) {
			return
		}
		select {
		case <-runs.Ended():
		case <-tick.C:
		case <-late:
			if !runner.Listed(err) {
				late = time.After(drainEvery) // what to interrupt is not known yet
				continue
			}
			if over = true; active == 0 {
				continue
			}
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

// sayUnlisted says which runs were not listed; empty if all were.
func sayUnlisted(err error) string {
	switch {
	case err == nil:
		return ""
	case runner.Listed(err):
		return "some runs cannot be read, and may be running: " + err.Error()
	default:
		return "the runs cannot be listed: " + err.Error()
	}
}
