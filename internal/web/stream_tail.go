package web

import (
	"context"
	"errors"
	"io"
	"sync"

	"github.com/terrier-iac/terrier/internal/query"
)

// tails share the reading of growing logs: for all followers of a run, one
// goroutine reads its log.
type tails struct {
	follow func(context.Context, tailed) (io.ReadCloser, error)

	mu   sync.Mutex
	open map[tailed]*tail
}

// tailed is a followed log.
type tailed struct {
	key        query.Key
	run        string
	timestamps bool
	former     bool // the stack was in a former namespace: it may have had the name of a run of now
}

// tail is the last part of a growing log:
//
//	0 ─────────────────── from ────────── from+len(window) ───▶
//	  read from the log      in memory       not there yet
//
// A follower behind the window reads the log itself until it is back
// in it, so that nothing is buffered for it.
type tail struct {
	mu     sync.Mutex
	from   int64
	window []byte
	err    error         // io.EOF once the run has ended
	more   chan struct{} // closed and replaced whenever something was added

	readers int // counted by tails
	cancel  context.CancelFunc
}

// tailBytes is how much of a log is in memory, twice of it at most.
const tailBytes = 512 << 10

// join returns the tail of a log, which is read until the last follower has left.
func (t *tails) join(of tailed) (it *tail, leave func()) {
	t.mu.Lock()
	defer t.mu.Unlock()
	it = t.open[of]
	if it == nil {
		ctx, cancel := context.WithCancel(context.Background()) // of all followers, not of the first
		it = &tail{more: make(chan struct{}), cancel: cancel}
		if t.open == nil {
			t.open = map[tailed]*tail{}
		}
		t.open[of] = it
		go t.run(ctx, of, it)
	}
	it.readers++
	return it, func() { t.leave(of, it) }
}

func (t *tails) leave(of tailed, it *tail) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if it.readers--; it.readers > 0 {
		return
	}
	it.cancel()
	if t.open[of] == it {
		delete(t.open, of)
	}
}

// run reads a log until it ends. Later followers start another tail.
func (t *tails) run(ctx context.Context, of tailed, it *tail) {
	err := t.read(ctx, of, it)
	t.mu.Lock()
	if t.open[of] == it {
		delete(t.open, of)
	}
	t.mu.Unlock()
	it.add(nil, err)
}

func (t *tails) read(ctx context.Context, of tailed, it *tail) error {
	r, err := t.follow(ctx, of)
	if err != nil {
		return err
	}
	buf := make([]byte, 32<<10)
	for ctx.Err() == nil {
		n, err := r.Read(buf)
		if n > 0 {
			it.add(buf[:n], nil)
		}
		if err != nil {
			if closed := r.Close(); closed != nil && err == io.EOF {
				err = closed
			}
			return err
		}
	}
	return errors.Join(context.Cause(ctx), r.Close())
}

func (t *tail) add(b []byte, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.window)+len(b) > 2*tailBytes {
		drop := len(t.window) - tailBytes
		t.from += int64(drop)
		t.window = append(t.window[:0], t.window[drop:]...)
	}
	t.window = append(t.window, b...)
	t.err = err
	close(t.more)
	t.more = make(chan struct{})
}

// get copies the content at a position. At the end, wait is closed as
// soon as there may be more; behind means that the window has passed the position.
func (t *tail) get(buf []byte, at int64) (n int, wait <-chan struct{}, behind bool, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	end := t.from + int64(len(t.window))
	switch {
	case at < t.from:
		return 0, nil, true, nil
	case at < end:
		return copy(buf, t.window[at-t.from:]), nil, false, nil
	case t.err != nil:
		return 0, nil, false, t.err
	default:
		return 0, t.more, false, nil
	}
}

// follower reads a log from a position.
type follower struct {
	run  string
	tail *tail
	log  func() (io.ReadCloser, error) // opens the current log
	at   int64

	file   io.ReadCloser // nil if none is open
	fileAt int64
}

// next reads the next content. At the end, wait is closed as soon as
// there may be more.
func (f *follower) next(buf []byte) (n int, wait <-chan struct{}, err error) {
	n, wait, behind, err := f.tail.get(buf, f.at)
	if behind {
		n, err = f.catchUp(buf)
	}
	f.at += int64(n)
	return n, wait, err
}

// catchUp reads from the log itself. It may have been opened a while ago, and
// have grown since without this reader noticing: then it is reopened, once.
func (f *follower) catchUp(buf []byte) (int, error) {
	for fresh := false; ; fresh = true {
		if f.file == nil || f.fileAt > f.at || fresh {
			if err := f.reopen(); err != nil {
				return 0, err
			}
		}
		skipped, err := io.CopyN(io.Discard, f.file, f.at-f.fileAt)
		f.fileAt += skipped
		var n int
		if err == nil {
			n, err = f.file.Read(buf)
			f.fileAt += int64(n)
		}
		switch {
		case n > 0:
			return n, nil
		case err != nil && err != io.EOF:
			return 0, err
		case fresh:
			return 0, io.ErrUnexpectedEOF // it is shorter than it was
		}
	}
}

func (f *follower) reopen() error {
	err := f.close()
	if err == nil {
		f.file, err = f.log()
		f.fileAt = 0
	}
	return err
}

func (f *follower) close() error {
	if f.file == nil {
		return nil
	}
	err := f.file.Close()
	f.file = nil
	return err
}
