package policies

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/terrier-iac/terrier/api/policy/v1alpha1"
	"github.com/terrier-iac/terrier/internal/policy"
	"github.com/terrier-iac/terrier/internal/policy/guard"
	"github.com/terrier-iac/terrier/internal/policyapi"
	"github.com/terrier-iac/terrier/internal/stack"
)

// compiled is a policy that is ready to judge.
type compiled struct {
	id            string // the UID of its object
	key           client.ObjectKey
	generation    int64
	source        guard.Source
	selector      policyapi.Selector
	digest        string // of all that its judgement of a plan depends on
	guards        policy.Guards
	times         policy.Times
	drift         policy.Drift
	onError       policy.Effect // if it cannot be evaluated
	rego          *v1alpha1.Rego
	program       Program // nil if it has none
	programDigest string
	revision      string // of the source that the program is from
	text          Text   // that the program should be made of; zero if it was not found
	pending       bool   // its program is not compiled yet; its stacks wait
	earlier       string // why the program is one of an earlier artifact; empty if it is not
	broken        string // why it cannot be evaluated; its plans are held or denied
	owner         bool   // it is of the owner of a namespace, and may only be stricter
	foreign       bool   // it is of Weave, and its status is not ours
}

// judges reports whether the policy says anything of plans. One that has only times is
// asked before an apply.
func (c *compiled) judges() bool { return c.guards.Judges() || c.program != nil || c.broken != "" }

// same reports whether another compilation says the same of plans.
func (c *compiled) same(o *compiled) bool {
	return c != nil && o != nil && c.generation == o.generation && c.digest == o.digest && c.pending == o.pending
}

// addTimes adds the times of the policy. A dry run withholds nothing.
func (c *compiled) addTimes(t *policy.Times) {
	if c.source.DryRun {
		return
	}
	t.Windows = append(t.Windows, c.times.Windows...)
	t.Freezes = append(t.Freezes, c.times.Freezes...)
	t.SourceAge = append(t.SourceAge, c.times.SourceAge...)
	t.PlanAge = append(t.PlanAge, c.times.PlanAge...)
}

// addDrift adds what the policy says of drift. A dry run says nothing of it.
func (c *compiled) addDrift(d *policy.Drift) {
	if !c.source.DryRun && c.broken == "" {
		d.Tolerate, d.Pace = append(d.Tolerate, c.drift.Tolerate...), d.Pace.And(c.drift.Pace)
		d.Budgets = append(d.Budgets, c.drift.Budgets...)
	}
}

// compile makes a policy ready. Last is what it was, nil if it is new.
func (p *Policies) compile(ctx context.Context, obj client.Object, name string, spec *v1alpha1.PolicySpec, last *compiled) *compiled {
	c, wrong := read(obj, name, spec)
	program := ""
	if spec.Rego != nil && len(wrong) == 0 {
		var err error
		if program, err = p.program(ctx, c, obj, spec.Rego, last); err != nil {
			wrong = append(wrong, ofRego(err))
		}
	}
	c.broken = strings.Join(wrong, "; ")
	parts := []any{name, c.source.DryRun, c.source.Approval, c.guards, program, c.broken}
	if c.onError == policy.Deny {
		parts = append(parts, c.onError)
	}
	c.digest = stack.Digest(parts)
	return c
}

// read is what a policy says beside its program, and what is wrong with it, each with its field.
func read(obj client.Object, name string, spec *v1alpha1.PolicySpec) (c *compiled, wrong []string) {
	c = &compiled{
		id: string(obj.GetUID()), key: client.ObjectKeyFromObject(obj), generation: obj.GetGeneration(),
		source: guard.Source{Policy: name, DryRun: spec.Mode == v1alpha1.DryRun}, owner: obj.GetNamespace() != "", onError: policy.Hold,
	}
	if spec.OnError == v1alpha1.Deny {
		c.onError = policy.Deny
	}
	check := func(err error) {
		if err != nil {
			wrong = append(wrong, err.Error())
		}
	}
	c.source.Approval = policyapi.Approval(spec.Approval)
	var err error
	c.selector, err = policyapi.SelectorOf(spec.Selector, obj.GetNamespace())
	check(err)
	if spec.Drift != nil {
		c.drift, err = policyapi.Drift(name, spec.Drift)
		check(err)
	}
	if spec.Guards != nil {
		c.guards, err = policyapi.Guards(spec.Guards)
		check(err)
		c.times, err = timesOf(name, spec.Guards)
		check(err)
		c.times.MayOverride(policyapi.Override(spec))
	}
	return c, wrong
}

// ofRego is an error of a program with its field. Errors about a field of spec.rego begin with
// its name.
func ofRego(err error) string {
	text := err.Error()
	for _, field := range []string{"parameters", "sourceRef", "digest"} {
		if rest, ok := strings.CutPrefix(text, field); ok && rest != "" && strings.ContainsRune(":.[", rune(rest[0])) {
			return "spec.rego." + text
		}
	}
	return "spec.rego: " + text
}

// program finds the program of a policy, and returns its digest. While its source has an
// error, or the next program is not compiled yet, the program of the last artifact counts.
func (p *Policies) program(ctx context.Context, c *compiled, obj client.Object, spec *v1alpha1.Rego, last *compiled) (string, error) {
	if p.Programs == nil {
		return "", errors.New("this controller has no programs in Rego")
	}
	c.rego = spec
	var err error
	if spec.SourceRef == nil && last != nil && last.generation == c.generation {
		c.text = last.text
	} else {
		c.text, err = p.Programs.Find(ctx, obj, *spec)
	}
	b := &built{err: err}
	if err == nil {
		b = p.builds.of(c.text, obj.GetNamespace())
	}
	good := last != nil && last.program != nil && equality.Semantic.DeepEqual(last.rego, spec)
	switch {
	case b != nil && b.err == nil:
		c.program, c.programDigest, c.revision = b.program, b.digest, c.text.Revision
	case good && (b == nil || b.passes()):
		c.program, c.programDigest, c.revision, c.earlier = last.program, last.programDigest, last.revision, last.earlier
		if b != nil {
			c.earlier = ofRego(b.err)
		}
	case b == nil:
		c.pending = true
	default:
		return "", b.err
	}
	return c.programDigest, nil
}

func timesOf(name string, g *v1alpha1.Guards) (policy.Times, error) {
	var out policy.Times
	if len(g.Windows) > 0 {
		w := policy.Windows{Policy: name}
		for i, one := range g.Windows {
			window, err := windowOf(one)
			if err != nil {
				return out, fmt.Errorf("spec.guards.windows[%d].%w", i, err)
			}
			w.Any = append(w.Any, window)
		}
		out.Windows = []policy.Windows{w}
	}
	for i, f := range g.Freezes {
		if !f.From.Before(&f.To) {
			return out, fmt.Errorf("spec.guards.freezes[%d].to: the freeze ends before it begins", i)
		}
		out.Freezes = append(out.Freezes, policy.Freeze{Policy: name, From: f.From.Time, To: f.To.Time, Reason: f.Reason})
	}
	for _, age := range []struct {
		field string
		is    *metav1.Duration
		to    *[]policy.Age
	}{{policy.MinSourceAge, g.MinSourceAge, &out.SourceAge}, {policy.MaxPlanAge, g.MaxPlanAge, &out.PlanAge}} {
		switch {
		case age.is == nil:
		case age.is.Duration < 0:
			return out, fmt.Errorf("spec.guards.%s: is %s, and may be a duration, as 24h", age.field, age.is.Duration)
		case age.is.Duration > 0:
			*age.to = []policy.Age{{Policy: name, Age: age.is.Duration}}
		}
	}
	return out, nil
}

var days = map[v1alpha1.Day]time.Weekday{
	"Sun": time.Sunday, "Mon": time.Monday, "Tue": time.Tuesday, "Wed": time.Wednesday, "Thu": time.Thursday, "Fri": time.Friday, "Sat": time.Saturday,
}

func windowOf(w v1alpha1.Window) (policy.Window, error) {
	var out policy.Window
	for _, d := range w.Days {
		day, ok := days[d]
		if !ok {
			return out, fmt.Errorf("days: is %.20q, and may be Mon, Tue, Wed, Thu, Fri, Sat or Sun", d)
		}
		out.Days = append(out.Days, day)
	}
	var err error
	if out.From, err = clockOf(w.From); err != nil {
		return out, fmt.Errorf("from: %w", err)
	}
	if out.To, err = clockOf(w.To); err != nil {
		return out, fmt.Errorf("to: %w", err)
	}
	if out.From >= out.To {
		return out, fmt.Errorf("to: the window ends before it begins: a time over midnight is two windows, one until 24:00 and one from 00:00")
	}
	out.Location = time.UTC
	if w.TimeZone != "" {
		if out.Location, err = time.LoadLocation(w.TimeZone); err != nil || w.TimeZone == "Local" {
			return out, fmt.Errorf("timeZone: is %.60q, which is no time zone: it may be a name as Europe/Berlin", w.TimeZone)
		}
	}
	return out, nil
}

func clockOf(s string) (time.Duration, error) {
	h, m, ok := strings.Cut(s, ":")
	hours, err := strconv.Atoi(h)
	minutes, merr := strconv.Atoi(m)
	if !ok || err != nil || merr != nil || len(s) != 5 || hours < 0 || minutes < 0 || minutes > 59 || hours > 24 || hours == 24 && minutes > 0 {
		return 0, fmt.Errorf("is %.20q, and may be a time of a day from 00:00 to 24:00, as 08:30", s)
	}
	return time.Duration(hours)*time.Hour + time.Duration(minutes)*time.Minute, nil
}
