package runner

import (
	"bytes"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/terrier-iac/terrier/internal/plan"
	"github.com/terrier-iac/terrier/internal/sandbox"
	"github.com/terrier-iac/terrier/internal/stack"
)

// What an engine prints while it changes the world must outlive its supervisor.
// In a pipe it would not: whatever was not read yet dies with the reader. So an
// apply prints into a file, the spool, which the supervisor follows as it would
// a pipe:
//
//	engine ── appends ──▶ RUN/engine.out ── follow ──▶ recorder ──▶ events.jsonl
//	                                     ── unheard (supervisor dead) ──▶ ┘
//
// It holds what the engine printed unredacted, and is gone when the step is
// over. Nothing in the box can open it by a path. When it has grown, the engine
// is frozen, what is left is read, and the file is cut; so it stays bounded,
// and an engine that prints faster than it is heard has to wait, as at a pipe.

const (
	fileSpool  = "engine.out"  // in RUN
	filePrints = "prints.json" // in RUN: recognises what must not be shown of the spool, without telling it
	spoolMost  = 1 << 20       // from here on a spool is cut
	spoolRoom  = 2 * spoolMost // on the disk, held from the start
	spoolPiece = 64 << 10      // that is read at once
)

// spool is the file that one engine process prints into.
type spool struct {
	dir    string
	to     io.Writer
	failed func(error)
	in     *os.File // ours
	out    *os.File // the engine's
	watch  *watch
	done   chan struct{} // closed when nobody follows any more
	ended  bool

	most   int64 // cut from here on
	read   int64 // how far
	line   int64 // where the line begins that was not read to its end
	frozen freezer
}

// freezer is what can be made to stop printing.
type freezer interface {
	Freeze() error
	Thaw() error
}

// newSpool makes the file for a command that needs one, else nil. What is
// printed into it goes to to once follow was called.
func (r *engineProcesses) newSpool(c command, to io.Writer) (*spool, error) {
	if !c.spooled {
		return nil, nil
	}
	var key [32]byte
	if _, err := rand.Read(key[:]); err != nil {
		return nil, err
	}
	if err := writeJSON(filepath.Join(r.dir, filePrints), r.hide.Prints(key[:])); err != nil {
		return nil, fmt.Errorf("making the spool: %w", err)
	}
	s, err := openSpool(r.dir, to, r.recorder.note)
	if err != nil {
		return nil, fmt.Errorf("making the spool: %w", err)
	}
	return s, nil
}

func openSpool(dir string, to io.Writer, failed func(error)) (s *spool, err error) {
	s = &spool{dir: dir, to: to, failed: failed, most: spoolMost}
	path := filepath.Join(dir, fileSpool)
	if s.in, err = os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_TRUNC, 0o600); err != nil {
		return nil, err
	}
	// Appending, the engine goes on at the end when the file was cut.
	if s.out, err = os.OpenFile(path, os.O_WRONLY|os.O_APPEND, 0); err != nil {
		return nil, errors.Join(err, s.in.Close())
	}
	if err := s.room(); err != nil {
		return nil, errors.Join(err, s.in.Close(), s.out.Close())
	}
	s.watch = newWatch(path)
	return s, nil
}

// room holds room for what will be printed: an engine does not care whether its
// words find any.
func (s *spool) room() error {
	err := unix.Fallocate(int(s.in.Fd()), unix.FALLOC_FL_KEEP_SIZE, 0, spoolRoom)
	if errors.Is(err, unix.EOPNOTSUPP) || errors.Is(err, unix.ENOSYS) {
		return nil
	}
	return err
}

// stdout is what the engine is given: the spool, or what else it prints to.
func (s *spool) stdout(or io.Writer) io.Writer {
	if s == nil {
		return or
	}
	return s.out
}

// follow hands on what p prints until end is called.
func (s *spool) follow(p *sandbox.Process) {
	if s == nil {
		return
	}
	s.frozen = p
	_ = s.out.Close() // it has its own
	s.out = nil
	s.done = make(chan struct{})
	go func() {
		defer close(s.done)
		for {
			s.drain(true)
			if !s.watch.wait() {
				return
			}
		}
	}()
}

// end hands on the rest, once nothing prints any more, and removes the file.
func (s *spool) end() {
	if s == nil || s.ended {
		return
	}
	s.ended = true
	s.watch.close()
	if s.done != nil {
		<-s.done
		s.drain(false)
	}
	if s.out != nil {
		_ = s.out.Close()
	}
	s.failed(errors.Join(s.in.Close(), dropSpool(s.dir)))
}

// drain hands on what is in the file, and cuts it if it has grown.
func (s *spool) drain(cut bool) {
	piece := make([]byte, spoolPiece)
	for {
		n, err := s.in.ReadAt(piece, s.read)
		if i := bytes.LastIndexByte(piece[:n], '\n'); i >= 0 {
			s.line = s.read + int64(i) + 1
		}
		s.read += int64(n)
		_, _ = s.to.Write(piece[:n])
		if cut && s.grown() {
			s.cut()
		}
		switch {
		case err == io.EOF:
			return
		case err != nil:
			s.failed(fmt.Errorf("reading the spool: %w", err))
			return
		}
	}
}

func (s *spool) grown() bool {
	info, err := s.in.Stat()
	return err == nil && info.Size() > s.most
}

// cut empties the file but for the line that is being printed, which comes to
// stand at its beginning before its old place goes: whoever reads the file
// after a crash finds every line that was not handed on.
func (s *spool) cut() {
	if err := s.frozen.Freeze(); err != nil {
		s.most += spoolMost // not now
		return
	}
	defer func() { _ = s.frozen.Thaw() }()
	s.drain(false)
	begun := s.read - s.line
	if begun > s.line {
		s.most += spoolMost // a line as long as this is a whole state
		return
	}
	text := make([]byte, begun)
	_, err := s.in.ReadAt(text, s.line)
	if err == nil || begun == 0 {
		_, err = s.in.WriteAt(text, 0)
	}
	if err == nil {
		err = s.in.Truncate(begun)
	}
	if err == nil {
		_ = s.room() // it had been there; if it is gone the engine goes on all the same
	}
	if err != nil {
		s.failed(fmt.Errorf("cutting the spool: %w", err))
		s.most += spoolMost
		return
	}
	s.read, s.line, s.most = begun, 0, spoolMost
}

// dropSpool removes what a spool was.
func dropSpool(dir string) error {
	var errs []error
	for _, name := range []string{fileSpool, filePrints} {
		if err := os.Remove(filepath.Join(dir, name)); !errors.Is(err, fs.ErrNotExist) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// before writes down what the state holds ahead of an apply: without it nobody
// could tell later whether what stands at an address is an object that was to be
// replaced or its replacement.
func (r *planSteps) before() error {
	if r.state.store == nil || r.job.Kind != stack.ApplyRun {
		return nil
	}
	data, _ := r.state.store.current()
	lines, err := plan.BeforeApply(data, r.now())
	if err != nil {
		return err
	}
	r.recorder.mu.Lock()
	defer r.recorder.mu.Unlock()
	for _, line := range lines {
		r.recorder.keep(line, true)
	}
	return nil
}
