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
	"strings"
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
	Contents   Contents         // finds what jobs name; nil where no run is started
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
	busy map[string]*sync.Mutex // one for each key that was ever used
}

var _ Runner = (*Processes)(nil)

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
			p.watchEnd(r.Key(), r.ID, r.PID)
		}
	}
	return p, nil
}

// Start starts a run and returns once its supervisor holds the stack. A run
// that was started before, whether it is running or done, is left alone. While
// another run of the stack has not been forgotten, Start is a Conflict: what
// that run did, its state above all, has not been recorded yet.
func (p *Processes) Start(ctx context.Context, job Job) error {
	if err := job.Check(); err != nil {
		return err
	}
	defer p.lock(job.Key())()
	current, err := p.current(job.Key())
	if err != nil {
		return err
	}
	if current != nil && current.ID == job.ID {
		return nil
	}
	if current != nil {
		return fault.New(fault.Conflict, StackBusy,
			fmt.Errorf("starting run %s: run %s of the same stack comes first", job.ID, current.ID))
	}
	job.Sandbox.MinLevel = max(job.Sandbox.MinLevel, p.config.MinLevel)
	if job.Sandbox.Level == 0 {
		job.Sandbox.Level = int(p.level().Level)
	}
	host, err := Find(ctx, p.config.Contents, job)
	if err != nil {
		return fmt.Errorf("starting run %s: %w", job.ID, err)
	}
	pid, err := p.launch(ctx, job, host)
	if err != nil {
		return errors.Join(fmt.Errorf("starting run %s: %w", job.ID, err), os.RemoveAll(p.run(job.Key(), job.ID)))
	}
	p.config.Log.Debug("run started", "stack", job.Name, "run", job.ID)
	p.watchEnd(job.Key(), job.ID, pid)
	return nil
}

// Current returns the one run of a key that was not forgotten yet, or nil. A
// run whose supervisor died is Done and Killed; what it stored can be opened.
func (p *Processes) Current(key string) (*Report, error) {
	if err := checkKey(key); err != nil {
		return nil, err
	}
	defer p.lock(key)()
	return p.current(key)
}

// content is Current for a caller that holds the lock of the key.
func (p *Processes) current(key string) (*Report, error) {
	entries, err := os.ReadDir(p.runsOf(key))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	for _, e := range entries {
		r, err := p.find(key, e.Name())
		if err != nil || r != nil {
			return r, err
		}
	}
	return nil, nil
}

// List returns the current run of every key that has one.
func (p *Processes) List() ([]Report, error) {
	entries, err := os.ReadDir(p.runs())
	if err != nil {
		return nil, err
	}
	var reports []Report
	for _, e := range entries {
		if checkKey(e.Name()) != nil {
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
func (p *Processes) Open(key, id, file string) (io.ReadCloser, error) {
	if err := errors.Join(checkName("ID", id), checkKey(key)); err != nil {
		return nil, err
	}
	if !slices.Contains(readable, file) {
		return nil, fault.New(fault.Invalid, NameInvalid, fmt.Errorf("a run has no file %.80q", file))
	}
	f, err := os.Open(filepath.Join(p.run(key, id), file))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fault.New(fault.Missing, FileMissing, fmt.Errorf("run %s has left no %s", id, file))
	}
	if err != nil {
		return nil, err
	}
	return f, nil
}

// Cancel asks a run to stop and does not wait until it has. A run that has
// ended is left alone.
func (p *Processes) Cancel(_ context.Context, key, id string) error {
	if err := errors.Join(checkName("ID", id), checkKey(key)); err != nil {
		return err
	}
	defer p.lock(key)()
	r, err := p.find(key, id)
	if err != nil || r == nil || r.Phase == Done {
		return err
	}
	return signalRun(r.PID, filepath.Join(p.run(key, id), fileLock))
}

// Forget removes what an ended run left. A running run is a Conflict.
func (p *Processes) Forget(key, id string) error {
	if err := errors.Join(checkName("ID", id), checkKey(key)); err != nil {
		return err
	}
	defer p.lock(key)()
	r, err := p.find(key, id)
	if err != nil || r == nil {
		return err
	}
	if r.Phase != Done {
		return fault.New(fault.Conflict, StackBusy, fmt.Errorf("run %s is running", id))
	}
	defer failpoint.Act("run.remove", "")()
	if err := os.RemoveAll(p.run(key, id)); err != nil {
		return err
	}
	// The parent stays if it holds another run, which is the only way this
	// fails.
	_ = os.Remove(p.runsOf(key))
	return nil
}

// Remove removes everything about a key, and of a stack also every run beside
// it.
func (p *Processes) Remove(key string) error {
	if err := checkKey(key); err != nil {
		return err
	}
	keys, err := p.below(key)
	if err != nil {
		return err
	}
	for _, k := range keys {
		defer p.lock(k)()
	}
	for _, k := range keys {
		r, err := p.current(k)
		if err != nil {
			return err
		}
		if r != nil && r.Phase != Done {
			return fault.New(fault.Conflict, StackBusy, fmt.Errorf("run %s is running", r.ID))
		}
	}
	defer failpoint.Act("run.remove", "stack")()
	var errs []error
	for _, k := range keys {
		errs = append(errs, os.RemoveAll(p.runsOf(k)), os.RemoveAll(p.stack(k)))
	}
	return errors.Join(errs...)
}

// below lists a key and, of a stack, the keys of what is beside it, in order.
func (p *Processes) below(key string) ([]string, error) {
	keys := []string{key}
	for _, dir := range []string{p.runs(), p.stacks()} {
		entries, err := os.ReadDir(dir)
		if err != nil {
			return nil, err
		}
		for _, e := range entries {
			if strings.HasPrefix(e.Name(), key+besideMark) {
				keys = append(keys, e.Name())
			}
		}
	}
	slices.Sort(keys)
	return slices.Compact(keys), nil
}

// Ended sends the key of every run that ends, also of one that an earlier
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
				errs = append(errs, p.Cancel(p.ctx, r.Key(), r.ID))
			}
		}
	}
	p.stop()
	p.watch.Wait()
	return errors.Join(errs...)
}

// watchEnd announces the end of a run.
func (p *Processes) watchEnd(key, id string, pid int) {
	dir := p.run(key, id)
	p.watch.Go(func() {
		err := awaitDeath(p.ctx, pid, filepath.Join(dir, fileLock))
		if err != nil && p.ctx.Err() == nil {
			p.config.Log.Warn("run cannot be watched", "run", id, "error", err)
		}
		select {
		case p.ended <- key:
		case <-p.ctx.Done():
		}
	})
}

// lock keeps two calls about one key apart. The supervisor's lock on disk keeps
// two writers apart.
func (p *Processes) lock(key string) (unlock func()) {
	p.mu.Lock()
	m := p.busy[key]
	if m == nil {
		m = &sync.Mutex{}
		p.busy[key] = m
	}
	p.mu.Unlock()
	m.Lock()
	return m.Unlock
}
