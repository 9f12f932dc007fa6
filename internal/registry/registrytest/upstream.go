// Package registrytest helps tests of registries: an upstream registry of providers
// on loopback, with TLS, releases that are signed by a key made for the test, and
// faults on request.
//
// It serves no modules. Start reading at New.
package registrytest

import (
	"encoding/json"
	"encoding/pem"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
)

// Host is the name in the certificate of an Upstream. It does not lead there: clients
// take URL, or Proxy.
const Host = "example.com"

// Upstream is a registry of providers. Its archives are on a second server, as those
// of public registries are.
type Upstream struct {
	URL       string // of the registry, with a slash at its end
	Files     string // of the server of archives, in the same form
	Proxy     string // of a proxy that leads to the registry by its name, and to the archives
	Authority []byte // of both servers, PEM

	t        T
	mu       sync.Mutex
	token    string
	releases map[string]*Release // by namespace/type/version
	faults   []fault
	asked    []Request
}

// Request is one that an Upstream answered.
type Request struct {
	Path          string
	Authorization string
	Proxied       bool
}

type fault struct {
	part string
	do   Fault
}

// T is the test that needs a registry, or a program that measures one.
type T interface {
	Helper()
	Cleanup(end func())
	Fatal(why ...any)
}

// New starts an Upstream without releases.
func New(t T) *Upstream {
	t.Helper()
	u := &Upstream{t: t, releases: map[string]*Release{}}
	registry := u.serve(http.HandlerFunc(u.registry))
	files := u.serve(http.HandlerFunc(u.files))
	u.URL, u.Files = registry.URL+"/", files.URL+"/"
	u.Authority = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: registry.Certificate().Raw})
	proxy := httptest.NewServer(&tunnel{registry: registry.Listener.Addr().String()})
	t.Cleanup(proxy.Close)
	u.Proxy = proxy.URL
	return u
}

func (u *Upstream) serve(h http.Handler) *httptest.Server {
	s := httptest.NewUnstartedServer(u.recorded(h))
	s.Config.ErrorLog = log.New(io.Discard, "", 0) // clients are to fail
	s.StartTLS()
	u.t.Cleanup(func() {
		s.CloseClientConnections()
		s.Close()
	})
	return s
}

// Require makes the registry ask for a token. Its archives need none.
func (u *Upstream) Require(token string) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.token = token
}

// Publish adds releases, or replaces those of the same names.
func (u *Upstream) Publish(releases ...*Release) {
	u.mu.Lock()
	defer u.mu.Unlock()
	for _, r := range releases {
		u.releases[r.Namespace+"/"+r.Type+"/"+r.Version] = r
	}
}

// Withdraw removes a release.
func (u *Upstream) Withdraw(r *Release) {
	u.mu.Lock()
	defer u.mu.Unlock()
	delete(u.releases, r.Namespace+"/"+r.Type+"/"+r.Version)
}

// Asked are the requests so far.
func (u *Upstream) Asked() []Request {
	u.mu.Lock()
	defer u.mu.Unlock()
	return slices.Clone(u.asked)
}

// Count is how many requests were for a path that contains part.
func (u *Upstream) Count(part string) int {
	n := 0
	for _, r := range u.Asked() {
		if strings.Contains(r.Path, part) {
			n++
		}
	}
	return n
}

// recorded writes requests down and applies faults.
func (u *Upstream) recorded(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		u.mu.Lock()
		u.asked = append(u.asked, Request{Path: r.URL.Path, Authorization: r.Header.Get("Authorization"), Proxied: strings.HasPrefix(r.Host, Host)})
		faults := slices.Clone(u.faults)
		u.mu.Unlock()
		for _, f := range faults {
			if strings.Contains(r.URL.Path, f.part) {
				f.do(w, r, next)
				return
			}
		}
		next.ServeHTTP(w, r)
	})
}

func (u *Upstream) registry(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path == "/.well-known/terraform.json" {
		answer(w, map[string]string{"providers.v1": "/v1/providers/"})
		return
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.token != "" && r.Header.Get("Authorization") != "Bearer "+u.token {
		http.Error(w, "the token is wrong", http.StatusUnauthorized)
		return
	}
	path, ours := strings.CutPrefix(r.URL.Path, "/v1/providers/")
	parts := strings.Split(path, "/")
	switch {
	case ours && len(parts) == 3 && parts[2] == "versions":
		u.versions(w, r, parts[0], parts[1])
	case ours && len(parts) == 6 && parts[3] == "download":
		u.download(w, r, strings.Join(parts[:3], "/"), parts[4], parts[5])
	default:
		http.NotFound(w, r)
	}
}

func (u *Upstream) versions(w http.ResponseWriter, r *http.Request, namespace, kind string) {
	type platform struct {
		OS   string `json:"os"`
		Arch string `json:"arch"`
	}
	type version struct {
		Version   string     `json:"version"`
		Protocols []string   `json:"protocols"`
		Platforms []platform `json:"platforms"`
	}
	var all []version
	for _, release := range u.releases {
		if release.Namespace != namespace || release.Type != kind {
			continue
		}
		v := version{Version: release.Version, Protocols: release.Protocols}
		for p := range release.Archives {
			system, arch, _ := strings.Cut(p, "_")
			v.Platforms = append(v.Platforms, platform{system, arch})
		}
		all = append(all, v)
	}
	if len(all) == 0 {
		http.NotFound(w, r)
		return
	}
	answer(w, map[string]any{"versions": all})
}

func (u *Upstream) download(w http.ResponseWriter, r *http.Request, release, system, arch string) {
	found, ok := u.releases[release]
	if !ok || found.Archives[system+"_"+arch] == nil {
		http.NotFound(w, r)
		return
	}
	name := found.name(system + "_" + arch)
	at := u.Files + release + "/"
	keys := found.Keys
	answer(w, map[string]any{
		"protocols": found.Protocols, "os": system, "arch": arch, "filename": name,
		"download_url": at + name, "shasums_url": at + found.sumsName(), "shasums_signature_url": at + found.sumsName() + ".sig",
		"shasum": Sum(found.Archives[system+"_"+arch]), "signing_keys": map[string]any{"gpg_public_keys": keys},
	})
}

func (u *Upstream) files(w http.ResponseWriter, r *http.Request) {
	parts := strings.Split(strings.TrimPrefix(r.URL.Path, "/"), "/")
	u.mu.Lock()
	found := u.releases[strings.Join(parts[:len(parts)-1], "/")]
	u.mu.Unlock()
	if found == nil {
		http.NotFound(w, r)
		return
	}
	name := parts[len(parts)-1]
	var data []byte
	switch name {
	case found.sumsName():
		data = found.Sums
	case found.sumsName() + ".sig":
		data = found.Signature
	}
	for platform, archive := range found.Archives {
		if name == found.name(platform) {
			data = archive
		}
	}
	if data == nil {
		http.NotFound(w, r)
		return
	}
	w.Header().Set("Content-Type", "application/octet-stream")
	w.Header().Set("Content-Length", strconv.Itoa(len(data)))
	_, _ = w.Write(data)
}

// answer has parameters in its content type, as those of many servers.
func answer(w http.ResponseWriter, what any) {
	w.Header().Set("Content-Type", "application/json; charset=utf-8")
	_ = json.NewEncoder(w).Encode(what)
}

// tunnel is a proxy. By the name of the registry it leads to that, at any port.
type tunnel struct{ registry string }

func (p *tunnel) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	to := r.Host
	if strings.HasPrefix(to, Host+":") {
		to = p.registry
	}
	if r.Method != http.MethodConnect {
		http.Error(w, "only CONNECT is allowed", http.StatusForbidden)
		return
	}
	server, err := net.Dial("tcp", to)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadGateway)
		return
	}
	defer server.Close()
	client, rest, err := http.NewResponseController(w).Hijack()
	if err != nil {
		return
	}
	defer client.Close()
	_, _ = io.WriteString(client, "HTTP/1.1 200 OK\r\n\r\n")
	done := make(chan struct{})
	go func() {
		defer close(done)
		_, _ = io.Copy(server, rest)
		_ = server.(*net.TCPConn).CloseWrite()
	}()
	_, _ = io.Copy(client, server)
	_ = client.Close()
	<-done
}
