package e2e

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/terrier-iac/terrier/internal/testkit"
)

// exampleCommand is an example, as its one command runs it.
type exampleCommand struct {
	dir, bin  string   // its directory, and that of the programs
	environ   []string // of the programs, beside that of Terrier
	command   *exec.Cmd
	said      *bytes.Buffer
	stillSaid chan struct{} // closed once its output has ended
}

// starts runs the command of an example until it says that it is up.
func (e *exampleCommand) starts(t *testing.T, example, up string, environ []string, flags ...string) {
	t.Helper()
	e.command = exec.Command(filepath.Join(testkit.Repository(t), "examples", example, "run.sh"), append([]string{e.dir}, flags...)...)
	e.command.Env = append(os.Environ(), environ...)
	out, err := e.command.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	e.said, e.stillSaid = &bytes.Buffer{}, make(chan struct{})
	e.command.Stderr = e.command.Stdout
	if err := e.command.Start(); err != nil {
		t.Fatal(err)
	}
	is := false
	lines := bufio.NewScanner(out)
	for !is && lines.Scan() {
		fmt.Fprintln(e.said, lines.Text())
		is = strings.Contains(lines.Text(), up)
	}
	go func() {
		defer close(e.stillSaid)
		_, _ = io.Copy(io.Discard, out)
	}()
	if !is {
		e.stop(t)
		log, _ := os.ReadFile(filepath.Join(e.dir, "log"))
		t.Fatalf("the example did not start: %v\n%s\n%s", lines.Err(), e.said, log)
	}
}

// stop ends the command, with all that it started. A shell does not hear SIGINT if the test has
// it ignored.
func (e *exampleCommand) stop(t *testing.T) {
	t.Helper()
	if e.command == nil {
		return
	}
	if err := e.command.Process.Signal(syscall.SIGTERM); err != nil && !errors.Is(err, os.ErrProcessDone) {
		t.Error(err)
	}
	<-e.stillSaid
	var ended *exec.ExitError
	if err := e.command.Wait(); err != nil && !errors.As(err, &ended) {
		t.Error(err)
	}
	e.command = nil
}

// run runs a program of the example, and returns what it says.
func (e *exampleCommand) run(t *testing.T, program string, args ...string) string {
	t.Helper()
	out, err := e.try(t.Context(), program, args...)
	if err != nil {
		t.Fatalf("%s %v: %v: %s", program, args, err, out)
	}
	return out
}

func (e *exampleCommand) try(ctx context.Context, program string, args ...string) (string, error) {
	c := exec.CommandContext(ctx, filepath.Join(e.bin, program), args...)
	c.Env = append(append(os.Environ(), "KUBECONFIG="+filepath.Join(e.dir, "terrier", "kubeconfig"), "HOME="+e.dir), e.environ...)
	out, err := c.CombinedOutput()
	return string(out), err
}
