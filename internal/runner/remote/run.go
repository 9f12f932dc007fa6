package remote

import (
	"context"
	"fmt"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/terrier-iac/terrier/internal/runner"
	"github.com/terrier-iac/terrier/internal/runner/disk"
)

// Files in RUN beside the report and those that Open opens.
const (
	fileRecord  = runner.FilePlace // the record
	fileArchive = "archive.tar.gz" // until the run has unpacked it
	fileGiven   = "given.tar.gz"   // what an earlier run prepared
)

// record is what the controller knows of a run beside its report. It holds no secret.
type record struct {
	Place   Place     `json:"place"` // without a UID until it was made
	Made    time.Time `json:"made"`
	Ordered bool      `json:"ordered,omitempty"` // the order may have reached the agent
	Waits   bool      `json:"waits,omitempty"`   // the agent begins the run only after its first report was taken
	Begun   bool      `json:"begun,omitempty"`   // a report of the agent was taken, or is about to be
	Cancel  bool      `json:"cancel,omitempty"`  // the run was asked to stop
	Ended   bool      `json:"ended,omitempty"`   // not its agent but this side ended the run
	Adopted bool      `json:"adopted,omitempty"` // the place was found, and not made by the one who writes this
	Given   string    `json:"given,omitempty"`   // digest of what an earlier run prepared and this one begins with
	sealed
}

// idle reports whether the run has certainly not begun. It can be withdrawn then: its
// agent gets no order any more, or hears that its first report is not taken.
func (rec *record) idle() bool { return !rec.Ordered || rec.Waits && !rec.Begun }

// silent reports whether no agent has reported yet, and the run may have begun
// nevertheless: its agent is of an earlier release, or the record is older than the run.
func (rec *record) silent(rep runner.Report) bool {
	return !rec.idle() && !rec.Begun && rep.Phase == runner.Starting
}

// name puts the name of the run into a report of its agent, whatever that says.
func (rec *record) name(rep *runner.Report) {
	first := rec.First
	rep.ID, rep.Stack, rep.ObjectKind, rep.Beside = first.ID, first.Stack, first.ObjectKind, first.Beside
	rep.Name, rep.Kind, rep.Note = first.Name, first.Kind, first.Note
}

// placedRun is a run that was not forgotten, as this process knows it. Its fields are
// guarded by the lock of the key.
type placedRun struct {
	key, id string
	place   Place
	order   *runner.Order     // until the first report; nil in a process that did not start the run
	why     string            // why the place is pending
	noImage noImage           // what was seen of a place without its image
	dead    bool              // its place was found to have ended before the run was over
	doubted bool              // this process found it with a place that has ended: what is known of it may be older than the run, as from a backup
	taken   string            // digest of the last report that this process took
	turns   map[string]int64  // of what was replaced last, by name
	digests map[string]string // of the files that are replaced, by name, as far as they are known
	bodies  int               // requests that are being received: one, or none
	changed chan struct{}     // closed, and replaced, when the wish changed

	shares string     // see runner.Job
	shape  string     // of the place; empty if it is this run's alone
	asks   bool       // the agent can ask for another run after this one
	runs   int        // that the place has had, with this one
	before *formerRun // that the place had before; nil if it had none, or is that of a run that was found

	left  atomic.Bool               // another controller has it, or will
	heard atomic.Pointer[time.Time] // when this process heard of the agent last; no lock guards it
}

func newPlacedRun(key, id string, p Place, o *runner.Order) *placedRun {
	return &placedRun{key: key, id: id, place: p, order: o, turns: map[string]int64{}, digests: map[string]string{}, changed: make(chan struct{})}
}

// wake answers the agent that waits for a wish.
func (run *placedRun) wake() {
	close(run.changed)
	run.changed = make(chan struct{})
}

// knownRuns is what this process knows of the runs that were not forgotten.
type knownRuns struct {
	*runner.Runs

	mu      sync.Mutex
	byPlace map[string]*placedRun    // by the UID of the place
	byName  map[string]*placedRun    // by key and ID
	making  map[string]chan struct{} // by the name of a place that is being made; closed when that is over
}

func newKnownRuns() *knownRuns {
	return &knownRuns{byPlace: map[string]*placedRun{}, byName: map[string]*placedRun{}, making: map[string]chan struct{}{}}
}

// beginMaking notes that the place of a name is being made, until over is called. Its agent
// may ask before the run is known.
func (k *knownRuns) beginMaking(name string) (over func()) {
	made := make(chan struct{})
	k.mu.Lock()
	defer k.mu.Unlock()
	k.making[name] = made
	return func() {
		k.mu.Lock()
		defer k.mu.Unlock()
		delete(k.making, name)
		close(made)
	}
}

// made returns once the place of a name is not being made, or ctx has ended.
func (k *knownRuns) made(ctx context.Context, name string) {
	k.mu.Lock()
	made := k.making[name]
	k.mu.Unlock()
	if made == nil {
		return
	}
	select {
	case <-made:
	case <-ctx.Done():
	}
}

func (k *knownRuns) dir(run *placedRun) string { return k.Dir(run.key, run.id) }

// read reads what is known of a run. The lock of its key is held.
func (k *knownRuns) read(run *placedRun) (rec record, rep runner.Report, err error) {
	if err := disk.ReadJSON(filepath.Join(k.dir(run), fileRecord), &rec); err != nil {
		return rec, rep, err
	}
	if rep, err = runner.ReadReport(k.dir(run)); err == nil && (rep.ID == "" || rec.Place.UID == "") {
		err = fmt.Errorf("run %s has no record", run.id)
	}
	rec.name(&rep)
	rep.ID = run.id
	rep.Stack, rep.Beside = runner.SplitKey(run.key)
	return rec, rep, err
}

func (k *knownRuns) write(run *placedRun, rec record) error {
	return disk.WriteJSON(filepath.Join(k.dir(run), fileRecord), rec)
}

// add makes a run known.
func (k *knownRuns) add(run *placedRun) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.byPlace[run.place.UID], k.byName[run.key+"/"+run.id] = run, run
}

// drop makes a run unknown.
func (k *knownRuns) drop(run *placedRun) {
	k.mu.Lock()
	defer k.mu.Unlock()
	delete(k.byPlace, run.place.UID)
	delete(k.byName, run.key+"/"+run.id)
}

// at finds the run of a place.
func (k *knownRuns) at(p Place) *placedRun {
	k.mu.Lock()
	defer k.mu.Unlock()
	if run := k.byPlace[p.UID]; run != nil && run.place.same(p) {
		return run
	}
	return nil
}

// of finds a run by its name.
func (k *knownRuns) of(key, id string) *placedRun {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.byName[key+"/"+id]
}

// all lists the runs.
func (k *knownRuns) all() []*placedRun {
	k.mu.Lock()
	defer k.mu.Unlock()
	runs := make([]*placedRun, 0, len(k.byName))
	for _, run := range k.byName {
		runs = append(runs, run)
	}
	return runs
}
