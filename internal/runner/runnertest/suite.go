package runnertest

import (
	"cmp"
	"encoding/json"
	"net"
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/terrier-iac/terrier/internal/engine"
	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/plan"
	"github.com/terrier-iac/terrier/internal/runner"
	"github.com/terrier-iac/terrier/internal/stack"
	"github.com/terrier-iac/terrier/internal/workdir"
)

// Fixture is what the suite needs to test a runner.
type Fixture struct {
	New    func(testing.TB) Runner // a runner with nothing in it, closed by the test's clean-up
	Engine engine.Engine
	Mirror string            // of providers, as `make build` makes it; empty leaves out the tests that need some
	Adapt  func(*runner.Job) // what all jobs have beside; may be nil
	Fresh  bool              // every run begins in an empty directory, so none finds what an earlier one prepared

	// Shared is a directory that runs find under the same path, for what code in a run
	// reads and writes. Without one, runs find every directory of the test.
	Shared string

	// Address is where a run reaches servers of the test; on loopback if it is empty.
	Address string

	// Registry is how runs of a runner reach the registry of the platform. Its requests have
	// PlatformToken. If it is nil, they reach a server of the test on loopback.
	Registry func(t *testing.T, r Runner, registry http.Handler) *runner.Registry

	// Identity is how runs of a runner reach what gives them tokens, likewise.
	Identity func(t *testing.T, r Runner, issuer http.Handler) *runner.Identity

	Parallel bool // the cases run side by side
}

// dir makes a directory that every user may write, and that runs find.
func (f Fixture) dir(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	if f.Shared != "" {
		var err error
		if dir, err = os.MkdirTemp(f.Shared, ""); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Chmod(dir, 0o777); err != nil {
		t.Fatal(err)
	}
	return dir
}

// host is where runs reach servers of the test.
func (f Fixture) host() string { return cmp.Or(f.Address, "127.0.0.1") }

// listen opens a port that runs reach.
func (f Fixture) listen(t *testing.T) net.Listener {
	t.Helper()
	l, err := net.Listen("tcp", net.JoinHostPort(f.host(), "0"))
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func (f Fixture) stack(t *testing.T, r Runner, module string) *Stack {
	t.Helper()
	s := NewStack(t, r, f.Engine, module)
	s.fresh = f.Fresh
	if f.Adapt != nil {
		f.Adapt(&s.Job)
	}
	return s
}

// Run tests a runner against everything that a controller relies on.
func Run(t *testing.T, f Fixture) {
	for name, test := range map[string]func(*testing.T, Fixture){
		"a stack is planned, applied, checked and destroyed": lifecycle,
		"a change of outputs alone is a change":              outputsOnly,
		"a destroy that forgets ends well":                   forgetting,
		"a run is started once":                              startedOnce,
		"one run at a time holds a stack":                    oneAtATime,
		"runs beside a stack go on while its own does":       besideIt,
		"a run beside a stack only plans":                    besideOnlyPlans,
		"a cancelled apply is interrupted once":              cancelled,
		"an apply is interrupted at its deadline":            deadline,
		"a run that ignores the interrupt is killed":         stubborn,
		"a stale plan is not applied":                        stale,
		"what failed is said and what was made is kept":      failing,
		"no secret is stored outside plan and state":         canary,
		"a flood of output is bounded":                       flood,
		"reserved environment variables are refused":         environment,
		"a module cannot choose its backend":                 backend,
		"a workspace is what the module reads":               workspaces,
		"each provider is started once for a run":            providersOnce,
		"health is checked after an apply":                   healthy,
		"checks end at their deadline or when cancelled":     unhurried,
		"checks reach no more than their run":                isolated,
		"what is sensitive in a check is not stored":         discreet,
		"a command of a user is run in the sandbox":          breakGlass,
		"failing check blocks are found by every run":        checkBlocks,
		"a broken module hides no state from a user":         breakGlassWithABrokenModule,
		"names that are no path components are refused":      names,
		"a script is run as it was written":                  scriptBytes,
		"the exit code of a script is how its run ends":      scriptFails,
		"a script applies with the state of its stack":       scriptApplies,
		"a script cannot lose a state by mistake":            scriptKeepsStateSafe,
		"a cancelled script interrupts its engine once":      scriptCancelled,
		"a script that ignores the interrupt is killed":      scriptStubborn,
		"an engine that outlives its script is interrupted":  scriptLeaves,
		"a script applies what was approved":                 scriptApproved,
		"what a script prints has no secret":                 scriptSecrets,
		"a script reaches no state around its engine":        scriptAround,
		"a script of the source is run by its path":          scriptOfSource,
		"a second script runs after one that applied":        scriptAfter,
		"the outputs of the second script have no secret":    scriptAfterOutputs,
		"a run installs from the registry of the platform":   installsFromRegistry,
		"a registry that is away is named":                   registryIsAway,
		"a run has the identity that its stack asks for":     hasIdentity,
		"a run without its identity does not begin":          identityIsRefused,
		"a script installs from the registry":                scriptInstallsFromRegistry,
		"a stack says itself where a host is":                ownConfigurationStays,
		"steps follow an apply in their order":               stepsFollow,
		"a playbook of Ansible follows an apply":             stepsPlay,
		"a step that had succeeded is not run again":         stepsResume,
		"a step waits until hosts answer":                    stepsWait,
		"a cancelled step is interrupted":                    stepsCancelled,
	} {
		t.Run(name, func(t *testing.T) {
			if f.Parallel {
				t.Parallel()
			}
			test(t, f)
		})
	}
}

const oneResource = `
variable "input" {
  default = "one"
}
resource "terraform_data" "a" {
  input = var.input
}
output "a" {
  value = terraform_data.a.output
}
`

// input sets the variable of oneResource.
func input(value string) func(*runner.Job) {
	return func(j *runner.Job) { j.Env = map[string]string{"TF_VAR_input": value} }
}

// steps names the steps of a run, but for the init that every run of a runner without
// prepared directories may have.
func steps(d Done) string {
	var names []string
	for _, s := range d.Steps {
		if s.Name != "init" || !d.fresh {
			names = append(names, s.Name)
		}
	}
	return strings.Join(names, " ")
}

func lifecycle(t *testing.T, f Fixture) {
	s := f.stack(t, f.New(t), oneResource)
	s.Job.Note, s.Job.ObjectKind = json.RawMessage(`{"cause":"test"}`), "Terraform.example.org"

	plan := s.Must(stack.PlanRun)
	if got, want := plan.Changes, (stack.Changes{Add: 1, Outputs: 1}); got != want {
		t.Errorf("planned changes = %v, want %v", got, want)
	}
	if plan.ChangesHash == "" || !Has(`"format_version"`, plan.Doc) || !Has("terraform_data.a: Plan to create", plan.Log) {
		t.Errorf("a plan with changes left hash %q, document %q, log %q", plan.ChangesHash, plan.Doc, plan.Log)
	}
	if s.State != nil {
		t.Errorf("a plan wrote the state %s", s.State)
	}

	apply := s.Must(stack.ApplyRun, Saved(plan))
	if got := string(apply.Outputs); got != `{"a":{"sensitive":false,"type":"string","value":"one"}}` {
		t.Errorf("outputs = %s", got)
	}
	if apply.Resources != 1 || apply.State.Serial != uint64(Serial(t, s.State)) || apply.State.Digest == "" {
		t.Errorf("report says %d resources and state %+v; the state is %s", apply.Resources, apply.State, s.State)
	}
	if apply.ObjectKind != "Terraform.example.org" {
		t.Errorf("object kind = %q, want the job's", apply.ObjectKind)
	}
	if string(apply.Note) != `{"cause":"test"}` {
		t.Errorf("note = %s, want the job's", apply.Note)
	}
	if apply.InitSkipped == f.Fresh || steps(apply) != "apply" {
		t.Errorf("applying took the steps %q, init skipped %v", steps(apply), apply.InitSkipped)
	}

	check := s.Must(stack.CheckRun)
	if !check.Changes.None() || steps(check) != "plan" {
		t.Errorf("checking an unchanged stack took the steps %q and found %v; want one plan and nothing", steps(check), check.Changes)
	}
	if again := s.Must(stack.PlanRun, input("two")); again.Changes != (stack.Changes{Change: 1, Outputs: 1}) {
		t.Errorf("planned changes = %v, want one change and one output", again.Changes)
	}

	before := Serial(t, s.State)
	destroy := s.Must(stack.DestroyRun)
	if destroy.Changes.Destroy != 1 || destroy.Resources != 0 || Serial(t, s.State) <= before {
		t.Errorf("destroying did %v and left %d resources, serial %d after %d",
			destroy.Changes, destroy.Resources, Serial(t, s.State), before)
	}
	if none := s.Must(stack.DestroyRun); !none.Changes.None() || steps(none) != "plan" {
		t.Errorf("destroying nothing took the steps %q and did %v", steps(none), none.Changes)
	}
}

const forgets = oneResource + `
resource "terraform_data" "left" {
  count = 2
  lifecycle {
    destroy = false
  }
}
`

// A destroy that leaves resources where they are, as the configuration asks, succeeds
// at once, and leaves the plan that has their ids.
func forgetting(t *testing.T, f Fixture) {
	s := f.stack(t, f.New(t), forgets)
	s.Must(stack.ApplyRun, Saved(s.Must(stack.PlanRun)))
	destroy := s.Must(stack.DestroyRun)
	if got, want := destroy.Changes, (stack.Changes{Destroy: 1, Forget: 2}); got != want || destroy.Resources != 0 {
		t.Errorf("destroying did %v and left %d resources in the state, want %v and none", got, destroy.Resources, want)
	}
	if len(destroy.Diagnostics) > 0 || steps(destroy) != "plan show apply" {
		t.Errorf("a destroy that forgets took the steps %q and reports %+v", steps(destroy), destroy.Diagnostics)
	}
	doc, err := plan.ParseDocument(destroy.Doc)
	if err != nil {
		t.Fatalf("the plan that it left: %v", err)
	}
	left := doc.Forgotten()
	if len(left) != 2 || left[0].Address != "terraform_data.left[0]" || left[0].ID == "" || left[0].Type != "terraform_data" {
		t.Errorf("it forgot %+v, want both resources with their ids", left)
	}
	if none := s.Must(stack.DestroyRun); !none.Changes.None() || none.Doc != nil {
		t.Errorf("destroying nothing did %v", none.Changes)
	}
}

func outputsOnly(t *testing.T, f Fixture) {
	s := f.stack(t, f.New(t), "variable \"input\" {\n  default = \"one\"\n}\noutput \"a\" {\n  value = var.input\n}\n")
	s.Must(stack.ApplyRun, Saved(s.Must(stack.PlanRun)))
	check := s.Must(stack.CheckRun, input("two"))
	if got, want := check.Changes, (stack.Changes{Outputs: 1}); got != want {
		t.Errorf("changes = %v, want %v", got, want)
	}
	if check.Plan == nil {
		t.Error("a check that found a change left no plan")
	}
}

func startedOnce(t *testing.T, f Fixture) {
	r := f.New(t)
	s := f.stack(t, r, oneResource)
	id := s.Start(stack.PlanRun)
	again := s.Job
	again.ID, again.Kind = id, stack.PlanRun
	if err := r.Start(t.Context(), again); err != nil {
		t.Errorf("starting the same run again = %v, want nil", err)
	}
	first := s.Await()
	if err := r.Start(t.Context(), again); err != nil {
		t.Errorf("starting the same run after its end = %v, want nil", err)
	}
	if got := s.Current(); got.Phase != runner.Done || !got.Started.Equal(first.Started) {
		t.Errorf("the run was started again: %+v", got)
	}
	s.Finish(id)
	if got := s.Current(); got != nil {
		t.Errorf("Current() after Forget() = %+v, want nil", got)
	}
	if err := r.Forget(s.Job.Stack, id); err != nil {
		t.Errorf("Forget() of a forgotten run = %v, want nil", err)
	}
}

func stale(t *testing.T, f Fixture) {
	s := f.stack(t, f.New(t), oneResource)
	s.Must(stack.ApplyRun, Saved(s.Must(stack.PlanRun)))
	old := s.Must(stack.PlanRun, input("two"))
	s.Must(stack.ApplyRun, Saved(s.Must(stack.PlanRun, input("three"))))
	before := string(s.State)

	d := s.Finish(s.Start(stack.ApplyRun, Saved(old)))
	if d.Outcome != stack.Stale || len(d.Steps) != 0 {
		t.Errorf("outcome = %s after the steps %q, want Stale without any", d.Outcome, steps(d))
	}
	// Without the lineage the engine has to notice.
	d = s.Finish(s.Start(stack.ApplyRun, Saved(old), func(j *runner.Job) { j.Lineage = "" }))
	if d.Outcome != stack.Stale || steps(d) != "apply" {
		t.Errorf("outcome = %s after the steps %q, want the engine to say Stale: %s", d.Outcome, steps(d), d.Message)
	}
	if string(s.State) != before {
		t.Errorf("a stale plan changed the state from %s to %s", before, s.State)
	}
}

func failing(t *testing.T, f Fixture) {
	s := f.stack(t, f.New(t), waiting(nil, "echo it broke >&2; exit 3"))
	plan := s.Must(stack.PlanRun)
	d := s.Finish(s.Start(stack.ApplyRun, Saved(plan)))
	if d.Outcome != stack.Failed || d.Step != "apply" || d.Exit != 1 {
		t.Errorf("ended %s in %q with %d, want Failed in apply with 1", d.Outcome, d.Step, d.Exit)
	}
	if !strings.Contains(d.Message, "local-exec") || len(d.Diagnostics) != 1 || d.Diagnostics[0].Severity != "error" {
		t.Errorf("message = %q, diagnostics = %+v; want the engine's error", d.Message, d.Diagnostics)
	}
	if !Has(`"name":"first"`, s.State) {
		t.Errorf("the state %s does not hold what was made before the failure", s.State)
	}
	s.Job.Files[0].Content = []byte("resource \"x\" {\n")
	if d := s.Finish(s.Start(stack.PlanRun)); d.Outcome != stack.Failed || d.Diagnostics[0].File != "main.tf" || d.Diagnostics[0].Line == 0 {
		t.Errorf("a module with a syntax error ended %s with %+v", d.Outcome, d.Diagnostics)
	}
}

// F44: a log has an end, and keeps it.
func flood(t *testing.T, f Fixture) {
	const limit = 256 << 10
	s := f.stack(t, f.New(t), waiting(nil,
		"x=xxxxxxxxxxxx; i=0; while [ $i -lt 18 ]; do x=$x$x; i=$((i+1)); done; echo $x; i=0; while [ $i -lt 20000 ]; do echo line $i of a flood; i=$((i+1)); done; echo the last words"))
	plan := s.Must(stack.PlanRun)
	d := s.Must(stack.ApplyRun, Saved(plan), func(j *runner.Job) { j.Limits.LogBytes = limit })
	for name, data := range map[string][]byte{"log": d.Log, "events": d.Events} {
		if len(data) > limit+64<<10 {
			t.Errorf("the %s has %d bytes, want about %d at most", name, len(data), limit)
		}
	}
	if !Has("left out", d.Log) || !Has("Apply complete", d.Log) || !Has("the last words", d.Log) {
		t.Errorf("the log does not say that it was cut, or has lost its end: …%s", d.Log[max(0, len(d.Log)-1000):])
	}
	if n := strings.Count(string(d.Events), `"type":"apply_complete"`); n != 2 {
		t.Errorf("%d finished operations are in the events, want 2 in spite of the flood", n)
	}
}

func environment(t *testing.T, f Fixture) {
	s := f.stack(t, f.New(t), oneResource)
	for _, name := range []string{"TF_CLI_ARGS", "LD_PRELOAD", "PATH", "TF_HTTP_ADDRESS", "HTTPS_PROXY"} {
		d := s.Finish(s.Start(stack.PlanRun, func(j *runner.Job) { j.Env = map[string]string{name: "x"} }))
		if d.Outcome != stack.Failed || len(d.Steps) != 0 || d.Fault != fault.Denied || !strings.Contains(d.Message, name) {
			t.Errorf("a job that sets %s ended %s after the steps %q: %s", name, d.Outcome, steps(d), d.Message)
		}
	}
}

func backend(t *testing.T, f Fixture) {
	s := f.stack(t, f.New(t), oneResource)
	for name, content := range map[string]string{
		"a later override":      "terraform {\n  backend \"local\" {\n  }\n}\n",
		"a cloud block":         "terraform {\n  cloud {\n    organization = \"x\"\n    workspaces {\n      name = \"y\"\n    }\n  }\n}\n",
		"a second http backend": "terraform {\n  backend \"http\" {\n    address = \"http://127.0.0.1:1/\"\n  }\n}\n",
	} {
		d := s.Finish(s.Start(stack.PlanRun, func(j *runner.Job) {
			j.Files = append(j.Files, workdir.File{Path: "zz_override.tf", Mode: 0o600, Content: []byte(content)})
			j.Options.InitKey = ""
		}))
		if d.Outcome != stack.Failed || slices.ContainsFunc(d.Steps, func(s runner.Step) bool { return s.Name == "plan" }) {
			t.Errorf("%s: ended %s after the steps %q, want Failed before any plan: %s", name, d.Outcome, steps(d), d.Message)
		}
	}
}

func workspaces(t *testing.T, f Fixture) {
	s := f.stack(t, f.New(t), oneResource+"output \"w\" {\n  value = terraform.workspace\n}\n")
	s.Job.Workspace = "prod"
	s.Job.Files[1].Content = []byte("terraform {\n  backend \"local\" {\n  }\n}\n")
	apply := s.Must(stack.ApplyRun, Saved(s.Must(stack.PlanRun)))
	if !Has(`"value":"prod"`, apply.Outputs) || apply.Resources != 1 {
		t.Errorf("outputs = %s with %d resources, want the workspace prod", apply.Outputs, apply.Resources)
	}
	if check := s.Must(stack.CheckRun); !check.Changes.None() || steps(check) != "plan" {
		t.Errorf("checking an unchanged stack took the steps %q and found %v", steps(check), check.Changes)
	}
	before := Serial(t, s.State)
	s.Must(stack.ApplyRun, Saved(s.Must(stack.PlanRun, input("two"))))
	if got := Serial(t, s.State); got <= before {
		t.Errorf("serial after a second apply = %d, want more than %d", got, before)
	}
	if d := s.Must(stack.DestroyRun); d.Resources != 0 || d.Changes.Destroy != 1 {
		t.Errorf("destroying did %v and left %d resources", d.Changes, d.Resources)
	}
}

func names(t *testing.T, f Fixture) {
	r := f.New(t)
	for _, name := range []string{"", "..", "../x", "a/b", "A", "a b", "-x", ".x", strings.Repeat("a", 200)} {
		_, currentErr := r.Current(name)
		_, openErr := r.Open("stack", name, runner.FileLog)
		for call, err := range map[string]error{
			"Start()":          r.Start(t.Context(), runner.Job{ID: name, Stack: "stack"}),
			"Start() of stack": r.Start(t.Context(), runner.Job{ID: "id", Stack: name}),
			"Cancel() beside":  r.Cancel(t.Context(), "stack_"+name, "id"),
			"Current()":        currentErr,
			"Open()":           openErr,
			"Cancel()":         r.Cancel(t.Context(), name, "id"),
			"Forget()":         r.Forget("stack", name),
			"Remove()":         r.Remove(name),
		} {
			if fault.Of(err) != fault.Invalid {
				t.Errorf("%s with the name %q = %v, want Invalid", call, name, err)
			}
		}
	}
	if _, err := r.Open("stack", "id", "run.json"); fault.Of(err) != fault.Invalid {
		t.Errorf("Open() of a file that is not a run's = %v, want Invalid", err)
	}
	if _, err := r.Open("stack", "id", runner.FileLog); fault.Of(err) != fault.Missing {
		t.Errorf("Open() of a file that is not there = %v, want Missing", err)
	}
}
