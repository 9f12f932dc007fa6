package review

import (
	"context"
	"errors"
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/plan"
	"github.com/terrier-iac/terrier/internal/policy"
	"github.com/terrier-iac/terrier/internal/stack"
)

type always struct{ Answer }

func (*always) Sees() Document { return Masked }

func (a *always) Review(context.Context, *Plan) (Answer, error) { return a.Answer, nil }

func TestPoliciesJoinTheWebhooksOfTheObject(t *testing.T) {
	if got := Digest("sha256:own", ""); got != "sha256:own" || Digest("", "") != "" {
		t.Errorf("Digest() = %q without a policy, want that of the object", got)
	}
	if Digest("", "1") == "" || Digest("", "1") == Digest("sha256:own", "1") || Digest("", "1") == Digest("", "2") {
		t.Errorf("Digest() = %q, %q, %q; want three", Digest("", "1"), Digest("sha256:own", "1"), Digest("", "2"))
	}
	no := &always{Answer{Outcome: Refuse, Why: "no"}}
	all := Reviewers{}.Of(stack.Configuration{Webhooks: []stack.Webhook{{Field: "spec.webhooks[0]", URL: "https://example.com"}}}, no)
	if len(all) != 2 || all[0] != Reviewer(no) {
		t.Errorf("Of() = %+v, want the policies and then the webhook", all)
	}
}

// What policies find is kept whole beside the plan, and as much of it as fits in the
// status. Secrets are in neither.
func TestFindings(t *testing.T) {
	var many []policy.Finding
	for range policy.FindingsKept + 3 {
		many = append(many, policy.Finding{Policy: "ClusterPolicy/p", Rule: "r", Effect: policy.Warn, Message: "the password is hunter2-hunter2"})
	}
	two := policy.Finding{Policy: "ClusterPolicy/q", Rule: "s", Effect: policy.Hold, Message: "held", Approval: &policy.Approval{Count: 2}}
	p := &Plan{Digest: "sha256:d", Open: func(context.Context, Document) (io.ReadCloser, error) {
		return io.NopCloser(strings.NewReader(`{}`)), nil
	}}
	ask := func(answers ...Answer) Reply {
		var rs []Reviewer
		for _, a := range answers {
			rs = append(rs, &always{a})
		}
		return Ask(t.Context(), Question{Plan: p, By: "w", Reviewers: rs, Hide: plan.NewRedactor([]string{"hunter2-hunter2"})}, time.Now)
	}
	judges := []policy.Judge{{Policy: "ClusterPolicy/p", Digest: "1"}}
	r := ask(Answer{Outcome: Hold, Why: "held", Findings: append(many, two), Policies: judges, Input: "sha256:i"}, Answer{})
	v := r.Verdict
	if !v.Held || v.Digest == "" || v.Allowed || len(v.Findings) != policy.FindingsKept || v.More != 4 || v.Findings[0].Approval == nil {
		t.Errorf("Ask() = %+v, want a hold, and the hold first", v)
	}
	if r.Judged == nil || len(r.Judged.Findings) != policy.FindingsKept+4 || r.Judged.Input != "sha256:i" || r.Judged.Plan != "sha256:d" || !r.Judged.At.Equal(v.At) {
		t.Errorf("Ask() keeps %+v, want all findings", r.Judged)
	}
	for _, f := range r.Judged.Findings {
		if strings.Contains(f.Message, "hunter2") {
			t.Fatalf("a finding shows a secret: %s", f.Message)
		}
	}
	allow := Answer{Findings: []policy.Finding{{Policy: "ClusterPolicy/p", Rule: "r", Effect: policy.Allow}}, Policies: judges}
	if v := ask(allow, Answer{}).Verdict; !v.Allowed || !v.Passed {
		t.Errorf("Ask() = %+v, want the plan to be allowed", v)
	}
	if v := ask(allow, Answer{Outcome: Hold, Why: "look"}).Verdict; v.Allowed || !v.Held {
		t.Errorf("Ask() = %+v, want a webhook to hold what a policy allows", v)
	}
	if r := ask(Answer{}); r.Judged != nil || r.Verdict.Digest != "" {
		t.Errorf("Ask() = %+v without policies, want no record of them", r)
	}
}

// reading is a policy that reads the document of the plan.
type reading struct{ sees Document }

func (p reading) Sees() Document { return p.sees }

func (p reading) Review(ctx context.Context, plan *Plan) (Answer, error) {
	_, err := plan.Document(ctx)
	return Answer{}, err
}

// A stack says what its webhooks see, and no policy. What a reviewer sees is kept, or its
// plan would be made again without end.
func TestEachReviewerSaysWhatItSees(t *testing.T) {
	hook := answering(t, `{"passed":true}`)
	for name, tt := range map[string]struct {
		allowed bool
		of      stack.Configuration
		want    []Document
	}{
		"masked":                            {of: stack.Configuration{Webhooks: []stack.Webhook{hook}}, want: []Document{Masked, Masked}},
		"an unmasked webhook":               {allowed: true, of: stack.Configuration{Webhooks: []stack.Webhook{hook}, Unmasked: true}, want: []Document{Masked, Unmasked}},
		"the annotation without webhooks":   {of: stack.Configuration{Unmasked: true}, want: []Document{Masked}},
		"the platform forbids the webhooks": {of: stack.Configuration{Webhooks: []stack.Webhook{hook}, Unmasked: true}, want: []Document{Masked, Masked}},
	} {
		t.Run(name, func(t *testing.T) {
			webhooks := reviewer(t, "127.0.0.1").Webhooks
			webhooks.Unmasked = tt.allowed
			rs := Reviewers{Webhooks: webhooks}
			var opened []Document
			p := &Plan{Digest: "sha256:d", Open: func(_ context.Context, d Document) (io.ReadCloser, error) {
				opened = append(opened, d)
				if d != Masked && !rs.Sees(tt.of, d) {
					return nil, fault.New(fault.Missing, "", errors.New(string(d)+" was not kept"))
				}
				return io.NopCloser(strings.NewReader(`{}`)), nil
			}}
			r := Ask(t.Context(), Question{Plan: p, Reviewers: rs.Of(tt.of, reading{Masked}), Hide: plan.NewRedactor(nil)}, time.Now)
			if !slices.Equal(opened, tt.want) || r.Lost != nil || !r.Verdict.Passed {
				t.Errorf("the reviewers saw %q and gave %+v, want %q and a pass", opened, r, tt.want)
			}
		})
	}
}

func TestAPlanThatAPolicyCannotReadIsLost(t *testing.T) {
	gone := fault.New(fault.Missing, "", errors.New("no such record"))
	p := &Plan{Digest: "sha256:d", Open: func(context.Context, Document) (io.ReadCloser, error) { return nil, gone }}
	r := Ask(t.Context(), Question{Plan: p, Reviewers: []Reviewer{reading{Masked}}, Hide: plan.NewRedactor(nil)}, time.Now)
	if !errors.Is(r.Lost, gone) {
		t.Errorf("Ask() = %+v, want the plan to be lost", r)
	}
}
