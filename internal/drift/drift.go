// Package drift says what the drift of a stack is: which differences count and which a rule
// tolerates, and, attribute by attribute, what is configured and what is there. It reads plan
// documents, and knows no cluster. What follows from drift is decided by package stack.
//
// Start reading at Judge.
package drift

import (
	"reflect"
	"slices"
	"time"

	"github.com/terrier-iac/terrier/internal/plan"
	"github.com/terrier-iac/terrier/internal/policy"
	"github.com/terrier-iac/terrier/internal/stack"
)

// Judgement is what rules for drift say of a plan.
type Judgement struct {
	Tolerated *stack.ToleratedDrift // attributes that may drift and that the plan would reset; nil if there are none
	All       bool                  // the plan changes nothing else, so that there is no drift that counts
}

// Judge says which changes of a plan are drift that rules tolerate. A rule is for attributes of
// an update in place: a resource that is created, destroyed, replaced, imported, moved or
// forgotten counts, and so does an output. Where something else than the resources changed
// since the last apply (configured), a difference is tolerated only if the plan would restore
// the value from before it drifted: else the configuration asks for the change.
func Judge(d *plan.Document, rules []policy.Tolerance, configured bool, now time.Time) Judgement {
	if len(rules) == 0 {
		return Judgement{}
	}
	j := judge{rules: rules, configured: configured, now: now, outside: map[string][]plan.Diff{}}
	cut := d.Truncated()
	j.known = !slices.Contains(cut, "resource_drift")
	for _, c := range d.Drift() {
		j.outside[c.Address] = c.Diffs
	}
	all := !d.Errored() && !d.Besides() && len(d.Outputs()) == 0 && !slices.Contains(cut, "resource_changes")
	for _, c := range d.Items() {
		if c.Mode == "data" {
			continue // it is read, and changes nothing
		}
		all = j.change(c) && all
	}
	if j.found.Attributes == 0 && len(j.found.Ended) == 0 {
		return Judgement{}
	}
	return Judgement{Tolerated: &j.found, All: all && j.found.Attributes > 0}
}

type judge struct {
	rules      []policy.Tolerance
	configured bool
	now        time.Time
	outside    map[string][]plan.Diff // what changed outside, by address
	known      bool                   // outside has all of it
	found      stack.ToleratedDrift
}

// change judges one change, and reports whether all of it is tolerated.
func (j *judge) change(c plan.Change) bool {
	if c.Action != plan.Update && c.Action != plan.Replace {
		return false
	}
	all := c.Action == plan.Update && c.Previous == "" && c.Deposed == "" && c.Import == ""
	tolerated := 0
	for _, diff := range c.Diffs {
		rule, ended := j.rule(c, diff.Path)
		switch {
		case rule != nil && (!j.configured || j.restores(c.Address, diff)):
			tolerated++
			j.found.Of = named(j.found.Of, c, diff, *rule)
		case ended != nil && rule == nil:
			j.found.Ended = named(j.found.Ended, c, diff, *ended)
			all = false
		case !j.follows(c.Address, diff):
			all = false
		}
	}
	if tolerated > 0 {
		j.found.Attributes += tolerated
		j.found.Resources++
	}
	return all && tolerated > 0
}

func named(list []stack.ToleratedAttribute, c plan.Change, d plan.Diff, r policy.Tolerance) []stack.ToleratedAttribute {
	if len(list) == stack.ToleratedKept {
		return list
	}
	return append(list, stack.ToleratedAttribute{Address: c.Address, Attribute: d.Path, Policy: r.Policy, Reason: r.Reason, Until: r.Until})
}

// rule is the first rule for an attribute that counts, and the one that has ended last of the
// others.
func (j *judge) rule(c plan.Change, path string) (counts, ended *policy.Tolerance) {
	for i := range j.rules {
		r := &j.rules[i]
		switch {
		case !r.Covers(c.Type, c.Address) || !r.Names(path):
		case !r.Ended(j.now):
			return r, nil
		case ended == nil || r.Until.After(ended.Until):
			ended = r
		}
	}
	return nil, ended
}

// restores reports whether the plan gives an attribute the value that it had before something
// outside changed it. Of a masked value that cannot be seen.
func (j *judge) restores(address string, d plan.Diff) bool {
	return !d.Unknown && !d.Sensitive && slices.ContainsFunc(j.outside[address], func(o plan.Diff) bool {
		return o.Path == d.Path && !o.Sensitive && reflect.DeepEqual(o.Before, d.After) && reflect.DeepEqual(o.After, d.Before)
	})
}

// follows reports whether an attribute differs only because the engine learns its value in the
// apply of the others, and nothing outside changed it.
func (j *judge) follows(address string, d plan.Diff) bool {
	return d.Unknown && j.known && !j.configured && !slices.ContainsFunc(j.outside[address], func(o plan.Diff) bool { return o.Path == d.Path })
}
