package audit

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"syscall"
)

// Walk verifies a journal that is being written in steps, and does not read again
// what it has read: a segment that is full counts as verified for as long as its
// file is the same by all that the file system says of it. What deceives a file
// system is found by Verify, which trusts nothing.
type Walk struct {
	j *Journal

	mu   sync.Mutex
	done []walked // full segments, the oldest first
}

// walked is a segment that was read, and how the journal stood behind it.
type walked struct {
	name string
	file identity
	then verifier
}

// identity is what a file system says of a file. The time of its last change is
// set by the system and by nobody else.
type identity struct {
	device, inode uint64
	size          int64
	modified      syscall.Timespec
	changed       syscall.Timespec
}

// NewWalk begins a walk through j.
func NewWalk(j *Journal) *Walk { return &Walk{j: j} }

// Step goes on where the step before ended, reads at least bytes of the journal if
// there are as many, and reports what is known by then. Whole says that this is all
// of it. The segment that grows is read in each step that comes to it.
func (w *Walk) Step(bytes int64, anchors ...Head) (r Report, whole bool, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	end := w.j.end()
	names, err := w.j.segments(end)
	if err != nil {
		return Report{}, false, err
	}
	if err := w.keep(names); err != nil {
		return Report{}, false, err
	}
	v := w.behind()
	anchors, err = w.met(&v, append(anchors, end.head))
	if err != nil || v.Bad != nil {
		return v.Report, true, err
	}
	for i := len(w.done); i < len(names); i++ {
		last := i == len(names)-1
		if bytes <= 0 && !last {
			return v.Report, false, nil
		}
		v.expect(anchors)
		file, err := w.identify(names[i])
		if err == nil {
			err = v.segment(w.j.dir, names[i], last, limits{end.segment: end.size})
		}
		if err != nil || v.Bad != nil {
			return v.Report, true, err
		}
		if bytes -= file.size; !last {
			then := v
			then.anchors = nil
			w.done = append(w.done, walked{names[i], file, then})
		}
	}
	v.expect(anchors)
	v.ended()
	return v.Report, true, nil
}

// keep forgets what was read of segments that are not what they were. A segment
// that was archived is among them, and the walk begins anew.
func (w *Walk) keep(names []string) error {
	for i, d := range w.done {
		same := i < len(names) && names[i] == d.name
		if same {
			file, err := w.identify(d.name)
			if err != nil && !errors.Is(err, os.ErrNotExist) {
				return err
			}
			same = err == nil && file == d.file
		}
		if !same {
			w.done = w.done[:i]
			if i < len(names) && names[i] != d.name {
				w.done = nil // numbers before it count from another beginning
			}
			return nil
		}
	}
	return nil
}

// behind is how the journal stands behind what was read.
func (w *Walk) behind() verifier {
	if n := len(w.done); n > 0 {
		return w.done[n-1].then
	}
	return verifier{}
}

// met looks for anchors in what was read before, and returns the others.
func (w *Walk) met(v *verifier, anchors []Head) (ahead []Head, err error) {
	for _, a := range anchors {
		if a.Seq > v.Head.Seq {
			ahead = append(ahead, a)
			continue
		}
		there, err := w.j.Holds(a)
		if err != nil {
			return nil, err
		}
		if !there {
			v.bad("", 0, fmt.Sprintf("entry %d is not the one that was recorded: its hash is not the one that was kept outside of the journal", a.Seq))
		}
	}
	return ahead, nil
}

// expect has v look for those anchors that it has not met yet.
func (v *verifier) expect(anchors []Head) {
	v.anchors = map[uint64]Head{}
	for _, a := range anchors {
		if a.Seq > v.Head.Seq {
			v.anchors[a.Seq] = a
		}
	}
}

func (w *Walk) identify(name string) (identity, error) {
	info, err := os.Stat(filepath.Join(w.j.dir, name))
	if err != nil {
		return identity{}, err
	}
	s, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return identity{}, fmt.Errorf("nothing is known of the file %s", name)
	}
	return identity{s.Dev, s.Ino, s.Size, s.Mtim, s.Ctim}, nil
}
