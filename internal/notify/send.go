package notify

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
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/outbound"
	"github.com/terrier-iac/terrier/internal/secret"
)

// Bounds of one attempt.
const (
	timeoutDefault = 15 * time.Second
	timeoutMost    = time.Minute
	answerBytes    = 64 << 10
	answerShown    = 200
	waitMost       = time.Hour // of what a receiver asks for with Retry-After
)

// Destination is where messages go, and what they are signed or let in with.
type Destination struct {
	Type      string
	Address   secret.Text // webhooks have what lets one in as a part of it
	Channel   string
	Username  string
	Token     secret.Text            // key of the signature, or bearer token
	Headers   map[string]secret.Text // added to requests of the generic types
	CA        []byte                 // PEM
	Cert, Key []byte                 // PEM
	Timeout   time.Duration          // 15 s if zero
	PlainHTTP bool                   // http is allowed
}

// Host is the part of the address that may be shown.
func (d Destination) Host() string {
	u, err := url.Parse(d.Address.Reveal())
	if err != nil {
		return ""
	}
	return u.Host
}

// Sender sends one message once.
type Sender struct{ Out *outbound.Client }

// Send returns nil if the other end says that it has it. An error that is
// Invalid, Denied or Missing will not go away by itself; Later says when to try
// again. No error shows an address or a secret.
func (s Sender) Send(ctx context.Context, d Destination, e Event) error {
	body, err := payload(d, e)
	if err != nil {
		return err
	}
	if d.Timeout <= 0 {
		d.Timeout = timeoutDefault
	}
	ctx, cancel := context.WithTimeout(ctx, min(d.Timeout, timeoutMost))
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, d.Address.Reveal(), bytes.NewReader(body))
	if err != nil {
		return fault.New(fault.Invalid, "AddressInvalid", errors.New("the address cannot be used"))
	}
	d.sign(req, e, body)
	client, err := s.Out.HTTP(outbound.Options{PlainHTTP: d.PlainHTTP, CA: d.CA, Cert: d.Cert, Key: d.Key, MaxBytes: answerBytes})
	if err != nil {
		return err
	}
	defer client.CloseIdleConnections()
	resp, err := client.Do(req)
	if err != nil {
		return d.conceal(err)
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(resp.Body)
	if err != nil {
		return d.conceal(err)
	}
	return d.conceal(judge(d, resp, answer))
}

// sign adds credentials or a signature.
func (d Destination) sign(req *http.Request, e Event, body []byte) {
	req.Header.Set("Content-Type", "application/json")
	switch d.Type {
	case HMAC:
		mac := hmac.New(sha256.New, []byte(d.Token.Reveal()))
		mac.Write(body)
		req.Header.Set("X-Signature", "sha256="+hex.EncodeToString(mac.Sum(nil)))
		fallthrough
	case Generic:
		for name, value := range d.Headers {
			req.Header.Set(name, value.Reveal())
		}
		req.Header.Set("Gotk-Component", e.ReportingController)
		if d.Type == Generic && !d.Token.Empty() && req.Header.Get("Authorization") == "" {
			req.Header.Set("Authorization", "Bearer "+d.Token.Reveal())
		}
	case Slack:
		if !d.Token.Empty() {
			req.Header.Set("Authorization", "Bearer "+d.Token.Reveal())
		}
	}
}

// judge converts an answer to an error.
func judge(d Destination, resp *http.Response, answer []byte) error {
	code := resp.StatusCode
	said := fmt.Errorf("it answered %d %s%s", code, http.StatusText(code), quoted(answer))
	switch {
	case code >= 200 && code < 300:
		return slackSays(d, answer)
	case code == http.StatusTooManyRequests, code == http.StatusServiceUnavailable:
		return fault.Wait(retryAfter(resp.Header.Get("Retry-After"), time.Now()), "Busy", said)
	case code == http.StatusRequestTimeout, code == http.StatusTooEarly, code >= 500:
		return fault.New(fault.Broken, "Failed", said)
	default:
		return fault.New(fault.Invalid, "Refused", said)
	}
}

// slackSays reads the answer of chat.postMessage, which is 200 even if Slack refused
// the message. Webhooks answer with a word.
func slackSays(d Destination, answer []byte) error {
	if d.Type != Slack || d.Token.Empty() {
		return nil
	}
	var said struct {
		OK    bool   `json:"ok"`
		Error string `json:"error"`
	}
	if err := json.Unmarshal(answer, &said); err != nil {
		return nil // it is not Slack's API
	}
	if said.OK {
		return nil
	}
	err := fmt.Errorf("it was refused by Slack: %s", shown(said.Error, answerShown))
	if said.Error == "ratelimited" || said.Error == "internal_error" {
		return fault.New(fault.Broken, "Failed", err)
	}
	return fault.New(fault.Invalid, "Refused", err)
}

func quoted(answer []byte) string {
	text := strings.TrimSpace(strings.ReplaceAll(shown(string(answer), answerShown), "\n", " "))
	if text == "" {
		return ""
	}
	return ": " + text
}

// retryAfter reads the header: seconds, or a date. It is bounded, since a
// mistake of the receiver would else silence it for good.
func retryAfter(header string, now time.Time) time.Duration {
	var d time.Duration
	if n, err := strconv.Atoi(strings.TrimSpace(header)); err == nil {
		d = time.Duration(min(max(n, 0), int(waitMost/time.Second))) * time.Second
	} else if at, err := http.ParseTime(header); err == nil {
		d = at.Sub(now)
	}
	return min(max(d, 0), waitMost)
}

// conceal keeps what kind of error it is, and takes everything secret from its
// text: an http.Client puts the whole address into its errors.
func (d Destination) conceal(err error) error {
	if err == nil {
		return nil
	}
	inner := err
	if u, ok := errors.AsType[*url.Error](err); ok {
		inner = u.Err
	}
	text := inner.Error()
	secrets := []string{d.Address.Reveal(), d.Token.Reveal()}
	if u, err := url.Parse(d.Address.Reveal()); err == nil {
		secrets = append(secrets, u.RequestURI())
	}
	for _, h := range d.Headers {
		secrets = append(secrets, h.Reveal())
	}
	for _, s := range secrets {
		if len(s) > 3 {
			text = strings.ReplaceAll(text, s, "•••")
		}
	}
	if errors.Is(err, context.DeadlineExceeded) {
		text = "it did not answer in time"
	}
	f := &fault.Fault{Kind: fault.Broken, Reason: fault.Reason(err, "Failed"), Err: errors.New(text)}
	if known, ok := errors.AsType[*fault.Fault](err); ok {
		f.Kind, f.After = known.Kind, known.After
	}
	return f
}

// final reports whether trying again is of no use.
func final(err error) bool {
	switch fault.Of(err) {
	case fault.Invalid, fault.Denied, fault.Missing:
		return true
	default:
		return false
	}
}
