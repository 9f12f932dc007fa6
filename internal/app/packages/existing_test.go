package packages

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/terrier-iac/terrier/internal/access"
	"github.com/terrier-iac/terrier/internal/fault"
)

// A namespace that the cluster does not have takes no module: the error names those that do,
// and how to make one.
func TestNamespacesThatTheClusterDoesNotHave(t *testing.T) {
	s := newStandOf(t, func(o *Options) {
		has := o.Namespace
		o.Namespace = func(ctx context.Context, name string) (access.Namespace, error) {
			if name != "net" {
				return access.Namespace{}, fault.New(fault.Missing, access.ReasonNotFound, errors.New("the namespace does not exist"))
			}
			return has(ctx, name)
		}
	})
	s.cluster.set("ci update nte", true)
	module := t.TempDir()
	if err := os.WriteFile(filepath.Join(module, "main.tf"), []byte("# nothing\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	push := func(namespace string) (int, string) {
		return s.terrier("cluster-token-of-ci", "module", "push", module, "--namespace", namespace, "--name", "hello", "--system", "demo", "--version", "1.0.0")
	}
	if code, out := push("net"); code != 0 {
		t.Fatalf("terrier module push ended with %d: %s", code, out)
	}
	code, out := push("nte")
	for _, want := range []string{"the cluster has no namespace nte", "kubectl create namespace nte", "You may publish in: net"} {
		if code != 2 || !strings.Contains(out, want) {
			t.Errorf("a push into a namespace that does not exist ended with %d: %s, want 2 and %q", code, out, want)
		}
	}
}

// What cannot be found out refuses nothing but what the cluster must answer.
func TestExistenceOfNamespaces(t *testing.T) {
	var answer error
	asked := 0
	e := newExisting(func(context.Context, string) (access.Namespace, error) {
		asked++
		return access.Namespace{}, answer
	}, time.Now, slog.New(slog.DiscardHandler))
	for _, tt := range []struct {
		answer error
		want   fault.Kind
	}{
		{fault.New(fault.Missing, "", errors.New("there is none")), fault.Missing},
		{fault.New(fault.Later, "", errors.New("the cluster is busy")), fault.Later},
		{fault.New(fault.Denied, "", errors.New("no role")), fault.None},
	} {
		answer = tt.answer
		if err := e.check(t.Context(), "net"); fault.Of(err) != tt.want {
			t.Errorf("after %v it is %v, want %v", tt.answer, err, tt.want)
		}
	}
	before := asked
	if err := e.check(t.Context(), "net"); err != nil || asked != before {
		t.Errorf("what is known is asked for again, or lost: %v", err)
	}
}
