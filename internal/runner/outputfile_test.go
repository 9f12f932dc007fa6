package runner

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/terrier-iac/terrier/internal/plan"
	"github.com/terrier-iac/terrier/internal/runner/disk"
)

// frozen stands for an engine that can be stopped, or cannot.
type frozen struct {
	err    error
	freeze func()
	times  int
}

func (f *frozen) Freeze() error {
	f.times++
	if f.freeze != nil && f.err == nil {
		f.freeze()
	}
	return f.err
}
func (f *frozen) Thaw() error { return nil }

func newTestSpool(t *testing.T) (s *outputFile, got *bytes.Buffer, most func() int64) {
	t.Helper()
	got = &bytes.Buffer{}
	s, err := openOutputFile(t.TempDir(), got, func(err error) {
		if err != nil {
			t.Errorf("the spool: %v", err)
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.end)
	return s, got, func() int64 {
		info, err := s.in.Stat()
		if err != nil {
			t.Fatal(err)
		}
		return info.Size()
	}
}

// P12: however much is printed, the file stays small and nothing is lost,
// whatever stands in it at the moment it is cut.
func TestSpoolIsBounded(t *testing.T) {
	s, got, size := newTestSpool(t)
	var want bytes.Buffer
	print := func(text string) {
		want.WriteString(text)
		if _, err := s.out.WriteString(text); err != nil {
			t.Fatal(err)
		}
	}
	n := 0
	f := &frozen{freeze: func() { n++; print(fmt.Sprintf("printed in the last moment %d, ", n)) }}
	s.frozen = f
	s.most = 10_000
	for i := range 20_000 {
		print(fmt.Sprintf("line %d", i))
		if i%3 == 0 {
			s.drain(true) // in the middle of a line
		}
		print(" and its end\n")
		if s.most == outputFileMost {
			s.most = 10_000
		}
		if got := size(); got > 20_000 {
			t.Fatalf("the spool has %d bytes", got)
		}
	}
	s.drain(false)
	if f.times < 20 {
		t.Errorf("the engine was stopped %d times, want the file cut again and again", f.times)
	}
	if !bytes.Equal(got.Bytes(), want.Bytes()) {
		t.Errorf("%d bytes were handed on, want the %d that were printed", got.Len(), want.Len())
	}
}

// After a cut the file has the incomplete line, so that a reader after a crash knows
// all that was not forwarded.
func TestCutKeepsTheLineThatWasBegun(t *testing.T) {
	s, _, size := newTestSpool(t)
	s.frozen = &frozen{}
	text := strings.Repeat("x", 1000) + "\nbegun"
	if _, err := s.out.WriteString(text); err != nil {
		t.Fatal(err)
	}
	s.most = 100
	s.drain(true)
	data, err := os.ReadFile(filepath.Join(s.dir, fileOutput))
	if err != nil || string(data) != "begun" {
		t.Errorf("the spool holds %q, %v; want the line that was begun", data, err)
	}
	if _, err := s.out.WriteString(strings.Repeat("y", 2000)); err != nil {
		t.Fatal(err)
	}
	s.most = 100
	s.drain(true)
	if got := size(); got != int64(len("begun"))+2000 {
		t.Errorf("a line that is longer than the rest was cut to %d bytes", got)
	}
}

func TestSpoolOfAnEngineThatCannotBeStopped(t *testing.T) {
	s, got, _ := newTestSpool(t)
	s.frozen = &frozen{err: errors.New("no")}
	s.most = 100
	if _, err := s.out.WriteString(strings.Repeat("x\n", 1000)); err != nil {
		t.Fatal(err)
	}
	s.drain(true)
	if got.Len() != 2000 || s.most <= 100 {
		t.Errorf("%d bytes were handed on and the next cut is at %d, want all, and later", got.Len(), s.most)
	}
}

const (
	startOf = `{"@level":"info","@message":"a: Creating...","type":"apply_start","hook":{"resource":{"addr":"a"},"action":"create"}}`
	endOf   = `{"@level":"info","@message":"a: Creation complete","type":"apply_complete","hook":{"resource":{"addr":"a"},"action":"create","id_key":"id","id_value":"hunter2-1"}}`
	output  = `{"@level":"info","@message":"a: (local-exec): hello","type":"provision_progress","hook":{"resource":{"addr":"a"},"output":"hello"}}`
	failure = `{"@level":"error","@message":"Error: no","type":"diagnostic","diagnostic":{"severity":"error","summary":"no","detail":"hunter2","address":"a"}}`
)

// Output that no reader received is recovered exactly once, however often that is
// tried, and beside the received output.
func TestUnheard(t *testing.T) {
	dump := `{"@level":"info","@message":"Emergency state dump","type":"log","state":{"lineage":"l","serial":3,"x":"` + strings.Repeat("s", 2*maxLine) + `"}}`
	for name, tt := range map[string]struct {
		heard, spool string
		want         []string // by type
	}{
		"nothing was printed":           {startOf + "\n", "", []string{"apply_start"}},
		"all was heard":                 {startOf + "\n" + output + "\n", startOf + "\n" + output + "\n", []string{"apply_start", "provision_progress"}},
		"the end was not":               {startOf + "\n", startOf + "\n" + output + "\n" + endOf + "\n", []string{"apply_start", "apply_complete"}},
		"nothing was":                   {"", "text\n" + startOf + "\n" + endOf + "\n" + failure + "\n", []string{"apply_start", "apply_complete", "diagnostic"}},
		"the supervisor died writing":   {startOf + "\n" + endOf[:40], startOf + "\n" + endOf + "\n", []string{"apply_start", "apply_complete"}},
		"the engine died printing":      {"", startOf + "\n" + endOf[:60], []string{"apply_start"}},
		"a line was cut from its start": {"", endOf[30:] + "\n" + startOf + "\n", []string{"apply_start"}},
		"a state was printed":           {"", startOf + "\n" + dump + "\n" + endOf + "\n", []string{"apply_start", "apply_complete"}},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			put := func(name string, text string) {
				t.Helper()
				if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			prints, err := json.Marshal(plan.NewRedactor([]string{"hunter2"}).Prints([]byte("k")))
			if err != nil {
				t.Fatal(err)
			}
			put(FileEvents, tt.heard)
			for again := range 3 {
				// The second time it is as if the process had died before the end.
				put(fileOutput, tt.spool)
				put(filePrints, string(prints))
				if err := recoverEvents(dir); err != nil {
					t.Fatal(err)
				}
				events, err := os.ReadFile(filepath.Join(dir, FileEvents))
				if err != nil {
					t.Fatal(err)
				}
				var got []string
				for line := range strings.Lines(string(events)) {
					if _, rest, ok := strings.Cut(line, `"type":"`); ok && strings.HasSuffix(line, "}\n") {
						kind, _, _ := strings.Cut(rest, `"`)
						got = append(got, kind)
					}
				}
				if strings.Join(got, " ") != strings.Join(tt.want, " ") {
					t.Errorf("time %d: the events are %q, want %q:\n%s", again, got, tt.want, events)
				}
				if strings.Contains(string(events), "hunter2") {
					t.Errorf("a secret came through: %s", events)
				}
			}
			rescued, err := os.ReadFile(filepath.Join(dir, FileRescue))
			if want := strings.Contains(tt.spool, "dump"); want != (err == nil) || want && !strings.HasPrefix(string(rescued), `{"lineage":"l"`) {
				t.Errorf("rescued %.50q, %v", rescued, err)
			}
		})
	}
}

// A program that a script leaves behind may make the events of a command as long as a file can
// be. The command ends all the same, with what its engine has written.
func TestEventsOfACommandEndWithIt(t *testing.T) {
	for name, following := range map[string]bool{"while they are followed": true, "afterwards": false} {
		t.Run(name, func(t *testing.T) {
			rec, read, _ := record(t, 0)
			path := filepath.Join(t.TempDir(), "events")
			in, err := os.Create(path)
			if err != nil {
				t.Fatal(err)
			}
			const event = `{"@level":"info","@message":"m","type":"apply_complete","hook":{"resource":{"addr":"a"},"action":"create"}}`
			if _, err := in.WriteString(event + "\n"); err != nil {
				t.Fatal(err)
			}
			f := &eventFile{path: path, in: in, to: rec.eventsAlone(), failed: rec.keepError, most: 1 << 20, watch: disk.NewWatch(path)}
			const large = 1 << 43
			grow := func() {
				if err := in.Truncate(large); err != nil {
					t.Error(err)
				}
			}
			if following {
				grow()
				f.follow()
			} else {
				f.follow()
				f.over.Store(true)
				grow()
			}
			f.end()
			if err := rec.close(); err != nil {
				t.Fatal(err)
			}
			if f.read == 0 || f.read >= large {
				t.Errorf("%d bytes of the events were read", f.read)
			}
			if !strings.Contains(read(FileEvents), `"apply_complete"`) {
				t.Errorf("the event of the engine is not kept:\n%.300s", read(FileEvents))
			}
		})
	}
}
