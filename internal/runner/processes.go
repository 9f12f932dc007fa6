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

	"golang.org/x/sys/unix"

	"github.com/terrier-iac/terrier/internal/fault"
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
	LateLimit  time.Duration    // how long a supervisor may take beyond the limits of its run until it is killed; 10 minutes if zero
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

	level   func() sandbox.Probed
	late    lateRuns
	dying   dying
	watched sync.Map // the directories of the runs whose ends are awaited
}

var _ Runner = (*Processes)(nil)

// New opens the runner on its directory and watches the runs that it finds
// alive there. A run whose remains cannot be taken over is the trouble of its stack, whose
// Current says so, and of no other one.
func New(c Config) (*Processes, error) {
	if c.StartLimit <= 0 {
		c.StartLimit = time.Minute
	}
	if c.LateLimit <= 0 {
		c.LateLimit = 10 * time.Minute
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
	if !Listed(err) {
		p.stop()
		return nil, err
	}
	if err != nil {
		c.Log.Error("runs of an earlier process cannot be taken over yet", "err", err)
	}
	for _, r := range reports {
		if r.Phase != Done {
			p.watchEnd(r.Key(), r.ID, r.PID)
		}
	}
	p.watch.Go(p.watchLate)
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
	p.late.cancelled(r.Key(), r.ID, time.Now())
	return signalRun(r.PID, filepath.Join(p.run(r.Key(), r.ID), fileLock), unix.SIGTERM)
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

// watchEnd announces the end of a run that goes on, once.
func (p *Processes) watchEnd(key, id string, pid int) {
	dir := p.run(key, id)
	if _, known := p.watched.LoadOrStore(dir, true); known {
		return
	}
	p.watch.Go(func() {
		defer p.watched.Delete(dir)
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

// watchFound announces the end of a run that could not be read when this process began. The
// report may be old, and what it is of may have been announced since.
func (p *Processes) watchFound(r Report) {
	if _, known := p.watched.Load(p.run(r.Key(), r.ID)); known {
		return
	}
	defer p.Lock(r.Key())()
	now, err := p.current(r.Key())
	if err == nil && now != nil && now.ID == r.ID && now.Phase != Done { // otherwise it is found the next time
		p.watchEnd(r.Key(), r.ID, now.PID)
	}
}

// lookLate is how often this looks for runs whose supervisors do not end them.
const lookLate = time.Minute

// watchLate kills the supervisors that do not keep the limits of their runs.
func (p *Processes) watchLate() {
	tick := time.NewTicker(min(lookLate, p.config.LateLimit))
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-p.ctx.Done():
			return
		}
		reports, err := p.List()
		if err != nil {
			p.config.Log.Debug("not all runs can be listed", "err", err) // their stacks say so
		}
		late := p.late.see(reports, time.Now(), p.config.LateLimit)
		for _, r := range reports {
			if r.Phase != Done {
				p.watchFound(r)
			}
			why := late[r.Key()]
			if why == "" {
				continue
			}
			p.config.Log.Warn("supervisor killed", "stack", r.Name, "run", r.ID, "phase", r.Phase, "why", why)
			if err := signalRun(r.PID, filepath.Join(p.run(r.Key(), r.ID), fileLock), unix.SIGKILL); err != nil {
				p.config.Log.Warn("supervisor not killed", "run", r.ID, "err", err)
			}
		}
	}
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
	w, dir := &workDir{dir: p.stack(r.Key())}, p.run(r.Key(), r.ID)
	// The space comes first: on a disk that is full the state needs it.
	if err := disk.ReleaseReserve(dir); err != nil {
		return nil, err
	}
	// Without the state nothing is wiped, since it may be in what would be.
	if err := p.dying.await(dir, func(patience time.Duration) error { return recoverState(w, p.runsOf(r.Key()), patience) }); err != nil {
		return nil, err
	}
	if err := w.wipe(); err != nil {
		return nil, err
	}
	if err := recoverEvents(dir); err != nil {
		return nil, err
	}
	return Complete(dir, r, p.config.Now(), func(r *Report) {
		r.Outcome, r.Message = stack.Killed, fmt.Sprintf("the supervisor died while the run was %s", r.Phase)
		if why := p.late.killed(r.Key(), r.ID); why != "" {
			r.Message = fmt.Sprintf("the run was killed while it was %s: %s", r.Phase, why)
			r.Fault, r.Reason = fault.Broken, Stuck
		}
	})
}
