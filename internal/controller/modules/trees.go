package modules

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/terrier-iac/terrier/internal/archive"
)

// A source stays unpacked for a while after the last stack took its part of it: a commit wakes
// all stacks of a source, one after the other.
const (
	treesKept = 2 // sources that nothing uses just now
	treeIdle  = time.Minute
)

// trees are unpacked sources, each shared by all that read it. Its zero value is ready.
type trees struct {
	cleaned sync.Once

	mu   sync.Mutex
	open map[string]*tree // by the digest of the archive
	turn int              // counts the trees that came out of use
	err  error            // of removing one after its time; told with the next
}

// tree is one of them. All but the scratch and its error belong to the mutex of trees.
type tree struct {
	unpack sync.Once
	of     *archive.Scratch
	err    error

	digest string
	users  int
	turn   int         // when it came out of use
	idle   *time.Timer // nil while it is in use
}

// with has do read the unpacked archive in a file, which nothing may write to.
func (t *trees) with(parent, file, digest string, do func(*archive.Scratch) error) (err error) {
	parent = filepath.Join(parent, "sources")
	t.cleaned.Do(func() { err = os.RemoveAll(parent) }) // what a program left that was killed
	if err != nil {
		return fmt.Errorf("removing unpacked sources of before: %w", err)
	}
	s := t.take(digest)
	defer func() { err = errors.Join(err, t.give(s)) }()
	s.unpack.Do(func() { s.of, s.err = archive.OpenScratch(file, parent, archive.Limits{}) })
	if s.err != nil {
		return fmt.Errorf("unpacking the source: %w", s.err)
	}
	return do(s.of)
}

func (t *trees) take(digest string) *tree {
	t.mu.Lock()
	defer t.mu.Unlock()
	s := t.open[digest]
	if s == nil {
		if t.open == nil {
			t.open = map[string]*tree{}
		}
		s = &tree{digest: digest}
		t.open[digest] = s
	}
	if s.users++; s.idle != nil {
		s.idle.Stop() // a call that is under way finds it in use
		s.idle = nil
	}
	return s
}

// give ends a use. A source that could not be unpacked is tried again by the next.
func (t *trees) give(s *tree) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if s.users--; s.users > 0 {
		return nil
	}
	if s.of == nil {
		delete(t.open, s.digest)
		return nil
	}
	t.turn++
	s.turn, s.idle = t.turn, time.AfterFunc(treeIdle, func() { t.expire(s) })
	err := errors.Join(t.err, t.trim(treesKept))
	t.err = nil
	return err
}

func (t *trees) expire(s *tree) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if s.idle != nil && t.open[s.digest] == s {
		t.err = errors.Join(t.err, t.remove(s))
	}
}

// trim removes those that came out of use first, until there are no more than n out of use.
func (t *trees) trim(n int) (err error) {
	for {
		var first *tree
		idle := 0
		for _, s := range t.open {
			if s.idle == nil {
				continue
			}
			if idle++; first == nil || s.turn < first.turn {
				first = s
			}
		}
		if idle <= n {
			return err
		}
		err = errors.Join(err, t.remove(first))
	}
}

func (t *trees) remove(s *tree) error {
	s.idle.Stop()
	delete(t.open, s.digest)
	return s.of.Close()
}
