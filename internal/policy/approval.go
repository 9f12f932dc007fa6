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

// Change is a change of what plans of a stack are made from: who made it, as the API server
// stamped it, and its number. The next change has the next number.
type Change struct {
	Number int    `json:"number"`
	By     string `json:"by"`
}

// Requesters are the users who asked for what a plan does. The zero value says that it is
// not known who did.
type Requesters struct {
	Users   []string `json:"users,omitempty"`   // whom the API server stamped
	Unknown string   `json:"unknown,omitempty"` // why another user may have asked for it as well, as a clause
}

// unknown is why it is not known who asked for the plan, "" if it is. A program asks for
// another user, unless the rule names it as a user.
func (r Requesters) unknown(of Approval) string {
	if r.Unknown == "" && len(r.Users) == 0 {
		return "the API server recorded no user who requested the change"
	}
	for _, u := range r.Users {
		if r.Unknown == "" && IsProgram(u) && !slices.Contains(of.Users, u) {
			return "a program changed the object as " + u
		}
	}
	return r.Unknown
}

// Lack is what the approvals of a plan lack of one rule.
type Lack struct {
	Approval Approval
	Need     int      // how many users have to approve
	By       []string // whose approvals count
	Not      []string // which approvals do not count, and why: clauses
	Extra    string   // why one user more is needed than the rule says; a clause, empty if none is
}

// Lacks says what approvals of a plan lack, one for each different rule, and nothing if they
// satisfy all findings that hold the plan. The caller passes only approvals of this plan.
func Lacks(findings []Finding, given []Given, requesters Requesters, now time.Time) []Lack {
	var lacks []Lack
	seen := map[string]bool{}
	for _, f := range With(Hold, findings) {
		var a Approval
		if f.Approval != nil {
			a = *f.Approval
		}
		if l := a.lack(given, requesters, now); !seen[a.key()] && len(l.By) < l.Need {
			lacks = append(lacks, l)
		}
		seen[a.key()] = true
	}
	return lacks
}

// Missing is Lacks as a sentence for the user.
func Missing(findings []Finding, given []Given, requesters Requesters, now time.Time) string {
	var all []string
	for _, l := range Lacks(findings, given, requesters, now) {
		if m := l.String(); !slices.Contains(all, m) {
			all = append(all, m)
		}
	}
	return strings.Join(all, "; ")
}

// Restricted reports whether findings hold a plan until certain users have approved it, or
// until users have lately.
func Restricted(findings []Finding) bool {
	return slices.ContainsFunc(With(Hold, findings), func(f Finding) bool { return f.Approval != nil && (f.Approval.restricted() || f.Approval.Expires > 0) })
}

// lack says what the approvals lack of one rule. Where it is not known who requested the
// change, a rule that leaves out the requester needs one user more: at most one of them is
// the requester.
func (a Approval) lack(given []Given, requesters Requesters, now time.Time) Lack {
	l := Lack{Approval: a, Need: max(1, a.Count)}
	if why := requesters.unknown(a); a.NotRequester && why != "" {
		l.Need, l.Extra = l.Need+1, why
	}
	for _, g := range given {
		who := g.By
		if who == "" {
			who = "an unnamed user"
		}
		switch why := a.refuses(g, requesters, now); {
		case why != "":
			l.Not = append(l.Not, fmt.Sprintf("the approval of %s does not count: %s", who, why))
		case !slices.Contains(l.By, who):
			l.By = append(l.By, who)
		}
	}
	return l
}

// String says what is needed, and what there is of it.
func (l Lack) String() string {
	a := l.Approval
	a.Count = l.Need
	m := "needs " + a.String()
	if l.Extra != "" {
		m += " (one more than the policy says, because it is not known who requested the change: " + l.Extra + ")"
	}
	if len(l.By) > 0 {
		m += fmt.Sprintf(", has %d: of %s", len(l.By), strings.Join(l.By, ", "))
	}
	return strings.Join(append([]string{m}, l.Not...), "; ")
}

// Left says which approvals are needed besides those that there are.
func (l Lack) Left() string {
	a := l.Approval
	a.Count = l.Need - len(l.By)
	return a.String()
}

// refuses says why an approval does not count for the rule, "" if it does.
func (a Approval) refuses(g Given, requesters Requesters, now time.Time) string {
	switch {
	case a.Expires > 0 && (g.At.IsZero() || now.Sub(g.At) >= time.Duration(a.Expires)):
		return "approvals count for " + Plainly(time.Duration(a.Expires))
	case !a.restricted():
		return ""
	case g.By == "":
		return "the API server recorded no user with it, so approve the plan again"
	case a.NotRequester && slices.Contains(requesters.Users, g.By):
		return g.By + " requested the change"
	case len(a.Groups)+len(a.Users) == 0 && IsProgram(g.By):
		return notNamed
	case len(a.Groups)+len(a.Users) == 0 || slices.Contains(a.Users, g.By):
		return ""
	case slices.ContainsFunc(a.Groups, func(group string) bool { return slices.Contains(g.Groups, group) }):
		return ""
	default:
		return "this user is not among those who may approve it"
	}
}

// notNamed is why the approval of a ServiceAccount does not count.
const notNamed = "programs use ServiceAccounts, for a user who is not known. It counts where the policy has this account in users, or a group of it in groups"

// IsProgram reports whether a user of the API server is a ServiceAccount. Programs use one for
// users whom the API server does not know, and who may edit its namespace may use it.
func IsProgram(user string) bool { return strings.HasPrefix(user, "system:serviceaccount:") }

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
		s += ", at most " + Plainly(time.Duration(a.Expires)) + " old"
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
