package runner

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/terrier-iac/terrier/internal/runner/disk"
	"github.com/terrier-iac/terrier/internal/sandbox"
	"github.com/terrier-iac/terrier/internal/stack"
)

// Config is what Processes needs.
type Config struct {
	Dir        string           // the data directory; made if it is not there
	Binary     string           // the supervisor's program, terrier-runner
	Contents   Contents         // finds what jobs name; nil where no run is started
	MinLevel   int              // of isolation, for jobs that ask for less
	Asks       bool             // a run changes nothing before Allow was called for it: what looks after it has to know first
	StopReads  bool             // Close interrupts plans and checks; applies always go on
	StartLimit time.Duration    // how long a supervisor may take to its first word; a minute if zero
	Now        func() time.Time // nil is the machine's
	Log        *slog.Logger     // nil discards
}

// Processes runs every job under a supervisor process of its own, on this
// machine. The supervisors outlive it: a new Processes on the same directory
// finds their runs, alive or ended.
type Processes struct {
	*Runs
	config Config
	ctx    context.Context // ends with Close; bounds the watches
	stop   context.CancelFunc
	ended  chan string
	watch  sync.WaitGroup

	level func() sandbox.Probed
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
	p := &Processes{config: c, ended: make(chan string), level: sync.OnceValue(sandbox.Probe)}
	var err error
	if p.Runs, err = OpenRuns(c.Dir, AsProcesses, Acts{Begin: p.begin, Find: p.find, Cancel: p.cancel}); err != nil {
		return nil, err
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

// begin starts the supervisor of a run and returns once it holds the stack.
func (p *Processes) begin(ctx context.Context, job Job) error {
	job.Sandbox.MinLevel = max(job.Sandbox.MinLevel, p.config.MinLevel)
	if job.Sandbox.Level == 0 {
		job.Sandbox.Level = int(p.level().Level)
	}
	host, err := Find(ctx, p.config.Contents, job)
	if err != nil {
		return err
	}
	pid, err := p.launch(ctx, job, host)
	if err != nil {
		return err
	}
	p.config.Log.Debug("run started", "stack", job.Name, "run", job.ID)
	p.watchEnd(job.Key(), job.ID, pid)
	return nil
}

// cancel asks the supervisor of a run to stop.
func (p *Processes) cancel(_ context.Context, r *Report) error {
	return signalRun(r.PID, filepath.Join(p.run(r.Key(), r.ID), fileLock))
}

// Allow lets a run begin the step that changes resources or the state. It can be repeated.
func (p *Processes) Allow(key, id string) error {
	defer p.Lock(key)()
	path := filepath.Join(p.run(key, id), fileAllowed)
	if _, err := os.Stat(path); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return disk.Write(path, nil)
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

// find reads one run. A directory without a report is left by a failed start,
// and is removed.
func (p *Processes) find(key, id string) (*Report, error) {
	dir := p.run(key, id)
	// First the proof of life, then the report: the other way round a run could
	// end in between and look dead.
	alive, err := disk.IsLocked(filepath.Join(dir, fileLock))
	if err != nil {
		return nil, err
	}
	r, err := ReadReport(dir)
	if err != nil {
		return nil, err
	}
	switch {
	case r.ID == "" && !alive:
		return nil, os.RemoveAll(dir)
	case r.ID == "":
		stack, beside := SplitKey(key)
		return &Report{ID: id, Stack: stack, Beside: beside, Phase: Starting}, nil
	case r.Phase != Done && !alive:
		return p.completeKilled(r)
	}
	return &r, nil
}

// completeKilled completes the report of a run whose supervisor died, after
// saving the states that the engine may have left in the work directory.
func (p *Processes) completeKilled(r Report) (*Report, error) {
	if err := os.MkdirAll(p.stack(r.Key()), 0o700); err != nil {
		return nil, err
	}
	lock, err := disk.TryLock(filepath.Join(p.stack(r.Key()), fileLock))
	if err != nil {
		return nil, err
	}
	if lock == nil {
		// The supervisor that holds the stack now recovers its state first.
		return &r, nil
	}
	defer lock.Close()
	w := &workDir{dir: p.stack(r.Key())}
	if err := errors.Join(recoverState(w, p.runsOf(r.Key())), w.wipe()); err != nil {
		return nil, err
	}
	dir := p.run(r.Key(), r.ID)
	if err := errors.Join(disk.ReleaseReserve(dir), recoverEvents(dir)); err != nil {
		return nil, err
	}
	return Complete(dir, r, p.config.Now(), func(r *Report) {
		r.Outcome, r.Message = stack.Killed, fmt.Sprintf("the supervisor died while the run was %s", r.Phase)
	})
}
