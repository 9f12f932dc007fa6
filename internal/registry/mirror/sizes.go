package mirror

import (
	"context"
	"fmt"
	"sync"

	"github.com/terrier-iac/terrier/internal/address"
	"github.com/terrier-iac/terrier/internal/fault"
)

// asking is for how many sizes an upstream is asked at once.
const asking = 8

// Sized is Mirror.Version with the archives whose sizes are known, for protocols that name sizes
// before the content. The upstream is asked once for each size that is not known, and the
// index keeps the answers. An archive whose size it does not say is left out until it was
// stored; if there is no other, that is an error.
func Sized(ctx context.Context, m *Mirror, tenant string, p address.Provider, v address.Version) (Files, error) {
	r, err := m.release(ctx, tenant, p, v)
	if err == nil {
		r, err = (&sizes{m, p, v}).of(ctx, r)
	}
	if err != nil {
		return nil, m.counted(tenant, p, err)
	}
	return SizedFiles(p, v, r), nil
}

// SizedFiles are the archives of a release whose sizes are known.
func SizedFiles(p address.Provider, v address.Version, r *Release) Files {
	files := Files{}
	for name, pkg := range r.Packages {
		platform, err := address.ParsePlatform(name)
		if size := pkg.size(); err == nil && size > 0 {
			files[platform] = File{Key: ArchiveKey(p, v, platform), SHA256: pkg.SHA256, Hashes: pkg.hashes(), Size: size}
		}
	}
	return files
}

// size is that of the archive: of the one that was verified, else as the upstream says.
func (p *Package) size() int64 {
	if p.Size > 0 {
		return p.Size
	}
	return p.Told
}

// sizes are those of the archives of a release.
type sizes struct {
	*Mirror
	p address.Provider
	v address.Version
}

// of returns the release with the sizes that its upstream says.
func (s *sizes) of(ctx context.Context, r *Release) (*Release, error) {
	p, v := s.p, s.v
	complete := func(r *Release) bool {
		for _, pkg := range r.Packages {
			if pkg.size() == 0 {
				return false
			}
		}
		return true
	}
	if complete(r) {
		return r, nil
	}
	what := p.String() + " " + string(v) + " sizes"
	return s.releases.Do(ctx, what, func(ctx context.Context) (*Release, error) {
		// Another request may have asked meanwhile.
		index, err := s.records.read(ctx, p)
		if err != nil {
			return nil, err
		}
		if index != nil && index.Releases[v] != nil {
			if r = index.Releases[v]; complete(r) {
				return r, nil
			}
		}
		told, err := asked(s.Mirror, s.upstreams[p.Host], what, func() (map[string]int64, error) { return s.ask(ctx, r) })
		if len(told) > 0 {
			err = s.records.release(ctx, p, v, func(r *Release) {
				for name, size := range told {
					if pkg := r.Packages[name]; pkg != nil && pkg.Told == 0 {
						pkg.Told = size
					}
				}
			})
			if err != nil {
				return nil, err
			}
			if index, err = s.records.read(ctx, p); err != nil {
				return nil, err
			}
			if index != nil && index.Releases[v] != nil {
				r = index.Releases[v]
			}
		}
		if err != nil && len(SizedFiles(p, v, r)) == 0 {
			return nil, err
		}
		return r, nil
	})
}

// ask asks an upstream for the sizes of archives. It has an error only if the upstream
// told none.
func (s *sizes) ask(ctx context.Context, r *Release) (map[string]int64, error) {
	var mu sync.Mutex
	var wait sync.WaitGroup
	var failed error
	told, slots := map[string]int64{}, make(chan struct{}, asking)
	for name, pkg := range r.Packages {
		platform, err := address.ParsePlatform(name)
		if err != nil || pkg.size() > 0 {
			continue
		}
		wait.Go(func() {
			slots <- struct{}{}
			defer func() { <-slots }()
			size, err := s.askOne(ctx, platform)
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				s.options.Log.Warn("size of an archive not known", "provider", s.p.String(), "version", string(s.v), "platform", name, "err", err)
				failed = err
				return
			}
			told[name] = size
		})
	}
	wait.Wait()
	if len(told) > 0 {
		failed = nil
	}
	return told, failed
}

// askOne asks an upstream for one archive and reads none of it: some answer only GET.
func (s *sizes) askOne(ctx context.Context, platform address.Platform) (int64, error) {
	u := s.upstreams[s.p.Host]
	d, err := u.download(ctx, s.p, s.v, platform)
	if err != nil {
		return 0, err
	}
	what := fmt.Sprintf("the size of the archive of %s %s for %s", s.p, s.v, platform)
	resp, done, err := u.get(ctx, d.archive, false, 0, what)
	if err != nil {
		return 0, err
	}
	defer done()
	if resp.ContentLength <= 0 {
		return 0, fault.New(fault.Broken, ReasonUnreadable, fmt.Errorf("%s does not say %s, and clients of OCI need it: use network_mirror for this provider", u.host, what))
	}
	return resp.ContentLength, nil
}
