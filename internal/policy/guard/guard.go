// Package guard judges plans by the limits of a policy: how many resources a plan
// destroys or replaces, which part of the stack, which resources are protected, and whether
// its source is signed. It reads what the plan says, and what is known of its source. It knows no windows and no clock: package
// policy has these, and package stack asks for them before an apply.
//
// Start reading at Judge.
package guard

import (
	"fmt"
	"slices"
	"strings"

	"github.com/terrier-iac/terrier/internal/plan"
	"github.com/terrier-iac/terrier/internal/policy"
)

// Facts are what guards look at. They are worked out once for all policies.
type Facts struct {
	Changes   []plan.Change // of managed resources
	Destroys  int           // as the engine counts them: with replacements, and deposed objects
	Replaces  int           // those that destroy; a replacement that forgets destroys nothing
	Resources int           // in the state before; negative if that is not known
	Cut       bool          // the document does not have all changes
	From      Origin
}

// Origin is where the module of a plan comes from.
type Origin struct {
	Name      string // GitRepository team-a/net; empty of an inline module
	Revision  string
	Artifact  string // the digest of the archive that the signature is about
	Signature policy.Signature
	Besides   []string // fields of the object by which the runs have code that is not in the source
}

// FactsOf returns the facts of a plan.
func FactsOf(d *plan.Document) Facts {
	f := Facts{Destroys: d.Changes().Destroy, Resources: d.Resources(), Cut: slices.Contains(d.Truncated(), "resource_changes")}
	for _, c := range d.Items() {
		if c.Mode == "data" {
			continue
		}
		f.Changes = append(f.Changes, c)
		if c.Action == plan.Replace {
			f.Replaces++
		}
	}
	return f
}

// Counted corrects the facts of a document that does not have all changes by the number of
// destroys that the engine counted.
func (f Facts) Counted(destroys int) Facts {
	f.Destroys = max(f.Destroys, destroys)
	return f
}

// Source is where guards stand, and who approves what they hold.
type Source struct {
	Policy   string // ClusterPolicy/production
	Approval *policy.Approval
	DryRun   bool
}

// Judge returns what the guards of a policy say of a plan.
func Judge(s Source, g policy.Guards, f Facts) []policy.Finding {
	j := judge{Source: s, Guards: g, Facts: f}
	j.destroys()
	j.replaces()
	j.share()
	j.perHour()
	j.protected()
	j.signed()
	return j.found
}

type judge struct {
	Source
	policy.Guards
	Facts
	found []policy.Finding
}

// destroyed are the changes that count as a destroy for this policy, and how many there are.
func (j *judge) destroyed() ([]string, int) {
	with := []plan.Action{plan.Delete}
	n := j.Destroys
	if j.MaxReplaces == nil {
		with = append(with, plan.Replace)
	} else {
		n -= j.Replaces
	}
	return addresses(j.Changes, with...), n
}

// what names the destroys that count.
func (j *judge) what() string {
	if j.MaxReplaces == nil && j.Replaces > 0 {
		if j.Replaces == j.Destroys {
			return "replaces"
		}
		return "destroys or replaces"
	}
	return "destroys"
}

func (j *judge) destroys() {
	if j.MaxDestroys == nil {
		return
	}
	if at, n := j.destroyed(); n > *j.MaxDestroys {
		j.say(policy.MaxDestroys, at, "the plan %s %s, %s", j.what(), policy.Count(n, "resource"), allowed(*j.MaxDestroys))
	}
}

func (j *judge) replaces() {
	if j.MaxReplaces == nil {
		return
	}
	if j.Cut && j.Destroys > *j.MaxReplaces && j.Replaces <= *j.MaxReplaces {
		j.fail(policy.MaxReplaces, "the plan destroys %s, and the document of the plan is too large to say how many of them it replaces", policy.Count(j.Destroys, "resource"))
		return
	}
	if j.Replaces <= *j.MaxReplaces {
		return
	}
	j.say(policy.MaxReplaces, addresses(j.Changes, plan.Replace), "the plan replaces %s, %s", policy.Count(j.Replaces, "resource"), allowed(*j.MaxReplaces))
}

func (j *judge) share() {
	if j.MaxDestroyedShare == nil {
		return
	}
	at, n := j.destroyed()
	switch {
	case n == 0:
	case j.Resources <= 0:
		j.fail(policy.MaxDestroyedShare, "the plan %s %s, and the document of the plan is too large to say of how many", j.what(), policy.Count(n, "resource"))
	case n*100 > *j.MaxDestroyedShare*j.Resources:
		j.say(policy.MaxDestroyedShare, at, "the plan %s %d of %s (%d %%), %d %% are allowed", j.what(), n, policy.Count(j.Resources, "resource"), n*100/j.Resources, *j.MaxDestroyedShare)
	}
}

// perHour is about a plan that the limit of an hour can never let pass. Whether less was
// destroyed in the last hour is asked before the apply.
func (j *judge) perHour() {
	if j.MaxDestroysPerHour == nil || j.Destroys <= *j.MaxDestroysPerHour {
		return
	}
	j.say(policy.MaxDestroysPerHour, addresses(j.Changes, plan.Delete, plan.Replace), "the plan destroys %s, and %d in an hour are allowed", policy.Count(j.Destroys, "resource"), *j.MaxDestroysPerHour)
}

// verbs say what happens to a protected resource.
var verbs = []struct {
	action plan.Action
	verb   string
}{
	{plan.Delete, "destroys"}, {plan.Replace, "replaces"}, {plan.Forget, "forgets"}, {plan.ForgetCreate, "replaces and forgets"}, {plan.Update, "updates"},
}

// protected is about what any of the protections covers: a resource that several of them
// cover counts once.
func (j *judge) protected() {
	if len(j.Protected) == 0 {
		return
	}
	if j.Cut {
		j.fail(policy.ProtectedGuard, "the plan is too large for its document to have all changes, so protected resources may be among them")
	}
	for _, v := range verbs {
		var at, attributes []string
		for _, c := range j.Changes {
			if c.Action != v.action {
				continue
			}
			covered, touched := j.covers(c)
			if covered && (v.action != plan.Update || len(touched) > 0) {
				at, attributes = append(at, c.Address), append(attributes, touched...)
			}
		}
		switch {
		case len(at) == 0:
		case v.action == plan.Update:
			slices.Sort(attributes)
			j.say(policy.ProtectedGuard, at, "the plan updates protected attributes of %s (%s)", policy.Count(len(at), "resource"), list(slices.Compact(attributes)))
		default:
			j.say(policy.ProtectedGuard, at, "the plan %s %s", v.verb, policy.Count(len(at), "protected resource"))
		}
	}
}

// covers reports whether any protection is for the resource of a change, and which
// protected attributes the change touches.
func (j *judge) covers(c plan.Change) (covered bool, touched []string) {
	for _, p := range j.Protected {
		if p.Covers(c.Type, c.Address) || c.Previous != "" && p.Covers(c.Type, c.Previous) {
			covered, touched = true, append(touched, touches(p, c)...)
		}
	}
	return covered, touched
}

// touches are the protected attributes that an update changes.
func touches(p policy.Protected, c plan.Change) []string {
	var out []string
	for _, d := range c.Diffs {
		if p.CoversAttribute(d.Path) {
			out = append(out, d.Path)
		}
	}
	return out
}

// signed is about where the plan comes from, and not about what it does.
func (j *judge) signed() {
	if j.SignedSource == nil {
		return
	}
	if j.SignedSource.Allows(j.From.Signature) {
		if len(j.From.Besides) > 0 {
			j.say(policy.SignedSourceGuard, nil, "%s is signed, and the runs of the stack have code besides it, by %s: put that into the source", j.From.Name, strings.Join(j.From.Besides, " and "))
		}
		return
	}
	from := j.From
	at := from.Name
	if from.Revision != "" {
		at += " at " + from.Revision
	}
	switch {
	case from.Name == "":
		j.say(policy.SignedSourceGuard, nil, "the module is inline, and cannot be signed: take it from a GitRepository or an OCIRepository with spec.verify")
	case !from.Signature.Verified:
		j.say(policy.SignedSourceGuard, nil, "%s has no verified signature: %s", at, from.Signature.Reason)
	case from.Signature.By == "":
		j.say(policy.SignedSourceGuard, nil, "%s is signed, and its controller does not say by whom: have Terrier serve the source, or let the policy allow every key that spec.verify names", at)
	default:
		j.say(policy.SignedSourceGuard, nil, "%s is signed %s, and the policy allows others: have one of these sign it, or add the signer to requireSignedSource", at, from.Signature.Signer())
	}
}

func (j *judge) say(rule string, at []string, format string, args ...any) {
	message := fmt.Sprintf(format, args...)
	if len(at) > 0 {
		message += ": " + list(at)
	}
	f := policy.Finding{
		Policy: j.Policy, Rule: rule, Effect: policy.Hold, Severity: policy.High, Message: message, Approval: j.Approval, DryRun: j.DryRun,
	}
	if j.Effect == policy.Deny {
		f.Effect, f.Approval = policy.Deny, nil
	}
	j.found = append(j.found, f.At(at...))
}

// fail says that a guard cannot be evaluated, which holds the plan. It denies the plan if
// that is what the guard does: else a plan that is large enough could be approved.
func (j *judge) fail(rule, format string, args ...any) {
	f := policy.Failed(j.Policy, rule, fmt.Sprintf(format, args...))
	f.Approval, f.DryRun = j.Approval, j.DryRun
	if j.Effect == policy.Deny {
		f.Effect, f.Approval = policy.Deny, nil
	}
	j.found = append(j.found, f)
}

func allowed(n int) string {
	if n == 1 {
		return "1 is allowed"
	}
	return fmt.Sprintf("%d are allowed", n)
}

// list names the first few.
func list(names []string) string {
	const most = 5
	if len(names) <= most {
		return strings.Join(names, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(names[:most], ", "), len(names)-most)
}

func addresses(changes []plan.Change, actions ...plan.Action) []string {
	var out []string
	for _, c := range changes {
		if slices.Contains(actions, c.Action) {
			out = append(out, c.Address)
		}
	}
	return out
}
