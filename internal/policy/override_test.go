package policy

import (
	"slices"
	"strings"
	"testing"
	"time"
)

// Users may have one plan applied at a time at which policies apply none, as far as each of
// these policies lets them.
func TestOverrides(t *testing.T) {
	now := time.Date(2026, 1, 5, 12, 0, 0, 0, time.UTC)
	freeze := func(a *Approval) Freeze {
		return Freeze{Policy: "ClusterPolicy/f", From: now.Add(-time.Hour), To: now.Add(time.Hour), Override: a}
	}
	closed := func(a *Approval) Windows {
		return Windows{Policy: "ClusterPolicy/w", Any: []Window{{From: 20 * time.Hour, To: 21 * time.Hour}}, Override: a}
	}
	ann, bob := Given{Plan: "p1", By: "ann", Groups: []string{"ops"}, At: now}, Given{Plan: "p1", By: "bob", At: now.Add(-2 * time.Hour)}
	robot := Given{Plan: "p1", By: "system:serviceaccount:team-a:robot", Groups: []string{"system:serviceaccounts"}, At: now}
	any := &Approval{}
	for name, tt := range map[string]struct {
		times      Times
		given      []Given
		requesters Requesters
		withheld   string // the rule
		lacks      string
		may        bool
	}{
		"no user":                           {Times{Freezes: []Freeze{freeze(any)}}, nil, Requesters{}, FreezesGuard, "needs 1 approval", true},
		"any user":                          {Times{Freezes: []Freeze{freeze(any)}}, []Given{bob}, Requesters{}, "", "", true},
		"a policy that lets no user":        {Times{Freezes: []Freeze{freeze(nil)}}, []Given{ann}, Requesters{}, FreezesGuard, "", false},
		"two policies, one of them lets no": {Times{Freezes: []Freeze{freeze(any)}, Windows: []Windows{closed(nil)}}, []Given{ann}, Requesters{}, WindowsGuard, "", false},
		"two policies":                      {Times{Freezes: []Freeze{freeze(any)}, Windows: []Windows{closed(&Approval{Groups: []string{"ops"}})}}, []Given{ann}, Requesters{}, "", "", true},
		"another group":                     {Times{Windows: []Windows{closed(&Approval{Groups: []string{"ops"}})}}, []Given{bob}, Requesters{}, WindowsGuard, "needs 1 approval by a member of ops; the approval of bob does not count: this user is not among those who may approve it", true},
		"two users, one so far":             {Times{Freezes: []Freeze{freeze(&Approval{Count: 2})}}, []Given{ann}, Requesters{}, FreezesGuard, "needs 2 approvals, has 1: of ann", true},
		"two users":                         {Times{Freezes: []Freeze{freeze(&Approval{Count: 2})}}, []Given{ann, bob}, Requesters{}, "", "", true},
		"the requester":                     {Times{Freezes: []Freeze{freeze(&Approval{NotRequester: true})}}, []Given{ann}, Requesters{Users: []string{"ann"}}, FreezesGuard, "ann requested the change", true},
		"a requester who is not known":      {Times{Freezes: []Freeze{freeze(&Approval{NotRequester: true})}}, []Given{ann}, Requesters{Users: []string{"eve"}, Unknown: "the source changed"}, FreezesGuard, "needs 2 approvals", true},
		"a program, for a user unknown":     {Times{Freezes: []Freeze{freeze(&Approval{NotRequester: true})}}, []Given{robot}, Requesters{Users: []string{"ann"}}, FreezesGuard, "programs use ServiceAccounts", true},
		"a program, where any user may":     {Times{Freezes: []Freeze{freeze(any)}}, []Given{robot}, Requesters{}, FreezesGuard, "needs 1 approval; the approval of system:serviceaccount:team-a:robot does not count", true},
		"a program that is named":           {Times{Freezes: []Freeze{freeze(&Approval{Users: []string{robot.By}})}}, []Given{robot}, Requesters{}, "", "", true},
		"one that came too early":           {Times{Freezes: []Freeze{freeze(&Approval{Expires: Duration(time.Hour)})}}, []Given{bob}, Requesters{}, FreezesGuard, "approvals count for 1h", true},
		"a source that is too young":        {Times{Freezes: []Freeze{freeze(any)}, SourceAge: []Age{{Policy: "p", Age: 24 * time.Hour}}}, []Given{ann}, Requesters{}, MinSourceAge, "", false},
		"nothing to override":               {Times{Freezes: []Freeze{{From: now.Add(time.Hour), To: now.Add(2 * time.Hour), Override: any}}}, []Given{ann}, Requesters{}, "", "", false},
	} {
		t.Run(name, func(t *testing.T) {
			by := Overrides{tt.given, tt.requesters}
			sourceAt := now.Add(-time.Hour)
			before := len(tt.times.Freezes) + len(tt.times.Windows)
			if w := tt.times.Overridden(now, by).Withhold(now, sourceAt); w.Rule != tt.withheld {
				t.Errorf("Withhold() = %+v, want the rule %q", w, tt.withheld)
			}
			if len(tt.times.Freezes)+len(tt.times.Windows) != before {
				t.Error("Overridden() changed the times of the policies")
			}
			lacks, may := tt.times.Overridable(now, sourceAt, by)
			var text []string
			for _, l := range lacks {
				text = append(text, l.String())
			}
			if may != tt.may || may && !strings.Contains(strings.Join(text, "; "), tt.lacks) || may && tt.lacks == "" && len(lacks) > 0 {
				t.Errorf("Overridable() = %q, %t, want %q, %t", text, may, tt.lacks, tt.may)
			}
		})
	}
}

// Whom a program changes an object for is not known. A rule may name the program as a user.
func TestAProgramRequests(t *testing.T) {
	const flux = "system:serviceaccount:flux-system:kustomize-controller"
	for name, tt := range map[string]struct {
		rule Approval
		of   Requesters
		need int
	}{
		"a user":                   {Approval{NotRequester: true}, Requesters{Users: []string{"eve"}}, 1},
		"a program":                {Approval{NotRequester: true}, Requesters{Users: []string{"eve", flux}}, 2},
		"a program that is a user": {Approval{NotRequester: true, Users: []string{flux, "ann"}}, Requesters{Users: []string{flux}}, 1},
		"whoever it is":            {Approval{}, Requesters{Users: []string{flux}}, 1},
	} {
		if l := tt.rule.lack(nil, tt.of, time.Now()); l.Need != tt.need {
			t.Errorf("%s: %d approvals are needed, want %d: %s", name, l.Need, tt.need, l)
		}
	}
}

// A ServiceAccount is used by programs, and by each user who may edit its namespace. So it is
// no second user, unless the policy names it.
func TestServiceAccountsApprove(t *testing.T) {
	robot := Given{Plan: "p1", By: "system:serviceaccount:team-a:robot", Groups: []string{"system:serviceaccounts", "system:serviceaccounts:team-a"}}
	ann := Given{Plan: "p1", By: "ann"}
	for name, tt := range map[string]struct {
		rule   Approval
		counts bool
	}{
		"any user of a plan":           {Approval{}, true},
		"one of two users":             {Approval{Count: 2}, false},
		"a user who is no requester":   {Approval{NotRequester: true}, false},
		"named":                        {Approval{Count: 2, Users: []string{robot.By}}, true},
		"of a group that is named":     {Approval{Count: 2, Groups: []string{"system:serviceaccounts:team-a"}}, true},
		"of no group that is named":    {Approval{Groups: []string{"ops"}}, false},
		"named, and it is a requester": {Approval{NotRequester: true, Users: []string{robot.By}}, false},
	} {
		t.Run(name, func(t *testing.T) {
			requesters := Requesters{Users: []string{"eve"}}
			if tt.rule.NotRequester && len(tt.rule.Users) > 0 {
				requesters.Users = append(requesters.Users, robot.By)
			}
			l := tt.rule.lack([]Given{robot, ann}, requesters, time.Now())
			if got := slices.Contains(l.By, robot.By); got != tt.counts {
				t.Errorf("the approval of the ServiceAccount counts: %t, want %t: %s", got, tt.counts, l)
			}
		})
	}
}
