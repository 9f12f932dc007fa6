package browse

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/html"
	"golang.org/x/net/html/atom"

	"github.com/terrier-iac/terrier/internal/access"
	"github.com/terrier-iac/terrier/internal/address"
	"github.com/terrier-iac/terrier/internal/blob"
	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/outbound"
	"github.com/terrier-iac/terrier/internal/query"
	"github.com/terrier-iac/terrier/internal/query/catalog"
	"github.com/terrier-iac/terrier/internal/registry"
	"github.com/terrier-iac/terrier/internal/registry/inspect"
	"github.com/terrier-iac/terrier/internal/registry/mirror"
	"github.com/terrier-iac/terrier/internal/registry/registrytest"
	"github.com/terrier-iac/terrier/internal/registry/room"
	"github.com/terrier-iac/terrier/internal/registry/signature"
	"github.com/terrier-iac/terrier/internal/web/pages"
)

// hostile is what an author may write in any text.
const hostile = `<script>alert(1)</script> <img src=x onerror=alert(2)> ![pixel](https://evil.example/p.png) [run](javascript:alert(3)) <a href="javascript:alert(4)">x</a> ` + "\u202e"

var network = map[string]string{
	"README.md": "# Network\n\nMakes a **network**. See [the manual](https://example.com/manual) and [inputs](#inputs).\n\n## Inputs\n\n| name | type |\n| --- | --- |\n| cidr | `string` |\n\n" + hostile + "\n\nSome " + hostile + "\n",
	"main.tf": `
terraform { required_version = ">= 1.9" }
variable "cidr" {
  type        = string
  description = "The range <b>of</b> the network. ` + strings.ReplaceAll(hostile, `"`, `'`) + `"
  validation {
    condition     = can(cidrhost(var.cidr, 0))
    error_message = "It is a range."
  }
  validation {
    condition     = var.cidr != ""
    error_message = "It is not empty."
  }
}
variable "tags" { default = {} }
output "id" { value = 1 }
resource "aws_vpc" "this" {}
`,
	"modules/subnet/main.tf": `variable "zone" { type = string }`,
	"examples/basic/main.tf": "module \"network\" {\n  source  = \"../..\"\n}\nmodule \"subnet\" {\n  source = \"../../modules/subnet\"\n}\n",
}

// world is a real registry in a directory, with pages in front of it.
type world struct {
	t        *testing.T
	registry *registry.Registry
	backend  *pages.Backend
	roles    map[string]bool // namespaces that the visitor may read; "" is all of them
	store    *counting
	mirror   *mirror.Mirror
	tagged   []catalog.Repository // whose tags become versions
}

// counting counts the lists of a store.
type counting struct {
	blob.Versions
	lists int
}

func newWorld(t *testing.T) *world { return newWorldOf(t, mirror.Options{}) }

// newWorldOf has a mirror with options.
func newWorldOf(t *testing.T, o mirror.Options) *world {
	t.Helper()
	files, err := blob.OpenVersionedFiles(t.TempDir(), 1<<30)
	if err != nil {
		t.Fatal(err)
	}
	store := &counting{Versions: files}
	scratch := t.TempDir()
	o.Scratch = scratch
	w := &world{t: t, store: store, registry: registry.New(store, registry.Options{Scratch: scratch}), roles: map[string]bool{"": true}}
	m, err := mirror.New(store, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		m.Close()
		if err := files.Close(); err != nil {
			t.Error(err)
		}
	})
	w.mirror = m
	w.backend = &pages.Backend{Catalog: catalog.New(catalog.Options{
		Repositories: func(context.Context) ([]catalog.Repository, error) { return w.tagged, nil },
		Registry:     w.registry, Documents: inspect.NewReader(w.registry, scratch, room.Of(scratch), time.Now), Mirror: m, Room: room.Of(scratch), Now: time.Now,
		Archive: func(key, _ string) string { return "/v1/archives/" + key },
	})}
	return w
}

func packed(t *testing.T, files map[string]string) io.Reader {
	t.Helper()
	var b bytes.Buffer
	zipped := gzip.NewWriter(&b)
	w := tar.NewWriter(zipped)
	for _, name := range slices.Sorted(maps.Keys(files)) {
		if err := w.WriteHeader(&tar.Header{Name: name, Mode: 0o644, Size: int64(len(files[name])), Typeflag: tar.TypeReg}); err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(w, files[name]); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(w.Close(), zipped.Close()); err != nil {
		t.Fatal(err)
	}
	return &b
}

func (w *world) publish(namespace, name, version string, files map[string]string) address.Module {
	w.t.Helper()
	m := address.Module{Namespace: namespace, Name: name, System: "aws"}
	if _, err := w.registry.PublishModule(w.t.Context(), m, address.Version(version), registry.Upload{By: "ann", Content: packed(w.t, files)}); err != nil {
		w.t.Fatal(err)
	}
	return m
}

// visit is a request for an address, with the variables of its path.
func (w *world) visit(at string, names map[string]string) *pages.Visit {
	w.t.Helper()
	u, err := url.Parse(at)
	if err != nil {
		w.t.Fatal(err)
	}
	return &pages.Visit{
		Context: w.t.Context(), Backend: w.backend, User: access.User{Name: "ann"}, Now: time.Now(), Host: "terrier.example.com", Path: u.Path, Query: u.Query(), Names: names,
		Can: func(r access.Request) bool {
			return r.Resource == access.ResourceRegistry && r.Verb == "get" && (w.roles[""] || r.Namespace != "" && w.roles[r.Namespace])
		},
		Scopes: func() (access.Scope, error) { return access.Everything, nil },
	}
}

func ofModule(m address.Module) map[string]string {
	return map[string]string{"namespace": m.Namespace, "name": m.Name, "system": m.System}
}

// shown is the page as a browser reads it: nothing in it runs or loads anything, and links
// lead to us or to the web.
func (w *world) shown(v *pages.Visit, handle pages.Handler) string {
	w.t.Helper()
	p, err := handle(v)
	if err != nil {
		w.t.Fatalf("%s: %v", v.Path, err)
	}
	r, err := pages.NewRenderer("v1")
	if err != nil {
		w.t.Fatal(err)
	}
	out, err := r.Render(v, p)
	if err != nil {
		w.t.Fatalf("%s: %v", v.Path, err)
	}
	root, err := html.Parse(bytes.NewReader(out))
	if err != nil {
		w.t.Fatal(err)
	}
	ids := map[string]bool{}
	for n := range root.Descendants() {
		if n.Type != html.ElementNode {
			continue
		}
		for _, a := range n.Attr {
			value := strings.ToLower(strings.TrimSpace(a.Val))
			switch {
			case strings.HasPrefix(a.Key, "on"), a.Key == "style", a.Key == "srcdoc":
				w.t.Errorf("%s: an element has %s=%q", v.Path, a.Key, a.Val)
			case a.Key == "src" && !strings.HasPrefix(a.Val, pages.StaticPrefix+"/"):
				w.t.Errorf("%s loads %q", v.Path, a.Val)
			case a.Key == "href" && n.DataAtom == atom.A && !strings.HasPrefix(value, "/") && !strings.HasPrefix(value, "#") && !strings.HasPrefix(value, "https://") && !strings.HasPrefix(value, "http://"):
				w.t.Errorf("%s links to %q", v.Path, a.Val)
			case a.Key == "id" && ids[a.Val]:
				w.t.Errorf("%s has the id %q twice", v.Path, a.Val)
			case a.Key == "id":
				ids[a.Val] = true
			}
		}
		if n.DataAtom == atom.Img || n.DataAtom == atom.Iframe || n.DataAtom == atom.Object {
			w.t.Errorf("%s has an element %s", v.Path, n.Data)
		}
	}
	return string(out)
}

func has(t *testing.T, page string, texts ...string) {
	t.Helper()
	for _, text := range texts {
		if !strings.Contains(page, text) {
			t.Errorf("the page does not have %q", text)
		}
	}
}

func lacks(t *testing.T, page string, texts ...string) {
	t.Helper()
	for _, text := range texts {
		if strings.Contains(page, text) {
			t.Errorf("the page has %q", text)
		}
	}
}

func TestAnEmptyRegistrySaysHowToPublish(t *testing.T) {
	w := newWorld(t)
	has(t, w.shown(w.visit("/registry", nil), Registry), "Nothing is published yet", "terrier module push DIR")
	has(t, w.shown(w.visit("/registry/mirror", nil), Mirror), "The mirror has no providers yet", "https://terrier.example.com/v1/mirror/", "registry.opentofu.org", "Not asked yet")
	has(t, w.shown(w.visit("/registry/repositories", nil), Repositories), "No git repository is registered", "kubectl annotate gitrepository")
	w.backend.Catalog = nil
	for _, handle := range []pages.Handler{Registry, Mirror, Keys, Module, Provider, Mirrored, Repositories, Repository} {
		if _, err := handle(w.visit("/registry", nil)); fault.Of(err) != fault.Missing {
			t.Errorf("without a registry the error is %v, want a Missing one", err)
		}
	}
}

func TestAListShowsWhatTheVisitorMayRead(t *testing.T) {
	w := newWorld(t)
	for i := range 60 {
		w.publish("apps", fmt.Sprintf("app%02d", i), "1.0.0", network)
	}
	w.publish("net", "network", "1.0.0", network)
	w.publish("net", "network", "1.2.0", network)
	w.publish("security", "vault", "1.0.0", network)
	w.roles = map[string]bool{"apps": true, "net": true}

	// What is published has indexes, and no page lists the store.
	lists := w.store.lists
	page := w.shown(w.visit("/registry", nil), Registry)
	has(t, page, "rows 1–50 of 61", `href="/registry/modules/apps/app00/aws"`, ">ann<")
	lacks(t, page, "vault", "security")
	has(t, w.shown(w.visit("/registry?offset=50", nil), Registry), "rows 51–61 of 61", "network/aws", "1.2.0")
	has(t, w.shown(w.visit("/registry?q=NET+work", nil), Registry), "rows 1–1 of 1", "network/aws")
	has(t, w.shown(w.visit("/registry?q=vault", nil), Registry), "No matching modules or providers")
	has(t, w.shown(w.visit("/registry?namespace=net", nil), Registry), "rows 1–1 of 1")
	has(t, w.shown(w.visit("/registry?kind=providers", nil), Registry), "No matching modules or providers")
	has(t, w.shown(w.visit("/registry?sort=newest&q=net", nil), Registry), "1.2.0")
	if now := w.store.lists; now > lists+1 { // of providers, of which there are none
		t.Errorf("the pages listed the store %d times", now-lists)
	}
	w.roles = map[string]bool{}
	has(t, w.shown(w.visit("/registry", nil), Registry), "No modules or providers that you may read")
}

func (c *counting) List(ctx context.Context, prefix string) ([]string, error) {
	c.lists++
	return c.Versions.List(ctx, prefix)
}

func TestAModule(t *testing.T) {
	w := newWorld(t)
	m := w.publish("net", "network", "1.0.0", network)
	w.publish("net", "network", "1.1.0", network)
	w.publish("net", "network", "2.0.0-rc1", network)
	if err := w.registry.RetractModule(t.Context(), m, "1.0.0", "bob", "it deletes <b>subnets</b>: use 1.1.0"); err != nil {
		t.Fatal(err)
	}
	const at = "/registry/modules/net/network/aws"
	page := w.shown(w.visit(at, ofModule(m)), Module)
	has(t, page, `<h3 id="readme-network">Network</h3>`, "<strong>network</strong>", `href="#readme-inputs"`, `<a href="https://example.com/manual" rel="noopener noreferrer nofollow">`, "<th scope=\"col\">name</th>",
		"source  = &#34;terrier.example.com/net/network/aws&#34;", "version = &#34;1.1.0&#34;", "cidr = var.cidr", "Newest", "/registry/modules/net/network/aws/1.1.0/archive", "terrier module show net/network/aws 1.1.0")
	lacks(t, page, "<script>alert", "evil.example", "javascript:alert(3)")
	page = w.shown(w.visit(at+"?tab=inputs", ofModule(m)), Module)
	has(t, page, "The range &lt;b&gt;of&lt;/b&gt; the network.", "<strong>required</strong>", "any",
		"<li><bdi>It is a range.</bdi><code class=\"expr\"><bdi>can(cidrhost(var.cidr, 0))</bdi></code></li>", "<li><bdi>It is not empty.</bdi>")
	lacks(t, page, "<script>alert")
	has(t, w.shown(w.visit(at+"?tab=outputs", ofModule(m)), Module), ">id<")
	has(t, w.shown(w.visit(at+"?tab=dependencies", ofModule(m)), Module), "aws_vpc.this", "&gt;= 1.9")
	has(t, w.shown(w.visit(at+"?tab=examples", ofModule(m)), Module), "source  = &#34;terrier.example.com/net/network/aws&#34;\n  version = &#34;1.1.0&#34;", "source = &#34;terrier.example.com/net/network/aws//modules/subnet&#34;\n  version = &#34;1.1.0&#34;")
	has(t, w.shown(w.visit(at+"?part=modules/subnet", ofModule(m)), Module), "aws//modules/subnet&#34;", "zone = var.zone", "terrier module show net/network/aws 1.1.0 --submodule modules/subnet</code>")
	has(t, w.shown(w.visit(at+"?tab=versions", ofModule(m)), Module), "it deletes &lt;b&gt;subnets&lt;/b&gt;: use 1.1.0", "Retracted", "Pre-release")
	page = w.shown(w.visit(at+"?version=1.0.0", ofModule(m)), Module)
	has(t, page, "This version was retracted", "Show version 1.1.0", "Clients cannot install it")
	lacks(t, page, "1.0.0/archive")
	for _, query := range []string{"?version=9.9.9", "?part=modules/none", "?part=../x"} {
		if _, err := Module(w.visit(at+query, ofModule(m))); fault.Of(err) != fault.Missing {
			t.Errorf("%s is %v, want a Missing fault", query, err)
		}
	}
}

// An archive whose documentation cannot be made has one clear error, and the page has all
// the rest.
func TestAModuleWithoutDocumentation(t *testing.T) {
	w := newWorld(t)
	files := maps.Clone(network)
	files["main.tf"] = "variable \"x\" {\n  type = \n}\n"
	broken := address.Module{Namespace: "net", Name: "broken", System: "aws"} // of a program that checks nothing
	if err := w.store.Put(t.Context(), registry.ModuleKey(broken, "net-broken-aws-1.0.0.tar.gz"), packed(t, files)); err != nil {
		t.Fatal(err)
	}
	m := address.Module{Namespace: "net", Name: "bomb", System: "aws"}
	if err := w.store.Put(t.Context(), registry.ModuleKey(m, "net-bomb-aws-1.0.0.tar.gz"), strings.NewReader("no archive "+hostile)); err != nil {
		t.Fatal(err)
	}
	for _, query := range []string{"", "?tab=inputs", "?tab=examples", "?part=modules/x", "?tab=versions"} {
		page := w.shown(w.visit("/registry/modules/net/bomb/aws"+query, ofModule(m)), Module)
		has(t, page, "This version has no documentation", "neither a zip archive nor a gzipped tar archive", "version = &#34;1.0.0&#34;", "by another program")
		lacks(t, page, "<script>alert")
	}
	has(t, w.shown(w.visit("/registry/modules/net/broken/aws", ofModule(broken)), Module), "A part of the documentation is missing", "main.tf:2", `<h3 id="readme-network">`)
}

func TestStacksThatUseAModule(t *testing.T) {
	w := newWorld(t)
	m := w.publish("net", "network", "1.0.0", network)
	w.publish("net", "network", "1.1.0", network)
	w.backend.Uses = users{}
	page := w.shown(w.visit("/registry/modules/net/network/aws?tab=uses", ofModule(m)), Module)
	has(t, page, `href="/stacks/apps/shop"`, "~&gt; 1.0", "Older", "2 more stacks that you may not view use it",
		"Of 12 stacks it is not known yet what they use", `href="/stacks/apps/old"`, "and 10 more stacks", "terrier replan alustan/job -n apps", "still reading the records of 1 stack.")
}

// users answers who uses what.
type users struct{}

func (users) OfModule(context.Context, access.Scope, address.Module) (catalog.UsedBy, error) {
	return catalog.UsedBy{Items: []catalog.Use{
		{Stack: query.Key{Namespace: "apps", Name: "shop"}, Version: "1.0.0", Constraint: "~> 1.0", Since: time.Now().Add(-time.Hour), Path: "module.network"},
		{Stack: query.Key{Namespace: "apps", Name: "site"}},
	}, Hidden: 2, Unread: 1, Unknown: 12, UnknownStacks: []query.Key{{Namespace: "apps", Name: "job", Kind: "alustan"}, {Namespace: "apps", Name: "old"}}}, nil
}

func (users) OfProvider(context.Context, access.Scope, address.Provider) (catalog.UsedBy, error) {
	return catalog.UsedBy{}, fault.New(fault.Later, "NotReady", errors.New("the records are not read yet"))
}

// release publishes a version of a provider.
func release(t *testing.T, to *registry.Registry, p address.Provider, version address.Version, s *registrytest.Signer) {
	t.Helper()
	r := registrytest.NewRelease(t, s, p.String(), string(version), 1000, "linux_amd64", "darwin_arm64")
	files := map[string][]byte{signature.SumsName(p.Type, r.Version): r.Sums, signature.SumsName(p.Type, r.Version) + ".sig": r.Signature}
	for platform, data := range r.Archives {
		files[signature.Archive(p.Type, r.Version, platform)] = data
	}
	for name, data := range files {
		if err := to.StageProvider(t.Context(), p, version, name, registry.Upload{By: "ann", Content: bytes.NewReader(data)}); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := to.PublishProvider(t.Context(), p, version, "ann", nil); err != nil {
		t.Fatal(err)
	}
}

func TestAProviderAndItsKeys(t *testing.T) {
	w := newWorld(t)
	signer := registrytest.NewSigner(t)
	key := signer.Key(t)
	if _, err := w.registry.AddKey(t.Context(), "acme", key.Armor, "ann"); err != nil {
		t.Fatal(err)
	}
	p := address.Provider{Namespace: "acme", Type: "cloud"}
	release(t, w.registry, p, "2.0.0", signer)
	names := map[string]string{"namespace": "acme", "name": "cloud"}
	page := w.shown(w.visit("/registry/providers/acme/cloud", names), Provider)
	has(t, page, "source  = &#34;terrier.example.com/acme/cloud&#34;", "linux_amd64", "Newest", key.ID)
	has(t, w.shown(w.visit("/registry/providers/acme/cloud?tab=versions", names), Provider), "2.0.0", "linux_amd64")
	keys := w.shown(w.visit("/registry/providers/acme/cloud?tab=keys", names), Provider)
	has(t, keys, key.ID, "BEGIN PGP PUBLIC KEY BLOCK", "terrier provider keys add - --namespace acme", "by <bdi>ann</bdi>")
	has(t, w.shown(w.visit("/registry/keys/acme", names), Keys), key.ID)
	has(t, w.shown(w.visit("/registry/keys/none", map[string]string{"namespace": "none"}), Keys), "has no key")
	has(t, w.shown(w.visit("/registry?kind=providers", nil), Registry), `href="/registry/providers/acme/cloud"`, "2.0.0")
	if err := w.registry.RemoveKey(t.Context(), "acme", key.ID, "ann", true); err != nil {
		t.Fatal(err)
	}
	has(t, w.shown(w.visit("/registry/providers/acme/cloud", names), Provider), "no longer has the key")
}

// The mirror says what it has, how that was verified, and in plain words that an upstream
// fails. Errors name files of the server, and only its operator reads them.
func TestTheMirror(t *testing.T) {
	const host = "registry.example.com"
	u := registrytest.New(t)
	signer := registrytest.NewSigner(t)
	u.Publish(registrytest.NewRelease(t, signer, "hashicorp/aws", "5.1.0", 1000, "linux_amd64", "darwin_arm64"))
	ca := filepath.Join(t.TempDir(), "ca.pem")
	if err := os.WriteFile(ca, u.Authority, 0o600); err != nil {
		t.Fatal(err)
	}
	allow, err := outbound.ParseAllow("127.0.0.0/8")
	if err != nil {
		t.Fatal(err)
	}
	w := newWorldOf(t, mirror.Options{Policy: outbound.Policy{Allow: allow}, Settings: mirror.Settings{
		Upstreams: map[string]mirror.Upstream{host: {URL: u.URL, CAFile: ca}}, DeleteUnusedAfter: mirror.Duration(90 * 24 * time.Hour),
		Rules: []mirror.Rule{{Deny: []mirror.Pattern{{Provider: host + "/hashicorp/secret"}}}},
	}})
	p := address.Provider{Host: host, Namespace: "hashicorp", Type: "aws"}
	files, err := w.mirror.Version(t.Context(), "", p, "5.1.0")
	if err != nil {
		t.Fatal(err)
	}
	a, err := w.mirror.OpenArchive(t.Context(), "", files[address.Platform{OS: "linux", Arch: "amd64"}].Key)
	if err != nil {
		t.Fatal(err)
	}
	if err := a.Close(); err != nil {
		t.Fatal(err)
	}
	names := map[string]string{"host": host, "namespace": "hashicorp", "name": "aws"}
	has(t, w.shown(w.visit("/registry/mirror", nil), Mirror), host+"/hashicorp/aws", "linux_amd64", "Answers", "1 archive", "90d after their last use")
	has(t, w.shown(w.visit("/registry/mirror?q=none", nil), Mirror), "No matching providers")
	page := w.shown(w.visit("/registry/mirror/x", names), Mirrored)
	has(t, page, "5.1.0", "by the key "+signer.Key(t).ID, "linux_amd64")
	lacks(t, page, "darwin_arm64") // it is verified, and not stored

	u.Require("a token")
	other := address.Provider{Host: host, Namespace: "hashicorp", Type: "random"}
	if _, err := w.mirror.Versions(t.Context(), "", other); err == nil {
		t.Fatal("an upstream that denies requests has versions")
	}
	has(t, w.shown(w.visit("/registry/mirror", nil), Mirror), "Fails", "set tokenFile of this upstream", "Stored archives are served")
	w.roles = map[string]bool{"apps": true}
	page = w.shown(w.visit("/registry/mirror", nil), Mirror)
	has(t, page, "Fails", "UpstreamTokenDenied", "Ask the operator of this server", "hashicorp/aws")
	lacks(t, page, "tokenFile")
	for path, kind := range map[string]fault.Kind{"secret": fault.Denied, "none": fault.Missing} {
		names["name"] = path
		if _, err := Mirrored(w.visit("/registry/mirror/x", names)); fault.Of(err) != kind {
			t.Errorf("%s is %v, want a fault of the kind %v", path, err, kind)
		}
	}
}
