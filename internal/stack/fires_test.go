package stack_test

import (
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/terrier-iac/terrier/internal/stack"
	"github.com/terrier-iac/terrier/internal/stack/stacktest"
)

// Every rule is reached by some observation; a rule that nothing reaches is dead.
func TestEveryRuleFires(t *testing.T) {
	hits := map[string]int{}
	missing := stack.Rules()
	// Some are reached once in ten thousand times, so one sample may lack one; a
	// rule that nothing reaches is in none.
	for range 20 {
		rapid.Check(t, func(t *rapid.T) {
			for range 200 {
				hits[stack.Decide(stacktest.Observation(t)).Rule]++
			}
		})
		missing = slices.DeleteFunc(missing, func(name string) bool { return hits[name] > 0 })
		if len(missing) == 0 {
			return
		}
	}
	t.Errorf("nothing reaches %q", missing)
}
