package runner

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
)

// keptStates is how many older versions of the state stay beside the newest.
const keptStates = 3

// stateStore holds the state of a managed stack during one run. A version is
// accepted once it is on disk in the run's directory, from where the
// controller carries it on.
type stateStore struct {
	dir      string // RUN
	writable bool   // plans and checks have no business writing
	accepted func(StateID, *stateFile)
	reserve  *reserve

	mu   sync.Mutex
	data []byte // the newest version; nil if there is none
	file *stateFile
}

// errStateRefused marks a state that does not follow the one that is there.
var errStateRefused = errors.New("state refused")

// newStateStore starts from the state data, which may be empty.
func newStateStore(dir string, data []byte, writable bool, accepted func(StateID, *stateFile)) (*stateStore, error) {
	s := &stateStore{dir: dir, writable: writable, accepted: accepted}
	if len(data) == 0 {
		return s, nil
	}
	file, err := parseState(data)
	if err != nil {
		return nil, err
	}
	s.data, s.file = data, file
	return s, nil
}

// current returns the newest version.
func (s *stateStore) current() ([]byte, *stateFile) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.data, s.file
}

// accept makes data the newest version: of the same lineage, with a greater
// serial. The same version once more is fine. When accept returns nil the
// version survives a crash.
func (s *stateStore) accept(data []byte) error {
	if !s.writable {
		return fmt.Errorf("%w: this run does not write", errStateRefused)
	}
	next, err := parseState(data)
	if err != nil {
		return fmt.Errorf("%w: %w", errStateRefused, err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.file != nil {
		switch {
		case next.Lineage != s.file.Lineage:
			return fmt.Errorf("%w: its lineage %s is not %s", errStateRefused, next.Lineage, s.file.Lineage)
		case bytes.Equal(data, s.data):
			return nil
		case next.Serial <= s.file.Serial:
			return fmt.Errorf("%w: serial %d does not follow %d", errStateRefused, next.Serial, s.file.Serial)
		}
	}
	if err := s.store(data); err != nil {
		return fmt.Errorf("storing state: %w", err)
	}
	s.data, s.file = data, next
	s.accepted(next.id(data), next)
	return nil
}

// store puts data on disk and keeps a few of the versions before it.
func (s *stateStore) store(data []byte) error {
	path, kept := filepath.Join(s.dir, FileState), ""
	if s.data != nil {
		kept = filepath.Join(s.dir, fmt.Sprintf("state-%020d.json", s.file.Serial))
		if err := os.Link(path, kept); err != nil && !isNoSpace(err) && !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, fs.ErrExist) {
			return err
		}
	}
	err := writeDurably(path, data)
	if s.reserve != nil && isNoSpace(err) {
		if kept != "" {
			_ = os.Remove(kept) // its space is needed for the version after this one
		}
		err = s.reserve.writeState(path, data)
	}
	if err != nil {
		return err
	}
	older, err := filepath.Glob(filepath.Join(s.dir, "state-*.json"))
	if err != nil {
		return err
	}
	slices.SortFunc(older, func(a, b string) int { return strings.Compare(b, a) })
	for _, path := range older[min(keptStates, len(older)):] {
		if err := os.Remove(path); err != nil {
			return err
		}
	}
	return nil
}
