package agent

import (
	"context"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"net/url"
	"os"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/terrier-iac/terrier/internal/outbound"
	"github.com/terrier-iac/terrier/internal/runner/remote/wire"
)

// client asks the controller. Its token is read for each request: the cluster renews
// it.
type client struct {
	http  *http.Client
	base  string
	token string // path
	stack string
	proof string
	now   func() time.Time
	last  atomic.Int64 // turn
}

const (
	askLimit    = 30 * time.Second // for an answer to a small request
	wishLimit   = time.Minute      // the controller answers earlier
	moveLimit   = 10 * time.Minute // for a large body
	maxAnswer   = 4 << 30          // an order with its contents
	maxToken    = 64 << 10
	maxRefusal  = 1 << 20
	contentType = "application/octet-stream"
)

// newClient returns a client of the controller of o, and of nothing else.
func newClient(o Options) (*client, error) {
	u, err := url.Parse(o.URL)
	if err != nil || u.Host == "" || u.Path != "" && u.Path != "/" {
		return nil, fmt.Errorf("%s is %q, want https://HOST:PORT", EnvURL, o.URL)
	}
	plain := u.Scheme == "http" && isLoopback(u.Hostname())
	if u.Scheme != "https" && !plain {
		return nil, fmt.Errorf("%s is %q, want an https URL", EnvURL, o.URL)
	}
	host := u.Host
	if u.Port() == "" {
		host += ":443"
	}
	allow, err := outbound.ParseAllow(host)
	if err != nil {
		return nil, fmt.Errorf("reading %s: %w", EnvURL, err)
	}
	policy := outbound.Policy{Allow: allow, PlainHTTP: plain, MaxBytes: maxAnswer, Timeout: moveLimit}
	if len(o.Authority) > 0 {
		policy.Roots = x509.NewCertPool()
		if !policy.Roots.AppendCertsFromPEM(o.Authority) {
			return nil, fmt.Errorf("%s holds no PEM certificate", EnvAuthority)
		}
	}
	h, err := outbound.New(policy).HTTP(outbound.Options{PlainHTTP: plain, UserAgent: "terrier-runner"})
	if err != nil {
		return nil, err
	}
	h.CheckRedirect = func(*http.Request, []*http.Request) error { return errors.New("the controller redirects no request") }
	return &client{http: h, base: strings.TrimSuffix(o.URL, "/"), token: o.Token, stack: o.Stack, now: time.Now}, nil
}

func isLoopback(host string) bool {
	addr, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && addr.IsLoopback()
}

// refusal is an answer that is no success.
type refusal struct {
	status int
	wire.Refusal
}

func (e *refusal) Error() string {
	return fmt.Sprintf("the controller answered %d: %.500s", e.status, e.Refusal.Error)
}

// is reports whether err is the controller's refusal with this status.
func is(err error, status int) bool {
	e, ok := errors.AsType[*refusal](err)
	return ok && e.status == status
}

// request is one thing to ask.
type request struct {
	method, path string
	query        url.Values
	header       map[string]string
	body         io.Reader
	size         int64
	limit        time.Duration
}

// ask sends a request, and returns an answer that is a success. Its body has to be
// closed with done.
func (c *client) ask(ctx context.Context, q request) (resp *http.Response, done func(), err error) {
	ctx, cancel := context.WithTimeout(ctx, q.limit)
	defer func() {
		if err != nil {
			cancel()
		}
	}()
	token, err := c.readToken()
	if err != nil {
		return nil, nil, err
	}
	target := c.base + q.path
	if len(q.query) > 0 {
		target += "?" + q.query.Encode()
	}
	req, err := http.NewRequestWithContext(ctx, q.method, target, q.body)
	if err != nil {
		return nil, nil, err
	}
	req.ContentLength = q.size
	if q.size == 0 {
		req.Body = http.NoBody
	}
	for name, value := range q.header {
		req.Header.Set(name, value)
	}
	req.Header.Set("Content-Type", contentType)
	req.Header.Set("Authorization", "Bearer "+token)
	if c.stack != "" {
		req.Header.Set(wire.HeaderStack, c.stack)
	}
	if c.proof != "" {
		req.Header.Set(wire.HeaderProof, c.proof)
	}
	answer, err := c.http.Do(req)
	if err != nil {
		c.http.CloseIdleConnections() // one of them may be dead without knowing it
		return nil, nil, err
	}
	done = func() {
		_, _ = io.Copy(io.Discard, io.LimitReader(answer.Body, maxRefusal)) // so that the connection can be used again
		_ = answer.Body.Close()
		cancel()
	}
	if answer.StatusCode/100 == 2 {
		return answer, done, nil
	}
	defer answer.Body.Close()
	return nil, nil, whyRefused(answer)
}

// whyRefused reads an answer that is no success.
func whyRefused(resp *http.Response) error {
	e := &refusal{status: resp.StatusCode}
	data, err := io.ReadAll(io.LimitReader(resp.Body, maxRefusal))
	if err != nil {
		return fmt.Errorf("reading why the controller refuses: %w", err)
	}
	if json.Unmarshal(data, &e.Refusal) != nil {
		e.Refusal.Error = strconv.Quote(string(data[:min(len(data), 200)]))
		if e.status == http.StatusGone {
			// Only the controller itself says that a run is over, not a proxy.
			e.status = http.StatusBadGateway
		}
	}
	return e
}

func (c *client) readToken() (string, error) {
	f, err := os.Open(c.token)
	if err != nil {
		return "", fmt.Errorf("reading the token: %w", err)
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, maxToken))
	if err != nil {
		return "", fmt.Errorf("reading the token: %w", err)
	}
	return strings.TrimSpace(string(data)), nil
}

// tell sends a request whose answer has nothing to read.
func (c *client) tell(ctx context.Context, q request) error {
	_, done, err := c.ask(ctx, q)
	if err == nil {
		done()
	}
	return err
}

// turn is a number that grows from request to request, also past a restart. It is the time,
// unless the clock was set back since the last one: the controller would take no state and no
// report until it has caught up.
func (c *client) turn() string {
	for {
		last := c.last.Load()
		next := max(c.now().UnixNano(), last+1)
		if c.last.CompareAndSwap(last, next) {
			return strconv.FormatInt(next, 10)
		}
	}
}

// wish waits until the controller wants something else of the run than is known.
func (c *client) wish(ctx context.Context, known wire.Wish) (w wire.Wish, err error) {
	resp, done, err := c.ask(ctx, request{method: http.MethodGet, path: wire.AskWish, limit: wishLimit, query: url.Values{
		wire.QueryCancel: {strconv.FormatBool(known.Cancel)}, wire.QueryReport: {known.Report}}})
	if err != nil {
		return w, err
	}
	defer done()
	err = json.NewDecoder(io.LimitReader(resp.Body, maxRefusal)).Decode(&w)
	return w, err
}
