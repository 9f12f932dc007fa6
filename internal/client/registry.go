package client

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/terrier-iac/terrier/internal/address"
	"github.com/terrier-iac/terrier/internal/command"
	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/query/catalog"
	"github.com/terrier-iac/terrier/internal/registry"
	"github.com/terrier-iac/terrier/internal/registry/origin"
)

// Registry is the registry of modules and providers of a server.
type Registry struct {
	conn     *conn
	services map[string]*url.URL // by the names of the discovery document; nil until it was read
}

// ReasonNoRegistry is the reason of a fault of a server that has no registry.
const ReasonNoRegistry = "NoRegistry"

// ReasonStays is the reason of a fault of a registry that keeps what it has, also if asked
// again: other content is published under a version, or a version needs a key.
const ReasonStays = "ContentStays"

// The services of a registry.
const (
	modulesService   = "modules.v1"
	providersService = "providers.v1"
)

// discovery is the path of the document that names the services of a server.
var discovery = []string{".well-known", "terraform.json"}

// Registry returns the registry of the server, and the namespace of a command that names
// none.
func (c Connection) Registry(ctx context.Context) (*Registry, string, error) {
	to, namespace, err := c.server(ctx)
	return &Registry{conn: to}, namespace, err
}

// PublishedModule is what a registry says of a version of a module that it took.
type PublishedModule struct {
	Version   address.Version `json:"version"`
	SHA256    string          `json:"sha256"`
	Size      int64           `json:"size"`
	Unchanged bool            `json:"unchanged"` // the same bytes were published before
	Published time.Time       `json:"published,omitzero"`
	By        string          `json:"by"` // who published them first
}

// RegistryVersion is a version of a module or a provider in a registry.
type RegistryVersion struct {
	Version   address.Version `json:"version"`
	Published time.Time       `json:"published,omitzero"`
	By        string          `json:"by,omitempty"`
	Size      int64           `json:"size,omitempty"` // of all archives, in bytes
	SHA256    string          `json:"sha256,omitempty"`
	Key       string          `json:"key,omitempty"`       // that signed a provider
	Platforms []string        `json:"platforms,omitempty"` // of a provider
	Origin    *ModuleOrigin   `json:"origin,omitempty"`    // of a module: the tag of git that it comes from; nil if a user uploaded it
	Retracted *Retraction     `json:"retracted,omitempty"` // nil: clients may use it
}

// retractedVersion is a version that a user withdrew, as a registry lists it.
type retractedVersion struct {
	Version address.Version `json:"version"`
	Retraction
}

// details asks a registry for what users read about versions. Other registries have none.
func details() url.Values { return url.Values{"details": {"true"}} }

// versionsOf puts together what a registry says of versions, the lowest first.
func versionsOf(open []RegistryVersion, gone []retractedVersion, more map[address.Version]RegistryVersion) []RegistryVersion {
	for _, v := range gone {
		open = append(open, RegistryVersion{Version: v.Version, Retracted: &v.Retraction})
	}
	for i, v := range open {
		d := more[v.Version]
		d.Version, d.Retracted = v.Version, v.Retracted
		if len(v.Platforms) > 0 {
			d.Platforms = v.Platforms
		}
		open[i] = d
	}
	slices.SortFunc(open, func(a, b RegistryVersion) int { return a.Version.Compare(b.Version) })
	return open
}

// ModuleOrigin is the tag of a git repository that a version of a module was made from.
type ModuleOrigin = registry.Origin

// ModuleRepository is a git repository whose tags become versions of modules.
type ModuleRepository = origin.State

// Retraction says why a version was withdrawn.
type Retraction struct {
	Reason string    `json:"reason"`
	By     string    `json:"by,omitempty"`
	At     time.Time `json:"at,omitzero"`
}

// PublishedKey is a public key that a namespace signs its providers with.
type PublishedKey struct {
	Namespace string `json:"namespace,omitempty"`
	ID        string `json:"key_id"`
	Armor     string `json:"ascii_armor"`
}

// Published is what a registry publishes of one kind, in the namespaces that the user may
// read. Of a query counts the text, the kind, the namespace, and which part is wanted.
func (r *Registry) Published(ctx context.Context, q catalog.Query) (catalog.Page, error) {
	service, one := modulesService, "module"
	if q.Kind == catalog.Providers {
		service, one = providersService, "provider"
	}
	params := url.Values{}
	text(params, "q", q.Text)
	text(params, "namespace", q.Namespace)
	text(params, "sort", string(q.Sort))
	for name, n := range map[string]int{"offset": q.Offset, "limit": q.Limit} {
		if n > 0 {
			params.Set(name, strconv.Itoa(n))
		}
	}
	var page catalog.Page
	err := r.ask(ctx, service, http.MethodGet, content{}, params, &page)
	if fault.Of(err) == fault.Missing {
		err = fault.New(fault.Invalid, ReasonNoRegistry, fmt.Errorf("this registry lists the versions of one %s at a time: name it", one))
	}
	return page, err
}

// Modules are the versions of a module, the lowest first, those that users withdrew
// included.
func (r *Registry) Modules(ctx context.Context, m address.Module) ([]RegistryVersion, error) {
	var answer struct {
		Modules []struct {
			Versions  []RegistryVersion                   `json:"versions"`
			Retracted []retractedVersion                  `json:"retracted"`
			Details   map[address.Version]RegistryVersion `json:"details"`
		} `json:"modules"`
	}
	err := r.ask(ctx, modulesService, http.MethodGet, content{}, details(), &answer, m.Namespace, m.Name, m.System, "versions")
	if err != nil || len(answer.Modules) == 0 {
		return nil, err
	}
	of := answer.Modules[0]
	return versionsOf(of.Versions, of.Retracted, of.Details), nil
}

// ModuleDetail is a version of a module with its documentation.
type ModuleDetail struct {
	Module    string          `json:"module"`
	Version   address.Version `json:"version"`
	SHA256    string          `json:"sha256,omitempty"`
	Size      int64           `json:"size,omitempty"`
	Published time.Time       `json:"published,omitzero"`
	By        string          `json:"by,omitempty"`
	Origin    *ModuleOrigin   `json:"origin,omitempty"`
	Retracted *Retraction     `json:"retracted,omitempty"`
	catalog.Document
}

// Module is a version of a module with its documentation; the newest one that clients may
// use if version is empty.
func (r *Registry) Module(ctx context.Context, m address.Module, version string) (ModuleDetail, error) {
	var d ModuleDetail
	if version == "" {
		version = "latest"
	}
	err := r.ask(ctx, modulesService, http.MethodGet, content{}, nil, &d, m.Namespace, m.Name, m.System, version)
	return d, err
}

// Repositories are those whose tags become versions of modules, of all namespaces in which
// the caller may read.
func (r *Registry) Repositories(ctx context.Context) ([]ModuleRepository, error) {
	var answer struct {
		Items []ModuleRepository `json:"items"`
	}
	err := r.ask(ctx, modulesService, http.MethodGet, content{}, nil, &answer, "..", "repositories")
	if fault.Of(err) == fault.Missing {
		err = fault.New(fault.Missing, ReasonNoRegistry, errors.New("this registry follows no git repositories: its operator starts it with --repositories FILE"))
	}
	return answer.Items, err
}

// Providers are the versions of a provider, the lowest first, those that users withdrew
// included, and what the registry warns of.
func (r *Registry) Providers(ctx context.Context, p address.Provider) (all []RegistryVersion, warnings []string, err error) {
	var answer struct {
		Versions []struct {
			Version   address.Version `json:"version"`
			Platforms []struct {
				OS   string `json:"os"`
				Arch string `json:"arch"`
			} `json:"platforms"`
		} `json:"versions"`
		Warnings  []string                            `json:"warnings"`
		Retracted []retractedVersion                  `json:"retracted"`
		Details   map[address.Version]RegistryVersion `json:"details"`
	}
	err = r.ask(ctx, providersService, http.MethodGet, content{}, details(), &answer, p.Namespace, p.Type, "versions")
	for _, v := range answer.Versions {
		one := RegistryVersion{Version: v.Version}
		for _, on := range v.Platforms {
			one.Platforms = append(one.Platforms, on.OS+"_"+on.Arch)
		}
		all = append(all, one)
	}
	return versionsOf(all, answer.Retracted, answer.Details), answer.Warnings, err
}

// PushModule publishes the archive in a file as a version of a module. The same bytes again
// are no error; for other bytes the reason is ReasonStays.
func (r *Registry) PushModule(ctx context.Context, m address.Module, v address.Version, file string) (PublishedModule, error) {
	p := PublishedModule{Version: v}
	err := r.ask(ctx, modulesService, http.MethodPut, content{file: file, kind: "application/gzip"}, nil, &p, m.Namespace, m.Name, m.System, string(v))
	return p, err
}

// RetractModule withdraws a version of a module, and RestoreModule takes that back.
func (r *Registry) RetractModule(ctx context.Context, m address.Module, v address.Version, reason string) error {
	return r.command(ctx, modulesService, map[string]string{"reason": reason}, m.Namespace, m.Name, m.System, string(v), "retract")
}

// RestoreModule makes a version of a module usable again.
func (r *Registry) RestoreModule(ctx context.Context, m address.Module, v address.Version) error {
	return r.command(ctx, modulesService, nil, m.Namespace, m.Name, m.System, string(v), "restore")
}

// RetractProvider withdraws a version of a provider, and RestoreProvider takes that back.
func (r *Registry) RetractProvider(ctx context.Context, p address.Provider, v address.Version, reason string) error {
	return r.command(ctx, providersService, map[string]string{"reason": reason}, p.Namespace, p.Type, string(v), "retract")
}

// RestoreProvider makes a version of a provider usable again.
func (r *Registry) RestoreProvider(ctx context.Context, p address.Provider, v address.Version) error {
	return r.command(ctx, providersService, nil, p.Namespace, p.Type, string(v), "restore")
}

// PushProviderFile uploads one file of a version of a provider. Nothing of the version is
// visible before PublishProvider.
func (r *Registry) PushProviderFile(ctx context.Context, p address.Provider, v address.Version, file string) error {
	return r.ask(ctx, providersService, http.MethodPut, content{file: file, kind: "application/octet-stream"}, nil, nil, p.Namespace, p.Type, string(v), filepath.Base(file))
}

// PublishProvider has the registry verify the files of a version, and publish it.
func (r *Registry) PublishProvider(ctx context.Context, p address.Provider, v address.Version) error {
	return r.command(ctx, providersService, nil, p.Namespace, p.Type, string(v), "publish")
}

// ProviderSums are the checksums of the packages of a version, by platform. The version has
// a package for the platform that is named.
func (r *Registry) ProviderSums(ctx context.Context, p address.Provider, v address.Version, on address.Platform) (map[address.Platform]string, error) {
	var answer struct {
		Packages map[string]struct {
			Hashes []string `json:"hashes"`
		} `json:"packages"`
	}
	err := r.ask(ctx, providersService, http.MethodGet, content{}, nil, &answer, p.Namespace, p.Type, string(v), "download", on.OS, on.Arch)
	sums := map[address.Platform]string{}
	for name, of := range answer.Packages {
		platform, failed := address.ParsePlatform(name)
		err = errors.Join(err, failed)
		for _, hash := range of.Hashes {
			if sum, ok := strings.CutPrefix(hash, "zh:"); ok {
				sums[platform] = sum
			}
		}
	}
	return sums, err
}

// Keys are those that a namespace signs its providers with.
func (r *Registry) Keys(ctx context.Context, namespace string) ([]PublishedKey, error) {
	var answer struct {
		Keys []PublishedKey `json:"gpg_public_keys"`
	}
	err := r.ask(ctx, providersService, http.MethodGet, content{}, nil, &answer, namespace, "signing-keys")
	for i := range answer.Keys {
		answer.Keys[i].Namespace = namespace
	}
	return answer.Keys, err
}

// AllKeys are those of each namespace that the user may read.
func (r *Registry) AllKeys(ctx context.Context) ([]PublishedKey, error) {
	var answer struct {
		Namespaces []struct {
			Namespace string         `json:"namespace"`
			Keys      []PublishedKey `json:"gpg_public_keys"`
		} `json:"namespaces"`
	}
	err := r.ask(ctx, providersService, http.MethodGet, content{}, nil, &answer, "..", "signing-keys")
	if fault.Of(err) == fault.Missing {
		err = fault.New(fault.Invalid, ReasonNoRegistry, errors.New("this registry lists the keys of one namespace at a time: name it with --namespace"))
	}
	var all []PublishedKey
	for _, of := range answer.Namespaces {
		for _, k := range of.Keys {
			k.Namespace = of.Namespace
			all = append(all, k)
		}
	}
	return all, err
}

// AddKey adds a public key in ASCII armour, and returns it as the registry has it.
func (r *Registry) AddKey(ctx context.Context, namespace string, armor []byte) (PublishedKey, error) {
	var k PublishedKey
	err := r.ask(ctx, providersService, http.MethodPut, content{text: armor, kind: "application/pgp-keys"}, nil, &k, namespace, "signing-keys")
	return k, err
}

// RemoveKey removes a public key by its ID. One that a published version needs stays,
// unless this is forced.
func (r *Registry) RemoveKey(ctx context.Context, namespace, id string, force bool) error {
	params := url.Values{}
	flag(params, "force", force)
	return r.ask(ctx, providersService, http.MethodDelete, content{}, params, nil, namespace, "signing-keys", id)
}

// Usage is what a namespace takes of a registry, and its quota.
type Usage struct {
	Namespace string `json:"namespace"`
	Versions  int    `json:"versions"`
	Bytes     int64  `json:"bytes"`
	Waiting   int64  `json:"waitingBytes,omitempty"` // of packages of providers that are not published yet
	Quota     struct {
		Versions int   `json:"versions,omitempty"` // 0: it is not bounded
		Bytes    int64 `json:"bytes,omitempty"`
	} `json:"quota,omitzero"`
}

// Usage is what a namespace takes.
func (r *Registry) Usage(ctx context.Context, namespace string) (Usage, error) {
	var u Usage
	err := r.ask(ctx, modulesService, http.MethodGet, content{}, nil, &u, "..", "usage", namespace)
	return u, err
}

// content is what a request sends: a text, a file, or nothing.
type content struct {
	text []byte
	file string
	kind string // media type
}

func (r *Registry) command(ctx context.Context, service string, in map[string]string, parts ...string) error {
	if in == nil {
		in = map[string]string{}
	}
	text, err := json.Marshal(in)
	if err != nil {
		return err
	}
	return r.ask(ctx, service, http.MethodPost, content{text: text, kind: "application/json"}, nil, nil, parts...)
}

// registryAnswer bounds an answer of a registry, which may list 10,000 versions.
const registryAnswer = 32 << 20

// ask sends a request to a service, and reads the answer into out unless that is nil. All
// requests but deletions may be sent again: the same content changes nothing twice.
func (r *Registry) ask(ctx context.Context, service, method string, c content, params url.Values, out any, parts ...string) error {
	p, err := r.conn.find()
	if err != nil {
		return err
	}
	base, err := r.service(ctx, p, service)
	if err != nil {
		return err
	}
	for i := range parts {
		parts[i] = url.PathEscape(parts[i])
	}
	at := base.JoinPath(parts...)
	at.RawQuery = params.Encode()
	again := method
	if method == http.MethodPut {
		again = http.MethodGet
	}
	return r.conn.repeat(ctx, again, func() error { return p.registry(ctx, method, at, c, out) })
}

// service is the base of a service, which the server names in its discovery document.
func (r *Registry) service(ctx context.Context, p peer, name string) (*url.URL, error) {
	if r.services == nil {
		at := p.base.JoinPath(discovery...)
		var says map[string]json.RawMessage
		err := r.conn.repeat(ctx, http.MethodGet, func() error { return p.registry(ctx, http.MethodGet, at, content{}, &says) })
		if fault.Of(err) == fault.Missing {
			return nil, p.noRegistry()
		}
		if err != nil {
			return nil, err
		}
		services := map[string]*url.URL{}
		for _, s := range []string{modulesService, providersService} {
			var to string
			if json.Unmarshal(says[s], &to) != nil || to == "" {
				continue
			}
			if services[s], err = at.Parse(to); err != nil {
				return nil, fmt.Errorf("reading the services of %s: %w", p.base.Host, err)
			}
		}
		r.services = services
	}
	base := r.services[name]
	if base == nil || base.Scheme != p.base.Scheme || base.Host != p.base.Host {
		return nil, p.noRegistry()
	}
	return base, nil
}

func (p peer) noRegistry() error {
	return fault.New(fault.Missing, ReasonNoRegistry, fmt.Errorf("the server at %s has no registry of modules and providers: name another server with --server", p.base.Host))
}

// registry sends a request to a registry once.
func (p peer) registry(ctx context.Context, method string, at *url.URL, c content, out any) error {
	var body io.Reader = bytes.NewReader(c.text)
	size := int64(len(c.text))
	if c.file != "" {
		f, err := os.Open(c.file)
		if err != nil {
			return err
		}
		defer f.Close()
		info, err := f.Stat()
		if err != nil {
			return err
		}
		body, size = f, info.Size()
	}
	req, err := http.NewRequestWithContext(ctx, method, at.String(), body)
	if err != nil {
		return err
	}
	req.ContentLength = size
	if c.kind != "" {
		req.Header.Set("Content-Type", c.kind)
	}
	if c.file != "" {
		req.Header.Set("Expect", "100-continue") // a refusal comes before the content was sent
	}
	resp, err := p.http.Do(req)
	if err != nil {
		return p.unreachable(ctx, err)
	}
	defer resp.Body.Close()
	switch {
	case resp.StatusCode >= http.StatusMultipleChoices:
		return p.registryRefusal(resp)
	case out == nil || resp.StatusCode == http.StatusNoContent:
		return nil
	}
	if err := json.NewDecoder(io.LimitReader(resp.Body, registryAnswer)).Decode(out); err != nil {
		return fmt.Errorf("reading the answer of %s: %w", p.base.Host, err)
	}
	return nil
}

// registryRefusal reads what a registry says is wrong. Its handler answers as registries
// do, and the server around it as the rest of its API.
func (p peer) registryRefusal(resp *http.Response) error {
	var said struct {
		command.Refusal
		Errors []string `json:"errors"`
	}
	text, err := io.ReadAll(io.LimitReader(resp.Body, 64<<10))
	if err != nil || json.Unmarshal(text, &said) != nil || len(said.Errors) == 0 {
		resp.Body = io.NopCloser(bytes.NewReader(text))
		return p.refusal(resp)
	}
	kind, reason := fault.Broken, ""
	switch resp.StatusCode {
	case http.StatusBadRequest, http.StatusUnprocessableEntity, http.StatusRequestEntityTooLarge:
		kind = fault.Invalid
	case http.StatusUnauthorized, http.StatusForbidden:
		kind = fault.Denied
	case http.StatusNotFound, http.StatusGone:
		kind = fault.Missing
	case http.StatusConflict:
		kind, reason = fault.Invalid, ReasonStays // no conflict, which would pass
	case http.StatusTooManyRequests, http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		kind = fault.Later
	}
	return fault.New(kind, reason, errors.New(strings.Join(said.Errors, "; ")))
}
