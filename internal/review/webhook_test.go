package review

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"encoding/pem"
	"errors"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/terrier-iac/terrier/internal/blob"
	"github.com/terrier-iac/terrier/internal/outbound"
	"github.com/terrier-iac/terrier/internal/plan"
	"github.com/terrier-iac/terrier/internal/secret"
	"github.com/terrier-iac/terrier/internal/stack"
	"github.com/terrier-iac/terrier/internal/testkit/port"
)

var askedAt = time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)

// asker can do nothing but ask, and may reach hosts.
type asker struct {
	Webhooks
	blobs blob.Store
}

func reviewer(t *testing.T, hosts ...string) *asker {
	t.Helper()
	files, err := blob.OpenFiles(t.TempDir(), 1<<30)
	if err != nil {
		t.Fatal(err)
	}
	allow, err := outbound.ParseAllow(hosts...)
	if err != nil {
		t.Fatal(err)
	}
	client := outbound.New(outbound.Policy{Allow: allow, PlainHTTP: true})
	t.Cleanup(client.Close)
	return &asker{Webhooks{Client: client}, files}
}

const record = "stacks/u/plans/d/plan.json"

func (a *asker) asks(t *testing.T, hooks ...stack.Webhook) Reply {
	t.Helper()
	if err := a.blobs.Put(t.Context(), record, strings.NewReader(`{"format_version":"1.2"}`)); err != nil {
		t.Fatal(err)
	}
	return a.askAbout(t, &Plan{
		Digest: "sha256:d", Object: map[string]json.RawMessage{"kind": []byte(`"Terraform"`), "spec": []byte(`{"x":"<1>"}`), "status": []byte(`{"old":true}`)},
	}, record, a.Reviewers(stack.Configuration{Webhooks: hooks})...)
}

func (a *asker) askAbout(t *testing.T, p *Plan, key string, reviewers ...Reviewer) Reply {
	t.Helper()
	p.Open = func(ctx context.Context, _ Document) (io.ReadCloser, error) { return a.blobs.Get(ctx, key) }
	return Ask(t.Context(), Question{By: "w", Plan: p, Reviewers: reviewers, Hide: plan.NewRedactor([]string{"s3cr3t-value"})}, func() time.Time { return askedAt })
}

// answering is a webhook that answers with status 200 and body.
func answering(t *testing.T, body string) stack.Webhook {
	t.Helper()
	return handling(t, func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, body) })
}

func handling(t *testing.T, handle http.HandlerFunc) stack.Webhook {
	t.Helper()
	s := httptest.NewServer(handle)
	t.Cleanup(s.Close)
	return stack.Webhook{Field: "spec.webhooks[0]", URL: s.URL, Payload: stack.SpecAndPlan, Test: "${{ .passed }}", Refusal: "Violation: ${{ .why }}"}
}

func TestVerdicts(t *testing.T) {
	passes, refuses := `{"passed": true}`, `{"passed": false, "why": "no public buckets"}`
	for name, tt := range map[string]struct {
		answer, test, refusal string
		want                  stack.Verdict
		begins                bool // the message only begins like that
	}{
		"true passes":     {answer: passes, want: stack.Verdict{Passed: true}},
		"yes passes":      {answer: `{}`, test: "yes", want: stack.Verdict{Passed: true}},
		"false says why":  {answer: refuses, want: stack.Verdict{Refused: true, Message: "Violation: no public buckets"}},
		"no refuses, too": {answer: `{"why": 1}`, test: "no", want: stack.Verdict{Refused: true, Message: "Violation: 1"}},
		"what is not there counts as nothing": {
			answer: `{}`, test: "${{ if .violations }}no${{ else }}yes${{ end }}", want: stack.Verdict{Passed: true},
		},
		"a list is an answer": {answer: `[1]`, test: "${{ eq (index . 0) 1.0 }}", want: stack.Verdict{Passed: true}},
		"secrets and control characters are not repeated": {
			answer: `{"passed": false, "why": "s3cr3t-value \u001b[31m"}`, want: stack.Verdict{Refused: true, Message: "Violation: " + plan.Mask + " [31m"},
		},
		"a refusal that cannot be told is one": {
			answer: refuses, refusal: "${{ index .why.x 1 }}", want: stack.Verdict{Refused: true, Message: "spec.webhooks[0] at "}, begins: true,
		},
		"an empty refusal is one": {answer: refuses, refusal: " ", want: stack.Verdict{Refused: true, Message: "spec.webhooks[0] at "}, begins: true},
		"maybe is no answer":      {answer: passes, test: "maybe", want: stack.Verdict{Message: "asking the webhook spec.webhooks[0] at "}, begins: true},
		"a test may not go on forever": {
			answer: passes, test: `${{ define "a" }}${{ template "a" . }}${{ template "a" . }}${{ end }}${{ template "a" . }}`, want: stack.Verdict{Message: "asking the webhook "}, begins: true,
		},
		"a page for people is no answer": {answer: "<html>hello</html>", want: stack.Verdict{Message: "asking the webhook "}, begins: true},
		"nothing is no answer":           {want: stack.Verdict{Message: "asking the webhook "}, begins: true},
		"nesting without end is none":    {answer: strings.Repeat("[", 200_000), want: stack.Verdict{Message: "asking the webhook "}, begins: true},
		"a large answer is none":         {answer: `{"passed": true, "x": "` + strings.Repeat("x", 2<<20) + `"}`, want: stack.Verdict{Message: "asking the webhook "}, begins: true},
	} {
		t.Run(name, func(t *testing.T) {
			hook := answering(t, tt.answer)
			if tt.test != "" {
				hook.Test = tt.test
			}
			if tt.refusal != "" {
				hook.Refusal = tt.refusal
			}
			got := reviewer(t, "127.0.0.1").asks(t, hook).Verdict
			if len(got.Message) > verdictBytes+3 {
				t.Errorf("the message has %d bytes", len(got.Message))
			}
			if tt.begins && strings.HasPrefix(got.Message, tt.want.Message) {
				got.Message = tt.want.Message
			}
			tt.want.Plan, tt.want.By, tt.want.At = "sha256:d", "w", askedAt
			if diff := cmp.Diff(got, tt.want); diff != "" {
				t.Errorf("verdict (-got +want):\n%s", diff)
			}
		})
	}
}

func TestPayloads(t *testing.T) {
	for payload, want := range map[stack.Payload]string{
		stack.SpecAndPlan: `{"kind":"Terraform","spec":{"x":"<1>"},"status":{"tfplan":{"format_version":"1.2"}}}`,
		stack.SpecOnly:    `{"kind":"Terraform","spec":{"x":"<1>"}}`,
		stack.PlanAlone:   `{"format_version":"1.2"}`,
	} {
		t.Run(string(payload), func(t *testing.T) {
			var got []byte
			var head http.Header
			hook := handling(t, func(w http.ResponseWriter, r *http.Request) {
				got, _ = io.ReadAll(r.Body)
				head = r.Header
				_, _ = io.WriteString(w, `{"passed": true}`)
			})
			hook.Payload = payload
			c := reviewer(t, "127.0.0.1")
			c.Key = secret.New("a key of the platform")
			if v := c.asks(t, hook).Verdict; !v.Passed {
				t.Fatalf("verdict = %+v", v)
			}
			if string(got) != want {
				t.Errorf("sent %s, want %s", got, want)
			}
			mac := hmac.New(sha256.New, []byte("a key of the platform"))
			mac.Write([]byte(want))
			for name, want := range map[string]string{
				"Content-Type": "application/json", "Idempotency-Key": "sha256:d", "X-Terrier-Signature": "sha256=" + hex.EncodeToString(mac.Sum(nil)),
			} {
				if head.Get(name) != want {
					t.Errorf("%s is %q, want %q", name, head.Get(name), want)
				}
			}
		})
	}
}

// The first that does not let the plan pass ends it.
func TestFirstRefusalStops(t *testing.T) {
	var calls []string
	hook := func(name, answer string) stack.Webhook {
		return handling(t, func(w http.ResponseWriter, _ *http.Request) {
			calls = append(calls, name)
			_, _ = io.WriteString(w, answer)
		})
	}
	v := reviewer(t, "127.0.0.1").asks(t, hook("a", `{"passed":true}`), hook("b", `{"passed":false,"why":"b"}`), hook("c", `{"passed":true}`)).Verdict
	if !v.Refused || v.Message != "Violation: b" || strings.Join(calls, "") != "ab" {
		t.Errorf("asked %q, verdict %+v; want a and b, and the refusal of b", calls, v)
	}
}

// What is not 200, and what leads elsewhere, is no answer, and says so without
// the URL, which may hold a token.
func TestNoAnswer(t *testing.T) {
	elsewhere := answering(t, `{"passed":true}`)
	for name, tt := range map[string]struct {
		handle http.HandlerFunc
		want   string
	}{
		"an error":        {func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusServiceUnavailable) }, "it answered 503 Service Unavailable, not 200"},
		"another success": {func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusAccepted) }, "it answered 202 Accepted, not 200"},
		"a redirect": {func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, elsewhere.URL, http.StatusTemporaryRedirect)
		}, "it answered 307 Temporary Redirect, not 200"},
		"a connection that ends": {func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }, "EOF"},
	} {
		t.Run(name, func(t *testing.T) {
			hook := handling(t, tt.handle)
			hook.URL += "/?token=canary"
			v := reviewer(t, "127.0.0.1").asks(t, hook).Verdict
			if v.Passed || v.Refused || !strings.HasSuffix(v.Message, tt.want) || strings.Contains(v.Message, "canary") {
				t.Errorf("verdict = %+v, want no answer and %q", v, tt.want)
			}
		})
	}
}

func TestWhereWebhooksMayBe(t *testing.T) {
	c := reviewer(t)
	if v := c.asks(t, answering(t, `{"passed":true}`)).Verdict; v.Passed || !strings.Contains(v.Message, "--allow-host") {
		t.Errorf("verdict = %+v, want this machine to be refused and the way out to be named", v)
	}
	c.Client = outbound.New(outbound.Policy{})
	t.Cleanup(c.Client.Close)
	if v := c.asks(t, answering(t, `{"passed":true}`)).Verdict; v.Passed || !strings.Contains(v.Message, "--allow-plain-http") {
		t.Errorf("verdict = %+v, want http to be refused and the way out to be named", v)
	}
}

// A webhook that never ends its answer is given up when the answer is not wanted
// any more.
func TestSlowAnswerIsGivenUp(t *testing.T) {
	begun, release := make(chan struct{}), make(chan struct{})
	hook := handling(t, func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(w, `{"passed":`)
		_ = http.NewResponseController(w).Flush()
		close(begun)
		<-release
	})
	defer close(release)
	c := reviewer(t, "127.0.0.1")
	ctx, cancel := context.WithCancel(t.Context())
	go func() { <-begun; cancel() }()
	if _, err := c.ask(ctx, hook, "d", nil); err == nil {
		t.Error("ask() found an answer in half of one")
	}
}

func TestCertificatesOfAHost(t *testing.T) {
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, `{"passed": true}`)
	}))
	s.Config.ErrorLog = log.New(io.Discard, "", 0) // clients that turn away are what is tested
	s.StartTLS()
	t.Cleanup(s.Close)
	u, err := url.Parse(s.URL)
	if err != nil {
		t.Fatal(err)
	}
	hook := stack.Webhook{Field: "spec.webhooks[0]", URL: s.URL, Payload: stack.SpecOnly, Test: "${{ .passed }}"}
	c := reviewer(t, "127.0.0.1")
	if v := c.asks(t, hook).Verdict; v.Passed || !strings.Contains(v.Message, "certificate") {
		t.Errorf("verdict = %+v, want a stranger's certificate to be refused", v)
	}
	c.Certs = t.TempDir()
	if v := c.asks(t, hook).Verdict; v.Passed {
		t.Errorf("verdict = %+v, want an empty directory to change nothing", v)
	}
	dir := filepath.Join(c.Certs, u.Hostname())
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw})
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "ca.crt"), ca, 0o600); err != nil {
		t.Fatal(err)
	}
	if v := c.asks(t, hook).Verdict; !v.Passed {
		t.Errorf("verdict = %+v, want the authority in %s to be trusted", v, dir)
	}
	if err := os.WriteFile(filepath.Join(dir, "tls.crt"), ca, 0o600); err != nil {
		t.Fatal(err)
	}
	if v := c.asks(t, hook).Verdict; v.Passed || !strings.Contains(v.Message, "client certificate") {
		t.Errorf("verdict = %+v, want a certificate without its key to be named", v)
	}
}

// A plan that is not kept any more is made again; one that is too large to be
// sent is not let pass.
func TestDocumentsThatCannotBeSent(t *testing.T) {
	c := reviewer(t, "127.0.0.1")
	const key = "stacks/u/plans/x/plan.json"
	hooks := c.Reviewers(stack.Configuration{Webhooks: []stack.Webhook{answering(t, `{"passed":true}`)}})
	if r := c.askAbout(t, &Plan{}, key, hooks...); r.Lost == nil || r.Verdict.Passed {
		t.Errorf("reply = %+v, want the plan to be lost", r)
	}
	if err := c.blobs.Put(t.Context(), key, bytes.NewReader(make([]byte, documentBytes+1))); err != nil {
		t.Fatal(err)
	}
	if v := c.askAbout(t, &Plan{}, key, hooks...).Verdict; v.Passed || !strings.Contains(v.Message, "64 MiB") {
		t.Errorf("verdict = %+v, want the bound to be named", v)
	}
}

// Without a server the error is short and names the host.
func TestNoServer(t *testing.T) {
	address := port.Address(t)
	hook := stack.Webhook{Field: "spec.webhooks[0]", URL: "http://" + address + "/?token=canary", Payload: stack.SpecOnly, Test: "yes"}
	v := reviewer(t, "127.0.0.1").asks(t, hook).Verdict
	if v.Passed || v.Refused || !strings.Contains(v.Message, address) || strings.Contains(v.Message, "canary") {
		t.Errorf("verdict = %+v, want %s to be named", v, address)
	}
}

// says is a reviewer with one answer.
type says struct {
	answer Answer
	err    error
}

func (says) Sees() Document { return Masked }

func (s says) Review(context.Context, *Plan) (Answer, error) { return s.answer, s.err }

// A hold is asked over: another reviewer may still refuse the plan, or not
// answer. The first hold says why.
func TestHold(t *testing.T) {
	pass, hold, later := says{}, says{answer: Answer{Outcome: Hold, Why: "deletes a database s3cr3t-value"}}, says{answer: Answer{Outcome: Hold, Why: "on a Friday"}}
	refuse, silent := says{answer: Answer{Outcome: Refuse, Why: "no public buckets"}}, says{err: errors.New("no answer")}
	held := stack.Verdict{Held: true, Message: "deletes a database " + plan.Mask}
	for name, tt := range map[string]struct {
		reviewers []Reviewer
		want      stack.Verdict
	}{
		"no reviewer":             {nil, stack.Verdict{Passed: true}},
		"all pass":                {[]Reviewer{pass, pass}, stack.Verdict{Passed: true}},
		"one holds":               {[]Reviewer{pass, hold, pass}, held},
		"the first reason counts": {[]Reviewer{hold, later}, held},
		"a refusal counts more":   {[]Reviewer{hold, refuse}, stack.Verdict{Refused: true, Message: "no public buckets"}},
		"so does no answer":       {[]Reviewer{hold, silent, refuse}, stack.Verdict{Message: "no answer"}},
	} {
		t.Run(name, func(t *testing.T) {
			tt.want.Plan, tt.want.By, tt.want.At = "sha256:d", "w", askedAt
			if diff := cmp.Diff(tt.want, reviewer(t).askAbout(t, &Plan{Digest: "sha256:d"}, record, tt.reviewers...).Verdict); diff != "" {
				t.Errorf("verdict (-want +got):\n%s", diff)
			}
		})
	}
}
