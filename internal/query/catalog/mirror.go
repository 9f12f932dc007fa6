package catalog

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/terrier-iac/terrier/internal/address"
	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/registry/mirror"
)

// Mirror is what the mirror of providers has, and how its upstreams are.
type Mirror struct {
	Upstreams   []Upstream    `json:"upstreams"`
	Items       []Mirrored    `json:"items"` // providers, by address
	Total       int           `json:"total"`
	Offset      int           `json:"offset"`
	Archives    int           `json:"archives"` // of all providers that the user may see
	Bytes       int64         `json:"bytes"`    // of these
	Free        int64         `json:"free"`     // of the disk that downloads are on, in bytes; below zero if that is not known
	Keep        time.Duration `json:"-"`
	KeepSeconds int           `json:"keepSeconds"` // after which an unused archive is deleted; 0 is never
	AsOf        time.Time     `json:"asOf"`
}

// Upstream is a registry that is mirrored. Times and figures are since this server started.
type Upstream struct {
	Host     string        `json:"host"`
	State    UpstreamState `json:"state"`
	Unsigned bool          `json:"unsigned,omitempty"` // releases without a key are accepted
	Answered time.Time     `json:"answered,omitzero"`  // last
	Failed   time.Time     `json:"failed,omitzero"`    // last
	Reason   string        `json:"reason,omitempty"`   // of that failure
	Error    string        `json:"error,omitempty"`    // likewise; only for users who may read all namespaces
	Paused   time.Time     `json:"paused,omitzero"`    // until when it is not asked again for what failed
	Figures
}

// Figures are bytes of archives of an upstream.
type Figures struct {
	Upstream string `json:"-"`
	Fetched  int64  `json:"fetched"` // from it
	Served   int64  `json:"served"`  // to clients
	Saved    int64  `json:"saved"`   // of these, that were stored before a client asked
}

// UpstreamState is whether an upstream answers.
type UpstreamState string

// The states of an upstream.
const (
	UpstreamOffline   UpstreamState = "offline"   // the settings say so
	UpstreamUnasked   UpstreamState = "unasked"   // since this server started
	UpstreamAnswers   UpstreamState = "answers"   // the last answer was good
	UpstreamLimited   UpstreamState = "limited"   // it limits requests
	UpstreamFails     UpstreamState = "fails"     // the last answer was none, or wrong
	UpstreamRecovered UpstreamState = "recovered" // it answers again, and failed within the last hour
)

// Mirrored is a provider in the mirror.
type Mirrored struct {
	Address  string           `json:"address"`  // HOST/NAMESPACE/TYPE
	Releases []Mirroring      `json:"releases"` // verified ones, the newest first
	Archives int              `json:"archives"`
	Bytes    int64            `json:"bytes"`
	Used     time.Time        `json:"used,omitzero"` // the day of the last download
	Alarms   []Alarm          `json:"alarms,omitempty"`
	Problem  string           `json:"problem,omitempty"`
	Of       address.Provider `json:"-"`
}

// Stored are the releases with a stored archive.
func (m Mirrored) Stored() []Mirroring {
	return slices.DeleteFunc(slices.Clone(m.Releases), func(r Mirroring) bool { return r.Archives == 0 })
}

// Platforms are those with a stored archive.
func (m Mirrored) Platforms() []string {
	var all []string
	for _, r := range m.Releases {
		all = append(all, r.Platforms...)
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// Mirroring is a release in the mirror.
type Mirroring struct {
	Version   address.Version `json:"version"`
	Platforms []string        `json:"platforms,omitempty"` // with a stored archive
	Archives  int             `json:"archives"`
	Bytes     int64           `json:"bytes"`
	Used      time.Time       `json:"used,omitzero"`
	Pinned    bool            `json:"pinned,omitempty"` // an operator imported an archive: it stays
	KeyID     string          `json:"keyID,omitempty"`  // that signed it
	Expired   bool            `json:"expired,omitempty"`
	Sums      bool            `json:"sums"` // it has a list of checksums
	From      string          `json:"from"`
	Verified  time.Time       `json:"verified"`
	Compared  time.Time       `json:"compared,omitzero"`
}

// Alarm says that other bytes appeared for a release than those that were verified first.
type Alarm struct {
	Version address.Version `json:"version"`
	Text    string          `json:"text"`
	At      time.Time       `json:"at"`
}

// MirrorQuery selects providers of the mirror.
type MirrorQuery struct {
	Text   string
	Tenant string // whose rules count
	All    bool   // the user may read all namespaces, and sees the errors of upstreams
	Offset int
	Limit  int
}

// mirroredFor is how long the contents of the mirror are answered from memory: to know
// them takes one list of the indexes, and a read of each.
const mirroredFor = 30 * time.Second

// Mirror is the contents and the health of the mirror.
func (c *Catalog) Mirror(ctx context.Context, q MirrorQuery) (Mirror, error) {
	q.Limit = min(cmp.Or(q.Limit, 50), mostLimit)
	all, err := c.mirrored.Load(ctx, struct{}{}, c.readMirror)
	if err != nil {
		return Mirror{}, err
	}
	v := Mirror{Upstreams: c.upstreams(q.All), Items: []Mirrored{}, Keep: mirror.DeleteUnusedAfter(c.o.Mirror), Free: -1, AsOf: c.o.Now()}
	v.KeepSeconds = int(v.Keep / time.Second)
	if free, err := c.o.Room.Free(); err == nil {
		v.Free = free
	}
	words := strings.Fields(strings.ToLower(q.Text))
	for _, one := range all {
		if !q.All && mirror.Allowed(c.o.Mirror, q.Tenant, one.Of) != nil {
			continue
		}
		v.Archives, v.Bytes = v.Archives+one.Archives, v.Bytes+one.Bytes
		if !slices.ContainsFunc(words, func(w string) bool { return !strings.Contains(one.Address, w) }) {
			v.Items = append(v.Items, one)
		}
	}
	v.Total = len(v.Items)
	if v.Offset = q.Offset; v.Offset >= v.Total {
		v.Offset = max(0, v.Total-1) / q.Limit * q.Limit
	}
	v.Items = v.Items[v.Offset:min(v.Total, v.Offset+q.Limit)]
	return v, nil
}

// Mirrored is one provider of the mirror.
func (c *Catalog) Mirrored(ctx context.Context, p address.Provider, q MirrorQuery) (Mirrored, error) {
	if !q.All {
		if err := mirror.Allowed(c.o.Mirror, q.Tenant, p); err != nil {
			return Mirrored{}, err
		}
	}
	one, err := c.readMirrored(ctx, p)
	if err == nil && len(one.Releases) == 0 && len(one.Alarms) == 0 {
		err = fault.New(fault.Missing, mirror.ReasonMissing, errors.New("the mirror has nothing of "+p.String()))
	}
	return one, err
}

// readMirror reads all indexes of the mirror. One that cannot be read says so in its row.
func (c *Catalog) readMirror(ctx context.Context) ([]Mirrored, error) {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	providers, err := mirror.Providers(ctx, c.o.Mirror)
	if err != nil {
		return nil, err
	}
	all := make([]Mirrored, len(providers))
	each(len(providers), func(i int) {
		var err error
		if all[i], err = c.readMirrored(ctx, providers[i]); err != nil {
			all[i].Problem = err.Error()
		}
	})
	slices.SortFunc(all, func(a, b Mirrored) int { return strings.Compare(a.Address, b.Address) })
	return all, ctx.Err()
}

func (c *Catalog) readMirrored(ctx context.Context, p address.Provider) (Mirrored, error) {
	m := Mirrored{Address: p.String(), Of: p, Releases: []Mirroring{}}
	index, err := c.o.Mirror.Index(ctx, p)
	if err != nil || index == nil {
		return m, err
	}
	for v, r := range index.Releases {
		one := releaseOf(v, r)
		m.Archives, m.Bytes = m.Archives+one.Archives, m.Bytes+one.Bytes
		m.Used = later(m.Used, one.Used)
		m.Releases = append(m.Releases, one)
	}
	slices.SortFunc(m.Releases, func(a, b Mirroring) int { return b.Version.Compare(a.Version) })
	for _, a := range index.Alarms {
		m.Alarms = append(m.Alarms, Alarm{a.Version, a.Text, a.At})
	}
	return m, nil
}

func releaseOf(v address.Version, r *mirror.Release) Mirroring {
	one := Mirroring{Version: v, KeyID: r.KeyID, Expired: r.Expired, Sums: r.Sums != "", From: r.From, Verified: r.Verified, Compared: r.Compared}
	for platform, pkg := range r.Packages {
		if pkg.Stored.IsZero() {
			continue
		}
		one.Platforms = append(one.Platforms, platform)
		one.Archives, one.Bytes = one.Archives+1, one.Bytes+pkg.Size
		one.Used, one.Pinned = later(one.Used, pkg.Used), one.Pinned || pkg.Pinned
	}
	slices.Sort(one.Platforms)
	return one
}

func later(a, b time.Time) time.Time {
	if a.Before(b) {
		return b
	}
	return a
}

// recently is how long ago a failure counts for the state of an upstream that answers.
const recently = time.Hour

func (c *Catalog) upstreams(explained bool) []Upstream {
	figures := map[string]Figures{}
	if c.o.Figures != nil {
		for _, f := range c.o.Figures() {
			figures[f.Upstream] = f
		}
	}
	now := c.o.Now()
	all := []Upstream{}
	for _, h := range mirror.HealthOf(c.o.Mirror) {
		u := Upstream{Host: h.Host, Unsigned: h.Unsigned, Answered: h.Answered, Failed: h.Failed, Reason: h.Reason, Figures: figures[h.Host]}
		if h.Paused.After(now) {
			u.Paused = h.Paused
		}
		if explained {
			u.Error = h.Error
		}
		switch {
		case h.Offline:
			u.State = UpstreamOffline
		case h.Answered.IsZero() && h.Failed.IsZero():
			u.State = UpstreamUnasked
		case h.Failed.After(h.Answered) && h.Reason == mirror.ReasonLimited:
			u.State = UpstreamLimited
		case h.Failed.After(h.Answered):
			u.State = UpstreamFails
		case !h.Failed.IsZero() && now.Sub(h.Failed) < recently:
			u.State = UpstreamRecovered
		default:
			u.State = UpstreamAnswers
		}
		all = append(all, u)
	}
	return all
}
