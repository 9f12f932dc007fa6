// Package remote carries out runs elsewhere: each in a place of its own, which a
// Launcher makes, a pod of a cluster above all. It keeps the contract of package runner.
//
//	controller                                            place
//	Runner.Start ── Launcher.Launch ────────────────────▶ agent (package agent)
//	Handler ◀── order, archive, files, report, wish ─────── │ asks; nothing listens there
//	RUN = DIR/runs/<key>/<id>: a copy                       ▼
//	                                                     runner.Processes, and its supervisor
//
// The place is the truth until the run is forgotten, and the directory of the
// controller is a copy: a controller that was killed, replaced, or lost its directory
// adopts the places that it finds, and their agents deliver everything again. A run is
// over when its agent reports so, or when the Launcher is certain that its place is
// dead.
//
// It refuses to give an order to any place but the one that it just made, to take the
// name of a run from a request, to change anything of a run that has ended, and to write
// a secret down that a run of this machine would not write down either.
//
// Start reading at Launcher, then Runner and Handler.
package remote

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/terrier-iac/terrier/internal/failpoint"
	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/runner"
	"github.com/terrier-iac/terrier/internal/runner/disk"
	"github.com/terrier-iac/terrier/internal/stack"
)

// Config is what a Runner needs.
type Config struct {
	Dir      string // the data directory; made if it is not there
	Launcher Launcher
	Identify Identify
	LeftOut  func(namespace string) bool // whether there may be places in a namespace that Launcher does not find now; nil if it finds all
	Contents runner.Contents             // finds archives; its engine is that of the places, with a path there or none; its platform is given to them

	// Key signs what tells the places of this installation from others: 32 bytes.
	// The same key has to come back after the loss of everything else. Places that
	// another key signed keep their stack busy, are ended, and nothing that they say is
	// believed.
	Key []byte

	// Shared says that other Runners have runs of this installation, too. This one begins
	// with none, and has those of the shards that it takes.
	Shared bool

	// Stale says that other Runners had the runs of this installation since the directory
	// was used last. What it knows of runs may be long over, so their places are adopted as
	// if it were new.
	Stale bool

	// Prepared bounds what is kept of the prepared directory of a stack, in bytes. Without it
	// nothing is kept, and every run initialises its directory.
	Prepared int64

	// RunsPerPlace is how many quiet checks one place carries out at most, one after
	// another. Without it, or with a Launcher that is no Sharer, each run has a place of
	// its own. Not with Shared: another Runner counts the slots of places, too.
	RunsPerPlace int
	IdleLimit    time.Duration // how long a place waits for its next run; a few seconds if zero

	// Registry answers for the registry of the platform, in the name of a run. An error is
	// returned before anything was written. Without it runs have no registry.
	Registry func(w http.ResponseWriter, req *http.Request, by Reader) error

	// Tokens gives a run, whose Reader has its key in place of its stack, the tokens by which
	// it signs in elsewhere; nil if the platform gives none.
	Tokens func(w http.ResponseWriter, req *http.Request, by Reader) error

	StartLimit time.Duration    // how long a place may take until its agent begins the run; 10 minutes if zero
	RoomLimit  time.Duration    // how long a place may wait for room until its run ends as runner.NoRoom and may be started again, and for its image, of which it waits imageLimit at most; for StartLimit if zero
	Now        func() time.Time // nil is the machine's
	Log        *slog.Logger     // nil discards
}

// Runner carries out runs in places. The places outlive it: a new Runner finds them.
type Runner struct {
	*knownRuns
	*remains
	*sharing
	ownKeys
	config   Config
	signer   signer
	removals *removals
	intake   intake
	prepared *preparedStore
	opened   time.Time
	ctx      context.Context // ends with Close
	stop     context.CancelFunc
	work     sync.WaitGroup
	ended    chan string
}

var (
	_ runner.Runner  = (*Runner)(nil)
	_ runner.Sharing = (*Runner)(nil)
)

// defaultStartLimit is how long a place may take to begin its run.
const defaultStartLimit = 10 * time.Minute

// Reasons in a Report of a run that its place, not the engine, ended; those of a Life
// come beside them.
const (
	NeverStarted = "NeverStarted" // the agent did not begin the run, and nothing ran
	PlaceLost    = "PlaceLost"    // the place ended while the run went on
)

// New opens the runner on its directory, and finds the runs of an earlier one: in the
// directory, and in the places that it adopts. It asks the Launcher for all places.
func New(ctx context.Context, c Config) (*Runner, error) {
	if c.StartLimit <= 0 {
		c.StartLimit = defaultStartLimit
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	r := &Runner{config: c, ended: make(chan string), knownRuns: newKnownRuns(), intake: newIntake(), ownKeys: ownKeys{shared: c.Shared}}
	r.opened = c.Now()
	var err error
	if r.signer, err = newSigner(c.Key); err != nil {
		return nil, err
	}
	if r.Runs, err = runner.OpenRuns(c.Dir, runner.AsPods, runner.Acts{
		Begin: starts{r}.begin, Room: starts{r}.room, Find: r.find, Cancel: r.cancel, Forget: r.forget, Unread: r.unread.all,
	}); err != nil {
		return nil, err
	}
	r.prepared = &preparedStore{lock: r.Lock, stack: r.StackDir, bytes: c.Prepared, log: c.Log}
	if r.removals, err = openRemovals(c.Dir, c.Now); err != nil {
		return nil, err
	}
	r.ctx, r.stop = context.WithCancel(context.Background())
	r.remains = newRemains(r.ctx, &r.work, r.knownRuns, r.removals)
	r.sharing = newSharing(r)
	if err := (finder{r}).findEarlier(ctx); err != nil {
		r.stop()
		r.work.Wait()
		return nil, fmt.Errorf("finding the runs of an earlier process: %w", err)
	}
	r.work.Go(r.watch)
	return r, nil
}

// Ended sends the key of every run that ends, also of one that an earlier Runner
// started. It is never closed.
func (r *Runner) Ended() <-chan string { return r.ended }

// Close stops watching. The runs go on in their places, and are found by the next New.
func (r *Runner) Close() error {
	r.stop()
	r.work.Wait()
	return nil
}

// announce says that a run has ended.
func (r *Runner) announce(key string) {
	r.work.Go(func() {
		select {
		case r.ended <- key:
		case <-r.ctx.Done():
		}
	})
}

// starts is the part of a Runner that starts runs.
type starts struct{ *Runner }

// begin makes the place of a run, and keeps the order for its agent.
func (r starts) begin(ctx context.Context, job runner.Job) error {
	at, err := r.place(&job)
	if err != nil {
		return err
	}
	in := at.Namespace
	host, err := runner.Find(ctx, r.config.Contents, job)
	if err != nil {
		return err
	}
	shape, err := r.sharing.shape(&job, &host)
	if err != nil {
		return err
	}
	if shape == "" {
		job.Shares = "" // so its sandbox has what only a place of its own allows
	}
	open, err := r.sharing.take(ctx, job.Key(), shape)
	if err != nil {
		return err
	}
	if open == nil {
		run, rec, seal, err := r.draft(job, host, at, shape)
		if err != nil {
			return err
		}
		return r.launch(ctx, run, rec, seal, &job)
	}
	run, rec, seal, err := r.draft(job, host, Place{Namespace: in, Name: open.place.Name}, shape)
	if err != nil {
		r.sharing.giveBack(open)
		return err
	}
	return r.sharing.begin(ctx, r.knownRuns, run, rec, open, &run.order.Job, seal)
}

// place names the place of a run, unless another one is in the way.
func (r starts) place(job *runner.Job) (Place, error) {
	if !r.owns(job.Key()) {
		return Place{}, fault.New(fault.Later, runner.StackBusy, errors.New("the stack is another controller's"))
	}
	in, _, _ := strings.Cut(job.Name, "/")
	at := Place{Namespace: in, Name: placeName(job)}
	if err := r.removals.blocks(in, job.Key(), at.Name); err != nil {
		return Place{}, fault.New(fault.Later, runner.StackBusy, err)
	}
	return at, nil
}

// room asks whether a run could begin.
func (r starts) room(ctx context.Context, job runner.Job) error {
	at, err := r.place(&job)
	if err != nil || job.Shares != "" && r.sharing.some() { // it may get an open place
		return err
	}
	return r.config.Launcher.Room(ctx, Launch{Name: at.Name, Key: job.Key(), ID: job.ID, Job: &job})
}

// draft writes a run down, which has no place yet but its name.
func (r starts) draft(job runner.Job, host runner.Host, at Place, shape string) (run *placedRun, rec record, seal string, err error) {
	given, err := r.prepared.offer(&job)
	if err != nil {
		return nil, rec, "", err
	}
	now := r.config.Now()
	rec = record{Given: job.Prepared.Digest, Place: at, Made: now,
		sealed: sealed{First: runner.NewReport(job, now), Archive: job.Tree.Archive, LogBytes: job.Limits.LogBytes}}
	if job.Prepared.Keep > 0 {
		rec.Prepared = job.PreparedKey()
	}
	if seal, err = r.signer.seal(at.Name, rec.sealed); err != nil {
		return nil, rec, "", err
	}
	run = newPlacedRun(job.Key(), job.ID, Place{}, &runner.Order{Version: runner.JobVersion, Job: job, Host: host})
	run.shares, run.shape, run.runs = job.Shares, shape, 1
	if err := r.prepare(run, rec, host.Archive); err != nil {
		return nil, rec, "", err
	}
	if given != "" {
		err = disk.Share(given, filepath.Join(r.dir(run), fileGiven))
	}
	return run, rec, seal, err
}

// launch makes the place of a run.
func (r starts) launch(ctx context.Context, run *placedRun, rec record, seal string, job *runner.Job) (err error) {
	name := rec.Place.Name
	defer r.beginMaking(name)()
	done := failpoint.Act("place.launch", "")
	run.place, err = r.config.Launcher.Launch(ctx, Launch{Name: name, Key: job.Key(), ID: job.ID, Seal: seal, Job: job})
	done()
	if fault.Reason(err, "") == runner.NoRoom { // a place without a run must not be in the way of one with a run
		r.sharing.endAll(func(o *openPlace) bool { return o.place.Namespace == rec.Place.Namespace })
	}
	if err != nil {
		return errors.Join(err, r.removals.mayExist(rec.Place, run.key, err))
	}
	run.place.Key, run.place.Seal = "", ""
	rec.Place = run.place
	if err := ctx.Err(); err != nil {
		return errors.Join(err, r.removals.add(run.place, idleGrace, run.key, ""))
	}
	// From this write on there is a run.
	if err := r.write(run, rec); err != nil {
		return errors.Join(err, r.removals.add(run.place, idleGrace, run.key, ""))
	}
	r.add(run)
	r.config.Log.Debug("run started", "stack", job.Name, "run", job.ID, "place", name)
	return nil
}

// prepare makes the directory of a run.
func (r *Runner) prepare(run *placedRun, rec record, archive string) error {
	dir := r.dir(run)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	report, err := json.Marshal(rec.First)
	if err != nil {
		return fmt.Errorf("encoding the report: %w", err)
	}
	if err := r.write(run, rec); err != nil {
		return err
	}
	if err := runner.WriteReport(dir, report); err != nil { // which is never there without the record
		return err
	}
	if archive == "" {
		return nil
	}
	return disk.Share(archive, filepath.Join(dir, fileArchive))
}

// find reads the report of a run. A directory without a record of its place is left by
// a start that failed.
func (r *Runner) find(key, id string) (*runner.Report, error) {
	run := r.of(key, id)
	if run == nil {
		return nil, r.unread.of(key)
	}
	_, rep, err := r.read(run)
	if err != nil {
		return nil, err
	}
	if rep.Phase != runner.Done {
		rep.Message = run.why
	}
	return &rep, nil
}

// cancel asks a run to stop. One that has not begun never does. The place of one that may
// have begun and was never heard of is told by the launcher as well.
func (r *Runner) cancel(_ context.Context, rep *runner.Report) error {
	run := r.of(rep.Key(), rep.ID)
	rec, _, err := r.read(run)
	switch {
	case err != nil:
		return err
	case rec.idle():
		return r.withdraw(run, *rep, stack.Interrupted, "", "the run was cancelled before it began")
	case rec.Cancel:
		return nil
	}
	rec.Cancel = true
	if err := r.write(run, rec); err != nil {
		return err
	}
	run.wake()
	if rec.silent(*rep) {
		return r.removals.tell(run.place, run.key, rep.Kind)
	}
	return nil
}

// forget is called before the directory of a run is removed.
func (r *Runner) forget(key, id string) error {
	run := r.of(key, id)
	if run == nil {
		return nil
	}
	rec, rep, err := r.read(run)
	if err != nil {
		return err
	}
	if r.sharing.leaves(run, rec, rep) {
		err = r.sharing.open(run)
	} else {
		err = r.removals.add(run.place, idleGrace, run.key, "")
	}
	if err != nil {
		return err
	}
	r.drop(run)
	run.wake()
	return nil
}
