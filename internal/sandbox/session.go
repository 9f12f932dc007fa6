package sandbox

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Session is a sandbox that several programs run in, beside and after one
// another, such as an engine and the providers that serve it. Its first process
// is the init process: this binary started again, confined like all others,
// which starts them on request. Every process of the session ends with the init
// process, and the init process ends with the process that opened the session.
//
// When a program ends, its remaining processes are killed, unless it Spares them.
// The other programs of the session stay.
//
// Below Full a program can stop the init process, which then starts nothing and reports no
// end. A session whose init process does not answer in time is killed as a whole: so the end
// of a program that was killed does not depend on any other program.
type Session struct {
	init    *Process
	conn    conn
	read    chan struct{} // closed when the init process sends no more
	answers time.Duration // within which the init process has to answer

	// starting is held while a child of the init process may not be known yet,
	// and while the unknown ones are killed.
	starting sync.Mutex

	mu       sync.Mutex
	next     int
	programs map[int]*sessionProcess
	closed   bool
	follow   sync.WaitGroup
}

// The bodies of a session's messages.
type (
	startRequest struct { // start
		ID   int
		Path []byte
		Argv [][]byte
		Env  [][]byte
		Dir  []byte
	}
	startReply struct { // started, failed
		ID, PID int
		Error   string
	}
	endNotice struct { // ended
		ID     int
		Status syscall.WaitStatus
		CPU    time.Duration
		MaxRSS int64
	}
)

// answersWithin is long for a process that only forks and waits, on any machine.
const answersWithin = 30 * time.Second

// OpenSession enters a sandbox and leaves it open. When ctx ends, every process
// in it is killed.
func OpenSession(ctx context.Context, b Config) (*Session, error) {
	ours, theirs, err := newConn()
	if err != nil {
		return nil, err
	}
	end := os.NewFile(uintptr(theirs), "session")
	defer func() { _ = end.Close() }()
	if err := ours.sendWithin(answersWithin); err != nil {
		ours.close()
		return nil, err
	}
	init, err := Start(ctx, Command{
		Path: self, name: launcherName, Args: []string{roleInit, "3"}, Sandbox: &b, ExtraFiles: []*os.File{end},
		Env: []string{"GOMAXPROCS=1"}, // it waits; fewer threads start faster
	})
	if err != nil {
		ours.close()
		return nil, fmt.Errorf("opening a session: %w", err)
	}
	r := &Session{init: init, conn: ours, read: make(chan struct{}), answers: answersWithin, programs: map[int]*sessionProcess{}}
	go r.listen()
	return r, nil
}

// Listener is the listener inside the session's network, for a sandbox with
// Listen; else nil. It is closed with the session.
func (r *Session) Listener() net.Listener { return r.init.Listener() }

// memory is what the session has used so far.
func (r *Session) memory() Memory {
	if l, sandboxed := r.init.backend.(*launch); sandboxed {
		return l.group.memory()
	}
	return Memory{}
}

// PID is the process id, as this process sees it, of the init process.
func (r *Session) PID() int { return r.init.PID() }

// Start starts a program in the session. Its standard output and standard error
// must not be the same writer. Kill ends it alone, beside what it started.
func (r *Session) Start(c Command) (*Process, error) {
	if c.Sandbox != nil || c.Detached || len(c.ExtraFiles) > 0 || c.Listening != nil {
		return nil, fmt.Errorf("starting %s: a command of a session cannot set its sandbox, descriptors or listener", c.Path)
	}
	s, err := openStreams(c)
	if err != nil {
		return nil, fmt.Errorf("starting %s: %w", c.Path, err)
	}
	g, err := r.request(c, s)
	s.closeTheirs()
	if err != nil {
		s.closeOurs()
		return nil, fmt.Errorf("starting %s: %w", c.Path, err)
	}
	s.copy()
	p := &Process{backend: g, pid: hostPID(g.handle), inside: g.pid, done: make(chan struct{})}
	began := time.Now()
	r.follow.Go(func() { r.watch(p, g, s, began, c.Spares) })
	return p, nil
}

// request has the init process start a program.
func (r *Session) request(c Command, s *streams) (*sessionProcess, error) {
	r.starting.Lock()
	defer r.starting.Unlock()
	g := &sessionProcess{handle: -1, started: make(chan startReply, 1), ended: make(chan endNotice, 1), killed: make(chan struct{})}
	r.mu.Lock()
	r.next++
	id := r.next
	r.programs[id] = g
	r.mu.Unlock()
	err := r.conn.sendJSON(start, startRequest{
		ID: id, Path: []byte(c.Path), Argv: bytesOf(append([]string{c.Path}, c.Args...)), Env: bytesOf(c.Env), Dir: []byte(c.Dir),
	}, s.fds()...)
	if err == nil {
		err = r.awaitStarted(g)
	} else {
		err = errors.Join(err, r.init.Kill()) // a part of the request may be on its way
	}
	if err != nil {
		r.forget(id)
		g.close()
		return nil, err
	}
	return g, nil
}

// awaitStarted returns once the init process has said how the start of a program went.
func (r *Session) awaitStarted(g *sessionProcess) error {
	late := time.NewTimer(r.answers)
	defer late.Stop()
	select {
	case a := <-g.started:
		g.pid = a.PID
		if a.Error != "" {
			return errors.New(a.Error)
		}
		return nil
	case <-r.read:
		return errors.New("the session is closed")
	case <-late.C:
		return errors.Join(errors.New("the first process of the session does not answer, so the session was ended"), r.init.Kill())
	}
}

func (r *Session) forget(id int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.programs, id)
}

// watch follows a program to its end.
func (r *Session) watch(p *Process, g *sessionProcess, s *streams, began time.Time, spares bool) {
	if d, reported := r.awaitEnd(g); reported {
		p.exit = Exit{CPU: d.CPU, MaxRSS: d.MaxRSS, Memory: r.memory()}.with(d.Status)
		p.end()
		if !spares {
			r.killStrays()
		}
	} else {
		// It ended with the session, and is gone when the init process is.
		p.end()
		end, err := r.init.Wait()
		p.exit, p.err = Exit{Memory: end.Memory}.with(syscall.WaitStatus(syscall.SIGKILL)), err
	}
	p.exit.Wall = time.Since(began)
	s.wait()
	g.close()
	close(p.done)
}

// awaitEnd waits for the end of a program, and reports whether the init process said how it
// ended. If it does not say so soon after the program was killed, the session ends.
func (r *Session) awaitEnd(g *sessionProcess) (d endNotice, reported bool) {
	killed, late := g.killed, (<-chan time.Time)(nil)
	for {
		select {
		case d := <-g.ended:
			return d, true
		case <-r.read:
			return d, false
		case <-killed:
			killed, late = nil, time.After(r.answers)
		case <-late:
			late = nil
			_ = r.init.Kill() // its end is what is waited for
		}
	}
}

// listen reads the messages of the init process until it is gone.
func (r *Session) listen() {
	defer close(r.read)
	for {
		m, body, fds, err := r.conn.receiveAll()
		if err != nil {
			return
		}
		switch m {
		case started, failed:
			r.handleStarted(body, fds)
		case ended:
			closeAll(fds)
			r.handleEnded(body)
		default:
			closeAll(fds)
		}
	}
}

func (r *Session) handleStarted(body []byte, fds []int) {
	var a startReply
	r.mu.Lock()
	defer r.mu.Unlock()
	if json.Unmarshal(body, &a) != nil || r.programs[a.ID] == nil || len(r.programs[a.ID].started) > 0 {
		closeAll(fds)
		return
	}
	g := r.programs[a.ID]
	if len(fds) == 1 {
		g.handle = fds[0]
	} else {
		closeAll(fds)
	}
	g.started <- a
}

func (r *Session) handleEnded(body []byte) {
	var d endNotice
	r.mu.Lock()
	defer r.mu.Unlock()
	if json.Unmarshal(body, &d) != nil || r.programs[d.ID] == nil {
		return
	}
	r.programs[d.ID].ended <- d
	delete(r.programs, d.ID)
}

// killStrays kills the children of the init process that are not programs of the
// session: the init process adopts the remaining processes of a program. It returns
// when none is left.
func (r *Session) killStrays() {
	r.starting.Lock()
	defer r.starting.Unlock()
	for deadline := time.Now().Add(stragglers); time.Now().Before(deadline); {
		known := map[int]bool{}
		r.mu.Lock()
		closed := r.closed
		for _, g := range r.programs {
			known[hostPID(g.handle)] = true
		}
		r.mu.Unlock()
		strays := slices.DeleteFunc(childrenOf(r.PID()), func(pid int) bool { return known[pid] })
		if closed || len(strays) == 0 {
			return
		}
		for _, pid := range strays {
			endChild(pid, r.PID())
		}
	}
}

// Close kills every process of the session and returns when they are gone.
func (r *Session) Close() error {
	r.mu.Lock()
	closed := r.closed
	r.closed = true
	r.mu.Unlock()
	if closed {
		return nil
	}
	err := r.init.Kill()
	_, werr := r.init.Wait()
	<-r.read
	r.follow.Wait()
	r.conn.close()
	return errors.Join(err, werr)
}

// endChild kills a child of parent and waits until it is dead.
func endChild(pid, parent int) {
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return
	}
	defer func() { _ = unix.Close(fd) }()
	// Looked up again now that the id cannot come to mean another process.
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return
	}
	if p, ok := parentIn(string(stat)); !ok || p != parent {
		return
	}
	_ = unix.PidfdSendSignal(fd, unix.SIGKILL, nil, 0)
	_, _ = unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, int(stragglers.Milliseconds()))
}
