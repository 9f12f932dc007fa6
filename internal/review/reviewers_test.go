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
	"github.com/terrier-iac/terrier/internal/stack"
)

type always struct{ Answer }

func (always) Sees() Document { return Masked }

func (a always) Review(context.Context, *Plan) (Answer, error) { return a.Answer, nil }

func TestTheOperatorsReviewersJoinThoseOfTheObject(t *testing.T) {
	none := Reviewers{}
	if got := none.Digest("sha256:own"); got != "sha256:own" || none.Digest("") != "" {
		t.Errorf("Digest() = %q without a reviewer of the operator, want that of the object", got)
	}
	one := Reviewers{Operator: []Operator{{Version: "1", Reviewer: always{Answer{Refuse, "no"}}}}}
	two := Reviewers{Operator: []Operator{{Version: "2", Reviewer: always{Answer{Refuse, "no"}}}}}
	if one.Digest("") == "" || one.Digest("") == one.Digest("sha256:own") || one.Digest("") == two.Digest("") {
		t.Errorf("Digest() = %q, %q, %q; want three", one.Digest(""), one.Digest("sha256:own"), two.Digest(""))
	}
	all := one.Of(stack.Configuration{Webhooks: []stack.Webhook{{Field: "spec.webhooks[0]", URL: "https://example.com"}}})
	if len(all) != 2 || all[1] != Reviewer(always{Answer{Refuse, "no"}}) {
		t.Errorf("Of() = %+v, want the webhook and then the reviewer of the operator", all)
	}
}

// policy is a reviewer of the operator that reads the document of the plan.
type policy struct{ sees Document }

func (p policy) Sees() Document { return p.sees }

func (p policy) Review(ctx context.Context, plan *Plan) (Answer, error) {
	_, err := plan.Document(ctx)
	return Answer{}, err
}

// A stack says what its webhooks see, and no other reviewer. What a reviewer sees is
// kept, or its plan would be made again without end.
func TestEachReviewerSaysWhatItSees(t *testing.T) {
	hook := answering(t, `{"passed":true}`)
	for name, tt := range map[string]struct {
		allowed bool
		of      stack.Configuration
		policy  Document
		want    []Document
	}{
		"masked":                            {of: stack.Configuration{Webhooks: []stack.Webhook{hook}}, policy: Masked, want: []Document{Masked, Masked}},
		"an unmasked webhook":               {allowed: true, of: stack.Configuration{Webhooks: []stack.Webhook{hook}, Unmasked: true}, policy: Masked, want: []Document{Unmasked, Masked}},
		"the annotation without webhooks":   {of: stack.Configuration{Unmasked: true}, policy: Masked, want: []Document{Masked}},
		"an unmasked policy":                {of: stack.Configuration{Webhooks: []stack.Webhook{hook}}, policy: Unmasked, want: []Document{Masked, Unmasked}},
		"the platform forbids the webhooks": {of: stack.Configuration{Webhooks: []stack.Webhook{hook}, Unmasked: true}, policy: Masked, want: []Document{Masked, Masked}},
	} {
		t.Run(name, func(t *testing.T) {
			webhooks := reviewer(t, "127.0.0.1").Webhooks
			webhooks.Unmasked = tt.allowed
			rs := Reviewers{Webhooks: webhooks, Operator: []Operator{{Version: "1", Reviewer: policy{tt.policy}}}}
			var opened []Document
			p := &Plan{Digest: "sha256:d", Open: func(_ context.Context, d Document) (io.ReadCloser, error) {
				opened = append(opened, d)
				if d != Masked && !rs.Sees(tt.of, d) {
					return nil, fault.New(fault.Missing, "", errors.New(string(d)+" was not kept"))
				}
				return io.NopCloser(strings.NewReader(`{}`)), nil
			}}
			r := Ask(t.Context(), Question{Plan: p, Reviewers: rs.Of(tt.of), Hide: plan.NewRedactor(nil)}, time.Now)
			if !slices.Equal(opened, tt.want) || r.Lost != nil || !r.Verdict.Passed {
				t.Errorf("the reviewers saw %q and gave %+v, want %q and a pass", opened, r, tt.want)
			}
		})
	}
}

func TestAPlanThatAReviewerOfTheOperatorCannotReadIsLost(t *testing.T) {
	gone := fault.New(fault.Missing, "", errors.New("no such record"))
	p := &Plan{Digest: "sha256:d", Open: func(context.Context, Document) (io.ReadCloser, error) { return nil, gone }}
	r := Ask(t.Context(), Question{Plan: p, Reviewers: []Reviewer{policy{Masked}}, Hide: plan.NewRedactor(nil)}, time.Now)
	if !errors.Is(r.Lost, gone) {
		t.Errorf("Ask() = %+v, want the plan to be lost", r)
	}
}
