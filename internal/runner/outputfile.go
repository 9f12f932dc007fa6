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
	"github.com/terrier-iac/terrier/internal/runner/disk"
	"github.com/terrier-iac/terrier/internal/sandbox"
	"github.com/terrier-iac/terrier/internal/stack"
)

// The output of an apply must outlive its supervisor. In a pipe it would not:
// the part that was not read yet is lost with the reader. So an apply prints
// into a file, which the supervisor reads as it would a pipe:
//
//	engine ── appends ──▶ RUN/engine.out ── follow ──▶ recorder ──▶ events.jsonl
//	                                     ── recoverEvents (supervisor dead)
//
// The file holds the output unredacted, and is removed when the step is over.
// Nothing in the sandbox can open it by a path. When it has grown, the engine
// is frozen, what is left is read, and the file is cut; so it stays bounded,
// and an engine that prints faster than its output is read has to wait, as at a
// pipe.

const (
	fileOutput      = "engine.out"       // in RUN
	filePrints      = "prints.json"      // in RUN: fingerprints of the secrets that the output may hold
	outputFileMost  = 1 << 20            // the file is cut when it is larger
	outputFileSpace = 2 * outputFileMost // on the disk, held from the start
	outputFilePiece = 64 << 10           // that is read at once
)

// outputFile is the file that one engine process prints into.
type outputFile struct {
	dir    string
	to     io.Writer
	failed func(error)
	in     *os.File // ours
	out    *os.File // the engine's
	watch  *disk.Watch
	done   chan struct{} // closed when the file is not read any more
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

// newOutputFile makes the file for a command that needs one, else nil. What is
// printed into it goes to to once follow was called.
func (r *engineProcesses) newOutputFile(c command, to io.Writer) (*outputFile, error) {
	if !c.toFile {
		return nil, nil
	}
	if err := r.writePrints(); err != nil {
		return nil, err
	}
	s, err := openOutputFile(r.dir, to, r.recorder.keepError)
	if err != nil {
		return nil, fmt.Errorf("making the output file: %w", err)
	}
	return s, nil
}

// writePrints writes down the fingerprints of the secrets that the output of an engine
// may hold, for recoverEvents.
func (r *engineProcesses) writePrints() error {
	r.printing.Lock()
	defer r.printing.Unlock()
	var key [32]byte
	if _, err := rand.Read(key[:]); err != nil {
		return err
	}
	if err := disk.WriteJSON(filepath.Join(r.dir, filePrints), r.hide.Prints(key[:])); err != nil {
		return fmt.Errorf("making the output file: %w", err)
	}
	return nil
}

func openOutputFile(dir string, to io.Writer, failed func(error)) (s *outputFile, err error) {
	s = &outputFile{dir: dir, to: to, failed: failed, most: outputFileMost}
	path := filepath.Join(dir, fileOutput)
	if s.in, err = os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_TRUNC, 0o600); err != nil {
		return nil, err
	}
	// Appending, the engine goes on at the end when the file was cut.
	if s.out, err = os.OpenFile(path, os.O_WRONLY|os.O_APPEND, 0); err != nil {
		return nil, errors.Join(err, s.in.Close())
	}
	if err := s.allocate(); err != nil {
		return nil, errors.Join(err, s.in.Close(), s.out.Close())
	}
	s.watch = disk.NewWatch(path)
	return s, nil
}

// allocate holds space for what will be printed: an engine does not care
// whether its words find any.
func (s *outputFile) allocate() error {
	err := unix.Fallocate(int(s.in.Fd()), unix.FALLOC_FL_KEEP_SIZE, 0, outputFileSpace)
	if errors.Is(err, unix.EOPNOTSUPP) || errors.Is(err, unix.ENOSYS) {
		return nil
	}
	return err
}

// stdout is what the engine is given: the output file, or what else it prints
// to.
func (s *outputFile) stdout(or io.Writer) io.Writer {
	if s == nil {
		return or
	}
	return s.out
}

// follow hands on what p prints until end is called.
func (s *outputFile) follow(p *sandbox.Process) {
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
			if !s.watch.Wait() {
				return
			}
		}
	}()
}

// end hands on the rest, once nothing prints any more, and removes the file.
func (s *outputFile) end() {
	if s == nil || s.ended {
		return
	}
	s.ended = true
	s.watch.Close()
	if s.done != nil {
		<-s.done
		s.drain(false)
	}
	if s.out != nil {
		_ = s.out.Close()
	}
	s.failed(errors.Join(s.in.Close(), removeOutputFile(s.dir)))
}

// drain hands on what is in the file, and cuts it if it has grown.
func (s *outputFile) drain(cut bool) {
	piece := make([]byte, outputFilePiece)
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
			s.failed(fmt.Errorf("reading the output file: %w", err))
			return
		}
	}
}

func (s *outputFile) grown() bool {
	info, err := s.in.Stat()
	return err == nil && info.Size() > s.most
}

// cut empties the file but for the line that is being printed, which comes to
// stand at its beginning before its old place goes: a reader of the file
// after a crash finds every line that was not handed on.
func (s *outputFile) cut() {
	if err := s.frozen.Freeze(); err != nil {
		s.most += outputFileMost // not now
		return
	}
	defer func() { _ = s.frozen.Thaw() }()
	s.drain(false)
	begun := s.read - s.line
	if begun > s.line {
		s.most += outputFileMost // a line as long as this is a whole state
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
		_ = s.allocate() // it had been there; if it is gone the engine goes on all the same
	}
	if err != nil {
		s.failed(fmt.Errorf("cutting the output file: %w", err))
		s.most += outputFileMost
		return
	}
	s.read, s.line, s.most = begun, 0, outputFileMost
}

// outputFiles lists the file, and those of the commands of a script.
func outputFiles(dir string) ([]string, error) {
	return filepath.Glob(filepath.Join(dir, fileOutput+"*"))
}

// removeOutputFile removes the file and its fingerprints.
func removeOutputFile(dir string) error {
	paths, err := outputFiles(dir)
	errs := []error{err}
	for _, path := range append(paths, filepath.Join(dir, filePrints)) {
		if err := os.Remove(path); !errors.Is(err, fs.ErrNotExist) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// recordBefore writes down what the state holds before an apply. Without it, an
// object at an address could be the one that was to be replaced or its
// replacement.
func (r *planSteps) recordBefore() error {
	if r.state.store == nil || r.job.Kind != stack.ApplyRun && r.job.Kind != stack.ScriptRun {
		return nil
	}
	data, _ := r.state.store.Newest()
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
