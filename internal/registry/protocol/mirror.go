package protocol

import (
	"fmt"
	"maps"
	"net/http"
	"strings"
	"time"

	"github.com/terrier-iac/terrier/internal/address"
	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/registry/mirror"
)

// MirrorPath is where the mirror is: the url of network_mirror in a CLI configuration.
const MirrorPath = prefix + "mirror/"

// mirrors serves the network mirror protocol. Its documents are for every known caller:
// what a tenant may install is decided by the rules of the mirror, not by namespaces.
type mirrors struct {
	*Server
	mirror *mirror.Mirror
}

// ServeMirror adds the mirror below MirrorPath, and its archives to the others.
func (s *Server) ServeMirror(m *mirror.Mirror) {
	s.Openers = maps.Clone(s.Openers)
	if s.Openers == nil {
		s.Openers = map[string]Opener{}
	}
	s.Openers[mirror.Prefix] = m
	others := s.Served
	s.Served = func(tenant, key string, bytes int64) {
		if strings.HasPrefix(key, mirror.Prefix) {
			m.Served(tenant, key, bytes)
		}
		if others != nil {
			others(tenant, key, bytes)
		}
	}
	routes := mirrors{s, m}
	s.mux.HandleFunc("GET "+MirrorPath+"{host}/{owner}/{type}/{file}", func(w http.ResponseWriter, r *http.Request) {
		if err := routes.document(w, r); err != nil {
			switch kind := fault.Of(err); { // clients do not show why
			case kind == fault.Denied:
				s.Log.Info("request to the mirror denied", "path", r.URL.Path, "err", err)
			case kind == fault.Later && !mirror.OfUpstream(err): // answer logs what is wrong with an upstream
				s.Log.Warn("request to the mirror not served", "path", r.URL.Path, "reason", fault.Reason(err, ""), "err", err)
			}
			s.answer(w, r, err)
		}
	})
}

// document answers with index.json or VERSION.json.
func (s mirrors) document(w http.ResponseWriter, r *http.Request) error {
	c, err := s.Rights.Caller(r)
	if err != nil {
		return err
	}
	p, err := address.NewProvider(r.PathValue("host"), r.PathValue("owner"), r.PathValue("type"))
	if err != nil {
		return err
	}
	file := r.PathValue("file")
	version, ok := strings.CutSuffix(file, ".json")
	if !ok {
		return fault.New(fault.Missing, mirror.ReasonMissing, fmt.Errorf("the mirror has no %.200q: it serves index.json and VERSION.json", file))
	}
	if version == "index" {
		return s.index(w, r, c, p)
	}
	v, err := address.ParseVersion(version)
	if err != nil {
		return missing(err)
	}
	return s.version(w, r, c, p, v)
}

// index is kept for all tenants of a group, as lists of the registry are for all callers. What
// it depends on is found out for each request.
func (s mirrors) index(w http.ResponseWriter, r *http.Request, c Caller, p address.Provider) error {
	all, err := s.mirror.List(r.Context(), c.Tenant, p)
	if err != nil {
		return err
	}
	return s.list(w, r, "mirror/"+p.String()+" "+all.Group, all.Edition, func() (any, time.Time) {
		versions := map[address.Version]struct{}{}
		for _, v := range all.Versions() {
			versions[v] = struct{}{}
		}
		return map[string]any{"versions": versions}, time.Time{}
	})
}

func (s mirrors) version(w http.ResponseWriter, r *http.Request, c Caller, p address.Provider, v address.Version) error {
	files, err := s.mirror.Version(r.Context(), c.Tenant, p, v)
	if err != nil {
		return err
	}
	type archive struct {
		URL    string   `json:"url"`
		Hashes []string `json:"hashes"`
	}
	archives := make(map[string]archive, len(files))
	for platform, f := range files {
		archives[platform.String()] = archive{s.URL(r, Link{Key: f.Key, SHA256: f.SHA256, Tenant: c.Tenant}), f.Hashes}
	}
	s.JSON(w, r, map[string]any{"archives": archives}) // which no client keeps: the addresses expire
	return nil
}
