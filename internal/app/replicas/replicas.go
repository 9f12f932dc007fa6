// Package replicas joins the HTTP API of one replica with those of the others: each
// request is answered by the replica that knows the answer, whichever of them got it,
// and all know of a session that ended.
//
// It does not say who is a member and who owns a stack: Members do.
//
// Start reading at Replicas and its Handler.
package replicas

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/peers"
	"github.com/terrier-iac/terrier/internal/query"
	"github.com/terrier-iac/terrier/internal/runner"
	"github.com/terrier-iac/terrier/internal/runner/remote/wire"
	"github.com/terrier-iac/terrier/internal/shard"
	"github.com/terrier-iac/terrier/internal/web"
)

// Members are the controllers that share stacks, as one of them sees them.
type Members interface {
	Me() shard.Member
	Leader() (shard.Member, bool)
	Owner(stack string) (shard.Member, bool) // by its UID; false while it moves
	Members() []shard.Member
}

// Config is what Replicas need.
type Config struct {
	Members Members
	Peers   *peers.Peers
	// UID finds a stack by its name, empty if there is none; false while this replica
	// does not know all stacks yet.
	UID func(query.Key) (uid string, ready bool)
	Now func() time.Time
	Log *slog.Logger
}

// Replicas are the replicas of Terrier, as one of them serves users and agents.
type Replicas struct {
	Config
	reached atomic.Pointer[time.Time] // when the leader answered last; nil if it never did
}

var _ web.Replicas = (*Replicas)(nil)

// The calls of this package.
const (
	callPing  = "ping"
	callEnded = "session-ended"
	callAudit = "audit-entries"
)

// New returns the replicas that this one serves with.
func New(c Config) *Replicas {
	r := &Replicas{Config: c}
	c.Peers.Handle(callPing, func(context.Context, json.RawMessage) (any, error) { return nil, nil })
	return r
}

// other is another replica, as package web knows it.
type other struct {
	peers  *peers.Peers
	member shard.Member
}

func (o other) Answer(w http.ResponseWriter, r *http.Request, refuse func(error)) {
	o.peers.Send(o.member, w, r, refuse)
}

// replica is a member as package web knows it: nil for this one.
func (r *Replicas) replica(m shard.Member, known bool) (web.Replica, bool) {
	if !known || m.ID == r.Members.Me().ID {
		return nil, known
	}
	return other{r.Peers, m}, true
}

// Leader implements web.Replicas.
func (r *Replicas) Leader() (web.Replica, bool) { return r.replica(r.Members.Leader()) }

// Owner implements web.Replicas.
func (r *Replicas) Owner(key query.Key) (web.Replica, bool) {
	uid, ready := r.UID(key)
	if !ready {
		return nil, false
	}
	if uid == "" {
		return nil, true
	}
	return r.replica(r.Members.Owner(uid))
}

// Forwarded implements web.Replicas.
func (r *Replicas) Forwarded(ctx context.Context) bool { return peers.Forwarded(ctx) }

// Handler serves calls of other replicas, the agents of runs, which may be nil, and all
// the rest. It stands before everything else.
func (r *Replicas) Handler(agents, rest http.Handler) http.Handler {
	mux := http.NewServeMux()
	mux.Handle(peers.Prefix, r.Peers.Handler())
	if agents != nil {
		mux.Handle(wire.Prefix, r.agents(agents))
	}
	mux.Handle("/", rest)
	return r.Peers.Receive(mux)
}

// errMoving is the answer to an agent whose stack has no owner now. It asks again.
var errMoving = errors.New("the stack moves to another controller: ask again")

// agents has the owner of a stack answer the agents of its runs. The hint of an agent
// chooses the controller; who the agent is, its credential alone says there. An agent of
// an earlier release gives no hint: it is served if its run is here, and otherwise its
// next connection may reach another controller.
func (r *Replicas) agents(own http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		refuse := func(err error) {
			w.Header().Set("Content-Type", "application/json")
			w.Header().Set("Retry-After", strconv.Itoa(int(pause/time.Second)))
			w.WriteHeader(http.StatusServiceUnavailable)
			_ = json.NewEncoder(w).Encode(wire.Refusal{Error: fault.Shorten(err.Error(), 2<<10)}) // an agent that is gone asks again
		}
		stack, _ := runner.SplitKey(req.Header.Get(wire.HeaderStack))
		if stack == "" {
			w.Header().Set("Connection", "close")
			own.ServeHTTP(w, req)
			return
		}
		owner, known := r.Members.Owner(stack)
		switch {
		case !known:
			refuse(errMoving)
		case owner.ID == r.Members.Me().ID:
			own.ServeHTTP(w, req)
		default:
			r.Peers.Send(owner, w, req, refuse)
		}
	})
}

// pause is when an agent may ask again.
const pause = time.Second

// reachLimit bounds one check of the leader.
const reachLimit = 2 * time.Second

// Ready is nil if this replica can answer: it is the leader, or reaches it. While no
// replica leads none answers better: during a failover, and until the controller of a
// release that shared nothing has ended. A leader that has just ended is still the one that
// is known, so a replica that reached it stays ready for a while.
func (r *Replicas) Ready(ctx context.Context) error {
	leader, known := r.Members.Leader()
	if !known || leader.ID == r.Members.Me().ID {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, reachLimit)
	defer cancel()
	if err := r.Peers.Call(ctx, leader, callPing, nil, nil); err != nil && !r.recently() {
		return fmt.Errorf("reaching the leader: %w", err)
	} else if err == nil {
		r.reached.Store(new(r.Now()))
	}
	return nil
}

// withoutLeader is how long a replica that reached the leader is ready without it. A
// failover takes less.
const withoutLeader = time.Minute

// recently reports whether the leader was reached a short while ago.
func (r *Replicas) recently() bool {
	at := r.reached.Load()
	return at != nil && r.Now().Sub(*at) < withoutLeader
}
