package process

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

// Room is a box that several programs run in, beside and after one another, as
// an engine and the providers that serve it. Its first program is a warden of
// ours: this binary once more, confined like all others, which starts them when
// told to. Everything in the room ends with the warden, and the warden ends
// with whoever opened the room.
//
// What a program leaves behind when it ends is killed then, like the leavings
// of a boxed program; only the other programs of the room stay.
type Room struct {
	warden *Process
	line   line
	read   chan struct{} // closed when nothing more is heard from the warden

	// starting is held while a child of the warden may not be known yet, and
	// while the unknown ones are killed.
	starting sync.Mutex

	mu     sync.Mutex
	next   int
	guests map[int]*guest
	closed bool
	follow sync.WaitGroup
}

// The bodies of a room's messages.
type (
	admission struct { // start
		ID   int
		Path []byte
		Argv [][]byte
		Env  [][]byte
	}
	arrival struct { // started, failed
		ID, PID int
		Error   string
	}
	departure struct { // ended
		ID     int
		Status syscall.WaitStatus
		CPU    time.Duration
		MaxRSS int64
	}
)

// OpenRoom enters a box and leaves it open. When ctx ends, everything in it is
// killed.
func OpenRoom(ctx context.Context, b Box) (*Room, error) {
	ours, theirs, err := newLine()
	if err != nil {
		return nil, err
	}
	end := os.NewFile(uintptr(theirs), "room")
	defer func() { _ = end.Close() }()
	warden, err := Start(ctx, Command{
		Path: self, name: launcherName, Args: []string{roleWard, "3"}, Box: &b, ExtraFiles: []*os.File{end},
		Env: []string{"GOMAXPROCS=1"}, // it waits; fewer threads start faster
	})
	if err != nil {
		ours.close()
		return nil, fmt.Errorf("opening a room: %w", err)
	}
	r := &Room{warden: warden, line: ours, read: make(chan struct{}), guests: map[int]*guest{}}
	go r.listen()
	return r, nil
}

// Listener is the listener inside the room's network, for a box with Listen;
// else nil. It is closed with the room.
func (r *Room) Listener() net.Listener { return r.warden.Listener() }

// memory is what the room has used so far.
func (r *Room) memory() Memory {
	if l, boxed := r.warden.work.(*launch); boxed {
		return l.group.memory()
	}
	return Memory{}
}

// PID is the process id, as we see it, of the process that everything in the
// room ends with.
func (r *Room) PID() int { return r.warden.PID() }

// Start starts a program in the room. Its standard output and standard error
// must not be the same writer. Kill ends it alone, beside what it started.
func (r *Room) Start(c Command) (*Process, error) {
	if c.Box != nil || c.Dir != "" || c.Detached || len(c.ExtraFiles) > 0 || c.Listening != nil {
		return nil, fmt.Errorf("starting %s: a room decides more than this command leaves to it", c.Path)
	}
	s, err := openStreams(c)
	if err != nil {
		return nil, fmt.Errorf("starting %s: %w", c.Path, err)
	}
	g, err := r.admit(c, s)
	s.closeTheirs()
	if err != nil {
		s.closeOurs()
		return nil, fmt.Errorf("starting %s: %w", c.Path, err)
	}
	s.copy()
	p := &Process{work: g, pid: hostPID(g.handle), inside: g.pid, done: make(chan struct{})}
	began := time.Now()
	r.follow.Go(func() { r.see(p, g, s, began) })
	return p, nil
}

// admit has the warden start a program.
func (r *Room) admit(c Command, s *streams) (*guest, error) {
	r.starting.Lock()
	defer r.starting.Unlock()
	g := &guest{handle: -1, begun: make(chan arrival, 1), over: make(chan departure, 1)}
	r.mu.Lock()
	r.next++
	id := r.next
	r.guests[id] = g
	r.mu.Unlock()
	err := r.line.sayJSON(start, admission{
		ID: id, Path: []byte(c.Path), Argv: bytesOf(append([]string{c.Path}, c.Args...)), Env: bytesOf(c.Env),
	}, s.fds()...)
	if err == nil {
		select {
		case a := <-g.begun:
			g.pid = a.PID
			if a.Error != "" {
				err = errors.New(a.Error)
			}
		case <-r.read:
			err = errors.New("the room is closed")
		}
	}
	if err != nil {
		r.forget(id)
		g.close()
		return nil, err
	}
	return g, nil
}

func (r *Room) forget(id int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.guests, id)
}

// see follows a program to its end.
func (r *Room) see(p *Process, g *guest, s *streams, began time.Time) {
	select {
	case d := <-g.over:
		p.exit = Exit{CPU: d.CPU, MaxRSS: d.MaxRSS, Memory: r.memory()}.with(d.Status)
		p.end()
		r.sweep()
	case <-r.read:
		// It ended with the room, and is gone when the warden is.
		p.end()
		end, err := r.warden.Wait()
		p.exit, p.err = Exit{Memory: end.Memory}.with(syscall.WaitStatus(syscall.SIGKILL)), err
	}
	p.exit.Wall = time.Since(began)
	s.wait()
	g.close()
	close(p.done)
}

// listen hears the warden until it is gone.
func (r *Room) listen() {
	defer close(r.read)
	for {
		m, body, fds, err := r.line.hearAll()
		if err != nil {
			return
		}
		switch m {
		case started, failed:
			r.arrived(body, fds)
		case ended:
			closeAll(fds)
			r.departed(body)
		default:
			closeAll(fds)
		}
	}
}

func (r *Room) arrived(body []byte, fds []int) {
	var a arrival
	r.mu.Lock()
	defer r.mu.Unlock()
	if json.Unmarshal(body, &a) != nil || r.guests[a.ID] == nil || len(r.guests[a.ID].begun) > 0 {
		closeAll(fds)
		return
	}
	g := r.guests[a.ID]
	if len(fds) == 1 {
		g.handle = fds[0]
	} else {
		closeAll(fds)
	}
	g.begun <- a
}

func (r *Room) departed(body []byte) {
	var d departure
	r.mu.Lock()
	defer r.mu.Unlock()
	if json.Unmarshal(body, &d) != nil || r.guests[d.ID] == nil {
		return
	}
	r.guests[d.ID].over <- d
	delete(r.guests, d.ID)
}

// sweep kills the warden's children that are no programs of the room: what a
// program left falls to the warden. It ends when none is left.
func (r *Room) sweep() {
	r.starting.Lock()
	defer r.starting.Unlock()
	for deadline := time.Now().Add(stragglers); time.Now().Before(deadline); {
		known := map[int]bool{}
		r.mu.Lock()
		closed := r.closed
		for _, g := range r.guests {
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

// Close kills everything in the room and returns when it is gone.
func (r *Room) Close() error {
	r.mu.Lock()
	again := r.closed
	r.closed = true
	r.mu.Unlock()
	if again {
		return nil
	}
	err := r.warden.Kill()
	_, werr := r.warden.Wait()
	<-r.read
	r.follow.Wait()
	r.line.close()
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
