package controller

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/terrier-iac/terrier/internal/controller/prerequisites"
	"github.com/terrier-iac/terrier/internal/controller/records"
	"github.com/terrier-iac/terrier/internal/dialect"
	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/graph"
	"github.com/terrier-iac/terrier/internal/kube"
	"github.com/terrier-iac/terrier/internal/prerequisite"
	"github.com/terrier-iac/terrier/internal/record"
	"github.com/terrier-iac/terrier/internal/stack"
)

// dependencies knows which stacks wait for which.
type dependencies struct {
	cache     client.Reader
	dialects  dialect.Registry
	referrals *referrals
	cycles    *graph.Cycles // of what all stacks in the cache depend on: see watches.dependsOnKeys
}

// firstNotReady returns the first dependency that is not ready.
func (dp *dependencies) firstNotReady(ctx context.Context, p *pass) (*stack.Blocked, error) {
	for _, ref := range p.st.Configuration.DependsOn {
		d, key := dp.dialectOf(ref, p.dialect), keyOf(ref, p.obj)
		if err := dp.referrals.check(ctx, p.dialect, p.obj, stackReferent(objectRef{d, key})); fault.Of(err) == fault.Denied {
			return blockedBy(fmt.Errorf("dependsOn: %w", err), stack.SourceDenied), nil
		} else if err != nil {
			return nil, err
		}
		why, err := dp.dependency(ctx, p, d, key)
		if err != nil {
			return nil, err
		}
		if why != "" {
			return &stack.Blocked{Kind: fault.Later, Reason: stack.DependencyNotReady, Message: why}, nil
		}
	}
	return nil, nil
}

// dependency says why key cannot be relied on yet, or nothing.
func (dp *dependencies) dependency(ctx context.Context, p *pass, d dialect.Dialect, key types.NamespacedName) (string, error) {
	of := objectRef{d, key}
	id, obj := dp.cycles.ID(of.String()), d.New()
	if err := dp.cache.Get(ctx, key, obj); client.IgnoreNotFound(err) != nil {
		return "", err
	} else if err != nil {
		dp.cycles.Forget(of.String(), id) // its deletion may not have been handled yet
		return fmt.Sprintf("dependency %s does not exist", key), nil
	}
	if circle := dp.cycle(objectRef{p.dialect, client.ObjectKeyFromObject(p.obj)}, of); circle != "" {
		return circle, nil
	}
	if ready, why := d.Ready(obj); !ready {
		return fmt.Sprintf("dependency %s is not ready: %s", key, why), nil
	}
	dep, err := d.Decode(obj)
	if err != nil {
		return fmt.Sprintf("dependency %s is not valid: %v", key, err), nil
	}
	m := dep.Status
	parts := len(dep.Configuration.SourcePaths)+len(p.st.Configuration.SourcePaths) > 0 // their digests differ always
	if a, b := dep.Configuration.Source, p.st.Configuration.Source; !parts && a != nil && b != nil && *a == *b && m.Planned.Source != p.o.PlanInputs.Source {
		return fmt.Sprintf("dependency %s has not seen revision %s yet", key, p.o.PlanInputs.Revision), nil
	}
	if dep.Configuration.Outputs != nil && m.Published == "" {
		return fmt.Sprintf("dependency %s has not published its outputs yet", key), nil
	}
	return "", nil
}

// cycle says so if start depends on next, and next leads back to start.
func (dp *dependencies) cycle(start, next objectRef) string {
	way := dp.cycles.Through(start.String(), next.String())
	if way == nil {
		return ""
	}
	text, nodes := "dependsOn is a cycle: ", slices.Clone(way.First)
	if len(way.Last) > 0 {
		text = fmt.Sprintf("dependsOn is a cycle of %d stacks: ", way.Nodes)
		nodes = slices.Concat(nodes, []string{"…"}, way.Last)
	}
	for i, node := range append(nodes, start.String()) {
		if _, key, ok := strings.Cut(node, "/"); ok { // without its kind
			node = key
		}
		if i > 0 {
			text += " → "
		}
		text += node
	}
	return text
}

// dependents lists the stacks that depend on obj and go before it. One of another
// namespace counts only if it may refer to obj: it would keep obj from its deletion.
func (dp *dependencies) dependents(ctx context.Context, of dialect.Dialect, obj client.Object) ([]string, error) {
	it := objectRef{of, client.ObjectKeyFromObject(obj)}
	var names []string
	err := dp.dialects.EachStack(ctx, dp.cache, func(d dialect.Dialect, dependant client.Object) error {
		if err := dp.referrals.check(ctx, d, dependant, stackReferent(it)); fault.Of(err) == fault.Denied {
			return nil
		} else if err != nil {
			return err
		}
		if !obj.GetDeletionTimestamp().IsZero() && !dependant.GetDeletionTimestamp().IsZero() {
			// Two that wait for each other and are both to go have no order.
			if dp.cycle(objectRef{d, client.ObjectKeyFromObject(dependant)}, it) != "" {
				return nil
			}
		}
		name := dependant.GetName()
		if dependant.GetNamespace() != obj.GetNamespace() {
			name = dependant.GetNamespace() + "/" + name
		}
		names = append(names, name)
		return nil
	}, client.MatchingFields{indexDependsOn: it.String()})
	slices.Sort(names)
	return names, err
}

// objectRef is a stack by its kind and its name.
type objectRef struct {
	dialect dialect.Dialect
	key     types.NamespacedName
}

// String is what indexes hold of it.
func (ref objectRef) String() string { return dialect.KindOf(ref.dialect) + "/" + ref.key.String() }

// dialectOf is the dialect of a dependency: the one that ref names, or that of the
// stack which depends on it.
func (dp *dependencies) dialectOf(ref stack.Ref, own dialect.Dialect) dialect.Dialect {
	return dp.dialects.Meant(ref.Kind, own)
}

func keyOf(ref stack.Ref, from client.Object) types.NamespacedName {
	ns := ref.Namespace
	if ns == "" {
		ns = from.GetNamespace()
	}
	return types.NamespacedName{Namespace: ns, Name: ref.Name}
}

// gates find whether the prerequisites of stacks are met.
type gates struct {
	checker   *prerequisites.Checker
	accounts  Accounts
	config    Config
	live      client.Reader
	referrals *referrals
	wakes     *wakeQueues
}

// observe finds what is known of the prerequisites of a stack. Without any it finds that.
func (g *gates) observe(ctx context.Context, p *pass) error {
	p.prerequisites = []prerequisite.Result{}
	wanted := p.st.Configuration.Prerequisites
	if len(wanted) == 0 {
		p.entry.looking = prerequisites.Looking{}
		return nil
	}
	reader := g.live
	if g.config.ReadAs != "" {
		account := types.NamespacedName{Namespace: p.obj.GetNamespace(), Name: cmp.Or(p.st.Configuration.Pod.Account, g.config.ReadAs)}
		var err error
		if reader, err = g.accounts.As(account); err != nil {
			p.o.Blocked = blockedBy(err, stack.SpecInvalid)
			return nil
		}
	}
	of := g.stackOf(p)
	of.Reader = reader
	var err error
	if p.prerequisites, err = g.checker.Check(ctx, of, wanted); err != nil {
		return err
	}
	lack := prerequisite.Unmet(p.prerequisites)
	if lack == "" {
		p.entry.looking = prerequisites.Looking{}
		return nil
	}
	p.o.Unmet = &stack.Blocked{Kind: fault.Later, Reason: stack.PrerequisiteMissing, Message: lack}
	if prerequisite.Refused(p.prerequisites) {
		p.o.Unmet.Kind = fault.Denied
	}
	p.entry.looking = p.entry.looking.Again(lack)
	return nil
}

// stackOf is the stack of a pass, without what reads its objects.
func (g *gates) stackOf(p *pass) prerequisites.Stack {
	return prerequisites.Stack{
		ID: p.id, Namespace: p.obj.GetNamespace(), Dialect: p.dialect, Source: p.st.Configuration.Source,
		Refer: func(ctx context.Context, to kube.Referent) error { return g.referrals.check(ctx, p.dialect, p.obj, to) },
		Wake:  func() { g.wakes.add(p.entry.objectRef) },
	}
}

// confirm says what a run whose turn has come waits for: prerequisites whose answers are old,
// and that are asked once more before others. The stack keeps its slot meanwhile, for as long
// as these questions take. It waited on old answers: if each of them had cost it its place, a
// stack would never run in a queue that is slower than answers age.
func (g *gates) confirm(p *pass) string {
	var asked []string
	if stack.NeedsPrerequisites(p.o, p.decision.Action) {
		asked = g.checker.Prober.Confirm(g.stackOf(p), p.st.Configuration.Prerequisites, p.entry.turn)
	}
	if len(asked) == 0 {
		p.entry.turn = time.Time{}
		return ""
	}
	if p.entry.turn.IsZero() {
		p.entry.turn = p.o.Now
	}
	p.confirming = true
	p.recheckIn(confirmRecheck)
	return prerequisites.Confirming(asked)
}

// confirmRecheck is when a stack looks for answers that did not wake it.
const confirmRecheck = 15 * time.Second

// outputsOf are the outputs of any stack, with those marked that must not be shown.
func outputsOf(kept *records.Store) func(ctx context.Context, uid string) (map[string]kube.Output, error) {
	return func(ctx context.Context, uid string) (map[string]kube.Output, error) {
		b, err := kept.Get(ctx, record.Outputs(uid))
		if err != nil {
			return nil, err
		}
		outputs := map[string]kube.Output{}
		if err := json.Unmarshal(b, &outputs); err != nil {
			return nil, err
		}
		hidden, err := kept.SecretPrints(ctx, uid)
		if err != nil {
			return nil, err
		}
		kube.MarkSecret(outputs, hidden)
		return outputs, nil
	}
}
