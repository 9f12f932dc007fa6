package packages

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/terrier-iac/terrier/internal/access"
	"github.com/terrier-iac/terrier/internal/fault"
)

// The annotations of a namespace count more than the flags.
func TestQuotasOfNamespaces(t *testing.T) {
	answers := map[string]access.Namespace{
		"plain": {UID: "1"}, "large": {Annotations: map[string]string{annotationSize: "2048"}}, "free": {Annotations: map[string]string{annotationSize: "0", annotationVersions: "0"}},
		"odd": {Annotations: map[string]string{annotationVersions: "many"}}, "below": {Annotations: map[string]string{annotationSize: "-1"}},
	}
	q := newQuotas(Quota{MiB: 100, Versions: 10}, func(_ context.Context, name string) (access.Namespace, error) {
		switch name {
		case "forbidden":
			return access.Namespace{}, fault.New(fault.Denied, access.ReasonAccessDenied, errors.New("no"))
		case "away":
			return access.Namespace{}, fault.New(fault.Later, access.ReasonUnreachable, errors.New("no answer"))
		}
		found, ok := answers[name]
		if !ok {
			return access.Namespace{}, fault.New(fault.Missing, access.ReasonNotFound, errors.New("no such namespace"))
		}
		return found, nil
	}, time.Now, slog.New(slog.DiscardHandler))
	for name, want := range map[string]struct {
		mib, versions int
		kind          fault.Kind
	}{
		"plain": {100, 10, fault.None}, "large": {2048, 10, fault.None}, "free": {0, 0, fault.None}, "nowhere": {100, 10, fault.None}, "forbidden": {100, 10, fault.None},
		"odd": {0, 0, fault.Invalid}, "below": {0, 0, fault.Invalid}, "away": {0, 0, fault.Later},
	} {
		got, err := q.of(t.Context(), name)
		if fault.Of(err) != want.kind {
			t.Errorf("%s: %v, want %q", name, err, want.kind)
			continue
		}
		if err != nil {
			if want.kind == fault.Invalid && !strings.Contains(err.Error(), "of the namespace "+name) {
				t.Errorf("%s: the error is %v", name, err)
			}
			continue
		}
		if got.Bytes != int64(want.mib)<<20 || got.Versions != want.versions {
			t.Errorf("%s has the quota %+v, want %d MiB and %d versions", name, got, want.mib, want.versions)
		}
	}
}
