package audit

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
)

// Error names the place and the mismatch.
func (b Bad) Error() string {
	if b.Line == 0 {
		return b.Segment + ": " + b.What
	}
	return fmt.Sprintf("%s, line %d (entry %d): %s", b.Segment, b.Line, b.Seq, b.What)
}

// Verify reads a whole log and checks that it was not changed: each line, their
// order, their numbers, their hashes, and that each of anchors, the heads that were
// kept elsewhere, is in it. It changes nothing and takes no lock; an open log is
// verified by its Log.
func Verify(dir string, anchors ...Head) (Report, error) {
	names, err := segmentsIn(dir)
	if err != nil {
		return Report{}, fmt.Errorf("reading the audit log: %w", err)
	}
	return verify(dir, names, nil, anchors)
}

// Verify is the function of that name for an open log.
func (j *Log) Verify(anchors ...Head) (Report, error) {
	end := j.end()
	names, err := j.segments(end)
	if err != nil {
		return Report{}, err
	}
	return verify(j.dir, names, limits{end.segment: end.size}, append(slices.Clone(anchors), end.head))
}

// segments are those up to an end.
func (j *Log) segments(end tail) ([]string, error) {
	names, err := segmentsIn(j.dir)
	if err != nil {
		return nil, fmt.Errorf("reading the audit log: %w", err)
	}
	if i := slices.IndexFunc(names, func(name string) bool { return name > end.segment }); i >= 0 {
		names = names[:i] // begun since
	}
	return names, nil
}

// limits are sizes up to which segments are read; others are read to their ends.
type limits map[string]int64

// verifier verifies a log.
type verifier struct {
	Report
	anchors map[uint64]Head
	prev    string
	known   bool // prev is the hash of the line before; otherwise that line is archived
}

func verify(dir string, names []string, sizes limits, anchors []Head) (Report, error) {
	v := &verifier{anchors: map[uint64]Head{}}
	for _, a := range anchors {
		if a.Seq > 0 {
			v.anchors[a.Seq] = a
		}
	}
	for i, name := range names {
		if err := v.segment(dir, name, i == len(names)-1, sizes); err != nil {
			return v.Report, err
		}
		if v.Bad != nil {
			return v.Report, nil
		}
	}
	v.ended()
	return v.Report, nil
}

// ended checks the anchors at the end of a log.
func (v *verifier) ended() {
	for _, a := range v.anchors { // without those that were met
		switch {
		case a.Seq > v.Head.Seq:
			v.bad("", 0, fmt.Sprintf("the end is missing: entry %d was recorded, and the last one here is %d", a.Seq, v.Head.Seq))
		case a.Seq < v.First:
			// It was archived, and is verified there.
		}
	}
}

func (v *verifier) bad(segment string, line int, what string) {
	if v.Bad == nil {
		if segment == "" {
			segment = "the audit log"
		}
		v.Bad = &Bad{Segment: segment, Line: line, Seq: v.Head.Seq + 1, What: what}
	}
}

func (v *verifier) segment(dir, name string, last bool, sizes limits) error {
	first, _ := firstOf(name)
	if v.Segments == 0 {
		// The first segment: those before it may have been archived.
		v.First, v.Head.Seq, v.known = first, first-1, first == 1
	} else if first != v.Head.Seq+1 {
		v.bad(name, 0, fmt.Sprintf("it should begin with entry %d: a segment before it is missing, or was added", v.Head.Seq+1))
		return nil
	}
	v.Segments++
	f, err := os.Open(filepath.Join(dir, name))
	if err != nil {
		return err
	}
	defer f.Close()
	var r io.Reader = f
	if size, ok := sizes[name]; ok {
		if info, err := f.Stat(); err != nil {
			return err
		} else if info.Size() < size {
			v.bad(name, 0, fmt.Sprintf("its end is missing: it has %d bytes, of %d that were written", info.Size(), size))
			return nil
		}
		r = io.LimitReader(f, size)
	}
	l := readLines(r)
	n := 0
	for ; v.Bad == nil; n++ {
		line, whole, err := l.next()
		switch {
		case err == io.EOF:
			if n == 0 && !last {
				v.bad(name, 0, "it is empty, and is not the last one")
			}
			return nil
		case errors.Is(err, errLong):
			v.bad(name, n+1, errLong.Error())
		case err != nil:
			return fmt.Errorf("reading %s: %w", name, err)
		case !whole:
			v.bad(name, n+1, "it is incomplete; if Terrier ended while writing it, the next start removes it and records that")
		default:
			v.line(name, n+1, line)
		}
	}
	return nil
}

// line verifies one line.
func (v *verifier) line(segment string, n int, line []byte) {
	var e Entry
	err := json.Unmarshal(line, &e)
	hash := hashOf(line)
	want := v.Head.Seq + 1
	switch {
	case err != nil:
		v.bad(segment, n, "it is no entry: "+err.Error())
		return
	case e.Seq != want:
		v.bad(segment, n, fmt.Sprintf("it has the number %d where %d belongs: lines were removed, added or moved", e.Seq, want))
		return
	case v.known && e.Prev != v.prev, !v.known && e.Prev == "":
		v.bad(segment, n, "it does not follow the line before it: one of the two was changed")
		return
	case e.At.Before(v.Head.At):
		v.bad(segment, n, "it is older than the line before it")
		return
	}
	if a, ok := v.anchors[e.Seq]; ok {
		if a.Hash != hash {
			v.bad(segment, n, "it is not the recorded entry: its hash differs from the one that is kept outside of the audit log")
			return
		}
		delete(v.anchors, e.Seq)
	}
	v.Entries++
	v.Head, v.prev, v.known = Head{Seq: e.Seq, Hash: hash, At: e.At}, hash, true
}

// Holds reports whether h is an entry of the log, unchanged since h was its head.
func (j *Log) Holds(h Head) (bool, error) {
	end := j.end()
	if h.Seq == 0 || h.Seq > end.head.Seq {
		return h.Seq == 0, nil
	}
	names, err := segmentsIn(j.dir)
	if err != nil {
		return false, err
	}
	i, found := slices.BinarySearch(names, segmentName(h.Seq))
	if !found {
		i--
	}
	if i < 0 {
		return true, nil // it was archived, and is verified there
	}
	f, err := os.Open(filepath.Join(j.dir, names[i]))
	if err != nil {
		return false, err
	}
	defer f.Close()
	first, _ := firstOf(names[i])
	for l := readLines(f); ; first++ {
		line, whole, err := l.next()
		if err != nil || !whole {
			return false, ignoreEOF(err)
		}
		if first == h.Seq {
			return hashOf(line) == h.Hash, nil
		}
	}
}

func ignoreEOF(err error) error {
	if err == io.EOF {
		return nil
	}
	return err
}
