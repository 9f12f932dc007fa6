package testkit

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/terrier-iac/terrier/internal/sandbox"
	"github.com/terrier-iac/terrier/internal/testkit/port"
)

// Platform is one `terrier up` in a process of its own, or one `terrier
// controller`, with everything that it keeps in a directory of the test's. It may
// be killed and started again.
type Platform struct {
	Dir        string // the data directory
	Kubeconfig string
	API, HTTP  string // URLs
	Metrics    string // likewise; empty if none are served
	Isolation  string // of its runs
	Started    time.Duration
	Env        []string // added to the environment of the next start

	options PlatformOptions
	ports   []*port.Held // of its API and of HTTP: those that know its address find it there after each start
	binary  string
	shared  string    // a directory that its runs may write
	volume  podVolume // how runs have it that are pods of another machine

	sharedRecords *shared // with other controllers; nil if they are in Dir

	log     string // path of what it says
	command *exec.Cmd
	ended   chan error // holds how the process ended, once it has

	mu     sync.Mutex
	worlds map[testing.TB][]*World // by the test that asked for them
}

// PlatformOptions shape a platform. Dir is made for it and must not exist.
type PlatformOptions struct {
	Dir   string
	Flags []string // added to those that every platform of a test has
	Env   []string // of the first start, as Platform.Env

	// Cluster makes it a controller of that namespace, which Kube gave, in place of
	// a platform with an API server of its own.
	Cluster *Cluster
	Cold    bool // Start is left to the test

	// Strict leaves out the flags that let servers on loopback be sources.
	Strict bool

	// Elsewhere is set where runs have not the files of this machine: they then
	// share no directory with the test.
	Elsewhere bool
}

// Up starts a platform for one test, which ends with it.
func Up(tb testing.TB, flags ...string) *Platform {
	tb.Helper()
	p, err := NewPlatform(PlatformOptions{Dir: filepath.Join(tb.TempDir(), "platform"), Flags: flags})
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if tb.Failed() {
			tb.Logf("the platform said:\n%s", p.Log())
		}
		if err := p.Close(); err != nil {
			tb.Errorf("ending the platform: %v", err)
		}
	})
	return p
}

const loopback = "127.0.0.1"

// NewPlatform starts a platform that several tests share. The caller closes
// it.
func NewPlatform(o PlatformOptions) (*Platform, error) {
	p := &Platform{Dir: filepath.Join(o.Dir, "data"), Env: o.Env, options: o, shared: filepath.Join(o.Dir, "shared"), log: filepath.Join(o.Dir, "log")}
	var err error
	if p.binary, err = platformBinary(); err != nil {
		return nil, err
	}
	if err := errors.Join(os.MkdirAll(o.Dir, 0o700), os.Mkdir(p.shared, 0o755), sandbox.ChownWork(p.shared)); err != nil {
		return nil, err
	}
	if o.Cluster != nil {
		p.Kubeconfig = o.Cluster.Kubeconfig
	}
	for range 2 {
		held, err := port.Hold(loopback)
		if err != nil {
			return nil, errors.Join(err, p.Close())
		}
		p.ports = append(p.ports, held)
	}
	if o.Cold {
		return p, nil
	}
	if err := p.Start(); err != nil {
		return nil, errors.Join(err, p.Close())
	}
	return p, nil
}

// platformBinary is bin/terrier, unless TERRIER_TEST_BINARY names another.
func platformBinary() (string, error) {
	if b := os.Getenv("TERRIER_TEST_BINARY"); b != "" {
		return filepath.Abs(b)
	}
	return findBinary()
}

// Start starts the process and waits until it says that it is ready. The
// platform must not be running.
func (p *Platform) Start() error {
	began := time.Now()
	output, err := p.spawn()
	if err != nil {
		return err
	}
	if err := output.SetReadDeadline(time.Now().Add(startWithin)); err != nil {
		return errors.Join(err, output.Close())
	}
	reader := bufio.NewReader(output)
	line, err := reader.ReadBytes('\n')
	go p.keep(reader, output) // until the process ends, for one that cannot write dies
	if err != nil {
		return errors.Join(fmt.Errorf("waiting for %s: %w; it said: %s", p.binary, err, p.Log()), p.Kill())
	}
	var ready struct {
		Ready                                     bool
		Kubeconfig, API, HTTP, Metrics, Isolation string
	}
	if err := json.Unmarshal(line, &ready); err != nil || !ready.Ready {
		return errors.Join(fmt.Errorf("reading the ready line %q: %w", line, err), p.Kill())
	}
	p.Started = time.Since(began)
	p.API, p.HTTP, p.Metrics, p.Isolation = ready.API, ready.HTTP, ready.Metrics, ready.Isolation
	if ready.Kubeconfig != "" {
		p.Kubeconfig = ready.Kubeconfig
	}
	return nil
}

// keep adds the rest of what the process prints to its log.
func (p *Platform) keep(rest io.Reader, output *os.File) {
	defer output.Close()
	_ = output.SetReadDeadline(time.Time{})
	log, err := os.OpenFile(p.log, os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		return // it was removed with everything else
	}
	defer log.Close()
	_, _ = io.Copy(log, rest)
}

// spawn starts the process and waits for nothing. What comes out of it is the
// ready line, if it gets so far.
func (p *Platform) spawn() (*os.File, error) {
	log, err := os.OpenFile(p.log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, err
	}
	defer log.Close()
	output, said, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer said.Close()
	// Only files, so that no goroutine of this process copies anything.
	command := exec.Command(p.binary, p.arguments()...)
	command.Stdout, command.Stderr = said, log
	command.Env = append(os.Environ(), p.Env...)
	command.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := command.Start(); err != nil {
		return nil, errors.Join(fmt.Errorf("starting %s: %w", p.binary, err), output.Close())
	}
	ended := make(chan error, 1)
	go func() { ended <- command.Wait() }()
	p.command, p.ended = command, ended
	return output, nil
}

// Exited waits until the process has ended by itself, and returns its exit code;
// -1 if ctx ends before, or a signal ended it.
func (p *Platform) Exited(ctx context.Context) int {
	if p.command == nil {
		return -1
	}
	select {
	case <-p.ended:
		code := p.command.ProcessState.ExitCode()
		p.command = nil
		return code
	case <-ctx.Done():
		return -1
	}
}

// arguments let the servers of tests, which are on loopback, be sources.
func (p *Platform) arguments() []string {
	at := func(n int) string { return net.JoinHostPort(loopback, strconv.Itoa(p.ports[n].Port)) }
	what := []string{"up", "--api-address", at(0)}
	if c := p.options.Cluster; c != nil {
		// Several of them share the test server, so each keeps to its namespace.
		what = []string{"controller", "--kubeconfig", c.Kubeconfig, "--watch-namespace", c.Namespace, "--install-crds=false"}
	}
	if !p.options.Elsewhere {
		what = append(what, "--run-writable", p.shared)
	}
	what = append(what, "--http-address", at(1), "-o", "json", "--data-dir", p.Dir, "--log-level", "info")
	if !p.options.Strict {
		what = append(what, "--allow-host", "127.0.0.0/8", "--allow-plain-http", "--state-git-host", "127.0.0.1")
	}
	return append(what, p.options.Flags...)
}

// Stop ends the process as an operator does, and returns how long that took.
// Applies go on.
func (p *Platform) Stop() (time.Duration, error) {
	began := time.Now()
	if err := p.signal(syscall.SIGTERM); err != nil {
		return 0, err
	}
	err := p.await(startWithin)
	return time.Since(began), err
}

// Kill ends the process with a signal that it never sees.
func (p *Platform) Kill() error {
	if err := p.signal(syscall.SIGKILL); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	if err := p.await(startWithin); err != nil {
		var exit *exec.ExitError
		if !errors.As(err, &exit) {
			return err
		}
	}
	return nil
}

func (p *Platform) signal(s syscall.Signal) error {
	if p.command == nil {
		return errors.New("the platform is not running")
	}
	return p.command.Process.Signal(s)
}

// await waits for the end of the process.
func (p *Platform) await(within time.Duration) error {
	ctx, cancel := context.WithTimeout(context.Background(), within)
	defer cancel()
	select {
	case err := <-p.ended:
		p.command = nil
		return err
	case <-ctx.Done():
		return fmt.Errorf("the platform, process %d, has not ended after %s", p.command.Process.Pid, within)
	}
}

// Close ends the platform and all of its runs, and removes what it kept.
func (p *Platform) Close() error {
	var errs []error
	if p.command != nil {
		if _, err := p.Stop(); err != nil {
			errs = append(errs, err)
		}
	}
	if p.command != nil {
		errs = append(errs, p.Kill())
	}
	for _, held := range p.ports {
		errs = append(errs, held.Release())
	}
	p.ports = nil
	errs = append(errs, p.killRuns())
	return errors.Join(append(errs, remove(p.options.Dir))...)
}

// remove removes what a platform kept. What a killed run had started may still write there,
// until the kernel has ended it.
func remove(dir string) error {
	for deadline := time.Now().Add(startWithin); ; {
		err := os.RemoveAll(dir)
		if !errors.Is(err, syscall.ENOTEMPTY) || time.Now().After(deadline) {
			return err
		}
	}
}

// Log is everything that the process said, but for the ready line.
func (p *Platform) Log() string {
	b, err := os.ReadFile(p.log)
	if err != nil {
		return err.Error()
	}
	return string(b)
}

// PID is the process's, 0 if it is not running.
func (p *Platform) PID() int {
	if p.command == nil {
		return 0
	}
	return p.command.Process.Pid
}

// World returns an empty world that runs of this platform can reach.
func (p *Platform) World(tb testing.TB) *World {
	tb.Helper()
	w := newWorld(tb, p.Shared(tb), p.volume)
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.worlds == nil {
		p.worlds = map[testing.TB][]*World{}
	}
	p.worlds[tb] = append(p.worlds[tb], w)
	return w
}

// Shared returns a directory of the test's own that runs may write.
func (p *Platform) Shared(tb testing.TB) string {
	tb.Helper()
	dir, err := os.MkdirTemp(p.shared, "")
	if err == nil {
		err = own(dir, p.volume.user)
	}
	if err != nil {
		tb.Fatal(err)
	}
	return dir
}
