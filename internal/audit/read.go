package audit

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// Bounds of one answer.
const (
	entriesAsked = 100     // by default
	entriesAtAll = 1000    // at most
	linesAtAll   = 200_000 // read for one answer
)

// Read finds entries, the newest first, without reading more of the log than
// needed. A query that few entries match may get an incomplete page; Next then says
// where to continue.
func (j *Log) Read(q Query) (Page, error) {
	end := j.end()
	return read(j.dir, limits{end.segment: end.size}, q)
}

// Since returns the entries of an open log that come after the entry with the number seq, are not
// older than since, and are any of what, the oldest first. Last is the number of the newest entry
// of all. The error is Later if the log is not open.
func (j *Log) Since(seq uint64, since time.Time, what ...What) (entries []Entry, last uint64, err error) {
	j.writing.Lock()
	isOpen, end := j.file != nil, j.end()
	j.writing.Unlock()
	if !isOpen {
		return nil, 0, errClosed
	}
	q := Query{After: seq, Since: since, What: what, Before: end.head.Seq + 1, Limit: entriesAtAll}
	for q.Before > seq+1 {
		page, err := read(j.dir, limits{end.segment: end.size}, q)
		if err != nil {
			return nil, 0, err
		}
		entries = append(entries, page.Items...)
		if q.Before = page.Next; q.Before == 0 {
			break
		}
	}
	slices.Reverse(entries)
	return entries, end.head.Seq, nil
}

// Read is the method of that name for a log that is not open.
func Read(dir string, q Query) (Page, error) { return read(dir, nil, q) }

func read(dir string, sizes limits, q Query) (Page, error) {
	names, err := segmentsIn(dir)
	if err != nil {
		return Page{}, fmt.Errorf("reading the audit log: %w", err)
	}
	s := newSearch(q)
	for i := len(names) - 1; i >= 0 && !s.full; i-- {
		if first, _ := firstOf(names[i]); q.Before > 0 && first >= q.Before {
			continue
		}
		if err := s.segment(dir, names[i], sizes); err != nil {
			return Page{}, err
		}
	}
	page := Page{Items: s.found}
	if s.full && s.last > 1 {
		page.Next = s.last
	}
	return page, nil
}

// search reads a log backwards.
type search struct {
	q     Query
	must  [][]byte // texts that each line has to contain
	words []string
	found []Entry
	seen  int
	last  uint64 // number of the last entry that was read
	full  bool   // no more are read
}

func newSearch(q Query) *search {
	switch {
	case q.Limit <= 0:
		q.Limit = entriesAsked
	case q.Limit > entriesAtAll:
		q.Limit = entriesAtAll
	}
	s := &search{q: q, words: strings.Fields(strings.ToLower(q.Text)), found: []Entry{}}
	// Most lines are skipped without being decoded.
	for _, v := range []string{q.Who, q.Namespace, q.Stack, string(q.Via)} {
		if v != "" {
			quoted, _ := json.Marshal(v) // a string can be marshalled
			s.must = append(s.must, quoted)
		}
	}
	return s
}

func (s *search) segment(dir, name string, sizes limits) error {
	f, err := os.Open(filepath.Join(dir, name))
	if errors.Is(err, fs.ErrNotExist) {
		return nil // archived in the meantime
	}
	if err != nil {
		return err
	}
	defer f.Close()
	size, counts := sizes[name]
	if !counts {
		info, err := f.Stat()
		if err != nil {
			return err
		}
		size = info.Size()
	}
	return backwards(f, size, func(line []byte) bool {
		s.line(line)
		return !s.full
	})
}

// line adds a line if it matches the query.
func (s *search) line(line []byte) {
	seq, at, ok := stampOf(line)
	if ok && s.q.Before > 0 && seq >= s.q.Before {
		return
	}
	if ok && seq <= s.q.After {
		s.full, s.last = true, 0
		return
	}
	if ok {
		s.last = seq
	} else if s.last > 0 {
		s.last-- // it keeps its place
	}
	if s.seen++; s.seen >= linesAtAll || s.q.Enough != nil && s.q.Enough() {
		s.full = true // this line still counts, so that each page gets further
	}
	if !s.q.Since.IsZero() && ok {
		// Entries are in the order of time.
		if t, err := time.Parse(time.RFC3339Nano, at); err == nil && t.Before(s.q.Since) {
			s.full, s.last = true, 0
			return
		}
	}
	if slices.ContainsFunc(s.must, func(m []byte) bool { return !bytes.Contains(line, m) }) {
		return
	}
	var e Entry
	if err := json.Unmarshal(line, &e); err == nil {
		e.What = e.What.renamed()
	} else {
		e = Entry{Seq: s.last, What: Unreadable, Why: "the line was changed; terrier audit verify names the place"}
	}
	if s.matches(&e) && (s.q.Seen == nil || s.q.Seen(e.Object.Namespace, e.At)) {
		s.found = append(s.found, e)
		s.full = s.full || len(s.found) == s.q.Limit
	}
}

// byUser reports whether a user did it, known or not: a program wrote it for the user. It is so of the
// sum of what a user did, too.
func (e *Entry) byUser() bool {
	return (e.Via != ViaController || e.What == SummedUp) && (e.Who != "" || e.Claimed != "" || e.Details["manager"] != "")
}

func (s *search) matches(e *Entry) bool {
	q := &s.q
	switch {
	case !q.Since.IsZero() && e.At.Before(q.Since), !q.Until.IsZero() && !e.At.Before(q.Until),
		q.Who != "" && e.Who != q.Who, q.Via != "" && e.Via != q.Via, q.ByUsers && !e.byUser(),
		len(q.What) > 0 && !slices.ContainsFunc(q.What, func(w What) bool { return w.renamed() == e.What }),
		q.Namespace != "" && e.Object.Namespace != q.Namespace, q.Stack != "" && e.Object.Name != q.Stack,
		q.Kind != nil && (!e.Object.IsStack() || e.Object.Word() != *q.Kind):
		return false
	case len(s.words) == 0:
		return true
	}
	text := strings.ToLower(e.text())
	return !slices.ContainsFunc(s.words, func(w string) bool { return !strings.Contains(text, w) })
}

// text is the searchable text of an entry.
func (e *Entry) text() string {
	parts := []string{e.Who, e.Claimed, string(e.What), e.Object.Kind, e.Object.Namespace + "/" + e.Object.Name, e.Plan, e.Digest, e.Run, e.Outcome, e.Comment, e.Why}
	for _, v := range e.Details {
		parts = append(parts, v)
	}
	return strings.Join(parts, "\n")
}

// chunk is how much of a file is read at once.
const chunk = 64 << 10

// backwards calls do with each whole line of the first size bytes of f, the last
// one first, until it returns false. Lines are without their ends, and are do's
// only until it returns.
func backwards(f io.ReaderAt, size int64, do func(line []byte) bool) error {
	var rest []byte // the beginning of what was read, whose line begins before it
	ended := false  // rest ends with the end of a line, which is taken off
	for size > 0 {
		n := min(size, chunk)
		block := make([]byte, n, n+int64(len(rest)))
		if _, err := f.ReadAt(block, size-n); err != nil && err != io.EOF {
			return err
		}
		size -= n
		block = append(block, rest...)
		if len(block) > lineBytes+2*chunk {
			return errLong
		}
		for {
			i := bytes.LastIndexByte(block, '\n')
			if i < 0 {
				break
			}
			if ended && !do(block[i+1:]) {
				return nil
			}
			block, ended = block[:i], true
		}
		rest = block
	}
	if ended {
		do(rest)
	}
	return nil
}
