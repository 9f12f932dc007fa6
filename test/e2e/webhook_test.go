package e2e

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/terrier-iac/terrier/api/infra/v1alpha2"
	"github.com/terrier-iac/terrier/internal/testkit"
)

// hook is a webhook that a test answers for.
type hook struct {
	*httptest.Server
	mu     sync.Mutex
	answer string
	bodies []string
	ids    map[string]bool

	signature string // of the last
}

func startHook(t *testing.T, answer string) *hook {
	t.Helper()
	h := &hook{answer: answer, ids: map[string]bool{}}
	h.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		h.mu.Lock()
		defer h.mu.Unlock()
		h.bodies = append(h.bodies, string(body))
		h.ids[r.Header.Get("Idempotency-Key")] = true
		h.signature = r.Header.Get("X-Terrier-Signature")
		_, _ = io.WriteString(w, h.answer)
	}))
	t.Cleanup(h.Close)
	return h
}

func (h *hook) says(answer string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.answer = answer
}

// heard is what was sent last, how often something was, and of how many plans.
func (h *hook) heard() (last string, calls, plans int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.bodies) > 0 {
		last = h.bodies[len(h.bodies)-1]
	}
	return last, len(h.bodies), len(h.ids)
}

func (h *hook) spec(more string) string {
	return `approvePlan: auto
webhooks:
- stage: post-planning
  url: ` + h.URL + `/?token=canary
  testExpression: "${{ .passed }}"
  errorMessageTemplate: "Violation: ${{ .why }}"
` + more
}

// planCondition is the condition Plan.
func planCondition(s *v1alpha2.Terraform) metav1.Condition {
	if c := meta.FindStatusCondition(s.Status.Conditions, "Plan"); c != nil {
		return *c
	}
	return metav1.Condition{}
}

// A plan that a webhook refuses is not applied, even if it was approved, and can be
// read; a plan that it accepts is.
func TestWebhookDecidesWhatIsApplied(t *testing.T) {
	c := cluster(t)
	w := platform(t).World(t)
	h := startHook(t, `{"passed": false, "why": "no things on a Sunday"}`)
	c.PutSecret(t, "vars", map[string]string{"secret": "canary-in-a-variable"})
	c.Apply(t, inline("stack", h.spec(`interval: 1h
varsFrom: [{kind: Secret, name: vars}]`), w.HCL()+`
variable "secret" { sensitive = true }
resource "world_thing" "a" {
  name   = "a"
  secret = var.secret
}`))
	s := c.AwaitReason(t, "stack", "PostPlanningWebhookFailed")
	if got, want := message(s), "Violation: no things on a Sunday"; got != want || planCondition(s).Message != want || planCondition(s).Reason != "PostPlanningWebhookFailed" {
		t.Errorf("the message is %q and Plan is %+v; want %q", got, planCondition(s), want)
	}
	if out := c.Terrier(t, "plan", "stack"); !strings.Contains(out, "world_thing.a") {
		t.Errorf("the refused plan is shown as %q, want it to be seen", out)
	}
	if out := c.Terrier(t, "explain", "stack"); !strings.Contains(out, "no things on a Sunday") {
		t.Errorf("explain says %q, want the reason", out)
	}
	body, calls, _ := h.heard()
	var sent struct {
		Kind     string
		Metadata struct{ Name string }
		Status   map[string]json.RawMessage
	}
	if err := json.Unmarshal([]byte(body), &sent); err != nil || sent.Kind != "Terraform" || sent.Metadata.Name != "stack" ||
		len(sent.Status) != 1 || !strings.Contains(string(sent.Status["tfplan"]), `"world_thing.a"`) {
		t.Errorf("sent %.300s (%v), want the object with the plan as its status", body, err)
	}
	if strings.Contains(body, "canary-in-a-variable") || calls != 1 {
		t.Errorf("asked %d times, secret shown: %v; want one question without it", calls, strings.Contains(body, "canary-in-a-variable"))
	}

	h.says(`{"passed": true}`)
	c.Patch(t, "stack", `{"spec":{"webhooks":[{"stage":"post-planning","url":"`+h.URL+`","testExpression":"${{ .passed }}"}]}}`)
	s = c.AwaitReady(t, "stack")
	if len(w.Named("a")) != 1 || strings.Contains(planCondition(s).Reason, "Webhook") {
		t.Errorf("the world holds %+v and Plan is %+v, want a", w.Things(), planCondition(s))
	}
	if _, calls, plans := h.heard(); calls != 2 || plans != 1 {
		t.Errorf("asked %d times about %d plans, want twice about one: the webhooks changed, and the plan did not", calls, plans)
	}
}

// A webhook that cannot be asked lets nothing pass, and is asked again.
func TestWebhookThatCannotBeAskedIsAskedAgain(t *testing.T) {
	c := cluster(t)
	w := platform(t).World(t)
	h := startHook(t, "<html>maintenance</html>")
	c.Apply(t, inline("stack", h.spec("retryInterval: 1s"), things(w, "x", "a")))
	s := c.AwaitReason(t, "stack", "PostPlanningWebhookFailed")
	if m := message(s); !strings.Contains(m, "which is not JSON") || strings.Contains(m, "canary") || len(w.Things()) != 0 {
		t.Errorf("the message is %q and the world holds %+v, want what is wrong, no token and nothing", m, w.Things())
	}
	h.says(`{"passed": true}`)
	c.AwaitReady(t, "stack")
	if _, calls, plans := h.heard(); calls < 2 || plans != 1 || len(w.Named("a")) != 1 {
		t.Errorf("asked %d times about %d plans, the world holds %+v; want it to be asked again about the same plan", calls, plans, w.Things())
	}
}

// A webhook that hangs keeps no stack of another namespace waiting.
func TestHangingWebhookHoldsNoOtherStack(t *testing.T) {
	t.Parallel()
	hostile, honest := cluster(t), cluster(t)
	w := platform(t).World(t)
	release := make(chan struct{})
	hang := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		select {
		case <-release:
		case <-r.Context().Done():
		}
	}))
	t.Cleanup(func() { close(release); hang.Close() })
	for _, name := range []string{"h1", "h2", "h3", "h4", "h5", "h6"} {
		hostile.Apply(t, inline(name, "approvePlan: auto\nretryInterval: 1s\nwebhooks: [{stage: post-planning, url: '"+hang.URL+"', testExpression: 'yes'}]", `resource "terraform_data" "it" {}`))
	}
	for _, name := range []string{"h1", "h2"} {
		hostile.Await(t, name, func(s *v1alpha2.Terraform) error {
			if s.Status.Terrier == nil || s.Status.Terrier.Phase != "Reviewing" && s.Status.Terrier.Phase != "ReviewRefused" {
				return errNot("a webhook that is being asked")
			}
			return nil
		})
	}
	h := startHook(t, `{"passed": true}`)
	honest.Apply(t, inline("stack", h.spec(""), things(w, "x", "a")))
	honest.AwaitReady(t, "stack")
	if s := hostile.AwaitReason(t, "h1", "PostPlanningWebhookFailed"); !strings.Contains(message(s), "did not answer within 10s") {
		t.Errorf("the message of the stack that waits is %q", message(s))
	}
}

// Secrets of a plan are shown only where the operator lets them be, and to a
// webhook that was made to see them after its plan was made, too.
func TestWebhookSeesSecretsOnlyWhereAllowed(t *testing.T) {
	t.Parallel()
	const secret = "canary-for-the-webhook"
	key := filepath.Join(t.TempDir(), "key")
	if err := os.WriteFile(key, []byte("what both sides know\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	h := startHook(t, `{"passed": true}`)
	manifest := inline("stack", strings.TrimPrefix(h.spec("varsFrom: [{kind: Secret, name: vars}]"), "approvePlan: auto\n"), `
variable "secret" { sensitive = true }
resource "terraform_data" "it" { input = var.secret }`)

	c := cluster(t)
	c.PutSecret(t, "vars", map[string]string{"secret": secret})
	c.Apply(t, strings.Replace(manifest, "{name: stack}", "{name: stack, annotations: {terrier.dev/webhook-plan: unmasked}}", 1))
	if s := c.AwaitReason(t, "stack", "SpecInvalid"); !strings.Contains(message(s), "--allow-unmasked-plans") {
		t.Errorf("the message is %q, want what the operator can do", message(s))
	}

	p := testkit.Up(t, "--allow-unmasked-plans", "--webhook-key", key)
	c = p.Cluster(t)
	c.PutSecret(t, "vars", map[string]string{"secret": secret})
	c.Apply(t, manifest)
	c.AwaitPending(t, "stack")
	if body, calls, _ := h.heard(); calls != 1 || strings.Contains(body, secret) {
		t.Fatalf("asked %d times, secret shown: %v; want one question without it", calls, strings.Contains(body, secret))
	}
	c.Patch(t, "stack", `{"metadata":{"annotations":{"terrier.dev/webhook-plan":"unmasked"}}}`)
	testkit.Eventually(t, testkit.Patience, "the webhook sees the plan", func(context.Context) error {
		if body, _, _ := h.heard(); !strings.Contains(body, secret) {
			return errNot("a question with the secret in it")
		}
		return nil
	})
	c.AwaitPending(t, "stack")
	h.mu.Lock()
	defer h.mu.Unlock()
	mac := hmac.New(sha256.New, []byte("what both sides know"))
	mac.Write([]byte(h.bodies[len(h.bodies)-1]))
	if want := "sha256=" + hex.EncodeToString(mac.Sum(nil)); h.signature != want {
		t.Errorf("the signature is %q, want %q", h.signature, want)
	}
}
