package web

import (
	"context"
	"io"
	"time"

	"github.com/terrier-iac/terrier/internal/query"
	"github.com/terrier-iac/terrier/internal/web/login"
	"github.com/terrier-iac/terrier/internal/web/pages"
)

// server is the parts of the server. Each part holds the few things that it needs;
// a new area of the API is a type with routes, and an entry in newServer.
type server struct {
	guard   *guard
	replies *replies
	health  health
	api     []area
	pages   area
	mounted []route
}

func newServer(o Options) (*server, error) {
	sessions, err := newSessions(o.Sessions, o.Now)
	if err != nil {
		return nil, err
	}
	renderer, err := pages.NewRenderer(o.Version)
	if err != nil {
		return nil, err
	}
	callers := callers{auth: o.Auth, recent: o.Recent, sessions: sessions, tokens: o.Tokens}
	scopes := scopes{auth: o.Auth, kinds: o.Kinds, all: o.Scopes, known: o.SoFar}
	audit := &auditor{to: o.Audit, log: o.Log, now: o.Now, refusals: newRefusals()}
	backend := backendOf(o)
	screen := &screen{renderer: renderer, backend: backend, recent: o.Recent, scopes: scopes, people: o.People, log: o.Log, now: o.Now}
	replies := &replies{audit: audit, screen: screen, log: o.Log}
	entrance, err := newEntrance(o, callers, replies)
	if err != nil {
		return nil, err
	}

	count := &streams{total: o.Limits.Streams, each: o.Limits.UserStreams, tell: o.Following}
	opener := &opener{streams: count, callers: callers, limits: o.Limits, now: o.Now}
	gate := &gate{auth: o.Auth, people: o.People, scopes: scopes, replies: replies}
	logs := &logs{gate: gate, stacks: o.Stacks, former: o.Former, streams: opener, log: o.Log, tails: &tails{
		follow: func(ctx context.Context, of tailed) (io.ReadCloser, error) {
			stacks := query.StackReader(o.Stacks)
			if of.former {
				stacks = o.Former
			}
			return stacks.Log(ctx, of.key, of.run, query.LogOptions{Follow: true, Timestamps: of.timestamps})
		}}}
	sender := stateSender{audit: audit, replies: replies}
	states := stateAPI{gate, o.Stacks, sender}
	retained := retainedAPI{gate, o.Retained, audit, sender}
	return &server{
		guard: &guard{callers: callers, entrance: entrance, replies: replies, replicas: o.Replicas, kinds: o.Kinds, hosts: o.Hosts, limits: o.Limits,
			seats: seats{each: o.Limits.UserStates, all: o.Limits.States, bytes: o.Limits.StateBytes}, log: o.Log, now: o.Now},
		replies: replies,
		health:  health{o.Ready, replies, o.Log},
		api: []area{
			aboutAPI{gate, o.Version},
			boardAPI{gate, o.Board, o.UsedBy},
			stackAPI{gate, o.Stacks, o.Details, o.AuditLog, logs},
			states,
			commandAPI{gate, count},
			tenantAPI{gate, o.Tenants},
			secretAPI{gate, o.Stacks, audit, sender},
			platformAPI{gate, o.Board, o.Queue, o.Sources, o.AuditLog, o.Notices, o.overview(), o.Now},
			retained,
			eventAPI{gate, o.Board, opener},
			linkAPI{entrance},
			tokenAPI{gate, o.Tokens, audit},
			catalogAPI{gate, o.Catalog, o.Recent},
		},
		pages:   pageRows{screen, replies, audit, entrance, states, retained, tokenEndpoint{o.Tokens, o.LoginLife, backend.Codes, audit, o.Log}, o.AuditLog, o.Limits, o.Log},
		mounted: mounted(o),
	}, nil
}

// backendOf is everything that pages ask.
func backendOf(o Options) *pages.Backend {
	var asked pages.Tokens
	if o.Tokens != nil {
		asked = o.Tokens
	}
	return &pages.Backend{
		Catalog: o.Catalog, Uses: o.Uses, Authority: o.Authority, Logins: o.Tokens != nil,
		Tokens: asked, LoginLife: o.LoginLife, Codes: login.NewCodes(o.Now),
		Kinds:  o.Kinds,
		Stacks: o.Stacks, Tenants: o.Tenants, Board: o.Board, Details: o.Details, Sources: o.Sources, AuditLog: o.AuditLog, Estate: o.Estate,
		Queue: o.Queue, Figures: o.Figures, Graphs: o.Graphs, Notices: o.Notices, Retained: o.Retained, Platform: o.Platform, Overview: o.overview(), Checked: &pages.AuditCheck{}, API: document, Version: o.Version,
	}
}

// routes is the table of all addresses.
func (s *server) routes() []route {
	table := s.health.routes()
	table = append(table, s.apiRoutes()...)
	table = append(table, s.pages.routes()...)
	return append(table, s.mounted...)
}

// apiRoutes are the rows of the API.
func (s *server) apiRoutes() []route {
	var table []route
	for _, a := range s.api {
		table = append(table, a.routes()...)
	}
	for i := range table {
		if table[i].within == nil {
			table[i].within = func(l Limits) time.Duration { return l.Request }
		}
	}
	return table
}
