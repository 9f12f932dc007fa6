// Package namespaces finds out which of the namespaces that an operator named cannot be
// reconciled. Rights that are bound in a namespace end with it, and its administrators can
// revoke them. Without them neither the cache nor the list of pods could be filled, of all other
// namespaces either, so such a namespace is left out.
package namespaces

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/terrier-iac/terrier/internal/app/interval"
	"github.com/terrier-iac/terrier/internal/dialect"
	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/kube"
)

const (
	// Patience is how long a start waits for the rights to a namespace: the API server knows of
	// a new binding a little later.
	Patience = 15 * time.Second

	// Again is the pause between two questions about the rights while the controller runs.
	Again = time.Minute

	// Calm is how long a controller runs before it starts again for a change of rights: those who
	// may change the bindings of one namespace would keep all others from being reconciled.
	Calm = 5 * time.Minute

	// gone is how many questions in turn find a right missing before it counts as revoked: a user
	// who renews a binding deletes it first.
	gone = 3
)

// Rights are those that the user of a client needs in a namespace: to list each of the kinds, and
// pods if runs are pods.
type Rights struct {
	Client client.Client
	Kinds  []dialect.Dialect
	Pods   bool
}

// Closed are those of the namespaces in which the user lacks one of the rights, also after a while. It is an error if that are all of them: with none left it would be every
// namespace of the cluster.
func (r Rights) Closed(ctx context.Context, named []string, patience time.Duration) ([]string, error) {
	if len(named) == 0 {
		return nil, nil
	}
	late := time.After(patience)
	for {
		closed, err := r.closed(ctx, named)
		if err != nil || len(closed) == 0 {
			return nil, err
		}
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-time.After(time.Second):
			continue
		case <-late:
		}
		if len(closed) == len(named) {
			return nil, fault.New(fault.Denied, "Forbidden", fmt.Errorf(
				"--watch-namespace: this controller may not list stacks, or pods where runs are pods, in %s. Create the namespaces, and bind the roles of the controller in them (docs/operate.md)", strings.Join(closed, ", ")))
		}
		return closed, nil
	}
}

func (r Rights) closed(ctx context.Context, named []string) (closed []string, err error) {
	for _, n := range named {
		open, err := r.open(ctx, n)
		if err != nil {
			return nil, err
		}
		if !open {
			closed = append(closed, n)
		}
	}
	return closed, nil
}

func (r Rights) open(ctx context.Context, namespace string) (bool, error) {
	var resources []schema.GroupVersionResource
	for _, d := range r.Kinds {
		resources = append(resources, dialect.ResourceOf(d))
	}
	if r.Pods {
		resources = append(resources, schema.GroupVersionResource{Version: "v1", Resource: "pods"})
	}
	for _, of := range resources {
		right := kube.Right{Verb: "list", Resource: of, Object: client.ObjectKey{Namespace: namespace}}
		if ok, err := kube.SelfAllowed(ctx, r.Client, right); err != nil || !ok {
			return false, err
		}
	}
	return true, nil
}

// Changes ends a manager once one of the namespaces that were left out can be reconciled, or the
// rights to one of the others are gone: informers of a namespace are made when the process starts,
// and a list of pods that one namespace refuses is none of any other namespace. It asks at
// intervals, the first time when calm is over. A manager that would be left without a namespace
// goes on.
func (r Rights) Changes(reconciled, closed []string, calm, pause time.Duration, log *slog.Logger) manager.RunnableFunc {
	return func(ctx context.Context) error {
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(calm + rand.N(calm/2+1)): // so that several controllers do not end at once
		}
		missing := map[string]int{} // how often in turn the rights to a namespace were
		for range interval.Turns(ctx, pause) {
			if n := r.firstOpen(ctx, closed, log); n != "" {
				return fmt.Errorf("the namespace %s was left out, and can be reconciled now: start the controller again. A Deployment does", n)
			}
			if n := r.revoked(ctx, reconciled, missing, log); n != "" {
				return fmt.Errorf("this controller may no longer list stacks, or pods where runs are pods, in the namespace %s: start it again, so that it leaves the namespace out. A Deployment does", n)
			}
		}
		return nil
	}
}

// firstOpen is the first of the namespaces that can be reconciled; empty if none can be.
func (r Rights) firstOpen(ctx context.Context, closed []string, log *slog.Logger) string {
	for _, n := range closed {
		open, err := r.open(ctx, n)
		if err != nil {
			log.Warn("asking for the rights to a namespace that is left out failed", "namespace", n, "error", err)
		}
		if open {
			return n
		}
	}
	return ""
}

// revoked is a namespace of those that are reconciled to which the rights are gone, and not for a
// moment only; empty if there is none, or if they are gone to all.
func (r Rights) revoked(ctx context.Context, reconciled []string, missing map[string]int, log *slog.Logger) (first string) {
	lost := 0
	for _, n := range reconciled {
		open, err := r.open(ctx, n)
		switch {
		case err != nil:
			log.Warn("asking for the rights to a namespace failed", "namespace", n, "error", err)
			continue
		case open:
			delete(missing, n)
			continue
		}
		if missing[n]++; missing[n] == 1 {
			log.Warn("the rights to a namespace are gone, and its stacks are not reconciled: bind the roles of the controller in it again", "namespace", n)
		}
		if missing[n] >= gone {
			lost++
			first = cmp.Or(first, n)
		}
	}
	if lost == len(reconciled) {
		return ""
	}
	return first
}
