package remote

import (
	"context"
	"fmt"
	"path/filepath"
	"sync"
	"time"

	"github.com/terrier-iac/terrier/internal/runner"
	"github.com/terrier-iac/terrier/internal/runner/disk"
)

// Files in RUN beside the report and those that Open opens.
const (
	fileRecord  = "place.json"     // the record
	fileArchive = "archive.tar.gz" // until the run has unpacked it
)

// record is what the controller knows of a run beside its report. It holds no secret.
type record struct {
	Place   Place     `json:"place"` // without a UID until it was made
	Made    time.Time `json:"made"`
	Ordered bool      `json:"ordered,omitempty"` // the order may have reached the agent
	Cancel  bool      `json:"cancel,omitempty"`  // the run was asked to stop
	Ended   bool      `json:"ended,omitempty"`   // not its agent but this side ended the run
	sealed
}

// placedRun is a run that was not forgotten, as this process knows it. Its fields are
// guarded by the lock of the key.
type placedRun struct {
	key, id string
	place   Place
	order   *runner.Order     // until the first report; nil in a process that did not start the run
	why     string            // why the place is pending
	taken   string            // digest of the last report that this process took
	turns   map[string]int64  // of what was replaced last, by name
	digests map[string]string // of the files that are replaced, by name, as far as they are known
	bodies  int               // requests that are being received
	changed chan struct{}     // closed, and replaced, when the wish changed
}

func newPlacedRun(key, id string, p Place, o *runner.Order) *placedRun {
	return &placedRun{key: key, id: id, place: p, order: o, turns: map[string]int64{}, digests: map[string]string{}, changed: make(chan struct{})}
}

// wake answers the agent that waits for a wish.
func (l *placedRun) wake() {
	close(l.changed)
	l.changed = make(chan struct{})
}

// book is what this process knows of the runs that were not forgotten.
type book struct {
	*runner.Runs

	mu      sync.Mutex
	byPlace map[string]*placedRun    // by the UID of the place
	byName  map[string]*placedRun    // by key and ID
	making  map[string]chan struct{} // by the name of a place that is being made; closed when that is over
}

func newBook() *book {
	return &book{byPlace: map[string]*placedRun{}, byName: map[string]*placedRun{}, making: map[string]chan struct{}{}}
}

// beginMaking notes that the place of a name is being made, until over is called. Its agent
// may ask before the run is known.
func (b *book) beginMaking(name string) (over func()) {
	made := make(chan struct{})
	b.mu.Lock()
	defer b.mu.Unlock()
	b.making[name] = made
	return func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		delete(b.making, name)
		close(made)
	}
}

// made returns once the place of a name is not being made, or ctx has ended.
func (b *book) made(ctx context.Context, name string) {
	b.mu.Lock()
	made := b.making[name]
	b.mu.Unlock()
	if made == nil {
		return
	}
	select {
	case <-made:
	case <-ctx.Done():
	}
}

func (b *book) dir(l *placedRun) string { return b.Dir(l.key, l.id) }

// read reads what is known of a run. The lock of its key is held.
func (b *book) read(l *placedRun) (rec record, rep runner.Report, err error) {
	if err := disk.ReadJSON(filepath.Join(b.dir(l), fileRecord), &rec); err != nil {
		return rec, rep, err
	}
	if rep, err = runner.ReadReport(b.dir(l)); err == nil && (rep.ID == "" || rec.Place.UID == "") {
		err = fmt.Errorf("run %s has no record", l.id)
	}
	return rec, rep, err
}

func (b *book) write(l *placedRun, rec record) error {
	return disk.WriteJSON(filepath.Join(b.dir(l), fileRecord), rec)
}

// add makes a run known.
func (b *book) add(l *placedRun) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.byPlace[l.place.UID], b.byName[l.key+"/"+l.id] = l, l
}

// drop makes a run unknown.
func (b *book) drop(l *placedRun) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.byPlace, l.place.UID)
	delete(b.byName, l.key+"/"+l.id)
}

// at finds the run of a place.
func (b *book) at(p Place) *placedRun {
	b.mu.Lock()
	defer b.mu.Unlock()
	if l := b.byPlace[p.UID]; l != nil && l.place.same(p) {
		return l
	}
	return nil
}

// of finds a run by its name.
func (b *book) of(key, id string) *placedRun {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.byName[key+"/"+id]
}

// all lists the runs.
func (b *book) all() []*placedRun {
	b.mu.Lock()
	defer b.mu.Unlock()
	runs := make([]*placedRun, 0, len(b.byName))
	for _, l := range b.byName {
		runs = append(runs, l)
	}
	return runs
}
