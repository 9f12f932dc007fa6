package runner

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/terrier-iac/terrier/internal/plan"
	"github.com/terrier-iac/terrier/internal/runner/disk"
)

// recoverEvents keeps what an engine printed and its dead supervisor did not
// read: every operation that was begun or finished, every error, and a state
// that the engine could store nowhere. Nothing else of the output is kept. The
// engine must be dead. It can be repeated.
func recoverEvents(dir string) error {
	printed, err := outputFiles(dir)
	if err != nil {
		return err
	}
	if len(printed) == 0 {
		return removeOutputFile(dir)
	}
	in, closeIn, err := openPrinted(printed)
	if err != nil {
		return err
	}
	defer closeIn()
	out, err := os.OpenFile(filepath.Join(dir, FileEvents), os.O_RDWR|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	defer out.Close()
	l := &eventRecovery{dir: dir, known: map[string]bool{}, left: maxOperations}
	if err := disk.ReadJSON(filepath.Join(dir, filePrints), &l.hide); err != nil {
		return err
	}
	for _, from := range []struct {
		file io.Reader
		line func([]byte)
	}{{out, l.recorded}, {in, l.recover}} {
		w := &lineWriter{line: from.line, long: isDump}
		if _, err := io.Copy(w, from.file); err != nil {
			return fmt.Errorf("reading what the engine printed last: %w", err)
		}
		// A line without an end was being printed, or written, at the moment of
		// death. It is an event only if it is whole.
		_ = w.Close()
	}
	if l.failed != nil {
		return l.failed
	}
	if l.missing.Len() > 0 {
		// The last line of a dead supervisor may lack its end.
		if _, err := out.Write(append([]byte{'\n'}, l.missing.Bytes()...)); err != nil {
			return err
		}
		if err := out.Sync(); err != nil {
			return err
		}
	}
	return removeOutputFile(dir)
}

// maxPrinted bounds what is read of one file, which programs of a sandbox may have written.
const maxPrinted = 256 << 20

// openPrinted reads one file after another. The beginning of a file that the supervisor
// gave back to the disk is left out.
func openPrinted(paths []string) (io.Reader, func(), error) {
	var files []*os.File
	closeAll := func() {
		for _, f := range files {
			_ = f.Close()
		}
	}
	var readers []io.Reader
	for _, path := range paths {
		f, err := os.Open(path)
		if err != nil {
			closeAll()
			return nil, nil, err
		}
		files = append(files, f)
		// Without any data, or where files have no holes, it is read from its beginning.
		_, _ = f.Seek(0, unix.SEEK_DATA)
		readers = append(readers, io.LimitReader(f, maxPrinted), strings.NewReader("\n"))
	}
	return io.MultiReader(readers...), closeAll, nil
}

// eventRecovery finds the events that are not recorded.
type eventRecovery struct {
	dir     string
	hide    plan.Prints
	known   map[string]bool // events that are recorded, see keyOf
	missing bytes.Buffer    // events
	left    int             // bytes that may still be kept
	failed  error
}

// recorded takes a line that the supervisor has written down.
func (l *eventRecovery) recorded(line []byte) {
	if e, err := plan.ParseEvent(line); err == nil {
		l.known[keyOf(e)] = true
	}
}

// recover takes a line of the engine.
func (l *eventRecovery) recover(line []byte) {
	line = bytes.TrimLeft(line, "\x00") // what is left of a block that was given back
	e, err := plan.ParseEvent(line)
	if err != nil {
		return
	}
	if d, ok := e.(plan.Log); ok && d.State != nil {
		_, err := keepRescued(l.dir, d.State, nil)
		l.failed = errors.Join(l.failed, err)
		return
	}
	safe := l.redacted(line)
	if safe == nil {
		return
	}
	if e, err = plan.ParseEvent(safe); err != nil {
		return
	}
	key := keyOf(e)
	if key == "" || l.known[key] || len(safe) >= l.left {
		return
	}
	l.known[key] = true
	l.left -= len(safe) + 1
	l.missing.Write(append(safe, '\n'))
}

// keyOf tells the events that matter apart: each comes once in an apply. It is
// empty for those that do not.
func keyOf(e plan.Event) string {
	switch e := e.(type) {
	case plan.Applied:
		if e.Stage != plan.Progressed {
			return fmt.Sprintf("%s %s %s %s", e.Stage, e.Action, e.Resource.Address, e.IDValue)
		}
	case plan.Diagnosed:
		if d := e.Diagnostic; d.Severity == "error" {
			return fmt.Sprintf("error %s %s", d.Address, d.Summary)
		}
	}
	return ""
}

// redacted is the part of a line that is kept, without secrets.
func (l *eventRecovery) redacted(line []byte) []byte {
	var event map[string]any
	dec := json.NewDecoder(bytes.NewReader(line))
	dec.UseNumber()
	if dec.Decode(&event) != nil {
		return nil
	}
	keep := map[string]any{}
	for _, name := range []string{"@level", "@message", "@timestamp", "type", "hook"} {
		if v, ok := event[name]; ok {
			keep[name] = v
		}
	}
	if d, ok := event["diagnostic"].(map[string]any); ok {
		keep["diagnostic"] = map[string]any{"severity": d["severity"], "summary": d["summary"], "address": d["address"]}
	}
	safe, err := json.Marshal(l.hidden(keep))
	if err != nil {
		return nil
	}
	return safe
}

// formatFields are the fields of an event that hold words of its format.
var formatFields = map[string]bool{"@level": true, "@timestamp": true, "type": true, "action": true, "id_key": true, "severity": true}

// hidden returns a value without secrets.
func (l *eventRecovery) hidden(v any) any {
	switch v := v.(type) {
	case string:
		return l.hide.String(v)
	case map[string]any:
		for key, item := range v {
			if !formatFields[key] {
				v[key] = l.hidden(item)
			}
		}
	case []any:
		for i, item := range v {
			v[i] = l.hidden(item)
		}
	}
	return v
}
