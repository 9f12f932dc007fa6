package peers

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/shard"
)

// MaxMessage bounds what is sent in a call, and its answer, in bytes.
const MaxMessage = 8 << 20

// How long a call may take: that of a caller who names no deadline, and the longest of
// all.
const (
	callLimit   = 30 * time.Second
	longestCall = 2 * time.Minute
)

// headerTo names the member that a call or a forwarded request is for: an address may have a
// new owner.
const headerTo = "Terrier-Replica-To"

// Call asks another replica, and reads its answer into out, which may be nil. An error of
// the other replica keeps its kind. A replica that does not answer is Later.
func (p *Peers) Call(ctx context.Context, to shard.Member, name string, in, out any) error {
	if _, has := ctx.Deadline(); !has {
		bounded, cancel := context.WithTimeout(ctx, callLimit)
		defer cancel()
		ctx = bounded
	}
	body, err := json.Marshal(in)
	if err == nil && len(body) > MaxMessage {
		err = fmt.Errorf("it has %d bytes, and at most %d are sent", len(body), MaxMessage)
	}
	if err != nil {
		return fmt.Errorf("encoding the call %s: %w", name, err)
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, to.URL+Prefix+name, bytes.NewReader(body))
	if err != nil {
		return fmt.Errorf("calling %s: %w", name, err)
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Authorization", "Bearer "+p.token)
	req.Header.Set(headerTo, to.ID)
	resp, err := p.calls.Do(req)
	if err != nil {
		return unreachable(to, err)
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(resp.Body)
	if err != nil {
		return unreachable(to, err)
	}
	if resp.StatusCode == http.StatusOK {
		if out == nil {
			return nil
		}
		if err := json.Unmarshal(data, out); err != nil {
			return fmt.Errorf("reading the answer of the replica %s to %s: %w", to.ID, name, err)
		}
		return nil
	}
	var f failure
	if json.Unmarshal(data, &f) != nil || !f.known() {
		return unreachable(to, fmt.Errorf("it answers with status %d", resp.StatusCode))
	}
	return f.err()
}

func unreachable(to shard.Member, err error) error {
	return fault.Wait(retryAfter, ReasonUnreachable, fmt.Errorf("the replica %s does not answer: %w", to.ID, err))
}

// handler answers one kind of call.
type handler = func(context.Context, json.RawMessage) (any, error)

// handlers are what other replicas can call.
type handlers struct {
	mu     sync.RWMutex
	byName map[string]handler
}

// Handle answers the calls of a name with f, which ends with its context. Each name has
// one function.
func (p *Peers) Handle(name string, f func(context.Context, json.RawMessage) (any, error)) {
	p.handlers.mu.Lock()
	defer p.handlers.mu.Unlock()
	if p.handlers.byName[name] != nil || name == "" || strings.Contains(name, "/") {
		panic("peers: the call " + name + " is named badly, or twice")
	}
	if p.handlers.byName == nil {
		p.handlers.byName = map[string]handler{}
	}
	p.handlers.byName[name] = f
}

func (h *handlers) of(name string) handler {
	h.mu.RLock()
	defer h.mu.RUnlock()
	return h.byName[name]
}

// errStranger is all that an outsider reads.
var errStranger = fault.New(fault.Denied, ReasonStranger, errors.New("only the replicas of this installation may call"))

// Handler answers calls, below Prefix.
func (p *Peers) Handler() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		out, err := p.serve(w, r)
		if err == nil {
			err = answer(w, http.StatusOK, out)
		}
		if err == nil {
			return
		}
		f := failed(err)
		if f.Kind == fault.Broken && r.Context().Err() == nil {
			p.config.Log.Error("call of a replica failed", "call", strings.TrimPrefix(r.URL.Path, Prefix), "err", err)
		}
		_ = answer(w, f.Kind.Meaning().HTTP, f) // it has only texts and a number
	})
}

func (p *Peers) serve(w http.ResponseWriter, r *http.Request) (any, error) {
	token, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	if !ok || !same(token, p.token) {
		return nil, errStranger
	}
	if r.Method != http.MethodPost {
		return nil, fault.New(fault.Invalid, ReasonUnknown, errors.New("a call is a POST"))
	}
	if to, me := r.Header.Get(headerTo), p.config.Me().ID; me == "" || to != me {
		return nil, fault.Wait(retryAfter, ReasonMoved, fmt.Errorf("the replica %s is not at this address any more", to))
	}
	name := strings.TrimPrefix(r.URL.Path, Prefix)
	f := p.handlers.of(name)
	if f == nil {
		return nil, fault.Wait(retryAfter, ReasonUnknown, fmt.Errorf("the replica %s does not know the call %.80q: replicas have different versions until an upgrade has ended", p.config.Me().ID, name))
	}
	ctx, cancel := context.WithTimeout(r.Context(), longestCall)
	defer cancel()
	if err := http.NewResponseController(w).SetReadDeadline(time.Now().Add(callLimit)); err != nil && !errors.Is(err, http.ErrNotSupported) {
		return nil, err
	}
	in, err := io.ReadAll(http.MaxBytesReader(w, r.Body, MaxMessage))
	if err != nil {
		return nil, fault.New(fault.Invalid, ReasonUnknown, fmt.Errorf("reading the call %s: %w", name, err))
	}
	if !json.Valid(in) {
		return nil, fault.New(fault.Invalid, ReasonUnknown, fmt.Errorf("the call %s is no JSON", name))
	}
	return f(ctx, in)
}
