package protocol_test

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"io"
	"mime"
	"net/http"
	"net/url"
	"os"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/terrier-iac/terrier/internal/registry/protocol"
	"github.com/terrier-iac/terrier/internal/registry/registrytest"
	"github.com/terrier-iac/terrier/internal/registry/signature"
)

// client is an engine: what tells its requests from those of others, and what it reads of an
// answer.
type client struct {
	engine  string // the file in testdata with the requests of its kind
	version string // as X-Terraform-Version
	body    bool   // it reads the location of a module in the body, and the header only without one
	direct  bool   // it fetches archives by itself: GET alone; others HEAD before
}

// clients are those that are in use. Terraform reads the header from 0.11 to 1.14. OpenTofu
// reads the body since 1.9, and fetches archives by itself since 1.12. A client whose
// version is the recorded one has to send exactly what is recorded.
var clients = map[string]client{
	"terraform 1.1":  {engine: "terraform", version: "1.1.9"},
	"terraform 1.5":  {engine: "terraform", version: "1.5.7"},
	"terraform 1.8":  {engine: "terraform", version: "1.8.5"},
	"terraform 1.11": {engine: "terraform", version: "1.11.4"},
	"terraform 1.14": {engine: "terraform", version: "1.14.0"},
	"tofu 1.6":       {engine: "tofu", version: "1.6.3"},
	"tofu 1.8":       {engine: "tofu", version: "1.8.11"},
	"tofu 1.10":      {engine: "tofu", version: "1.10.9", body: true},
	"tofu 1.12":      {engine: "tofu", version: "1.12.6", body: true, direct: true},
}

// agents are the values of User-Agent: of requests, and of discovery.
func (c client) agents() (agent, finder string) {
	if c.engine == "tofu" {
		return "OpenTofu/" + c.version, "OpenTofu/" + c.version
	}
	return "Terraform/" + c.version, "HashiCorp Terraform/" + c.version + " (+https://www.terraform.io)"
}

// replay sends the requests of a client, and is as strict as that about the answers.
type replay struct {
	client
	t     *testing.T
	http  *http.Client
	token string
}

// ask sends a request with headers, and returns the answer if its status is one of those.
func (p replay) ask(method string, at *url.URL, statuses []int, headers ...string) (*http.Response, []byte) {
	p.t.Helper()
	req, err := http.NewRequestWithContext(p.t.Context(), method, at.String(), nil)
	if err != nil {
		p.t.Fatal(err)
	}
	agent, _ := p.agents()
	req.Header.Set("User-Agent", agent)
	for i := 0; i+1 < len(headers); i += 2 {
		req.Header.Set(headers[i], headers[i+1])
	}
	resp, err := p.http.Do(req)
	if err != nil {
		p.t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		p.t.Fatal(err)
	}
	if !slices.Contains(statuses, resp.StatusCode) {
		p.t.Fatalf("%s %s is %s: %s", method, at, resp.Status, body)
	}
	return resp, body
}

// query asks an API with a token, and decodes the answer.
func (p replay) query(at *url.URL, into any) (*http.Response, []byte) {
	p.t.Helper()
	resp, body := p.ask("GET", at, []int{http.StatusOK}, "Authorization", "Bearer "+p.token, "X-Terraform-Version", p.version)
	if err := json.Unmarshal(body, into); err != nil {
		p.t.Fatalf("%s: %v: %s", at, err, body)
	}
	return resp, body
}

// fetch gets a file without a token.
func (p replay) fetch(from *url.URL, at string) []byte {
	p.t.Helper()
	_, body := p.ask("GET", p.resolve(from, at), []int{http.StatusOK})
	return body
}

// resolve reads an address in an answer.
func (p replay) resolve(from *url.URL, at string) *url.URL {
	p.t.Helper()
	u, err := from.Parse(at)
	if err != nil || u.Scheme != "https" {
		p.t.Fatalf("the address %q is %v, %v", at, u, err)
	}
	return u
}

// discover finds a service of a host.
func (p replay) discover(base *url.URL, service string) *url.URL {
	p.t.Helper()
	_, finder := p.agents()
	resp, body := p.ask("GET", p.resolve(base, "/.well-known/terraform.json"), []int{http.StatusOK}, "Accept", "application/json", "Authorization", "Bearer "+p.token, "User-Agent", finder)
	kind, _, err := mime.ParseMediaType(resp.Header.Get("Content-Type"))
	if err != nil || kind != "application/json" || len(body) > 1<<20 {
		p.t.Fatalf("discovery has %d bytes of %q, %v", len(body), kind, err)
	}
	var services map[string]any
	if err := json.Unmarshal(body, &services); err != nil {
		p.t.Fatal(err)
	}
	at, ok := services[service].(string)
	if !ok || !strings.HasSuffix(at, "/") {
		p.t.Fatalf("discovery says %q of %s", at, service)
	}
	return p.resolve(resp.Request.URL, at)
}

// module installs a version of a module.
func (p replay) module(base *url.URL, name, version string) []byte {
	p.t.Helper()
	api := p.discover(base, "modules.v1")
	var all struct {
		Modules []struct{ Versions []struct{ Version string } }
	}
	p.query(p.resolve(api, name+"/versions"), &all)
	if len(all.Modules) != 1 || len(all.Modules[0].Versions) != 1 || all.Modules[0].Versions[0].Version != version {
		p.t.Fatalf("the versions are %+v", all)
	}
	var said struct {
		Location string `json:"location"`
		Direct   *bool  `json:"use_registry_credentials"`
	}
	resp, _ := p.query(p.resolve(api, name+"/"+version+"/download"), &said)
	location := resp.Header.Get("X-Terraform-Get")
	if p.body && said.Location != "" {
		location = said.Location
	}
	// What does not begin so is an address of go-getter, which a relative one would not be.
	if !regexp.MustCompile(`^(/|\.\./|\./|https://)`).MatchString(location) {
		p.t.Fatalf("the location is %q", location)
	}
	at := p.resolve(resp.Request.URL, location)
	if p.direct && said.Direct != nil {
		if *said.Direct {
			p.t.Fatal("the package needs a token, which older clients do not send")
		}
		resp, body := p.ask("GET", at, []int{http.StatusOK}, "X-Terraform-Version", p.version, "Accept", "application/zip, application/x-tar; *;q=0.1", "Accept-Encoding", "identity, gzip, *;q=0.1")
		if resp.Header.Get("Content-Encoding") != "" || resp.ContentLength != int64(len(body)) {
			p.t.Errorf("the package has %d bytes and %v", len(body), resp.Header)
		}
		return body
	}
	if !strings.HasSuffix(at.Path, ".tar.gz") && at.Query().Get("archive") == "" {
		p.t.Errorf("the address %s does not say which archive it is", at)
	}
	return p.archive(at, "User-Agent", "Go-http-client/1.1", "Connection", "close")
}

// archive gets an archive without a token. Clients that ask for its size before get the rest
// of what they have a part of.
func (p replay) archive(at *url.URL, headers ...string) []byte {
	p.t.Helper()
	resp, body := p.ask("GET", at, []int{http.StatusOK}, headers...)
	if resp.ContentLength != int64(len(body)) {
		p.t.Errorf("%s has %d bytes, and GET says %d", at, len(body), resp.ContentLength)
	}
	if p.direct {
		return body
	}
	head, _ := p.ask("HEAD", at, []int{http.StatusOK}, headers...)
	if head.ContentLength != int64(len(body)) || head.Header.Get("Accept-Ranges") != "bytes" {
		p.t.Errorf("%s has %d bytes, HEAD says %d and %v", at, len(body), head.ContentLength, head.Header)
	}
	return body
}

// located is the answer that leads to a package of a provider, as clients read it.
type located struct {
	Protocols []string
	OS, Arch  string
	Filename  string
	URL       string `json:"download_url"`
	Sum       string `json:"shasum"`
	Sums      string `json:"shasums_url"`
	Signature string `json:"shasums_signature_url"`
	Keys      struct {
		Keys []signature.Key `json:"gpg_public_keys"`
	} `json:"signing_keys"`
}

var protocols = regexp.MustCompile(`^[56]\.\d+$`)

// provider installs a version of a provider, and verifies it.
func (p replay) provider(base *url.URL, name, version string) []byte {
	p.t.Helper()
	api := p.discover(base, "providers.v1")
	var all struct {
		Versions []struct {
			Version   string
			Protocols []string
		}
		Warnings []string
	}
	p.query(p.resolve(api, name+"/versions"), &all)
	if len(all.Versions) != 1 || all.Versions[0].Version != version || len(all.Versions[0].Protocols) != 1 || len(all.Warnings) != 0 {
		p.t.Fatalf("the versions are %+v", all)
	}
	var d located
	resp, _ := p.query(p.resolve(api, name+"/"+version+"/download/"+runtime.GOOS+"/"+runtime.GOARCH), &d)
	if sum, err := hex.DecodeString(d.Sum); err != nil || len(sum) != 32 || d.OS != runtime.GOOS || d.Arch != runtime.GOARCH || len(d.Protocols) != 1 || !protocols.MatchString(d.Protocols[0]) {
		p.t.Fatalf("the package is %+v", d)
	}
	sums, sig := p.fetch(resp.Request.URL, d.Sums), p.fetch(resp.Request.URL, d.Signature)
	archive := p.archive(p.resolve(resp.Request.URL, d.URL))
	if _, err := signature.Verify(sums, sig, d.Keys.Keys, time.Now()); err != nil {
		p.t.Errorf("the signature is not good: %v", err)
	}
	if registrytest.Sum(archive) != d.Sum || !strings.Contains(string(sums), d.Sum+"  "+d.Filename+"\n") {
		p.t.Errorf("the checksum of the archive is not that of %s in\n%s", d.Filename, sums)
	}
	return archive
}

// mirrored installs a version of a provider of another host through a mirror.
func (p replay) mirrored(base *url.URL, name, version string) []byte {
	p.t.Helper()
	var index struct{ Versions map[string]struct{} }
	resp, _ := p.query(p.resolve(base, protocol.MirrorPath+name+"/index.json"), &index)
	if _, ok := index.Versions[version]; !ok || resp.Header.Get("Content-Type") != "application/json" {
		p.t.Fatalf("index.json is %+v of %q", index, resp.Header.Get("Content-Type"))
	}
	var found struct {
		Archives map[string]struct {
			URL    string
			Hashes []string
		}
	}
	resp, _ = p.query(p.resolve(base, protocol.MirrorPath+name+"/"+version+".json"), &found)
	archive := p.archive(p.resolve(resp.Request.URL, found.Archives[here].URL))
	if hashes := found.Archives[here].Hashes; !slices.Contains(hashes, "zh:"+registrytest.Sum(archive)) || resp.Header.Get("Content-Type") != "application/json" {
		p.t.Errorf("the hashes are %q", hashes)
	}
	return archive
}

// RG-01, RG-02, RG-04, RG-05, RG-06, RG-10: clients of all versions that are in use get what
// they read, for the requests that they send.
func TestClientsOfAllVersions(t *testing.T) {
	h := newHosts(t)
	base, err := url.Parse(h.URL)
	if err != nil {
		t.Fatal(err)
	}
	behind, err := url.Parse(h.mirror.URL)
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range clients {
		t.Run(name, func(t *testing.T) {
			direct := replay{c, t, h.Client, reader}
			if got := direct.module(base, "team/vpc/aws", "1.0.0"); !bytes.Equal(got, h.module) {
				t.Errorf("the module has %d bytes, want %d", len(got), len(h.module))
			}
			if got := direct.provider(base, "team/cloud", "1.0.0"); !bytes.Equal(got, h.own.Archives[here]) {
				t.Errorf("the provider has %d bytes, want %d", len(got), len(h.own.Archives[here]))
			}
			mirrored := replay{c, t, h.mirror.Client(), "token-team-a"}
			if got := mirrored.mirrored(behind, private+"/acme/cloud", "1.0.0"); !bytes.Equal(got, h.mirrored.Archives[here]) {
				t.Errorf("the provider of the mirror has %d bytes, want %d", len(got), len(h.mirrored.Archives[here]))
			}
			got := h.direct.take() + "\n\n" + h.behind.take() + "\n"
			want, err := os.ReadFile(recorded(c.engine))
			if err != nil {
				t.Fatal(err)
			}
			if of := version.FindStringSubmatch(string(want)); c.version == of[1] {
				if diff := cmp.Diff(string(want), got); diff != "" {
					t.Errorf("the requests are not those that were recorded (-want +got):\n%s", diff)
				}
			}
		})
	}
}

var version = regexp.MustCompile(`X-Terraform-Version: (\S+)`)

// RG-01, RG-02, RG-06, RG-14: what a client asks for in vain has the status that its error is
// made of, and an answer in JSON, whatever the client is.
func TestClientsAskInVain(t *testing.T) {
	h := newHosts(t)
	const zeros = "0000000000000000000000000000000000000000000000000000000000000000"
	for name, tt := range map[string]struct {
		path, token string
		want        int
	}{
		"a module that is not there":                {"/v1/modules/team/none/aws/versions", reader, http.StatusNotFound},
		"a version that is not there":               {"/v1/modules/team/vpc/aws/9.9.9/download", reader, http.StatusNotFound},
		"the newest version, of terraform 0.11":     {"/v1/modules/team/vpc/aws/download", reader, http.StatusNotFound},
		"a version that is none":                    {"/v1/modules/team/vpc/aws/latest/download", reader, http.StatusNotFound},
		"a module with the host before it":          {"/v1/modules/registry.example.com/team/vpc/aws/versions", reader, http.StatusNotFound},
		"a system that no module has":               {"/v1/modules/team/vpc/AWS/versions", reader, http.StatusNotFound},
		"a module of a namespace of others":         {"/v1/modules/secret/vpc/aws/versions", reader, http.StatusForbidden},
		"a module without a token":                  {"/v1/modules/team/vpc/aws/versions", "", http.StatusUnauthorized},
		"a module with a token of another registry": {"/v1/modules/team/vpc/aws/1.0.0/download", "other", http.StatusUnauthorized},
		"an archive without a signature":            {"/v1/archives/modules/team/vpc/aws/team-vpc-aws-1.0.0.tar.gz", reader, http.StatusForbidden},
		"an archive with a wrong signature":         {"/v1/archives/modules/team/vpc/aws/team-vpc-aws-1.0.0.tar.gz?expires=99999999999&signature=" + zeros, "", http.StatusForbidden},
		"a provider that is not there":              {"/v1/providers/team/none/versions", reader, http.StatusNotFound},
		"a provider with the host before it":        {"/v1/providers/registry.example.com/team/cloud/versions", reader, http.StatusNotFound},
		"the namespace of providers before 0.13":    {"/v1/providers/-/cloud/versions", reader, http.StatusForbidden},
		"a platform that is not there":              {"/v1/providers/team/cloud/1.0.0/download/solaris/sparc", reader, http.StatusNotFound},
		"a version of a provider that is not there": {"/v1/providers/team/cloud/2.0.0/download/linux/amd64", reader, http.StatusNotFound},
		"a provider without a token":                {"/v1/providers/team/cloud/versions", "", http.StatusUnauthorized},
		"a service that there is not":               {"/v1/components/team/x/versions", reader, http.StatusNotFound},
		"another document beside discovery":         {"/.well-known/other.json", "", http.StatusNotFound},
	} {
		t.Run(name, func(t *testing.T) {
			for _, agent := range []string{"Terraform/1.1.9", "Terraform/1.14.0", "OpenTofu/1.12.6"} {
				_, version, _ := strings.Cut(agent, "/")
				// The last header is one of answers to terraform 0.12. A client that sends it gets the same.
				a := h.ask(t, "GET", tt.path, tt.token, nil, "User-Agent", agent, "X-Terraform-Version", version, "X-Terraform-Protocol-Version", "5")
				var said struct{ Errors []string }
				if err := json.Unmarshal([]byte(a.body), &said); err != nil || len(said.Errors) != 1 || a.StatusCode != tt.want || a.Header.Get("Content-Type") != "application/json" || a.Header.Get("X-Terraform-Get") != "" {
					t.Errorf("%s is answered with %s %v %s, want %d and an error", tt.path, a.Status, a.Header, a.body, tt.want)
				}
			}
		})
	}
}
