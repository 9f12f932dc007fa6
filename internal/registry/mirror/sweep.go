package mirror

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/terrier-iac/terrier/internal/address"
	"github.com/terrier-iac/terrier/internal/blob"
)

// Swept is what a sweep did.
type Swept struct {
	Deleted  int   // archives
	Bytes    int64 // of them
	Compared int   // releases, with their upstreams
}

const (
	compareAfter = 7 * 24 * time.Hour // a release with stored archives is compared with its upstream so often
	mostCompared = 20                 // in one sweep
)

// sweepEvery is the time between two sweeps of one process.
const sweepEvery = 12 * time.Hour

// A clock may be wrong, and far ahead every archive seems unused. So a sweep deletes an
// archive only if another sweep found it unused some time before, and only a part of all:
// one of so many, or a few.
const (
	unusedFor   = sweepEvery - time.Hour
	partDeleted = 10
	fewDeleted  = 10
)

// clockKey is a value that each sweep writes, to read the clock of the store.
const clockKey = claimsPrefix + "clock"

// clockAhead is how far the clock of this machine may be ahead of that of the store.
const clockAhead = time.Hour

// sweepTime is the time of a sweep: that of the store, if the clock of this machine is ahead
// of it. A bucket has a clock of its own, and a directory mostly that of this machine.
func sweepTime(ctx context.Context, m *Mirror) time.Time {
	now := m.options.Now()
	err := m.store.Put(ctx, clockKey, strings.NewReader("a sweep began\n"))
	var v blob.Value
	if err == nil {
		v, err = m.store.Open(ctx, clockKey)
	}
	if err == nil {
		err = v.Close()
	}
	if err != nil { // a store that cannot be written is not swept either
		m.options.Log.Debug("clock of the store not read", "err", err)
		return now
	}
	if ahead := now.Sub(v.Modified); ahead > clockAhead {
		m.options.Log.Error("clock of this machine is ahead of that of the store: archives are swept by the clock of the store; correct the clock of this machine", "ahead", ahead.Round(time.Second))
		return v.Modified
	}
	return now
}

// Run sweeps as the settings say, until ctx ends. Several processes may do so.
func (m *Mirror) Run(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-time.After(sweepEvery):
		}
		done, err := m.Sweep(ctx, time.Duration(m.options.Settings.DeleteUnusedAfter))
		if err != nil && ctx.Err() == nil {
			m.options.Log.Error("mirror not swept", "err", err)
		}
		m.options.Log.Info("mirror swept", "deleted", done.Deleted, "bytes", done.Bytes, "compared", done.Compared)
	}
}

// Sweep deletes archives that no client has used for a time, and compares some releases
// with their upstreams. It deletes nothing that was imported, and nothing of which it
// does not know the last use. What was verified stays known, so an archive that is wanted
// again is downloaded again. A zero time deletes nothing. An archive that is unused is
// deleted by a later sweep than the one that found it so.
func (m *Mirror) Sweep(ctx context.Context, unused time.Duration) (Swept, error) {
	providers, err := m.records.providers(ctx)
	if err != nil {
		return Swept{}, err
	}
	now := sweepTime(ctx, m)
	most := mostDeleted(ctx, m, providers)
	var done Swept
	var errs []error
	for _, p := range providers {
		if err := m.sweep(ctx, now, p, unused, most, &done); err != nil {
			errs = append(errs, fmt.Errorf("sweeping %s: %w", p, err))
		}
		if ctx.Err() != nil {
			break
		}
	}
	if done.Deleted >= most {
		m.options.Log.Warn("many archives of the mirror are unused, and the next sweep deletes more: check the clock of this machine if that is unexpected", "deleted", done.Deleted)
	}
	return done, errors.Join(errs...)
}

// mostDeleted is how many archives one sweep deletes.
func mostDeleted(ctx context.Context, m *Mirror, providers []address.Provider) int {
	stored := 0
	for _, p := range providers {
		index, err := m.records.read(ctx, p)
		if err != nil || index == nil { // the sweep of this provider has the same error, and says it
			continue
		}
		for _, r := range index.Releases {
			for _, pkg := range r.Packages {
				if !pkg.Stored.IsZero() {
					stored++
				}
			}
		}
	}
	return max(fewDeleted, stored/partDeleted)
}

func (m *Mirror) sweep(ctx context.Context, now time.Time, p address.Provider, unused time.Duration, most int, done *Swept) error {
	index, err := m.records.read(ctx, p)
	if err != nil || index == nil {
		return err
	}
	var errs []error
	for v, r := range index.Releases {
		for name, pkg := range r.Packages {
			platform, err := address.ParsePlatform(name)
			if err != nil || unused == 0 && !pkg.Removing {
				continue
			}
			if !pkg.unused(now, unused) && !pkg.Removing && !pkg.forgotten() && pkg.Unused.IsZero() {
				continue
			}
			if done.Deleted >= most && !pkg.Unused.IsZero() {
				continue
			}
			deleted, err := (&one{m, p, v, platform}).remove(ctx, now, unused)
			errs = append(errs, err)
			if deleted {
				done.Deleted++
				done.Bytes += pkg.Size
			}
		}
		if r.stored() && now.Sub(r.Compared) > compareAfter && done.Compared < mostCompared {
			done.Compared++
			if err := m.Compare(ctx, p, v); err != nil { // the next sweep tries it again
				m.options.Log.Info("release not compared with its upstream", "provider", p.String(), "version", string(v), "err", err)
			}
		}
	}
	return errors.Join(errs...)
}

// unused reports whether an archive is here, and was not used for so long.
func (p *Package) unused(now time.Time, unused time.Duration) bool {
	return !p.Pinned && !p.Stored.IsZero() && !p.Used.IsZero() && now.Sub(later(p.Used, p.Stored)) > unused
}

// forgotten reports whether an archive is here, and its last use is not known.
func (p *Package) forgotten() bool { return !p.Stored.IsZero() && p.Used.IsZero() }

// remove deletes an archive, if it is still unused. The index says so first: a crash in
// between leaves an archive that the next sweep deletes, and none that is missing.
func (o *one) remove(ctx context.Context, now time.Time, unused time.Duration) (bool, error) {
	removing := false
	err := o.change(ctx, func(pkg *Package) {
		removing = false
		switch {
		case pkg.forgotten(): // it gets its time from now on
			pkg.Used = day(now)
		case !pkg.Removing && !pkg.unused(now, unused): // it was used, or the clock was wrong
			pkg.Unused = time.Time{}
		case !pkg.Removing && (pkg.Unused.IsZero() || pkg.Unused.After(now)):
			pkg.Unused = now.UTC()
		case pkg.Removing || now.Sub(pkg.Unused) >= unusedFor:
			pkg.Stored, pkg.Unused, pkg.Removing, removing = time.Time{}, time.Time{}, true, true
		}
	})
	if err != nil || !removing {
		return false, err
	}
	if err := o.store.Delete(ctx, o.key()); err != nil {
		return false, err
	}
	return true, o.change(ctx, func(pkg *Package) { pkg.Removing = false })
}
