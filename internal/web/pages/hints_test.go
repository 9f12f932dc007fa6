package pages

import (
	"strings"
	"testing"

	"github.com/terrier-iac/terrier/internal/query"
	"github.com/terrier-iac/terrier/internal/query/meaning"
	"github.com/terrier-iac/terrier/internal/stack"
)

// Advice that names commands of the command line has another wording here, for
// every reason that a rule may give.
func TestAdviceIsForBrowsers(t *testing.T) {
	for _, rule := range meaning.Rules() {
		for _, r := range rule.Reasons {
			do := meaning.Of(r, stack.Words{}).Do
			if _, ok := doHere[r]; !ok && strings.Contains(do, "terrier ") {
				t.Errorf("%s: %q names a command, and has no wording for browsers", r, do)
			}
		}
	}
	for r := range doHere {
		if meaning.Of(r, stack.Words{}).Means == "" {
			t.Errorf("%s is no reason", r)
		}
	}
	got := inBrowser(query.Stack{Phase: string(stack.Suspended)}, meaning.Of(stack.Suspended, stack.Words{}))
	if strings.Contains(got.Do, "terrier ") || got.Means == "" {
		t.Errorf("inBrowser() = %+v, want other advice and the same meaning", got)
	}
}
