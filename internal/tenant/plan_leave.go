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

// leave decides about everything in the inventory that is not wanted.
func (p *planning) leave() {
	var all []*leaver
	for _, i := range p.Inventory {
		if _, ok := p.wanted[i.Place()]; ok {
			continue
		}
		if policy, ok := p.policy[i.ID]; ok && p.Deleting {
			i.Deletion = policy // somebody may have changed it since, as well as the order
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

// leavingRule is one line of what becomes of an object that is not wanted.
type leavingRule struct {
	name string
	when func(*leaver) bool
	then func(*leaver)
}

// leavingRules are tried in order; the first that matches decides.
var leavingRules = []leavingRule{
	{
		"nothing goes while somebody protects the tenant",
		func(l *leaver) bool { return l.Deleting && l.Protected },
		func(l *leaver) {
			l.hold(Kept, DeletionProtected, l.item.String()+" stays because the tenant is protected from deletion")
		},
	},
	{
		"nothing goes because something could not be rendered",
		func(l *leaver) bool {
			_, named := l.errors[l.item.ID]
			_, all := l.errors[""]
			return !l.Deleting && (l.Broken != nil || named || all)
		},
		func(l *leaver) {
			l.hold(Kept, TemplateRenderError, l.item.String()+" stays until it is known whether it is still wanted")
		},
	},
	{
		"what cannot be looked at stays in the inventory",
		func(l *leaver) bool { return l.child.Unseen },
		func(l *leaver) {
			l.holdFailed(Kept, l.child.Failure.verdict(CannotBeRead))
		},
	},
	{
		"what is not there is done",
		func(l *leaver) bool { return !l.child.Exists },
		func(l *leaver) { l.depart(Departure{Item: l.item, Unknown: l.child.NoKind}) },
	},
	{
		"what was let go of is done",
		func(l *leaver) bool { return l.child.Orphaned && !l.child.Owned },
		func(l *leaver) { l.depart(Departure{Item: l.item, Retained: true}) },
	},
	{
		"what was never ours is let alone",
		func(l *leaver) bool { return !l.child.Owned && l.item.UID != l.child.UID },
		func(l *leaver) { l.depart(Departure{Item: l.item, Stranger: true}) },
	},
	{
		"what is retained is let go of, with the markers of an orphan",
		(*leaver).retained,
		func(l *leaver) {
			if l.child.Failure.waits(l.Now) {
				l.failed()
				return
			}
			l.hold(Kept, l.why(), l.item.String()+" is about to be let go of")
			l.act(Act{Orphan: &l.item, Why: l.why()})
		},
	},
	{
		"a namespace stays with what is retained in it, and goes after everything else in it",
		func(l *leaver) bool { return l.isNamespace() && len(l.inside()) > 0 },
		func(l *leaver) { l.waitFor(l.inside()) },
	},
	{
		"what is going is waited for",
		func(l *leaver) bool { return l.child.Deleting },
		func(l *leaver) {
			l.hold(Deleting, WaitsForFinalizers, l.item.String()+" is going"+finalizers(l.child)+trouble(l.child))
			l.recheck(patience)
		},
	},
	{
		"what was made later goes first",
		func(l *leaver) bool { return len(l.later()) > 0 },
		func(l *leaver) { l.waitFor(l.later()) },
	},
	{
		"a deletion that failed is tried again after a pause",
		func(l *leaver) bool { return l.child.Failure.waits(l.Now) },
		(*leaver).failed,
	},
	{
		"everything else is deleted",
		func(*leaver) bool { return true },
		func(l *leaver) {
			l.hold(Deleting, l.why(), l.item.String()+" is about to be deleted")
			l.act(Act{Remove: &l.item})
		},
	},
}

// hold writes down that an object is still there, and why.
func (l *leaver) hold(s State, reason, message string) {
	l.stay(Verdict{State: s, Reason: reason, Message: message})
}

// holdFailed writes down that it is there since an attempt failed.
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

func (l *leaver) why() string {
	if l.Deleting {
		return TenantDeleted
	}
	return RemovedFromTemplate
}

// retained says whether the object outlives this: if the template says so, or
// said so when the object was written, or if that stands on the object. The last
// counts even against the first, since an object that was not written since is
// not made for its end: a stack of it would leave behind what it built.
func (l *leaver) retained() bool {
	return l.item.Deletion == Retain || l.child.Deletion == Retain || l.shelters()
}

// present says that the object is there, or may be.
func (l *leaver) present() bool { return l.child.Exists || l.child.Unseen }

func (l *leaver) isNamespace() bool { return l.item.Group == "" && l.item.Kind == "Namespace" }

// inside are the other objects that are leaving and would go with a namespace.
func (l *leaver) inside() []*leaver {
	var in []*leaver
	for _, other := range l.all {
		if other != l && !other.gone && other.item.Namespace == l.item.Name && other.present() {
			in = append(in, other)
		}
	}
	return in
}

// shelters says that something in this namespace stays, so that it must too.
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

// later are those that must be gone before this one goes.
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

// trouble is what an object says while it is going: why a destroy does not get on.
func trouble(c Child) string {
	if c.Message == "" {
		return ""
	}
	return ": " + c.Message
}
