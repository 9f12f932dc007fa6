package policy

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"
)

// Approval is who has to approve what a policy holds. The zero value is one approval by
// any user who may approve plans.
type Approval struct {
	Count        int      `json:"count,omitempty"`        // how many users; 0 is one
	Groups       []string `json:"groups,omitempty"`       // each of them is a member of one of these
	Users        []string `json:"users,omitempty"`        // or is one of these
	NotRequester bool     `json:"notRequester,omitempty"` // none of them asked for the change
	Expires      Duration `json:"expires,omitempty"`      // an older approval counts no more; 0 is never
}

// Given is one approval: of which plan, by whom, and when, as the API server stamped it.
type Given struct {
	Plan   string    `json:"plan"` // the name or digest that was approved
	By     string    `json:"by,omitempty"`
	Groups []string  `json:"groups,omitempty"`
	At     time.Time `json:"at,omitzero"`
}

// Missing says what the approvals of a plan lack, as a sentence for the user, and is
// empty if they satisfy all findings that hold the plan. The caller passes only approvals
// of this plan.
func Missing(findings []Finding, given []Given, requester string, now time.Time) string {
	var lacks []string
	for _, f := range With(Hold, findings) {
		var a Approval
		if f.Approval != nil {
			a = *f.Approval
		}
		if m := a.missing(given, requester, now); m != "" && !slices.Contains(lacks, m) {
			lacks = append(lacks, m)
		}
	}
	return strings.Join(lacks, "; ")
}

// Restricted reports whether findings hold a plan until certain users have approved it.
func Restricted(findings []Finding) bool {
	return slices.ContainsFunc(With(Hold, findings), func(f Finding) bool { return f.Approval != nil && (f.Approval.restricted() || f.Approval.Expires > 0) })
}

// missing says what the approvals lack of one rule.
func (a Approval) missing(given []Given, requester string, now time.Time) string {
	var by, not []string
	for _, g := range given {
		who := g.By
		if who == "" {
			who = "an unnamed user"
		}
		switch why := a.refuses(g, requester, now); {
		case why != "":
			not = append(not, fmt.Sprintf("the approval of %s does not count: %s", who, why))
		case !slices.Contains(by, who):
			by = append(by, who)
		}
	}
	need := max(1, a.Count)
	if len(by) >= need {
		return ""
	}
	m := "needs " + a.String()
	if len(by) > 0 {
		m += fmt.Sprintf(", has %d: of %s", len(by), strings.Join(by, ", "))
	}
	return strings.Join(append([]string{m}, not...), "; ")
}

// refuses says why an approval does not count for the rule, "" if it does.
func (a Approval) refuses(g Given, requester string, now time.Time) string {
	switch {
	case a.Expires > 0 && (g.At.IsZero() || now.Sub(g.At) >= time.Duration(a.Expires)):
		return "approvals count for " + plainly(time.Duration(a.Expires))
	case !a.restricted():
		return ""
	case g.By == "":
		return "the API server recorded no user"
	case a.NotRequester && g.By == requester:
		return g.By + " requested the change"
	case a.NotRequester && requester == "":
		return "the API server recorded no user who requested the change"
	case len(a.Groups)+len(a.Users) == 0 || slices.Contains(a.Users, g.By):
		return ""
	case slices.ContainsFunc(a.Groups, func(group string) bool { return slices.Contains(g.Groups, group) }):
		return ""
	default:
		return "this user is not among those who may approve it"
	}
}

// key is the same for the same rule.
func (a Approval) key() string {
	if a.Count == 1 {
		a.Count = 0 // the same
	}
	return fmt.Sprintf("%+v", a)
}

// restricted reports whether it matters who approves.
func (a Approval) restricted() bool {
	return a.NotRequester || len(a.Groups)+len(a.Users) > 0 || a.Count > 1
}

// String says who has to approve: "2 approvals by members of platform-admins".
func (a Approval) String() string {
	s := Count(max(1, a.Count), "approval")
	var who []string
	if len(a.Groups) > 0 {
		who = append(who, "a member of "+strings.Join(a.Groups, " or "))
	}
	if len(a.Users) > 0 {
		who = append(who, strings.Join(a.Users, " or "))
	}
	if len(who) > 0 {
		s += " by " + strings.Join(who, " or by ")
	}
	if a.NotRequester {
		s += ", not by the user who requested the change"
	}
	if a.Expires > 0 {
		s += ", at most " + plainly(time.Duration(a.Expires)) + " old"
	}
	return s
}

// Duration is a time.Duration that JSON has as text: "36h".
type Duration time.Duration

// MarshalJSON writes the duration as text.
func (d Duration) MarshalJSON() ([]byte, error) { return json.Marshal(time.Duration(d).String()) }

// UnmarshalJSON reads the duration from text.
func (d *Duration) UnmarshalJSON(b []byte) error {
	var s string
	if err := json.Unmarshal(b, &s); err != nil {
		return fmt.Errorf("reading a duration: want text as %q", "36h")
	}
	v, err := time.ParseDuration(s)
	if err != nil {
		return fmt.Errorf("reading a duration: %w", err)
	}
	*d = Duration(v)
	return nil
}
