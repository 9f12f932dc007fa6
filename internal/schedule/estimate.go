package schedule

import (
	"cmp"

	"github.com/terrier-iac/terrier/internal/stack"
)

// What runs are charged of which nothing was observed.
const (
	UnknownMemory = 512 << 20 // an engine and a provider of a large cloud
	healthMemory  = 64 << 20  // no engine runs
)

// memoryStep is the precision in which memory is remembered.
const memoryStep = 16 << 20

// Memory is what a run is expected to take. Observed is the estimate after
// earlier runs of the stack, and most is what the runner lets one run take; both
// are 0 if there is none.
func Memory(kind stack.RunKind, observed, most int64) int64 {
	if kind == stack.HealthRun {
		return healthMemory
	}
	memory := cmp.Or(observed, UnknownMemory)
	if most > 0 {
		memory = min(memory, most)
	}
	return memory
}

// Observe returns the estimate after one more run that took that much. More
// counts at once, less little by little: a run that ended early says nothing
// about the next one.
func Observe(estimate, took int64) int64 {
	took = (took + memoryStep - 1) / memoryStep * memoryStep
	if took < estimate {
		took = estimate - max((estimate-took)/4/memoryStep*memoryStep, memoryStep)
	}
	return took
}
