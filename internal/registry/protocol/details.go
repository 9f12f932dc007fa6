package protocol

import (
	"net/http"
	"time"

	"github.com/terrier-iac/terrier/internal/address"
	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/registry"
)

// detail is what users read about a version, beside what clients need. A list has the details
// if a request asks for them: those of many versions are long.
type detail struct {
	Published time.Time `json:"published,omitzero"`
	By        string    `json:"by,omitempty"`
	Size      int64     `json:"size,omitempty"` // of all archives, in bytes
	SHA256    string    `json:"sha256,omitempty"`
	Key       string    `json:"key,omitempty"` // that signed a provider
	Platforms []string  `json:"platforms,omitempty"`

	Origin *registry.Origin `json:"origin,omitempty"` // the tag that a module was made from
}

// detailed reports whether a request asks for details.
func detailed(r *http.Request) bool { return r.URL.Query().Get("details") == "true" }

// details are those of the versions of a module.
func (s modules) details(all []registry.ModuleVersion) map[address.Version]detail {
	of := map[address.Version]detail{}
	for _, v := range all {
		of[v.Version] = detail{Published: v.Published, By: v.By, Size: v.Size, SHA256: v.SHA256, Origin: v.Origin}
	}
	return of
}

// details are those of the versions of a provider.
func (s providers) details(all []registry.ProviderVersion) map[address.Version]detail {
	of := map[address.Version]detail{}
	for _, v := range all {
		d := detail{Published: v.Published, By: v.By, Key: v.Key}
		for _, on := range platforms(v) {
			d.Size += v.Packages[on].Size
			d.Platforms = append(d.Platforms, on.String())
		}
		of[v.Version] = d
	}
	return of
}

// allKeys answers with the keys of each namespace that the caller may read.
func (s providers) allKeys(w http.ResponseWriter, r *http.Request) error {
	type namespaced struct {
		Namespace string `json:"namespace"`
		signingKeys
	}
	c, err := s.Rights.Caller(r)
	if err != nil {
		return err
	}
	all, err := s.Registry.KeyNamespaces(r.Context())
	if err != nil {
		return err
	}
	seen := []namespaced{}
	for _, namespace := range all {
		switch err := s.Rights.May(r.Context(), c, Read, namespace); fault.Of(err) {
		case fault.None:
		case fault.Denied:
			continue
		default:
			return err
		}
		keys, err := s.Registry.Keys(r.Context(), namespace)
		if err != nil {
			return err
		}
		if len(keys) > 0 {
			seen = append(seen, namespaced{namespace, signingKeys{keys}})
		}
	}
	s.JSON(w, r, map[string][]namespaced{"namespaces": seen})
	return nil
}
