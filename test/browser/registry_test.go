package browser

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"

	"github.com/terrier-iac/terrier/internal/app/registryserver"
	"github.com/terrier-iac/terrier/internal/registry/registrytest"
	"github.com/terrier-iac/terrier/internal/registry/signature"
	"github.com/terrier-iac/terrier/internal/testkit"
)

// vpc is a module as teams write them.
var vpc = map[string]string{
	"README.md": "# AWS VPC\n\nMakes a **VPC** with public and private subnets, and NAT gateways. See [the manual](https://example.com/vpc), and [the inputs](#inputs).\n\n" +
		"![build](https://example.com/badge.svg)\n\n## Usage\n\n```hcl\nmodule \"vpc\" {\n  source = \"registry.example.com/net/vpc/aws\"\n  cidr   = \"10.0.0.0/16\"\n}\n```\n\n" +
		"- one NAT gateway, or one for each zone\n- flow logs to S3\n- [x] IPv6\n\n> A change of `cidr` replaces the network.\n\n## Inputs\n\n| Name | Type | Default |\n| --- | --- | --- |\n| cidr | `string` | none |\n| zones | `list(string)` | `[]` |\n",
	"main.tf": `
terraform {
  required_version = ">= 1.9"
  required_providers {
    aws = {
      source                = "hashicorp/aws"
      version               = ">= 5.40, < 7.0"
      configuration_aliases = [aws.peer]
    }
  }
}
variable "cidr" {
  type        = string
  description = "The range of the network. It has to be a private one, and large enough for three subnets of each kind in every zone."
  validation {
    condition     = can(cidrhost(var.cidr, 0)) && tonumber(split("/", var.cidr)[1]) <= 20
    error_message = "cidr has to be a range of at least a /20, as 10.0.0.0/16."
  }
}
variable "name" {
  type        = string
  description = "The name of the network, and the prefix of all names in it."
}
variable "subnets" {
  type = map(object({
    newbits = optional(number, 4)
    public  = optional(bool, false)
    tags    = optional(map(string), {})
  }))
  default     = { private = {}, public = { public = true } }
  description = "The kinds of subnets, one of each in every zone."
}
variable "flow_logs_bucket" {
  type        = string
  default     = null
  description = "The bucket that gets flow logs; none without it."
}
variable "vpn_psk" {
  type      = string
  sensitive = true
  default   = null
}
variable "tags" {
  type       = map(string)
  default    = {}
  nullable   = false
  deprecated = "Set default_tags of the provider."
}
output "id" {
  value       = aws_vpc.this.id
  description = "The ID of the VPC."
}
output "vpn_psk" {
  value     = var.vpn_psk
  sensitive = true
}
resource "aws_vpc" "this" {}
resource "aws_internet_gateway" "this" {}
resource "aws_nat_gateway" "this" {}
data "aws_availability_zones" "available" {}
module "subnets" {
  source = "./modules/subnets"
}
module "flow_logs" {
  source  = "registry.example.com/net/flow-logs/aws"
  version = "~> 2.1"
}
`,
	"modules/subnets/main.tf":     "variable \"newbits\" {\n  type        = number\n  description = \"By how many bits a subnet is smaller.\"\n}\noutput \"ids\" {\n  value = []\n}\n",
	"modules/subnets/README.md":   "The subnets of one kind.",
	"modules/endpoints/main.tf":   "variable \"services\" {\n  type = set(string)\n}\n",
	"examples/complete/main.tf":   "module \"vpc\" {\n  source = \"../..\"\n  name   = \"example\"\n  cidr   = \"10.0.0.0/16\"\n}\n",
	"examples/complete/README.md": "All that the module can do, in one region.",
}

// shelf is a registry with content, which every caller may read.
type shelf struct {
	t     *testing.T
	http  *http.Client
	url   string
	token string
}

// stock starts a registry, and publishes something of each kind.
func stock(t *testing.T) *shelf {
	t.Helper()
	upstream, signer := registrytest.New(t), registrytest.NewSigner(t)
	for _, version := range []string{"5.90.0", "6.0.0", "6.1.0"} {
		upstream.Publish(registrytest.NewRelease(t, signer, "hashicorp/aws", version, 200_000, "linux_amd64", "linux_arm64", "darwin_arm64"))
	}
	upstream.Publish(registrytest.NewRelease(t, signer, "hashicorp/random", "3.7.2", 20_000, "linux_amd64"))
	dir := t.TempDir()
	settings, ca := filepath.Join(dir, "mirror.yaml"), filepath.Join(dir, "ca.pem")
	text := fmt.Sprintf("deleteUnusedAfter: 2160h\nupstreams:\n  registry.example.com: {url: %s, caFile: %s}\n  registry.opentofu.org: {offline: true}\n  registry.example.org: {url: 'https://127.0.0.1:1/', timeout: 1s}\n", upstream.URL, ca)
	if err := errors.Join(os.WriteFile(ca, upstream.Authority, 0o600), os.WriteFile(settings, []byte(text), 0o600)); err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	out, in := io.Pipe()
	ended := make(chan error, 1)
	go func() {
		err := registryserver.Run(ctx, registryserver.Options{
			Config:  registryserver.Config{DataDir: dir, Settings: settings, Listen: "127.0.0.1:0", PlainHTTP: true, Anonymous: true, Drain: time.Second, Stall: time.Minute, AllowHosts: []string{"127.0.0.0/8"}, Output: "json", LogLevel: "error"},
			Program: "terrier", Version: "v1", Stdout: in, Stderr: t.Output(), Now: time.Now, Environ: func(string) string { return "" },
		})
		in.CloseWithError(err)
		ended <- err
	}()
	t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			t.Errorf("the registry ended with %v", err)
		}
	})
	var ready registryserver.Ready
	if err := json.NewDecoder(out).Decode(&ready); err != nil {
		t.Fatal(err)
	}
	token, err := os.ReadFile(ready.Token)
	if err != nil {
		t.Fatal(err)
	}
	s := &shelf{t, &http.Client{}, ready.URL, strings.TrimSpace(string(token))}
	t.Cleanup(s.http.CloseIdleConnections)
	for _, version := range []string{"1.9.0", "2.0.0", "2.0.1", "3.0.0-rc1"} {
		s.send(http.MethodPut, "/v1/modules/net/vpc/aws/"+version, packed(t, vpc))
	}
	for _, name := range []string{"net/flow-logs/aws/2.1.0", "net/dns/aws/1.0.0", "platform/cluster/aws/0.9.1", "platform/cluster/google/1.2.0"} {
		s.send(http.MethodPut, "/v1/modules/"+name, packed(t, map[string]string{"main.tf": "variable \"x\" {\n  type = string\n}\n"}))
	}
	s.send(http.MethodPost, "/v1/modules/net/vpc/aws/2.0.0/retract", []byte(`{"reason":"it deletes the route tables of peered networks: use 2.0.1"}`))
	s.send(http.MethodPut, "/v1/providers/acme/signing-keys", []byte(signer.Key(t).Armor))
	s.provider(registrytest.NewRelease(t, signer, "acme/cloud", "1.4.0", 100_000, "linux_amd64", "linux_arm64", "darwin_arm64", "windows_amd64"))
	s.provider(registrytest.NewRelease(t, signer, "acme/cloud", "1.5.0", 100_000, "linux_amd64", "darwin_arm64"))
	for _, version := range []string{"hashicorp/aws/6.1.0", "hashicorp/random/3.7.2"} {
		var found struct {
			Archives map[string]struct{ URL string }
		}
		at := "/v1/mirror/registry.example.com/" + version + ".json"
		if err := json.Unmarshal(s.send(http.MethodGet, at, nil), &found); err != nil {
			t.Fatal(err)
		}
		s.send(http.MethodGet, at[:strings.LastIndex(at, "/")+1]+found.Archives["linux_amd64"].URL, nil)
	}
	s.ask(http.MethodGet, "/v1/mirror/registry.example.org/a/b/index.json", nil)
	return s
}

func packed(t *testing.T, files map[string]string) []byte {
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
	return b.Bytes()
}

// provider publishes a release.
func (s *shelf) provider(r *registrytest.Release) {
	s.t.Helper()
	at := "/v1/providers/" + r.Namespace + "/" + r.Type + "/" + r.Version + "/"
	sums := signature.SumsName(r.Type, r.Version)
	s.send(http.MethodPut, at+sums, r.Sums)
	s.send(http.MethodPut, at+sums+".sig", r.Signature)
	for platform, data := range r.Archives {
		s.send(http.MethodPut, at+signature.Archive(r.Type, r.Version, platform), data)
	}
	s.send(http.MethodPost, at+"publish", nil)
}

func (s *shelf) ask(method, path string, body []byte) (int, []byte) {
	s.t.Helper()
	req, err := http.NewRequestWithContext(s.t.Context(), method, s.url+path, bytes.NewReader(body))
	if err != nil {
		s.t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+s.token)
	resp, err := s.http.Do(req)
	if err != nil {
		s.t.Fatal(err)
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(resp.Body)
	if err != nil {
		s.t.Fatal(err)
	}
	return resp.StatusCode, answer
}

func (s *shelf) send(method, path string, body []byte) []byte {
	s.t.Helper()
	status, answer := s.ask(method, path, body)
	if status >= http.StatusMultipleChoices {
		s.t.Fatalf("%s %s is %d: %s", method, path, status, answer)
	}
	return answer
}

// TestPicturesOfTheRegistry is TestPictures for the pages of a registry, as one that runs
// alone serves them.
func TestPicturesOfTheRegistry(t *testing.T) {
	s := stock(t)
	w := open(t, &testkit.Platform{HTTP: s.url})
	w.expect("404") // of the screen that is not there
	const module = "/registry/modules/net/vpc/aws"
	screens := map[string]string{
		"registry": "/registry", "registry-none": "/registry?q=nothing-is-called-this", "registry-module": module, "registry-inputs": module + "?tab=inputs", "registry-outputs": module + "?tab=outputs",
		"registry-dependencies": module + "?tab=dependencies", "registry-examples": module + "?tab=examples", "registry-versions": module + "?tab=versions", "registry-retracted": module + "?version=2.0.0",
		"registry-submodule": module + "?part=modules/subnets&tab=inputs", "registry-broken": "/registry/modules/net/dns/aws?tab=inputs", "registry-provider": "/registry/providers/acme/cloud",
		"registry-provider-versions": "/registry/providers/acme/cloud?tab=versions", "registry-keys": "/registry/keys/acme", "registry-mirror": "/registry/mirror",
		"registry-mirrored": "/registry/mirror/registry.example.com/hashicorp/aws", "registry-missing": "/registry/modules/net/none/aws",
	}
	for _, theme := range []string{"light", "dark"} {
		for name, size := range map[string][2]int64{"wide": {1440, 900}, "phone": {400, 844}} {
			w.do(chromedp.EmulateViewport(size[0], size[1]), prefer(theme))
			for screen, path := range screens {
				t.Run(fmt.Sprintf("%s-%s-%s", screen, name, theme), func(t *testing.T) {
					w.within(t, func() {
						w.visit(path)
						w.at(strings.Split(path, "?")[0])
						value[int](w, `[...document.querySelectorAll("main details")].map(d => d.open = true).length`)
						if over := value[int](w, `document.documentElement.scrollWidth - innerWidth`); over > 0 {
							t.Errorf("%s sticks out of a page of %d pixels by %d: %q", path, size[0], over, value[[]string](w, sticking))
						}
						if os.Getenv("TERRIER_PICTURES") != "" || name == "wide" && theme == "light" {
							w.shoot(fmt.Sprintf("%s-%s-%s", screen, name, theme))
						}
					})
				})
			}
		}
	}
}
