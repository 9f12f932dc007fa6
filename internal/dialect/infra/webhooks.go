package infra

import (
	"fmt"
	"net/url"

	"github.com/terrier-iac/terrier/api/infra/v1alpha2"
	"github.com/terrier-iac/terrier/internal/stack"
	"github.com/terrier-iac/terrier/internal/workdir"
)

// What the annotation terrier.dev/webhook-plan may say.
const (
	WebhookPlanMasked   = "masked"   // webhooks are shown no secret value of a plan
	WebhookPlanUnmasked = "unmasked" // they are, as upstream shows them
)

// postPlanning is the one stage at which webhooks are asked.
const postPlanning = "post-planning"

// webhooks reads which webhooks review plans. A webhook that is not enabled is
// not read: it may be half written.
func webhooks(p *stack.Configuration, s *v1alpha2.TerraformSpec) error {
	for i, w := range s.Webhooks {
		if w.Enabled != nil && !*w.Enabled {
			continue
		}
		field := fmt.Sprintf("spec.webhooks[%d]", i)
		out := stack.Webhook{Field: field, URL: w.URL, Test: w.TestExpression, Refusal: w.ErrorMessageTemplate}
		switch out.Payload = stack.Payload(w.PayloadType); out.Payload {
		case "":
			out.Payload = stack.SpecAndPlan
		case stack.SpecAndPlan, stack.SpecOnly, stack.PlanAlone:
		default:
			return invalid(field+".payloadType", "is %.40q, not SpecAndPlan, SpecOnly or PlanOnly", w.PayloadType)
		}
		if w.Stage != "" && w.Stage != postPlanning {
			return invalid(field+".stage", "is %.40q, not %s", w.Stage, postPlanning)
		}
		if why := reachable(w.URL); why != "" {
			return invalid(field+".url", "%s", why)
		}
		if w.TestExpression == "" {
			return invalid(field+".testExpression", "is empty: it must say yes or no of the answer, for example ${{ .passed }}")
		}
		if err := workdir.CheckTemplate(w.TestExpression, field+".testExpression"); err != nil {
			return err
		}
		if err := workdir.CheckTemplate(w.ErrorMessageTemplate, field+".errorMessageTemplate"); err != nil {
			return err
		}
		p.Webhooks = append(p.Webhooks, out)
	}
	return nil
}

// reachable says why nothing can be asked at a URL; empty if it can. The URL is
// not repeated, since it may hold a token.
func reachable(text string) string {
	u, err := url.Parse(text)
	switch {
	case err != nil:
		return "is no URL"
	case u.Scheme != "https" && u.Scheme != "http", u.Hostname() == "":
		return "is not https://HOST/… or http://HOST/…"
	case u.User != nil:
		return "holds a user or password, which every reader of the object could see"
	default:
		return ""
	}
}

// reviews reads how plans are shown to webhooks, and identifies everything that
// their verdict depends on beside the plan.
func reviews(obj *v1alpha2.Terraform, s *stack.Spec, p *stack.Configuration) error {
	switch v := obj.Annotations[WebhookPlan]; v {
	case "", WebhookPlanMasked:
	case WebhookPlanUnmasked:
		p.Unmasked = true
	default:
		return invalid("the annotation "+WebhookPlan, "is %.40q; it may be %s or %s", v, WebhookPlanMasked, WebhookPlanUnmasked)
	}
	if len(p.Webhooks) > 0 {
		s.Reviews = stack.Digest([]any{p.Webhooks, p.Unmasked})
	}
	return nil
}
