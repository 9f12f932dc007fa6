// Package monitor asks each OpenBao and Vault that the platform uses how it is, and keeps the
// last answer of each: active, standby, sealed, not initialized, or unreachable.
//
// It decides nothing and repairs nothing: stacks wait for a server by themselves. It signs in
// nowhere, since the question needs no identity. Start reading at Monitor.
package monitor

import (
	"context"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/terrier-iac/terrier/internal/vault"
)

// State is what a server can do at the moment.
type State string

// The states.
const (
	Unknown       State = "unknown"       // it was not asked yet
	Active        State = "active"        // it answers requests
	Standby       State = "standby"       // it hands requests on to the active node
	Sealed        State = "sealed"        // it answers none until it is unsealed
	Uninitialized State = "uninitialized" // it has no keys yet
	Unreachable   State = "unreachable"   // it does not answer, or not as a Vault does
)

// States are all that a server that was asked may have.
func States() []State { return []State{Active, Standby, Sealed, Uninitialized, Unreachable} }

// Usable reports whether requests to the server can succeed.
func (s State) Usable() bool { return s == Active || s == Standby || s == Unknown }

// Status is the last that is known of one server.
type Status struct {
	Address string    `json:"address"` // host and port, and the namespace
	Uses    []string  `json:"uses"`    // what the platform uses it for
	State   State     `json:"state"`
	Version string    `json:"version,omitempty"`
	Since   time.Time `json:"since,omitzero"`   // it has had this state, as far as this controller knows
	Checked time.Time `json:"checked,omitzero"` // the last answer, or the last attempt
	Message string    `json:"message,omitempty"`
	Next    string    `json:"next,omitempty"` // what to do
}

// Server is one server, and what it is for.
type Server struct {
	vault.Server
	Use string
}

// Every is the time between two questions to one server.
const Every = 15 * time.Second

// patience bounds the wait for one answer.
const patience = 10 * time.Second

// Monitor knows the status of servers. A nil Monitor knows none.
type Monitor struct {
	now func() time.Time
	log *slog.Logger

	mu      sync.Mutex
	servers []vault.Server
	known   []Status // of each
}

// New is a Monitor of servers. Those at the same address with the same namespace count as one.
func New(now func() time.Time, log *slog.Logger, servers ...Server) *Monitor {
	m := &Monitor{now: now, log: log}
	for _, s := range servers {
		address := s.String()
		i := slices.IndexFunc(m.known, func(k Status) bool { return k.Address == address })
		if i < 0 {
			i = len(m.known)
			m.servers = append(m.servers, s.Server)
			m.known = append(m.known, Status{Address: address, State: Unknown})
		}
		if !slices.Contains(m.known[i].Uses, s.Use) {
			m.known[i].Uses = append(m.known[i].Uses, s.Use)
		}
	}
	return m
}

// Statuses are those of all servers, in the order in which they were named.
func (m *Monitor) Statuses() []Status {
	if m == nil {
		return nil
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	out := slices.Clone(m.known)
	for i := range out {
		out[i].Uses = slices.Clone(out[i].Uses)
	}
	return out
}

// Run asks all servers at once and then every 15 seconds, until ctx ends.
func (m *Monitor) Run(ctx context.Context) error {
	tick := time.NewTicker(Every)
	defer tick.Stop()
	for {
		m.Check(ctx)
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

// Check asks each server once, all at the same time.
func (m *Monitor) Check(ctx context.Context) {
	var all sync.WaitGroup
	for i, s := range m.servers {
		all.Go(func() {
			bounded, stop := context.WithTimeout(ctx, patience)
			defer stop()
			h, err := s.Health(bounded)
			if ctx.Err() == nil { // a question that was cut off says nothing
				m.learn(i, h, err)
			}
		})
	}
	all.Wait()
}

// learn takes over one answer.
func (m *Monitor) learn(i int, h vault.Health, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	now, was := m.now(), m.known[i]
	is := was
	is.Checked = now
	is.State, is.Message, is.Next = judge(h, err)
	if err == nil {
		is.Version = h.Version
	}
	if is.State != was.State {
		is.Since = now
	}
	m.known[i] = is
	switch {
	case is.State == was.State:
	case !is.State.Usable():
		m.log.Warn("a Vault cannot be used", "vault", is.Address, "state", is.State, "uses", strings.Join(is.Uses, ", "), "why", is.Message, "next", is.Next)
	case !was.State.Usable():
		m.log.Info("a Vault can be used again", "vault", is.Address, "state", is.State)
	}
}

// judge says what an answer means, and what to do.
func judge(h vault.Health, err error) (is State, message, next string) {
	switch {
	case err != nil:
		return Unreachable, err.Error(), "Check that the server runs, its address (--vault), its certificate (--vault-ca-file) and the network between the controller and it"
	case !h.Initialized:
		return Uninitialized, "The server is not initialized: it has no keys yet", "Run vault operator init, and keep the keys that it prints"
	case h.Sealed:
		return Sealed, "The server is sealed: it answers no request for a secret", "Run vault operator unseal on each sealed node, or set up auto-unseal"
	case h.Standby:
		return Standby, "The node is a standby: it hands requests on to the active one", ""
	}
	return Active, "", ""
}
