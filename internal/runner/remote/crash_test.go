package remote_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/terrier-iac/terrier/internal/engine"
	"github.com/terrier-iac/terrier/internal/failpoint"
	"github.com/terrier-iac/terrier/internal/runner"
	"github.com/terrier-iac/terrier/internal/runner/remote"
	"github.com/terrier-iac/terrier/internal/runner/remote/remotetest"
	"github.com/terrier-iac/terrier/internal/runner/runnertest"
	"github.com/terrier-iac/terrier/internal/sandbox"
	"github.com/terrier-iac/terrier/internal/stack"
)

// argController makes the test binary a controller that has one job: it starts the run
// unless it finds it, records its end, forgets it, and ends when its place is removed.
// After a run that never began it starts another one.
const argController = "test-controller"

// What a controller of the test finds in its directory.
const (
	fileOrder    = "order"    // a runner.Order
	fileRecorded = "recorded" // a line for each end that was recorded
)

func controllerProgram(dir, url string) error {
	if err := failpoint.Arm(os.Getenv(failpoint.Env)); err != nil {
		return err
	}
	self, err := os.Executable()
	if err != nil {
		return err
	}
	f, err := os.Open(filepath.Join(dir, fileOrder))
	if err != nil {
		return err
	}
	defer f.Close()
	o, err := runner.ReadOrder(f)
	if err != nil {
		return err
	}
	listener, err := net.FileListener(os.NewFile(3, "listener"))
	if err != nil {
		return err
	}
	ctx := context.Background()
	l := &remotetest.Launcher{Dir: filepath.Join(dir, "places"), Binary: self, URL: url}
	c, err := remote.New(ctx, remote.Config{Dir: filepath.Join(dir, "data"), Launcher: l, Identify: l.Identify, Contents: given{o.Host}, Key: bytes.Repeat([]byte{7}, 32)})
	if err != nil {
		return err
	}
	server := &http.Server{Handler: c.Handler(), ReadHeaderTimeout: time.Minute}
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	err = carryOut(ctx, c, o.Job, dir)
	err = errors.Join(err, c.Close(), server.Close())
	if serr := <-served; !errors.Is(serr, http.ErrServerClosed) {
		err = errors.Join(err, serr)
	}
	return err
}

// given are contents that are known.
type given struct{ host runner.Host }

func (g given) Archive(context.Context, string) (string, error) { return g.host.Archive, nil }
func (g given) Platform() (runner.Platform, error)              { return g.host.Platform, nil }
func (g given) Engine(_ context.Context, asked string) (engine.Engine, error) {
	return engine.Engine{Name: "tofu", Version: "1.12.6", Path: asked}, nil
}

func carryOut(ctx context.Context, c *remote.Runner, job runner.Job, dir string) error {
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	recorded := filepath.Join(dir, fileRecorded)
	for range tick.C {
		r, err := c.Current(job.Stack)
		if err != nil {
			return err
		}
		before, err := os.ReadFile(recorded)
		if err != nil && !os.IsNotExist(err) {
			return err
		}
		n := strings.Count(string(before), "\n")
		switch {
		case r == nil && strings.Contains(string(before), string(stack.Succeeded)):
			if left, err := filepath.Glob(filepath.Join(dir, "data", "removals", "*.json")); err != nil || len(left) == 0 {
				return err
			}
		case r == nil:
			job.ID = "apply-" + strconv.Itoa(n)
			if err := c.Start(ctx, job); err != nil {
				continue // the place of an earlier start is being removed
			}
		case r.Phase == runner.Done:
			if line := fmt.Sprintf("%s %s %d\n", r.ID, r.Outcome, r.Resources); !strings.Contains(string(before), line) {
				if err := os.WriteFile(recorded, append(before, line...), 0o600); err != nil {
					return err
				}
			}
			if err := c.Forget(job.Stack, r.ID); err != nil {
				return err
			}
		}
	}
	return nil
}

// planned makes the order of an apply that leaves a line in a file for each time that it
// is carried out.
func planned(t *testing.T) (order []byte, trace string) {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	p, err := runnertest.NewLocal(runner.Config{Dir: t.TempDir(), Binary: self})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.Close(); err != nil {
			t.Error(err)
		}
	})
	dir := t.TempDir()
	if err := os.Chmod(dir, 0o777); err != nil {
		t.Fatal(err)
	}
	trace = filepath.Join(dir, "trace")
	s := runnertest.NewStack(t, p, tofu(t), "resource \"terraform_data\" \"a\" {\n  provisioner \"local-exec\" {\n    command = \"echo once >> "+trace+"\"\n  }\n}\n")
	s.Allow(dir)
	job := s.Job
	plan := s.Must(stack.PlanRun)
	job.ID, job.Kind = "apply", stack.ApplyRun
	runnertest.Saved(plan)(&job)
	platform, err := p.Host().Platform()
	if err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	o := runner.Order{Version: runner.JobVersion, Job: job, Host: runner.Host{Engine: job.Engine.Asked, Platform: platform}}
	if err := o.Write(&b); err != nil {
		t.Fatal(err)
	}
	return b.Bytes(), trace
}

// crashing is a directory of a controller that may be crashed.
type crashing struct {
	t        *testing.T
	dir      string
	listener *os.File
	url      string
}

func newCrashing(t *testing.T, order []byte) *crashing {
	t.Helper()
	c := &crashing{t: t, dir: t.TempDir()}
	if err := os.Mkdir(filepath.Join(c.dir, "places"), 0o711); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(c.dir, fileOrder), order, 0o600); err != nil {
		t.Fatal(err)
	}
	l, err := net.ListenTCP("tcp", &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	c.url = "http://" + l.Addr().String()
	if c.listener, err = l.File(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		left := &remotetest.Launcher{Dir: filepath.Join(c.dir, "places")}
		if err := errors.Join(c.listener.Close(), left.Close()); err != nil {
			t.Error(err)
		}
	})
	return c
}

// run runs a controller to its end, and returns its exit code.
func (c *crashing) run(trap string) int {
	c.t.Helper()
	self, err := os.Executable()
	if err != nil {
		c.t.Fatal(err)
	}
	var said bytes.Buffer
	p, err := sandbox.Start(c.t.Context(), sandbox.Command{Path: self, Args: []string{argController, c.dir, c.url}, Env: []string{failpoint.Env + "=" + trap},
		Stdout: io.Discard, Stderr: &said, ExtraFiles: []*os.File{c.listener}})
	if err != nil {
		c.t.Fatal(err)
	}
	exit, err := p.Wait()
	if err != nil || exit.Code != 0 && exit.Code != failpoint.Exit {
		c.t.Fatalf("the controller ended %v, %v: %s", exit, err, said.String())
	}
	return exit.Code
}

// trap returns what arms a controller, and the file that it writes to.
func (c *crashing) trap(what string) (value, file string) {
	file = filepath.Join(c.dir, "acts")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		c.t.Fatal(err)
	}
	return what + "@" + file, file
}

// check checks that the apply was carried out once, was recorded, and left nothing.
func (c *crashing) check(trace string) {
	c.t.Helper()
	if got, err := os.ReadFile(trace); err != nil || string(got) != "once\n" {
		c.t.Errorf("the apply left %q, %v; want it to be carried out once", got, err)
	}
	recorded, err := os.ReadFile(filepath.Join(c.dir, fileRecorded))
	if err != nil || strings.Count(string(recorded), "Succeeded 1\n") != 1 || strings.Count(string(recorded), "Killed") > 0 {
		c.t.Errorf("recorded is %q, %v; want one success", recorded, err)
	}
	for _, pattern := range []string{"places/*", "data/removals/*", "data/runs/*/*"} {
		await(c.t, pattern+" is nothing", func() bool {
			left, err := filepath.Glob(filepath.Join(c.dir, pattern))
			return err == nil && len(left) == 0
		})
	}
	if err := os.Remove(trace); err != nil {
		c.t.Error(err)
	}
}

// A controller that is killed after any of its durable acts carries the run on when it
// comes back: it is carried out once, recorded, and nothing is left.
func TestControllerIsKilledAnywhere(t *testing.T) {
	order, trace := planned(t)
	c := newCrashing(t, order)
	value, file := c.trap("count")
	if code := c.run(value); code != 0 {
		t.Fatalf("the controller ended with %d", code)
	}
	c.check(trace)
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]int{}
	var points []string
	for _, a := range failpoint.Acts(text) {
		if slices.Contains([]string{"run.file/key", "run.file/seal", "run.file/token", "run.file/pid"}, a.Name) {
			continue // of the launcher: there is no place yet, or its agent runs already
		}
		// The later ones of a name happen as often as the machine is slow.
		if seen[a.Name]++; seen[a.Name] <= 3 && !(seen[a.Name] > 1 && strings.HasPrefix(a.Name, "run.append")) {
			points = append(points, fmt.Sprintf("%s#%d", a.Name, seen[a.Name]))
		}
	}
	if len(points) < 12 {
		t.Errorf("there are only the acts %q", points)
	}
	for _, point := range points {
		t.Run(point, func(t *testing.T) {
			c := newCrashing(t, order)
			value, _ := c.trap("crash:after:" + point)
			if code := c.run(value); code != failpoint.Exit {
				t.Logf("the act did not happen this time: %d", code)
			}
			c.run("")
			c.check(trace)
		})
	}
}
