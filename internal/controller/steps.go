package controller

// steps are the parts of a pass, each with the little that it needs.
type steps struct {
	loader    *loader
	settler   *settler
	observer  *observer
	auditor   *auditor
	actor     *actor
	committer *committer

	turns    *turns
	removals *removals
	watches  *watches
}

// assemble makes the steps. What they share is made once.
func (c *Stacks) assemble() *steps {
	records := &records{blobs: c.Blobs, modules: c.Modules, runner: c.Runner}
	checks := &checks{blobs: c.Blobs, config: c.Config, log: c.Log}
	turns := &turns{config: c.Config, queue: c.Queue, checks: checks}
	auditor := &auditor{blobs: c.Blobs, journal: c.Audit, live: c.Live, log: c.Log}
	versions := &versions{blobs: c.Blobs, log: c.Log, records: records}
	inspector := &inspector{live: c.Live, dialects: c.Dialects, store: c.States, index: &c.index, records: records, versions: versions}
	states := &states{
		cache: c.Client, dialects: c.Dialects, events: c.Events, store: c.States,
		inspector: inspector, auditor: auditor, records: records, versions: versions,
	}
	jobs := &jobs{
		artifacts: c.Artifacts, cache: c.Client, live: c.Live, config: c.Config, engine: c.Engine, key: c.Key,
		modules: c.Modules, webhooks: c.Webhooks,
	}
	snapshots := &snapshots{blobs: c.Blobs, engine: c.Engine, jobs: jobs, records: records}
	dependencies := &dependencies{cache: c.Client, config: c.Config, dialects: c.Dialects}
	settler := &settler{
		blobs: c.Blobs, live: c.Live, log: c.Log, queue: c.Queue, runner: c.Runner, store: c.States, webhooks: c.Webhooks,
		checks: checks, records: records, states: states, turns: turns,
	}
	removals := &removals{
		blobs: c.Blobs, dialects: c.Dialects, events: c.Events, live: c.Live, log: c.Log, now: c.Now, queue: c.Queue,
		runner: c.Runner, store: c.States, index: &c.index, auditor: auditor, dependencies: dependencies, records: records, settler: settler, states: states,
	}
	loader := &loader{
		blobs: c.Blobs, cache: c.Client, live: c.Live, events: c.Events, log: c.Log, now: c.Now, queue: c.Queue,
		index: &c.index, removals: removals,
	}
	locks := &locks{events: c.Events, runner: c.Runner, store: c.States, jobs: jobs}
	launcher := &launcher{
		queue: c.Queue, runner: c.Runner, store: c.States,
		auditor: auditor, loader: loader, locks: locks, states: states, turns: turns,
	}
	return &steps{
		loader: loader, settler: settler, auditor: auditor, turns: turns, removals: removals,
		observer: &observer{
			cache: c.Client, live: c.Live, config: c.Config,
			checks: checks, dependencies: dependencies, inspector: inspector, jobs: jobs,
		},
		actor: &actor{
			blobs: c.Blobs, events: c.Events, live: c.Live, runner: c.Runner, webhooks: c.Webhooks, requests: &c.requests, reviews: c.reviews,
			auditor: auditor, jobs: jobs, launcher: launcher, loader: loader, records: records,
			removals: removals, snapshots: snapshots, states: states,
		},
		committer: &committer{
			blobs: c.Blobs, config: c.Config, live: c.Live, log: c.Log, queue: c.Queue, runner: c.Runner, index: &c.index,
			loader: loader, records: records, states: states, turns: turns,
			teller: &teller{events: c.Events, metrics: c.metrics},
		},
		watches: &watches{
			cache: c.Client, dialects: c.Dialects, log: c.Log, queue: c.Queue, index: &c.index, metrics: c.metrics, newcomers: &c.newcomers, turns: turns,
		},
	}
}
