package stack_test

import (
	"testing"

	"pgregory.net/rapid"

	"github.com/terrier-iac/terrier/internal/stack"
	"github.com/terrier-iac/terrier/internal/stack/stacktest"
)

// Every rule is reached by some observation; a rule that nothing reaches is dead.
func TestEveryRuleFires(t *testing.T) {
	hits := map[string]int{}
	rapid.Check(t, func(t *rapid.T) {
		for range 200 {
			hits[stack.Decide(stacktest.Observation(t)).Rule]++
		}
	})
	for _, name := range stack.Rules() {
		if hits[name] == 0 {
			t.Errorf("nothing reaches %q", name)
		}
	}
}
