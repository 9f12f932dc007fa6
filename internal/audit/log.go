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

// segmentBytes is the default length of a segment.
const segmentBytes = 8 << 20

// Options configure a Log.
type Options struct {
	Now          func() time.Time
	SegmentBytes int64 // after which a new segment is begun; 8 MiB if 0, or less with a Copy
	Copy         Copy  // nil without one; an entry is recorded once it is there, too
}

// Log is an open audit log: a directory of segments, of which the last one grows.
// One Log at a time writes a directory.
//
//	DIR/lock                              held while it is open
//	DIR/00000000000000000001.jsonl        segments, named by their first entry
//	DIR/00000000000000041207.jsonl
type Log struct {
	dir   string
	now   func() time.Time
	limit int64
	copy  Copy
	lock  *os.File

	mu      sync.Mutex // guards waiting and tail
	waiting []*pendingEntry
	tail    tail

	// writing is held by the caller that writes, for all that wait: one sync serves
	// all entries that came during the one before.
	writing sync.Mutex
	file    *os.File // the last segment; nil once closed
	ids     recent
	quota   quota
	doubt   bool // the last segment may be longer than tail.size
}

// tail is the end of a log.
type tail struct {
	head    Head
	segment string // name of the last segment
	size    int64  // of its complete lines
}

// pendingEntry is an entry that waits for the disk.
type pendingEntry struct {
	entry Entry
	done  chan error
}

// Open opens the log in dir, which it creates if needed. It removes a last line that
// a crash interrupted, and records that; it also records that older lines were
// changed.
func Open(dir string, o Options) (*Log, error) {
	j := Unopened(dir, o)
	return j, j.Open(context.Background())
}

// Unopened is a log that is opened later, or never: until then Record is an error.
func Unopened(dir string, o Options) *Log {
	switch {
	case o.SegmentBytes > 0:
	case o.Copy != nil:
		o.SegmentBytes = copiedSegmentBytes
	default:
		o.SegmentBytes = segmentBytes
	}
	return &Log{dir: dir, now: o.Now, limit: o.SegmentBytes, copy: o.Copy, ids: newRecent(), quota: newQuota()}
}

// Open opens a log that is not open. After an error it can be called again.
func (j *Log) Open(ctx context.Context) (err error) {
	if err := os.MkdirAll(j.dir, 0o700); err != nil {
		return fmt.Errorf("opening the audit log: %w", err)
	}
	j.writing.Lock()
	if j.lock == nil {
		j.lock, err = lockDir(j.dir)
	}
	if err == nil {
		err = j.meet(ctx)
	}
	var notes []Entry
	if err == nil {
		notes, err = j.recover()
	}
	j.writing.Unlock()
	for i := 0; err == nil && i < len(notes); i++ {
		err = j.Record(ctx, notes[i])
	}
	if err != nil {
		return errors.Join(fmt.Errorf("opening the audit log in %s: %w", j.dir, err), j.Close())
	}
	return nil
}

// lockDir keeps a second writer out.
func lockDir(dir string) (*os.File, error) {
	f, err := os.OpenFile(filepath.Join(dir, "lock"), os.O_CREATE|os.O_RDWR|syscall.O_NOFOLLOW, 0o600)
	if err != nil {
		return nil, fmt.Errorf("locking the audit log: %w", err)
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		if errors.Is(err, syscall.EWOULDBLOCK) {
			err = fault.New(fault.Conflict, "AuditLogInUse", fmt.Errorf("another process writes the audit log in %s", dir))
		}
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// Close closes the log; later calls of Record fail.
func (j *Log) Close() error {
	j.writing.Lock()
	defer j.writing.Unlock()
	var errs []error
	if j.file != nil {
		if j.quota.owes(j.now(), true) {
			errs = append(errs, j.write(nil, true))
		}
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
func (j *Log) Head() Head { return j.end().head }

func (j *Log) end() tail {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.tail
}

// Record adds an entry. It returns once the entry is on the disk, or an error if it
// is not and never will be. An entry with an ID of one of the newest entries is not
// added again. Ctx counts only before the write.
func (j *Log) Record(ctx context.Context, e Entry) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if e.What == "" {
		return errors.New("an audit entry needs an action")
	}
	d := &pendingEntry{entry: clip(e), done: make(chan error, 1)}
	j.mu.Lock()
	j.waiting = append(j.waiting, d)
	j.mu.Unlock()

	j.writing.Lock()
	defer j.writing.Unlock()
	select {
	case err := <-d.done: // an earlier caller wrote it
		return err
	default:
	}
	j.mu.Lock()
	batch := j.waiting
	j.waiting = nil
	j.mu.Unlock()
	err := j.write(batch, false)
	for _, other := range batch {
		other.done <- err
	}
	return <-d.done
}

// write writes a batch to the disk, all of it or nothing, and before it the sums of hours that are
// over, or all sums. An entry beyond the quota of its namespace is counted.
func (j *Log) write(batch []*pendingEntry, all bool) (err error) {
	if j.file == nil {
		return errClosed
	}
	if err := j.ready(); err != nil {
		return unwritten(err)
	}
	end := j.end()
	head := end.head
	var text []byte
	at := j.now().UTC()
	if at.Before(head.At) {
		at = head.At // a clock that is set back must not reorder entries
	}
	entries, ids := j.quota.count(batch, &j.ids, at, all)
	defer func() {
		j.quota.end(err == nil)
		for id := range ids {
			if err == nil {
				j.ids.add(id)
			}
		}
	}()
	for _, e := range entries {
		e.Seq, e.Prev, e.At = head.Seq+1, head.Hash, at
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
	err = j.append(text, end.size)
	if err == nil {
		end = j.end()
		if err = j.save(end, text); err != nil {
			err = errors.Join(err, j.truncate())
		}
	}
	if err != nil {
		return unwritten(err)
	}
	j.mu.Lock()
	j.tail.head, j.tail.size = head, end.size+int64(len(text))
	j.mu.Unlock()
	return nil
}

// append writes after the complete lines. It removes a text that is not whole on the
// disk.
func (j *Log) append(text []byte, at int64) error {
	defer failpoint.Act("audit.append", "")()
	_, err := j.file.WriteAt(text, at)
	if err == nil {
		err = j.file.Sync()
	}
	if err != nil {
		j.doubt = true
		return errors.Join(err, j.truncate())
	}
	return nil
}

// truncate removes the bytes after the complete lines.
func (j *Log) truncate() error {
	err := j.file.Truncate(j.end().size)
	if err == nil {
		err = j.file.Sync()
	}
	j.doubt = err != nil
	return err
}

// ready makes sure that the last segment can be appended to, and begins another one
// when it is full.
func (j *Log) ready() error {
	if j.doubt {
		if err := j.truncate(); err != nil {
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

// untouched returns an error unless the last segment is the file that was opened,
// with the same end: nothing is appended to a file that another process has changed.
func (j *Log) untouched(end tail) error {
	ours, err := j.file.Stat()
	if err != nil {
		return err
	}
	there, err := os.Stat(filepath.Join(j.dir, end.segment))
	if err != nil {
		return fmt.Errorf("another process moved the newest segment of the audit log; put it back, or restart Terrier: %w", err)
	}
	if !os.SameFile(ours, there) || there.Size() != end.size {
		return fmt.Errorf("another process changed %s (%d bytes instead of %d); run `terrier audit verify`, then restart Terrier", end.segment, there.Size(), end.size)
	}
	return nil
}

// begin creates the segment whose first entry has the number first.
func (j *Log) begin(first uint64) error {
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

var errClosed = fault.New(fault.Later, "AuditLogClosed", errors.New("the audit log is not open"))

func unwritten(err error) error {
	return fault.New(fault.Later, "AuditLogUnwritable", fmt.Errorf("writing the audit log: %w", err))
}
