package policy

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestTheStrictestFindingCounts(t *testing.T) {
	for name, tt := range map[string]struct {
		findings []Finding
		want     Effect
	}{
		"none":                         {nil, ""},
		"allow and warn":               {[]Finding{{Effect: Allow}, {Effect: Warn}}, Warn},
		"deny before hold":             {[]Finding{{Effect: Hold}, {Effect: Deny}, {Effect: Allow}}, Deny},
		"an error is a hold":           {[]Finding{{Effect: Allow, Error: true}}, Hold},
		"an error keeps what is worse": {[]Finding{{Effect: Deny, Error: true}}, Deny},
		"a dry run changes nothing":    {[]Finding{{Effect: Deny, DryRun: true}, {Effect: Allow}}, Allow},
		"an unknown effect holds":      {[]Finding{{Effect: "quarantine"}, {Effect: Warn}}, "quarantine"},
	} {
		if got := Combine(tt.findings); got != tt.want {
			t.Errorf("%s: Combine() = %q, want %q", name, got, tt.want)
		}
	}
	if Effect("quarantine").Compare(Hold) != 0 {
		t.Error("an effect that is not known is not as strict as a hold")
	}
}

// The digest of a verdict is that of what an approver sees, in any order.
func TestDigest(t *testing.T) {
	a := Finding{Policy: "ClusterPolicy/a", Rule: "maxDestroys", Effect: Hold, Message: "3 resources"}
	b := Finding{Policy: "ClusterPolicy/b", Rule: "tags", Effect: Warn, Message: "no owner"}
	dry := Finding{Policy: "ClusterPolicy/c", Rule: "tags", Effect: Deny, Message: "no owner", DryRun: true}
	of := func(f ...Finding) string { return Digest(f) }
	if of(a, b) != of(b, dry, a) {
		t.Error("the order of findings, or a dry run, changes the digest")
	}
	if of(a) == of(a, b) || of() != "" || of(dry) != "" {
		t.Errorf("Digest() = %q, %q, %q", of(a, b), of(), of(dry))
	}
	stricter := a
	stricter.Approval = &Approval{Count: 2}
	if of(a) == of(stricter) {
		t.Error("the digest does not say who has to approve")
	}
	const pinned = "sha256:4487e96e"
	if got := of(a, b); got[:len(pinned)] != pinned {
		t.Errorf("Digest() = %s, want %s…: digests of earlier releases must stay readable", got, pinned)
	}
}

func TestMissing(t *testing.T) {
	now := time.Unix(1e9, 0)
	ann := Given{By: "ann", Groups: []string{"dev"}, At: now.Add(-time.Hour)}
	bob := Given{By: "bob", Groups: []string{"platform"}, At: now.Add(-3 * time.Hour)}
	rule := func(a *Approval) []Finding { return []Finding{{Effect: Hold, Approval: a}} }
	for name, tt := range map[string]struct {
		findings []Finding
		given    []Given
		want     string
	}{
		"no finding holds":               {[]Finding{{Effect: Warn}}, nil, ""},
		"any user":                       {rule(nil), []Given{ann}, ""},
		"no approval":                    {rule(nil), nil, "needs 1 approval"},
		"a dry run asks for none":        {[]Finding{{Effect: Hold, DryRun: true}}, nil, ""},
		"an error asks for one":          {[]Finding{{Effect: Allow, Error: true}}, nil, "needs 1 approval"},
		"two users":                      {rule(&Approval{Count: 2}), []Given{ann, bob}, ""},
		"one user twice":                 {rule(&Approval{Count: 2}), []Given{ann, ann}, "needs 2 approvals, has 1: of ann"},
		"a member of the group":          {rule(&Approval{Groups: []string{"platform"}}), []Given{bob}, ""},
		"a user who is not a member":     {rule(&Approval{Groups: []string{"platform"}}), []Given{ann}, "needs 1 approval by a member of platform; the approval of ann does not count: this user is not among those who may approve it"},
		"a user by name":                 {rule(&Approval{Groups: []string{"platform"}, Users: []string{"ann"}}), []Given{ann}, ""},
		"the requester":                  {rule(&Approval{NotRequester: true}), []Given{{By: "req", At: now}}, "needs 1 approval, not by the user who requested the change; the approval of req does not count: req requested the change"},
		"another than the requester":     {rule(&Approval{NotRequester: true}), []Given{ann}, ""},
		"an approval that expired":       {rule(&Approval{Expires: Duration(2 * time.Hour)}), []Given{bob}, "needs 1 approval, at most 2h old; the approval of bob does not count: approvals count for 2h"},
		"an approval without a user":     {rule(&Approval{Count: 2}), []Given{{At: now}, bob}, "needs 2 approvals, has 1: of bob; the approval of an unnamed user does not count: the API server recorded no user with it, so approve the plan again"},
		"any user, and none is recorded": {rule(nil), []Given{{}}, ""},
	} {
		if got := Missing(tt.findings, tt.given, Requesters{Users: []string{"req"}}, now); got != tt.want {
			t.Errorf("%s: Missing() = %q, want %q", name, got, tt.want)
		}
	}
}

// Where it is not known who requested the change, one of the users who approve may have. So one
// more is needed than the policy says.
func TestAnUnknownRequester(t *testing.T) {
	ann, bob, eve := Given{By: "ann"}, Given{By: "bob"}, Given{By: "eve"}
	one := []Finding{{Effect: Hold, Approval: &Approval{NotRequester: true}}}
	for name, tt := range map[string]struct {
		given []Given
		of    Requesters
		want  string
	}{
		"one user, and it is known":       {[]Given{ann}, Requesters{Users: []string{"bob"}}, ""},
		"one user, and nothing is known":  {[]Given{ann}, Requesters{}, "needs 2 approvals, not by the user who requested the change (one more than the policy says, because it is not known who requested the change: the API server recorded no user who requested the change), has 1: of ann"},
		"two users, and nothing is known": {[]Given{ann, bob}, Requesters{}, ""},
		"one of two is known":             {[]Given{ann, bob}, Requesters{Users: []string{"bob"}, Unknown: "the source changed"}, "needs 2 approvals, not by the user who requested the change (one more than the policy says, because it is not known who requested the change: the source changed), has 1: of ann; the approval of bob does not count: bob requested the change"},
		"two others":                      {[]Given{ann, bob, eve}, Requesters{Users: []string{"bob"}, Unknown: "the source changed"}, ""},
		"any of several requesters":       {[]Given{ann, bob}, Requesters{Users: []string{"ann", "bob"}}, "needs 1 approval, not by the user who requested the change; the approval of ann does not count: ann requested the change; the approval of bob does not count: bob requested the change"},
	} {
		if got := Missing(one, tt.given, tt.of, time.Unix(1e9, 0)); got != tt.want {
			t.Errorf("%s: Missing() = %q, want %q", name, got, tt.want)
		}
	}
	if got := Missing([]Finding{{Effect: Hold, Approval: &Approval{Count: 2}}}, []Given{ann, bob}, Requesters{}, time.Unix(1e9, 0)); got != "" {
		t.Errorf("Missing() = %q of a rule that does not ask for the requester", got)
	}
}

// The status of a stack has at most so many findings, and never a plan that passes because an
// approval has no room there.
func TestFindingsHaveABound(t *testing.T) {
	asking := func(approvals, each int) []Finding {
		var all []Finding
		for i := range approvals {
			for j := range each {
				all = append(all, Finding{Policy: "Policy/a/b", Rule: fmt.Sprint("r", i, "-", j), Effect: Hold, Approval: &Approval{Users: []string{fmt.Sprint("u", i)}}})
			}
		}
		return all
	}
	few := asking(ApprovalsKept, 10)
	kept, more := Keep(few)
	if len(kept) != FindingsKept || more != len(few)-FindingsKept {
		t.Errorf("Keep() = %d findings and %d more", len(kept), more)
	}
	if lacks := Lacks(kept, nil, Requesters{}, time.Time{}); len(lacks) != ApprovalsKept {
		t.Errorf("%d approvals are asked for in what is kept, want %d", len(lacks), ApprovalsKept)
	}
	if got := Bounded(few); len(got) != len(few) {
		t.Errorf("Bounded() adds %d findings to ones that have room", len(got)-len(few))
	}
	many := Bounded(asking(5000, 1))
	if Combine(many) != Deny {
		t.Errorf("Combine() = %q of more approvals than have room, want them denied", Combine(many))
	}
	kept, more = Keep(many)
	if len(kept) != FindingsKept || more != len(many)-FindingsKept || kept[0].Effect != Deny || !strings.Contains(kept[0].Message, "5000 different approvals") {
		t.Errorf("Keep() = %d findings and %d more, the first %+v", len(kept), more, kept[0])
	}
}

func TestAddressesAreCut(t *testing.T) {
	var all []string
	for i := range 12 {
		all = append(all, string(rune('a'+i)))
	}
	if f := (Finding{}).At(all...); len(f.Addresses) != AddressesKept || f.More != 2 {
		t.Errorf("At() = %d addresses and %d more, want 10 and 2", len(f.Addresses), f.More)
	}
}

func TestDurationIsText(t *testing.T) {
	want := Approval{Expires: Duration(36 * time.Hour)}
	b, err := json.Marshal(want)
	if err != nil {
		t.Fatal(err)
	}
	var got Approval
	if err := json.Unmarshal(b, &got); err != nil || string(b) != `{"expires":"36h0m0s"}` {
		t.Errorf("Marshal() = %s, Unmarshal() = %v", b, err)
	}
	if d := cmp.Diff(got, want); d != "" {
		t.Error(d)
	}
	if err := json.Unmarshal([]byte(`{"expires":5}`), &got); err == nil {
		t.Error("Unmarshal() takes a number")
	}
}
