// Package sealer encrypts and decrypts the state of a run for its engine, which asks for it by
// the external encryption method of OpenTofu:
//
//	supervisor                 sandbox of the run
//	Sealer ◀── the state ──    terrier-runner seal-state (Main) ◀── engine
//	       ── encrypted ──▶
//
// So the keys are in the supervisor alone. A program of the run may ask as the engine does: it
// then reads the state of its own stack while the run goes on, and takes no key with it.
//
// Start reading at Listen and Main.
package sealer

import (
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"time"

	"github.com/terrier-iac/terrier/internal/encryption"
	"github.com/terrier-iac/terrier/internal/runner/managed"
	"github.com/terrier-iac/terrier/internal/runner/socket"
)

// operation is what a program asks for, in the first byte.
type operation byte

const (
	encrypt      operation = 'e' // with the newest key
	decrypt      operation = 'd' // with the newest key
	decryptOlder operation = 'o' // with any other one
)

// The first byte of an answer.
const (
	done    = 'y'
	refused = 'n' // the rest says why
)

const (
	socketName = "seal"
	maxAsked   = 8  // at once
	maxWaiting = 64 // that are not answered yet
	maxBytes   = managed.MaxBytes + 1<<20
	askTime    = time.Minute // of one request, as the engine waits for it
)

// Sealer answers the programs of one run.
type Sealer struct {
	keys   []encryption.Key // the newest first
	socket *socket.Listener
	slots  chan struct{}

	mu   sync.Mutex
	seen Seen
}

// Seen says what was asked so far.
type Seen struct {
	Newest    int // states that the newest key decrypted
	Older     int // states that another key decrypted
	Encrypted int // states that were encrypted
}

// Path is the place of the socket in a directory.
func Path(dir string) string { return dir + "/" + socketName }

// Listen listens in a directory until Close. The caller gives the socket to the user of the
// programs.
func Listen(dir string, keys []encryption.Key) (*Sealer, error) {
	if len(keys) == 0 {
		return nil, errors.New("encrypting the state: the run has no key")
	}
	l, err := socket.Listen(Path(dir), maxWaiting)
	if err != nil {
		return nil, fmt.Errorf("encrypting the state: %w", err)
	}
	s := &Sealer{keys: keys, socket: l, slots: make(chan struct{}, maxAsked)}
	l.Serve(func(conn *net.UnixConn) {
		s.slots <- struct{}{} // states are large
		defer func() { <-s.slots }()
		s.answer(conn)
	}, func(*net.UnixConn) {})
	return s, nil
}

// Seen returns what was asked since the Sealer began. A nil Sealer is asked nothing.
func (s *Sealer) Seen() Seen {
	if s == nil {
		return Seen{}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.seen
}

// Close ends every request, and returns when none is being answered. A nil Sealer has none.
func (s *Sealer) Close() {
	if s != nil {
		s.socket.Close()
	}
}

// answer answers one request. One that is cut off, or not read, ends at its deadline.
func (s *Sealer) answer(conn net.Conn) {
	if conn.SetDeadline(time.Now().Add(askTime)) != nil {
		return
	}
	asked, err := io.ReadAll(io.LimitReader(conn, maxBytes+1))
	switch {
	case err != nil || len(asked) == 0:
		return
	case len(asked) > maxBytes:
		reply(conn, refused, []byte("the state is too large"))
		return
	}
	out, err := s.carryOut(operation(asked[0]), asked[1:])
	if err != nil {
		reply(conn, refused, []byte(err.Error()))
		return
	}
	reply(conn, done, out)
}

func reply(conn net.Conn, how byte, what []byte) {
	_, _ = conn.Write(append([]byte{how}, what...)) // a caller that is gone has no use for it
}

func (s *Sealer) carryOut(op operation, data []byte) (out []byte, err error) {
	switch op {
	case encrypt:
		out, err = encryption.Seal(data, s.keys[0])
		s.count(err, func(n *Seen) { n.Encrypted++ })
	case decrypt:
		out, err = encryption.Open(data, s.keys[0])
		s.count(err, func(n *Seen) { n.Newest++ })
	case decryptOlder:
		out, err = s.Open(data)
		s.count(err, func(n *Seen) { n.Older++ })
	default:
		err = fmt.Errorf("there is no operation %q", op)
	}
	return out, err
}

// Open decrypts with any key.
func (s *Sealer) Open(data []byte) ([]byte, error) {
	var errs []error
	for _, k := range s.keys {
		out, err := encryption.Open(data, k)
		if err == nil {
			return out, nil
		}
		errs = append(errs, err)
	}
	return nil, errors.Join(errs...)
}

func (s *Sealer) count(err error, add func(*Seen)) {
	if err != nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	add(&s.seen)
}
