package vaults

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/vault"
)

// rememberDown is how long a server that did not answer is not asked again. One that swallows
// packets would otherwise hold each pass over each stack up until its deadline.
const rememberDown = 10 * time.Second

// gate remembers that the server did not answer.
type gate struct {
	mu    sync.Mutex
	why   error // nil if it answered
	until time.Time
	asked bool // one caller asks whether it answers again; the others do not wait for it
}

// through asks the server by means of ask, unless it did not answer a moment ago.
func (g *gate) through(ctx context.Context, now func() time.Time, ask func() error) error {
	if err := g.enter(now()); err != nil {
		return err
	}
	err := ask()
	g.leave(now(), err, ctx.Err() != nil && errors.Is(ctx.Err(), context.Canceled))
	return err
}

func (g *gate) enter(now time.Time) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	switch {
	case g.why == nil:
		return nil
	case g.asked || now.Before(g.until):
		return fault.New(fault.Later, vault.ReasonUnreachable, fmt.Errorf("it was not asked again, since a moment ago: %w", g.why))
	}
	g.asked = true
	return nil
}

// leave notes whether the server answered. A caller that was cancelled tells nothing.
func (g *gate) leave(now time.Time, err error, cancelled bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.asked = false
	switch {
	case cancelled:
	case vault.Silent(err):
		g.why, g.until = err, now.Add(rememberDown)
	default:
		g.why = nil
	}
}

// gates are one for each server, by its address.
type gates struct {
	mu  sync.Mutex
	all map[string]*gate
}

// mostServers is how many servers are remembered; then all of them are forgotten, which costs
// one request each.
const mostServers = 256

func (g *gates) of(address string) *gate {
	g.mu.Lock()
	defer g.mu.Unlock()
	one, ok := g.all[address]
	if !ok {
		if g.all == nil || len(g.all) >= mostServers {
			g.all = map[string]*gate{}
		}
		one = &gate{}
		g.all[address] = one
	}
	return one
}
