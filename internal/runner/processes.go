package runner

import (
	"context"
	"encoding/json"
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

	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/process"
	"github.com/terrier-iac/terrier/internal/stack"
)

// Config is what Processes needs.
type Config struct {
	Dir        string        // the data directory; made if it is not there
	Binary     string        // the supervisor's program, terrier-runner
	MinLevel   int           // of isolation, for jobs that ask for less
	StopReads  bool          // Close interrupts plans and checks; applies always go on
	StartLimit time.Duration // how long a supervisor may take to its first word; a minute if zero
	Now        func() time.Time
	Log        *slog.Logger
}

// Processes runs every job under a supervisor process of its own, on this
// machine. The supervisors outlive it: a new Processes on the same directory
// finds their runs, alive or ended.
type Processes struct {
	Config
	layout
	ctx   context.Context // ends with Close; bounds the watches
	stop  context.CancelFunc
	ended chan string
	watch sync.WaitGroup

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
	p := &Processes{Config: c, layout: layout{c.Dir}, ended: make(chan string), busy: map[string]*sync.Mutex{}}
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
	job.Box.MinLevel = max(job.Box.MinLevel, p.MinLevel)
	pid, err := p.launch(ctx, job)
	if err != nil {
		return errors.Join(fmt.Errorf("starting run %s: %w", job.ID, err), os.RemoveAll(p.run(job.Stack, job.ID)))
	}
	p.Log.Debug("run started", "stack", job.Name, "run", job.ID)
	p.follow(job.Stack, job.ID, pid)
	return nil
}

// launch starts the supervisor and waits for its first word.
func (p *Processes) launch(ctx context.Context, job Job) (pid int, err error) {
	dir := p.run(job.Stack, job.ID)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return 0, err
	}
	data, err := json.Marshal(job)
	if err != nil {
		return 0, fmt.Errorf("encoding the job: %w", err)
	}
	// Where our own panic would be read. The job never goes to disk.
	last, err := os.OpenFile(filepath.Join(dir, fileStderr), os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return 0, err
	}
	defer last.Close()
	jobOut, jobIn, err := os.Pipe()
	if err != nil {
		return 0, err
	}
	defer jobOut.Close()
	defer jobIn.Close()
	word, speak, err := os.Pipe()
	if err != nil {
		return 0, err
	}
	defer word.Close()
	defer speak.Close()
	proc, err := process.Start(ctx, process.Command{
		Path: p.Binary, Args: []string{"supervise", p.Config.Dir},
		Stdin: jobOut, Stdout: speak, Stderr: last, Detached: true,
	})
	if err != nil {
		return 0, err
	}
	jobOut.Close()
	speak.Close()
	if err := exchange(ctx, p.StartLimit, jobIn, data, word); err != nil {
		return 0, errors.Join(err, proc.Kill())
	}
	return proc.PID(), nil
}

// exchange hands the job over and reads the answer.
func exchange(ctx context.Context, limit time.Duration, in *os.File, job []byte, word *os.File) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	past := time.Unix(1, 0)
	defer context.AfterFunc(ctx, func() { _, _ = in.SetDeadline(past), word.SetDeadline(past) })()
	// A supervisor that cannot read the job says so; its answer is worth more
	// than the broken pipe.
	_, werr := in.Write(job)
	in.Close()
	answer, err := io.ReadAll(io.LimitReader(word, 64<<10))
	if err != nil {
		return fmt.Errorf("waiting for the supervisor: %w", errors.Join(err, context.Cause(ctx)))
	}
	if len(answer) == 0 {
		return errors.Join(errors.New("the supervisor ended without a word"), werr)
	}
	return answered(answer)
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

// look reads one run. A directory without a report is what a failed start
// leaves, and goes.
func (p *Processes) look(stackID, id string) (*Report, error) {
	dir := p.run(stackID, id)
	// First the proof of life, then the report: the other way round a run could
	// end in between and look dead.
	alive, err := held(filepath.Join(dir, fileLock))
	if err != nil {
		return nil, err
	}
	var r Report
	if err := readJSON(filepath.Join(dir, fileReport), &r); err != nil {
		return nil, err
	}
	switch {
	case r.ID == "" && !alive:
		return nil, os.RemoveAll(dir)
	case r.ID == "":
		return &Report{ID: id, Stack: stackID, Phase: Starting}, nil
	case r.Phase != Done && !alive:
		return p.bury(r)
	}
	return &r, nil
}

// bury completes the report of a run whose supervisor died, after bringing
// home what the engine may have left in the work directory.
func (p *Processes) bury(r Report) (*Report, error) {
	if err := os.MkdirAll(p.stack(r.Stack), 0o700); err != nil {
		return nil, err
	}
	lock, err := tryLock(filepath.Join(p.stack(r.Stack), fileLock))
	if err != nil {
		return nil, err
	}
	if lock == nil {
		// Whoever holds the stack now salvages it first, see Supervise.
		return &r, nil
	}
	defer lock.Close()
	w := &prepared{dir: p.stack(r.Stack)}
	if err := errors.Join(salvage(w, p.runsOf(r.Stack)), w.wipe()); err != nil {
		return nil, err
	}
	dir := p.run(r.Stack, r.ID)
	if data, err := os.ReadFile(filepath.Join(dir, FileState)); err == nil {
		if file, err := parseState(data); err == nil {
			r.State, r.Resources = file.id(data), file.managed()
		}
	}
	if data, err := os.ReadFile(filepath.Join(dir, FileRescue)); err == nil {
		if file, err := parseState(data); err == nil {
			id := file.id(data)
			r.Rescued = &id
		}
	}
	now := p.Now()
	r.Outcome, r.Message = stack.Killed, fmt.Sprintf("the supervisor died while the run was %s", r.Phase)
	r.Phase, r.Since, r.Finished = Done, now, now
	return &r, writeJSON(filepath.Join(dir, fileReport), r)
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
var readable = []string{FileLog, FileEvents, FilePlan, FilePlanDoc, FilePlanRaw, FilePlanTxt, FileState, FileOutputs, FileRescue, FileLockHCL}

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
	return errors.Join(os.RemoveAll(p.runsOf(stack)), os.RemoveAll(p.stack(stack)))
}

// Ended sends the stack of every run that ends, also of one that an earlier
// Processes started. It is never closed.
func (p *Processes) Ended() <-chan string { return p.ended }

// Close stops watching. Applies go on under their supervisors and are found by
// the next New; so do plans and checks unless Config.StopReads.
func (p *Processes) Close() error {
	var errs []error
	if p.StopReads {
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
			p.Log.Warn("run cannot be watched", "run", id, "error", err)
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
