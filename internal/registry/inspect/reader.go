package inspect

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/terrier-iac/terrier/internal/address"
	"github.com/terrier-iac/terrier/internal/archive"
	"github.com/terrier-iac/terrier/internal/cache"
	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/registry"
	"github.com/terrier-iac/terrier/internal/registry/room"
)

// Reader makes the documentation of each archive once, and keeps what was asked for last.
type Reader struct {
	registry *registry.Registry
	scratch  string
	room     *room.Room
	slots    chan struct{}
	made     cache.Map[string, outcome]
	limits   limits
	now      func() time.Time
}

// limits bound the reading of one archive.
type limits struct {
	bytes    int64         // packed
	time     time.Duration // until its documentation is made
	unpacked archive.Limits
}

// outcome is documentation, or why there is none: that of an archive never changes, unless
// it took too long.
type outcome struct {
	module Module
	err    error
	weight int
	until  time.Time // zero: for ever
}

const (
	mostArchive = 64 << 20 // bytes of an archive
	mostTime    = 30 * time.Second
	mostAtOnce  = 2
	slowFor     = 5 * time.Minute // until an archive that took too long is read again
	keptWeight  = 64 << 20        // bytes of all documentation in memory
)

// ReasonUndocumented is the reason of a fault of an archive without documentation.
const ReasonUndocumented = "ModuleUndocumented"

// reasonSlow is the reason of a fault of an archive that took too long.
const reasonSlow = "ModuleSlow"

// NewReader returns a reader of the modules of a registry. Archives are on the disk of
// scratch while they are read.
func NewReader(r *registry.Registry, scratch string, disk *room.Room, now func() time.Time) *Reader {
	return &Reader{
		registry: r, scratch: scratch, room: disk, slots: make(chan struct{}, mostAtOnce), limits: limits{bytes: mostArchive, time: mostTime}, now: now,
		made: cache.Map[string, outcome]{Size: 1000, Weight: keptWeight, Weigh: func(key string, o outcome) int { return len(key) + o.weight }},
	}
}

// Module is the documentation of a version. It is shared, and not to be changed. The error
// is Invalid if the archive has none, and then stays so.
func (r *Reader) Module(ctx context.Context, m address.Module, v registry.ModuleVersion) (Module, error) {
	key := registry.ModuleKey(m, v.File)
	id := v.SHA256
	if id == "" { // another program published it: there is no checksum, and bytes may change
		a, err := r.registry.OpenArchive(ctx, key)
		if err != nil {
			return Module{}, gone(key, err)
		}
		if err := a.Close(); err != nil {
			return Module{}, err
		}
		id = fmt.Sprint(key, " ", a.Size, " ", a.Modified.UnixNano())
	}
	if o, ok := r.made.Get(id); ok && !o.until.IsZero() && r.now().After(o.until) {
		r.made.Delete(id)
	}
	o, err := r.made.Load(ctx, id, func(ctx context.Context) (outcome, error) {
		made, err := r.read(ctx, key, v)
		switch {
		case fault.Reason(err, "") == reasonSlow:
			return outcome{err: err, until: r.now().Add(slowFor)}, nil
		case err != nil && fault.Of(err) != fault.Invalid:
			return outcome{}, err
		}
		return outcome{module: made, err: err, weight: made.weight()}, nil
	})
	if err != nil {
		return Module{}, err
	}
	return o.module, o.err
}

// gone names an archive that the store does not have.
func gone(key string, err error) error {
	if fault.Of(err) != fault.Missing {
		return err
	}
	return fault.New(fault.Missing, ReasonUndocumented, fmt.Errorf("%s is no longer in the storage of the registry: restore it, or publish the same archive again", key))
}

func undocumented(format string, args ...any) error {
	return fault.New(fault.Invalid, ReasonUndocumented, fmt.Errorf(format, args...))
}

// read makes the documentation of an archive.
func (r *Reader) read(ctx context.Context, key string, v registry.ModuleVersion) (Module, error) {
	if !strings.HasSuffix(v.File, ".tar.gz") && !strings.HasSuffix(v.File, ".tgz") && !strings.HasSuffix(v.File, ".zip") {
		return Module{}, undocumented("documentation is made from .tar.gz and .zip archives, and this version is published as %s", v.File)
	}
	wait, stop := context.WithTimeout(ctx, mostTime)
	defer stop()
	select {
	case r.slots <- struct{}{}:
		defer func() { <-r.slots }()
	case <-wait.Done():
		return Module{}, fault.New(fault.Later, ReasonUndocumented, errors.New("the registry reads the archives of other modules: load the page again"))
	}
	slow := fault.New(fault.Later, reasonSlow, fmt.Errorf("the archive was not read within %v: it is read again in %v", r.limits.time, slowFor))
	ctx, cancel := context.WithTimeoutCause(ctx, r.limits.time, slow)
	defer cancel()
	made, err := r.unpack(ctx, key, v)
	if err != nil && ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	return made, err
}

func (r *Reader) unpack(ctx context.Context, key string, v registry.ModuleVersion) (Module, error) {
	file, err := r.spool(ctx, key, v)
	if err != nil {
		return Module{}, err
	}
	defer file.Close()
	return read(&timed{file, ctx}, file.Size, r.limits.unpacked, func() error { return context.Cause(ctx) })
}

// spool copies an archive to the disk.
func (r *Reader) spool(ctx context.Context, key string, v registry.ModuleVersion) (*room.File, error) {
	a, err := r.registry.OpenArchive(ctx, key)
	if err != nil {
		return nil, gone(key, err)
	}
	defer a.Close()
	if a.Size > r.limits.bytes {
		return nil, undocumented("the archive has %d MiB, and documentation is made from archives of at most %d MiB: leave out files that the module does not need with --exclude of terrier module push", a.Size>>20, r.limits.bytes>>20)
	}
	file, err := r.room.Spool(ctx, r.scratch, a, r.limits.bytes)
	if err != nil {
		return nil, fmt.Errorf("reading %s: %w", key, err)
	}
	if v.SHA256 != "" && file.SHA256 != v.SHA256 {
		changed := undocumented("%s has changed in the storage: it has the checksum %s, and had %s: restore it", key, file.SHA256, v.SHA256)
		return nil, errors.Join(changed, file.Close())
	}
	return file, nil
}

// timed fails once its context has ended.
type timed struct {
	io.ReaderAt
	ctx context.Context //nolint:containedctx // it is the context of the one call that reads
}

func (t *timed) ReadAt(p []byte, at int64) (int, error) {
	if err := context.Cause(t.ctx); err != nil {
		return 0, err
	}
	return t.ReaderAt.ReadAt(p, at)
}

// weight is about how many bytes documentation has in memory.
func (m *Module) weight() int {
	n := m.Root.weight()
	for _, list := range [][]Part{m.Submodules, m.Examples} {
		for i := range list {
			n += list[i].weight()
		}
	}
	return n
}

func (p *Part) weight() int {
	n := 1000 + len(p.Readme) + 100*(len(p.Resources)+len(p.Calls)+len(p.Providers))
	for i := range p.Inputs {
		in := &p.Inputs[i]
		n += 300 + len(in.Description) + len(in.Type) + len(in.Default)
		for _, v := range in.Validations {
			n += 50 + len(v.Condition) + len(v.Message)
		}
	}
	for _, o := range p.Outputs {
		n += 100 + len(o.Description)
	}
	for _, f := range p.Files {
		n += len(f.Name) + len(f.Content)
	}
	return n
}
