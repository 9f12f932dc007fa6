package prerequisites

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/outbound"
	"github.com/terrier-iac/terrier/internal/prerequisite"
)

// Bounds of one question.
const (
	answerWithin = 5 * time.Second
	answerBytes  = 1 << 20 // that are searched for a text
)

// Hosts are what prerequisites may ask although it is in a private network, on this machine or
// on its link: entries as outbound.ParseAllow reads them.
type Hosts struct {
	Asked  []string // whether they answer, and with which status
	Bodies []string // the same, and their answers may be searched for a text
}

// Systems asks other systems. What it says reaches users who may have no way to these systems
// themselves, so that it asks the internet, and beyond that what the operator has listed.
type Systems struct{ asked, bodies *outbound.Client }

// NewSystems returns what asks by the policy of the platform, whose exceptions are replaced by
// those of prerequisites. Its error names the flag whose entry cannot be read.
func NewSystems(p outbound.Policy, h Hosts) (*Systems, error) {
	bodies, err := outbound.ParseAllow(h.Bodies...)
	if err != nil {
		return nil, fmt.Errorf("--prerequisite-body-host: %w", err)
	}
	asked, err := outbound.ParseAllow(slices.Concat(h.Asked, h.Bodies)...)
	if err != nil {
		return nil, fmt.Errorf("--prerequisite-host: %w", err)
	}
	p.NoPrivate = true
	s := &Systems{}
	p.Allow = bodies
	s.bodies = outbound.New(p)
	p.Allow = asked
	s.asked = outbound.New(p)
	return s, nil
}

// Ask asks another system, and judges its answer.
func (s *Systems) Ask(ctx context.Context, of prerequisite.Prerequisite) prerequisite.Result {
	ctx, cancel := context.WithTimeout(ctx, answerWithin)
	defer cancel()
	if of.HTTP != nil {
		return s.http(ctx, *of.HTTP)
	}
	return s.tcp(ctx, *of.TCP)
}

func (s *Systems) tcp(ctx context.Context, t prerequisite.TCP) prerequisite.Result {
	at := net.JoinHostPort(t.Host, strconv.Itoa(t.Port))
	conn, err := s.asked.DialContext(ctx, "tcp", at)
	if err != nil {
		return silent(at, unlisted(at), err)
	}
	if err := conn.Close(); err != nil {
		return silent(at, unlisted(at), err)
	}
	return is(prerequisite.Met, "%s takes connections", at)
}

func (s *Systems) http(ctx context.Context, h prerequisite.HTTP) prerequisite.Result {
	u, err := url.Parse(h.URL)
	if err != nil {
		return is(prerequisite.Invalid, "%s: %v", h.URL, err)
	}
	if u.Scheme == "http" && !s.asked.PlainHTTP() {
		return is(prerequisite.Denied, "%s: this platform sends no request without encryption. Use https, or start it with --allow-plain-http", h.URL)
	}
	// The text of an answer that may be searched could be guessed letter by letter.
	out, refusal := s.asked, unlisted(hostPort(u))
	if h.BodyContains != "" {
		out, refusal = s.bodies, unsearched(hostPort(u))
	}
	c, err := out.HTTP(outbound.Options{PlainHTTP: out.PlainHTTP()})
	if err != nil {
		return is(prerequisite.Invalid, "%s: %v", h.URL, err)
	}
	c.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	defer c.CloseIdleConnections()
	r, err := http.NewRequestWithContext(ctx, cmp.Or(h.Method, http.MethodGet), h.URL, nil)
	if err != nil {
		return is(prerequisite.Invalid, "%s: %v", h.URL, err)
	}
	answered, err := c.Do(r)
	if err != nil {
		return silent(h.URL, refusal, err)
	}
	defer answered.Body.Close()
	if want := cmp.Or(h.Status, http.StatusOK); answered.StatusCode != want {
		return is(prerequisite.NoAnswer, "%s answers with %d, and must answer with %d", h.URL, answered.StatusCode, want)
	}
	if h.BodyContains == "" {
		return is(prerequisite.Met, "%s answers with %d", h.URL, answered.StatusCode)
	}
	body, err := io.ReadAll(io.LimitReader(answered.Body, answerBytes))
	if err != nil {
		return silent(h.URL, refusal, err)
	}
	if !bytes.Contains(body, []byte(h.BodyContains)) {
		return is(prerequisite.Different, "the answer of %s does not contain %.60q", h.URL, h.BodyContains)
	}
	return is(prerequisite.Met, "the answer of %s contains %.60q", h.URL, h.BodyContains)
}

// hostPort is where a URL leads, as the lists of the operator have it.
func hostPort(u *url.URL) string {
	port := cmp.Or(u.Port(), map[string]string{"http": "80", "https": "443"}[strings.ToLower(u.Scheme)])
	return net.JoinHostPort(u.Hostname(), port)
}

// unlisted and unsearched refuse an address. They do not say which one a name leads to.
func unlisted(at string) string {
	return "it is in a private network, local, reserved or refused by the operator, who can allow it with --prerequisite-host " + at
}

func unsearched(at string) string {
	return "it is in a private network, local, reserved or refused by the operator, and such an answer is not searched for a text. Leave bodyContains out, or have the operator allow it with --prerequisite-body-host " + at
}

// silent says that nothing answered as it has to. The text is the same for the same
// situation: it has no ports and addresses of this side, which differ each time. Refusal is
// said of an address that may not be asked.
func silent(at, refusal string, err error) prerequisite.Result {
	var why string
	var dns *net.DNSError
	switch {
	case fault.Reason(err, "") == outbound.ReasonAddress:
		return is(prerequisite.Denied, "%s may not be asked: %s", at, refusal)
	case fault.Of(err) == fault.Denied:
		return is(prerequisite.Denied, "%s may not be asked: %s", at, deniedBy(err))
	case errors.As(err, &dns) && dns.IsNotFound:
		why = "no such host"
	case errors.Is(err, context.DeadlineExceeded), timedOut(err):
		why = fmt.Sprintf("no answer within %s", answerWithin)
	case errors.Is(err, syscall.ECONNREFUSED):
		why = "connection refused"
	case errors.Is(err, syscall.EHOSTUNREACH), errors.Is(err, syscall.ENETUNREACH):
		why = "no route to the host"
	case errors.Is(err, syscall.ECONNRESET), errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		why = "the connection was closed"
	default:
		why = "the connection failed"
		if tls, ok := errors.AsType[*net.OpError](err); !ok || tls.Op == "remote error" {
			why = "no connection that can be trusted: " + fault.OneLine(innermost(err).Error())
		}
	}
	return is(prerequisite.NoAnswer, "%s: %s", at, why)
}

func timedOut(err error) bool {
	t, ok := errors.AsType[net.Error](err)
	return ok && t.Timeout()
}

// innermost is the error that the others wrap.
func innermost(err error) error {
	for {
		next := errors.Unwrap(err)
		if next == nil {
			return err
		}
		err = next
	}
}

// deniedBy is the refusal of package outbound, without what wraps it.
func deniedBy(err error) string {
	if f, ok := errors.AsType[*fault.Fault](err); ok {
		err = f
	}
	return fault.OneLine(err.Error())
}
