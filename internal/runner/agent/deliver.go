package agent

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/terrier-iac/terrier/internal/runner"
	"github.com/terrier-iac/terrier/internal/runner/remote/wire"
	"github.com/terrier-iac/terrier/internal/stack"
)

// delivery copies the directory of a run to the controller.
type delivery struct {
	client *client
	log    *slog.Logger
	dir    string // RUN; empty if the run could not be started

	held  wire.Held              // what the controller is believed to have
	sent  map[string]version     // the files that are replaced, as they were sent
	full  map[string]bool        // files of which the controller takes no more
	taken atomic.Pointer[string] // the digest of the last report that the controller took
}

// version is a file as it was once.
type version struct {
	modified time.Time
	size     int64
	digest   string
}

func newDelivery(c *client, log *slog.Logger, dir string) *delivery {
	d := &delivery{client: c, log: log, dir: dir, held: wire.Held{}, sent: map[string]version{}, full: map[string]bool{}}
	d.took("")
	return d
}

// first are the files without which a resource that exists would be unknown. They are
// delivered first, and at once; the others when the run comes to its next phase.
func first(name string) bool {
	return name == runner.FileState || name == runner.FileRescue || name == runner.FileEvents
}

// order is the one in which files are delivered: the state comes first, and the log last.
func order() []string {
	return []string{runner.FileState, runner.FileRescue, runner.FileEvents, runner.FileLockHCL, runner.FilePlan, runner.FilePlanDoc,
		runner.FilePlanRaw, runner.FilePlanTxt, runner.FileOutputs, runner.FileInventory, runner.FileUses, runner.FilePrepared, runner.FileLog}
}

// attempts bounds how often one round begins again because the controller has other
// files than was believed.
const attempts = 4

// round delivers everything that is new, and then the report rep, which was read
// before: what it says of the files holds for those that were delivered. With again,
// the report is sent although the controller took it.
func (d *delivery) round(ctx context.Context, rep runner.Report, again bool) error {
	report, err := json.Marshal(rep)
	if err != nil {
		return fmt.Errorf("encoding the report: %w", err)
	}
	news := again || digest(report) != d.lastTaken()
	for range attempts {
		if err := d.files(ctx, news); err != nil || !news {
			return err
		}
		err = d.report(ctx, report)
		if e, ok := errors.AsType[*refusal](err); !ok || e.status != http.StatusConflict || e.Held == nil {
			return err
		}
	}
	return err
}

// files delivers what is new in the files.
func (d *delivery) files(ctx context.Context, all bool) error {
	if d.dir == "" {
		return nil
	}
	for _, name := range order() {
		if d.full[name] || !all && !first(name) && name != runner.FileLog {
			continue
		}
		err := d.file(ctx, name)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if is(err, http.StatusRequestEntityTooLarge) || (name == runner.FilePrepared || name == runner.FileUses) && dispensable(err) {
			d.log.Warn("the controller takes no more of a file", "file", name, "err", err)
			d.full[name] = true
			continue
		}
		if err != nil {
			return fmt.Errorf("delivering %s: %w", name, err)
		}
	}
	return nil
}

// dispensable reports whether the controller has refused a file that no run needs: it does
// not know such a file, or has no space for it. The run goes on without.
func dispensable(err error) bool {
	return is(err, http.StatusUnprocessableEntity) || is(err, http.StatusInsufficientStorage)
}

// file delivers what is new in one file.
func (d *delivery) file(ctx context.Context, name string) error {
	f, err := os.Open(filepath.Join(d.dir, name))
	if err != nil {
		return err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return err
	}
	if name == runner.FileEvents || name == runner.FileLog {
		return d.append(ctx, name, f, info)
	}
	return d.replace(ctx, name, f, info)
}

// append delivers what was added to a file.
func (d *delivery) append(ctx context.Context, name string, f io.ReaderAt, info fs.FileInfo) error {
	_, there := d.held[name]
	for conflicts := 0; d.held[name].Size < info.Size() || !there; {
		offset := d.held[name].Size
		part := make([]byte, min(info.Size()-offset, wire.MaxAppend))
		if _, err := f.ReadAt(part, offset); err != nil {
			return err
		}
		err := d.client.tell(ctx, request{method: http.MethodPatch, path: wire.File + name, limit: askLimit,
			header: map[string]string{wire.HeaderOffset: strconv.FormatInt(offset, 10)}, body: bytes.NewReader(part), size: int64(len(part))})
		if e, ok := errors.AsType[*refusal](err); ok && e.status == http.StatusConflict && conflicts < attempts {
			if has, ok := e.Held[name]; ok && has.Size <= info.Size() {
				d.held[name] = has
				conflicts++
				continue
			}
		}
		if err != nil {
			return err
		}
		d.held[name] = wire.HeldFile{Size: offset + int64(len(part))}
		there = true
	}
	return nil
}

// replace delivers a whole file, if it is another one than the one that was sent.
func (d *delivery) replace(ctx context.Context, name string, f *os.File, info fs.FileInfo) (err error) {
	now := version{modified: info.ModTime(), size: info.Size()}
	if was := d.sent[name]; was.digest != "" && was.modified.Equal(now.modified) && was.size == now.size {
		return nil
	}
	sum := sha256.New()
	if now.size, err = io.Copy(sum, f); err != nil {
		return err
	}
	now.digest = fmt.Sprintf("sha256:%x", sum.Sum(nil))
	if d.held[name].Digest != now.digest {
		// A file that grows meanwhile has another digest, and is sent in the next round.
		body := io.NewSectionReader(f, 0, now.size)
		err = d.client.tell(ctx, request{method: http.MethodPut, path: wire.File + name, limit: moveLimit, body: body, size: now.size,
			header: map[string]string{wire.HeaderDigest: now.digest, wire.HeaderTurn: d.client.turn()}})
		if err != nil {
			return err
		}
	}
	d.sent[name], d.held[name] = now, wire.HeldFile{Size: now.size, Digest: now.digest}
	return nil
}

// report delivers a report, with the names of the files that were delivered.
func (d *delivery) report(ctx context.Context, report json.RawMessage) error {
	body, err := json.Marshal(wire.Delivery{Report: report, Files: d.held})
	if err != nil {
		return fmt.Errorf("encoding the report: %w", err)
	}
	err = d.client.tell(ctx, request{method: http.MethodPut, path: wire.Report, limit: askLimit, body: bytes.NewReader(body), size: int64(len(body)),
		header: map[string]string{wire.HeaderTurn: d.client.turn()}})
	if e, ok := errors.AsType[*refusal](err); ok && e.Held != nil {
		d.held = e.Held
		for name, was := range d.sent {
			if d.held[name].Digest != was.digest {
				delete(d.sent, name)
			}
		}
	}
	if err != nil {
		return fmt.Errorf("delivering the report: %w", err)
	}
	d.took(digest(report))
	return nil
}

// lastTaken is the digest of the last report that the controller took.
func (d *delivery) lastTaken() string { return *d.taken.Load() }

func (d *delivery) took(digest string) { d.taken.Store(&digest) }

func digest(data []byte) string { return stack.Sum(data) }
