package runner

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"strings"
	"time"

	"github.com/terrier-iac/terrier/internal/backend"
	"github.com/terrier-iac/terrier/internal/encryption"
	"github.com/terrier-iac/terrier/internal/engine"
	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/identity"
	"github.com/terrier-iac/terrier/internal/plan"
	"github.com/terrier-iac/terrier/internal/runner/script"
	"github.com/terrier-iac/terrier/internal/stack"
	"github.com/terrier-iac/terrier/internal/workdir"
)

// This file is the contract between a controller and a runner: the calls, what a run
// is told, what it reports and which files it leaves. Its parts elsewhere are Content
// and Order, which a transport carries, with Contents, Host and Platform (content.go),
// Check and Health (health.go), the reasons in a report (reasons.go) and the versions
// (version.go). The package runnertest proves it. Processes keeps it with a supervisor
// process for each run, on this machine.

// Runner starts runs, finds them again and hands out what they left. A run
// belongs to the runner and not to the process that started it: a new Runner on
// the same data finds every run that was not forgotten. Every method may be
// called at any time from any goroutine.
//
// A run is found by its key and its ID. The key is the identity of its stack, or
// Key(stack, beside) for a run beside the stack. Each key holds one run at a
// time, and keeps it until it is forgotten.
//
// Errors are faults:
//
//	Invalid   NameInvalid       a key, an ID or the name of a file is not allowed
//	Invalid   BesideWrites      a run beside a stack is of a kind other than plan
//	Conflict  StackBusy         another run has the key, or the run is still running
//	Missing   FileMissing       the run left no such file
//	Missing   ContentMissing    the runner does not have what the job names
//	Later     SupervisorTooOld  the supervisor has another version than the controller
//	Later     NoRoom            there is no room for the run now, as with a quota
//
// Any other error is about the runner, and the call can be repeated.
type Runner interface {
	// Start starts a run and returns once it holds its key: from then on it is
	// found by Current and List, whatever becomes of the caller. Starting a run
	// that was started before, whether it is running or has ended, changes
	// nothing and is no error. It is a Conflict while another run has the key,
	// also one that has ended and was not forgotten: its results, the state
	// above all, were not recorded yet. After an error there is no run. When
	// ctx ends before the start is complete, there is no run either.
	Start(ctx context.Context, job Job) error

	// Room asks whether a run could start now, and changes nothing. Its error is that
	// of Start, as far as it is known: without one Start may find no room all the same.
	// It is asked before something is made for the run that would have to be ended.
	Room(ctx context.Context, job Job) error

	// Current returns the report of the run that has the key, or nil. A run that
	// died without a report of its end is reported as Done and Killed, and only
	// after every process of it is dead and the newest state that it left was
	// saved.
	Current(key string) (*Report, error)

	// List returns the report of every run that was not forgotten, of stacks and
	// beside them. It agrees with Current: the error Unread is about the runs that Current
	// does not find either, and all others are returned beside it. After any other error
	// nothing is known of any run.
	List() ([]Report, error)

	// Open opens a file that a run left, by one of the names below. The files
	// of a run that goes on can be read, too; they grow. FileState is always a
	// whole state. It is Missing if the run left no such file.
	Open(key, id, file string) (io.ReadCloser, error)

	// Cancel asks a run to stop and returns without waiting for its end. The
	// engine is interrupted once, however often Cancel is called, and killed
	// when the grace period of the job is over. A run whose supervisor does not
	// see to that is killed as a whole, some time later. A run that has ended or
	// is not known is left alone.
	Cancel(ctx context.Context, key, id string) error

	// Forget removes a run that has ended, with every file that it left. It is a
	// Conflict while the run is running. A run that is not known is no error.
	Forget(key, id string) error

	// Remove removes everything about a key: its prepared directory and a run
	// that has ended. For a stack it removes the runs beside it as well. It is
	// a Conflict while a run is running, and then removes nothing.
	Remove(key string) error

	// Ended sends the key of every run that ends, also of one that an earlier
	// Runner started. The channel is never closed. A run whose end was missed is
	// found by List.
	Ended() <-chan string
}

// Unread is the error of List about the runs that could not be read, as when the state that
// one left cannot be saved. They are the trouble of their stacks alone: all others were listed.
type Unread struct{ Err error }

func (u Unread) Error() string { return u.Err.Error() }

// Unwrap returns what is wrong with each run.
func (u Unread) Unwrap() error { return u.Err }

// Listed reports whether List, which returned err, has listed all runs that can be read.
func Listed(err error) bool {
	_, unread := errors.AsType[Unread](err)
	return err == nil || unread
}

// Reasons of the faults of a runner.
const (
	NameInvalid      = "NameInvalid"
	StackBusy        = "StackBusy"
	FileMissing      = "FileMissing"
	ContentMissing   = "ContentMissing"
	SupervisorTooOld = "SupervisorTooOld"
	NoRoom           = "NoRoom" // see NeverBegan, too
	BesideWrites     = "BesideWrites"
)

// NoImage is the reason in the Report of a run whose place did not get its image, for a cause
// outside of the stack.
const NoImage = "NoImage"

// NeverBegan reports whether a reason in the Report of a run says that the run never began,
// for a cause outside of its stack. Such a run has ended, and may be started again under its
// ID once it was forgotten.
func NeverBegan(reason string) bool { return reason == NoRoom || reason == NoImage }

// Job is everything that one run needs. It names content by digest and holds no
// path of a machine: the runner finds the content. It travels once and is never
// stored by a runner, because it holds secrets in clear.
type Job struct {
	ID         string // lower-case letters, digits and '-'; derived from the cause of the run
	Stack      string // the identity of the stack, its UID
	ObjectKind string `json:",omitempty"` // the kind of the object that asks for the stack, with its group; empty in what earlier releases wrote
	Beside     string // a run beside the stack, by a name of its own; empty for the stack's own run. See Key
	Name       string // namespace/name, for people
	Kind       stack.RunKind
	Created    time.Time

	Engine Engine
	Tree   Tree
	Files  []workdir.File    // generated files, placed after unpacking, removed when the run ends; see CLIConfig
	Home   []workdir.File    // files at the home directory of the run, which it has to itself
	Env    map[string]string // added to the engine's environment; names were checked
	Mask   []string          // values that must not appear in anything stored

	// Managed says that the supervisor serves the state to the engine. In the
	// default workspace the generated files then configure the backend
	// "http" {}, in any other one "local" {}: the http backend knows no
	// workspaces, and terraform.workspace must read the right name. Neither
	// takes settings; the supervisor gives them.
	Managed   bool
	State     Content `json:",omitzero"` // managed: the state to start from; empty if there is none
	Workspace string  // empty means default
	Plan      Content `json:",omitzero"` // apply: the saved plan, exactly as it was made; Files and Env must give the same variables
	Lineage   string  // apply: what the plan was made against; empty skips the check
	Serial    uint64
	LockFile  Content `json:",omitzero"` // apply: the dependency lock file that the plan was made with; used if the directory is prepared again

	Pod      *Pod     `json:",omitempty"` // for runs that are pods; others leave it alone
	Prepared Prepared `json:",omitzero"`  // for runs that begin in an empty directory
	Shares   string   `json:",omitempty"` // the tenant of a drift check whose place may carry out other such checks of the same tenant after it; empty for none
	Options  Options
	Limits   Limits
	Sandbox  Sandbox `json:"Box"` // as records of earlier releases name it
	Checks   []Check // health: the checks to make; no engine runs

	Command []string // break-glass: the command of a user, one of engine.BreakGlassCommands

	Backend *Backend `json:",omitempty"` // where a plug-in makes the place of the state; one of Files is backend.Placeholder

	Expected *stack.ExpectedState `json:",omitempty"` // of a state in a backend of the stack's own: what the run has to find there before it may write; nil if it may find anything

	Registry *Registry `json:",omitempty"` // of the platform, which the supervisor serves to the engine; nil if runs have none

	Identity *Identity `json:",omitempty"` // by which the run signs in elsewhere; nil if its stack asks for none

	Encryption *Encryption `json:",omitempty"` // of a state in a backend of the stack's own; nil if Terrier has no part in it

	Script *Script `json:",omitempty"` // script, and destroy of a stack that has one: what is run in place of the engine's apply

	After []AfterStep `json:",omitempty"` // steps: what is done after an apply

	Words stack.Words `json:",omitzero"` // what the kind of the stack calls its fields, for messages

	// Note is the caller's own record of why the run exists. The supervisor
	// copies it into every Report, so that a restarted controller knows the
	// cause of a run that it finds. It must hold no secret.
	Note json.RawMessage `json:",omitempty"`
}

// Pod is what the object of a stack says about the pod of a run. It holds no secret,
// and is all that the manifest of a pod has of a stack beside names.
type Pod struct {
	Namespace string          // of the object
	Account   string          `json:",omitempty"` // see stack.Pod
	Template  json.RawMessage `json:",omitempty"`
}

// Registry is the registry of the platform, as one run reaches it. The sandbox of the run
// sees none of this: see package relay.
type Registry struct {
	Hosts  []string `json:",omitempty"` // its names in the addresses of modules and providers
	Mirror bool     `json:",omitempty"` // all other providers come from there, too, but for
	Direct []string `json:",omitempty"` // these, by patterns of the engine: the operator has them come from the registries of their addresses

	// Where it is. A controller whose runs are elsewhere leaves it empty: the agent
	// of the run knows its way.
	URL       string            `json:",omitempty"`
	Authority []byte            `json:",omitempty"` // certificates in PEM that it is signed with; the system's if there are none
	Token     string            `json:",omitempty"` // of this run alone
	TokenFile string            `json:",omitempty"` // in its place: a file that is read for each request
	Header    map[string]string `json:",omitempty"` // of each request
}

// Identity is how a run gets the tokens by which it signs in elsewhere. The sandbox of the
// run sees the tokens and none of this: see package tokens.
type Identity struct {
	Request identity.Request
	Phase   identity.Phase
	Grant   string // of this run alone; see package issuer

	// Where the controller is. One whose runs are elsewhere leaves it empty: the agent of
	// the run knows its way.
	URL       string            `json:",omitempty"`
	Authority []byte            `json:",omitempty"` // certificates in PEM that it is signed with; the system's if there are none
	TokenFile string            `json:",omitempty"` // the credential of each request, read for each one
	Header    map[string]string `json:",omitempty"` // of each request
}

// Encryption says how the engine stores a state in a backend of the stack's own, with which
// keys. The sandbox of the run sees none of them: see package sealer.
type Encryption struct {
	Keys  []encryption.Key // of this stack, the newest first
	Plain bool             // the state may be found plain: it is not known to be encrypted yet
	End   bool             // it becomes a plain one again
}

// Script is what a stack is applied and destroyed by, exactly as a user wrote it. It runs
// in the root module of the tree. A text wins over a path.
type Script struct {
	Apply, Destroy         []byte   `json:",omitempty"`
	ApplyPath, DestroyPath string   `json:",omitempty"` // of a file of the tree, relative to the root module
	ApplyArgs, DestroyArgs []string `json:",omitempty"` // of that file

	// PostDeploy runs after a script that applied, and after nothing else.
	PostDeploy     string   `json:",omitempty"` // a path as ApplyPath; empty for none
	PostDeployArgs []string `json:",omitempty"`
}

// Backend is the plug-in that makes the place of a state before init, and says which
// backend block the engine needs for it.
type Backend struct {
	Name     string
	Settings map[string]string `json:",omitempty"`
	Stack    backend.Stack
	Expected bool     `json:",omitempty"` // the state exists: nothing is created that could hold it
	Formerly []string `json:",omitempty"` // clusters whose place that of the stack takes, by UID
}

// Prepared is about the directory in which an engine was initialised, for runs that
// begin in an empty one. See FilePrepared.
type Prepared struct {
	Digest string `json:",omitempty"` // of what an earlier run of the same InitKey left; empty if there is nothing
	Keep   int64  `json:",omitempty"` // how many bytes the run may leave for later ones; zero is nothing
}

// Key is the key of a run beside a stack, or of the stack itself if beside is
// empty. A run beside a stack has a directory of its own, may go on while other
// runs of the stack do, takes no lock and writes nothing: only kind plan is
// allowed. Its report must not be taken for one of the stack's own runs.
func Key(stack, beside string) string {
	if beside == "" {
		return stack
	}
	return stack + besideMark + beside
}

// besideMark stands between the two parts of a key. No name holds it.
const besideMark = "_"

// SplitKey returns what Key was made from.
func SplitKey(key string) (stack, beside string) {
	stack, beside, _ = strings.Cut(key, besideMark)
	return stack, beside
}

// Key is the key by which the run is found.
func (j Job) Key() string { return Key(j.Stack, j.Beside) }

// Engine names the program that a run drives.
type Engine struct {
	Asked   string // the name by which the stack asks for it; empty is the platform's own
	Name    string // tofu or terraform
	Version string // 1.12.6
}

// String names the engine as the inputs of a plan do: "tofu 1.12.6".
func (e Engine) String() string { return e.Name + " " + e.Version }

// Tree is the module tree of a run.
type Tree struct {
	Archive string // the digest of a .tar.gz; empty when Files are the whole module
	Digest  string // sha256:…; names the prepared directory's content
	Path    string // the root module inside the tree; "" is its root

	// Exclude names files and directories of the root module to leave out when
	// unpacking, relative to it: they would let the module choose its backend.
	Exclude []string
}

// Options shape the engine's command lines.
type Options struct {
	InitKey      string   // fingerprint of what init depends on; init is skipped while it stays the same
	Backend      []string // -backend-config values, key=value
	BackendFile  string   // the generated File that completes the backend; every run then begins with init, for what init keeps is wiped
	BackendType  string   // the backend that init must end with; managed runs know theirs, empty skips the check
	Upgrade      bool
	Destroy      bool
	Targets      []string
	VarFiles     []string // relative to the root of the tree
	Parallelism  int
	NoLock       bool
	LockTimeout  time.Duration
	ForceUnlock  string // a lock to break after init
	ReadableText bool   // keep the plan as the engine prints it for people
	Outputs      bool   // foreign backend: read the outputs at the end of a run that succeeded
	Inventory    bool   // foreign backend: leave an inventory of the state, too
	NoReattach   bool   // the engine starts providers by itself, each time it needs one
}

// Limits bound a run. Zero means the platform's default.
type Limits struct {
	Init, Plan, Apply time.Duration
	Health            time.Duration // of all checks together; what they may take by themselves if zero
	Grace             time.Duration // between the one interrupt and the kill
	Provider          time.Duration // until a provider has to say where it serves
	LogBytes          int64
	Memory            int64
	Processes         int
	FileBytes         int64
	CPUs              int // processors that the engine and its providers are told to use
}

// Longest is how long a run with these limits may take at most, the stop of its last step
// included.
func (l Limits) Longest() time.Duration {
	return orDefault(l.Init, defaultInit) + orDefault(l.Plan, defaultPlan) + 2*orDefault(l.Apply, defaultApply) + l.Health + orDefault(l.Grace, defaultGrace)
}

// Sandbox describes the isolation of a run. Directories of the machine that all
// runs may write, and a mirror of providers, are settings of the runner.
type Sandbox struct {
	Network  string // none or host
	MinLevel int    // of isolation; a run that cannot have it is refused
	Level    int    // that the machine can give, if it is known; else the supervisor finds out, which costs a process
}

// Phase is where a run stands.
type Phase string

// The phases, in order.
const (
	Starting     Phase = "Starting"
	Unpacking    Phase = "Unpacking"
	Initializing Phase = "Initializing"
	Planning     Phase = "Planning"
	Showing      Phase = "Showing"
	Applying     Phase = "Applying"
	Saving       Phase = "Saving"
	Done         Phase = "Done"

	// CheckingHealth is all that a run which asks for health does.
	CheckingHealth Phase = "CheckingHealth"
)

// Changes reports whether a run that writes may change resources or the state in this
// phase. One that is not known here may.
func (p Phase) Changes() bool {
	switch p {
	case "", Starting, Unpacking, Initializing, Planning, Showing, CheckingHealth, Saving, Done:
		return false
	default:
		return true
	}
}

// Report is the report of a run, durable at every change of its phase. It holds
// no secret. Its JSON is kept in records and read by later releases.
type Report struct {
	Version int `json:"version,omitempty"` // ReportVersion of the supervisor

	ID         string        `json:"id"`
	Stack      string        `json:"stack"`
	ObjectKind string        `json:"objectKind,omitempty"` // the Job's, unchanged
	Beside     string        `json:"beside,omitempty"`     // see Key
	Name       string        `json:"name"`
	Kind       stack.RunKind `json:"kind"`

	Phase    Phase     `json:"phase"`
	Since    time.Time `json:"since"`
	Until    time.Time `json:"until,omitzero"` // when the step of that phase is interrupted
	Started  time.Time `json:"started"`
	Finished time.Time `json:"finished,omitzero"`
	PID      int       `json:"pid"`
	Level    int       `json:"level"` // of isolation, see sandbox.Level

	Grace time.Duration `json:"grace,omitempty"` // how long the step of that phase may go on after it was interrupted

	Outcome     stack.Outcome       `json:"outcome,omitempty"`
	Fault       fault.Kind          `json:"fault,omitempty"`  // of a run that we, not the engine, ended
	Reason      string              `json:"reason,omitempty"` // of that fault
	Step        string              `json:"step,omitempty"`   // the engine command that decided the outcome: init, workspace, plan, show, apply, output, health
	Exit        int                 `json:"exit,omitempty"`
	Permanent   bool                `json:"permanent,omitempty"` // the engine failed because of the configuration and its variables alone: another run of the same would fail as well
	Message     string              `json:"message,omitempty"`   // one redacted sentence or diagnostic, cut to 2 KiB
	Diagnostics []plan.Diagnostic   `json:"diagnostics,omitempty"`
	Changes     stack.Changes       `json:"changes,omitzero"`
	ChangesHash string              `json:"changesHash,omitempty"` // sha256 of the changes of the plan
	Addresses   string              `json:"addresses,omitempty"`   // sha256 of the resources that the plan would change and how, without the values
	Example     string              `json:"example,omitempty"`     // one of these places and its attribute
	LockHash    string              `json:"lockHash,omitempty"`    // sha256 of .terraform.lock.hcl
	Lock        *Lock               `json:"lock,omitempty"`        // the foreign lock that stopped it
	State       StateID             `json:"state,omitzero"`        // the newest state acknowledged, or the one planned against
	Resources   int                 `json:"resources,omitempty"`   // managed resource instances in that state
	Foreign     *stack.StateFacts   `json:"foreign,omitempty"`     // what was read last of a state in a backend of the stack's own; nil if nothing was
	Missing     *stack.MissingState `json:"missing,omitempty"`     // that is not the state which the job expects, so that the run ended before it wrote
	Untouched   bool                `json:"untouched,omitempty"`   // of a kind that writes: it has changed nothing so far, and see Changing; earlier releases never say so
	Lost        bool                `json:"lost,omitempty"`        // it ended with its machine: what it did last may not be in its files
	Rescued     *StateID            `json:"rescued,omitempty"`     // a state that could not be stored and is kept as FileRescue
	Health      []Health            `json:"health,omitempty"`      // how each check of the job went

	CheckBlocks *stack.CheckBlocks `json:"checkBlocks,omitempty"` // results of the check blocks of the module; nil if unknown

	// PostDeploy is what the script of that name has printed as its outputs, redacted.
	PostDeploy json.RawMessage `json:"postDeploy,omitempty"`

	AfterSteps []stack.StepResult `json:"afterSteps,omitempty"` // of a run of the steps after an apply: how each went, so far

	Steps    []Step      `json:"steps,omitempty"`
	Identity *Identified `json:"identity,omitempty"` // who the run was elsewhere; nil if its stack asked for no identity

	InitSkipped bool `json:"initSkipped,omitempty"` // the work directory was prepared already
	NoInit      bool `json:"noInit,omitempty"`      // the work directory was prepared without the engine, for there was nothing to install

	Providers map[ProviderSource]int64 `json:"providers,omitempty"` // bytes that init made sure of, by where they came from; none if it was skipped

	Note json.RawMessage `json:"note,omitempty"` // the Job's, unchanged

	// Gone is when the stack was deleted, in the record of its last run that outlives it. No
	// runner says it.
	Gone time.Time `json:"gone,omitzero"`
}

// Changing reports whether the run is in the step that may change resources or the state.
// The report that says so first is durable before the step begins, and with Config.Asks
// the step begins only after Allow.
func (r Report) Changing() bool { return r.Kind.Writes() && r.Phase.Changes() }

// PostDeployOutputs are the outputs of the postDeploy script, checked again: the report of a
// run that was elsewhere may say anything. They are nil if there are none.
func (r Report) PostDeployOutputs() (json.RawMessage, error) {
	if r.PostDeploy == nil {
		return nil, nil
	}
	return script.TidyOutputs(r.PostDeploy)
}

// Key is the key by which the run is found.
func (r Report) Key() string { return Key(r.Stack, r.Beside) }

// StateID names one version of a state.
type StateID = stack.StateID

// Lock is a state lock as the engine printed it.
type Lock = engine.Lock

// Identified says by which tokens a run signed in elsewhere, without the tokens.
type Identified struct {
	Phase   identity.Phase `json:"phase"`
	Tokens  []TokenOf      `json:"tokens"`            // the newest of each use
	Renewed int            `json:"renewed,omitempty"` // times that they were renewed
}

// String names the phase and the tokens.
func (d *Identified) String() string {
	if d == nil {
		return ""
	}
	var names []string
	for _, t := range d.Tokens {
		names = append(names, t.Name)
	}
	return string(d.Phase) + ": " + strings.Join(names, ", ")
}

// TokenOf is one token of a run: what it was for, and the ID by which verifiers and the audit
// log know it.
type TokenOf struct {
	Name     string    `json:"name"` // see identity.Use
	Audience string    `json:"audience"`
	Role     string    `json:"role,omitempty"`
	ID       string    `json:"id"`
	Expires  time.Time `json:"expires"`
}

// Step is one engine process, or one provider that was started for the run: then
// its name is "provider " and the provider's source.
type Step struct {
	Name   string        `json:"name"`
	Exit   int           `json:"exit"`
	Wall   time.Duration `json:"wall"`
	CPU    time.Duration `json:"cpu"`
	MaxRSS int64         `json:"maxRSS"` // bytes
}

// The files that a run leaves for Open. All but the plan, the state and what init
// made are redacted.
const (
	FileLog       = "log.txt"         // for people, each line with its time; package logfile reads it
	FileEvents    = "events.jsonl"    // the engine's event stream, one JSON object a line
	FilePlan      = "plan.bin"        // the saved plan
	FilePlanDoc   = "plan.json"       // the plan as a document; sensitive values masked
	FilePlanRaw   = "plan-raw.json"   // the same, unmasked, as upstream's readable plan wants it
	FilePlanTxt   = "plan.txt"        // the plan as the engine prints it
	FileState     = "state.json"      // the newest acknowledged state
	FileOutputs   = "outputs.json"    // name → {value, type, sensitive}
	FileInventory = "inventory.json"  // foreign backend: a plan.Inventory of the state
	FileRescue    = "errored.tfstate" // a state that the backend refused
	FileLockHCL   = "lock.hcl"        // the dependency lock file after init
	FilePrepared  = "prepared.tar.gz" // what init made beside the providers, if Job.Prepared asks for it
	FileUses      = "uses.json"       // a usage.Usage: what the module uses; left by each run that finds it out, and by each with a plan
)

// Remain is a place in which something may still run although its run has ended: a pod
// that was not told yet that its run is forgotten, or that is about to end.
type Remain struct {
	Stack     string // the identity of the stack, its UID
	Place     string // tells it from other places of the stack
	Namespace string
	Tenant    string // of its run; empty if it is not known
}

// Lingering is a Runner whose runs leave places behind. As long as one is there, it
// takes room from other runs.
type Lingering interface {
	// Remains lists the places that the runs of a stack left, of all stacks if that
	// is empty.
	Remains(stack string) []Remain

	// Vacated sends every place that Remains listed once nothing runs there any more.
	// It is not listed again before that. The channel is never closed.
	Vacated() <-chan Remain
}

// Sharing is a Lingering whose places may carry out another run after a quiet check, if
// that is a check of the same Job.Shares and of a place that is made in the same way.
type Sharing interface {
	Lingering

	// Offered sends a place that Remains lists and that could have another run now, again
	// and again until it has one or has ended. Each has to be answered. The channel is never
	// closed.
	Offered() <-chan Remain

	// Answer says whether the run of a stack was given the slot of the place, and otherwise
	// whether another run waits for the slot: then the place ends.
	Answer(place Remain, to string, others bool)
}
