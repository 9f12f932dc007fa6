package faults

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	sourcev1 "github.com/fluxcd/source-controller/api/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/terrier-iac/terrier/api/infra/v1alpha2"
	"github.com/terrier-iac/terrier/internal/failpoint"
	"github.com/terrier-iac/terrier/internal/testkit"
)

// round is one scenario with at most one crash, in a namespace, a data directory
// and a world of its own.
type round struct {
	scenario
	crash
	*testkit.Cluster
	platform *testkit.Platform
	world    *testkit.World
	witness  *testkit.Witness
	file     string // where acts are written down

	crashed int // controllers
	broken  error
	stacks  []string // that the scenario made
}

func newRound(t *testing.T, s scenario, c crash) *round {
	t.Helper()
	r := &round{scenario: s, crash: c, Cluster: testkit.Kube(t, v1alpha2.AddToScheme, sourcev1.AddToScheme)}
	dir := t.TempDir()
	r.file = filepath.Join(dir, "acts")
	if err := os.WriteFile(r.file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	var err error
	r.platform, err = testkit.NewPlatform(testkit.PlatformOptions{
		Dir: filepath.Join(dir, "platform"), Cluster: r.Cluster, Cold: true,
		Flags: []string{"--lease", "", "--sources=false"}, // there is one, and it takes no part
	})
	if err != nil {
		t.Fatal(err)
	}
	r.world = r.platform.World(t)
	r.witness = r.Witness(t, r.platform)
	return r
}

// run plays the scenario to its end, whatever crashes on the way.
func (r *round) run(t *testing.T) {
	t.Cleanup(func() {
		if t.Failed() {
			r.tell(t)
		}
		if err := r.platform.Close(); err != nil && !r.crashedAtLast() {
			t.Errorf("ending the controller: %v", err)
		}
		r.Abandon(t)
	})
	r.arm("count")
	if r.act != "" {
		r.arm("crash:" + r.when + ":" + r.act)
	}
	ctx, stop := context.WithCancel(t.Context())
	var keeper sync.WaitGroup
	keeper.Go(func() { r.keepAlive(ctx) })
	func() {
		defer keeper.Wait()
		defer stop()
		r.play(t, r)
		r.rest(t)
		r.verify(t)
	}()
	if r.broken != nil {
		t.Error(r.broken)
	}
	r.verifyAuditLog(t)
	r.witness.Collect()
	r.witness.CatchUp()
	r.witness.Judge(true)
	text, err := os.ReadFile(r.file)
	if err != nil {
		t.Fatal(err)
	}
	if _, crashed := failpoint.Crashed(text); r.act != "" && !crashed {
		t.Logf("the act was not reached this time")
	}
}

// crashedAtLast reports whether the one crash of this round came when everything
// was over, while the controller was ending.
func (r *round) crashedAtLast() bool {
	text, _ := os.ReadFile(r.file)
	_, crashed := failpoint.Crashed(text)
	return crashed && r.crashed == 0
}

// rest waits until nothing is under way: every run has ended, and was collected.
func (r *round) rest(t *testing.T) {
	t.Helper()
	testkit.Eventually(t, testkit.Patience, "everything is at rest", func(ctx context.Context) error {
		var stacks v1alpha2.TerraformList
		if err := r.Client.List(ctx, &stacks, client.InNamespace(r.Namespace)); err != nil {
			return err
		}
		for _, s := range stacks.Items {
			if s.Status.Terrier != nil && s.Status.Terrier.Run != nil {
				return fmt.Errorf("%s shows the run %s", s.Name, s.Status.Terrier.Run.ID)
			}
		}
		if left, err := filepath.Glob(filepath.Join(r.platform.Dir, "runner", "runs", "*", "*")); err != nil || len(left) > 0 {
			return fmt.Errorf("there are runs: %v, %w", left, err)
		}
		return nil
	})
}

// arm says what the next start of the controller is to do with acts.
func (r *round) arm(what string) {
	r.platform.Env = []string{failpoint.Env + "=" + what + "@" + r.file}
}

// keepAlive starts the controller, and starts it again when it crashed.
func (r *round) keepAlive(ctx context.Context) {
	for ctx.Err() == nil {
		err := r.platform.Start()
		if err == nil {
			code := r.platform.Exited(ctx)
			if ctx.Err() != nil {
				return
			}
			err = fmt.Errorf("the controller ended with %d", code)
		}
		text, _ := os.ReadFile(r.file)
		if _, crashed := failpoint.Crashed(text); !crashed || r.crashed > 0 {
			r.broken = fmt.Errorf("the controller ended without being told to: %w", err)
			return
		}
		r.crashed++
		r.arm("count")
	}
}

func (r *round) acts(t *testing.T) []failpoint.Recorded {
	t.Helper()
	text, err := os.ReadFile(r.file)
	if err != nil {
		t.Fatal(err)
	}
	return failpoint.Acts(text)
}

// tell says what a person needs who looks for the cause.
func (r *round) tell(t *testing.T) {
	if r.act != "" {
		again := fmt.Sprintf("make test-faults FAULTS=\"-at '%s'\"", r.crash)
		fmt.Println("faults: failed; again:", again) // at once, and not when all others have ended
		t.Log("again: ", again)
	}
	text, _ := os.ReadFile(r.file)
	t.Logf("what was done:\n%s", text)
	t.Logf("%s\nthe world: %+v", r.Story(), r.world.Things())
	for _, c := range r.world.Calls() {
		if c.Call != "read" {
			t.Logf("%s %s %s %s %s", c.Time.Format(time.StampMilli), c.Call, c.Phase, c.Name, c.ID)
		}
	}
	t.Logf("the controller said:\n%s", r.platform.Log())
}

// verify asks the oracle.
func (r *round) verify(t *testing.T) {
	t.Helper()
	for _, problem := range r.Oracle(t, r.world, r.stacks...) {
		t.Error(problem)
	}
}

// inline is the manifest of a stack with the module in itself.
func inline(name, spec, hcl string) string {
	return "apiVersion: infra.contrib.fluxcd.io/v1alpha2\nkind: Terraform\nmetadata: {name: " + name + "}\nspec:\n" +
		indent(2, spec) + "\n  values:\n    hcl: |\n" + indent(6, hcl) + "\n"
}

func indent(by int, text string) string {
	pad := strings.Repeat(" ", by)
	return pad + strings.ReplaceAll(strings.Trim(text, "\n"), "\n", "\n"+pad)
}
