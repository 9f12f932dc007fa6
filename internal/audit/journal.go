package audit

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"github.com/terrier-iac/terrier/internal/failpoint"
	"github.com/terrier-iac/terrier/internal/fault"
)

// segmentBytes is how long a segment gets, unless somebody says otherwise.
const segmentBytes = 8 << 20

// Options shape a Journal.
type Options struct {
	Now          func() time.Time
	SegmentBytes int64 // after which a new segment is begun; 8 MiB if 0
}

// Journal is an open journal: a directory of segments, of which the last one
// grows. One Journal at a time writes a directory.
//
//	DIR/lock                              held while it is open
//	DIR/00000000000000000001.jsonl        segments, named by their first entry
//	DIR/00000000000000041207.jsonl
type Journal struct {
	dir   string
	now   func() time.Time
	limit int64
	lock  *os.File

	mu      sync.Mutex // guards what follows
	waiting []*deed
	tail    tail

	// writing is held by whoever writes, for all that wait: the disk is asked once
	// for as many as came while it was busy.
	writing sync.Mutex
	file    *os.File // the last segment; nil once closed
	ids     recent
	doubt   bool // the last segment may hold more than what counts
}

// tail is where a journal ends.
type tail struct {
	head    Head
	segment string // name of the last segment
	size    int64  // of what counts in it
}

// deed is an entry on its way to the disk.
type deed struct {
	entry Entry
	done  chan error
}

// Open opens the journal in dir, made if it is not there. A last line that was
// cut short is taken off, and an entry says so; so it does if what is there is
// not what was written.
func Open(dir string, o Options) (*Journal, error) {
	if o.SegmentBytes <= 0 {
		o.SegmentBytes = segmentBytes
	}
	j := &Journal{dir: dir, now: o.Now, limit: o.SegmentBytes, ids: newRecent()}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("opening the journal: %w", err)
	}
	var err error
	if j.lock, err = lockDir(dir); err != nil {
		return nil, err
	}
	notes, err := j.recover()
	for i := 0; err == nil && i < len(notes); i++ {
		err = j.Record(context.Background(), notes[i])
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("opening the journal in %s: %w", dir, err), j.Close())
	}
	return j, nil
}

// lockDir keeps a second writer out.
func lockDir(dir string) (*os.File, error) {
	f, err := os.OpenFile(filepath.Join(dir, "lock"), os.O_CREATE|os.O_RDWR|syscall.O_NOFOLLOW, 0o600)
	if err != nil {
		return nil, fmt.Errorf("locking the journal: %w", err)
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		if errors.Is(err, syscall.EWOULDBLOCK) {
			err = fault.New(fault.Conflict, "JournalInUse", fmt.Errorf("another program writes the journal in %s", dir))
		}
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// Close ends the journal; whoever records after it is refused.
func (j *Journal) Close() error {
	j.writing.Lock()
	defer j.writing.Unlock()
	var errs []error
	if j.file != nil {
		errs = append(errs, j.file.Close())
		j.file = nil
	}
	if j.lock != nil {
		errs = append(errs, j.lock.Close())
		j.lock = nil
	}
	return errors.Join(errs...)
}

// Head is the last entry that is on the disk.
func (j *Journal) Head() Head { return j.end().head }

func (j *Journal) end() tail {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.tail
}

// Record adds an entry. It returns once the entry is on the disk, or an error if
// it is not and never will be. An entry whose ID is among the newest already is
// not added again. Ctx is asked only before anything is done.
func (j *Journal) Record(ctx context.Context, e Entry) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if e.What == "" {
		return errors.New("an entry says nothing of what was done")
	}
	d := &deed{entry: clip(e), done: make(chan error, 1)}
	j.mu.Lock()
	j.waiting = append(j.waiting, d)
	j.mu.Unlock()

	j.writing.Lock()
	defer j.writing.Unlock()
	select {
	case err := <-d.done: // whoever wrote before took it along
		return err
	default:
	}
	j.mu.Lock()
	batch := j.waiting
	j.waiting = nil
	j.mu.Unlock()
	err := j.write(batch)
	for _, other := range batch {
		other.done <- err
	}
	return <-d.done
}

// write puts a batch on the disk, all of it or nothing.
func (j *Journal) write(batch []*deed) error {
	if j.file == nil {
		return fault.New(fault.Broken, "JournalClosed", errors.New("the journal is closed"))
	}
	if err := j.ready(); err != nil {
		return unwritten(err)
	}
	end := j.end()
	head := end.head
	var text []byte
	ids := map[string]bool{}
	for _, d := range batch {
		e := d.entry
		if e.ID != "" && (ids[e.ID] || j.ids.in[e.ID]) {
			continue
		}
		ids[e.ID] = true
		e.Seq, e.Prev, e.At = head.Seq+1, head.Hash, j.now().UTC()
		if e.At.Before(head.At) {
			e.At = head.At // a clock that is put back reorders nothing
		}
		line, err := json.Marshal(e)
		if err != nil {
			return unwritten(err)
		}
		head = Head{Seq: e.Seq, Hash: hashOf(line), At: e.At}
		text = append(append(text, line...), '\n')
	}
	if len(text) == 0 {
		return nil
	}
	if err := j.append(text, end.size); err != nil {
		return unwritten(err)
	}
	for id := range ids {
		j.ids.add(id)
	}
	j.mu.Lock()
	j.tail.head, j.tail.size = head, end.size+int64(len(text))
	j.mu.Unlock()
	return nil
}

// append writes behind what counts. What was written of a text that is not whole
// on the disk does not count, and is taken off.
func (j *Journal) append(text []byte, at int64) error {
	defer failpoint.Act("audit.append", "")()
	_, err := j.file.WriteAt(text, at)
	if err == nil {
		err = j.file.Sync()
	}
	if err != nil {
		j.doubt = true
		return errors.Join(err, j.settle())
	}
	return nil
}

// settle takes off what does not count.
func (j *Journal) settle() error {
	err := j.file.Truncate(j.end().size)
	if err == nil {
		err = j.file.Sync()
	}
	j.doubt = err != nil
	return err
}

// ready makes sure that the last segment can be written behind, and begins
// another one when it is full.
func (j *Journal) ready() error {
	if j.doubt {
		if err := j.settle(); err != nil {
			return err
		}
	}
	end := j.end()
	if err := j.untouched(end); err != nil {
		return err
	}
	if end.size < j.limit {
		return nil
	}
	return j.begin(end.head.Seq + 1)
}

// untouched reports whether the last segment is the file that was opened, and
// ends where it did. Nothing is added to what somebody else has changed.
func (j *Journal) untouched(end tail) error {
	ours, err := j.file.Stat()
	if err != nil {
		return err
	}
	there, err := os.Stat(filepath.Join(j.dir, end.segment))
	if err != nil {
		return fmt.Errorf("the newest segment was moved away while it is written; put it back, or restart Terrier: %w", err)
	}
	if !os.SameFile(ours, there) || there.Size() != end.size {
		return fmt.Errorf("%s was changed by somebody else while it is written (%d bytes instead of %d); see `terrier audit verify`, then restart Terrier", end.segment, there.Size(), end.size)
	}
	return nil
}

// begin makes the segment whose first entry has the number first.
func (j *Journal) begin(first uint64) error {
	name := segmentName(first)
	f, err := os.OpenFile(filepath.Join(j.dir, name), os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	if err := syncDir(j.dir); err != nil {
		return errors.Join(err, f.Close())
	}
	if j.file != nil {
		err = j.file.Close()
	}
	j.file = f
	j.mu.Lock()
	j.tail.segment, j.tail.size = name, 0
	j.mu.Unlock()
	return err
}

func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

func unwritten(err error) error {
	return fault.New(fault.Later, "JournalUnwritable", fmt.Errorf("writing the journal: %w", err))
}
