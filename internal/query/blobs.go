package query

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/record"
	"github.com/terrier-iac/terrier/internal/runner"
	"github.com/terrier-iac/terrier/internal/runner/logfile"
)

// Blobstore is where the records of runs that have ended are kept.
type Blobstore interface {
	Get(ctx context.Context, key string) ([]byte, error)
	List(ctx context.Context, prefix string) ([]string, error)
}

// Live gives access to running runs. An open file of a run is read
// on after its end when it has grown.
type Live interface {
	Current(stack string) (*runner.Report, error)
	Open(stack, id, file string) (io.ReadCloser, error)
}

// Blobs are the Records where they are kept.
type Blobs struct {
	store Blobstore
	live  Live
	every time.Duration

	stateCipher
	gitStates
}

// NewBlobs returns the records in store, together with the runs that go on. A
// log that is followed is read again after each pause of every.
func NewBlobs(store Blobstore, live Live, every time.Duration) *Blobs {
	return &Blobs{store: store, live: live, every: every}
}

func (b *Blobs) Runs(ctx context.Context, id StackID) ([]runner.Report, error) {
	if id.UID == "" {
		last, _, err := b.gone(ctx, id)
		return []runner.Report{last}, err
	}
	if err := CheckID(id, "any"); err != nil {
		return nil, err
	}
	keys, err := b.store.List(ctx, record.Runs(id.UID))
	if err != nil {
		return nil, fmt.Errorf("listing the runs of %s: %w", id.Key, err)
	}
	live, err := b.current(id)
	if err != nil {
		return nil, err
	}
	var out []runner.Report
	if live != nil {
		out = append(out, *live)
	}
	for _, key := range keys {
		run, file, _ := record.RunOf(id.UID, key)
		if file != record.ReportFile || live != nil && live.ID == run {
			continue
		}
		report, err := b.report(ctx, id, run)
		if fault.Of(err) == fault.Missing {
			continue // removed since it was listed
		}
		if err != nil {
			return nil, err
		}
		out = append(out, report)
	}
	slices.SortStableFunc(out, func(x, y runner.Report) int {
		return cmp.Or(y.Started.Compare(x.Started), cmp.Compare(y.ID, x.ID))
	})
	return out[:min(len(out), runsShown)], nil
}

func (b *Blobs) Run(ctx context.Context, id StackID, run string) (runner.Report, error) {
	if id.UID == "" {
		last, _, err := b.goneRun(ctx, id, run)
		return last, err
	}
	if err := CheckID(id, run); err != nil {
		return runner.Report{}, err
	}
	live, err := b.current(id)
	if err != nil {
		return runner.Report{}, err
	}
	if live != nil && live.ID == run {
		return *live, nil
	}
	return b.report(ctx, id, run)
}

func (b *Blobs) Plan(ctx context.Context, id StackID, digest string) (io.ReadCloser, error) {
	if id.UID == "" {
		return nil, fault.New(fault.Missing, ReasonNotKept, fmt.Errorf("no plan of the deleted stack %s is kept", id.Key))
	}
	if err := errors.Join(CheckID(id, "any"), checkDigest(digest)); err != nil {
		return nil, err
	}
	return b.get(ctx, record.Plan(id.UID, digest, runner.FilePlanDoc), "the plan "+digest)
}

func (b *Blobs) Log(ctx context.Context, id StackID, run string, o LogOptions) (io.ReadCloser, error) {
	file, err := b.log(ctx, id, run, o.Follow)
	if err != nil {
		return nil, err
	}
	return logfile.Read(file, o.Timestamps), nil
}

// log opens the log of a run as it was recorded.
func (b *Blobs) log(ctx context.Context, id StackID, run string, follow bool) (io.ReadCloser, error) {
	if id.UID == "" {
		_, files, err := b.goneRun(ctx, id, run)
		if err != nil {
			return nil, err
		}
		return b.get(ctx, files+runner.FileLog, "the log of the run "+run)
	}
	if err := CheckID(id, run); err != nil {
		return nil, err
	}
	// Asked before the file is opened: a run leaves the runner only after its
	// log is kept, so that one of the two places has it at any time.
	goesOn, err := b.goesOn(id, run)
	if err != nil {
		return nil, err
	}
	if goesOn && follow {
		return &follower{ctx: ctx, blobs: b, id: id, run: run}, nil
	}
	f, err := b.live.Open(id.UID, run, runner.FileLog)
	switch {
	case err == nil:
		return f, nil
	case fault.Of(err) != fault.Missing:
		return nil, fmt.Errorf("opening the log of %s: %w", run, err)
	case goesOn:
		return io.NopCloser(bytes.NewReader(nil)), nil // nothing is written yet
	}
	log, err := b.get(ctx, record.Run(id.UID, run, runner.FileLog), "the log of the run "+run)
	if b.isQuiet(ctx, id, run, err) {
		return b.get(ctx, record.Run(id.UID, record.QuietRun, runner.FileLog), "the log of the run "+run)
	}
	return log, err
}

// gone is the last run of the stack of a name that was deleted last, and what the keys of its
// files begin with. Stacks of former namespaces count as id says.
func (b *Blobs) gone(ctx context.Context, id StackID) (last runner.Report, files string, err error) {
	key := id.Key
	keys, err := b.store.List(ctx, record.GoneStack(key.Kind, key.Namespace, key.Name))
	if err != nil {
		return last, "", fmt.Errorf("looking for the last run of the deleted stack %s: %w", key, err)
	}
	for _, k := range keys {
		at, ok := record.IsGoneReport(k)
		if !ok {
			continue
		}
		r, err := b.get(ctx, k, "the last run of the deleted stack "+key.String())
		if fault.Of(err) == fault.Missing {
			continue // removed since it was listed
		}
		if err != nil {
			return last, "", err
		}
		report, origin, err := decodeGone(r)
		if err != nil {
			return last, "", err
		}
		if !id.Former && !origin.In(id.In, report.Started) {
			continue
		}
		if files == "" || report.Gone.After(last.Gone) {
			last, files = report, at
		}
	}
	if files == "" {
		err = fault.New(fault.Missing, ReasonNotKept, fmt.Errorf("no run of a deleted stack %s is kept", key))
	}
	return last, files, err
}

// goneRun is the same, if it is the run of that name.
func (b *Blobs) goneRun(ctx context.Context, id StackID, run string) (last runner.Report, files string, err error) {
	last, files, err = b.gone(ctx, id)
	if err == nil && last.ID != run {
		err = fault.New(fault.Missing, ReasonNotKept, fmt.Errorf("of the deleted stack %s only the last run is kept, %s", id.Key, last.ID))
	}
	return last, files, err
}

func (b *Blobs) goesOn(id StackID, run string) (bool, error) {
	live, err := b.current(id)
	return live != nil && live.ID == run && live.Phase != runner.Done, err
}

func (b *Blobs) current(id StackID) (*runner.Report, error) {
	live, err := b.live.Current(id.UID)
	if err != nil {
		return nil, fmt.Errorf("looking at the run of %s: %w", id.Key, err)
	}
	return live, nil
}

// isQuiet reports whether a run that is missing under its own name is the newest
// drift check without a finding. A client that followed the run knows it by the
// run's own name.
func (b *Blobs) isQuiet(ctx context.Context, id StackID, run string, err error) bool {
	if fault.Of(err) != fault.Missing {
		return false
	}
	r, err := b.get(ctx, record.Run(id.UID, record.QuietRun, record.ReportFile), "the run "+record.QuietRun)
	if err != nil {
		return false // it stays missing
	}
	defer r.Close()
	report, err := decodeReport(r)
	return err == nil && report.ID == run
}

func (b *Blobs) report(ctx context.Context, id StackID, run string) (runner.Report, error) {
	r, err := b.get(ctx, record.Run(id.UID, run, record.ReportFile), "the run "+run)
	if b.isQuiet(ctx, id, run, err) {
		r, err = b.get(ctx, record.Run(id.UID, record.QuietRun, record.ReportFile), "the run "+run)
	}
	if err != nil {
		return runner.Report{}, err
	}
	defer r.Close()
	report, err := decodeReport(r)
	report.ID = run // as it was asked for
	return report, err
}

func (b *Blobs) get(ctx context.Context, key, what string) (io.ReadCloser, error) {
	content, err := b.store.Get(ctx, key)
	if fault.Of(err) == fault.Missing {
		return nil, fault.New(fault.Missing, ReasonNotKept, fmt.Errorf("%s is not kept", what))
	}
	if err != nil {
		return nil, fmt.Errorf("reading %s: %w", what, err)
	}
	return io.NopCloser(bytes.NewReader(content)), nil
}

// follower reads a log that grows until its run has ended.
type follower struct {
	ctx   context.Context // of the reader, whose methods have no room for one
	blobs *Blobs
	id    StackID
	run   string
	file  io.ReadCloser // nil until something is written
	ended bool
}

func (f *follower) Read(p []byte) (int, error) {
	for {
		n, err := f.read(p)
		if n > 0 || err != io.EOF || f.ended {
			return n, err
		}
		more, err := f.blobs.goesOn(f.id, f.run)
		if err != nil {
			return 0, err
		}
		if !more {
			f.ended = true // what was written before the end is still to be read
			continue
		}
		select {
		case <-f.ctx.Done():
			return 0, context.Cause(f.ctx)
		case <-time.After(f.blobs.every):
		}
	}
}

// read is one attempt; io.EOF means that there is nothing new.
func (f *follower) read(p []byte) (int, error) {
	if f.file == nil {
		file, err := f.blobs.live.Open(f.id.UID, f.run, runner.FileLog)
		if fault.Of(err) == fault.Missing && f.ended {
			file, err = f.blobs.log(f.ctx, f.id, f.run, false)
		}
		if fault.Of(err) == fault.Missing {
			return 0, io.EOF
		}
		if err != nil {
			return 0, err
		}
		f.file = file
	}
	return f.file.Read(p)
}

func (f *follower) Close() error {
	if f.file == nil {
		return nil
	}
	return f.file.Close()
}
