package app

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strings"

	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/terrier-iac/terrier/internal/app/leader"
	"github.com/terrier-iac/terrier/internal/app/replicas"
	"github.com/terrier-iac/terrier/internal/kube"
	"github.com/terrier-iac/terrier/internal/notify"
	"github.com/terrier-iac/terrier/internal/peers"
	"github.com/terrier-iac/terrier/internal/query"
	"github.com/terrier-iac/terrier/internal/runner"
	"github.com/terrier-iac/terrier/internal/runner/remote/wire"
	"github.com/terrier-iac/terrier/internal/web"
)

// others are the controllers that share stacks with this one. The zero others are none.
type others struct {
	peers *peers.Peers
	http  *replicas.Replicas
	ended *signOuts // sessions of browsers
	log   *slog.Logger
}

// openOthers opens what this controller and the others say to one another. It comes after
// the HTTP API is there, and before its handler.
func openOthers(p *parts) (o others, err error) {
	if p.members == nil {
		return o, nil
	}
	key, err := p.keys.Derive("terrier calls between controllers")
	if err != nil {
		return o, err
	}
	o.log = p.log
	o.peers, err = peers.New(peers.Config{
		Me: p.members.Me, Key: []byte(key), CA: p.http.ca, ServerName: strings.Trim(p.hosts()[0], "[]"), Log: p.log,
	})
	if err != nil {
		return o, fmt.Errorf("opening the calls between controllers: %w", err)
	}
	o.http = replicas.New(replicas.Config{
		Members: p.members, Peers: o.peers, Now: p.Now, Log: p.log,
		UID: func(key query.Key) (string, bool) { return uidOf(p.board, key) },
	})
	p.leader = leader.New(leader.Config{
		Me: p.members.Me().ID, Current: p.members.Leader, Calls: o.peers, Now: p.Now, Log: p.log,
		Record: p.auditLog.Record, Notify: func(e notify.Event) { p.alerts.dispatcher.Notify(e) }, Ran: func(r runner.Report) { counting(p.board, p.figures)(r) },
		Hours: p.destroys,
	})
	p.queue, p.audits, p.destroys = p.leader.Queue, p.leader, p.leader
	return o, nil
}

// uidOf finds a stack by its name, once all of them are known.
func uidOf(b *query.Board, key query.Key) (uid string, ready bool) {
	select {
	case <-b.Full():
		row, _ := b.Get(key)
		return row.UID, true
	default:
		return "", false
	}
}

// serve has each request answered by the controller that knows the answer.
func (o others) serve(to *web.Options) {
	if o.http != nil {
		to.Replicas, to.AuditLog = o.http, o.http.AuditLog(to.AuditLog)
	}
}

// share has all controllers know which sessions ended.
func (o *others) share(ended *signOuts) {
	if o.http == nil {
		return
	}
	o.ended = ended
	ended.tell = o.http.SessionEnded
	o.http.OnSessionEnded(ended.EndedSessions.End)
}

// follow reads the ends of sessions that another controller could not tell.
func (o others) follow(mgr ctrl.Manager) error {
	if o.ended == nil {
		return nil
	}
	return mgr.Add(kube.Everywhere(func(ctx context.Context) error { return o.ended.follow(ctx, o.log) }))
}

// ready is nil while this controller can answer: it reaches the API server, and the leader
// if there are others.
func (o others) ready(reachable func(context.Context) error) func(context.Context) error {
	if o.http == nil {
		return reachable
	}
	return func(ctx context.Context) error { return errors.Join(reachable(ctx), o.http.Ready(ctx)) }
}

// withAgents serves the agents in pods, and other controllers, beside everything else.
// They are known by their own tokens and name no user, so that none of the rules for
// users is about them.
func (p *parts) withAgents(h http.Handler) http.Handler {
	var agents http.Handler
	if r, ok := p.runs.(podRuns); ok {
		agents = whileActive(r.Handler(), p.plane.leads)
	}
	switch {
	case p.others.http != nil:
		return p.others.http.Handler(agents, h)
	case agents == nil:
		return h
	}
	mux := http.NewServeMux()
	mux.Handle(wire.Prefix, agents)
	mux.Handle("/", h)
	return mux
}

// whileActive refuses agents once another controller may be active, which then answers: an
// agent that is told that its run is not known would end it.
func whileActive(agents http.Handler, leads func() error) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if err := leads(); err != nil {
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
			return
		}
		agents.ServeHTTP(w, req)
	})
}
