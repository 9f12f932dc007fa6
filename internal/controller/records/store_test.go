package records

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/terrier-iac/terrier/internal/blob/blobtest"
	"github.com/terrier-iac/terrier/internal/record"
	"github.com/terrier-iac/terrier/internal/stack"
)

func TestDropOthers(t *testing.T) {
	files := blobtest.Files(t, 1<<20)
	s := Store{Blobs: files}
	for _, key := range []string{"stacks/u/plans/aa/plan.bin", "stacks/u/plans/aab/plan.bin", "stacks/u/plans/bb/plan.bin", "stacks/u/runs/r/log.txt"} {
		if err := files.Put(t.Context(), key, strings.NewReader("x")); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.DropOthers(t.Context(), record.Plans("u"), record.Plan("u", "aa", ""), ""); err != nil {
		t.Fatal(err)
	}
	got, err := files.List(t.Context(), "")
	if want := []string{"stacks/u/plans/aa/plan.bin", "stacks/u/runs/r/log.txt"}; err != nil || !slices.Equal(got, want) {
		t.Errorf("left %v, %v, want %v", got, err, want)
	}
}

// meanwhile is a store in which something happens just before an archive is deleted.
type meanwhile struct {
	Blobs
	happens func()
}

func (m meanwhile) Delete(ctx context.Context, key string) error {
	m.happens()
	return m.Blobs.Delete(ctx, key)
}

// An archive that another controller needs since the sweep began is there after it: that
// controller found the archive, and uploaded nothing. One that nothing needs is gone, unless
// the sweep cannot tell.
func TestASweepKeepsWhatAnotherControllerNeeds(t *testing.T) {
	errUnreadable := errors.New("the disk does not answer")
	for name, tt := range map[string]struct {
		happens func(t *testing.T, other *Store, archive string, end func())
		fails   error
		left    []string
	}{
		"nothing happens": {func(*testing.T, *Store, string, func()) {}, nil, nil},
		"a snapshot needs it": {func(t *testing.T, other *Store, archive string, _ func()) {
			if err := errors.Join(other.Put(t.Context(), record.Snapshot("u", "1"), []byte("sha256:aa")), other.KeepTree(t.Context(), archive, "sha256:aa")); err != nil {
				t.Error(err)
			}
		}, nil, []string{"trees/aa"}},
		"a snapshot cannot be read": {func(t *testing.T, other *Store, _ string, _ func()) {
			if err := other.Put(t.Context(), record.Snapshot("u", "1"), []byte("unreadable")); err != nil {
				t.Error(err)
			}
		}, errUnreadable, []string{"trees/aa"}},
		"the controller ends": {func(_ *testing.T, _ *Store, _ string, end func()) { end() }, context.Canceled, []string{"trees/aa"}},
	} {
		t.Run(name, func(t *testing.T) {
			ctx, end := context.WithCancel(t.Context())
			defer end()
			files, dir := blobtest.Files(t, 1<<20), t.TempDir()
			archive := filepath.Join(dir, "archive")
			if err := os.WriteFile(archive, []byte("the source"), 0o600); err != nil {
				t.Fatal(err)
			}
			other := &Store{Blobs: files}
			if err := other.KeepTree(ctx, archive, "sha256:aa"); err != nil {
				t.Fatal(err)
			}
			leader := &Store{Shared: true, Archives: Archives{Dir: filepath.Join(dir, "archives")}, Blobs: meanwhile{files, func() { tt.happens(t, other, archive, end) }}}
			err := leader.Sweep(ctx, func(ctx context.Context, key string) (string, error) {
				source, err := other.Get(ctx, key)
				if string(source) == "unreadable" {
					err = errUnreadable
				}
				return string(source), err
			})
			if !errors.Is(err, tt.fails) {
				t.Errorf("Sweep() = %v, want %v", err, tt.fails)
			}
			left, err := files.List(t.Context(), record.Trees())
			if err != nil || !slices.Equal(left, tt.left) {
				t.Errorf("left are %v, %v, want %v", left, err, tt.left)
			}
			for _, key := range left {
				if got := string(blobtest.Get(t, files, key)); got != "the source" {
					t.Errorf("%s is %q after the sweep, want the source", key, got)
				}
			}
			if aside, err := files.List(t.Context(), record.SweptTrees()); err != nil || len(aside) > 0 {
				t.Errorf("among the records there is %v aside, %v, want nothing", aside, err)
			}
			if aside, err := os.ReadDir(leader.Archives.Dir); err != nil || len(aside) > 0 {
				t.Errorf("beside the archives there is %v, %v, want nothing", aside, err)
			}
		})
	}
}

// killed is a store of a program that is killed right after it deleted an archive.
type killed struct{ Blobs }

var errKilled = errors.New("the program is killed")

func (k killed) Delete(ctx context.Context, key string) error {
	if err := k.Blobs.Delete(ctx, key); err != nil {
		return err
	}
	panic(errKilled)
}

// The leader is killed after it removed an archive that another controller needs by then:
// the archive can be used meanwhile, the next sweep puts it back, and nothing is left aside.
func TestASweepThatWasCutShortIsEnded(t *testing.T) {
	files, dir := blobtest.Files(t, 1<<20), t.TempDir()
	archive := filepath.Join(dir, "archive")
	if err := os.WriteFile(archive, []byte("the source"), 0o600); err != nil {
		t.Fatal(err)
	}
	digest := stack.Sum([]byte("the source"))
	other := &Store{Blobs: files, Archives: Archives{Dir: filepath.Join(dir, "other")}}
	if err := other.KeepTree(t.Context(), archive, digest); err != nil {
		t.Fatal(err)
	}
	sourceOf := func(ctx context.Context, key string) (string, error) {
		source, err := other.Get(ctx, key)
		return string(source), err
	}
	leader := &Store{Shared: true, Archives: Archives{Dir: filepath.Join(dir, "leader")}, Blobs: killed{meanwhile{files, func() {
		if err := errors.Join(other.Put(t.Context(), record.Snapshot("u", "1"), []byte(digest)), other.KeepTree(t.Context(), archive, digest)); err != nil {
			t.Error(err)
		}
	}}}}
	func() {
		defer func() {
			if got := recover(); got != errKilled {
				t.Fatalf("Sweep() panics with %v, want that it is killed", got)
			}
		}()
		_ = leader.Sweep(t.Context(), sourceOf)
	}()
	if trees, err := files.List(t.Context(), record.Trees()); err != nil || len(trees) > 0 {
		t.Fatalf("left are %v, %v, want that the archive is gone", trees, err)
	}
	if err := other.RestoreTree(t.Context(), digest); err != nil {
		t.Errorf("RestoreTree() = %v while the archive is aside", err)
	}
	next := &Store{Shared: true, Archives: Archives{Dir: filepath.Join(dir, "next")}, Blobs: files}
	if err := next.Sweep(t.Context(), sourceOf); err != nil {
		t.Fatal(err)
	}
	if got := string(blobtest.Get(t, files, record.Tree(digest))); got != "the source" {
		t.Errorf("the archive is %q after the next sweep", got)
	}
	if aside, err := files.List(t.Context(), record.SweptTrees()); err != nil || len(aside) > 0 {
		t.Errorf("aside are %v, %v, want nothing", aside, err)
	}
	if err := files.Delete(t.Context(), record.Snapshot("u", "1")); err != nil {
		t.Fatal(err)
	}
	if err := next.Sweep(t.Context(), sourceOf); err != nil {
		t.Fatal(err)
	}
	for _, prefix := range []string{record.Trees(), record.SweptTrees()} {
		if left, err := files.List(t.Context(), prefix); err != nil || len(left) > 0 {
			t.Errorf("left are %v, %v, want nothing that no snapshot needs", left, err)
		}
	}
}

// While a sweep reads the snapshots of thousands of stacks, plans go on: others are written. What
// is written then is needed as well.
func TestASweepHoldsUpNoPlans(t *testing.T) {
	s := &Store{Blobs: blobtest.Files(t, 1<<20), Archives: Archives{Dir: t.TempDir()}}
	archive := filepath.Join(t.TempDir(), "archive")
	if err := errors.Join(os.WriteFile(archive, []byte("archive"), 0o600), s.Put(t.Context(), record.Snapshot("u", "1"), []byte("sha256:aa")),
		s.Put(t.Context(), record.Tree("sha256:aa"), []byte("needed")), s.Put(t.Context(), record.Tree("sha256:bb"), []byte("needed by now")), s.Put(t.Context(), record.Tree("sha256:cc"), []byte("not"))); err != nil {
		t.Fatal(err)
	}
	planned := false
	err := s.Sweep(t.Context(), func(ctx context.Context, key string) (string, error) {
		if !planned {
			if !s.trees.TryRLock() {
				t.Fatal("a plan would wait until all snapshots are read")
			}
			planned = true
			if err := errors.Join(s.Put(ctx, record.Snapshot("v", "1"), []byte("sha256:bb")), s.KeepTree(ctx, archive, "sha256:bb")); err != nil {
				t.Error(err)
			}
			s.trees.RUnlock()
		}
		digest, err := s.Get(ctx, key)
		return string(digest), err
	})
	if err != nil {
		t.Fatal(err)
	}
	if left, err := s.Blobs.List(t.Context(), record.Trees()); err != nil || !slices.Equal(left, []string{"trees/aa", "trees/bb"}) {
		t.Errorf("left are %v, %v, want what is needed", left, err)
	}
}

// An archive that was restored for a run goes a day after it was used last, and comes back when it
// is needed. So does what a program left that ended while it wrote one. Other files stay.
func TestRestoredArchivesGo(t *testing.T) {
	dir := t.TempDir()
	s := &Store{Blobs: blobtest.Files(t, 1<<20), Archives: Archives{Dir: dir}}
	if err := s.Put(t.Context(), record.Tree("sha256:aa"), []byte("archive")); err != nil {
		t.Fatal(err)
	}
	if err := s.RestoreTree(t.Context(), "sha256:aa"); err != nil {
		t.Fatal(err)
	}
	now := time.Now()
	long := now.Add(-restoredFor - time.Minute)
	for _, name := range []string{"restored-bb.tar.gz", "restoring-1", "other"} {
		if err := errors.Join(os.WriteFile(filepath.Join(dir, name), nil, 0o600), os.Chtimes(filepath.Join(dir, name), long, long)); err != nil {
			t.Fatal(err)
		}
	}
	left := func(at time.Time) (names []string) {
		t.Helper()
		if err := s.Archives.Prune(at); err != nil {
			t.Fatal(err)
		}
		entries, err := os.ReadDir(dir)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range entries {
			names = append(names, e.Name())
		}
		return names
	}
	if got := left(now); !slices.Equal(got, []string{"other", "restored-aa.tar.gz"}) {
		t.Errorf("left are %v", got)
	}
	path, err := s.Archives.Path("sha256:aa")
	if err := errors.Join(err, os.Chtimes(path, long, long)); err != nil {
		t.Fatal(err)
	}
	if err := s.RestoreTree(t.Context(), "sha256:aa"); err != nil {
		t.Fatal(err)
	}
	if got := left(now); len(got) != 2 {
		t.Errorf("left are %v, although the archive was used just now", got)
	}
	if got := left(now.Add(restoredFor + time.Hour)); !slices.Equal(got, []string{"other"}) {
		t.Errorf("left are %v a day later", got)
	}
	if err := s.RestoreTree(t.Context(), "sha256:aa"); err != nil {
		t.Error(err)
	}
	if err := (Archives{Dir: filepath.Join(dir, "none")}).Prune(now); err != nil {
		t.Errorf("Prune() = %v of a controller that has restored nothing", err)
	}
}
