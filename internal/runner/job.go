package runner

import (
	"encoding/json"
	"time"

	"github.com/terrier-iac/terrier/internal/engine"
	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/plan"
	"github.com/terrier-iac/terrier/internal/stack"
	"github.com/terrier-iac/terrier/internal/workdir"
)

// Job is everything a supervisor needs for one run. It travels once, over the
// supervisor's standard input, because it holds secrets in clear.
type Job struct {
	Version int    // JobVersion of whoever starts the run; set by Start
	ID      string // lower-case letters, digits and '-'; derived from the cause of the run
	Stack   string // the identity of the stack, its UID; one run at a time holds it
	Name    string // namespace/name, for people
	Kind    stack.RunKind
	Created time.Time

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
	State     []byte // managed: the state to start from; empty if there is none
	Workspace string // empty means default
	Plan      []byte // apply: the saved plan, exactly as it was made; Files and Env must give the same variables
	Lineage   string // apply: what the plan was made against; empty skips the check
	Serial    uint64
	LockFile  []byte // apply: the dependency lock file that the plan was made with; used if the directory is prepared anew

	Options Options
	Limits  Limits
	Box     Box
	Checks  []Check // health: what is asked; no engine runs

	Command []string // glass: what a person typed, one of engine.HandCommands

	// Note is the caller's own record of why the run exists. The supervisor
	// copies it into every Report, so that a restarted controller knows what a
	// run that it finds was made from. It must hold no secret.
	Note json.RawMessage `json:",omitempty"`
}

// Engine is the program that a run drives.
type Engine = engine.Engine

// Tree is the module tree of a run.
type Tree struct {
	Archive string // path of a verified .tar.gz; empty when Files are the whole module
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

// Box says what surrounds a run.
type Box struct {
	Network  string   // none or host
	Mirror   string   // provider mirror directory, read-only inside
	Writable []string // host directories that runs may write, at the same path inside
	MinLevel int      // of isolation; a run that cannot have it is refused
	Level    int      // that the machine can give, if it is known; else the supervisor finds out, which costs a process
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

// Report is what a run says of itself: the content of its run.json, written
// with fsync and rename at every change of phase. It holds no secret.
type Report struct {
	Version int `json:"version,omitempty"` // ReportVersion of the supervisor

	ID    string        `json:"id"`
	Stack string        `json:"stack"`
	Name  string        `json:"name"`
	Kind  stack.RunKind `json:"kind"`

	Phase    Phase     `json:"phase"`
	Since    time.Time `json:"since"`
	Until    time.Time `json:"until,omitzero"` // when the step of that phase is interrupted
	Started  time.Time `json:"started"`
	Finished time.Time `json:"finished,omitzero"`
	PID      int       `json:"pid"`
	Level    int       `json:"level"` // of isolation, see sandbox.Level

	Outcome     stack.Outcome     `json:"outcome,omitempty"`
	Fault       fault.Kind        `json:"fault,omitempty"`  // of a run that we, not the engine, ended
	Reason      string            `json:"reason,omitempty"` // of that fault
	Step        string            `json:"step,omitempty"`   // the engine command that decided the outcome: init, workspace, plan, show, apply, output, health
	Exit        int               `json:"exit,omitempty"`
	Message     string            `json:"message,omitempty"` // one redacted sentence or diagnostic, cut to 2 KiB
	Diagnostics []plan.Diagnostic `json:"diagnostics,omitempty"`
	Changes     stack.Changes     `json:"changes,omitzero"`
	ChangesHash string            `json:"changesHash,omitempty"` // sha256 of what the plan would do
	Addresses   string            `json:"addresses,omitempty"`   // sha256 of what the plan would change and how, but not into what
	Example     string            `json:"example,omitempty"`     // one of these places and its attribute
	LockHash    string            `json:"lockHash,omitempty"`    // sha256 of .terraform.lock.hcl
	Lock        *Lock             `json:"lock,omitempty"`        // the foreign lock that stopped it
	State       StateID           `json:"state,omitzero"`        // the newest state acknowledged, or the one planned against
	Resources   int               `json:"resources,omitempty"`   // managed resource instances in that state
	Rescued     *StateID          `json:"rescued,omitempty"`     // a state that could not be stored and is kept as FileRescue
	Health      []Health          `json:"health,omitempty"`      // how each check of the job went
	Steps       []Step            `json:"steps,omitempty"`
	InitSkipped bool              `json:"initSkipped,omitempty"` // the work directory was prepared already
	NoInit      bool              `json:"noInit,omitempty"`      // the work directory was prepared without the engine, for there was nothing to install

	Providers map[ProviderSource]int64 `json:"providers,omitempty"` // bytes that init made sure of, by where they came from; none if it was skipped

	Note json.RawMessage `json:"note,omitempty"` // the Job's, unchanged
}

// StateID names one version of a state.
type StateID struct {
	Lineage string `json:"lineage,omitempty"`
	Serial  uint64 `json:"serial,omitempty"`
	Digest  string `json:"digest,omitempty"` // sha256 of its bytes
}

// Lock is a state lock as the engine printed it.
type Lock = engine.Lock

// Step is one engine process, or one provider that was kept for the run: then
// its name is "provider " and the provider's source.
type Step struct {
	Name   string        `json:"name"`
	Exit   int           `json:"exit"`
	Wall   time.Duration `json:"wall"`
	CPU    time.Duration `json:"cpu"`
	MaxRSS int64         `json:"maxRSS"` // bytes
}

// The files that a run leaves for Open. All but the plan and the state are redacted.
const (
	FileLog       = "log.txt"         // for people
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
)
