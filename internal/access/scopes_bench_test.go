package access

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"testing"
	"time"

	"github.com/terrier-iac/terrier/internal/fault"
)

// onlyFirst is an authorizer that allows only the first namespace.
type onlyFirst struct{}

var errNobody = fault.New(fault.Denied, ReasonAccessDenied, errors.New("no"))

func (onlyFirst) Authorize(_ context.Context, _ User, a Request) error {
	if a.Namespace == "team-0000" {
		return nil
	}
	return errNobody
}

// BenchmarkScopes is what it takes to remember what a hundred persons may see of
// a thousand namespaces, the cluster's answers aside.
func BenchmarkScopes(b *testing.B) {
	var namespaces []string
	for i := range 1000 {
		namespaces = append(namespaces, fmt.Sprintf("team-%04d", i))
	}
	var before, after runtime.MemStats
	for b.Loop() {
		runtime.GC()
		runtime.ReadMemStats(&before)
		s := NewScopes(onlyFirst{}, ScopeOptions{Namespaces: func() []string { return namespaces }, Now: time.Now})
		for i := range 100 {
			if scope, err := s.Scope(b.Context(), User{Name: fmt.Sprint("person-", i)}); err != nil || len(scope.In) != 1 || scope.Unasked > 0 {
				b.Fatal(scope, err)
			}
		}
		s.Wait()
		runtime.GC()
		runtime.ReadMemStats(&after)
		runtime.KeepAlive(s)
	}
	b.ReportMetric(float64(after.HeapAlloc-before.HeapAlloc)/100/1024, "KiB/person")
}
