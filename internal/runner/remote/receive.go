package remote

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/terrier-iac/terrier/internal/failpoint"
	"github.com/terrier-iac/terrier/internal/plan/usage"
	"github.com/terrier-iac/terrier/internal/runner"
	"github.com/terrier-iac/terrier/internal/runner/disk"
	"github.com/terrier-iac/terrier/internal/runner/managed"
	"github.com/terrier-iac/terrier/internal/runner/remote/wire"
	"github.com/terrier-iac/terrier/internal/stack"
)

// Bounds of what a run may leave, in bytes. An agent that keeps the bounds of package
// runner never reaches them.
const (
	maxFile   = 512 << 20
	maxRun    = 1 << 30 // of the files that are replaced, without states
	defLog    = 8 << 20
	moreLog   = 1 << 20
	moreEvent = 66 << 20 // finished operations and errors beyond the bound of the events
)

// growing are the files that are appended to; the others are replaced.
func growing(name string) bool { return name == runner.FileLog || name == runner.FileEvents }

// limit is how large a file of a run may be.
func (r *server) limit(rec *record, name string) int64 {
	log := rec.LogBytes
	if log <= 0 {
		log = defLog
	}
	switch name {
	case runner.FileLog:
		return log + moreLog
	case runner.FileEvents:
		return log + moreEvent
	case runner.FileState, runner.FileRescue:
		return managed.MaxBytes
	case runner.FileUses:
		return usage.MaxBytes
	case runner.FilePrepared:
		if rec.Prepared == "" {
			return 0
		}
		return r.config.Prepared
	default:
		return maxFile
	}
}

// fileName is the name of the file that a request is about.
func fileName(req *http.Request, grows bool) (string, error) {
	name := req.PathValue("name")
	if !slices.Contains(runner.Files(), name) || growing(name) != grows {
		return "", refused(http.StatusUnprocessableEntity, "a run has no file %.80q to %s", name, req.Method)
	}
	return name, nil
}

// appendFile takes the next part of a file.
func (r *server) appendFile(w http.ResponseWriter, req *http.Request, run *placedRun) error {
	name, err := fileName(req, true)
	if err != nil {
		return err
	}
	offset, err := strconv.ParseInt(req.Header.Get(wire.HeaderOffset), 10, 64)
	if err != nil || offset < 0 {
		return refused(http.StatusUnprocessableEntity, "%s is no offset", wire.HeaderOffset)
	}
	part, over, err := r.readBody(w, req, run, false)
	if err != nil {
		return err
	}
	defer over()
	defer r.Lock(run.key)()
	rec, _, err := r.going(run)
	if err != nil {
		return err
	}
	path := filepath.Join(r.dir(run), name)
	size, err := sizeOf(path)
	if err != nil {
		return err
	}
	if offset != size {
		return &refusal{http.StatusConflict, fmt.Errorf("%s has %d bytes, and the part begins at %d", name, size, offset), wire.Held{name: {Size: size}}}
	}
	if size+int64(len(part)) > r.limit(&rec, name) {
		return refused(http.StatusRequestEntityTooLarge, "%s would have more than %d bytes", name, r.limit(&rec, name))
	}
	written, err := r.intake.reserve(r.dir(run), name, int64(len(part)))
	if err != nil {
		return err
	}
	defer written()
	if err := disk.Append(path, part, size); err != nil {
		return err
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}

// body is an error of reading a request: its agent is gone, or the body is too large.
func body(err error) error {
	if _, ok := errors.AsType[*http.MaxBytesError](err); ok {
		return err
	}
	return refused(http.StatusBadRequest, "the body ended early: %v", err)
}

func sizeOf(path string) (int64, error) {
	info, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	return info.Size(), nil
}

// replaceFile takes a whole file. It is received beside the old one, without the lock
// of the key, for it may be large.
func (r *server) replaceFile(w http.ResponseWriter, req *http.Request, run *placedRun) error {
	name, err := fileName(req, false)
	if err != nil {
		return err
	}
	turn, err := turnOf(req)
	if err != nil {
		return err
	}
	rec, err := r.receiving(run, false)
	if err != nil {
		return err
	}
	defer r.received(run)
	size := req.ContentLength
	if size < 0 {
		return refused(http.StatusLengthRequired, "the size of %s is not said", name)
	}
	if size > r.limit(&rec, name) {
		return refused(http.StatusRequestEntityTooLarge, "%s would have more than %d bytes", name, r.limit(&rec, name))
	}
	if err := r.fits(run, name, size); err != nil {
		return err
	}
	written, err := r.intake.reserve(r.dir(run), name, size)
	if err != nil {
		return err
	}
	defer written()
	if err := readBy(w, time.Now().Add(moveLimit)); err != nil {
		return err
	}
	in, err := disk.Receive(r.dir(run), name, req.Body)
	if err != nil {
		if disk.IsNoSpace(err) {
			return err
		}
		return body(err)
	}
	defer in.Drop()
	if want := req.Header.Get(wire.HeaderDigest); in.Digest() != want {
		return refused(http.StatusUnprocessableEntity, "%s has the digest %s, and %q was said", name, in.Digest(), want)
	}
	defer r.Lock(run.key)()
	if _, _, err := r.going(run); err != nil {
		return err
	}
	if err := run.inTurn(name, turn); err != nil {
		return err
	}
	delete(run.digests, name)
	if err := in.Keep(); err != nil {
		return err
	}
	run.turns[name], run.digests[name] = turn, in.Digest()
	w.WriteHeader(http.StatusNoContent)
	return nil
}

func turnOf(req *http.Request) (int64, error) {
	turn, err := strconv.ParseInt(req.Header.Get(wire.HeaderTurn), 10, 64)
	if err != nil || turn <= 0 {
		return 0, refused(http.StatusUnprocessableEntity, "%s is no number", wire.HeaderTurn)
	}
	return turn, nil
}

// inTurn refuses a request that a later one has overtaken.
func (run *placedRun) inTurn(name string, turn int64) error {
	if turn <= run.turns[name] {
		return &refusal{status: http.StatusConflict, err: fmt.Errorf("a later %s was there first", name)}
	}
	return nil
}

// takeReport takes a report, if every file is here that the run had left by then.
func (r *server) takeReport(w http.ResponseWriter, req *http.Request, run *placedRun) error {
	turn, err := turnOf(req)
	if err != nil {
		return err
	}
	data, over, err := r.readBody(w, req, run, true)
	if err != nil {
		return err
	}
	defer over()
	var d wire.Delivery
	if err := json.Unmarshal(data, &d); err != nil {
		return refused(http.StatusUnprocessableEntity, "reading the report: %v", err)
	}
	defer r.Lock(run.key)()
	if r.of(run.key, run.id) != run {
		return r.unknownNow(run)
	}
	rec, before, err := r.read(run)
	if err != nil {
		return err
	}
	if rec.Ended {
		return errUnknown()
	}
	report, phase, err := rec.identify(d.Report)
	if err != nil {
		return refused(http.StatusUnprocessableEntity, "reading the report: %v", err)
	}
	if before.Phase == runner.Done {
		return r.takenAgain(w, run, report, d.Report)
	}
	if err := run.inTurn(wire.Report, turn); err != nil {
		return err
	}
	held, err := r.held(run)
	if err != nil {
		return err
	}
	if !maps.Equal(held, d.Files) {
		return &refusal{http.StatusConflict, errors.New("the files are not those of the report"), held}
	}
	if !rec.Begun {
		rec.Begun = true
		if err := r.write(run, rec); err != nil {
			return err
		}
	}
	if err := r.store(run, report, phase); err != nil {
		return err
	}
	run.turns[wire.Report], run.taken, run.order, run.why = turn, digest(d.Report), nil, ""
	if phase == runner.Done {
		if err := r.prepared.keep(run.key, r.dir(run), rec, report); err != nil {
			r.config.Log.Warn("prepared directory not kept", "run", run.id, "err", err)
		}
		r.announce(run.key)
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}

// takenAgain answers an agent that did not hear that its last report was taken.
func (r *server) takenAgain(w http.ResponseWriter, run *placedRun, report, raw json.RawMessage) error {
	if !runner.IsReport(r.dir(run), report) {
		return errUnknown()
	}
	run.taken = digest(raw)
	w.WriteHeader(http.StatusNoContent)
	return nil
}

// store makes a report durable, after the files that it is about.
func (r *server) store(run *placedRun, report json.RawMessage, phase runner.Phase) error {
	dir := r.dir(run)
	for _, name := range []string{runner.FileEvents, runner.FileLog} {
		if err := disk.Sync(filepath.Join(dir, name)); err != nil {
			return err
		}
	}
	if err := runner.WriteReport(dir, report); err != nil {
		return err
	}
	if phase == runner.Starting || phase == runner.Unpacking {
		return nil
	}
	archive := filepath.Join(dir, fileArchive)
	if _, err := os.Lstat(archive); err != nil {
		return nil // there is none, or it was removed
	}
	defer failpoint.Act("run.remove", "archive")()
	return os.Remove(archive)
}

// identify puts the name of the run into a report, whatever the report says, and keeps
// what only a newer agent knows.
func (rec *record) identify(raw json.RawMessage) (report json.RawMessage, phase runner.Phase, err error) {
	var rep runner.Report
	if err := json.Unmarshal(raw, &rep); err != nil {
		return nil, "", err
	}
	if rep.Phase == "" {
		return nil, "", errors.New("it has no phase")
	}
	rec.name(&rep)
	if runner.NeverBegan(rep.Reason) {
		rep.Reason = "" // only this side says of a run that it never began
	}
	known, err := json.Marshal(rep)
	if err != nil {
		return nil, "", err
	}
	all, said := map[string]json.RawMessage{}, map[string]json.RawMessage{}
	if err := errors.Join(json.Unmarshal(known, &all), json.Unmarshal(raw, &said)); err != nil {
		return nil, "", err
	}
	for field, v := range said {
		if !ofReport(field) {
			all[field] = v
		}
	}
	report, err = json.Marshal(all)
	return report, rep.Phase, err
}

// reportFields are the names of the fields of a report.
var reportFields = sync.OnceValue(func() (names []string) {
	for _, f := range reflect.VisibleFields(reflect.TypeFor[runner.Report]()) {
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		names = append(names, name)
	}
	return names
})

// ofReport reports whether a key is read as a field of a report, in whatever case.
func ofReport(key string) bool {
	return slices.ContainsFunc(reportFields(), func(name string) bool { return strings.EqualFold(name, key) })
}

// held lists the files that are here. The lock of the key is held.
func (r *server) held(run *placedRun) (wire.Held, error) {
	held := wire.Held{}
	for _, name := range runner.Files() {
		path := filepath.Join(r.dir(run), name)
		info, err := os.Stat(path)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, err
		}
		f := wire.HeldFile{Size: info.Size()}
		if !growing(name) {
			if run.digests[name] == "" {
				if run.digests[name], err = disk.Digest(path); err != nil {
					return nil, err
				}
			}
			f.Digest = run.digests[name]
		}
		held[name] = f
	}
	return held, nil
}

func digest(data []byte) string { return stack.Sum(bytes.TrimSpace(data)) }
