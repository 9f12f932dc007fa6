package stack

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"time"

	"github.com/terrier-iac/terrier/internal/afterapply"
	"github.com/terrier-iac/terrier/internal/identity"
	"github.com/terrier-iac/terrier/internal/prerequisite"
	"github.com/terrier-iac/terrier/internal/secret"
)

// Configuration is how a stack runs: its module, its inputs, the place of its state
// and the target of its outputs. Decide does not look at it; its Shape is part of
// the PlanInputs.
type Configuration struct {
	Source *Ref   // nil when the module is inline
	Path   string // the root module inside the source

	// SourcePaths are the parts of the source that the stack depends on; none for all of it.
	// Each is a pattern of paths, or SourceAuto. They are no part of the shape: what they
	// select is the source of a plan.
	SourcePaths []string

	Inline string // the text of main.tf when there is no source

	Vars     []Var
	VarsFrom []VarsFrom
	Values   json.RawMessage // the variable named values
	Inputs   []Input         // Secrets that Values may refer to
	VarFiles []string        // relative to the root of the source

	Env       []EnvVar     // environment of the engine; later ones win
	EnvFrom   []EnvFrom    // the same, whole objects; weaker than Env
	Files     []File       // files of the run that hold a Secret's key
	CLIConfig *Ref         // a Secret with the configuration of the engine's command line
	Completes []ConfigFrom // what completes the configuration of the backend

	Memory int64         // bytes that a run may use; zero is the platform's bound
	CPUs   int           // processors that the engine and providers may use; zero is all
	Grace  time.Duration // for an engine that was interrupted; never less than the platform's

	Backend   Backend
	Workspace string // empty means default
	Encrypted bool   // the state is encrypted with a key of the platform wherever it is stored

	Identity *identity.Request // by which the runs sign in elsewhere; nil for none

	Script *Script // what the stack is applied and destroyed by; nil if plans are applied

	Targets     []string
	Parallelism int
	Destroy     bool
	Upgrade     bool
	NoPlanLock  bool
	LockTimeout time.Duration

	Pod   Pod    // of a run, where runs are pods
	Image *Image // that runs in pods start from; nil for that of the platform

	Engine  string // the name of an engine; empty means the platform's choice
	Network string // none or host; empty means the platform's choice

	Webhooks []Webhook // asked in this order, until one says no
	Unmasked bool      // they are shown secret values, too

	Readable  Readable
	Outputs   *Outputs
	DependsOn []Ref

	AfterApply []afterapply.Step // what follows an apply; no part of the shape: the core compares it by itself, see Steps

	Prerequisites []prerequisite.Prerequisite // what has to be there before a plan; no part of the shape: they may change while a plan is pending

	Checks    []Check // what must answer after an apply
	Inventory bool    // what exists is listed in the object
}

// SourceAuto among SourcePaths stands for what the root module is found to depend on.
const SourceAuto = "auto"

// Script is what a stack is applied and destroyed by in place of a saved plan. Its
// texts are part of the inputs of a run.
type Script struct {
	Apply, Destroy ScriptText
	PostDeploy     *PostDeploy // nil for none
}

// PostDeploy is a script of the source that runs after each apply that succeeded, and
// after nothing else.
type PostDeploy struct {
	Path string   // relative to the root module
	Args []string // whole, with the values of variables
}

// ScriptText says where one script is: the first of these that is set counts.
type ScriptText struct {
	Text   string
	Config *KeyRef
	Path   string // of a file of the source, relative to the root module

	Args []string // of that file
}

// IsZero reports whether there is no script.
func (t ScriptText) IsZero() bool { return t.Text == "" && t.Config == nil && t.Path == "" }

// Ref names an object. An empty namespace is that of the stack.
type Ref struct{ Kind, Namespace, Name string }

// Var is one variable with its value or where to find it.
type Var struct {
	Name   string
	Value  json.RawMessage
	Secret *KeyRef
	Config *KeyRef
	Field  string // of the object itself: metadata.name, metadata.labels['team']
}

// EnvVar is one environment variable of the engine with its value or where to
// find it. $(NAME) in a value is that of one before.
type EnvVar struct {
	Name   string
	Value  string
	Secret *KeyRef
	Config *KeyRef
	Field  string

	Literal bool // $(NAME) in the value is no reference
}

// EnvFrom makes every key of a Secret or ConfigMap an environment variable.
type EnvFrom struct {
	Kind     string // Secret or ConfigMap
	Name     string
	Prefix   string
	Optional bool
}

// File is a file of a run that holds one key of a Secret.
type File struct {
	Secret KeyRef
	Home   bool   // in the home directory of the run; else in its working directory
	Path   string // relative to it, with slashes
}

// ConfigFrom takes settings of the backend from a Secret or a ConfigMap.
type ConfigFrom struct {
	Kind     string // Secret or ConfigMap
	Name     string
	Keys     []string // empty takes all
	Optional bool
}

// KeyRef names one key of a Secret or ConfigMap.
type KeyRef struct {
	Name, Key string
	Optional  bool
}

// VarsFrom takes variables from a Secret or a ConfigMap.
type VarsFrom struct {
	Kind     string // Secret or ConfigMap
	Name     string
	Keys     []string // key, or key:variable; empty takes all
	Optional bool
}

// Input makes the outputs of another stack readable under a name.
type Input struct{ Secret, As string }

// Readable is the form in which a plan is published in the cluster.
type Readable string

// The readable forms.
const (
	ReadableNone  Readable = ""
	ReadableJSON  Readable = "json"
	ReadableHuman Readable = "human"
)

// Outputs says where the outputs of a stack are published.
type Outputs struct {
	Secret      string
	Select      []string // output, or output:key; empty takes all
	Labels      map[string]string
	Annotations map[string]string
}

// Webhook is asked what it thinks of a plan.
type Webhook struct {
	Field   string // where the object has it, for messages: spec.webhooks[0]
	URL     string
	Payload Payload
	Test    string // a template over its answer that says yes or no
	Refusal string // a template over its answer that says why not
}

// Payload is what a webhook is sent.
type Payload string

const (
	SpecAndPlan Payload = "SpecAndPlan"
	SpecOnly    Payload = "SpecOnly"
	PlanAlone   Payload = "PlanOnly"
)

// Pod is what a stack says about the pods of its runs. It shapes no plan, and runs
// that are processes leave it alone.
type Pod struct {
	Account  string          // the ServiceAccount; empty is the platform's choice
	Template json.RawMessage // a strategic merge patch of the pod; empty changes nothing
}

// Image is an image that is made of the code of a stack, and pushed.
type Image struct {
	Name  string  // of the repository
	Login *KeyRef // a Docker configuration for it; nil for none
}

// PodContainer is what Pod.Template calls the container of the run.
const PodContainer = "terrier-runner"

// Check is one thing that must answer after an apply.
type Check struct {
	Name    string
	Kind    CheckKind
	Target  string        // a URL or host:port, as a template over the outputs
	Timeout time.Duration // zero means the platform's choice
}

// CheckKind is how a check asks.
type CheckKind string

// The kinds of check.
const (
	TCPCheck  CheckKind = "tcp"  // passes if a connection can be made
	SSHCheck  CheckKind = "ssh"  // passes if a server of SSH says its version
	HTTPCheck CheckKind = "http" // passes if a GET is answered with 200 to 399
)

// BackendKind says who keeps the state.
type BackendKind string

// The kinds of backend.
const (
	Managed    BackendKind = "managed"    // we do, in the Secret that the kubernetes backend would use
	Kubernetes BackendKind = "kubernetes" // the engine, in a cluster of the user's choice
	Custom     BackendKind = "custom"     // the engine, as the user's configuration says
	Declared   BackendKind = "declared"   // the engine, as the module itself says
	Remote     BackendKind = "remote"     // Terraform Cloud, or what speaks its API
	Plugin     BackendKind = "plugin"     // the engine, where a backend plug-in says
)

// Backend is where the state of a stack is.
type Backend struct {
	Kind       BackendKind
	Suffix     string // of the state Secret
	Labels     map[string]string
	InCluster  bool
	ConfigPath string
	Custom     string // HCL inside a terraform block
	Cloud      *Cloud `json:",omitempty"` // not part of the shape of stacks that have none

	Plugin   string            `json:",omitempty"` // the name of the plug-in
	Settings map[string]string `json:",omitempty"` // what it is told

	Git *GitPlace `json:",omitempty"` // where a managed state is, if that is no Secret
}

// Cloud is where a remote state is. The token is not part of what shapes a
// plan: a renewed token voids no approval.
type Cloud struct {
	Organization string
	Workspace    string   // the name of one
	Tags         []string // or tags that select several
	Hostname     string
	Token        secret.Text `json:"-"`
}

// Digest hashes anything that marshals, for comparison only.
func Digest(v any) string {
	b, err := json.Marshal(v)
	if err != nil {
		panic("stack: hashing " + err.Error()) // only our own plain structs come here
	}
	sum := sha256.Sum256(b)
	return "sha256:" + hex.EncodeToString(sum[:])
}

// PodShape hashes what the pods of runs are made of and no plan is: a change of it voids no
// approval, and is a reason to try again what failed.
func (p Configuration) PodShape() string {
	return Digest(struct {
		Pod   Pod
		Image *Image
	}{p.Pod, p.Image})
}

// Shape hashes those parts of p that shape a plan without being its source or
// its inputs. Changing anything else does not void an approval.
func (p Configuration) Shape() string {
	return Digest(struct {
		Path, Workspace string
		Backend         Backend
		VarFiles        []string
		Targets         []string
		Destroy         bool
		Identity        *identity.Request `json:",omitempty"` // not part of the shape of stacks that ask for none
		Encrypted       bool              `json:",omitempty"` // likewise
	}{p.Path, p.Workspace, p.Backend, p.VarFiles, p.Targets, p.Destroy, p.Identity, p.Encrypted})
}
