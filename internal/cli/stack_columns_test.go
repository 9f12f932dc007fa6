package cli

import (
	"slices"
	"strings"
	"testing"

	"github.com/terrier-iac/terrier/internal/query"
	"github.com/terrier-iac/terrier/internal/stack"
)

// The list says of a stack, also of one that is ready, how many check blocks fail.
func TestFailingChecksInTheList(t *testing.T) {
	failing := &stack.FailingCheckBlocks{Failed: []stack.FailedCheckBlock{{Address: "check.cert"}}, More: 1}
	for name, tt := range map[string]struct {
		of   query.Stack
		want string
	}{
		"none fails":                {query.Stack{Message: "No drift"}, "No drift"},
		"two fail":                  {query.Stack{Message: "No drift", FailingCheckBlocks: failing}, "2 failing checks; No drift"},
		"one fails, and no message": {query.Stack{FailingCheckBlocks: &stack.FailingCheckBlocks{Failed: failing.Failed}}, "1 failing check"},
		"a long message is cut":     {query.Stack{Message: strings.Repeat("x", 100), FailingCheckBlocks: failing}, "2 failing checks; " + strings.Repeat("x", 53) + "…"},
	} {
		t.Run(name, func(t *testing.T) {
			row := listView{}.row(tt.of)
			if got := row[len(row)-1].text; got != tt.want {
				t.Errorf("the message is %q, want %q", got, tt.want)
			}
		})
	}
	if i := slices.IndexFunc(stackColumns, func(c stackColumn) bool { return c.head == "MESSAGE" }); i != len(stackColumns)-1 {
		t.Errorf("the message is column %d, want the last one", i)
	}
}
