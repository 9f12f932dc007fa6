package infra

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/stack"
)

func TestDecodeWebhooks(t *testing.T) {
	obj := object(t, `
values: {hcl: x}
webhooks:
- {stage: post-planning, enabled: false, url: nowhere, payloadType: nothing, testExpression: ""}
- {stage: post-planning, url: "https://policy.example/check?token=x", testExpression: "${{ .passed }}", errorMessageTemplate: "Violation: ${{ .why }}"}
- {stage: post-planning, url: "http://10.0.0.1/", payloadType: PlanOnly, testExpression: "yes"}
`)
	s, p, _, err := Decode(obj, Defaults{})
	if err != nil {
		t.Fatal(err)
	}
	want := []stack.Webhook{
		{Field: "spec.webhooks[1]", URL: "https://policy.example/check?token=x", Payload: stack.SpecAndPlan, Test: "${{ .passed }}", Refusal: "Violation: ${{ .why }}"},
		{Field: "spec.webhooks[2]", URL: "http://10.0.0.1/", Payload: stack.PlanAlone, Test: "yes"},
	}
	if diff := cmp.Diff(p.Webhooks, want); diff != "" {
		t.Errorf("webhooks (-got +want):\n%s", diff)
	}
	if s.Reviews == "" || p.Unmasked {
		t.Errorf("reviews are %q, unmasked %v; want them named, and masked", s.Reviews, p.Unmasked)
	}

	obj.Annotations = map[string]string{WebhookPlan: WebhookPlanUnmasked}
	shown, p, _, err := Decode(obj, Defaults{})
	if err != nil || !p.Unmasked || shown.Reviews == s.Reviews {
		t.Errorf("Decode() = %v, unmasked %v; want webhooks that see more to be asked anew", err, p.Unmasked)
	}
	obj.Spec.Webhooks = obj.Spec.Webhooks[:1]
	if s, _, _, err = Decode(obj, Defaults{}); err != nil || s.Reviews != "" {
		t.Errorf("Decode() = %q, %v; want nobody to be asked", s.Reviews, err)
	}
}

func TestDecodeRefusesWebhooks(t *testing.T) {
	for name, tt := range map[string]struct{ hook, want string }{
		"another stage":               {`{stage: pre-apply, url: "https://a", testExpression: x}`, `spec.webhooks[0].stage is "pre-apply", not post-planning`},
		"an unknown payload":          {`{url: "https://a", payloadType: Everything, testExpression: x}`, `spec.webhooks[0].payloadType is "Everything", not SpecAndPlan, SpecOnly or PlanOnly`},
		"another scheme":              {`{url: "file:///etc/passwd", testExpression: x}`, "spec.webhooks[0].url is not https://HOST/… or http://HOST/…"},
		"no host":                     {`{url: "https:///x", testExpression: x}`, "spec.webhooks[0].url is not https://HOST/… or http://HOST/…"},
		"a password":                  {`{url: "https://u:canary@a/", testExpression: x}`, "spec.webhooks[0].url holds a user or password"},
		"no URL":                      {`{url: "https://canary\u007f/", testExpression: x}`, "spec.webhooks[0].url is no URL"},
		"no test":                     {`{url: "https://a", testExpression: ""}`, "spec.webhooks[0].testExpression is empty"},
		"a test that cannot be read":  {`{url: "https://a", testExpression: "${{ if }}"}`, "reading the template in spec.webhooks[0].testExpression"},
		"a function that there isn't": {`{url: "https://a", testExpression: x, errorMessageTemplate: "${{ env ` + "`PATH`" + ` }}"}`, "reading the template in spec.webhooks[0].errorMessageTemplate"},
	} {
		t.Run(name, func(t *testing.T) {
			_, _, _, err := Decode(object(t, "{values: {hcl: x}, webhooks: ["+tt.hook+"]}"), Defaults{})
			if err == nil || !strings.HasPrefix(err.Error(), tt.want) || strings.Contains(err.Error(), "canary") {
				t.Errorf("error is %v, want %s", err, tt.want)
			}
			if got := fault.Of(err); got != fault.Invalid {
				t.Errorf("kind is %q, want Invalid", got)
			}
		})
	}
	obj := object(t, `{values: {hcl: x}}`)
	obj.Annotations = map[string]string{WebhookPlan: "clear"}
	if _, _, _, err := Decode(obj, Defaults{}); fault.Of(err) != fault.Invalid {
		t.Errorf("error is %v, want the annotation to be refused", err)
	}
}
