package testkit

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// toolWithin bounds every program that a test runs to its end.
const toolWithin = Patience

// Ran is a program that has ended.
type Ran struct {
	Stdout, Stderr string
	Code           int
}

// Repository is the root of the repository that the test runs in.
func Repository(tb testing.TB) string {
	tb.Helper()
	dir, err := repository()
	if err != nil {
		tb.Fatal(err)
	}
	return dir
}

// Tool is a program in bin, which make has built.
func Tool(tb testing.TB, name string) string {
	tb.Helper()
	path := filepath.Join(Repository(tb), "bin", name)
	if _, err := os.Stat(path); err != nil {
		tb.Fatalf("the test needs %s: run make build providers bin/%s: %v", path, name, err)
	}
	return path
}

// programs are what a user of a namespace runs.
type programs struct {
	Kubeconfig string // path of a file that opens the namespace
}

// Terrier runs the command line against the test's namespace, and fails the
// test unless it succeeds.
func (p programs) Terrier(tb testing.TB, args ...string) string {
	tb.Helper()
	r := p.TryTerrier(tb, args...)
	if r.Code != 0 {
		tb.Fatalf("terrier %s ended with %d: %s%s", strings.Join(args, " "), r.Code, r.Stdout, r.Stderr)
	}
	return r.Stdout
}

// TryTerrier runs the command line against the test's namespace.
func (p programs) TryTerrier(tb testing.TB, args ...string) Ran {
	tb.Helper()
	binary, err := platformBinary()
	if err != nil {
		tb.Fatal(err)
	}
	return p.run(tb, binary, args...)
}

// Kubectl runs kubectl in the test's namespace, and fails the test unless it
// succeeds.
func (p programs) Kubectl(tb testing.TB, args ...string) string {
	tb.Helper()
	r := p.TryKubectl(tb, args...)
	if r.Code != 0 {
		tb.Fatalf("kubectl %s ended with %d: %s%s", strings.Join(args, " "), r.Code, r.Stdout, r.Stderr)
	}
	return r.Stdout
}

// TryKubectl runs kubectl in the test's namespace.
func (p programs) TryKubectl(tb testing.TB, args ...string) Ran {
	tb.Helper()
	return p.run(tb, Tool(tb, "kubectl"), args...)
}

func (p programs) run(tb testing.TB, program string, args ...string) Ran {
	tb.Helper()
	r, err := run(tb.Context(), "", []string{"KUBECONFIG=" + p.Kubeconfig, "HOME=" + tb.TempDir()}, program, args...)
	if err != nil {
		tb.Fatal(err)
	}
	return r
}

// run runs a program to its end, in an environment that holds no more than it
// needs. An error means that it has not ended by itself.
func run(ctx context.Context, dir string, env []string, program string, args ...string) (Ran, error) {
	ctx, cancel := context.WithTimeout(ctx, toolWithin)
	defer cancel()
	command := exec.CommandContext(ctx, program, args...)
	var stdout, stderr bytes.Buffer
	command.Dir, command.Stdout, command.Stderr = dir, &stdout, &stderr
	command.Env = append([]string{"PATH=" + os.Getenv("PATH"), "NO_COLOR=1"}, env...)
	err := command.Run()
	r := Ran{Stdout: stdout.String(), Stderr: stderr.String(), Code: command.ProcessState.ExitCode()}
	if _, ended := errors.AsType[*exec.ExitError](err); err != nil && !ended || ctx.Err() != nil {
		return r, fmt.Errorf("running %s %s: %w", program, strings.Join(args, " "), errors.Join(err, ctx.Err()))
	}
	return r, nil
}

// Engine runs the bare engine in a directory, with the providers of bin/mirror
// and nothing of the person's own configuration, and fails the test unless it
// succeeds.
func Engine(tb testing.TB, dir string, env []string, args ...string) string {
	tb.Helper()
	r := TryEngine(tb, dir, env, args...)
	if r.Code != 0 {
		tb.Fatalf("tofu %s ended with %d: %s%s", strings.Join(args, " "), r.Code, r.Stdout, r.Stderr)
	}
	return r.Stdout
}

// TryEngine is Engine for a test that looks at how it ends.
func TryEngine(tb testing.TB, dir string, env []string, args ...string) Ran {
	tb.Helper()
	env = append([]string{"HOME=" + dir, "CHECKPOINT_DISABLE=1", "TF_IN_AUTOMATION=1", "TF_CLI_CONFIG_FILE=" + engineConfig(tb)}, env...)
	r, err := run(tb.Context(), dir, env, Tool(tb, "tofu"), args...)
	if err != nil {
		tb.Fatal(err)
	}
	return r
}

// engineConfig writes a CLI configuration that installs providers from
// bin/mirror alone, and returns its path.
func engineConfig(tb testing.TB) string {
	tb.Helper()
	path := filepath.Join(tb.TempDir(), "engine.tfrc")
	mirror := filepath.Join(Repository(tb), "bin", "mirror")
	text := fmt.Sprintf("disable_checkpoint = true\nprovider_installation {\n  filesystem_mirror {\n    path = %q\n  }\n}\n", mirror)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		tb.Fatal(err)
	}
	return path
}

// Shell runs a line as a person would type it in the repository, with kubectl
// and bin/terrier at hand, and fails the test unless it succeeds.
func (p programs) Shell(tb testing.TB, line string) string {
	tb.Helper()
	env := []string{"KUBECONFIG=" + p.Kubeconfig, "HOME=" + tb.TempDir(), "PATH=" + filepath.Dir(Tool(tb, "kubectl")) + ":" + os.Getenv("PATH")}
	r, err := run(tb.Context(), Repository(tb), env, "bash", "-c", line)
	if err != nil {
		tb.Fatal(err)
	}
	if r.Code != 0 {
		tb.Fatalf("%s ended with %d: %s%s", line, r.Code, r.Stdout, r.Stderr)
	}
	return r.Stdout
}
