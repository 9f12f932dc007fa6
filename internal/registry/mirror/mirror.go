// Package mirror serves providers of other registries: it downloads each archive once,
// verifies it against the signed checksums of its release, and keeps it.
//
//	index.json     versions of the upstream, or the stored ones if it does not answer
//	VERSION.json   SHA256SUMS, verified once by its signature, and kept for ever
//	archive        downloaded once however many ask, verified, stored, and then served
//
// What was verified once is not asked again: a release never changes, and an upstream
// that says otherwise raises an alarm. The mirror unpacks nothing, knows no HTTP of its
// own clients, and never deletes an archive because it does not know when it was used.
// Start reading at Mirror.
package mirror

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"slices"
	"time"

	"github.com/terrier-iac/terrier/internal/address"
	"github.com/terrier-iac/terrier/internal/blob"
	"github.com/terrier-iac/terrier/internal/cache"
	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/outbound"
	"github.com/terrier-iac/terrier/internal/registry"
	"github.com/terrier-iac/terrier/internal/registry/room"
)

// Mirror pulls providers of upstreams through a store. Several processes may use one
// store.
type Mirror struct {
	store     blob.Versions
	options   Options
	records   *records
	upstreams map[string]*upstream
	rules     rules
	slots     *slots // of downloads

	lists     cache.Map[address.Provider, bool] // whose list was asked for a short while ago
	failed    cache.Map[string, error]          // what an upstream did not answer, by what was asked
	listing   cache.Flight[address.Provider, *Index]
	releases  cache.Flight[string, *Release]
	pulls     cache.Flight[string, struct{}]
	unserved  unserved
	strangers strangers
}

// Options are what a mirror needs. A zero field means its default.
type Options struct {
	Settings   Settings        // Defaults() if it has no upstreams
	Policy     outbound.Policy // of the operator, for all that goes out
	Scratch    string          // the directory for archives that are being verified; that of the system
	Room       *room.Room      // of the disk of the mirror; that of Scratch if nil
	MaxArchive int64           // of one archive, in bytes; 1 GiB
	Pulls      int             // downloads at once; 16, of which a tenant has half at most, and an upstream three quarters
	Fresh      time.Duration   // how long a list of versions is not asked for again; 5 min
	Patience   time.Duration   // how long a client waits for the upstream where stored versions could be answered; 3 s
	Claim      time.Duration   // how long the download of another process may show no sign of life; 20 s
	Pause      time.Duration   // how long an upstream is not asked again for what it did not answer; 15 s
	Counts     Counts          // counts nothing if nil
	Now        func() time.Time
	Log        *slog.Logger
}

// Counts is told what the mirror does, for metrics. Tenant is whose request it was, host
// the upstream.
type Counts interface {
	Fetched(tenant, host string, bytes int64)       // an archive, from an upstream
	Served(tenant, host string, bytes, saved int64) // of an archive, to a client; saved were stored before the request
	Failed(tenant, host, reason string)             // a request of a client
	Alarmed(a Alarm)                                // once for each
}

// Alarm says that an upstream, or the store, has other bytes for a release than those that
// were verified first. The first ones stay.
type Alarm struct {
	Provider address.Provider `json:"-"`
	Version  address.Version  `json:"version"`
	Text     string           `json:"text"`
	At       time.Time        `json:"at"`
}

type noCounts struct{}

func (noCounts) Fetched(string, string, int64)       {}
func (noCounts) Served(string, string, int64, int64) {}
func (noCounts) Failed(string, string, string)       {}
func (noCounts) Alarmed(Alarm)                       {}

// New returns a mirror that keeps everything in a store.
func New(store blob.Versions, o Options) (*Mirror, error) {
	if len(o.Settings.Upstreams) == 0 {
		o.Settings.Upstreams = Defaults().Upstreams
	}
	o.Scratch = cmp.Or(o.Scratch, os.TempDir())
	o.MaxArchive = cmp.Or(o.MaxArchive, 1<<30)
	o.Pulls = cmp.Or(o.Pulls, 16)
	o.Fresh = cmp.Or(o.Fresh, 5*time.Minute)
	o.Patience = cmp.Or(o.Patience, 3*time.Second)
	o.Claim = cmp.Or(o.Claim, 20*time.Second)
	o.Pause = cmp.Or(o.Pause, 15*time.Second)
	if o.Room == nil {
		o.Room = room.Of(o.Scratch)
	}
	if o.Counts == nil {
		o.Counts = noCounts{}
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	m := &Mirror{
		store: store, options: o, records: newRecords(store), upstreams: map[string]*upstream{}, rules: o.Settings.Rules,
		slots:     newSlots(o.Pulls),
		lists:     cache.Map[address.Provider, bool]{Size: 10_000, TTL: o.Fresh, Now: o.Now},
		failed:    cache.Map[string, error]{Size: 10_000, TTL: o.Pause, Now: o.Now},
		strangers: newStrangers(o.Now),
	}
	for host, settings := range o.Settings.Upstreams {
		u, err := newUpstream(host, settings, o.Policy, o.MaxArchive, o.Now)
		if err != nil {
			return nil, fault.New(fault.Invalid, ReasonSettings, fmt.Errorf("the settings of the mirror: upstreams.%s: %w", host, err))
		}
		m.upstreams[host] = u
	}
	return m, nil
}

// Close drops idle connections.
func (m *Mirror) Close() {
	for _, u := range m.upstreams {
		u.client.Close()
	}
}

// Versions are those of a provider that a tenant may install, the lowest first. While the
// upstream does not answer, they are those with a stored archive.
func (m *Mirror) Versions(ctx context.Context, tenant string, p address.Provider) ([]address.Version, error) {
	l, err := m.List(ctx, tenant, p)
	if err != nil {
		return nil, err
	}
	return l.Versions(), nil
}

// List is what Versions returns, before it is made: that takes a pass over all versions and
// rules.
type List struct {
	Edition registry.Edition // of what it is made from
	Group   string           // tenants of one group have the same list of an edition

	of   func() []address.Version
	said verdict
}

// Versions makes the list.
func (l List) Versions() []address.Version {
	allowed := slices.DeleteFunc(l.of(), func(v address.Version) bool { return l.said.version(v) != nil })
	address.SortVersions(allowed)
	return allowed
}

// List returns what Versions makes its answer from, for callers that keep it.
func (m *Mirror) List(ctx context.Context, tenant string, p address.Provider) (List, error) {
	index, stored, err := m.versions(ctx, tenant, p)
	if err != nil {
		return List{}, m.counted(tenant, p, err)
	}
	l := List{Edition: registry.Edition("all of " + index.version), Group: m.rules.group(tenant), of: index.known, said: m.rules.of(tenant, p)}
	if stored {
		l.Edition, l.of = registry.Edition("stored of "+index.version), index.available
	}
	return l, nil
}

// versions is the index that has the versions; stored, if they are those with a stored archive
// alone.
func (m *Mirror) versions(ctx context.Context, tenant string, p address.Provider) (_ *Index, stored bool, _ error) {
	u, err := m.upstream(tenant, p)
	if err != nil {
		return nil, false, err
	}
	index, err := m.records.read(ctx, p)
	if err != nil {
		return nil, false, err
	}
	if _, fresh := m.lists.Get(p); fresh && index != nil {
		return index, false, nil
	}
	listed, err := strange(m, u, tenant, p, index, func() (*Index, error) { return listSoon(ctx, m, u, p, index) })
	if err == nil {
		return listed, false, nil
	}
	if ctx.Err() != nil {
		return nil, false, context.Cause(ctx)
	}
	// A list that was made from the store counts as well, so it is read again.
	if index, errRead := m.records.read(ctx, p); errRead == nil && index != nil && index.stored() {
		if !u.settings.Offline {
			m.options.Log.Warn("upstream does not answer, stored versions are served", "provider", p.String(), "err", err)
		}
		m.options.Counts.Failed(tenant, p.Host, fault.Reason(err, ReasonUnreachable))
		return index, true, nil
	}
	return nil, false, err
}

// listSoon asks the upstream for its versions, no longer than a client should wait where
// stored ones could be answered.
func listSoon(ctx context.Context, m *Mirror, u *upstream, p address.Provider, index *Index) (*Index, error) {
	list := func(ctx context.Context) (*Index, error) { return m.list(ctx, u, p) }
	if index == nil || !index.stored() {
		return list(ctx)
	}
	return soon(ctx, m, u, p.String(), "list the versions of "+p.String(), list)
}

// soon asks an upstream where the store has an answer as well: it takes no longer than a
// client should wait. The answer comes for those who ask later.
func soon[T any](ctx context.Context, m *Mirror, u *upstream, what, does string, ask func(context.Context) (T, error)) (T, error) {
	if err := m.down(what); err != nil {
		var none T
		return none, err
	}
	slow := fault.New(fault.Later, ReasonUnreachable, fmt.Errorf("%s did not %s within %v", u.host, does, m.options.Patience))
	wait, cancel := context.WithTimeoutCause(ctx, m.options.Patience, slow)
	defer cancel()
	answer, err := ask(wait)
	if errors.Is(err, slow) { // the next clients do not wait for it
		m.failed.Put(what, slow)
	}
	return answer, err
}

// upstream is the registry of a provider, if a tenant may install that at all.
func (m *Mirror) upstream(tenant string, p address.Provider) (*upstream, error) {
	u, ok := m.upstreams[p.Host]
	if !ok {
		return nil, fault.New(fault.Missing, ReasonMissing, fmt.Errorf("the registry %.250q is not mirrored here: its operator can add it to the upstreams of the mirror", p.Host))
	}
	return u, m.rules.provider(tenant, p)
}

// list asks the upstream for its versions, once for all who wait.
func (m *Mirror) list(ctx context.Context, u *upstream, p address.Provider) (*Index, error) {
	return m.listing.Do(ctx, p, func(ctx context.Context) (*Index, error) {
		if err := m.down(p.String()); err != nil {
			return nil, err
		}
		index, err := m.records.read(ctx, p)
		if err != nil {
			return nil, err
		}
		if index == nil { // the store may have releases of another program, or of a lost index
			if index, err = m.rebuild(ctx, p); err != nil {
				return nil, err
			}
		}
		if _, fresh := m.lists.Get(p); fresh && index != nil {
			return index, nil
		}
		listed, err := asked(m, u, p.String(), func() (map[address.Version][]string, error) { return u.versions(ctx, p) })
		if err != nil {
			return nil, err
		}
		now := m.options.Now().UTC()
		if index == nil || !maps.EqualFunc(index.Listed, listed, slices.Equal) {
			if err := m.records.update(ctx, p, func(i *Index) { i.Listed, i.ListedAt = listed, now }); err != nil {
				return nil, err
			}
			if index, err = m.records.read(ctx, p); err != nil {
				return nil, err
			}
			if index == nil {
				return nil, fmt.Errorf("the index of %s was deleted", p)
			}
		}
		m.lists.Put(p, true)
		return index, nil
	})
}

// down says why an upstream is not asked for something now: it did not answer the same a
// short while ago.
func (m *Mirror) down(what string) error {
	err, _ := m.failed.Get(what)
	return err
}

// asked asks an upstream, unless it is down.
func asked[T any](m *Mirror, u *upstream, what string, ask func() (T, error)) (T, error) {
	var none T
	if err := m.down(what); err != nil {
		return none, err
	}
	answer, err := none, error(nil)
	if u.settings.Offline {
		err = fault.New(fault.Missing, ReasonOffline, fmt.Errorf("%s is not stored, and the settings of the mirror say that %s is offline: import a bundle that has it", what, u.host))
	} else {
		answer, err = ask()
	}
	now := m.options.Now()
	until := now.Add(m.options.Pause)
	if f, ok := errors.AsType[*fault.Fault](err); ok && f.After > 0 {
		until = now.Add(f.After)
	}
	if !u.settings.Offline {
		u.health.note(now, until, err)
	}
	if err == nil {
		m.failed.Delete(what)
		return answer, nil
	}
	m.failed.PutUntil(what, err, until)
	return none, err
}

// known are the versions that the upstream has, and those that are stored: the upstream
// may have withdrawn one that a lock file names.
func (i *Index) known() []address.Version {
	all := slices.Collect(maps.Keys(i.Listed))
	for v, r := range i.Releases {
		if _, ok := i.Listed[v]; !ok && r.stored() {
			all = append(all, v)
		}
	}
	return all
}

// stored reports whether an archive of the provider is here.
func (i *Index) stored() bool { return len(i.available()) > 0 }

// available are the versions of which an archive is here.
func (i *Index) available() []address.Version {
	var all []address.Version
	for v, r := range i.Releases {
		if r.stored() {
			all = append(all, v)
		}
	}
	return all
}

// Files are the archives of a version, by platform.
type Files map[address.Platform]File

// File is an archive of a provider, stored or not.
type File struct {
	Key    string   // for OpenArchive
	SHA256 string   // in hex
	Hashes []string // zh, and h1 once the archive was stored
	Size   int64    // in bytes; zero if it is not known
}

// Version returns the archives of a version, from SHA256SUMS of the upstream, which was
// verified.
func (m *Mirror) Version(ctx context.Context, tenant string, p address.Provider, v address.Version) (Files, error) {
	r, err := m.release(ctx, tenant, p, v)
	if err != nil {
		return nil, m.counted(tenant, p, err)
	}
	files := Files{}
	for name, pkg := range r.Packages {
		if platform, err := address.ParsePlatform(name); err == nil {
			files[platform] = File{Key: ArchiveKey(p, v, platform), SHA256: pkg.SHA256, Hashes: pkg.hashes(), Size: pkg.size()}
		}
	}
	return files, nil
}

// counted counts the failure of a request.
func (m *Mirror) counted(tenant string, p address.Provider, err error) error {
	if err == nil || errors.Is(err, context.Canceled) { // the client left
		return err
	}
	host := p.Host
	if _, ok := m.upstreams[host]; !ok {
		host = "" // clients do not make labels
	}
	m.options.Counts.Failed(tenant, host, fault.Reason(err, "Internal"))
	return err
}

// alarm keeps that a release is not what it was, once, and says so.
func (m *Mirror) alarm(ctx context.Context, p address.Provider, v address.Version, format string, args ...any) {
	a := Alarm{Provider: p, Version: v, Text: fmt.Sprintf(format, args...), At: m.options.Now().UTC()}
	added := false
	err := m.records.update(ctx, p, func(i *Index) {
		added = !slices.ContainsFunc(i.Alarms, func(o Alarm) bool { return o.Version == a.Version && o.Text == a.Text })
		if added {
			i.Alarms = append(i.Alarms, a)
			i.Alarms = i.Alarms[max(0, len(i.Alarms)-mostAlarms):]
		}
	})
	if err != nil || added {
		m.options.Log.Error("a release is not what it was", "provider", p.String(), "version", string(v), "alarm", a.Text, "err", err)
		m.options.Counts.Alarmed(a)
	}
}

// mostAlarms are kept of one provider.
const mostAlarms = 50

// Index is what the mirror knows of a provider, for pages; nil if it knows nothing. It is
// shared, and not to be changed.
func (m *Mirror) Index(ctx context.Context, p address.Provider) (*Index, error) {
	return m.records.read(ctx, p)
}
