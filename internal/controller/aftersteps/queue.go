package aftersteps

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"sync"
	"time"

	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/share"
)

const (
	// Patience is how long nothing is said of a file that is being written. A git server that
	// works takes it sooner, and the end wakes the stack.
	Patience = 5 * time.Second

	// Soon is the reason of the fault of such a file.
	Soon = "WrittenSoon"

	// writeWithin is how long one file may take with its repository.
	writeWithin = time.Minute

	// writesAtOnce is how many files of a namespace are written at once. GitRepositories are in
	// the namespace of their stacks, so that a server that hangs keeps those of others from nothing.
	writesAtOnce = 4
)

// Queue has files written beside the passes of stacks, so that a git server that hangs keeps
// only the runs whose hosts it is to take.
//
//	a pass                      has its file written, and ends: it leaves its worker to others
//	a file is written           its stack is woken, and the next pass takes what it ended with
//	it is not, within Patience  the status of the stack says what it waits for
//	the server is silent        what else the namespace has for it ends with that as well
//
// A repository gets one file after another, since commits of one program need not race each
// other. Namespaces take turns. What is known is lost with the process, and written again.
type Queue struct {
	now              func() time.Time
	patience, within time.Duration
	more             chan struct{} // holds one: there may be something to begin

	places *share.Places[*writing]

	mu      sync.Mutex
	writing []*writing
}

// writing is one file that is written, or waits for that.
type writing struct {
	namespace, host, repository string

	do    func(context.Context) (string, error)
	wake  func()
	began time.Time     // zero while it waits; guarded by the lock of Queue
	stop  func()        // ends do, likewise; nil while it waits
	ended chan struct{} // closed once the next two are set

	said string
	err  error
}

// NewQueue returns what writes files once it runs.
func NewQueue(now func() time.Time) *Queue {
	return &Queue{now: now, patience: Patience, within: writeWithin, more: make(chan struct{}, 1), places: share.New[*writing](share.Bounds{Most: writesAtOnce})}
}

// Run writes files until ctx ends, and then waits for those that are being written, whose
// contexts end with it.
func (q *Queue) Run(ctx context.Context) error {
	var all sync.WaitGroup
	defer all.Wait()
	for {
		for w, own, stop := q.begin(ctx); w != nil; w, own, stop = q.begin(ctx) {
			all.Go(func() {
				defer stop()
				said, err := w.do(own)
				late := err != nil && errors.Is(context.Cause(own), context.DeadlineExceeded)
				if late {
					err = fault.New(fault.Later, "", fmt.Errorf("the git server %s has not answered within %s: %w", w.host, q.within, err))
				}
				q.end(w, said, err, late || timedOut(err))
			})
		}
		select {
		case <-ctx.Done():
			return nil
		case <-q.more:
		}
	}
}

// timedOut reports whether a server did not answer, in the time that a connection has.
func timedOut(err error) bool {
	t, ok := errors.AsType[net.Error](err)
	return ok && t.Timeout()
}

// add has a file written.
func (q *Queue) add(w *writing) {
	q.places.Wait(w.namespace, w)
	q.signal()
}

func (q *Queue) signal() {
	select {
	case q.more <- struct{}{}:
	default:
	}
}

// begin takes the file that is written next, with the context for it; nil if none may begin.
func (q *Queue) begin(ctx context.Context) (*writing, context.Context, func()) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if ctx.Err() != nil {
		return nil, nil, nil
	}
	w, ok := q.places.Next(func(w *writing) bool {
		return !slices.ContainsFunc(q.writing, func(other *writing) bool { return other.repository == w.repository })
	})
	if !ok {
		return nil, nil, nil
	}
	q.writing = append(q.writing, w)
	own, stop := context.WithTimeout(ctx, q.within)
	w.began, w.stop = q.now(), stop
	return w, own, stop
}

// end notes that the writing of a file ended. A server that was silent is so for what else the
// namespace has for it: each would wait as long. Other namespaces try for themselves, and come
// first: their login, or their part of the network, may be the better one.
func (q *Queue) end(w *writing, said string, err error, silent bool) {
	q.mu.Lock()
	q.writing = slices.DeleteFunc(q.writing, func(other *writing) bool { return other == w })
	w.said, w.err = said, err
	over := []*writing{w}
	if silent {
		q.places.Behind(w.namespace)
		for _, other := range q.places.Waiting(w.namespace) {
			if other.repository == w.repository || other.host == w.host { // the error of w has names of another stack
				q.places.Withdraw(other)
				other.err = fault.New(fault.Later, "", fmt.Errorf("the git server %s did not answer when another file was written to it", w.host))
				over = append(over, other)
			}
		}
	}
	q.places.End(w.namespace)
	for _, of := range over {
		close(of.ended)
	}
	q.signal()
	q.mu.Unlock()
	for _, of := range over {
		of.wake()
	}
}

// drop ends the writing of a file that no pass asks for any more. What was pushed stays.
func (q *Queue) drop(w *writing) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.places.Withdraw(w)
	if w.stop != nil {
		w.stop()
	}
}

// waits says what a run waits for whose file is not written yet.
func (q *Queue) waits(w *writing, file string) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	if w.began.IsZero() {
		return fault.New(fault.Later, "", fmt.Errorf("%s waits until other files are written to the git server %s", file, w.host))
	}
	return fault.New(fault.Later, "", fmt.Errorf("%s is being written: the git server %s has not answered since %s. Terrier goes on by itself", file, w.host, w.began.UTC().Format(time.RFC3339)))
}
