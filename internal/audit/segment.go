package audit

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

const segmentSuffix = ".jsonl"

// segmentName is the name of the segment that begins with the entry first. In
// the order of names segments are in the order of time.
func segmentName(first uint64) string { return fmt.Sprintf("%020d%s", first, segmentSuffix) }

// firstOf is the number of the first entry of a segment, by its name.
func firstOf(name string) (uint64, bool) {
	digits, ok := strings.CutSuffix(name, segmentSuffix)
	if !ok || len(digits) != 20 {
		return 0, false
	}
	n, err := strconv.ParseUint(digits, 10, 64)
	return n, err == nil && n > 0
}

// segmentsIn lists the segments of a log, the oldest first. It ignores other files.
func segmentsIn(dir string) ([]string, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	var names []string
	for _, e := range entries {
		if _, ok := firstOf(e.Name()); ok && e.Type().IsRegular() {
			names = append(names, e.Name())
		}
	}
	slices.Sort(names)
	return names, nil
}

// hashOf is the hash of a line without its end, which the next line holds.
func hashOf(line []byte) string {
	sum := sha256.Sum256(line)
	return hex.EncodeToString(sum[:])
}

// lineBytes bounds a line. Entries are far shorter.
const lineBytes = 1 << 20

var errLong = errors.New("the line is longer than any entry")

// lines reads lines forwards, without their ends.
type lines struct {
	r *bufio.Reader
}

func readLines(r io.Reader) lines { return lines{bufio.NewReaderSize(r, 64<<10)} }

// next returns the next line. One that has no end is returned with whole false;
// after the last one comes io.EOF.
func (l lines) next() (line []byte, whole bool, err error) {
	for {
		part, err := l.r.ReadSlice('\n')
		line = append(line, part...)
		switch {
		case err == nil:
			return line[:len(line)-1], true, nil
		case len(line) > lineBytes:
			return nil, false, errLong
		case err == bufio.ErrBufferFull:
		case err == io.EOF && len(line) > 0:
			return line, false, nil
		default:
			return nil, false, err
		}
	}
}

// recover finds the end of the log, removes an interrupted line, and returns the
// entries about that.
func (j *Log) recover() (notes []Entry, err error) {
	j.quota = newQuota()
	names, err := segmentsIn(j.dir)
	if err != nil {
		return nil, err
	}
	if len(names) == 0 {
		return nil, j.begin(1)
	}
	last := len(names) - 1
	end := tail{segment: names[last]}
	first, _ := firstOf(end.segment)
	end.head.Seq = first - 1
	for _, name := range names[max(0, last-1):] {
		at, err := j.load(name)
		if err != nil {
			return nil, err
		}
		if at.lines > 0 {
			end.head = at.head
		}
		if name != end.segment {
			if at.torn > 0 {
				notes = append(notes, damaged(name, "its last line is incomplete"))
			}
			continue
		}
		end.size = at.size
		if at.torn > 0 {
			notes = append(notes, Entry{What: LogCut, Via: ViaController, Why: "the last line was incomplete, because Terrier ended while writing it, and was removed; it was never confirmed as recorded",
				Details: map[string]string{"segment": name, "bytes": strconv.FormatInt(at.torn, 10)}})
		}
	}
	report, err := verify(j.dir, names[max(0, last-1):], limits{end.segment: end.size}, nil)
	if err != nil {
		return nil, err
	}
	if b := report.Bad; b != nil {
		notes = append(notes, damaged(b.Segment, b.Error()))
	}
	if j.file, err = os.OpenFile(filepath.Join(j.dir, end.segment), os.O_WRONLY, 0); err != nil {
		return nil, err
	}
	j.tail = end
	return notes, j.truncate()
}

// damaged is the entry about a changed segment, which is recorded once.
func damaged(segment, why string) Entry {
	return Entry{What: LogDamaged, Via: ViaController, ID: "damaged/" + segment + "/" + hashOf([]byte(why))[:16], Why: why, Details: map[string]string{"segment": segment}}
}

// loaded describes the content of one segment.
type loaded struct {
	lines int
	head  Head
	size  int64 // up to the end of the last whole line
	torn  int64 // bytes after it
}

// load reads a segment to its end, with its IDs.
func (j *Log) load(name string) (loaded, error) {
	f, err := os.Open(filepath.Join(j.dir, name))
	if err != nil {
		return loaded{}, err
	}
	defer f.Close()
	var at loaded
	first, _ := firstOf(name)
	for l := readLines(f); ; {
		line, whole, err := l.next()
		if err == io.EOF {
			return at, nil
		}
		if err != nil {
			return at, fmt.Errorf("reading %s: %w", name, err)
		}
		if !whole {
			at.torn = int64(len(line))
			return at, nil
		}
		at.size += int64(len(line)) + 1
		// A line that cannot be read keeps its place: the chain continues after it, and
		// Verify names it.
		at.head.Seq, at.head.Hash = first+uint64(at.lines), hashOf(line)
		var e Entry
		if json.Unmarshal(line, &e) == nil {
			if e.At.After(at.head.At) {
				at.head.At = e.At
			}
			j.ids.add(e.ID)
			j.quota.read(e)
		}
		at.lines++
	}
}

// recentIDs is how many IDs are kept. An action is recorded again if a crash came
// between its entry and its effect, so that its entry is one of the last few.
const recentIDs = 20000

// recent is a set of the newest IDs.
type recent struct {
	in    map[string]bool
	order []string // a ring
	next  int
}

func newRecent() recent { return recent{in: map[string]bool{}} }

func (r *recent) add(id string) {
	if id == "" || r.in[id] {
		return
	}
	r.in[id] = true
	if len(r.order) < recentIDs {
		r.order = append(r.order, id)
		return
	}
	delete(r.in, r.order[r.next])
	r.order[r.next] = id
	r.next = (r.next + 1) % recentIDs
}

// Bounds of what an entry may hold; the rest is cut off.
const (
	wordBytes    = 300
	textBytes    = 2000
	detailsAtAll = 32
)

// clip bounds an entry.
func clip(e Entry) Entry {
	for _, s := range []*string{&e.ID, &e.Who, &e.Claimed, &e.Object.Kind, &e.Object.Namespace, &e.Object.Name, &e.Object.UID, &e.Plan, &e.Digest, &e.Run, &e.Outcome} {
		*s = cut(*s, wordBytes)
	}
	e.Comment, e.Why = cut(e.Comment, textBytes), cut(e.Why, textBytes)
	if len(e.Details) > 0 {
		clipped := map[string]string{}
		for k, v := range e.Details {
			if v != "" && len(clipped) < detailsAtAll {
				clipped[cut(k, wordBytes)] = cut(v, wordBytes)
			}
		}
		e.Details = clipped
	}
	return e
}

// cut shortens s to n bytes, marks that it did, and leaves no half character.
func cut(s string, n int) string {
	if len(s) > n {
		s = strings.ToValidUTF8(s[:n-len("…")], "") + "…"
	}
	return s
}

// stampOf reads the number and the time of a line without decoding the rest.
func stampOf(line []byte) (seq uint64, at string, ok bool) {
	rest, ok := bytes.CutPrefix(line, []byte(`{"seq":`))
	if !ok {
		return 0, "", false
	}
	digits, rest, ok := bytes.Cut(rest, []byte(`,"at":"`))
	if !ok {
		return 0, "", false
	}
	stamp, _, ok := bytes.Cut(rest, []byte(`"`))
	if !ok {
		return 0, "", false
	}
	seq, err := strconv.ParseUint(string(digits), 10, 64)
	return seq, string(stamp), err == nil
}
