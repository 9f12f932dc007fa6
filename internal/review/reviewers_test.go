package review

import (
	"context"
	"testing"

	"github.com/terrier-iac/terrier/internal/stack"
)

type always struct{ Answer }

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
