package audit

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"syscall"
)

// Walk verifies an open log in steps, and reads each full segment once: the segment
// stays verified while the metadata of its file does not change. Verify, which
// trusts nothing, finds changes that leave the metadata as they were.
type Walk struct {
	j *Log

	mu   sync.Mutex
	done []walked // full segments, the oldest first
}

// walked is a segment that was read, and the verifier after it.
type walked struct {
	name string
	file identity
	then verifier
}

// identity is the metadata of a file. Only the system sets the time of its last
// change.
type identity struct {
	device, inode uint64
	size          int64
	modified      syscall.Timespec
	changed       syscall.Timespec
}

// NewWalk begins a walk through j.
func NewWalk(j *Log) *Walk { return &Walk{j: j} }

// Step continues where the step before ended, reads at least bytes of the log if
// there are as many, and reports the result so far. Whole means that the step
// reached the end. The last segment is read in each step that reaches it.
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

// keep forgets segments that have changed. If the first one was archived the walk
// starts again.
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

// behind is the verifier after the segments that were read.
func (w *Walk) behind() verifier {
	if n := len(w.done); n > 0 {
		return w.done[n-1].then
	}
	return verifier{}
}

// met checks the anchors in the segments that were read before, and returns the
// others.
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
			v.bad("", 0, fmt.Sprintf("entry %d is not the recorded one: its hash differs from the one that is kept outside of the audit log", a.Seq))
		}
	}
	return ahead, nil
}

// expect sets the anchors that v has not reached yet.
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
		return identity{}, fmt.Errorf("the system gives no metadata of the file %s", name)
	}
	return identity{s.Dev, s.Ino, s.Size, s.Mtim, s.Ctim}, nil
}
