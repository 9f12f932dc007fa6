package disk

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/terrier-iac/terrier/internal/failpoint"
	"github.com/terrier-iac/terrier/internal/fault"
)

const (
	// ReserveFiles begins the names of the files that have space, in RUN.
	ReserveFiles = "reserve-"
	// LeastEvents and LeastLog are what is held beyond the ends of these files.
	LeastEvents = 1 << 20
	LeastLog    = 512 << 10

	leastLarge  = 1280 << 10 // of the largest space for a state, beside twice the one there was
	leastSmall  = 384 << 10  // of two more, beside once
	leastReport = 256 << 10  // of two for reports
)

// Reserve is space on the disk that a run which writes holds from its start, so
// that on a disk that has filled up meanwhile it can still write down what it
// did. None of it is given back before it is used, or others would take it:
//
//	state, report   are written into a file that has the space, which then changes
//	                places with the one that is there; that is space from then on
//	events, log     have theirs beyond their ends
//
// A nil Reserve holds nothing.
type Reserve struct {
	state, report slots
	once          sync.Once
}

// NewReserve takes the space for a state that was this large. A run that cannot
// have it has not begun anything yet, and ends.
func NewReserve(dir string, state int) (*Reserve, error) {
	n := int64(state)
	r := &Reserve{}
	for i, size := range []int64{leastLarge + 2*n, leastSmall + n, leastSmall + n, leastReport, leastReport} {
		s := &slot{path: filepath.Join(dir, fmt.Sprint(ReserveFiles, i)), size: size}
		err := s.hold()
		if i < 3 {
			r.state = append(r.state, s)
		} else {
			r.report = append(r.report, s)
		}
		switch {
		case errors.Is(err, unix.EOPNOTSUPP) || errors.Is(err, unix.ENOSYS):
			r.Free()
			return nil, nil
		case err != nil:
			r.Free()
			return nil, noSpace(err)
		}
	}
	return r, nil
}

func noSpace(err error) error {
	return fault.New(fault.Broken, NoSpace, fmt.Errorf("setting space for the state aside: %w", err))
}

// HoldBeyond holds space beyond the end of a file that is appended to.
func (r *Reserve) HoldBeyond(f *os.File, size int64) error {
	if r == nil {
		return nil
	}
	if err := unix.Fallocate(int(f.Fd()), unix.FALLOC_FL_KEEP_SIZE, 0, size); err != nil {
		return noSpace(err)
	}
	return nil
}

// WriteReport replaces the report, in the space that is held if there is no
// other.
func (r *Reserve) WriteReport(path string, data []byte) error {
	err := Write(path, data)
	if r == nil || !IsNoSpace(err) {
		return err
	}
	s := r.report.fit(int64(len(data)))
	// To cut a file off is to give back what is beyond its end; white space
	// after a document means nothing.
	for have, _ := s.has(); int64(len(data)) < have; {
		data = append(data, '\n')
	}
	return s.replace(path, data)
}

// WriteState replaces a state in the space that is held.
func (r *Reserve) WriteState(path string, data []byte) error {
	return r.state.fit(int64(len(data))).replace(path, data)
}

// Free gives the space back.
func (r *Reserve) Free() {
	if r == nil {
		return
	}
	r.once.Do(func() {
		for _, s := range slices.Concat(r.state, r.report) {
			_ = os.Remove(s.path)
		}
	})
}

// ReleaseReserve frees the space that a dead run has held in its directory, for what is
// written of it now.
func ReleaseReserve(dir string) error {
	held, err := filepath.Glob(filepath.Join(dir, ReserveFiles+"*"))
	for _, path := range held {
		if gone := os.Remove(path); !errors.Is(gone, fs.ErrNotExist) {
			err = errors.Join(err, gone)
		}
	}
	return err
}

// slots are files that have space for others.
type slots []*slot

// fit chooses the space for n bytes: the least that is enough, of those that
// need not be cut off for it if there is one, or else the largest.
func (all slots) fit(n int64) *slot {
	return slices.MinFunc(all, func(a, b *slot) int {
		an, ar := a.has()
		bn, br := b.has()
		if ar < n || br < n {
			return cmp.Compare(br, ar)
		}
		return cmp.Or(cmp.Compare(max(an-n, 0), max(bn-n, 0)), cmp.Compare(ar, br))
	})
}

// slot is a file that has space for another one. What is in it means nothing.
type slot struct {
	path string
	size int64 // that it should have space for
}

// has is how long the file is, and what it has space for; zero if it is gone.
func (s *slot) has() (length, space int64) {
	var st unix.Stat_t
	if unix.Stat(s.path, &st) != nil {
		return 0, 0
	}
	return st.Size, st.Blocks * 512
}

// hold takes the space, or as much of it as the file has not got.
func (s *slot) hold() error {
	f, err := os.OpenFile(s.path, os.O_WRONLY|os.O_CREATE, 0o600)
	if err != nil {
		return err
	}
	defer f.Close()
	return unix.Fallocate(int(f.Fd()), unix.FALLOC_FL_KEEP_SIZE, 0, s.size)
}

// replace is Write without asking for space: data is written over what
// the slot holds, which never goes through the free space of the disk, and the
// slot changes places with the file at path. What that one was is the slot from
// then on, so no other process may know it by another name. A reader that has
// it open meanwhile reads it whole unless it is replaced twice.
func (s *slot) replace(path string, data []byte) error {
	defer failpoint.Act("run.file", filepath.Base(path))()
	if err := s.fill(data); err != nil {
		return err
	}
	err := unix.Renameat2(unix.AT_FDCWD, s.path, unix.AT_FDCWD, path, unix.RENAME_EXCHANGE)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.EINVAL) || errors.Is(err, unix.ENOSYS) {
		err = os.Rename(s.path, path)
	}
	if err != nil {
		return err
	}
	_ = s.hold() // on a disk that is full it keeps what it has
	return syncDir(filepath.Dir(path))
}

// fill writes data into the file of the slot. What is too long is cut off first:
// the blocks of what stays are its own and not asked for again.
func (s *slot) fill(data []byte) error {
	f, err := os.OpenFile(s.path, os.O_WRONLY|os.O_CREATE, 0o600)
	if err != nil {
		return err
	}
	info, err := f.Stat()
	if err == nil && info.Size() > int64(len(data)) {
		err = f.Truncate(int64(len(data)))
	}
	if err == nil {
		_, err = f.WriteAt(data, 0)
	}
	if err == nil {
		err = f.Sync()
	}
	return errors.Join(err, f.Close())
}
