package protocol

import (
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/terrier-iac/terrier/internal/address"
	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/registry"
	"github.com/terrier-iac/terrier/internal/registry/signature"
)

// providers are the routes of providers.v1, of uploads, and of keys.
type providers struct{ *Server }

func (s providers) routes() {
	const one = "providers/{namespace}/{type}/"
	s.Handle("GET", one+"versions", Read, s.versions)
	s.Handle("GET", one+"{version}/download/{os}/{arch}", Read, s.download)
	s.Handle("PUT", one+"{version}/{file}", Write, s.admitted(s.upload))
	s.Handle("POST", one+"{version}/publish", Write, s.publish)
	s.Handle("POST", one+"{version}/retract", Write, s.retract)
	s.Handle("POST", one+"{version}/restore", Write, s.restore)
	s.Handle("GET", "providers/{namespace}/signing-keys", Read, s.keys)
	s.Handle("PUT", "providers/{namespace}/signing-keys", Write, s.admitted(s.addKey))
	s.Handle("DELETE", "providers/{namespace}/signing-keys/{id}", Write, s.removeKey)
	s.mux.HandleFunc("GET "+prefix+"signing-keys", func(w http.ResponseWriter, r *http.Request) {
		if err := s.allKeys(w, r); err != nil {
			s.answer(w, r, err)
		}
	})
}

func providerOf(r *http.Request) (address.Provider, error) {
	return address.NewProvider("", r.PathValue("namespace"), r.PathValue("type"))
}

func providerVersionOf(r *http.Request) (address.Provider, address.Version, error) {
	p, err := providerOf(r)
	if err != nil {
		return p, "", err
	}
	v, err := address.ParseVersion(r.PathValue("version"))
	return p, v, err
}

// platforms orders those of a version.
func platforms(v registry.ProviderVersion) []address.Platform {
	all := make([]address.Platform, 0, len(v.Packages))
	for p := range v.Packages {
		all = append(all, p)
	}
	slices.SortFunc(all, func(a, b address.Platform) int { return strings.Compare(a.String(), b.String()) })
	return all
}

// Bounds of the warnings of a list: clients show all of them at each init.
const (
	mostWarnings = 3
	warnedFor    = 90 * 24 * time.Hour
)

// versions lists the versions that clients may use, and warns of the newest that
// are retracted: clients show warnings to their users.
func (s providers) versions(w http.ResponseWriter, r *http.Request, _ Caller) error {
	p, err := providerOf(r)
	if err != nil {
		return missing(err)
	}
	all, err := s.Registry.ListedProvider(r.Context(), p)
	if err != nil {
		return err
	}
	if detailed(r) {
		list, _ := listOfProvider(p, all.Versions, s.Now(), s.details(all.Versions))
		s.JSON(w, r, list)
		return nil
	}
	return s.list(w, r, "providers/"+p.String(), all.Edition, func() (any, time.Time) { return listOfProvider(p, all.Versions, s.Now(), nil) })
}

// listOfProvider is the list of the versions of a provider, in their order, and until when it
// is right: the first of its warnings ends then.
func listOfProvider(p address.Provider, all []registry.ProviderVersion, now time.Time, details map[address.Version]detail) (list any, until time.Time) {
	type platform struct {
		OS   string `json:"os"`
		Arch string `json:"arch"`
	}
	type version struct {
		Version   string     `json:"version"`
		Protocols []string   `json:"protocols,omitempty"`
		Platforms []platform `json:"platforms"`
	}
	open, gone, warnings := make([]version, 0, len(all)), []retracted(nil), []string(nil)
	for _, v := range slices.Backward(all) {
		if v.Retracted != nil {
			gone = append(gone, retracted{string(v.Version), v.Retracted})
			if end := v.Retracted.At.Add(warnedFor); len(warnings) < mostWarnings && now.Before(end) {
				warnings = append(warnings, fmt.Sprintf("Version %s of %s was retracted: %s", v.Version, p, v.Retracted.Reason))
				if until.IsZero() || end.Before(until) {
					until = end
				}
			}
			continue
		}
		of := version{Version: string(v.Version), Protocols: v.Protocols}
		for _, on := range platforms(v) {
			of.Platforms = append(of.Platforms, platform{on.OS, on.Arch})
		}
		open = append(open, of)
	}
	slices.Reverse(open)
	slices.Reverse(gone)
	return struct {
		ID        string                     `json:"id"`
		Versions  []version                  `json:"versions"`
		Warnings  []string                   `json:"warnings,omitempty"`
		Retracted []retracted                `json:"retracted,omitempty"`
		Details   map[address.Version]detail `json:"details,omitempty"`
	}{p.String(), open, warnings, gone, details}, until
}

// located is the answer that leads to a package.
type located struct {
	Protocols    []string             `json:"protocols,omitempty"`
	OS           string               `json:"os"`
	Arch         string               `json:"arch"`
	Filename     string               `json:"filename"`
	URL          string               `json:"download_url"`
	SumsURL      string               `json:"shasums_url"`
	SignatureURL string               `json:"shasums_signature_url"`
	SHA256       string               `json:"shasum"`
	Keys         signingKeys          `json:"signing_keys"`
	Packages     map[string]hashesFor `json:"packages"`
}

type signingKeys struct {
	Keys []signature.Key `json:"gpg_public_keys"`
}

// hashesFor is what newer clients compare a package with.
type hashesFor struct {
	Hashes []string `json:"hashes"`
	Size   int64    `json:"package_size"`
}

// download says where the package for a platform is, and how it is verified. All
// addresses are signed: clients send their token to none of them.
func (s providers) download(w http.ResponseWriter, r *http.Request, c Caller) error {
	p, v, err := providerVersionOf(r)
	if err != nil {
		return missing(err)
	}
	on, err := address.NewPlatform(r.PathValue("os"), r.PathValue("arch"))
	if err != nil {
		return missing(err)
	}
	found, err := s.Registry.ProviderVersion(r.Context(), p, v)
	if err != nil {
		return err
	}
	pkg, ok := found.Packages[on]
	if !ok {
		return fault.New(fault.Missing, registry.PlatformMissing, fmt.Errorf("version %s of %s has no package for %s: it has %v", v, p, on, platforms(found)))
	}
	keys, err := s.Registry.Keys(r.Context(), p.Namespace)
	if err != nil {
		return err
	}
	link := func(file, sum string) string {
		return s.URL(r, Link{Key: registry.ProviderKey(p, file), SHA256: sum, Tenant: c.Tenant})
	}
	sums, sig := registry.Files(p, v)
	file := registry.PackageFile(p, v, on)
	d := located{
		Protocols: found.Protocols, OS: on.OS, Arch: on.Arch, Filename: file, URL: link(file, pkg.SHA256),
		SumsURL: link(sums, ""), SignatureURL: link(sig, ""), SHA256: pkg.SHA256, Keys: signingKeys{keys},
		Packages: map[string]hashesFor{},
	}
	for platform, other := range found.Packages {
		hashes := []string{"zh:" + other.SHA256}
		if other.H1 != "" {
			hashes = append(hashes, other.H1)
		}
		d.Packages[platform.String()] = hashesFor{hashes, other.Size}
	}
	s.JSON(w, r, d)
	return nil
}

func (s providers) upload(w http.ResponseWriter, r *http.Request, c Caller) error {
	p, v, err := providerVersionOf(r)
	if err == nil {
		err = s.Registry.StageProvider(r.Context(), p, v, r.PathValue("file"), registry.Upload{By: c.Name, Content: r.Body, Size: r.ContentLength})
	}
	if err != nil {
		return err
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}

func (s providers) publish(w http.ResponseWriter, r *http.Request, c Caller) error {
	var asked struct {
		Protocols []string `json:"protocols"`
	}
	p, v, err := providerVersionOf(r)
	if err == nil {
		err = body(r, &asked)
	}
	var made registry.ProviderVersion
	if err == nil {
		made, err = s.Registry.PublishProvider(r.Context(), p, v, c.Name, asked.Protocols)
	}
	if err != nil {
		return err
	}
	s.Log.Info("provider published", "provider", p.String(), "version", string(v), "by", c.Name, "key", made.Key)
	s.json(w, r, http.StatusCreated, struct {
		Version   string             `json:"version"`
		Protocols []string           `json:"protocols"`
		Platforms []address.Platform `json:"platforms"`
		Key       string             `json:"key"`
	}{string(v), made.Protocols, platforms(made), made.Key})
	return nil
}

func (s providers) retract(w http.ResponseWriter, r *http.Request, c Caller) error {
	var why reason
	p, v, err := providerVersionOf(r)
	if err == nil {
		err = body(r, &why)
	}
	if err == nil {
		err = s.Registry.RetractProvider(r.Context(), p, v, c.Name, why.Reason)
	}
	if err != nil {
		return err
	}
	s.Log.Info("provider retracted", "provider", p.String(), "version", string(v), "by", c.Name, "reason", why.Reason)
	w.WriteHeader(http.StatusNoContent)
	return nil
}

func (s providers) restore(w http.ResponseWriter, r *http.Request, c Caller) error {
	p, v, err := providerVersionOf(r)
	if err == nil {
		err = s.Registry.RestoreProvider(r.Context(), p, v, c.Name)
	}
	if err != nil {
		return err
	}
	s.Log.Info("provider restored", "provider", p.String(), "version", string(v), "by", c.Name)
	w.WriteHeader(http.StatusNoContent)
	return nil
}

func (s providers) keys(w http.ResponseWriter, r *http.Request, _ Caller) error {
	keys, err := s.Registry.Keys(r.Context(), strings.ToLower(r.PathValue("namespace")))
	if err != nil {
		return err
	}
	if keys == nil {
		keys = []signature.Key{}
	}
	s.JSON(w, r, signingKeys{keys})
	return nil
}

// mostKey bounds the body of a key.
const mostKey = 2 << 20

func (s providers) addKey(w http.ResponseWriter, r *http.Request, c Caller) error {
	namespace := strings.ToLower(r.PathValue("namespace"))
	armor, err := io.ReadAll(http.MaxBytesReader(nil, r.Body, mostKey))
	if err != nil {
		return err
	}
	key, err := s.Registry.AddKey(r.Context(), namespace, string(armor), c.Name)
	if err != nil {
		return err
	}
	s.Log.Info("key added", "namespace", namespace, "key", key.ID, "by", c.Name)
	s.json(w, r, http.StatusCreated, key)
	return nil
}

func (s providers) removeKey(w http.ResponseWriter, r *http.Request, c Caller) error {
	namespace, id := strings.ToLower(r.PathValue("namespace")), r.PathValue("id")
	if err := s.Registry.RemoveKey(r.Context(), namespace, id, c.Name, r.URL.Query().Get("force") == "true"); err != nil {
		return err
	}
	s.Log.Info("key removed", "namespace", namespace, "key", id, "by", c.Name)
	w.WriteHeader(http.StatusNoContent)
	return nil
}
