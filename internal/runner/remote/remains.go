package remote

import (
	"context"
	"maps"
	"slices"
	"sync"

	"github.com/terrier-iac/terrier/internal/runner"
)

// remains are the places that runs left which have ended. It is the runner.Lingering of
// a Runner.
type remains struct {
	known    *knownRuns
	removals *removals
	ctx      context.Context // of the Runner
	work     *sync.WaitGroup // likewise
	vacated  chan runner.Remain
}

func newRemains(ctx context.Context, work *sync.WaitGroup, known *knownRuns, of *removals) *remains {
	m := &remains{known: known, removals: of, ctx: ctx, work: work, vacated: make(chan runner.Remain)}
	of.vacated = m.announceVacated
	return m
}

// announceVacated says that nothing runs in a place any more.
func (m *remains) announceVacated(what runner.Remain) {
	m.work.Go(func() {
		select {
		case m.vacated <- what:
		case <-m.ctx.Done():
		}
	})
}

// Vacated implements runner.Lingering.
func (m *remains) Vacated() <-chan runner.Remain { return m.vacated }

// Remains implements runner.Lingering: of the runs that have ended, those that were not
// forgotten, whose agents wait for that, and those whose places have to be removed.
func (m *remains) Remains(stack string) []runner.Remain {
	byPlace := map[string]runner.Remain{}
	for _, run := range m.known.all() {
		if of, beside := runner.SplitKey(run.key); beside == "" && (stack == "" || of == stack) && m.lingers(run) {
			name := m.removals.file(run.place)
			byPlace[name] = runner.Remain{Stack: of, Place: name, Namespace: run.place.Namespace}
		}
	}
	for name, one := range m.removals.list() {
		if of, beside := runner.SplitKey(one.Key); one.Key != "" && beside == "" && (stack == "" || of == stack) && !one.ended {
			byPlace[name] = one.remain(name)
		}
	}
	return slices.Collect(maps.Values(byPlace))
}

// lingers reports whether a run has ended and its place, as far as is known, has not.
func (m *remains) lingers(run *placedRun) bool {
	defer m.known.Lock(run.key)()
	_, rep, err := m.known.read(run)
	return err == nil && rep.Phase == runner.Done && !run.dead
}

// see sees what became of a place that has to be removed.
func (m *remains) see(p Place, in Launcher) error {
	ctx, cancel := context.WithTimeout(m.ctx, lookLimit)
	defer cancel()
	return m.removals.changed(ctx, in, p)
}
