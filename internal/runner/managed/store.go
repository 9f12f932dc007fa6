package managed

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

	"github.com/terrier-iac/terrier/internal/runner/disk"
	"github.com/terrier-iac/terrier/internal/stack"
)

// KeptVersions is how many older versions of the state stay beside the newest.
const KeptVersions = 3

// Store holds the state of a managed stack during one run. A version is
// accepted once it is on disk in the run's directory, from where the
// controller carries it on.
type Store struct {
	path     string // of the newest version, in RUN; older ones lie beside it
	writable bool   // plans and checks have no business writing
	accepted func(stack.StateID, *File)
	Reserve  *disk.Reserve // nil holds nothing

	mu   sync.Mutex
	data []byte // the newest version; nil if there is none
	file *File
}

// ErrRefused marks a state that does not follow the one that is there.
var ErrRefused = errors.New("state refused")

// NewStore starts from the state data, which may be empty.
func NewStore(path string, data []byte, writable bool, accepted func(stack.StateID, *File)) (*Store, error) {
	s := &Store{path: path, writable: writable, accepted: accepted}
	if len(data) == 0 {
		return s, nil
	}
	file, err := Parse(data)
	if err != nil {
		return nil, err
	}
	s.data, s.file = data, file
	return s, nil
}

// Newest returns the newest version.
func (s *Store) Newest() ([]byte, *File) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.data, s.file
}

// Accept makes data the newest version: of the same lineage, with a greater
// serial. The same version once more is fine. When accept returns nil the
// version survives a crash.
func (s *Store) Accept(data []byte) error {
	if !s.writable {
		return fmt.Errorf("%w: this run does not write", ErrRefused)
	}
	next, err := Parse(data)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrRefused, err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.file != nil {
		switch {
		case next.Lineage != s.file.Lineage:
			return fmt.Errorf("%w: its lineage %s is not %s", ErrRefused, next.Lineage, s.file.Lineage)
		case bytes.Equal(data, s.data):
			return nil
		case next.Serial <= s.file.Serial:
			return fmt.Errorf("%w: serial %d does not follow %d", ErrRefused, next.Serial, s.file.Serial)
		}
	}
	if err := s.store(data); err != nil {
		return fmt.Errorf("storing state: %w", err)
	}
	s.data, s.file = data, next
	s.accepted(next.ID(data), next)
	return nil
}

// store puts data on disk and keeps a few of the versions before it.
func (s *Store) store(data []byte) error {
	dir, path, kept := filepath.Dir(s.path), s.path, ""
	if s.data != nil {
		kept = filepath.Join(dir, fmt.Sprintf("state-%020d.json", s.file.Serial))
		if err := os.Link(path, kept); err != nil && !disk.IsNoSpace(err) && !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, fs.ErrExist) {
			return err
		}
	}
	err := disk.Write(path, data)
	if s.Reserve != nil && disk.IsNoSpace(err) {
		if kept != "" {
			_ = os.Remove(kept) // its space is needed for the version after this one
		}
		err = s.Reserve.WriteState(path, data)
	}
	if err != nil {
		return err
	}
	older, err := filepath.Glob(filepath.Join(dir, "state-*.json"))
	if err != nil {
		return err
	}
	slices.SortFunc(older, func(a, b string) int { return strings.Compare(b, a) })
	for _, path := range older[min(KeptVersions, len(older)):] {
		if err := os.Remove(path); err != nil {
			return err
		}
	}
	return nil
}
