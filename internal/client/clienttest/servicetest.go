// Package clienttest is what everything must do that answers questions about stacks
// and tenants and carries out commands: the service itself, and the HTTP API with
// its client. Both meet the same cluster and the same records, as the same two
// people: one who may do everything in the namespace of the test, and one who may do
// nothing. Failures have the same reasons.
//
// Start reading at Run.
package clienttest

import (
	"testing"

	"github.com/terrier-iac/terrier/internal/command"
	"github.com/terrier-iac/terrier/internal/fault"
)

// Subject is one implementation in the hands of one person.
type Subject struct {
	Stacks  command.StackAPI
	Tenants command.TenantAPI
}

// Run checks an implementation, which subject makes in the hands of who.
func Run(t *testing.T, subject func(t *testing.T, w *World, who Who) Subject) {
	for name, check := range map[string]func(*testing.T, *World, Subject){
		"stacks are listed":                          lists,
		"a stack is described":                       describes,
		"runs and their logs are read":               reads,
		"a log is followed until its run has ended":  follows,
		"a plan is read by its digest":               readsPlans,
		"what does not exist is missing":             missing,
		"names that lead elsewhere are invalid":      invalid,
		"a plan is approved once":                    approves,
		"a window is overridden for one plan":        overridesAWindow,
		"a plan that was applied is approved":        approvesAgain,
		"another plan than was seen is not approved": refusesOthers,
		"a plan is rejected":                         rejects,
		"a new plan is asked for":                    replans,
		"steps are asked for again":                  rerunsSteps,
		"a stack is suspended and resumed":           suspends,
		"the lock in the way is broken":              unlocks,
		"a run is cancelled":                         cancels,
		"a destroy is previewed":                     previews,
		"a stalled stack previews nothing":           previewsNothing,
		"nothing is repaired where there is no gap":  repairs,
		"states are read":                            readsStates,
		"a state is rolled back":                     rollsBack,
		"a state is brought":                         pushes,
		"a stack is worked on by hand":               runsBreakGlassCommands,
		"a state is locked by hand":                  locks,
		"a state is accepted":                        accepts,
		"drift is accepted":                          acceptsDrift,
		"a stack is rolled back":                     returns,
		"tenants are read":                           readsTenants,
		"a registry is commanded":                    commandsRegistries,
		"a rollout is commanded":                     commandsRollouts,
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			check(t, w, subject(t, w, Boss))
		})
	}
	t.Run("who may do nothing is denied everything", func(t *testing.T) {
		w := newWorld(t)
		denied(t, w, subject(t, w, Stranger))
	})
}

// want checks that err is of a kind and has a reason, and is nil if that is what
// is wanted.
func want(t *testing.T, what string, err error, kind fault.Kind, reason string) {
	t.Helper()
	if fault.Of(err) != kind || fault.Reason(err, "") != reason {
		t.Errorf("%s: %v (%s %s), want %s %s", what, err, fault.Of(err), fault.Reason(err, ""), kind, reason)
	}
}

// must is a value that the test cannot go on without.
func must[T any](v T, err error) func(*testing.T) T {
	return func(t *testing.T) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

func done(t *testing.T, what string, err error) {
	t.Helper()
	if err != nil {
		t.Errorf("%s: %v", what, err)
	}
}
