package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/terrier-iac/terrier/internal/engine"
	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/runner"
	"github.com/terrier-iac/terrier/internal/stack"
	"github.com/terrier-iac/terrier/internal/workdir"
)

// bench is where things are.
type bench struct{ root, scratch string }

func (b *bench) bin(parts ...string) string {
	return filepath.Join(append([]string{b.root, "bin"}, parts...)...)
}

// quiet measures plans that find nothing: the bare engine's in a directory that
// is initialised and applied, and ours of the same stack. They take turns, so
// that both meet the same machine.
func (b *bench) quiet(ctx context.Context, dir, hcl string) (bare, ours samples, err error) {
	plain, err := b.plain(filepath.Join(dir, "bare"), hcl)
	if err != nil {
		return nil, nil, err
	}
	if err := plain.apply(ctx); err != nil {
		return nil, nil, err
	}
	s, err := b.supervised(ctx, filepath.Join(dir, "ours"), hcl)
	if err != nil {
		return nil, nil, err
	}
	defer s.close(&err)
	if err := s.apply(ctx); err != nil {
		return nil, nil, err
	}
	if err := s.run(ctx, stack.CheckRun); err != nil { // the first check after an apply is not yet quiet
		return nil, nil, err
	}
	for range repeats {
		one, err := measure(func() error { return plain.plan(ctx) })
		if err != nil {
			return nil, nil, err
		}
		other, err := measure(func() error { return s.run(ctx, stack.CheckRun) })
		if err != nil {
			return nil, nil, err
		}
		if n := s.engines(); n != 1 {
			return nil, nil, fmt.Errorf("a quiet check took %d engine processes", n)
		}
		bare, ours = append(bare, one), append(ours, other)
	}
	return bare, ours, nil
}

// first measures how long it takes until something exists that did not. All
// stacks share a data directory, as they do on a machine, and each has a name.
func (b *bench) first(ctx context.Context, dir, hcl string) (bare, ours samples, err error) {
	for i := range repeats {
		plain, err := b.plain(filepath.Join(dir, fmt.Sprint("bare-", i)), hcl)
		if err != nil {
			return nil, nil, err
		}
		one, err := measure(func() error { return plain.apply(ctx) })
		if err != nil {
			return nil, nil, err
		}
		s, err := b.supervised(ctx, filepath.Join(dir, "ours"), hcl)
		if err != nil {
			return nil, nil, err
		}
		s.job.Stack = fmt.Sprint("bench-", i)
		other, err := measure(func() error { return s.apply(ctx) })
		s.close(&err)
		if err != nil {
			return nil, nil, err
		}
		bare, ours = append(bare, one), append(ours, other)
	}
	return bare, ours, nil
}

// plain is a directory in which a user runs the engine.
type plain struct{ dir, program, config string }

func (b *bench) plain(dir, hcl string) (*plain, error) {
	p := &plain{dir: dir, program: b.bin("tofu"), config: dir + ".tfrc"}
	config := fmt.Sprintf("disable_checkpoint = true\nprovider_installation {\n  filesystem_mirror {\n    path = %q\n  }\n}\n", b.bin("mirror"))
	return p, errors.Join(os.MkdirAll(dir, 0o700), os.WriteFile(filepath.Join(dir, "main.tf"), []byte(hcl), 0o600), os.WriteFile(p.config, []byte(config), 0o600))
}

func (p *plain) engine(ctx context.Context, args ...string) error {
	c := exec.CommandContext(ctx, p.program, args...)
	c.Dir, c.Env = p.dir, []string{"TF_CLI_CONFIG_FILE=" + p.config, "TF_IN_AUTOMATION=1", "HOME=" + p.dir, "PATH=" + os.Getenv("PATH")}
	if out, err := c.CombinedOutput(); err != nil {
		return fmt.Errorf("tofu %s: %w: %s", args[0], err, out)
	}
	return nil
}

// plan is a plan that must find nothing.
func (p *plain) plan(ctx context.Context) error {
	return p.engine(ctx, "plan", "-input=false", "-detailed-exitcode")
}

func (p *plain) apply(ctx context.Context) error {
	for _, args := range [][]string{{"init", "-input=false"}, {"plan", "-input=false", "-out=plan"}, {"apply", "-input=false", "plan"}} {
		if err := p.engine(ctx, args...); err != nil {
			return err
		}
	}
	return nil
}

// supervised is a stack that runs as a controller's do: a job to a supervisor of its
// own, in a sandbox, with a managed state.
type supervised struct {
	runs  *runner.Processes
	job   runner.Job
	count int
	last  runner.Report
}

func (b *bench) supervised(_ context.Context, dir, hcl string) (*supervised, error) {
	runs, err := runner.New(runner.Config{Dir: dir, Binary: b.bin("terrier-runner"), Contents: b, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		return nil, err
	}
	providers, err := workdir.MirrorProviders(os.DirFS(b.bin("mirror")))
	if err != nil {
		return nil, err
	}
	config := workdir.CLIConfig(workdir.Mirror{Dir: runner.MirrorInside, Providers: providers})
	config.Path = runner.CLIConfig
	return &supervised{runs: runs, job: runner.Job{
		Stack: "bench", Name: "bench/bench", Managed: true,
		Engine: runner.Engine{Name: "tofu"},
		Tree:   runner.Tree{Digest: "sha256:inline"},
		Files: []workdir.File{workdir.Inline(hcl), config,
			{Path: "terrier_override.tf", Mode: 0o600, Content: []byte("terraform {\n  backend \"http\" {\n  }\n}\n")}},
		Options: runner.Options{InitKey: "bench"},
		Limits:  runner.Limits{Memory: 4 << 30}, // what a platform gives to one that asks for nothing else
		Sandbox: runner.Sandbox{Network: "host"},
	}}, nil
}

// Archive implements runner.Contents: the modules of a benchmark are inline.
func (b *bench) Archive(context.Context, string) (string, error) {
	return "", errors.New("a benchmark has no archives")
}

// Engine implements runner.Contents.
func (b *bench) Engine(context.Context, string) (engine.Engine, error) {
	return engine.Engine{Path: b.bin("tofu"), Name: "tofu"}, nil
}

// Platform implements runner.Contents.
func (b *bench) Platform() (runner.Platform, error) {
	return runner.Platform{Mirror: b.bin("mirror")}, nil
}

// apply plans and applies, as a stack does that is applied without asking.
func (s *supervised) apply(ctx context.Context) error {
	if err := s.run(ctx, stack.PlanRun); err != nil {
		return err
	}
	return s.run(ctx, stack.ApplyRun)
}

// run runs one job to its end, and takes over what it left.
func (s *supervised) run(ctx context.Context, kind stack.RunKind) error {
	s.count++
	job := s.job
	job.ID, job.Kind, job.Created = fmt.Sprintf("%s-%d", kind, s.count), kind, time.Now()
	if err := s.runs.Start(ctx, job); err != nil {
		return err
	}
	select {
	case <-s.runs.Ended():
	case <-ctx.Done():
		return ctx.Err()
	}
	report, err := s.runs.Current(job.Stack)
	if err != nil {
		return err
	}
	if report == nil || report.Outcome != stack.Succeeded {
		return fmt.Errorf("%s ended: %+v", kind, report)
	}
	s.last = *report
	// The run has ended once its lock is free; what it used is known once its
	// supervisor is no more.
	for syscall.Kill(report.PID, 0) == nil {
		time.Sleep(100 * time.Microsecond)
	}
	if err := s.takeOver(job.ID, kind); err != nil {
		return err
	}
	return s.runs.Forget(job.Stack, job.ID)
}

// engines counts the engine processes of the last run.
func (s *supervised) engines() int {
	n := 0
	for _, step := range s.last.Steps {
		if !strings.HasPrefix(step.Name, "provider ") {
			n++
		}
	}
	return n
}

// takeOver keeps the state of a run that wrote, and the plan of one that made
// one.
func (s *supervised) takeOver(id string, kind stack.RunKind) error {
	var err error
	switch kind {
	case stack.ApplyRun:
		s.job.Plan, s.job.LockFile = runner.Content{}, runner.Content{}
		s.job.State, err = s.left(id, runner.FileState)
	case stack.PlanRun:
		s.job.Lineage, s.job.Serial = s.last.State.Lineage, s.last.State.Serial
		var lock error
		s.job.Plan, err = s.left(id, runner.FilePlan)
		s.job.LockFile, lock = s.left(id, runner.FileLockHCL)
		if fault.Of(lock) != fault.Missing { // as without providers
			err = errors.Join(err, lock)
		}
	}
	return err
}

func (s *supervised) left(id, file string) (runner.Content, error) {
	r, err := s.runs.Open(s.job.Stack, id, file)
	if err != nil {
		return runner.Content{}, err
	}
	defer r.Close()
	data, err := io.ReadAll(r)
	return runner.ContentOf(data), err
}

func (s *supervised) close(err *error) { *err = errors.Join(*err, s.runs.Close()) }
