package policies

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/agext/levenshtein"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/terrier-iac/terrier/api/policy/v1alpha1"
	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/policy"
	"github.com/terrier-iac/terrier/internal/policy/guard"
	"github.com/terrier-iac/terrier/internal/policyapi"
	"github.com/terrier-iac/terrier/internal/stack"
)

// The guards that a stack has in its own annotations: guard.terrier.dev/maxDestroys: "0".

// Bounds of one annotation, those of the definition of a policy: a stack is read often.
const (
	ownTimesMost     = 50  // windows, and freezes
	ownProtectedMost = 100 // patterns
)

// parts are the entries of a list with commas between them; nil if there are more than most.
func parts(list string, most int) []string {
	if strings.Count(list, ",") >= most {
		return nil
	}
	return strings.Split(list, ",")
}

// ownGuard reads one annotation into guards.
type ownGuard struct {
	may  string // what its value may be
	read func(g *v1alpha1.Guards, value string) bool
}

func count(into func(*v1alpha1.Guards) **int32) ownGuard {
	return ownGuard{`a number, as "0"`, func(g *v1alpha1.Guards, v string) bool {
		n, err := strconv.ParseInt(v, 10, 32)
		if err != nil || n < 0 {
			return false
		}
		*into(g) = new(int32(n))
		return true
	}}
}

func age(into func(*v1alpha1.Guards) **metav1.Duration) ownGuard {
	return ownGuard{`a duration, as "24h"`, func(g *v1alpha1.Guards, v string) bool {
		d, err := time.ParseDuration(v)
		if err != nil || d <= 0 {
			return false
		}
		*into(g) = &metav1.Duration{Duration: d}
		return true
	}}
}

// ownGuards names every guard that an annotation may have.
var ownGuardsByName = map[string]ownGuard{
	policy.MaxDestroys:        count(func(g *v1alpha1.Guards) **int32 { return &g.MaxDestroys }),
	policy.MaxReplaces:        count(func(g *v1alpha1.Guards) **int32 { return &g.MaxReplaces }),
	policy.MaxDestroysPerHour: count(func(g *v1alpha1.Guards) **int32 { return &g.MaxDestroysPerHour }),
	policy.MinSourceAge:       age(func(g *v1alpha1.Guards) **metav1.Duration { return &g.MinSourceAge }),
	policy.MaxPlanAge:         age(func(g *v1alpha1.Guards) **metav1.Duration { return &g.MaxPlanAge }),
	policy.MaxDestroyedShare: {`a share, as "20%"`, func(g *v1alpha1.Guards, v string) bool {
		_, err := policyapi.Percent(v)
		g.MaxDestroyedShare = v
		return err == nil
	}},
	policy.ProtectedGuard: {`at most 100 patterns of types or addresses with commas, as "aws_db_*,module.network.*"`, func(g *v1alpha1.Guards, v string) bool {
		for _, pattern := range parts(v, ownProtectedMost) {
			if pattern = strings.TrimSpace(pattern); pattern == "" {
				return false
			}
			// A type has no dot, and an address has one.
			if strings.Contains(pattern, ".") {
				g.Protected = append(g.Protected, v1alpha1.Protected{Addresses: []string{pattern}})
			} else {
				g.Protected = append(g.Protected, v1alpha1.Protected{Types: []string{pattern}})
			}
		}
		return len(g.Protected) > 0
	}},
	policy.SignedSourceGuard: {`"true"; fingerprints of keys are for a Policy`, func(g *v1alpha1.Guards, v string) bool {
		g.RequireSignedSource = &v1alpha1.SignedSource{}
		return v == "true"
	}},
	policy.WindowsGuard: {`at most 50 windows with commas, as "Mon-Fri 08:00-18:00 Europe/Berlin"`, func(g *v1alpha1.Guards, v string) bool {
		for _, text := range parts(v, ownTimesMost) {
			w, ok := ownWindow(strings.Fields(text))
			if !ok {
				return false
			}
			g.Windows = append(g.Windows, w)
		}
		return len(g.Windows) > 0
	}},
	policy.FreezesGuard: {`two times with a slash, as "2026-12-20T00:00:00Z/2027-01-03T00:00:00Z", at most 50 of them with commas`, func(g *v1alpha1.Guards, v string) bool {
		for _, text := range parts(v, ownTimesMost) {
			from, to, ok := strings.Cut(strings.TrimSpace(text), "/")
			a, err := time.Parse(time.RFC3339, from)
			b, berr := time.Parse(time.RFC3339, to)
			if !ok || err != nil || berr != nil || !a.Before(b) {
				return false
			}
			g.Freezes = append(g.Freezes, v1alpha1.Freeze{From: metav1.NewTime(a), To: metav1.NewTime(b)})
		}
		return len(g.Freezes) > 0
	}},
	"effect": {"Hold or Deny", func(g *v1alpha1.Guards, v string) bool {
		g.Effect = v
		return v == "Hold" || v == "Deny"
	}},
}

// ownWindow reads DAYS FROM-TO ZONE, of which the first and the last may be missing.
func ownWindow(words []string) (v1alpha1.Window, bool) {
	var w v1alpha1.Window
	if len(words) > 0 && !strings.Contains(words[0], ":") {
		first, last, isRange := strings.Cut(words[0], "-")
		from, ok := days[v1alpha1.Day(first)]
		to, known := days[v1alpha1.Day(last)]
		if !ok || isRange && !known {
			return w, false
		}
		if !isRange {
			to = from
		}
		for d := from; ; d = (d + 1) % 7 {
			w.Days = append(w.Days, v1alpha1.Day(d.String()[:3]))
			if d == to {
				break
			}
		}
		words = words[1:]
	}
	if len(words) == 0 || len(words) > 2 {
		return w, false
	}
	w.From, w.To, _ = strings.Cut(words[0], "-")
	if len(words) == 2 {
		w.TimeZone = words[1]
	}
	_, err := windowOf(w)
	return w, err == nil
}

// OwnGuards names the annotations of an object that should be guards and cannot be read,
// and what they may be. It is empty if there are none.
func OwnGuards(notes map[string]string) []string {
	_, wrong := readOwn(notes)
	if _, err := ownDrift(notes); err != nil {
		wrong = append(wrong, err.Error())
	}
	return wrong
}

// ownDrift are the rules for drift of a stack's own, none if it has none.
func ownDrift(notes map[string]string) (policy.Drift, error) {
	text := notes[v1alpha1.TolerateDrift]
	if strings.TrimSpace(text) == "" {
		return policy.Drift{}, nil
	}
	tolerate, err := policyapi.ParseTolerances(policy.DriftAnnotation, text)
	if err != nil {
		return policy.Drift{}, fmt.Errorf("the annotation %s%w", v1alpha1.TolerateDrift, err)
	}
	return policy.Drift{Tolerate: tolerate}, nil
}

func readOwn(notes map[string]string) (*v1alpha1.Guards, []string) {
	var g *v1alpha1.Guards
	var wrong []string
	for _, name := range slices.Sorted(maps.Keys(notes)) {
		guard, ok := strings.CutPrefix(name, v1alpha1.GuardPrefix)
		if !ok {
			continue
		}
		if g == nil {
			g = &v1alpha1.Guards{}
		}
		switch read, known := ownGuardsByName[guard]; {
		case !known:
			wrong = append(wrong, fmt.Sprintf("the annotation %s is no guard; %s", name, mayBe(guard)))
		case !read.read(g, notes[name]):
			wrong = append(wrong, fmt.Sprintf("the annotation %s is %.80q; it may be %s", name, notes[name], read.may))
		}
	}
	return g, wrong
}

// mayBe names the guard that was meant, or all of them.
func mayBe(name string) string {
	all := slices.Sorted(maps.Keys(ownGuardsByName))
	for _, known := range all {
		if levenshtein.Distance(strings.ToLower(name), strings.ToLower(known), nil) <= 2 {
			return "it may be " + v1alpha1.GuardPrefix + known
		}
	}
	return "guards are " + strings.Join(all, ", ")
}

// ownGuards are the guards of a stack's own. Its error is Invalid, and names the annotation.
func ownGuards(obj client.Object) (*compiled, error) {
	g, wrong := readOwn(obj.GetAnnotations())
	drift, err := ownDrift(obj.GetAnnotations())
	if err != nil && g == nil {
		return nil, fault.New(fault.Invalid, string(stack.SpecInvalid), err)
	}
	if err != nil {
		wrong = append(wrong, err.Error())
	}
	if g == nil {
		if len(drift.Tolerate) == 0 {
			return nil, nil
		}
		g = &v1alpha1.Guards{}
	}
	c := &compiled{source: guard.Source{Policy: policy.OwnGuards}, owner: true, drift: drift}
	if c.guards, err = policyapi.Guards(g); err == nil {
		c.times, err = timesOf(policy.OwnGuards, g)
		c.times.MayOverride(&policy.Approval{})
	}
	if len(wrong) > 0 {
		c.broken = strings.Join(wrong, ", and ") // a deletion is held as well
		err = fault.New(fault.Invalid, string(stack.SpecInvalid), errors.New(c.broken))
	}
	c.digest = stack.Digest([]any{c.guards, c.broken})
	return c, err
}
