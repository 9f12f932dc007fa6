package web

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"time"

	"github.com/gin-gonic/gin"

	"github.com/terrier-iac/terrier/internal/access"
	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/identity"
	"github.com/terrier-iac/terrier/internal/query"
	"github.com/terrier-iac/terrier/internal/web/metacontroller"
)

// Replicas are the replicas that serve together with this one: any of them takes every
// request, and has the one answer it that knows the answer.
type Replicas interface {
	// Leader is the replica with the queue, the figures and the audit log, and Owner the
	// one that reconciles a stack: nil if it is this one, false if there is none now. A
	// stack that does not exist is answered by this replica.
	Leader() (Replica, bool)
	Owner(query.Key) (Replica, bool)
	// Forwarded reports whether another replica forwarded the request of a context.
	Forwarded(context.Context) bool
}

// Replica is another replica. It answers a request, or calls refuse before it has written
// anything.
type Replica interface {
	Answer(w http.ResponseWriter, r *http.Request, refuse func(error))
}

// answerer is which replica answers a route.
type answerer int

const (
	unassigned   answerer = iota // no rule names the route
	eachReplica                  // the answer is the same everywhere
	leaderOnly                   // 503 while there is no leader
	leaderOrHere                 // this replica while there is no leader: its own board, and what it reads from the cluster
	ownerOnly                    // 503 while the stack has no owner: a run that goes on is known to it alone
	ownerOrHere                  // this replica while the stack has no owner: the cluster, and records
)

// answerers are the rules, the first that fits a route decides. A path that ends in *
// stands for all that begin so.
var answerers = []struct {
	path string
	by   answerer
}{
	{"/healthz", eachReplica},
	{"/readyz", eachReplica},
	{"/static/*", eachReplica},
	{"/validate-*", eachReplica}, // an API server asks
	{"/mutate-*", eachReplica},
	{"/warn-*", eachReplica},
	{metacontroller.SyncPath, eachReplica}, // metacontroller asks what the API server has
	{metacontroller.FinalizePath, eachReplica},
	{metacontroller.CustomizePath, eachReplica},
	{discoveryPath, eachReplica},          // modules and providers are in a bucket that all share
	{identity.PathDiscovery, eachReplica}, // all have the keys of identities
	{identity.PathKeys, eachReplica},
	{packagesPrefix + "/*", eachReplica},
	{"/sign-out", eachReplica}, // each one records it, and tells the others
	{"/api", eachReplica},
	{api + "/version", eachReplica},
	{api + "/openapi.json", eachReplica},

	// The records of tokens are read for each request.
	{"/tokens*", eachReplica},
	{api + "/registry/tokens*", eachReplica},

	// Each replica knows what all stacks use, by their records.
	{api + "/modules/uses", eachReplica},
	{api + "/providers/uses", eachReplica},
	{inNamespace + "/registry/tokens", eachReplica},

	// Who uses what is on the board.
	{"/registry*", leaderOrHere},
	{api + "/registry*", leaderOrHere},
	{inNamespace + "/registry/*", leaderOrHere},

	// A code works once.
	{"/login/*", leaderOnly},

	// A sign-in link works once, and tries are counted.
	{api + "/sign-in-links", leaderOnly},
	{signInPath + "*", leaderOrHere},

	{oneStack + "/runs*", ownerOnly},
	{oneStack + "*", ownerOrHere},
	{"/stacks/:namespace/:name/runs*", ownerOnly},
	{"/stacks/:namespace/:name*", ownerOrHere},

	{"/stacks", leaderOrHere},
	{"/approvals", leaderOrHere},
	{"/drift", leaderOrHere},
	{"/graph", leaderOrHere},
	{api + "/stacks", leaderOrHere},
	{api + "/approvals", leaderOrHere},
	{api + "/drift", leaderOrHere},
	{api + "/events", leaderOrHere},
	{inNamespace + "/stacks", leaderOrHere},

	// The rest of the table, area by area.
	{"/", leaderOnly},
	{"/about", leaderOnly},
	{"/queue", leaderOnly},
	{"/status", leaderOnly},
	{"/sources*", leaderOnly},
	{"/notifications", leaderOnly},
	{"/audit*", leaderOnly},
	{"/retained*", leaderOnly},
	{"/tenants*", leaderOnly},
	{"/registries/*", leaderOnly},
	{"/templates/*", leaderOnly},
	{api + "/queue", leaderOnly},
	{api + "/status", leaderOnly},
	{api + "/sources", leaderOnly},
	{api + "/notifications", leaderOnly},
	{api + "/audit*", leaderOnly},
	{api + "/retained", leaderOnly},
	{api + "/tenants", leaderOnly},
	{api + "/states", leaderOnly},
	{inNamespace + "/retained/*", leaderOnly},
	{inNamespace + "/tenants*", leaderOnly},
	{inNamespace + "/registries/*", leaderOnly},
	{inNamespace + "/templates/*", leaderOnly},

	// The controllers of sources, and what was pushed, are with the leader.
	{ArtifactsPrefix + "/*", leaderOnly},
	{registryPrefix + "/*", leaderOnly},
}

// answeredBy is which replica answers a route, by its path in the table.
func answeredBy(path string) answerer {
	for _, rule := range answerers {
		prefix, all := strings.CutSuffix(rule.path, "*")
		if path == rule.path || all && strings.HasPrefix(path, prefix) {
			return rule.by
		}
	}
	return unassigned
}

// retryMoving is when a request may come again that no replica answers.
const retryMoving = 2 * time.Second

// keyMoving marks a request that this replica answers in place of an owner.
const keyMoving = "moving"

var (
	errNoLeader = fault.Wait(retryMoving, access.ReasonNoLeader, errors.New("the replicas of Terrier have no leader for a moment, after one of them ended: try again in a few seconds"))
	errNoOwner  = fault.Wait(retryMoving, access.ReasonMoving, errors.New("the stack is moving to another replica of Terrier: try again in a few seconds"))
)

// elsewhere has the replica answer that is to answer a route.
func (g *guard) elsewhere(r route) gin.HandlerFunc {
	by := answeredBy(r.path)
	return func(c *gin.Context) {
		if g.replicas == nil || by == eachReplica {
			c.Next()
			return
		}
		other, known := g.answerer(by, c)
		here := by == leaderOrHere || by == ownerOrHere
		switch {
		case known && other == nil:
			c.Next()
		case here && (!known || g.replicas.Forwarded(c.Request.Context())):
			c.Set(keyMoving, by == ownerOrHere)
			c.Next()
		case known:
			if r.body == 0 {
				c.Request.Body, c.Request.ContentLength = http.NoBody, 0 // no handler reads it here, either
			}
			if err := receives(c); err != nil { // the other replica checks the door
				g.replies.refuse(c, err)
				return
			}
			var failed error
			other.Answer(c.Writer, c.Request, func(err error) { failed = err })
			switch reads := c.Request.Method == http.MethodGet || c.Request.Method == http.MethodHead; {
			case failed == nil:
				c.Abort()
			case here && reads:
				// The other one has ended, and that is not known yet.
				c.Set(keyMoving, by == ownerOrHere)
				c.Next()
			default:
				g.replies.refuse(c, failed)
			}
		case by == ownerOnly:
			g.replies.refuse(c, errNoOwner)
		default:
			g.replies.refuse(c, errNoLeader)
		}
	}
}

func (g *guard) answerer(by answerer, c *gin.Context) (Replica, bool) {
	if by == ownerOnly || by == ownerOrHere {
		return g.replicas.Owner(keyOf(c))
	}
	return g.replicas.Leader()
}
