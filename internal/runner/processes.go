package runner

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/terrier-iac/terrier/internal/failpoint"
	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/sandbox"
)

// Config is what Processes needs.
type Config struct {
	Dir        string           // the data directory; made if it is not there
	Binary     string           // the supervisor's program, terrier-runner
	MinLevel   int              // of isolation, for jobs that ask for less
	StopReads  bool             // Close interrupts plans and checks; applies always go on
	StartLimit time.Duration    // how long a supervisor may take to its first word; a minute if zero
	Now        func() time.Time // nil is the machine's
	Log        *slog.Logger     // nil discards
}

// Processes runs every job under a supervisor process of its own, on this
// machine. The supervisors outlive it: a new Processes on the same directory
// finds their runs, alive or ended.
type Processes struct {
	config Config
	layout
	ctx   context.Context // ends with Close; bounds the watches
	stop  context.CancelFunc
	ended chan string
	watch sync.WaitGroup

	level func() sandbox.Probed

	mu   sync.Mutex
	busy map[string]*sync.Mutex // one per stack that was ever touched
}

// New opens the runner on its directory and watches the runs that it finds
// alive there.
func New(c Config) (*Processes, error) {
	if c.StartLimit <= 0 {
		c.StartLimit = time.Minute
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	p := &Processes{config: c, layout: layout{c.Dir}, ended: make(chan string),
		level: sync.OnceValue(sandbox.Probe), busy: map[string]*sync.Mutex{}}
	for _, dir := range []string{p.stacks(), p.runs()} {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return nil, err
		}
	}
	p.ctx, p.stop = context.WithCancel(context.Background())
	reports, err := p.List()
	if err != nil {
		p.stop()
		return nil, err
	}
	for _, r := range reports {
		if r.Phase != Done {
			p.follow(r.Stack, r.ID, r.PID)
		}
	}
	return p, nil
}

// Start starts a run and returns once its supervisor holds the stack. A run
// that was started before, whether it is at work or done, is left alone. While
// another run of the stack has not been forgotten, Start is a Conflict: what
// that run did, its state above all, has not been recorded yet.
func (p *Processes) Start(ctx context.Context, job Job) error {
	if err := errors.Join(checkName("ID", job.ID), checkName("stack", job.Stack)); err != nil {
		return err
	}
	defer p.lock(job.Stack)()
	current, err := p.current(job.Stack)
	if err != nil {
		return err
	}
	if current != nil && current.ID == job.ID {
		return nil
	}
	if current != nil {
		return fault.New(fault.Conflict, "StackBusy",
			fmt.Errorf("starting run %s: run %s of the same stack comes first", job.ID, current.ID))
	}
	job.Box.MinLevel = max(job.Box.MinLevel, p.config.MinLevel)
	if job.Box.Level == 0 {
		job.Box.Level = int(p.level().Level)
	}
	pid, err := p.launch(ctx, job)
	if err != nil {
		return errors.Join(fmt.Errorf("starting run %s: %w", job.ID, err), os.RemoveAll(p.run(job.Stack, job.ID)))
	}
	p.config.Log.Debug("run started", "stack", job.Name, "run", job.ID)
	p.follow(job.Stack, job.ID, pid)
	return nil
}

// Current returns the one run of a stack that was not forgotten yet, or nil. A
// run whose supervisor died is Done and Killed; what it stored can be opened.
func (p *Processes) Current(stack string) (*Report, error) {
	if err := checkName("stack", stack); err != nil {
		return nil, err
	}
	defer p.lock(stack)()
	return p.current(stack)
}

// current is Current for whoever holds the stack's lock.
func (p *Processes) current(stackID string) (*Report, error) {
	entries, err := os.ReadDir(p.runsOf(stackID))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	for _, e := range entries {
		r, err := p.look(stackID, e.Name())
		if err != nil || r != nil {
			return r, err
		}
	}
	return nil, nil
}

// List returns the current run of every stack that has one.
func (p *Processes) List() ([]Report, error) {
	entries, err := os.ReadDir(p.runs())
	if err != nil {
		return nil, err
	}
	var reports []Report
	for _, e := range entries {
		if checkName("stack", e.Name()) != nil {
			continue
		}
		r, err := p.Current(e.Name())
		if err != nil {
			return nil, err
		}
		if r != nil {
			reports = append(reports, *r)
		}
	}
	return reports, nil
}

// readable are the files that Open opens.
var readable = []string{FileLog, FileEvents, FilePlan, FilePlanDoc, FilePlanRaw, FilePlanTxt, FileState, FileOutputs, FileInventory, FileRescue, FileLockHCL}

// Open opens a file that a run left; Missing if it left none.
func (p *Processes) Open(stack, id, file string) (io.ReadCloser, error) {
	if err := errors.Join(checkName("ID", id), checkName("stack", stack)); err != nil {
		return nil, err
	}
	if !slices.Contains(readable, file) {
		return nil, fault.New(fault.Invalid, "NameInvalid", fmt.Errorf("a run has no file %.80q", file))
	}
	f, err := os.Open(filepath.Join(p.run(stack, id), file))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fault.New(fault.Missing, "FileMissing", fmt.Errorf("run %s has left no %s", id, file))
	}
	if err != nil {
		return nil, err
	}
	return f, nil
}

// Cancel asks a run to stop and does not wait until it has. A run that has
// ended is left alone.
func (p *Processes) Cancel(_ context.Context, stack, id string) error {
	if err := errors.Join(checkName("ID", id), checkName("stack", stack)); err != nil {
		return err
	}
	defer p.lock(stack)()
	r, err := p.look(stack, id)
	if err != nil || r == nil || r.Phase == Done {
		return err
	}
	return signalRun(r.PID, filepath.Join(p.run(stack, id), fileLock))
}

// Forget removes what an ended run left. A run at work is a Conflict.
func (p *Processes) Forget(stack, id string) error {
	if err := errors.Join(checkName("ID", id), checkName("stack", stack)); err != nil {
		return err
	}
	defer p.lock(stack)()
	r, err := p.look(stack, id)
	if err != nil || r == nil {
		return err
	}
	if r.Phase != Done {
		return fault.New(fault.Conflict, "StackBusy", fmt.Errorf("run %s is at work", id))
	}
	defer failpoint.Act("run.remove", "")()
	if err := os.RemoveAll(p.run(stack, id)); err != nil {
		return err
	}
	// The parent stays if it holds another run, which is the only way this fails.
	_ = os.Remove(p.runsOf(stack))
	return nil
}

// Remove removes everything about a stack: its work directory and its ended
// runs. A run at work is a Conflict.
func (p *Processes) Remove(stack string) error {
	if err := checkName("stack", stack); err != nil {
		return err
	}
	defer p.lock(stack)()
	r, err := p.current(stack)
	if err != nil {
		return err
	}
	if r != nil && r.Phase != Done {
		return fault.New(fault.Conflict, "StackBusy", fmt.Errorf("run %s is at work", r.ID))
	}
	defer failpoint.Act("run.remove", "stack")()
	return errors.Join(os.RemoveAll(p.runsOf(stack)), os.RemoveAll(p.stack(stack)))
}

// Ended sends the stack of every run that ends, also of one that an earlier
// Processes started. It is never closed.
func (p *Processes) Ended() <-chan string { return p.ended }

// Close stops watching. Applies go on under their supervisors and are found by
// the next New; so do plans and checks unless Config.StopReads.
func (p *Processes) Close() error {
	var errs []error
	if p.config.StopReads {
		reports, err := p.List()
		errs = append(errs, err)
		for _, r := range reports {
			if r.Phase != Done && !r.Kind.Writes() {
				errs = append(errs, p.Cancel(p.ctx, r.Stack, r.ID))
			}
		}
	}
	p.stop()
	p.watch.Wait()
	return errors.Join(errs...)
}

// follow announces the end of a run.
func (p *Processes) follow(stack, id string, pid int) {
	dir := p.run(stack, id)
	p.watch.Go(func() {
		err := awaitDeath(p.ctx, pid, filepath.Join(dir, fileLock))
		if err != nil && p.ctx.Err() == nil {
			p.config.Log.Warn("run cannot be watched", "run", id, "error", err)
		}
		select {
		case p.ended <- stack:
		case <-p.ctx.Done():
		}
	})
}

// lock keeps two calls about one stack apart. What keeps two writers apart is
// the supervisor's lock on disk.
func (p *Processes) lock(stack string) (unlock func()) {
	p.mu.Lock()
	m := p.busy[stack]
	if m == nil {
		m = &sync.Mutex{}
		p.busy[stack] = m
	}
	p.mu.Unlock()
	m.Lock()
	return m.Unlock
}
