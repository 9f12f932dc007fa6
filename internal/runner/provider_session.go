package runner

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/terrier-iac/terrier/internal/engine"
	"github.com/terrier-iac/terrier/internal/failpoint"
	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/sandbox"
	"github.com/terrier-iac/terrier/internal/stack"
)

// An engine starts every provider three times for one plan, which is most of
// what the plan costs. The supervisor starts each once per run instead, in a
// session that is the run's sandbox, and tells the engine where it serves:
//
//	after init, before the first step that needs providers
//	  find      packages of the lock file, verified against its hashes
//	  open      a session with the run's sandbox, environment and nothing else
//	  start     every provider; read where it serves
//	plan, show, apply …
//	  execute   each engine process in the same session, with the list of providers
//	end of the run
//	  end       providers killed after the last engine process, session closed
//
// Providers never outlive their run and are never shared with another one. The
// engine starts those that cannot be served so, see fallback.go.

const (
	startTime   = time.Minute    // for a provider to say where it serves, as engines have it
	startAgain  = 24 * time.Hour // until one that did not start is tried again
	deathTime   = time.Second    // between the engine's end and the news of a provider's
	maxGreeting = 4 << 10
	maxStderr   = 16 << 10 // of a provider's standard error
)

// providerSession is the providers of a run while they live.
type providerSession struct {
	sandbox     *sandbox.Session
	providers   []*runningProvider
	environ     []string // that every engine process in the session gets beside the usual
	stopServing func()
}

type runningProvider struct {
	provider
	proc   *sandbox.Process
	stderr stderrTail // the end of its standard error
	first  firstLine
	serves bool
	ended  chan struct{} // closed when exit is final
	exit   sandbox.Exit
}

// providerProcesses is the part of a run that starts providers once for it.
type providerProcesses struct {
	*run
	session *providerSession // providers and the sandbox they are in; nil where the engine starts them
}

// start starts the providers of the run, as far as one process can serve it.
func (r *providerProcesses) start(ctx context.Context) error {
	if r.job.Options.NoReattach {
		return nil
	}
	providers, err := r.reusable()
	if err != nil {
		r.recorder.logf("The engine starts the providers: %v.", err)
	}
	if len(providers) == 0 {
		return nil
	}
	config := r.sandbox.config
	config.Listen = r.listens(false)
	// The end of ctx asks the engine to stop and must not kill it.
	session, err := sandbox.OpenSession(context.WithoutCancel(ctx), config)
	if err != nil {
		r.recorder.logf("The engine starts the providers: %v.", err)
		return nil
	}
	r.session = &providerSession{sandbox: session, stopServing: func() {}}
	if l := session.Listener(); l != nil {
		r.session.environ, r.session.stopServing = r.listening(false)(l.Addr()), r.serve(l, false)
	}
	served, err := r.startEach(ctx, providers)
	if err != nil {
		return err
	}
	if len(served) == 0 {
		return r.stop()
	}
	reattach, err := engine.ReattachEnviron(served)
	r.session.environ = append(r.session.environ, reattach)
	return err
}

// startEach starts them beside one another.
func (r *providerProcesses) startEach(ctx context.Context, providers []provider) ([]engine.Served, error) {
	type start struct {
		running *runningProvider
		served  engine.Served
		err     error
	}
	starts := make([]start, len(providers))
	var all sync.WaitGroup
	for i, p := range providers {
		all.Go(func() {
			s := &starts[i]
			s.running, s.served, s.err = r.startProvider(ctx, p)
		})
	}
	all.Wait()
	var served []engine.Served
	for _, s := range starts {
		if s.running != nil {
			r.session.providers = append(r.session.providers, s.running)
		}
	}
	if ctx.Err() != nil {
		return nil, ending{outcome: stack.Interrupted, message: "stopped before the next step"}
	}
	for i, s := range starts {
		if s.err == nil {
			s.running.serves = true
			served = append(served, s.served)
		} else {
			p := providers[i]
			r.recorder.logf("The engine starts the provider %s: %v.", p.Source(), s.err)
			if err := r.refuse(p, s.err.Error(), r.now().Add(startAgain)); err != nil {
				return nil, err
			}
		}
	}
	return served, nil
}

// startProvider starts one and waits until it serves.
func (r *providerProcesses) startProvider(ctx context.Context, p provider) (*runningProvider, engine.Served, error) {
	k := &runningProvider{provider: p, stderr: stderrTail{tail: tail{most: maxStderr}}, first: firstLine{line: make(chan string, 1)}, ended: make(chan struct{})}
	started := failpoint.Act("process.start", "provider")
	proc, err := r.session.sandbox.Start(sandbox.Command{
		Path: p.inside, Env: append(r.sandbox.environ(), engine.PluginEnviron()...), Stdout: &k.first, Stderr: &k.stderr,
	})
	started()
	if err != nil {
		return nil, engine.Served{}, err
	}
	k.proc = proc
	go func() {
		defer close(k.ended)
		k.exit, _ = proc.Wait()
	}()
	late := time.NewTimer(orDefault(r.job.Limits.Provider, startTime))
	defer late.Stop()
	var greeting engine.Greeting
	select {
	case line := <-k.first.line:
		greeting, err = engine.ParseGreeting(line)
	case <-k.ended:
		err = fmt.Errorf("it ended before it served (%v): %s", k.exit, fault.Shorten(r.hide.String(k.lastOutput()), maxText/2))
	case <-late.C:
		err = errors.New("it did not say in time where it serves")
	case <-ctx.Done():
		err = context.Cause(ctx)
	}
	if err != nil {
		return k, engine.Served{}, errors.Join(err, proc.Kill())
	}
	return k, engine.Served{Address: p.Address, PID: proc.Inside(), Greeting: greeting}, nil
}

// stop ends the providers and everything else in the session. What they used
// becomes part of the report.
func (r *providerProcesses) stop() error {
	k := r.session
	if k == nil {
		return nil
	}
	r.session = nil
	var errs []error
	for _, p := range k.providers {
		killed := !p.hasEnded()
		errs = append(errs, p.proc.Kill())
		<-p.ended
		step := Step{Name: "provider " + p.Source(), Exit: p.exit.Code, Wall: p.exit.Wall, CPU: p.exit.CPU, MaxRSS: p.exit.MaxRSS}
		if killed {
			step.Exit = 0 // by us, at the end of its work
		}
		r.reportFile.set(func(rep *Report) { rep.Steps = append(rep.Steps, step) })
	}
	errs = append(errs, k.sandbox.Close())
	k.stopServing()
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("ending the providers: %w", err)
	}
	return nil
}

func (p *runningProvider) hasEnded() bool {
	select {
	case <-p.ended:
		return true
	default:
		return false
	}
}

// endsBefore waits for the end of the provider until it is too late.
func (p *runningProvider) endsBefore(late <-chan struct{}) bool {
	select {
	case <-p.ended:
		return true
	case <-late:
		return p.hasEnded()
	}
}

// lastOutput is the last output of a provider that crashed, its panic if it had
// one.
func (p *runningProvider) lastOutput() string {
	text := p.stderr.String()
	for _, start := range []string{"panic: ", "fatal error: ", "runtime: "} {
		if i := strings.Index(text, start); i >= 0 {
			return text[i:]
		}
	}
	return text
}

// stderrTail is a tail that may be read while it is written.
type stderrTail struct {
	mu   sync.Mutex
	tail tail
}

func (w *stderrTail) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.tail.Write(p)
}

func (w *stderrTail) String() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return strings.TrimSpace(string(w.tail.bytes()))
}

// firstLine hands on the first line that is written, and drops the rest.
type firstLine struct {
	line chan string
	buf  []byte
	over bool
}

func (f *firstLine) Write(p []byte) (int, error) {
	if f.over {
		return len(p), nil
	}
	f.buf = append(f.buf, p...)
	if i := bytes.IndexByte(f.buf, '\n'); i >= 0 || len(f.buf) > maxGreeting {
		if i < 0 {
			i = maxGreeting
		}
		f.line <- string(f.buf[:i])
		f.buf, f.over = nil, true
	}
	return len(p), nil
}
