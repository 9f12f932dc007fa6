package policies

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/terrier-iac/terrier/api/policy/v1alpha1"
	"github.com/terrier-iac/terrier/internal/policy"
	"github.com/terrier-iac/terrier/internal/policy/guard"
	"github.com/terrier-iac/terrier/internal/stack"
)

// compiled is a policy that is ready to judge.
type compiled struct {
	id         string // the UID of its object
	key        client.ObjectKey
	generation int64
	source     guard.Source
	selector   selector
	digest     string // of all that its judgement of a plan depends on
	guards     policy.Guards
	times      policy.Times
	program    Program // nil if it has none
	broken     string  // why it cannot be evaluated; its plans are held
	owner      bool    // it is of the owner of a namespace, and may only be stricter
}

// judges reports whether the policy says anything of plans. One that has only times is
// asked before an apply.
func (c *compiled) judges() bool { return c.guards.Judges() || c.program != nil || c.broken != "" }

// same reports whether another compilation says the same.
func (c *compiled) same(o *compiled) bool {
	return c.generation == o.generation && c.digest == o.digest
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

// compile makes a policy ready.
func (p *Policies) compile(ctx context.Context, obj client.Object, name string, spec *v1alpha1.PolicySpec) *compiled {
	c := &compiled{
		id: string(obj.GetUID()), key: client.ObjectKeyFromObject(obj), generation: obj.GetGeneration(),
		source: guard.Source{Policy: name, DryRun: spec.Mode == v1alpha1.DryRun}, owner: obj.GetNamespace() != "",
	}
	var wrong []string
	check := func(err error) {
		if err != nil {
			wrong = append(wrong, err.Error())
		}
	}
	c.source.Approval = approvalOf(spec.Approval)
	var err error
	c.selector, err = selectorOf(spec.Selector, obj.GetNamespace())
	check(err)
	if spec.Guards != nil {
		c.guards, err = guardsOf(spec.Guards)
		check(err)
		c.times, err = timesOf(name, spec.Guards)
		check(err)
	}
	program := ""
	if spec.Rego != nil && len(wrong) == 0 {
		if p.Programs == nil {
			check(fmt.Errorf("spec.rego: this controller has no programs in Rego"))
		} else if c.program, program, err = p.Programs.Compile(ctx, obj, *spec.Rego); err != nil {
			check(fmt.Errorf("spec.rego: %w", err))
		}
	}
	c.broken = strings.Join(wrong, "; ")
	c.digest = stack.Digest([]any{name, c.source.DryRun, c.source.Approval, c.guards, program, c.broken})
	return c
}

func approvalOf(a *v1alpha1.Approval) *policy.Approval {
	if a == nil {
		return nil
	}
	out := &policy.Approval{Groups: a.Groups, Users: a.Users, NotRequester: a.NotRequester}
	if a.Count > 1 {
		out.Count = int(a.Count)
	}
	if a.Expires != nil {
		out.Expires = policy.Duration(a.Expires.Duration)
	}
	return out
}

func selectorOf(s v1alpha1.Selector, in string) (selector, error) {
	out := selector{in: in, namespaces: s.Namespaces, tenants: s.Tenants, environments: s.Environments, groups: s.Kinds}
	for field, l := range map[string]*metav1.LabelSelector{"namespaceSelector": s.NamespaceSelector, "stackSelector": s.StackSelector} {
		if l == nil {
			continue
		}
		by, err := metav1.LabelSelectorAsSelector(l)
		if err != nil {
			return selector{in: in}, fmt.Errorf("spec.selector.%s: %w", field, err)
		}
		if field == "stackSelector" {
			out.byStack = by
		} else {
			out.byNamespace = by
		}
	}
	return out, nil
}

func guardsOf(g *v1alpha1.Guards) (policy.Guards, error) {
	number := func(n *int32) *int {
		if n == nil {
			return nil
		}
		return new(int(*n))
	}
	out := policy.Guards{
		MaxDestroys: number(g.MaxDestroys), MaxReplaces: number(g.MaxReplaces), MaxDestroysPerHour: number(g.MaxDestroysPerHour), Effect: policy.Hold,
	}
	if g.Effect == "Deny" {
		out.Effect = policy.Deny
	}
	for _, p := range g.Protected {
		out.Protected = append(out.Protected, policy.Protected{Types: p.Types, Addresses: p.Addresses, Attributes: p.Attributes})
	}
	if g.MaxDestroyedShare != "" {
		n, err := percent(g.MaxDestroyedShare)
		if err != nil {
			return out, fmt.Errorf("spec.guards.maxDestroyedShare: %w", err)
		}
		out.MaxDestroyedShare = &n
	}
	return out, nil
}

func percent(s string) (int, error) {
	digits, ok := strings.CutSuffix(s, "%")
	n, err := strconv.Atoi(digits)
	if !ok || err != nil || n < 0 || n > 100 {
		return 0, fmt.Errorf("is %.40q, and may be a share from 0%% to 100%%, as 20%%", s)
	}
	return n, nil
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
	for _, f := range g.Freezes {
		out.Freezes = append(out.Freezes, policy.Freeze{Policy: name, From: f.From.Time, To: f.To.Time, Reason: f.Reason})
	}
	if d := g.MinSourceAge; d != nil && d.Duration > 0 {
		out.SourceAge = []policy.Age{{Policy: name, Age: d.Duration}}
	}
	if d := g.MaxPlanAge; d != nil && d.Duration > 0 {
		out.PlanAge = []policy.Age{{Policy: name, Age: d.Duration}}
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
