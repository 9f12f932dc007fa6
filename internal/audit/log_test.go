package audit

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/terrier-iac/terrier/internal/fault"
)

// helper makes the test binary a program that writes an audit log.
const helper = "TERRIER_AUDIT_TEST"

func TestMain(m *testing.M) {
	switch os.Getenv(helper) {
	case "":
		os.Exit(m.Run())
	case "endless":
		writeEndlessly(os.Args[1])
	case "cramped":
		writeCramped(os.Args[1])
	}
}

// clock goes on by a second each time it is asked.
func clock() func() time.Time {
	var mu sync.Mutex
	at := time.Date(2026, 11, 28, 9, 0, 0, 0, time.UTC)
	return func() time.Time {
		mu.Lock()
		defer mu.Unlock()
		at = at.Add(time.Second)
		return at
	}
}

func open(t testing.TB, dir string, segment int64) *Log {
	t.Helper()
	j, err := Open(dir, Options{Now: clock(), SegmentBytes: segment})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = j.Close() }) // most tests close it earlier
	return j
}

func record(t testing.TB, j *Log, entries ...Entry) {
	t.Helper()
	for _, e := range entries {
		if err := j.Record(t.Context(), e); err != nil {
			t.Fatal(err)
		}
	}
}

// sound fails the test unless the audit log in dir is whole, and returns the report.
func sound(t testing.TB, dir string, anchors ...Head) Report {
	t.Helper()
	r, err := Verify(dir, anchors...)
	if err != nil {
		t.Fatal(err)
	}
	if r.Bad != nil {
		t.Fatalf("the audit log is not whole: %v", r.Bad)
	}
	return r
}

func TestAuditLogContinuesWhereItEnded(t *testing.T) {
	dir := t.TempDir()
	j := open(t, dir, 0)
	record(t, j, Entry{What: Approved, Who: "ann"}, Entry{What: Applied})
	head := j.Head()
	if err := j.Close(); err != nil {
		t.Fatal(err)
	}
	if err := j.Record(t.Context(), Entry{What: Applied}); fault.Reason(err, "") != "AuditLogClosed" {
		t.Errorf("Record() after Close() = %v, want AuditLogClosed", err)
	}
	j = open(t, dir, 0)
	if got := j.Head(); got != head {
		t.Errorf("Head() = %+v, want %+v", got, head)
	}
	record(t, j, Entry{What: Rejected})
	if r := sound(t, dir, head, j.Head()); r.Entries != 3 || r.Segments != 1 || r.First != 1 {
		t.Errorf("Verify() = %+v, want three entries in one segment", r)
	}
	if r, err := j.Verify(head); err != nil || r.Bad != nil || r.Head.Seq != 3 {
		t.Errorf("Verify() while it is open = %+v %v, want no fault and three entries", r, err)
	}
}

func TestSegments(t *testing.T) {
	dir := t.TempDir()
	j := open(t, dir, 300)
	for i := range 20 {
		record(t, j, Entry{What: Planned, Plan: fmt.Sprint("plan-", i)})
	}
	if r := sound(t, dir, j.Head()); r.Entries != 20 || r.Segments < 5 {
		t.Errorf("Verify() = %+v, want twenty entries in several segments", r)
	}
	names, err := segmentsIn(dir)
	if err != nil {
		t.Fatal(err)
	}
	// The oldest may be moved away; what is left is whole, and says where it begins.
	for _, n := range names[:2] {
		if err := os.Remove(filepath.Join(dir, n)); err != nil {
			t.Fatal(err)
		}
	}
	first, _ := firstOf(names[2])
	if r := sound(t, dir, j.Head()); r.First != first || r.Entries != 21-first {
		t.Errorf("Verify() without the oldest = %+v, want it to begin with %d", r, first)
	}
}

// A deed is recorded once, however often it is told, also by a program that was
// started again meanwhile.
func TestDeedsAreRecordedOnce(t *testing.T) {
	dir := t.TempDir()
	j := open(t, dir, 200)
	e := Entry{What: Applied, ID: "1/applied/apply-1"}
	record(t, j, e, e, Entry{What: Planned}, Entry{What: Planned}, e)
	if err := j.Close(); err != nil {
		t.Fatal(err)
	}
	j = open(t, dir, 200)
	record(t, j, e)
	if r := sound(t, dir); r.Entries != 3 {
		t.Errorf("there are %d entries, want 3", r.Entries)
	}
}

func TestSecondWriterIsRefused(t *testing.T) {
	dir := t.TempDir()
	open(t, dir, 0)
	if _, err := Open(dir, Options{Now: clock()}); fault.Of(err) != fault.Conflict {
		t.Errorf("Open() of an open audit log = %v, want a Conflict", err)
	}
}

func TestTornLineIsTakenOff(t *testing.T) {
	for name, tail := range map[string]string{
		"half a line":           `{"seq":3,"at":"20`,
		"a line without an end": `{"seq":3,"at":"2026-11-28T09:00:03Z","what":"applied","prev":""}`,
		"zeros":                 strings.Repeat("\x00", 4096),
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			j := open(t, dir, 0)
			record(t, j, Entry{What: Planned}, Entry{What: Applied})
			if err := j.Close(); err != nil {
				t.Fatal(err)
			}
			add(t, filepath.Join(dir, segmentName(1)), tail)
			if r, err := Verify(dir); err != nil || r.Bad == nil || r.Bad.Seq != 3 {
				t.Errorf("Verify() = %+v %v, want the third entry to be wrong", r, err)
			}
			j = open(t, dir, 0)
			sound(t, dir, j.Head())
			page, err := j.Read(Query{})
			if err != nil {
				t.Fatal(err)
			}
			if got := whats(page.Items); !cmp.Equal(got, []What{LogCut, Applied, Planned}) {
				t.Errorf("the audit log holds %v, want the cut to be told last", got)
			}
			if got := page.Items[0].Details["bytes"]; got != fmt.Sprint(len(tail)) {
				t.Errorf("it says that %s bytes were cut, want %d", got, len(tail))
			}
		})
	}
}

// A change while the log was closed is reported, and writing continues after it.
func TestDamageIsTold(t *testing.T) {
	dir := t.TempDir()
	j := open(t, dir, 0)
	record(t, j, Entry{What: Planned}, Entry{What: Applied}, Entry{What: Planned})
	if err := j.Close(); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, segmentName(1))
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(strings.Replace(string(text), "applied", "approved", 1)), 0o600); err != nil {
		t.Fatal(err)
	}
	for range 2 { // told once, however often it is opened
		j = open(t, dir, 0)
		page, err := j.Read(Query{})
		if err != nil {
			t.Fatal(err)
		}
		if got := whats(page.Items); !cmp.Equal(got, []What{LogDamaged, Planned, Approved, Planned}) {
			t.Errorf("the audit log holds %v", got)
		}
		if err := j.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if r, err := Verify(dir); err != nil || r.Bad == nil || r.Bad.Line != 3 {
		t.Errorf("Verify() = %+v %v, want the third line not to follow", r, err)
	}
}

// Nothing is written after a foreign change of an open log.
func TestChangedUnderTheWriter(t *testing.T) {
	for name, change := range map[string]func(path string) error{
		"more":  func(p string) error { return os.WriteFile(p, []byte("{}\n"), 0o600) },
		"less":  func(p string) error { return os.Truncate(p, 10) },
		"moved": func(p string) error { return os.Rename(p, p+".old") },
		"another file": func(p string) error {
			text, err := os.ReadFile(p)
			return errors.Join(err, os.Remove(p), os.WriteFile(p, text, 0o600))
		},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			j := open(t, dir, 0)
			record(t, j, Entry{What: Planned})
			path := filepath.Join(dir, segmentName(1))
			if name == "another file" {
				// An inode that is free may be taken again at once.
				keep, err := os.Open(path)
				if err != nil {
					t.Fatal(err)
				}
				defer keep.Close()
			}
			if err := change(path); err != nil {
				t.Fatal(err)
			}
			if err := j.Record(t.Context(), Entry{What: Applied}); fault.Reason(err, "") != "AuditLogUnwritable" {
				t.Errorf("Record() = %v, want AuditLogUnwritable", err)
			}
			if got := j.Head().Seq; got != 1 {
				t.Errorf("the head is %d, want 1", got)
			}
		})
	}
}

func TestConcurrentWriters(t *testing.T) {
	dir := t.TempDir()
	j := open(t, dir, 4096)
	const writers, each = 16, 25
	var wg sync.WaitGroup
	for w := range writers {
		wg.Go(func() {
			for i := range each {
				id := fmt.Sprintf("%d/%d", w, i)
				for range 2 {
					if err := j.Record(t.Context(), Entry{What: Planned, ID: id, Run: id}); err != nil {
						t.Error(err)
					}
				}
				if r, err := j.Read(Query{Text: id, Limit: 1}); err != nil || len(r.Items) != 1 {
					t.Errorf("what was recorded as %s is not there: %v", id, err)
				}
			}
		})
	}
	wg.Wait()
	if r := sound(t, dir, j.Head()); r.Entries != writers*each {
		t.Errorf("there are %d entries, want %d", r.Entries, writers*each)
	}
}

// A clock that is put back does not put entries out of order.
func TestTimeNeverGoesBack(t *testing.T) {
	at := time.Date(2026, 11, 28, 9, 0, 0, 0, time.UTC)
	j, err := Open(t.TempDir(), Options{Now: func() time.Time { at = at.Add(-time.Hour); return at }})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = j.Close() })
	record(t, j, Entry{What: Planned}, Entry{What: Applied})
	if r := sound(t, j.dir); !r.Head.At.Equal(at.Add(time.Hour)) {
		t.Errorf("the last entry is of %v, want the time of the first", r.Head.At)
	}
}

func TestEntriesAreBounded(t *testing.T) {
	j := open(t, t.TempDir(), 0)
	long := strings.Repeat("ä", 1<<20)
	record(t, j, Entry{What: Approved, Who: long, Comment: long, Why: long, Details: map[string]string{long: long, "none": ""}})
	page, err := j.Read(Query{})
	if err != nil {
		t.Fatal(err)
	}
	line, err := json.Marshal(page.Items[0])
	if err != nil || len(line) > 8<<10 {
		t.Errorf("the line has %d bytes (%v), want at most 8 KiB", len(line), err)
	}
	if c := page.Items[0].Comment; !strings.HasSuffix(c, "ä…") {
		t.Errorf("the comment ends in %q, want whole characters and a mark", c[len(c)-8:])
	}
}

// A program that is killed while it writes loses nothing that it was told is
// recorded, and leaves an audit log that is whole after the next start.
func TestKilledWhileWriting(t *testing.T) {
	dir := t.TempDir()
	var told uint64
	for range 5 {
		cmd := exec.CommandContext(t.Context(), os.Args[0], dir)
		cmd.Env = append(os.Environ(), helper+"=endless")
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		lines := bufio.NewScanner(out)
		for n := 0; n < 50 && lines.Scan(); n++ {
			if _, err := fmt.Sscan(lines.Text(), &told); err != nil {
				t.Fatalf("reading %q: %v", lines.Text(), err)
			}
		}
		if err := cmd.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		for lines.Scan() {
			if _, err := fmt.Sscan(lines.Text(), &told); err != nil {
				break // the line that was being written
			}
		}
		if err := cmd.Wait(); err == nil {
			t.Fatal("the program ended by itself")
		}
	}
	open(t, dir, 0)
	r := sound(t, dir)
	if r.Head.Seq < told || told < 250 {
		t.Errorf("the audit log ends with entry %d, and %d was told to be recorded", r.Head.Seq, told)
	}
}

func writeEndlessly(dir string) {
	j, err := Open(dir, Options{Now: time.Now, SegmentBytes: 4096})
	if err != nil {
		panic(err)
	}
	for range 4 {
		go func() {
			for {
				if err := j.Record(context.Background(), Entry{What: Applied, Comment: strings.Repeat("x", 1000)}); err != nil {
					panic(err)
				}
			}
		}()
	}
	for {
		if err := j.Record(context.Background(), Entry{What: Planned}); err != nil {
			panic(err)
		}
		fmt.Println(j.Head().Seq)
	}
}

// On a full disk nothing counts that is not whole, and writing goes on once
// there is room again.
func TestFullDisk(t *testing.T) {
	dir := t.TempDir()
	cmd := exec.CommandContext(t.Context(), os.Args[0], dir)
	cmd.Env = append(os.Environ(), helper+"=cramped")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	r := sound(t, dir)
	page, err := Read(dir, Query{})
	if err != nil {
		t.Fatal(err)
	}
	if got := whats(page.Items[:2]); r.Entries < 3 || !cmp.Equal(got, []What{Applied, Planned}) {
		t.Errorf("the audit log ends with %v of %d entries, want what was written once there was room", got, r.Entries)
	}
}

// writeCramped writes until there is no more room, and on once there is.
func writeCramped(dir string) {
	signal.Ignore(syscall.SIGXFSZ)
	j, err := Open(dir, Options{Now: time.Now})
	if err != nil {
		panic(err)
	}
	var was syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_FSIZE, &was); err != nil {
		panic(err)
	}
	if err := syscall.Setrlimit(syscall.RLIMIT_FSIZE, &syscall.Rlimit{Cur: 10_000, Max: was.Max}); err != nil {
		panic(err)
	}
	e := Entry{What: Planned, ID: "deed", Comment: strings.Repeat("x", 700)}
	for n := 0; err == nil; n++ {
		e.ID = fmt.Sprint("deed-", n)
		err = j.Record(context.Background(), e)
	}
	if fault.Of(err) != fault.Later {
		panic(err)
	}
	if r, err := j.Verify(); err != nil || r.Bad != nil {
		panic(fmt.Sprint(r.Bad, err))
	}
	if err := j.Record(context.Background(), e); err == nil {
		panic("there is room where there was none")
	}
	if err := syscall.Setrlimit(syscall.RLIMIT_FSIZE, &was); err != nil {
		panic(err)
	}
	for _, e := range []Entry{e, e, {What: Applied}} { // what was refused was not recorded
		if err := j.Record(context.Background(), e); err != nil {
			panic(err)
		}
	}
}

// Callers that come together share the waits for the disk.
func BenchmarkRecord(b *testing.B) {
	for _, callers := range []int{1, 16, 64} {
		b.Run(fmt.Sprintf("callers=%d", callers), func(b *testing.B) {
			j := open(b, b.TempDir(), 0)
			work := make(chan struct{})
			var wg sync.WaitGroup
			for range callers {
				wg.Go(func() {
					for range work {
						if err := j.Record(b.Context(), Entry{What: Applied, Who: "ann", Object: Object{Kind: "Terraform", Namespace: "apps", Name: "net"}, Plan: "plan-main-b8e362c206"}); err != nil {
							b.Error(err)
						}
					}
				})
			}
			for b.Loop() {
				work <- struct{}{}
			}
			close(work)
			wg.Wait()
		})
	}
}

func add(t testing.TB, path, text string) {
	t.Helper()
	f, err := os.OpenFile(path, os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	_, err = f.WriteString(text)
	if err := errors.Join(err, f.Close()); err != nil {
		t.Fatal(err)
	}
}

func whats(entries []Entry) []What {
	out := make([]What, 0, len(entries))
	for _, e := range entries {
		out = append(out, e.What)
	}
	return out
}
