package plan

import (
	"bytes"
	"encoding/binary"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
)

// The shortest texts that are looked for. Shorter ones stand everywhere by
// chance; hiding them would hide the log and not the secret.
const (
	minValue = 4 // a whole secret value
	minLine  = 8 // one line of a secret of several lines
	minShort = 2 // a secret value that is the whole of a text in JSON
)

// isShort reports whether a value is hidden only where it is the whole of a text
// that a document holds as a value.
func isShort(v string) bool { return len(v) >= minShort && len(v) < minValue }

// Redactor hides known secret values in text, in the forms in which they are
// likely to turn up: as they are, escaped for JSON, in base64, in a URL, and
// line by line. A Redactor may be used by several goroutines.
type Redactor struct {
	// needles by their first four bytes, longest first; seen has one bit for each
	// hash of those bytes, so that most positions cost one test.
	needles map[uint32][][]byte
	seen    [1 << 10]uint64
	longest int
	shorts  map[string]bool // values that are too short to be looked for in a text

	values, prefixes []string                 // all of them
	tails            map[string]bool          // needles that hide what follows, too: see LearnPrefix
	later            atomic.Pointer[Redactor] // takes the place of this one: it hides what was learned since
	learn            sync.Mutex
}

// NewRedactor returns a Redactor for values. The words true, false and null are
// not hidden; values of two and three bytes only where they are the whole of a
// value in JSON; values of one byte never.
func NewRedactor(values []string) *Redactor { return newRedactor(values, nil) }

func newRedactor(values, prefixes []string) *Redactor {
	r := &Redactor{needles: map[uint32][][]byte{}, shorts: map[string]bool{}, values: slices.Clone(values), prefixes: slices.Clone(prefixes), tails: map[string]bool{}}
	known := map[string]bool{}
	for _, v := range values {
		if isShort(v) {
			r.shorts[v] = true
		}
		for _, form := range forms(v) {
			if len(form) >= minValue && !known[form] {
				known[form] = true
				r.add(form)
			}
		}
	}
	for _, p := range prefixes {
		if r.tails[p] = true; !known[p] {
			known[p] = true
			r.add(p)
		}
		r.longest = max(r.longest, maxToken)
	}
	for _, n := range r.needles {
		slices.SortFunc(n, func(a, b []byte) int { return len(b) - len(a) })
	}
	return r
}

// Learn hides further values from now on, wherever the Redactor is in use. Those that it
// knows already cost nothing.
func (r *Redactor) Learn(values ...string) {
	r.learn.Lock()
	defer r.learn.Unlock()
	now := r.newest()
	if all := union(now.values, values); len(all) > len(now.values) {
		r.later.Store(newRedactor(all, now.prefixes))
	}
}

// LearnPrefix hides from now on every token that begins so, known or not: it ends where a
// character comes that no JSON Web Token has.
func (r *Redactor) LearnPrefix(prefixes ...string) {
	r.learn.Lock()
	defer r.learn.Unlock()
	now := r.newest()
	prefixes = slices.DeleteFunc(slices.Clone(prefixes), func(p string) bool { return len(p) < minLine })
	if all := union(now.prefixes, prefixes); len(all) > len(now.prefixes) {
		r.later.Store(newRedactor(now.values, all))
	}
}

// maxToken is the longest token that is found by its prefix in a text that arrives in pieces.
const maxToken = 8 << 10

func union(old, more []string) []string {
	all := slices.Clone(old)
	for _, v := range more {
		if !slices.Contains(all, v) {
			all = append(all, v)
		}
	}
	return all
}

// tail is how much of b a token continues for.
func tail(b []byte) int {
	n := 0
	for n < len(b) && n < maxToken && (b[n] == '.' || b[n] == '-' || b[n] == '_' || '0' <= b[n] && b[n] <= '9' || 'a' <= b[n] && b[n] <= 'z' || 'A' <= b[n] && b[n] <= 'Z') {
		n++
	}
	return n
}

// newest is what hides all that was learned. Only the Redactor that NewRedactor returned to
// its caller has one.
func (r *Redactor) newest() *Redactor {
	if r == nil {
		return nil
	}
	if later := r.later.Load(); later != nil {
		return later
	}
	return r
}

func (r *Redactor) add(needle string) {
	b := []byte(needle)
	k := binary.LittleEndian.Uint32(b)
	r.needles[k] = append(r.needles[k], b)
	r.mark(k)
	r.longest = max(r.longest, len(b))
}

// String returns s with every known value replaced by Mask.
func (r *Redactor) String(s string) string {
	r = r.newest()
	if r == nil || len(s) < minValue || r.longest == 0 {
		return s
	}
	return string(r.Redact([]byte(s)))
}

// Redact returns b with every known value replaced by Mask. It returns b
// itself if there is nothing to hide. For JSON use RedactJSON: a value that is
// a number would leave a document that cannot be read.
func (r *Redactor) Redact(b []byte) []byte {
	r = r.newest()
	first := r.index(b)
	if first < 0 {
		return b
	}
	var out bytes.Buffer
	out.Grow(len(b))
	out.Write(b[:first])
	r.replace(&out, b[first:], true)
	return out.Bytes()
}

// replace writes b with its values replaced and returns how much of b it has
// dealt with: all of it if b is the end of the text, otherwise up to where a
// value might begin whose end is still to come.
func (r *Redactor) replace(out *bytes.Buffer, b []byte, end bool) int {
	i := 0
	for i < len(b) {
		if !end && len(b)-i < r.longest {
			break
		}
		if n := r.match(b[i:]); n > 0 {
			out.WriteString(Mask)
			i += n
			continue
		}
		out.WriteByte(b[i])
		i++
	}
	return i
}

// index returns where the first value in b begins, or -1.
func (r *Redactor) index(b []byte) int {
	if r == nil || r.longest == 0 {
		return -1
	}
	for i := 0; i+minValue <= len(b); i++ {
		if r.match(b[i:]) > 0 {
			return i
		}
	}
	return -1
}

// match returns the length of the longest value that b begins with, or 0.
func (r *Redactor) match(b []byte) int {
	if r == nil || len(b) < minValue {
		return 0
	}
	k := binary.LittleEndian.Uint32(b)
	if !r.marked(k) {
		return 0
	}
	for _, n := range r.needles[k] {
		if !bytes.HasPrefix(b, n) {
			continue
		}
		if len(r.tails) > 0 && r.tails[string(n)] {
			return len(n) + tail(b[len(n):])
		}
		return len(n)
	}
	return 0
}

func (r *Redactor) mark(k uint32) {
	h := slot(k)
	r.seen[h/64] |= 1 << (h % 64)
}

func (r *Redactor) marked(k uint32) bool {
	h := slot(k)
	return r.seen[h/64]&(1<<(h%64)) != 0
}

// slot spreads keys over the 65,536 bits of seen.
func slot(k uint32) uint32 { return k * 2654435761 >> 16 }

// lines returns the lines of a secret of several lines that are worth hiding
// on their own: text is often printed indented or cut at a line.
func lines(v string) []string {
	if !strings.Contains(v, "\n") {
		return nil
	}
	var out []string
	for line := range strings.Lines(v) {
		if line = strings.TrimSpace(line); len(line) >= minLine {
			out = append(out, line)
		}
	}
	return out
}
