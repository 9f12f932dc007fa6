package script

import (
	"errors"
	"sync"
	"time"

	"github.com/terrier-iac/terrier/internal/sandbox"
)

// Processes are a script and the engines that it called, as one thing to wait for and to
// stop. When the script ends, engines that are still running are interrupted, and have
// time to save their states.
type Processes struct {
	script *sandbox.Process
	grace  time.Duration

	mu       sync.Mutex
	engines  map[*sandbox.Process]bool
	stopping bool // the script is to end, or has ended
	all      sync.WaitGroup
}

// ErrStopping says that no engine is started any more.
var ErrStopping = errors.New("the run is being stopped")

// NewProcesses has no process yet. An engine that is running when the script ends has
// this long to end as well.
func NewProcesses(grace time.Duration) *Processes {
	return &Processes{grace: grace, engines: map[*sandbox.Process]bool{}}
}

// Begin starts the script.
func (p *Processes) Begin(start func() (*sandbox.Process, error)) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	var err error
	p.script, err = start()
	return err
}

// Run starts an engine and waits for its end.
func (p *Processes) Run(start func() (*sandbox.Process, error), stop <-chan struct{}) (sandbox.Exit, error) {
	proc, err := p.add(start)
	if err != nil {
		return sandbox.Exit{}, err
	}
	ended := make(chan struct{})
	var watch sync.WaitGroup
	watch.Go(func() {
		select {
		case <-stop:
			_ = proc.Interrupt()
		case <-ended:
		}
	})
	exit, err := proc.Wait()
	close(ended)
	watch.Wait()
	p.mu.Lock()
	delete(p.engines, proc)
	p.mu.Unlock()
	p.all.Done()
	return exit, err
}

func (p *Processes) add(start func() (*sandbox.Process, error)) (*sandbox.Process, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.stopping {
		return nil, ErrStopping
	}
	proc, err := start()
	if err == nil {
		p.engines[proc] = true
		p.all.Add(1)
	}
	return proc, err
}

// Wait waits for the end of the script and of every engine.
func (p *Processes) Wait() (sandbox.Exit, error) {
	exit, err := p.script.Wait()
	p.mu.Lock()
	p.stopping = true
	for proc := range p.engines {
		_ = proc.Interrupt()
	}
	p.mu.Unlock()
	late := time.AfterFunc(p.grace, p.killEngines)
	defer late.Stop()
	p.all.Wait()
	return exit, err
}

// Stopping reports whether the script was interrupted or has ended.
func (p *Processes) Stopping() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.stopping
}

// Interrupt interrupts every engine once, and the group of the script, as a terminal
// does.
func (p *Processes) Interrupt() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.stopping = true
	errs := []error{p.script.InterruptGroup()}
	for proc := range p.engines {
		errs = append(errs, proc.Interrupt())
	}
	return errors.Join(errs...)
}

// Kill kills all of them.
func (p *Processes) Kill() error {
	p.killEngines()
	return p.script.Kill()
}

func (p *Processes) killEngines() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.stopping = true
	for proc := range p.engines {
		_ = proc.Kill()
	}
}
