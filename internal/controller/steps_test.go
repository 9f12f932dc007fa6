package controller

import (
	"reflect"
	"slices"
	"testing"

	"github.com/terrier-iac/terrier/internal/controller/records"
	"github.com/terrier-iac/terrier/internal/controller/states"
)

// apart is a controller whose steps a test calls one by one.
type apart struct {
	whole *Stacks

	records *records.Store
	*driftRecords
	states *states.Keeper
	*jobs
	*snapshots
	*dependencies
	*auditor
	*teller
	*settler
	*observer
	*actor
	*launcher
	locks *states.Locker
	*turns
	*committer
	*loader
	*claimer
	*removals
	*watches
}

// takeApart assembles a controller as Setup does.
func takeApart(c *Stacks) *apart {
	s := c.assemble()
	c.steps = s
	return &apart{
		whole: c, records: s.actor.records, driftRecords: s.observer.checks, states: s.actor.states, jobs: s.actor.jobs,
		snapshots: s.actor.snapshots, dependencies: s.observer.dependencies, auditor: s.auditor, teller: s.committer.teller, settler: s.settler,
		observer: s.observer, actor: s.actor, launcher: s.actor.launcher, locks: s.actor.launcher.locks, turns: s.turns, committer: s.committer,
		loader: s.loader, claimer: s.claimer, removals: s.removals, watches: s.watches,
	}
}

// A step that lacks something would be found out in the middle of a pass.
func TestEveryStepHasWhatItNeeds(t *testing.T) {
	l := newFrugal(t, "net")
	unset := []string{
		"jobs.artifacts", "jobs.accounts", "settler.accounts", "jobs.imaging", "jobs.vaults", "committer.vaults", "committer.logins", // no stack of the test has a source or an image, and inputs are read by the controller
		"launcher.registry",                     // nor a registry
		"auditor.stamps",                        // the stamps of the test server are believed
		"auditor.destroys", "observer.destroys", // no policy limits destroys
		"removals.shards", "removals.leads", // all stacks are this controller's
	}
	for _, step := range []any{
		l.records, l.driftRecords, l.states.Versions, l.states, l.states.Inspector, l.jobs, l.snapshots, l.dependencies, l.auditor, l.teller, l.settler,
		l.observer, l.actor, l.launcher, l.locks, l.turns, l.committer, l.loader, l.claimer, l.removals, l.watches,
	} {
		of := reflect.ValueOf(step).Elem()
		for i := range of.NumField() {
			name, field := of.Type().Name()+"."+of.Type().Field(i).Name, of.Field(i)
			switch field.Kind() {
			case reflect.Pointer, reflect.Interface, reflect.Func:
				if field.IsNil() && !slices.Contains(unset, name) {
					t.Errorf("%s is not set", name)
				}
			}
		}
	}
}
