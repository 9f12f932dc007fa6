package tenant

import (
	"cmp"
	"fmt"
	"slices"
)

// leaver is one object that the tenant has and that is not wanted any more.
type leaver struct {
	*planning
	item  Item
	child Child
	all   []*leaver
	gone  bool // it leaves the inventory now
}

// leave decides about every object in the inventory that is not wanted.
func (p *planning) leave() {
	var all []*leaver
	for _, i := range p.Inventory {
		if _, ok := p.wanted[i.Place()]; ok {
			continue
		}
		if policy, ok := p.policy[i.ID]; ok && p.Deleting {
			i.Deletion = policy // the template may have changed since, and so may the order
			if level, ok := p.level[i.ID]; ok {
				i.Order = rank(level, i.Ref)
			}
		}
		all = append(all, &leaver{planning: p, item: i, child: p.Live[i.Ref]})
	}
	slices.SortStableFunc(all, func(a, b *leaver) int { return cmp.Compare(b.item.Order, a.item.Order) })
	for _, l := range all {
		l.all = all
		for _, rule := range leavingRules {
			if rule.when(l) {
				rule.then(l)
				break
			}
		}
	}
	for _, l := range all {
		if !l.gone {
			p.out.Inventory = append(p.out.Inventory, l.item)
		}
	}
}

// leavingRule is one rule about objects that are not wanted.
type leavingRule struct {
	name string
	when func(*leaver) bool
	then func(*leaver)
}

// leavingRules are tried in order; the first that matches decides.
var leavingRules = []leavingRule{
	{
		"nothing is deleted while deletion protection keeps the tenant",
		func(l *leaver) bool { return l.Deleting && l.Protected },
		func(l *leaver) {
			l.hold(Kept, DeletionProtected, l.item.String()+" stays because the tenant is protected from deletion")
			l.untie(cmp.Or(l.child.Deletion, Delete))
		},
	},
	{
		"nothing is deleted because a resource could not be rendered",
		func(l *leaver) bool {
			_, named := l.errors[l.item.ID]
			_, all := l.errors[""]
			return !l.Deleting && (l.Broken != nil || named || all)
		},
		func(l *leaver) {
			l.hold(Kept, TemplateRenderError, l.item.String()+" stays until the template can be rendered again")
			if l.policy[l.item.ID] == Retain || l.child.Deletion == Retain || l.Protected {
				l.untie(cmp.Or(l.policy[l.item.ID], l.child.Deletion, Delete))
			}
		},
	},
	{
		"an object that cannot be read stays in the inventory",
		func(l *leaver) bool { return l.child.Unseen },
		func(l *leaver) {
			l.holdFailed(Kept, l.child.Failure.verdict(CannotBeRead))
		},
	},
	{
		"an object that does not exist leaves the inventory",
		func(l *leaver) bool { return !l.child.Exists },
		func(l *leaver) { l.depart(Departure{Item: l.item, Unknown: l.child.NoKind}) },
	},
	{
		"an orphan leaves the inventory",
		func(l *leaver) bool { return l.child.Orphaned && !l.child.Owned },
		func(l *leaver) { l.depart(Departure{Item: l.item, Retained: true}) },
	},
	{
		"an object of another owner is not touched",
		func(l *leaver) bool { return !l.child.Owned && l.item.UID != l.child.UID },
		func(l *leaver) { l.depart(Departure{Item: l.item, Stranger: true}) },
	},
	{
		"a retained object gets the markers of an orphan",
		(*leaver).retained,
		func(l *leaver) {
			if l.child.Failure.waits(l.Now) {
				l.failed()
				return
			}
			l.hold(Kept, l.why(), l.item.String()+" is about to be marked as retained")
			l.act(Act{Orphan: &l.item, Why: l.why()})
		},
	},
	{
		"a namespace stays with the retained objects in it, and is deleted after all others in it",
		func(l *leaver) bool { return l.isNamespace() && len(l.inside()) > 0 },
		func(l *leaver) { l.waitFor(l.inside()) },
	},
	{
		"an object that is being deleted is waited for",
		func(l *leaver) bool { return l.child.Deleting },
		func(l *leaver) {
			l.hold(Deleting, WaitsForFinalizers, l.item.String()+" is being deleted"+finalizers(l.child)+trouble(l.child))
			l.recheck(deletionCheck)
			if l.child.Unwatched {
				l.recheck(unwatchedCheck)
			}
		},
	},
	{
		"objects that were created later are deleted first",
		func(l *leaver) bool { return len(l.later()) > 0 },
		func(l *leaver) { l.waitFor(l.later()) },
	},
	{
		"a failed deletion is retried after a pause",
		func(l *leaver) bool { return l.child.Failure.waits(l.Now) },
		(*leaver).failed,
	},
	{
		"every other object is deleted",
		func(*leaver) bool { return true },
		func(l *leaver) {
			l.hold(Deleting, l.why(), l.item.String()+" is about to be deleted")
			l.act(Act{Remove: &l.item})
		},
	},
}

// hold reports that an object still exists, and why.
func (l *leaver) hold(s State, reason, message string) {
	l.stay(Verdict{State: s, Reason: reason, Message: message})
}

// holdFailed reports that an object exists because an attempt failed.
func (l *leaver) holdFailed(s State, v Verdict) {
	v.State, v.Message = s, l.item.String()+": "+v.Message
	l.stay(v)
	l.retry(l.child.Failure)
}

func (l *leaver) stay(v Verdict) {
	l.say(l.item.ID, v, false)
	if l.child.Exists && !l.child.Unseen {
		l.item.UID = l.child.UID
	}
}

func (l *leaver) depart(d Departure) {
	l.gone = true
	l.out.Departed = append(l.out.Departed, d)
}

func (l *leaver) act(a Act) {
	a.Wave = -l.item.Order
	l.out.Acts = append(l.out.Acts, a)
}

// untie takes the tie to the Tenant off an object that stays, so that Kubernetes does not
// delete it.
func (l *leaver) untie(policy DeletionPolicy) {
	if c := l.child; c.Exists && c.Owned && c.Tied && !c.Deleting && !c.Failure.waits(l.Now) {
		l.act(Act{Untie: &Item{ID: l.item.ID, Ref: l.item.Ref, UID: c.UID, Deletion: policy}})
	}
}

func (l *leaver) why() string {
	if l.Deleting {
		return TenantDeleted
	}
	return RemovedFromTemplate
}

// retained reports whether the object outlives the tenant: by the template, by the
// template as of the last write, or by the object's annotation. The annotation
// counts even against the template, since an object that was not written since is
// not prepared for its deletion: a stack would retain its resources.
func (l *leaver) retained() bool {
	return l.item.Deletion == Retain || l.child.Deletion == Retain || l.shelters()
}

// present reports whether the object exists, or may exist.
func (l *leaver) present() bool { return l.child.Exists || l.child.Unseen }

func (l *leaver) isNamespace() bool { return l.item.Group == "" && l.item.Kind == "Namespace" }

// inside are the other leaving objects that would be deleted with a namespace.
func (l *leaver) inside() []*leaver {
	var in []*leaver
	for _, other := range l.all {
		if other != l && !other.gone && other.item.Namespace == l.item.Name && other.present() {
			in = append(in, other)
		}
	}
	return in
}

// shelters reports whether an object in this namespace stays, so that it must, too.
func (l *leaver) shelters() bool {
	if !l.isNamespace() {
		return false
	}
	for place := range l.wanted {
		if place.Namespace == l.item.Name {
			return true
		}
	}
	return slices.ContainsFunc(l.inside(), (*leaver).retained)
}

// later are the objects that must be gone before this one is deleted.
func (l *leaver) later() []*leaver {
	var out []*leaver
	for _, other := range l.all {
		if other.item.Order > l.item.Order && !other.gone && other.present() && !other.retained() {
			out = append(out, other)
		}
	}
	return out
}

func (l *leaver) waitFor(others []*leaver) {
	message := l.item.String() + " waits until " + others[0].item.String() + " is gone"
	if more := len(others) - 1; more > 0 {
		message += fmt.Sprintf(", and %d more", more)
	}
	l.hold(Deleting, WaitsForDependents, message)
}

func (l *leaver) failed() {
	v := l.child.Failure.verdict(CleanupFailed)
	v.Reason = CleanupFailed
	l.holdFailed(Deleting, v)
}

// trouble is the message of an object that is being deleted, such as the failure
// of a destroy.
func trouble(c Child) string {
	if c.Message == "" {
		return ""
	}
	return ": " + c.Message
}
