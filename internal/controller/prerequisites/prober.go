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
	"slices"
	"strconv"
	"sync"
	"syscall"
	"time"

	"github.com/terrier-iac/terrier/internal/cache"
	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/outbound"
	"github.com/terrier-iac/terrier/internal/prerequisite"
	"github.com/terrier-iac/terrier/internal/stack"
)

// Bounds of the questions to other systems. One that swallows packets takes a place until the
// deadline, so no namespace has more than a few.
const (
	questionsAtOnce       = 32
	questionsPerNamespace = 4
	answerWithin          = 5 * time.Second
	answerBytes           = 1 << 20
	answersKept           = 1 << 14

	// How long an answer counts. A system that answered may be gone a moment later, whatever
	// is asked; one that did not is asked again with each reconcile.
	metFor   = 30 * time.Second
	unmetFor = 4 * time.Second
)

// Prober asks other systems beside the reconciles, which must not wait for them. What it
// knows is lost when the process ends, and asked again by the next.
type Prober struct {
	out  *outbound.Client
	now  func() time.Time
	more chan struct{} // holds one: there may be something to begin

	known cache.Map[string, answer]

	mu      sync.Mutex
	asked   map[string]bool // questions that wait or are being asked
	waiting []question
	busy    map[string]int // by namespace
	running int
}

// answer is what was known at a time.
type answer struct {
	prerequisite.Result
	at time.Time
}

type question struct {
	key       string
	namespace string
	of        prerequisite.Prerequisite
	wake      func()
}

// NewProber returns a prober that asks through out.
func NewProber(out *outbound.Client, now func() time.Time) *Prober {
	p := &Prober{out: out, now: now, more: make(chan struct{}, 1), asked: map[string]bool{}, busy: map[string]int{}}
	p.known.Size = answersKept
	return p
}

// Ask returns what is known of a prerequisite, and has the system asked if that is too old.
func (p *Prober) Ask(s Stack, of prerequisite.Prerequisite) prerequisite.Result {
	if p == nil {
		return is(prerequisite.Denied, "this controller asks no other systems: remove http and tcp from the annotation, or ask the operator")
	}
	key := s.ID + "/" + stack.Digest([]any{of.HTTP, of.TCP})
	last, known := p.known.Get(key)
	age := p.now().Sub(last.at)
	if known && (age < unmetFor || last.OK() && age < metFor) && age >= 0 {
		return last.Result
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.asked[key] {
		p.asked[key] = true
		p.waiting = append(p.waiting, question{key, s.Namespace, of, s.Wake})
		p.signal()
	}
	if known {
		last.Stale = true
		return last.Result
	}
	return is(prerequisite.Checking, "it is being asked")
}

func (p *Prober) signal() {
	select {
	case p.more <- struct{}{}:
	default:
	}
}

// Run asks what there is to ask until ctx ends, and then waits for the questions that are
// being asked, whose contexts end with it.
func (p *Prober) Run(ctx context.Context) error {
	var asking sync.WaitGroup
	defer asking.Wait()
	for {
		for q, ok := p.begin(); ok; q, ok = p.begin() {
			asking.Go(func() {
				r := p.probe(ctx, q.of)
				p.end(q, r, ctx.Err() == nil)
			})
		}
		select {
		case <-ctx.Done():
			return nil
		case <-p.more:
		}
	}
}

// begin takes the question that waits longest, of the namespaces that have room.
func (p *Prober) begin() (question, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	i := slices.IndexFunc(p.waiting, func(q question) bool { return p.busy[q.namespace] < questionsPerNamespace })
	if i < 0 || p.running >= questionsAtOnce {
		return question{}, false
	}
	q := p.waiting[i]
	p.waiting = slices.Delete(p.waiting, i, i+1)
	p.busy[q.namespace]++
	p.running++
	return q, true
}

// end keeps an answer; one that was cut short by the end of the process is none.
func (p *Prober) end(q question, r prerequisite.Result, whole bool) {
	p.mu.Lock()
	p.running--
	if p.busy[q.namespace]--; p.busy[q.namespace] == 0 {
		delete(p.busy, q.namespace)
	}
	delete(p.asked, q.key)
	if whole {
		p.known.Put(q.key, answer{r, p.now()})
	}
	p.signal()
	p.mu.Unlock()
	if whole {
		q.wake()
	}
}

func (p *Prober) probe(ctx context.Context, of prerequisite.Prerequisite) prerequisite.Result {
	ctx, cancel := context.WithTimeout(ctx, answerWithin)
	defer cancel()
	if of.HTTP != nil {
		return p.http(ctx, *of.HTTP)
	}
	return p.tcp(ctx, *of.TCP)
}

func (p *Prober) tcp(ctx context.Context, t prerequisite.TCP) prerequisite.Result {
	at := net.JoinHostPort(t.Host, strconv.Itoa(t.Port))
	conn, err := p.out.DialContext(ctx, "tcp", at)
	if err != nil {
		return silent(at, err)
	}
	if err := conn.Close(); err != nil {
		return silent(at, err)
	}
	return is(prerequisite.Met, "%s takes connections", at)
}

func (p *Prober) http(ctx context.Context, h prerequisite.HTTP) prerequisite.Result {
	if len(h.URL) > 5 && h.URL[:5] == "http:" && !p.out.PlainHTTP() {
		return is(prerequisite.Denied, "%s: this platform sends no request without encryption. Use https, or start it with --allow-plain-http", h.URL)
	}
	c, err := p.out.HTTP(outbound.Options{PlainHTTP: p.out.PlainHTTP(), MaxBytes: answerBytes})
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
		return silent(h.URL, err)
	}
	defer answered.Body.Close()
	if want := cmp.Or(h.Status, http.StatusOK); answered.StatusCode != want {
		return is(prerequisite.NoAnswer, "%s answers with %d, and must answer with %d", h.URL, answered.StatusCode, want)
	}
	if h.BodyContains == "" {
		return is(prerequisite.Met, "%s answers with %d", h.URL, answered.StatusCode)
	}
	body, err := io.ReadAll(io.LimitReader(answered.Body, answerBytes-1))
	if err != nil {
		return silent(h.URL, err)
	}
	if !bytes.Contains(body, []byte(h.BodyContains)) {
		return is(prerequisite.Different, "the answer of %s does not contain %.60q", h.URL, h.BodyContains)
	}
	return is(prerequisite.Met, "the answer of %s contains %.60q", h.URL, h.BodyContains)
}

// silent says that nothing answered as it has to. The text is the same for the same
// situation: it has no ports and addresses of this side, which differ each time.
func silent(at string, err error) prerequisite.Result {
	var why string
	var dns *net.DNSError
	switch {
	case fault.Reason(err, "") == outbound.ReasonAddress:
		return is(prerequisite.Denied, "%s may not be asked: %s. The operator can allow it with --allow-host HOST:PORT", at, deniedBy(err))
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
