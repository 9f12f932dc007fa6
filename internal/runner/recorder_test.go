package runner

import (
	"bytes"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/terrier-iac/terrier/internal/plan"
	"github.com/terrier-iac/terrier/internal/runner/logfile"
)

func record(t *testing.T, limit int64, mask ...string) (r *recorder, read func(string) string, rescued *[]byte) {
	t.Helper()
	dir := t.TempDir()
	rescued = new([]byte)
	r, err := newRecorder(dir, limit, plan.NewRedactor(mask), func(data []byte) error { *rescued = bytes.Clone(data); return nil }, nil)
	if err != nil {
		t.Fatal(err)
	}
	r.begin("tofu apply")
	return r, func(name string) string {
		t.Helper()
		data, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		return string(data)
	}, rescued
}

func TestFinishedOperationsAreOnDiskAtOnce(t *testing.T) {
	r, read, _ := record(t, 0)
	out := r.stream()
	_, _ = out.Write([]byte(`{"@message":"a: Creation complete","type":"apply_complete","hook":{"resource":{"addr":"a"},"action":"create","id_key":"id","id_value":"x"}}` + "\n"))
	if !strings.Contains(read(FileEvents), `"id_value":"x"`) {
		t.Error("a finished operation is not in the event file while the run goes on")
	}
	if err := r.close(); err != nil {
		t.Fatal(err)
	}
}

func TestDumpedStateIsRescuedAndNotShown(t *testing.T) {
	r, read, rescued := record(t, 64<<10)
	state := `{"lineage":"l","serial":3,"secret":"` + strings.Repeat("s", 3<<20) + `"}`
	line := `{"@level":"info","@message":"Emergency state dump","type":"log","state":` + state + "}\n"
	out := r.stream()
	for piece := range strings.SplitSeq(line, "s") { // in many writes, as from a pipe
		_, _ = out.Write([]byte(piece))
		_, _ = out.Write([]byte("s"))
	}
	_ = out.Close()
	want := strings.TrimSuffix(strings.TrimSuffix(line, "\n")[len(line)-len(state)-2:], "}")
	if string(*rescued) != want {
		t.Errorf("rescued %d bytes, want the %d of the state", len(*rescued), len(want))
	}
	if err := r.close(); err != nil {
		t.Fatal(err)
	}
	if strings.Contains(read(FileLog)+read(FileEvents), "ssss") {
		t.Error("the dumped state is in the log or the events")
	}
}

func TestLongLinesAreCut(t *testing.T) {
	var lines []string
	w := &lineWriter{line: func(line []byte) { lines = append(lines, string(line)) }}
	_, _ = w.Write([]byte("one\ntw"))
	_, _ = w.Write([]byte("o\n"))
	_, _ = w.Write(bytes.Repeat([]byte("x"), maxLine+5))
	_, _ = w.Write([]byte("\nlast"))
	_ = w.Close()
	want := []string{"one", "two", strings.Repeat("x", maxLine) + "… (5 bytes of this line left out)", "last"}
	if d := cmp.Diff(want, lines); d != "" {
		t.Errorf("lines differ (-want +got):\n%.500s", d)
	}
}

// FuzzLineWriter shows that lines do not depend on how the text is cut into
// writes.
func FuzzLineWriter(f *testing.F) {
	f.Add([]byte("a\nb\n\nc"), uint8(2))
	f.Fuzz(func(t *testing.T, text []byte, size uint8) {
		var got []byte
		w := &lineWriter{line: func(line []byte) { got = append(append(got, line...), '\n') }}
		for rest := text; len(rest) > 0; {
			n := min(int(size)+1, len(rest))
			if _, err := w.Write(rest[:n]); err != nil {
				t.Fatal(err)
			}
			rest = rest[n:]
		}
		_ = w.Close()
		want := text
		if len(text) > 0 && text[len(text)-1] != '\n' {
			want = append(bytes.Clone(text), '\n')
		}
		if !bytes.Equal(got, want) {
			t.Errorf("lines of %q in writes of %d = %q", text, int(size)+1, got)
		}
	})
}

func TestTailKeepsTheEnd(t *testing.T) {
	tail := tail{most: 20}
	for i := range 100 {
		_, _ = tail.Write([]byte{'0' + byte(i%10), '\n'})
	}
	if got := string(tail.bytes()); !strings.HasSuffix(got, "8\n9\n") || len(got) > 20 {
		t.Errorf("tail = %q, want the end of the text", got)
	}
	if total := int(tail.lost) + len(tail.bytes()); total != 200 {
		t.Errorf("%d bytes are accounted for, want 200", total)
	}
}

func TestEachLineOfALogHasItsTime(t *testing.T) {
	const wrote = "2026-03-14T15:09:26.535Z "
	at := time.Date(2026, 3, 14, 16, 9, 26, 535_897_932, time.FixedZone("", 3600))
	dir := t.TempDir()
	r, err := newRecorder(dir, 4<<10, plan.NewRedactor([]string{"hunter2", "2026-03-14"}), nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	r.now = func() time.Time { return at }
	r.begin("tofu plan")
	r.warn(plan.Diagnostic{Severity: "warning", Summary: "The password is hunter2", Detail: "two\nlines"})
	for range 200 {
		r.logf("a line that is one of many, %s", strings.Repeat("x", 40))
	}
	if err := r.close(); err != nil {
		t.Fatal(err)
	}
	file, err := os.ReadFile(filepath.Join(dir, FileLog))
	if err != nil {
		t.Fatal(err)
	}
	for line := range bytes.Lines(file) {
		if said, _ := logfile.CutTime(string(line)); said+" " != wrote {
			t.Fatalf("the line %q has the time %q, want %q", line, said, wrote)
		}
	}
	data, err := io.ReadAll(logfile.Read(io.NopCloser(bytes.NewReader(file)), false))
	if err != nil {
		t.Fatal(err)
	}
	text := string(data)
	if !strings.HasPrefix(text, "$ tofu plan\n\nWarning: The password is "+plan.Mask+"\ntwo\nlines\n") || !strings.Contains(text, "bytes of this log left out …\n") {
		t.Errorf("the text is %.300q", text)
	}
}
