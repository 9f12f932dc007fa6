package source

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/terrier-iac/terrier/internal/fault"
)

// Store keeps artifacts in a directory, at
// <kind>/<namespace>/<name>/<digest>.tar.gz. Every artifact is complete: it is
// written aside, synced and renamed.
type Store struct {
	dir string

	mu       sync.Mutex
	verified map[string]stamp // artifacts whose digest was compared, by path
}

// stamp tells whether a file was touched since.
type stamp struct {
	size int64
	mod  time.Time
}

// Key names the object whose artifacts belong together. The parts are names as
// Kubernetes allows them; Kind is in lower case.
type Key struct{ Kind, Namespace, Name string }

func (k Key) String() string { return k.Kind + "/" + k.Namespace + "/" + k.Name }

// Stored describes one artifact in a Store.
type Stored struct {
	Path   string // slash-separated, below the store
	Digest string // sha256:…
	Size   int64
}

const tmpDir = ".tmp"

// OpenStore returns the Store in dir, which is made if need be. What a crash
// left half-written is removed, so a directory has one Store at a time.
func OpenStore(dir string) (*Store, error) {
	tmp := filepath.Join(dir, tmpDir)
	if err := errors.Join(os.RemoveAll(tmp), os.MkdirAll(tmp, 0o700)); err != nil {
		return nil, fmt.Errorf("opening the artifact store: %w", err)
	}
	return &Store{dir: dir, verified: map[string]stamp{}}, nil
}

var (
	keyPart  = regexp.MustCompile(`^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$`)
	pathForm = regexp.MustCompile(`^[a-z0-9]+/[a-z0-9][-a-z0-9.]*/[a-z0-9][-a-z0-9.]*/([0-9a-f]{64})\.tar\.gz$`)
)

func (k Key) path() (string, error) {
	for _, part := range []string{k.Kind, k.Namespace, k.Name} {
		if len(part) > 253 || !keyPart.MatchString(part) || strings.Contains(part, "..") {
			return "", invalid(ReasonReference, "%q cannot be part of an artifact's path", part)
		}
	}
	return path.Join(k.Kind, k.Namespace, k.Name), nil
}

// Put stores what write writes.
func (s *Store) Put(key Key, write func(io.Writer) error) (Stored, error) {
	dir, err := key.path()
	if err != nil {
		return Stored{}, err
	}
	f, err := os.CreateTemp(filepath.Join(s.dir, tmpDir), "put-")
	if err != nil {
		return Stored{}, storageFault(err)
	}
	defer os.Remove(f.Name())
	defer f.Close()
	sum, out := sha256.New(), &sink{w: f}
	if err := write(io.MultiWriter(out, sum)); out.failed != nil {
		return Stored{}, storageFault(out.failed)
	} else if err != nil {
		return Stored{}, err
	}
	hexSum := hex.EncodeToString(sum.Sum(nil))
	stored := Stored{Path: path.Join(dir, hexSum+".tar.gz"), Digest: "sha256:" + hexSum, Size: out.size}
	if err := publish(f, filepath.Join(s.dir, filepath.FromSlash(stored.Path))); err != nil {
		return Stored{}, storageFault(err)
	}
	return stored, nil
}

// publish makes the temporary file f appear whole at target, durably.
func publish(f *os.File, target string) error {
	if err := errors.Join(f.Sync(), f.Close()); err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(target), 0o700); err != nil {
		return err
	}
	if err := os.Rename(f.Name(), target); err != nil {
		return err
	}
	return syncDir(filepath.Dir(target))
}

func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

// sink counts what is written, and remembers when that fails: a full disk is
// not the fault of what is being fetched.
type sink struct {
	w      io.Writer
	size   int64
	failed error
}

func (s *sink) Write(p []byte) (int, error) {
	n, err := s.w.Write(p)
	s.size += int64(n)
	if err != nil {
		s.failed = err
	}
	return n, err
}

func storageFault(err error) error {
	return fault.New(fault.Broken, ReasonStorage, fmt.Errorf("storing an artifact: %w", err))
}

// Has reports whether the artifact exists and is intact. The content is compared
// once, and again after each change of the file.
func (s *Store) Has(a Stored) bool {
	form := pathForm.FindStringSubmatch(a.Path)
	if form == nil || "sha256:"+form[1] != a.Digest {
		return false
	}
	f, err := s.Open(a.Path)
	if err != nil {
		return false
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil || info.Size() != a.Size {
		return false
	}
	now := stamp{info.Size(), info.ModTime()}
	s.mu.Lock()
	known := s.verified[a.Path] == now
	s.mu.Unlock()
	if known {
		return true
	}
	sum := sha256.New()
	if _, err := io.Copy(sum, f); err != nil || hex.EncodeToString(sum.Sum(nil)) != form[1] {
		return false
	}
	s.mu.Lock()
	s.verified[a.Path] = now
	s.mu.Unlock()
	return true
}

// Open opens the artifact at a path of the form that Put returns.
func (s *Store) Open(name string) (*os.File, error) {
	if !pathForm.MatchString(name) || strings.Contains(name, "..") {
		return nil, missing(ReasonArtifact, "there is no artifact %q", name)
	}
	f, err := os.OpenInRoot(s.dir, filepath.FromSlash(name))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, missing(ReasonArtifact, "there is no artifact %q", name)
	}
	if err != nil {
		return nil, fault.New(fault.Broken, ReasonArtifact, fmt.Errorf("opening an artifact: %w", err))
	}
	return f, nil
}

// Collect removes artifacts of key that are neither current, nor among the
// newest keep, nor younger than since: a client may be fetching them.
func (s *Store) Collect(key Key, current string, keep int, since time.Time) error {
	dir, err := key.path()
	if err != nil {
		return err
	}
	entries, err := os.ReadDir(filepath.Join(s.dir, dir))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("collecting artifacts: %w", err)
	}
	var files []fs.FileInfo
	for _, e := range entries {
		if info, err := e.Info(); err == nil && path.Join(dir, e.Name()) != current {
			files = append(files, info)
		}
	}
	slices.SortFunc(files, func(a, b fs.FileInfo) int { return b.ModTime().Compare(a.ModTime()) })
	var failures []error
	for i, info := range files {
		if i < keep-1 || info.ModTime().After(since) {
			continue
		}
		failures = append(failures, s.remove(path.Join(dir, info.Name())))
	}
	return errors.Join(failures...)
}

func (s *Store) remove(name string) error {
	s.mu.Lock()
	delete(s.verified, name)
	s.mu.Unlock()
	if err := os.Remove(filepath.Join(s.dir, filepath.FromSlash(name))); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("removing an artifact: %w", err)
	}
	return nil
}

// Remove removes every artifact of key.
func (s *Store) Remove(key Key) error {
	dir, err := key.path()
	if err != nil {
		return err
	}
	s.mu.Lock()
	for name := range s.verified {
		if path.Dir(name) == dir {
			delete(s.verified, name)
		}
	}
	s.mu.Unlock()
	if err := os.RemoveAll(filepath.Join(s.dir, dir)); err != nil {
		return fmt.Errorf("removing artifacts: %w", err)
	}
	return nil
}

// Keys returns the keys that have artifacts of the given kind.
func (s *Store) Keys(kind string) ([]Key, error) {
	matches, err := fs.Glob(os.DirFS(s.dir), path.Join(kind, "*", "*"))
	if err != nil {
		return nil, fmt.Errorf("listing artifacts: %w", err)
	}
	var keys []Key
	for _, m := range matches {
		parts := strings.Split(m, "/")
		keys = append(keys, Key{Kind: parts[0], Namespace: parts[1], Name: parts[2]})
	}
	return keys, nil
}
