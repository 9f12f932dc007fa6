package script

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/terrier-iac/terrier/internal/runner/socket"
)

const (
	maxCalls   = 64       // that are answered at once
	maxRequest = 16 << 20 // more than a kernel lets a program have as arguments and environment
	askTime    = 10 * time.Second
)

// Call is a call of terraform or tofu in a script. What it says was made in the sandbox:
// it decides nothing but what happens in there.
type Call struct {
	Args, Env []string
	Dir       string // where the engine is to work, as the sandbox sees it
	Backend   string // that the configuration there declares; empty is none

	Stdin, Stdout, Stderr *os.File // for the engine; nothing else may read or write them

	conn *net.UnixConn
	mu   *sync.Mutex
}

// ToStderr is the call with what it prints on its standard error alone.
func (c *Call) ToStderr() *Call {
	other := *c
	other.Stdout = c.Stderr
	return &other
}

// Say prints a line on the standard error of the call.
func (c *Call) Say(format string, args ...any) { c.answer(answer{Say: fmt.Sprintf(format, args...)}) }

func (c *Call) answer(a answer) {
	c.mu.Lock()
	defer c.mu.Unlock()
	// A caller that is gone, or does not read, must not hold the run up.
	_ = c.conn.SetWriteDeadline(time.Now().Add(askTime))
	_ = json.NewEncoder(c.conn).Encode(a)
}

// Listener is where the programs of a script reach the supervisor.
type Listener struct{ *socket.Listener }

// Listen listens in a directory, in place of the Listener before. The caller gives the
// socket to the user of the sandbox.
func Listen(dir string) (*Listener, error) {
	l, err := socket.Listen(Path(dir), maxCalls)
	if err != nil {
		return nil, fmt.Errorf("listening for the script: %w", err)
	}
	return &Listener{l}, nil
}

// Path is the place of the socket in the directory that a sandbox shows.
func Path(dir string) string { return dir + "/" + socketName }

// Serve has each call answered until Close, which returns when no one is being answered. The
// context of a call ends when its caller is gone, or asks for the end of it.
func (l *Listener) Serve(respond func(context.Context, *Call) Result) {
	l.Listener.Serve(func(conn *net.UnixConn) { serve(conn, respond) }, func(conn *net.UnixConn) {
		_ = json.NewEncoder(conn).Encode(answer{Say: fmt.Sprintf("A script calls its engine at most %d times at once.", maxCalls), Done: &Result{Exit: 1}})
	})
}

func serve(conn *net.UnixConn, respond func(context.Context, *Call) Result) {
	c, in, err := receive(conn)
	if err != nil {
		c = &Call{conn: conn, mu: &sync.Mutex{}}
		c.answer(answer{Say: "The supervisor cannot read the call: " + err.Error(), Done: &Result{Exit: 1}})
		return
	}
	defer func() { _ = errors.Join(c.Stdin.Close(), c.Stdout.Close(), c.Stderr.Close()) }()
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	go func() {
		_, _ = in.ReadByte() // it says nothing else, and ends with the connection
		cancel()
	}()
	result := respond(ctx, c)
	c.answer(answer{Done: &result})
}

// receive reads a request.
func receive(conn *net.UnixConn) (*Call, *bufio.Reader, error) {
	if err := conn.SetReadDeadline(time.Now().Add(askTime)); err != nil {
		return nil, nil, err
	}
	files, err := streams(conn)
	if err != nil {
		return nil, nil, err
	}
	bounded := &io.LimitedReader{R: conn, N: maxRequest}
	in := bufio.NewReader(bounded)
	line, err := in.ReadBytes('\n')
	var q request
	if err == nil {
		err = json.Unmarshal(line, &q)
	}
	if err == nil {
		err = conn.SetReadDeadline(time.Time{})
	}
	if err != nil {
		for _, f := range files {
			_ = f.Close()
		}
		return nil, nil, err
	}
	bounded.N = 1 << 10
	return &Call{Args: textsOf(q.Args), Env: textsOf(q.Env), Dir: string(q.Dir), Backend: q.Backend,
		Stdin: files[0], Stdout: files[1], Stderr: files[2], conn: conn, mu: &sync.Mutex{}}, in, nil
}

// streams receives the standard streams of a caller.
func streams(conn *net.UnixConn) ([]*os.File, error) {
	const count = 3
	first, rights := make([]byte, 1), make([]byte, unix.CmsgSpace(4*count))
	n, rn, _, _, err := conn.ReadMsgUnix(first, rights)
	if err != nil || n != 1 {
		return nil, errors.Join(err, errors.New("it has no beginning"))
	}
	messages, err := unix.ParseSocketControlMessage(rights[:rn])
	if err != nil {
		return nil, err
	}
	var files []*os.File
	for _, m := range messages {
		fds, err := unix.ParseUnixRights(&m)
		if err != nil {
			continue
		}
		for _, fd := range fds {
			files = append(files, os.NewFile(uintptr(fd), "stream"))
		}
	}
	if len(files) != count {
		for _, f := range files {
			_ = f.Close()
		}
		return nil, fmt.Errorf("it came with %d of its standard streams", len(files))
	}
	return files, nil
}
