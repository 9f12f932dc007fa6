package review

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

	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/outbound"
	"github.com/terrier-iac/terrier/internal/secret"
	"github.com/terrier-iac/terrier/internal/stack"
	"github.com/terrier-iac/terrier/internal/workdir"
)

// Bounds of asking one webhook.
const (
	webhookDeadline = 10 * time.Second // with its answer
	answerBytes     = 1 << 20
)

// Webhooks is how webhooks are reached, and what they may see.
type Webhooks struct {
	Client   *outbound.Client
	Certs    string      // a directory of HOST/{ca.crt,tls.crt,tls.key}; may be empty
	Key      secret.Text // signs what is sent; empty signs nothing
	Unmasked bool        // stacks may show them the secrets in a plan
}

// Reviewers are the webhooks of a stack as reviewers, in their order.
func (w Webhooks) Reviewers(c stack.Configuration) []Reviewer {
	var all []Reviewer
	for _, hook := range c.Webhooks {
		all = append(all, webhook{w, hook, w.document(c)})
	}
	return all
}

// document is what the webhooks of a stack see: the secrets only if both the stack and
// the platform want it.
func (w Webhooks) document(c stack.Configuration) Document {
	if c.Unmasked && w.Unmasked {
		return Unmasked
	}
	return Masked
}

// webhook is one webhook of a stack.
type webhook struct {
	Webhooks
	of   stack.Webhook
	sees Document
}

// Sees implements Reviewer.
func (w webhook) Sees() Document { return w.sees }

// Review implements Reviewer: a webhook passes the plan or refuses it.
func (w webhook) Review(ctx context.Context, p *Plan) (Answer, error) {
	body, err := p.body(ctx, w.of.Payload)
	var no string
	if err == nil {
		no, err = w.ask(ctx, w.of, p.Digest, body)
	}
	switch {
	case err != nil:
		return Answer{}, fmt.Errorf("asking the webhook %s: %w", named(w.of), err)
	case no != "":
		return Answer{Outcome: Refuse, Why: no}, nil
	default:
		return Answer{}, nil
	}
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
	ctx, cancel := context.WithTimeout(ctx, webhookDeadline)
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
			return fmt.Errorf("it did not answer within %s", webhookDeadline)
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
		return fmt.Errorf("it did not answer within %s", webhookDeadline)
	}
	return err
}
