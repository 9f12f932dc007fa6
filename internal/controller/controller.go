// Package controller reconciles stacks: it observes an object and all that belongs
// to it, lets the core decide, carries out one action, and writes down what came of
// it. The rules are in package stack. It does not isolate runs: it passes on what
// the platform asks for. It does not know where bytes are kept.
//
// Start reading at Stacks.reconcile.
package controller

import (
	"context"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/terrier-iac/terrier/internal/controller/aftersteps"
	"github.com/terrier-iac/terrier/internal/controller/approvals"
	"github.com/terrier-iac/terrier/internal/controller/modules"
	"github.com/terrier-iac/terrier/internal/controller/policies"
	"github.com/terrier-iac/terrier/internal/controller/prerequisites"
	"github.com/terrier-iac/terrier/internal/controller/provenance"
	"github.com/terrier-iac/terrier/internal/controller/records"
	"github.com/terrier-iac/terrier/internal/controller/states"
	"github.com/terrier-iac/terrier/internal/controller/vaults"
	"github.com/terrier-iac/terrier/internal/dialect"
	"github.com/terrier-iac/terrier/internal/drift"
	"github.com/terrier-iac/terrier/internal/encryption"
	"github.com/terrier-iac/terrier/internal/engine"
	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/identity"
	"github.com/terrier-iac/terrier/internal/image"
	"github.com/terrier-iac/terrier/internal/prerequisite"
	"github.com/terrier-iac/terrier/internal/review"
	"github.com/terrier-iac/terrier/internal/runner"
	"github.com/terrier-iac/terrier/internal/schedule"
	"github.com/terrier-iac/terrier/internal/secret"
	"github.com/terrier-iac/terrier/internal/source"
	"github.com/terrier-iac/terrier/internal/stack"
)

// Artifacts fetches the archives of sources, verified.
type Artifacts interface {
	Get(ctx context.Context, a source.Artifact) (path string, err error)
}

// Events tells people what happened to an object.
type Events interface {
	Event(obj client.Object, kind, reason, message string)
}

// RegistryReader is a run that may read from the registry of the platform.
type RegistryReader struct {
	Run       string // its ID
	Key       string // of the run, see runner.Key
	Namespace string // of the stack
	Until     time.Time
}

// Identities are the identities of runs at other systems.
type Identities interface {
	// Allows returns why the stacks of a namespace may not ask for what they ask for: Denied
	// by the rules of the operator. Other errors may pass.
	Allows(ctx context.Context, namespace string, q identity.Request) error
	// Of is what the job of a run has.
	Of(ctx context.Context, by Identified) (*runner.Identity, error)
	// Token is a token of a run for one use, with which the controller signs in for it.
	Token(ctx context.Context, by Identified, use identity.Use) (secret.Text, error)
}

// Identified is a run that signs in elsewhere, as far as the controller knows it. The rest
// of its claims is of its namespace.
type Identified struct {
	Run     identity.Run
	Key     string // see runner.Key
	Request identity.Request
	Until   time.Time
}

// Accounts makes readers with the rights of ServiceAccounts.
type Accounts interface {
	As(account types.NamespacedName) (client.Reader, error)
}

// Config is what an operator sets for all stacks.
type Config struct {
	CrossNamespace  bool     // sources and dependencies may be in another namespace without a grant
	ReadAs          string   // ServiceAccount with whose rights inputs of stacks that name none are read; if empty, inputs of all stacks are read with the controller's own rights
	Account         string   // ServiceAccount of runs whose stack names none
	TenantLabel     string   // whose value is the tenant of a stack; its namespace if empty or not set
	Pods            bool     // runs are pods
	Network         string   // of runs that do not say: none or host
	HostNetwork     bool     // a stack may ask for the host's network although the default is none
	MirrorProviders []string // addresses of the providers in the runner's mirror
	MirrorOnly      bool     // no provider comes from elsewhere
	Backends        []string // names of the operator's own plug-ins for states
	ClusterUID      string   // of this cluster, for backends that clusters share; empty if it is not known
	Formerly        []string // UIDs of clusters whose place this one takes: their states are its states
	Settable        []string // reserved environment variables that stacks may set
	MinLevel        int
	BreakGlass      BreakGlass
	NoReattach      bool // the engine starts providers itself, each time it needs one
	Limits          runner.Limits
	Patience        time.Duration // how long the status may go without progress that no person waits for; see Patience
	StackMetrics    bool          // a metric that upstream has by the names of stacks has them here, too
}

// Stacks reconciles the objects of all dialects. Their runs share one schedule.
type Stacks struct {
	Client     client.Client // reads kinds of stacks and sources from its cache
	Live       client.Client // reads everything from the server
	Accounts   Accounts      // nil if Config.ReadAs is empty
	Grants     Grants
	Dialects   dialect.Registry
	LeftOut    dialect.Registry // kinds that are not reconciled here: the cluster may have stacks of them
	Runner     runner.Runner
	Lingering  runner.Lingering // the Runner, if its runs leave places behind; else nil
	Artifacts  Artifacts
	Modules    *modules.Reader
	Archives   records.Archives
	Images     Images                                         // nil makes no images of stacks
	Registry   func(RegistryReader) (*runner.Registry, error) // how a run reaches the registry of the platform; nil without one
	Identities Identities                                     // nil if the platform issues none
	Vaults     *vaults.Vaults                                 // nil without an OpenBao or Vault
	Logins     *vaults.Vaults                                 // sessions of runs that Identities sign in to a Vault; nil without Identities
	StateKeys  encryption.Keys                                // of states in backends of their own
	States     states.Store
	Blobs      records.Blobs
	Ours       func(context.Context) error // nil if the API server is the one of the cluster whose records Blobs has
	Engine     func(ctx context.Context, name string) (engine.Engine, error)
	Events     Events
	Audit      AuditLog        // nil records nothing
	Destroys   policies.Ledger // by which policies limit destroys; nil lets them limit none
	Reviewers  review.Reviewers
	Policies   Policies // nil has none
	Signatures provenance.Reader
	Stamps     approvals.Stamps // nil believes no stamps
	Queue      Queue
	Shared     bool        // this controller works on the shards that it takes, and begins with none
	Moves      Moving      // nil unless Shared
	Leads      func() bool // whether this controller does what one of them does for all; nil if it is alone
	Config     Config
	Key        secret.Text // keys digests of inputs, so that a digest tells nothing about them
	Now        func() time.Time
	Log        *slog.Logger
	Metrics    prometheus.Registerer // nil registers no metrics

	Systems *prerequisites.Systems // that prerequisites may ask; nil asks none
	Hosts   *aftersteps.Hosts      // by which hosts are written into repositories; nil writes none

	prober *prerequisites.Prober // nil without Systems
	beside *aftersteps.Queue     // writes hosts; nil without Hosts

	reviews *review.Pool
	imaging *imaging // nil without Images
	index   index
	wakes   wakeQueues

	newcomers schedule.Newcomers
	metrics   *metrics
	steps     *steps
	shards    *shards // nil unless Shared
}

// pass is one reconcile of one object.
type pass struct {
	dialect dialect.Dialect // of the object
	obj     client.Object
	stale   bool   // obj is a copy that the server may have a newer version of
	id      string // the stack: the object's UID
	entry   *entry // what is remembered of it

	st       dialect.Stack // as the object had it when the pass began
	o        stack.Observation
	decision stack.Decision

	policies policies.Set
	inside   bool           // only policies are asked about the pending plan
	reviewed *stack.Verdict // as the object has it

	job    *runner.Job // as far as it is known before the kind of run is
	note   note
	in     inputs
	wanted *image.Wanted       // that the runs of the stack start from; nil for that of the platform
	image  image.Made          // that the run is to start from; zero for that of the platform
	within string              // the directory of the source that its URL names; it is part of the path of the root module
	ended  *stack.Run          // a run that ended and was folded into the status
	report *runner.Report      // of that run
	left   *schedule.Candidate // that run as the queue knows it; its place may be there still
	masked bool                // it is not known which values came from Secrets, and so every value is masked
	listed *dialect.Inventory  // what that run left of a state that is kept elsewhere

	turn      schedule.Delay  // of a due drift check that waits for a budget; zero if it waits for none
	tolerated drift.Judgement // what rules say of the drift that the run found

	prerequisites []prerequisite.Result // what is known of each; nil if this pass did not look
	confirming    bool                  // it has its turn, and waits for prerequisites that are asked once more

	postDeploy *dialect.PostDeploy // what the postDeploy script of that run printed

	isolation        string // of the newest run
	unread           bool   // the run of the stack could not be read, and may go on
	unreadable       error  // why the status in the object cannot be read
	unaudited        error  // why the audit log does not hold what people asked for
	breakGlassDenied bool   // a person asks for a break-glass session where none is allowed

	outcome outcome       // of the decision
	recheck time.Duration // when another reason than the decision asks for a pass; zero if none does
}

// outcome is what came of the decision of a pass. A pass has at most one effect.
type outcome string

const (
	undecided outcome = ""          // nothing was decided yet
	postponed outcome = "postponed" // a run that ended is written down first; the next pass carries the decision out
	done      outcome = "done"      // the decision was carried out
	news      outcome = "news"      // the decision was carried out or met an obstacle, and Decide has to see that
	outdated  outcome = "outdated"  // the object changed during the pass, so that another pass has to decide
	released  outcome = "released"  // the object was released
)

// subject is the stack of the pass, for package states.
func (p *pass) subject() states.Subject {
	return states.Subject{ID: p.id, Dialect: p.dialect, Object: p.obj, Asked: p.st, Observed: &p.o}
}

// approvers is the stack of the pass, for package approvals.
func (p *pass) approvers() approvals.Subject {
	return approvals.Subject{ID: p.id, Dialect: p.dialect, Object: p.obj, Asked: p.st, Observed: &p.o, Known: &p.entry.approvers}
}

// verify finds out who approved the pending plan.
func (c *Stacks) verify(ctx context.Context, p *pass) error {
	if p.unreadable != nil {
		return nil
	}
	recheck, err := c.steps.approvals.Verify(ctx, p.approvers())
	p.recheckIn(recheck)
	return err
}

// reconcile brings one stack one step further. It is one pass in six steps.
func (c *Stacks) reconcile(ctx context.Context, of objectRef) (ctrl.Result, error) {
	c.newcomers.Reconciled(of.scheduleKey())
	in, err := c.enter(ctx, of)
	if in == nil {
		return ctrl.Result{}, err
	}
	defer in.leave()
	if in.formerOnly() {
		wait, err := c.steps.removals.former(ctx, of)
		return ctrl.Result{RequeueAfter: wait}, err
	}
	p, err := c.steps.loader.load(ctx, of) // the object, and what is remembered of it
	switch {
	case p == nil && apierrors.IsNotFound(err):
		wait, err := c.steps.removals.abandoned(ctx, of, "")
		return ctrl.Result{RequeueAfter: wait}, err
	case p == nil:
		return ctrl.Result{}, err
	case !in.has(p.id): // the object was created again since
		c.index.drop(p.id)
		return again, nil
	case fault.Of(err) == fault.Later:
		c.steps.turns.withdraw(p)
		return c.steps.committer.unjudged(ctx, p, err)
	}
	if err == nil {
		err = c.steps.claimer.claim(ctx, p) // nothing is created for an object that is not ours
	}
	if err == nil {
		err = c.steps.settler.settle(ctx, p) // a run that ended, or goes on
	}
	if fault.Of(err) == fault.Conflict {
		return c.steps.loader.requeue(p.entry), nil
	}
	if fault.Reason(err, "") == aftersteps.Soon { // there is nothing to say yet
		return ctrl.Result{RequeueAfter: aftersteps.Patience}, nil
	}
	if err == nil {
		err = c.steps.observer.observe(ctx, p) // everything else that a decision depends on
	}
	if err == nil {
		err = c.verify(ctx, p) // who approved the plan that was observed
	}
	if err != nil {
		c.steps.turns.withdraw(p) // it asks again once it can be read
		return ctrl.Result{}, c.steps.committer.failed(ctx, p, err)
	}
	for {
		c.steps.auditor.audit(ctx, p)
		p.decision = stack.Decide(p.o)
		if p.outcome == news {
			break // the next pass carries out what follows from that
		}
		if p.outcome = c.steps.actor.act(ctx, p); p.outcome != news {
			break // one effect in a pass
		}
	}
	result, err := c.steps.committer.commit(ctx, p) // what the pass found and did is written down and told
	if err != nil {
		return result, c.steps.committer.failed(ctx, p, err)
	}
	p.entry.failingSince = time.Time{}
	return result, nil
}

// blockedBy turns an error into something to wait for.
func blockedBy(err error, reason stack.Reason) *stack.Blocked {
	return &stack.Blocked{Kind: fault.Of(err), Reason: reason, Message: err.Error()}
}

// Kinds of events.
const (
	normal  = corev1.EventTypeNormal
	warning = corev1.EventTypeWarning
)
