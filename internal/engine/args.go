package engine

import (
	"errors"
	"fmt"
	"strconv"
	"time"
)

// The builders below return the arguments of one engine command, or an Invalid
// error for a name that must not become an argument. Paths of plans and states
// are the supervisor's own and are passed through.

// InitOptions shape `init`.
type InitOptions struct {
	Backend  []string // key=value
	File     string   // of backend settings, the supervisor's own
	Upgrade  bool
	VarFiles VarFiles // sources of modules may depend on them
}

// Init prepares a directory. State is never migrated: a prepared directory is
// rebuilt when its backend changes.
func Init(o InitOptions) ([]string, error) {
	args := []string{"init", "-input=false", "-no-color", "-json"}
	if o.Upgrade {
		args = append(args, "-upgrade")
	}
	for _, kv := range o.Backend {
		if err := checkBackendConfig(kv); err != nil {
			return nil, err
		}
		args = append(args, "-backend-config="+kv)
	}
	if o.File != "" {
		args = append(args, "-backend-config="+o.File)
	}
	files, err := o.VarFiles.args()
	if err != nil {
		return nil, err
	}
	return append(args, files...), nil
}

// SelectWorkspace switches a prepared directory to a workspace, making it if
// it is not there. The command knows no JSON.
func SelectWorkspace(name string) ([]string, error) {
	if err := checkWorkspace(name); err != nil {
		return nil, err
	}
	return []string{"workspace", "select", "-no-color", "-or-create", "--", name}, nil
}

// PlanOptions shape `plan`.
type PlanOptions struct {
	Out         string
	Destroy     bool
	Targets     []string
	VarFiles    VarFiles
	Parallelism int
	NoLock      bool
	LockTimeout time.Duration
}

// Plan makes a saved plan; the exit code is 2 if it holds changes.
func Plan(o PlanOptions) ([]string, error) {
	if o.Out == "" {
		return nil, errors.New("planning: no file for the plan")
	}
	args := []string{"plan", "-input=false", "-no-color", "-json", "-detailed-exitcode", "-out=" + o.Out}
	if o.Destroy {
		args = append(args, "-destroy")
	}
	for _, t := range o.Targets {
		if err := CheckTarget(t); err != nil {
			return nil, err
		}
		args = append(args, "-target="+t)
	}
	files, err := o.VarFiles.args()
	if err != nil {
		return nil, err
	}
	return shared(append(args, files...), o.Parallelism, o.NoLock, o.LockTimeout)
}

// VarFiles are files with variables that a command is given. A later one
// overrules an earlier one, and all of them overrule what the engine loads by
// itself.
type VarFiles struct {
	First string   // the supervisor's own, in the root module; it has to overrule files that the engine loads after it
	Files []string // of the stack, below Tree
	Tree  string   // how the root of the tree is called from the root module, with a slash at its end
}

func (v VarFiles) args() ([]string, error) {
	var args []string
	if v.First != "" {
		args = append(args, "-var-file="+v.First)
	}
	for _, f := range v.Files {
		if err := CheckVarFile(f); err != nil {
			return nil, err
		}
		args = append(args, "-var-file="+v.Tree+f)
	}
	return args, nil
}

// ApplyOptions shape `apply` of a saved plan: everything else is in the plan.
// Variable files are, too, but OpenTofu compares: without them, what they
// override would seem to have changed. Terraform takes none.
type ApplyOptions struct {
	Plan        string
	VarFiles    VarFiles
	Parallelism int
	NoLock      bool
	LockTimeout time.Duration
	Forgets     bool // see SuppressesForgetErrors
}

// SuppressesForgetErrors reports whether the engine has an option by which a destroy
// that forgets resources, as the configuration asks for, does not end in an error.
// See LeftForgotten for the engines that have none.
func SuppressesForgetErrors(name, version string) bool {
	v, ok := parts(version)
	return ok && name == "tofu" && !less(v, [3]int{1, 12, 0})
}

// Apply carries out exactly the saved plan.
func Apply(o ApplyOptions) ([]string, error) {
	if o.Plan == "" {
		return nil, errors.New("applying: no saved plan")
	}
	files, err := o.VarFiles.args()
	if err != nil {
		return nil, err
	}
	args, err := shared(append([]string{"apply", "-input=false", "-no-color", "-json"}, files...), o.Parallelism, o.NoLock, o.LockTimeout)
	if err != nil {
		return nil, err
	}
	if o.Forgets {
		args = append(args, "-suppress-forget-errors")
	}
	return append(args, "--", o.Plan), nil
}

// ShowJSON prints a saved plan as a document. Sensitive values are in clear.
func ShowJSON(plan string) []string { return []string{"show", "-no-color", "-json", "--", plan} }

// ShowText prints a saved plan for people.
func ShowText(plan string) []string { return []string{"show", "-no-color", "--", plan} }

// Outputs prints all outputs as a document. Sensitive values are in clear.
func Outputs() []string { return []string{"output", "-no-color", "-json"} }

// ForceUnlock breaks the state lock with this ID.
func ForceUnlock(id string) ([]string, error) {
	if err := checkLockID(id); err != nil {
		return nil, err
	}
	return []string{"force-unlock", "-force", "-no-color", "--", id}, nil
}

// StatePull prints the newest state.
func StatePull() []string { return []string{"state", "pull"} }

// StatePush stores the state on standard input, unless another one follows the stored one by
// now. It takes the lock.
func StatePush(timeout time.Duration) []string {
	args := []string{"state", "push"}
	if timeout > 0 {
		args = append(args, "-lock-timeout="+timeout.String())
	}
	return append(args, "-")
}

func shared(args []string, parallelism int, noLock bool, timeout time.Duration) ([]string, error) {
	if parallelism < 0 || parallelism > 1024 {
		return nil, invalid("parallelism", strconv.Itoa(parallelism))
	}
	if parallelism > 0 {
		args = append(args, fmt.Sprintf("-parallelism=%d", parallelism))
	}
	switch {
	case noLock:
		args = append(args, "-lock=false")
	case timeout > 0:
		args = append(args, "-lock-timeout="+timeout.Truncate(time.Second).String())
	}
	return args, nil
}
