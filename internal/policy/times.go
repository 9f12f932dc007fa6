package policy

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// Times say when plans may be applied. Plans and drift checks go on meanwhile. Every
// entry counts, so the strictest does.
type Times struct {
	Windows   []Windows
	Freezes   []Freeze
	SourceAge []Age // the youngest source that is applied
	PlanAge   []Age // the oldest plan that is applied: an older one is made again
}

// Windows are the times of one policy in which plans are applied: any of them.
type Windows struct {
	Policy   string
	Any      []Window
	Override *Approval // who may have one plan applied at another time; nil if no user may
}

// Window is a time of some days of the week.
type Window struct {
	Days     []time.Weekday // every day if empty
	From, To time.Duration  // since midnight; To is later than From
	Location *time.Location
}

// Freeze is a time in which no plan is applied.
type Freeze struct {
	Policy   string
	From, To time.Time
	Reason   string
	Override *Approval // as for Windows
}

// Age is how old something has to be, or may be.
type Age struct {
	Policy string
	Age    time.Duration
}

// Withheld is why nothing may be applied now, and until when. The zero value withholds
// nothing. Until is zero if it is not known when that ends.
type Withheld struct {
	Policy, Rule string
	Until        time.Time
	Why          string // the beginning of a sentence: the plan is applied …
}

// MayOverride says who may have one plan applied outside of these windows, and in these freezes.
func (t Times) MayOverride(a *Approval) {
	for i := range t.Windows {
		t.Windows[i].Override = a
	}
	for i := range t.Freezes {
		t.Freezes[i].Override = a
	}
}

// Overrides are the users who want one plan to be applied outside of windows, and in freezes.
// Each of them has the right to want it, and is known.
type Overrides struct {
	Given      []Given
	Requesters Requesters // of the plan
}

// lack is what these users lack to override; nil if nothing. A program that applies a repository
// often has every right, so that it overrides only where the rule names it.
func (by Overrides) lack(of *Approval, now time.Time) *Lack {
	given, not := by.Given, []string(nil)
	if len(of.Users)+len(of.Groups) == 0 {
		given = slices.DeleteFunc(slices.Clone(given), func(g Given) bool { return IsProgram(g.By) })
		for _, g := range by.Given {
			if IsProgram(g.By) {
				not = append(not, fmt.Sprintf("the approval of %s does not count: %s", g.By, notNamed))
			}
		}
	}
	l := of.lack(given, by.Requesters, now)
	if l.Not = append(l.Not, not...); len(l.By) < l.Need {
		return &l
	}
	return nil
}

// Overridden are the times without the windows and the freezes that these users override.
func (t Times) Overridden(now time.Time, by Overrides) Times {
	t.Windows = slices.DeleteFunc(slices.Clone(t.Windows), func(w Windows) bool { return w.Override != nil && by.lack(w.Override, now) == nil })
	t.Freezes = slices.DeleteFunc(slices.Clone(t.Freezes), func(f Freeze) bool { return f.Override != nil && by.lack(f.Override, now) == nil })
	return t
}

// Overridable says which approvals it takes to apply a plan now, one for each different rule,
// and whether these suffice: nothing else of these times withholds the plan.
func (t Times) Overridable(now, sourceAt time.Time, by Overrides) (lacks []Lack, suffice bool) {
	var rules []*Approval
	for _, f := range t.Freezes {
		if f.holds(now) {
			rules = append(rules, f.Override)
		}
	}
	for _, w := range t.Windows {
		if _, open := w.next(now); !open {
			rules = append(rules, w.Override)
		}
	}
	seen := map[string]bool{}
	for _, a := range rules {
		if a == nil {
			return nil, false
		}
		if l := by.lack(a, now); l != nil && !seen[a.key()] {
			lacks = append(lacks, *l)
		}
		seen[a.key()] = true
	}
	t.Windows, t.Freezes = nil, nil
	return lacks, len(rules) > 0 && t.at(now, sourceAt).None()
}

// None reports whether nothing is withheld.
func (w Withheld) None() bool { return w.Rule == "" }

// Bounds of looking for the next time at which nothing withholds a plan: how far ahead, and how
// many windows and freezes are looked at. Windows of two policies that alternate have no time in
// common, and may have thousands of beginnings in a year.
const (
	horizon   = 366 * 24 * time.Hour
	looksMost = 20_000
)

// Withhold says why no plan of a source that is known since sourceAt may be applied at
// now. A time that is zero is not known, and is no reason. Where the next time takes too long
// to find, Until is one at which to ask again.
func (t Times) Withhold(now, sourceAt time.Time) Withheld {
	first := t.at(now, sourceAt)
	if first.None() {
		return first
	}
	// The end of one may lie within another.
	next, each := first, t.size()
	for looks := each; !next.None() && looks <= looksMost; looks += each {
		if next.Until.IsZero() || next.Until.Sub(now) > horizon {
			first.Until = time.Time{}
			return first
		}
		first.Until = next.Until
		next = t.at(next.Until, sourceAt)
	}
	return first
}

// size is how many windows, freezes and ages there are.
func (t Times) size() int {
	n := len(t.Freezes) + len(t.SourceAge)
	for _, w := range t.Windows {
		n += len(w.Any)
	}
	return n
}

// at is what withholds at a time, without regard to what follows.
func (t Times) at(now, sourceAt time.Time) Withheld {
	for _, f := range t.Freezes {
		if f.holds(now) {
			why := fmt.Sprintf("nothing is applied from %s to %s", f.From.UTC().Format(time.RFC3339), f.To.UTC().Format(time.RFC3339))
			if f.Reason != "" {
				why += ": " + strings.TrimRight(f.Reason, ". ")
			}
			return Withheld{f.Policy, FreezesGuard, f.To, why}
		}
	}
	for _, w := range t.Windows {
		if until, open := w.next(now); !open {
			return Withheld{w.Policy, WindowsGuard, until, "plans are applied only " + w.String()}
		}
	}
	for _, a := range t.SourceAge {
		if age := now.Sub(sourceAt); !sourceAt.IsZero() && age < a.Age {
			return Withheld{a.Policy, MinSourceAge, sourceAt.Add(a.Age), fmt.Sprintf("a source is applied once it is %s old", Plainly(a.Age))}
		}
	}
	return Withheld{}
}

// holds reports whether a time is in the freeze.
func (f Freeze) holds(now time.Time) bool { return !now.Before(f.From) && now.Before(f.To) }

// Outdates is the policy for which a plan that was made or confirmed at madeAt is too old
// to be applied, nil if there is none.
func (t Times) Outdates(now, madeAt time.Time) *Age {
	for _, a := range t.PlanAge {
		if now.Sub(madeAt) > a.Age {
			return &a
		}
	}
	return nil
}

// next reports whether one of the windows is open, and when the next one opens; zero if
// none does within nine days, which covers every week.
func (w Windows) next(now time.Time) (time.Time, bool) {
	var soonest time.Time
	for _, one := range w.Any {
		for day := -1; day <= 8; day++ { // the day of its location may be another
			from, to, ok := one.on(now, day)
			switch {
			case !ok || !now.Before(to):
			case !now.Before(from):
				return now, true
			case soonest.IsZero() || from.Before(soonest):
				soonest = from
			}
		}
	}
	return soonest, false
}

// on is the window of a day, counted from that of now.
func (w Window) on(now time.Time, day int) (from, to time.Time, ok bool) {
	in := w.Location
	if in == nil {
		in = time.UTC
	}
	y, m, d := now.In(in).Date()
	at := func(since time.Duration) time.Time {
		return time.Date(y, m, d+day, int(since/time.Hour), int(since%time.Hour/time.Minute), 0, 0, in)
	}
	from, to = at(w.From), at(w.To)
	noon := time.Date(y, m, d+day, 12, 0, 0, 0, in)
	return from, to, (len(w.Days) == 0 || slices.Contains(w.Days, noon.Weekday())) && from.Before(to)
}

// String is the windows in words: "Mon–Fri 08:00–18:00 Europe/Berlin".
func (w Windows) String() string {
	var all []string
	for _, one := range w.Any {
		all = append(all, one.String())
	}
	return strings.Join(all, ", ")
}

// String is the window in words.
func (w Window) String() string {
	days := "every day"
	if len(w.Days) > 0 {
		var names []string
		for _, d := range w.Days {
			names = append(names, d.String()[:3])
		}
		days = strings.Join(names, " ")
		if n := len(w.Days); n > 2 && consecutive(w.Days) {
			days = names[0] + "–" + names[n-1]
		}
	}
	in := "UTC"
	if w.Location != nil {
		in = w.Location.String()
	}
	return fmt.Sprintf("%s %s–%s %s", days, clockText(w.From), clockText(w.To), in)
}

func consecutive(days []time.Weekday) bool {
	for i := 1; i < len(days); i++ {
		if days[i] != (days[i-1]+1)%7 {
			return false
		}
	}
	return true
}

func clockText(d time.Duration) string {
	return fmt.Sprintf("%02d:%02d", d/time.Hour, d%time.Hour/time.Minute)
}

// Plainly is a duration without zeros at its end: 24h instead of 24h0m0s.
func Plainly(d time.Duration) string {
	s := d.String()
	if rest, ok := strings.CutSuffix(s, "m0s"); ok {
		s = rest + "m"
	}
	if rest, ok := strings.CutSuffix(s, "h0m"); ok {
		s = rest + "h"
	}
	return s
}
