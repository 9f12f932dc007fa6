package controller

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"
	"unicode"

	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/outbound"
	"github.com/terrier-iac/terrier/internal/secret"
	"github.com/terrier-iac/terrier/internal/stack"
	"github.com/terrier-iac/terrier/internal/workdir"
)

// Bounds of asking.
const (
	reviewDeadline  = 10 * time.Second // of one webhook, with its answer
	reviewsDeadline = time.Minute      // of all webhooks of one stack
	documentBytes   = 64 << 20         // of the document of a plan that is sent
	answerBytes     = 1 << 20
	verdictBytes    = 2 << 10 // of the message that is kept
)

// Webhooks is how webhooks are reached, and what they may see.
type Webhooks struct {
	Client   *outbound.Client
	Certs    string      // a directory of HOST/{ca.crt,tls.crt,tls.key}; may be empty
	Key      secret.Text // signs what is sent; empty signs nothing
	Unmasked bool        // stacks may show them the secrets in a plan
}

// askWebhooks asks one after the other until one does not let the plan pass.
func (c *Stacks) askWebhooks(ctx context.Context, q question) reply {
	ctx, cancel := context.WithTimeout(ctx, reviewsDeadline)
	defer cancel()
	v := stack.Verdict{Plan: q.plan.Digest, By: q.by}
	bodies := map[stack.Payload][]byte{}
	for _, hook := range q.hooks {
		body, err := bodies[hook.Payload], error(nil)
		if body == nil {
			body, err = c.payload(ctx, q, hook.Payload)
			bodies[hook.Payload] = body
		}
		if fault.Of(err) == fault.Missing {
			return reply{lost: err}
		}
		var no string
		if err == nil {
			no, err = c.Webhooks.ask(ctx, hook, q.plan.Digest, body)
		}
		switch {
		case err != nil:
			v.Message = fmt.Sprintf("asking the webhook %s: %v", named(hook), err)
		case no != "":
			v.Refused, v.Message = true, no
		default:
			continue
		}
		v.Message, v.At = shown(q.hide.String(v.Message)), c.Now()
		return reply{verdict: v}
	}
	v.Passed, v.At = true, c.Now()
	return reply{verdict: v}
}

// named is a webhook in a message: its place and its host, not its URL, which
// may hold a token.
func named(hook stack.Webhook) string {
	u, err := url.Parse(hook.URL)
	if err != nil {
		return hook.Field
	}
	return hook.Field + " at " + u.Host
}

// payload is what upstream sends: the object with nothing but the plan as its
// status, the object without one, or the plan.
func (c *Stacks) payload(ctx context.Context, q question, kind stack.Payload) ([]byte, error) {
	object := map[string]json.RawMessage{}
	for name, part := range q.object {
		if name != "status" {
			object[name] = part
		}
	}
	if kind == stack.SpecOnly {
		return encoded(object)
	}
	document, err := c.document(ctx, q.record)
	if err != nil || kind == stack.PlanAlone {
		return document, err
	}
	if object["status"], err = encoded(map[string]json.RawMessage{"tfplan": document}); err != nil {
		return nil, err
	}
	return encoded(object)
}

// encoded is v as JSON, with < and > left as they are.
func encoded(v map[string]json.RawMessage) ([]byte, error) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	err := enc.Encode(v)
	return bytes.TrimSpace(b.Bytes()), err
}

// document reads the document of a plan from the records.
func (c *Stacks) document(ctx context.Context, key string) ([]byte, error) {
	r, err := c.Blobs.Get(ctx, key)
	if err != nil {
		return nil, err
	}
	defer r.Close()
	b, err := io.ReadAll(io.LimitReader(r, documentBytes+1))
	if err == nil && len(b) > documentBytes {
		err = fmt.Errorf("the plan is a document of more than %d MiB, which no webhook is sent", documentBytes>>20)
	}
	return b, err
}

// ask asks one webhook. It returns why the plan may not pass, empty if it may;
// the error says that there was no answer.
func (w Webhooks) ask(ctx context.Context, hook stack.Webhook, digest string, body []byte) (no string, err error) {
	answer, err := w.post(ctx, hook, digest, body)
	if err != nil {
		return "", w.wayOut(hook, err)
	}
	yes, err := workdir.Reply(hook.Test, answer, hook.Field+".testExpression")
	if err != nil {
		return "", err
	}
	switch strings.TrimSpace(yes) {
	case "true", "yes":
		return "", nil
	case "false", "no":
	default:
		return "", fmt.Errorf("%s.testExpression gave %.100q, which is none of true, yes, false and no", hook.Field, yes)
	}
	no, err = workdir.Reply(hook.Refusal, answer, hook.Field+".errorMessageTemplate")
	if err != nil {
		return fmt.Sprintf("%s refused the plan, and why could not be told: %v", named(hook), err), nil
	}
	if strings.TrimSpace(no) == "" {
		no = named(hook) + " refused the plan"
	}
	return no, nil
}

// post sends body and returns what is answered with status 200.
func (w Webhooks) post(ctx context.Context, hook stack.Webhook, digest string, body []byte) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, reviewDeadline)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, hook.URL, bytes.NewReader(body))
	if err != nil {
		return nil, errors.New("its URL cannot be used")
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Accept", "application/json")
	req.Header.Set("Idempotency-Key", digest)
	if !w.Key.Empty() {
		mac := hmac.New(sha256.New, []byte(w.Key.Reveal()))
		mac.Write(body)
		req.Header.Set("X-Terrier-Signature", "sha256="+hex.EncodeToString(mac.Sum(nil)))
	}
	client, err := w.client(req.URL.Hostname())
	if err != nil {
		return nil, err
	}
	defer client.CloseIdleConnections()
	resp, err := client.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("it answered %d %s, not 200", resp.StatusCode, http.StatusText(resp.StatusCode))
	}
	answer, err := io.ReadAll(resp.Body)
	if err == nil && !json.Valid(answer) {
		err = fmt.Errorf("it answered with %.60q, which is not JSON: %.100q", resp.Header.Get("Content-Type"), answer)
	}
	return answer, err
}

// client is the HTTP client for a host, which trusts and shows what the
// operator laid down for it. It follows no redirect: a plan goes where the
// object says, and nowhere else.
func (w Webhooks) client(host string) (*http.Client, error) {
	o := outbound.Options{PlainHTTP: w.Client.PlainHTTP(), MaxBytes: answerBytes}
	if w.Certs != "" && filepath.IsLocal(host) {
		root, err := os.OpenRoot(w.Certs)
		if err != nil {
			return nil, fmt.Errorf("opening the certificates for webhooks: %w", err)
		}
		defer root.Close()
		for file, to := range map[string]*[]byte{"ca.crt": &o.CA, "tls.crt": &o.Cert, "tls.key": &o.Key} {
			if *to, err = root.ReadFile(filepath.Join(host, file)); err != nil && !errors.Is(err, fs.ErrNotExist) {
				return nil, fmt.Errorf("reading the certificates for %s: %w", host, err)
			}
		}
	}
	client, err := w.Client.HTTP(o)
	if err != nil {
		return nil, err
	}
	client.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	return client, nil
}

// wayOut says what can be done about a webhook that was not reached.
func (w Webhooks) wayOut(hook stack.Webhook, err error) error {
	if u, ok := errors.AsType[*url.Error](err); ok {
		if u.Timeout() {
			return fmt.Errorf("it did not answer within %s", reviewDeadline)
		}
		err = u.Err // without the URL, which may hold a token
	}
	switch fault.Reason(err, "") {
	case outbound.ReasonAddress:
		return fmt.Errorf("%w; the operator can allow it with --allow-host HOST:PORT", err)
	case outbound.ReasonInsecure:
		return fmt.Errorf("%w; use https, or have the operator allow http with --allow-plain-http", err)
	case outbound.ReasonTooLarge:
		return fmt.Errorf("it answered more than %d KiB", answerBytes>>10)
	}
	if errors.Is(err, context.DeadlineExceeded) {
		return fmt.Errorf("it did not answer within %s", reviewDeadline)
	}
	return err
}

// shown is text from outside as a message: of one size, and without what would
// move a terminal's cursor.
func shown(text string) string {
	text = strings.Map(func(r rune) rune {
		if unicode.IsControl(r) && r != '\n' && r != '\t' {
			return -1
		}
		return r
	}, strings.ToValidUTF8(text, "\uFFFD"))
	if len(text) <= verdictBytes {
		return text
	}
	return strings.ToValidUTF8(text[:verdictBytes], "") + "…"
}
