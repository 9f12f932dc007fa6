package access_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/terrier-iac/terrier/internal/access"
	"github.com/terrier-iac/terrier/internal/fault"
)

// byKind allows what it holds: KIND NAMESPACE.
type byKind struct {
	mu    sync.Mutex
	may   map[string]bool
	asked map[string]int
}

func (r *byKind) Authorize(_ context.Context, _ access.User, a access.Request) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.asked[a.Kind+" "+a.Namespace]++
	if r.may[a.Kind+" "+a.Namespace] {
		return nil
	}
	return fault.New(fault.Denied, access.ReasonAccessDenied, errors.New("no"))
}

// A right to one kind of stack is none to another, also one to all namespaces, and a
// namespace is asked about only for the kinds that have stacks in it.
func TestScopesOfKinds(t *testing.T) {
	r := &byKind{may: map[string]bool{" ": true, "second apps": true}, asked: map[string]int{}}
	in := map[string][]string{"": {"apps", "db"}, "second": {"apps", "net"}, "third": {"db"}}
	s := access.NewKindScopes(r, []string{"", "second", "third"}, func(kind string) func() []string {
		return func() []string { return in[kind] }
	}, access.ScopeOptions{Now: time.Now})
	for name, find := range map[string]func(context.Context, access.User) (access.Scope, error){"Scope": s.Scope, "SoFar": s.SoFar} {
		scope, err := find(t.Context(), ann)
		if err != nil {
			t.Fatal(err)
		}
		second, third := scope.Of("second"), scope.Of("third")
		if !scope.All || scope.Unasked != 0 || second.All || !second.Has("apps") || second.Has("net") || !third.None() || scope.Of("fourth").HasAny("apps") {
			t.Errorf("%s() = %+v, want all of the first kind, and apps alone of the second", name, scope)
		}
	}
	if r.asked["second db"]+r.asked["third apps"] != 0 {
		t.Errorf("asked were %v, want no question about a namespace without stacks of the kind", r.asked)
	}
	if !access.Everything.Of("second").All || (access.Scope{All: true}).Of("second").All {
		t.Error("everything is of all kinds, and all namespaces are of one kind")
	}
}
