package controller

import (
	"github.com/terrier-iac/terrier/internal/cache"
	"github.com/terrier-iac/terrier/internal/controller/aftersteps"
	"github.com/terrier-iac/terrier/internal/controller/approvals"
	"github.com/terrier-iac/terrier/internal/controller/policies"
	"github.com/terrier-iac/terrier/internal/controller/prerequisites"
	"github.com/terrier-iac/terrier/internal/controller/records"
	"github.com/terrier-iac/terrier/internal/controller/states"
	"github.com/terrier-iac/terrier/internal/graph"
)

// steps are the parts of a pass, each with the little that it needs.
type steps struct {
	loader    *loader
	claimer   *claimer
	settler   *settler
	observer  *observer
	auditor   *auditor
	actor     *actor
	committer *committer

	turns    *turns
	removals *removals
	watches  *watches

	approvals *approvals.Verifier
}

// assemble makes the steps. What they share is made once.
func (c *Stacks) assemble() *steps {
	if c.Policies == nil {
		c.Policies = (*policies.Policies)(nil)
	}
	verifier := &approvals.Verifier{Blobs: c.Blobs, Stamps: c.Stamps, Live: c.Live}
	kept := &records.Store{Blobs: c.Blobs, Runs: c.Runner, Archives: c.Archives, Shared: c.Shared}
	checks := &driftRecords{blobs: c.Blobs, config: c.Config, log: c.Log, budgets: &c.index.budgets, share: c.shards.share}
	turns := &turns{config: c.Config, queue: c.Queue, checks: checks, lingering: lingering{c.Lingering}}
	auditor := &auditor{blobs: c.Blobs, dialects: c.Dialects, auditLog: c.Audit, destroys: c.Destroys, live: c.Live, log: c.Log, stamps: c.Stamps}
	versions := &states.Versions{Log: c.Log, Records: kept}
	inspector := &states.Inspector{Live: c.Live, Dialects: c.Dialects, LeftOut: c.LeftOut, Store: c.States, KindOf: c.index.kindOf, Records: kept, Versions: versions}
	keeper := &states.Keeper{
		Cache: c.Client, Dialects: c.Dialects, Events: c.Events, Store: c.States, Inspector: inspector,
		Records: kept, Versions: versions, Audit: auditor.recordState,
	}
	referrals := &referrals{config: c.Config, grants: c.Grants}
	jobs := &jobs{
		accounts: c.Accounts, artifacts: c.Artifacts, cache: c.Client, live: c.Live, config: c.Config, engine: c.Engine, key: c.Key,
		identifier: identifier{c.Identities, c.Logins}, imaging: c.imaging, modules: c.Modules, referrals: referrals, reviewers: c.Reviewers, vaults: c.Vaults, sealing: sealing{c.StateKeys}, named: auditor.audited,
	}
	snapshots := &snapshots{blobs: c.Blobs, engine: c.Engine, jobs: jobs, records: kept, signatures: c.Signatures}
	cycles := &graph.Cycles{}
	dependencies := &dependencies{cache: c.Client, dialects: c.Dialects, referrals: referrals, cycles: cycles}
	settler := &settler{
		blobs: c.Blobs, live: c.Live, log: c.Log, dialects: c.Dialects, queue: c.Queue, runner: c.Runner, store: c.States, reviewers: c.Reviewers,
		checks: checks, records: kept, states: keeper, turns: turns, metrics: c.metrics, approvals: verifier,
		hosts: &aftersteps.Writer{Hosts: c.Hosts, Queue: c.beside, Outputs: outputsOf(kept)}, accounts: c.Accounts, config: c.Config, people: c.Events, wakes: &c.wakes,
	}
	gates := &gates{
		checker:  &prerequisites.Checker{Cache: c.Client, Kinds: c.Live, Dialects: c.Dialects, Artifacts: c.Artifacts, Outputs: outputsOf(kept), Prober: c.prober},
		accounts: c.Accounts, config: c.Config, live: c.Live, referrals: referrals, wakes: &c.wakes,
	}
	removals := &removals{
		blobs: c.Blobs, dialects: c.known(), leftOut: c.LeftOut, events: c.Events, live: c.Live, log: c.Log, now: c.Now, queue: c.Queue,
		runner: c.Runner, store: c.States, index: &c.index, auditor: auditor, dependencies: dependencies, records: kept, settler: settler, states: keeper,
		release: jobs.release, ours: c.Ours, shards: c.shards, wakes: &c.wakes, leads: c.Leads,
	}
	loader := &loader{
		blobs: c.Blobs, cache: c.Client, live: c.Live, events: c.Events, now: c.Now, queue: c.Queue, index: &c.index, policies: c.Policies,
	}
	locks := &states.Locker{Events: c.Events, Runs: c.Runner, Store: c.States, Installation: jobs.installation()}
	committer := &committer{
		blobs: c.Blobs, config: c.Config, live: c.Live, log: c.Log, queue: c.Queue, runner: c.Runner, index: &c.index,
		loader: loader, records: kept, snapshots: snapshots, states: keeper, turns: turns, vaults: c.Vaults, logins: c.Logins,
		teller:  &teller{events: c.Events, metrics: c.metrics},
		formers: &formerSources{cache: c.Client, live: c.Live, events: c.Events, log: c.Log},
	}
	launcher := &launcher{
		queue: c.Queue, runner: c.Runner, store: c.States,
		auditor: auditor, status: committer, loader: loader, locks: locks, records: kept, states: keeper, turns: turns, jobs: jobs, gates: gates,
		registry: c.Registry,
	}
	return &steps{
		loader: loader, settler: settler, approvals: verifier, auditor: auditor, committer: committer, turns: turns, removals: removals,
		claimer: &claimer{cache: c.Client, live: c.Live, log: c.Log, index: &c.index, removals: removals, jobs: jobs},
		observer: &observer{
			blobs: c.Blobs, cache: c.Client, live: c.Live, config: c.Config,
			checks: checks, dependencies: dependencies, gates: gates, inspector: inspector, jobs: jobs, destroys: c.Destroys,
			records: kept, snapshots: snapshots, steps: &aftersteps.Files{},
		},
		actor: &actor{
			blobs: c.Blobs, events: c.Events, live: c.Live, runner: c.Runner, reviewers: c.Reviewers, wakes: &c.wakes, reviews: c.reviews, policies: c.Policies,
			auditor: auditor, approvals: verifier, jobs: jobs, launcher: launcher, loader: loader, records: kept,
			removals: removals, snapshots: snapshots, states: keeper,
		},
		watches: &watches{
			cache: c.Client, config: c.Config, dialects: c.Dialects, log: c.Log, queue: c.Queue, index: &c.index, metrics: c.metrics, newcomers: &c.newcomers, turns: turns, cycles: cycles,
			read: &cache.Map[objectVersion, readObject]{},
		},
	}
}
