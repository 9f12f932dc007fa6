package runner

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/terrier-iac/terrier/internal/engine"
	"github.com/terrier-iac/terrier/internal/failpoint"
	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/plan"
	"github.com/terrier-iac/terrier/internal/runner/disk"
	"github.com/terrier-iac/terrier/internal/runner/logfile"
	"github.com/terrier-iac/terrier/internal/stack"
)

const (
	defaultLogBytes = 8 << 20
	maxOperations   = 64 << 20 // of operations and errors in the event file, beyond its own bound
	maxDiagnostics  = 20
	maxText         = 2 << 10 // of a text from outside in a report
)

// recorder turns the output of an engine into the run's log for people and its
// event file, both redacted and bounded. The start of a log that is too long
// is kept and so is its end; of events the start is kept, and every finished
// operation.
type recorder struct {
	hide    *plan.Redactor
	rescue  func([]byte) error         // stores a state that the engine could only print
	routine func(plan.Diagnostic) bool // a warning that is left out

	mu         sync.Mutex
	log        *os.File
	logLeft    int64
	logTail    tail
	events     *os.File
	eventsLeft int64
	opsLeft    int64
	failed     error // the first failure to write
	now        func() time.Time
	output     stepOutput
}

type stepOutput struct {
	diagnostics []plan.Diagnostic
	cut         bool // there were more errors than diagnostics has
	lock        *engine.Lock
	changes     map[string]stack.Changes // by operation
	total       stack.Changes            // what all applies of a script did
	outputs     int                      // outputs that the plan would change
	text        tail                     // lines that are no events, for a message
	began       bool                     // a change was begun
	checkBlocks bool                     // a check block may have failed, or has no result yet
	underway    map[string]operation     // by address
	last        string                   // message of the last event
}

func newRecorder(dir string, limit int64, hide *plan.Redactor, rescue func([]byte) error, space *disk.Reserve) (*recorder, error) {
	if limit <= 0 {
		limit = defaultLogBytes
	}
	open := func(name string) (*os.File, error) {
		return os.OpenFile(filepath.Join(dir, name), os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	}
	log, err := open(FileLog)
	if err != nil {
		return nil, err
	}
	events, err := open(FileEvents)
	if err != nil {
		log.Close()
		return nil, err
	}
	if err := errors.Join(space.HoldBeyond(events, disk.LeastEvents), space.HoldBeyond(log, disk.LeastLog)); err != nil {
		return nil, errors.Join(err, log.Close(), events.Close())
	}
	return &recorder{
		now: time.Now, hide: hide, rescue: rescue, routine: func(plan.Diagnostic) bool { return false },
		log: log, logLeft: limit - limit/4, logTail: tail{most: int(limit / 4)},
		events: events, eventsLeft: limit, opsLeft: maxOperations,
	}, nil
}

// begin starts a step: the output of the step before is forgotten, the log gets
// a heading.
func (r *recorder) begin(heading string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.output = stepOutput{text: tail{most: maxText}}
	r.appendLog("$ " + heading + "\n")
}

// end returns the output of the step since begin, redacted, and the first
// failure to write it down.
func (r *recorder) end() (stepOutput, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	h := r.output
	h.text.buf = r.hide.Redact(h.text.bytes())
	return h, r.failed
}

// close completes the files.
func (r *recorder) close() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	end := r.logTail.bytes()
	if r.logTail.lost > 0 {
		r.write(r.log, logfile.WithTime(fmt.Sprintf("\n… %d bytes of this log left out …\n\n", r.logTail.lost), r.now()))
	}
	r.write(r.log, end)
	return errors.Join(r.failed, closeWhole(r.log), closeWhole(r.events))
}

// closeWhole closes a file that is complete, and gives back the space beyond its
// end.
func closeWhole(f *os.File) error {
	end, err := f.Seek(0, io.SeekCurrent)
	if err == nil {
		err = f.Truncate(end)
	}
	return errors.Join(err, f.Close())
}

// stream takes the standard output of a command that prints events.
func (r *recorder) stream() *lineWriter {
	return &lineWriter{line: r.event, long: isDump}
}

// isDump recognises the line in which an engine prints a whole state, having
// found no other place for it.
func isDump(start []byte) bool {
	return bytes.Contains(start[:min(len(start), 256)], []byte(`"@message":"Emergency state dump"`))
}

// lines takes text for people: standard error, and the output of commands
// that know nothing else.
func (r *recorder) lines() *lineWriter {
	return &lineWriter{line: func(line []byte) {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.text(line)
	}}
}

func (r *recorder) text(line []byte) {
	r.output.text.Write(line)
	r.output.text.Write([]byte{'\n'})
	if lock, ok := engine.LockHeld(string(r.output.text.buf)); ok {
		r.output.lock = &lock
	}
	r.appendLog(string(line) + "\n")
}

// eventsAlone takes the events of a command that prints for people as well: the log has
// what it prints.
func (r *recorder) eventsAlone() *lineWriter {
	return &lineWriter{long: isDump, line: func(line []byte) {
		r.mu.Lock()
		defer r.mu.Unlock()
		if event, err := plan.ParseEvent(line); err == nil {
			r.record(line, event, func(string) {})
		}
	}}
}

func (r *recorder) event(line []byte) {
	r.mu.Lock()
	defer r.mu.Unlock()
	event, err := plan.ParseEvent(line)
	if err != nil {
		if len(bytes.TrimSpace(line)) > 0 {
			r.text(line)
		}
		return
	}
	r.record(line, event, r.appendLog)
}

// record keeps an event and shows it.
func (r *recorder) record(line []byte, event plan.Event, show func(string)) {
	r.output.follow(event)
	vital, finished := false, false
	switch e := event.(type) {
	case plan.Log:
		if e.State != nil {
			r.fail(r.rescue(e.State))
			show("The engine could not store the state anywhere and printed it; it is kept.\n")
			return
		}
	case plan.Diagnosed:
		r.output.checkBlocks = r.output.checkBlocks || e.CheckBlock
		if r.routine(e.Diagnostic) {
			return
		}
		vital = e.Diagnostic.Severity == "error"
		r.diagnosed(e, show)
	case plan.Summary:
		if r.output.changes == nil {
			r.output.changes = map[string]stack.Changes{}
		}
		r.output.changes[e.Operation] = e.Changes
		if e.Operation != "plan" {
			r.output.total = r.output.total.Plus(e.Changes)
		}
	case plan.OutputValues:
		r.output.outputs = 0
		for _, o := range e.Outputs {
			if o.Action != "" && o.Action != plan.NoOp {
				r.output.outputs++
			}
		}
	case plan.Applied:
		vital = e.Stage != plan.Progressed
		finished = e.Stage == plan.Completed || e.Stage == plan.Errored
		r.output.began = true
	}
	if finished {
		r.keepSafe(line)
	} else {
		r.keep(line, vital)
	}
	if _, ok := event.(plan.Diagnosed); !ok {
		show(plan.HeadOf(event).Message + "\n")
	}
}

func (r *recorder) diagnosed(e plan.Diagnosed, show func(string)) {
	d := e.Diagnostic
	if lock, ok := engine.LockHeld(d.Summary + "\n" + d.Detail); ok {
		r.output.lock = &lock
	}
	r.output.keep(r.hidden(d))
	show(describe(d))
}

// keep keeps a diagnostic for the report. An error takes the place of a warning when
// there is no room.
func (out *stepOutput) keep(d plan.Diagnostic) {
	isError := d.Severity == "error"
	if isError && len(out.diagnostics) == maxDiagnostics {
		if i := slices.IndexFunc(out.diagnostics, func(d plan.Diagnostic) bool { return d.Severity != "error" }); i >= 0 {
			out.diagnostics = slices.Delete(out.diagnostics, i, i+1)
		}
	}
	if len(out.diagnostics) < maxDiagnostics {
		out.diagnostics = append(out.diagnostics, d)
	} else if isError {
		out.cut = true
	}
}

// warn writes a warning of the supervisor to the log.
func (r *recorder) warn(d plan.Diagnostic) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.appendLog(describe(d))
}

// describe writes a diagnostic as the engine would for people.
func describe(d plan.Diagnostic) string {
	var b strings.Builder
	severity := "Error"
	if d.Severity == "warning" {
		severity = "Warning"
	}
	fmt.Fprintf(&b, "\n%s: %s\n", severity, d.Summary)
	if d.Address != "" {
		fmt.Fprintf(&b, "  with %s\n", d.Address)
	}
	switch {
	case d.File != "" && d.Line > 0:
		fmt.Fprintf(&b, "  on %s line %d:\n", d.File, d.Line)
	case d.File != "":
		fmt.Fprintf(&b, "  in %s\n", d.File)
	}
	if d.Snippet != "" {
		fmt.Fprintf(&b, "    %s\n", strings.ReplaceAll(d.Snippet, "\n", "\n    "))
	}
	if d.Detail != "" {
		fmt.Fprintf(&b, "%s\n", d.Detail)
	}
	b.WriteByte('\n')
	return b.String()
}

// hidden returns d without secrets and cut to what a report holds.
func (r *recorder) hidden(d plan.Diagnostic) plan.Diagnostic {
	for _, s := range []*string{&d.Summary, &d.Detail, &d.Address, &d.File, &d.Snippet} {
		*s = fault.Shorten(r.hide.String(*s), maxText)
	}
	return d
}

// keep appends an event to the event file. For those that are vital there is
// space when there is none for others: the start of an operation and its end,
// without which a resource that now exists would be unknown, and errors.
func (r *recorder) keep(line []byte, vital bool) {
	safe := r.hide.Redact(line)
	if !bytes.Equal(safe, line) {
		safe = r.hide.RedactJSON(line) // dearer, but what comes out is JSON for certain
	}
	size := int64(len(safe) + 1)
	budget := &r.eventsLeft
	if vital && r.eventsLeft < size {
		budget = &r.opsLeft
	}
	if *budget < size {
		if r.eventsLeft > 0 && !vital {
			r.eventsLeft = 0
			r.write(r.events, []byte(`{"@level":"warn","@message":"more events were left out","type":"log"}`+"\n"))
		}
		return
	}
	*budget -= size
	r.write(r.events, append(bytes.Clone(safe), '\n'))
}

// keepSafe is keep for a finished operation. The event is on disk before
// keepSafe returns: it may be the only trace of a resource that now exists.
func (r *recorder) keepSafe(line []byte) {
	defer failpoint.Act("run.event", "")()
	r.keep(line, true)
	r.fail(r.events.Sync())
}

// appendLog adds whole lines to the log for people.
func (r *recorder) appendLog(text string) {
	safe := logfile.WithTime(r.hide.String(text), r.now())
	if r.logTail.lost == 0 && len(r.logTail.buf) == 0 && int64(len(safe)) <= r.logLeft {
		r.logLeft -= int64(len(safe))
		r.write(r.log, safe)
		return
	}
	r.logLeft = 0
	r.logTail.Write(safe)
}

// logf adds a sentence to the log.
func (r *recorder) logf(format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.appendLog(fmt.Sprintf(format, args...) + "\n")
}

// keepError remembers the first failure to keep something.
func (r *recorder) keepError(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.fail(err)
}

func (r *recorder) write(f *os.File, data []byte) {
	_, err := f.Write(data)
	r.fail(err)
}

func (r *recorder) fail(err error) {
	if r.failed == nil && err != nil {
		r.failed = fmt.Errorf("recording the run: %w", err)
	}
}

// reportFile is a run's report on disk.
type reportFile struct {
	dir string
	now func() time.Time

	reserve *disk.Reserve

	mu     sync.Mutex
	report Report
}

// update changes the report and writes it down.
func (f *reportFile) update(change func(*Report)) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	change(&f.report)
	data, err := json.Marshal(f.report)
	if err != nil {
		return fmt.Errorf("encoding the report: %w", err)
	}
	return f.reserve.WriteReport(filepath.Join(f.dir, fileReport), data)
}

// enter writes down that the run is in phase p.
func (f *reportFile) enter(p Phase) error {
	return f.update(func(r *Report) { r.Phase, r.Since = p, f.now() })
}

// set changes the report without writing it: the next update will.
func (f *reportFile) set(change func(*Report)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	change(&f.report)
}

func (f *reportFile) content() Report {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.report
}
