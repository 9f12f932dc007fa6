package controller

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/terrier-iac/terrier/api/infra/v1alpha2"
	"github.com/terrier-iac/terrier/internal/blob/blobtest"
	"github.com/terrier-iac/terrier/internal/controller/records"
	"github.com/terrier-iac/terrier/internal/controller/states"
	"github.com/terrier-iac/terrier/internal/dialect"
	"github.com/terrier-iac/terrier/internal/dialect/infra"
	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/kube"
	"github.com/terrier-iac/terrier/internal/record"
	"github.com/terrier-iac/terrier/internal/runner"
	"github.com/terrier-iac/terrier/internal/stack"
)

// taker keeps the job that it is to start.
type taker struct {
	runner.Runner
	job runner.Job
}

func (r *taker) Start(_ context.Context, job runner.Job) error {
	r.job = job
	return nil
}

func openRecords(t *testing.T) records.Blobs {
	t.Helper()
	return blobtest.Files(t, 1<<20)
}

// A run that asks for health is given what it is to ask and nothing else.
func TestCheckup(t *testing.T) {
	c := takeApart(&Stacks{Blobs: openRecords(t), Runner: &taker{}, Queue: queueOf(1), States: &lockOnly{held: "somebody"}})
	outputs := `{"host": {"value": "example.com", "type": "string"}, "token": {"value": "s3cr3t", "type": "string", "sensitive": true},
		"pins": {"value": [90210, {"x": "deep-secret"}], "type": "dynamic", "sensitive": true}}`
	if err := c.records.Put(t.Context(), record.Outputs("uid"), []byte(outputs)); err != nil {
		t.Fatal(err)
	}
	p := &pass{dialect: infra.Dialect{}, obj: &v1alpha2.Terraform{}, id: "uid", entry: &entry{id: "uid"}, note: note{State: &kube.StateRef{}}, job: &runner.Job{
		Stack: "uid", Name: "ns/name", Files: nil, Env: map[string]string{"AWS_SECRET_ACCESS_KEY": "k"}, Managed: true,
		Mask: []string{"given"}, Limits: runner.Limits{Memory: 5}, Sandbox: runner.Sandbox{Network: "none"}, Options: runner.Options{InitKey: "x"},
	}}
	p.o.Spec.Health, p.o.Status.LastWrite, p.o.PlanInputs = "sha256:h", "apply-7", stack.PlanInputs{Source: "s"}
	p.st.Configuration.Checks = []stack.Check{
		{Name: "web", Kind: stack.HTTPCheck, Target: "https://${{ .host }}/?t={{ .token }}", Timeout: time.Second},
		{Name: "odd", Kind: stack.TCPCheck, Target: "{{ .gone }}:1"},
	}
	if err := c.checkup(t.Context(), p, "something was applied"); err != nil {
		t.Fatal(err)
	}
	got := c.whole.Runner.(*taker).job
	slices.Sort(got.Mask)
	var n note
	if err := json.Unmarshal(got.Note, &n); err != nil {
		t.Fatal(err)
	}
	wantNote := note{After: new(""), Cause: stack.Cause{PlanInputs: stack.PlanInputs{Source: "s"}, Health: "sha256:h/apply-7", Whole: true, Why: "something was applied"}, Class: "spec"}
	want := runner.Job{
		ID: p.name(stack.HealthRun, wantNote.Cause), Stack: "uid", ObjectKind: dialect.KindOf(infra.Dialect{}), Name: "ns/name", Kind: stack.HealthRun,
		Mask: []string{"90210", "deep-secret", "given", "s3cr3t"}, Limits: runner.Limits{Memory: 5}, Sandbox: runner.Sandbox{Network: "none"}, Note: got.Note,
		Checks: []runner.Check{
			{Name: "web", Kind: stack.HTTPCheck, Target: "https://example.com/?t=s3cr3t", Shown: "https://example.com/?t=(sensitive)", Timeout: time.Second},
			{Name: "odd", Kind: stack.TCPCheck, Shown: "{{ .gone }}:1", Broken: `the module has no output "gone"`},
		},
	}
	if diff := cmp.Diff(want, got) + cmp.Diff(wantNote, n); diff != "" {
		t.Errorf("the job is not as wanted (-want +got):\n%s", diff)
	}
}

// The outputs of a state that we do not keep may not be known yet.
func TestChecksBeforeOutputsAreKnown(t *testing.T) {
	got := healthChecks([]stack.Check{{Name: "a", Target: "{{ .x }}:1"}, {Name: "b", Target: "b:1"}}, nil)
	if !strings.Contains(got[0].Broken, "ask for a plan") || got[1].Broken != "" || got[1].Target != "b:1" {
		t.Errorf("checks() = %+v, want only the one that needs an output to be broken", got)
	}
}

// However often a stack is not well, what was done to it stays to be read.
func TestOnlyTheNewestHealthRunIsKept(t *testing.T) {
	c := takeApart(&Stacks{Blobs: openRecords(t), Runner: noFiles{}})
	p := &pass{dialect: infra.Dialect{}, id: "uid", entry: &entry{id: "uid"}}
	keep := func(kind stack.RunKind, n int) {
		t.Helper()
		r := &runner.Report{ID: fmt.Sprintf("%s-%d", kind, n), Kind: kind, Finished: time.Unix(int64(n), 0)}
		if err := c.keepRecords(t.Context(), p, r); err != nil {
			t.Fatal(err)
		}
	}
	keep(stack.ApplyRun, 0)
	for n := range 2 * runsKept {
		keep(stack.HealthRun, n+1)
	}
	keys, err := c.whole.Blobs.List(t.Context(), record.Runs("uid"))
	if err != nil {
		t.Fatal(err)
	}
	want := []string{record.Run("uid", "apply-0", record.ReportFile), record.Run("uid", fmt.Sprintf("health-%d", 2*runsKept), record.ReportFile)}
	if !slices.Equal(keys, want) {
		t.Errorf("kept are %q, want %q", keys, want)
	}
}

func TestInventory(t *testing.T) {
	const old = `{"serial": 1, "resources": [{"mode": "managed", "type": "t", "name": "old", "instances": [{"attributes": {"id": "1"}}]}]}`
	const state = `{"serial": 2, "resources": [{"mode": "managed", "type": "t", "name": "n", "instances": [{"attributes": {"id": "x-s3cr3t"}}]}]}`
	const digest = "sha256:b24ba9377ff44a2dbb8c9bcf1df8a4b5f1ea5c0b9ed2b4ef8a8ea6ae3c3b3b5e" // of no state here
	found := func(of string) *dialect.Inventory {
		return &dialect.Inventory{Of: of, Items: []dialect.Item{{Name: "n", Type: "t", ID: "x-(sensitive)"}}}
	}
	for name, tt := range map[string]struct {
		change func(*pass)
		want   *dialect.Inventory
	}{
		"a state that is not listed":  {func(*pass) {}, found(digest)},
		"one that is":                 {func(p *pass) { p.st.Listed = digest }, nil},
		"nobody wants it":             {func(p *pass) { p.st.Configuration.Inventory = false }, nil},
		"no state is known":           {func(p *pass) { p.o.Status.State = "" }, nil},
		"secrets are not known":       {func(p *pass) { p.job = nil }, nil},
		"the stack is deleted":        {func(p *pass) { p.o.Deleting = true }, nil},
		"everything was taken down":   {func(p *pass) { p.o.Status.State, p.o.Status.Destroyed = "", true }, &dialect.Inventory{Of: nothingExists}},
		"and that is known":           {func(p *pass) { p.o.Status.Destroyed, p.st.Listed = true, nothingExists }, nil},
		"a state that we do not keep": {func(p *pass) { p.st.Configuration.Backend.Kind = stack.Custom }, nil},
		"and a run left its own": {func(p *pass) { p.st.Configuration.Backend.Kind, p.listed = stack.Custom, found("apply-1") },
			found("apply-1")},
	} {
		c := takeApart(&Stacks{Blobs: openRecords(t), States: oneState{state: state}})
		if err := c.records.Put(t.Context(), record.State("uid"), []byte(old)); err != nil {
			t.Fatal(err)
		}
		p := &pass{dialect: infra.Dialect{}, obj: &v1alpha2.Terraform{}, id: "uid", entry: &entry{id: "uid"}, job: &runner.Job{Mask: []string{"s3cr3t"}}}
		p.st.Configuration = stack.Configuration{Inventory: true, Backend: stack.Backend{Kind: stack.Managed, Suffix: "s"}}
		p.o.Status.State = digest
		tt.change(p)
		if diff := cmp.Diff(tt.want, c.inventory(t.Context(), p)); diff != "" {
			t.Errorf("%s: inventory() (-want +got):\n%s", name, diff)
		}
	}
}

// noFiles are runs that left nothing.
type noFiles struct{ runner.Runner }

func (noFiles) Open(_, run, file string) (io.ReadCloser, error) {
	return nil, fault.New(fault.Missing, "", fmt.Errorf("%s left no %s", run, file))
}

// oneState is the only state that is stored.
type oneState struct {
	states.Store
	state string
}

func (s oneState) Load(context.Context, kube.StateRef) (kube.Stored, error) {
	return kube.Stored{State: []byte(s.state)}, nil
}
