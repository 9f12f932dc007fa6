package oci_test

import (
	"archive/zip"
	"bytes"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-containerregistry/pkg/crane"
	"github.com/google/go-containerregistry/pkg/name"
	ggcr "github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/random"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/validate"

	"github.com/terrier-iac/terrier/internal/address"
	"github.com/terrier-iac/terrier/internal/registry"
	"github.com/terrier-iac/terrier/internal/registry/mirror"
	"github.com/terrier-iac/terrier/internal/registry/registrytest"
	"github.com/terrier-iac/terrier/internal/registry/registrytest/enginetest"
)

// RG-21: the engine installs modules from oci://, by version and by digest, whatever
// archive was published.
func TestEngineInstallsModulesFromOCI(t *testing.T) {
	s := start(t)
	s.publish("team/vpc/aws", "1.0.0", tarGz(t, saying("from a tar archive")))
	s.publish("team/vpc/aws", "1.1.0", zipOf(t, saying("from a zip archive")))
	at := "oci://" + s.host() + "/team/modules/vpc/aws"
	for source, want := range map[string]string{
		at + "?tag=1.0.0": "from a tar archive",
		at + "?tag=1.1.0": "from a zip archive",
		at + "?digest=" + s.digest("team/modules/vpc/aws:1.0.0"): "from a tar archive",
		at + "?digest=" + s.digest("team/modules/vpc/aws:1.1.0"): "from a zip archive",
	} {
		if got := s.engine("team", "").Says(t, enginetest.Using(t, source, "")); got != want {
			t.Errorf("the module %s says %q, want %q", source, got, want)
		}
	}
	if out, err := s.engine("team", "").Init(t, enginetest.Using(t, at+"?tag=2.0.0", "")); err == nil || !strings.Contains(out, "2.0.0") {
		t.Errorf("tofu init of a version that is not there: %v: %s", err, out)
	}
}

// RG-21: the engine installs providers that users published through oci_mirror, and locks
// the hashes of the archives that the registry has.
func TestEngineInstallsProvidersFromOCI(t *testing.T) {
	s := start(t)
	signer := registrytest.NewSigner(t)
	r := registrytest.NewRelease(t, signer, "team/cloud", "1.2.0", 50_000, here, "plan9_386")
	s.publishProvider(r, signer)
	s.publishProvider(registrytest.NewRelease(t, signer, "team/cloud", "2.0.0", 0, here), signer)
	dir := enginetest.Requiring(t, "own.example.com/team/cloud", "~> 1.0")
	more := fmt.Sprintf("provider_installation {\n  oci_mirror {\n    repository_template = \"%s/${namespace}/providers/${type}\"\n    include = [\"own.example.com/*/*\"]\n  }\n}\n", s.host())
	if out, err := s.engine("team", more).Init(t, dir); err != nil {
		t.Fatalf("tofu init: %v: %s", err, out)
	}
	h1, zh := r.Hashes(t, here)
	locked(t, dir, h1, zh)
	// The signed hashes lead to the same package.
	if out, err := s.engine("team", more).Init(t, dir); err != nil || !strings.Contains(out, "Reusing previous version") {
		t.Errorf("the second tofu init: %v: %s", err, out)
	}
}

// RG-21: the engine installs providers of other registries. The mirror downloads the
// archive of the platform alone.
func TestEngineInstallsMirroredProvidersFromOCI(t *testing.T) {
	s := start(t)
	r := registrytest.NewRelease(t, registrytest.NewSigner(t), "acme/cloud", "1.2.0", 50_000, here, "plan9_386")
	s.upstream.Publish(r)
	more := fmt.Sprintf("provider_installation {\n  oci_mirror {\n    repository_template = \"%s/team/mirror/%s/${namespace}/${type}\"\n    include = [\"%[2]s/*/*\"]\n  }\n}\n", s.host(), upstreamHost)
	dir := enginetest.Requiring(t, upstreamHost+"/acme/cloud", "~> 1.0")
	if out, err := s.engine("team", more).Init(t, dir); err != nil {
		t.Fatalf("tofu init: %v: %s", err, out)
	}
	h1, zh := r.Hashes(t, here)
	locked(t, dir, h1, zh)
	before := s.digest("team/mirror/" + upstreamHost + "/acme/cloud:1.2.0")

	// What is stored is served while the upstream is out.
	s.upstream.Fail("", registrytest.Status(http.StatusServiceUnavailable))
	if out, err := s.engine("team", more).Init(t, enginetest.Requiring(t, upstreamHost+"/acme/cloud", "1.2.0")); err != nil {
		t.Errorf("tofu init without an upstream: %v: %s", err, out)
	}
	if now := s.digest("team/mirror/" + upstreamHost + "/acme/cloud:1.2.0"); now != before {
		t.Errorf("the digest is %s after the archive was stored, and was %s", now, before)
	}
	repo := "/v2/team/mirror/" + upstreamHost + "/acme/cloud"
	s.refused("GET", repo+"/tags/list", "other", http.StatusForbidden, "DENIED", "other/mirror/")
	s.refused("GET", strings.Replace(repo, "team", "other", 1)+"/tags/list", "other", http.StatusForbidden, "DENIED", "not for them")
	s.refused("POST", repo+"/blobs/uploads/", "team", http.StatusMethodNotAllowed, "UNSUPPORTED", "a repository of the mirror")
	s.refused("GET", "/v2/team/mirror/unknown.example.com/acme/cloud/tags/list", "team", http.StatusNotFound, "NAME_UNKNOWN", "is not mirrored here")
}

// The mirror asks once for the sizes of archives. An archive whose size the upstream does
// not say is left out until it was stored.
func TestSizesOfMirroredArchives(t *testing.T) {
	s := start(t)
	signer := registrytest.NewSigner(t)
	r := registrytest.NewRelease(t, signer, "acme/cloud", "1.2.0", 50_000, here, "plan9_386")
	s.upstream.Publish(r, registrytest.NewRelease(t, signer, "acme/cloud", "1.3.0", 0, here))
	silent := func(w http.ResponseWriter, r *http.Request, next http.Handler) {
		recorder := httptest.NewRecorder()
		next.ServeHTTP(recorder, r)
		_ = http.NewResponseController(w).Flush() // so that no length is sent
		_, _ = w.Write(recorder.Body.Bytes())
	}
	s.upstream.Fail("plan9_386.zip", silent)
	s.upstream.Fail("1.3.0_"+here+".zip", silent)
	repo := s.host() + "/team/mirror/" + upstreamHost + "/acme/cloud"
	platforms := func() []string {
		t.Helper()
		text, err := crane.Manifest(repo+":1.2.0", s.as("team")...)
		if err != nil {
			t.Fatal(err)
		}
		index, err := v1.ParseIndexManifest(bytes.NewReader(text))
		if err != nil {
			t.Fatal(err)
		}
		var all []string
		for _, m := range index.Manifests {
			all = append(all, m.Platform.OS+"_"+m.Platform.Architecture)
		}
		return all
	}
	if diff := cmp.Diff([]string{here}, platforms()); diff != "" {
		t.Errorf("the platforms differ (-want +got):\n%s", diff)
	}
	s.refused("GET", "/v2/team/mirror/"+upstreamHost+"/acme/cloud/manifests/1.3.0", "team", http.StatusBadGateway, "UNAVAILABLE", "use network_mirror")
	p, err := address.ParseProvider(upstreamHost + "/acme/cloud")
	if err != nil {
		t.Fatal(err)
	}
	a, err := s.mirror.OpenArchive(t.Context(), "team", mirror.ArchiveKey(p, "1.2.0", address.Platform{OS: "plan9", Arch: "386"}))
	if err != nil {
		t.Fatal(err)
	}
	if err := a.Close(); err != nil {
		t.Fatal(err)
	}
	asked := s.upstream.Count("1.2.0_" + here + ".zip")
	if diff := cmp.Diff([]string{here, "plan9_386"}, platforms()); diff != "" {
		t.Errorf("the platforms differ after the archive was stored (-want +got):\n%s", diff)
	}
	if _, err := crane.Manifest(repo+":1.2.0", s.as("team")...); err != nil {
		t.Fatal(err)
	}
	if asked != 1 || s.upstream.Count("1.2.0_"+here+".zip") != 1 {
		t.Errorf("the upstream was asked %d times for a size, want once", s.upstream.Count("1.2.0_"+here+".zip"))
	}
}

// Clients of container registries list, pull and validate. Another process makes the same
// manifests.
func TestClientsPull(t *testing.T) {
	s := start(t)
	signer := registrytest.NewSigner(t)
	s.publish("team/vpc/aws", "1.0.0", tarGz(t, saying("one")))
	s.publish("team/vpc/aws", "1.10.0", zipOf(t, saying("two")))
	s.publish("team/vpc/aws", "1.9.0", zipOf(t, saying("three")))
	s.publishProvider(registrytest.NewRelease(t, signer, "team/cloud", "1.2.0", 5_000, here, "plan9_386"), signer)
	another := httptest.NewTLSServer(s.handler(nil))
	defer another.Close()
	for ref, count := range map[string]int{"team/modules/vpc/aws": 3, "team/providers/cloud": 1} {
		tags, err := crane.ListTags(s.host()+"/"+ref, s.as("team")...)
		if err != nil || len(tags) != count {
			t.Fatalf("the tags of %s are %q, %v, want %d", ref, tags, err, count)
		}
		for _, tag := range tags {
			at, err := name.ParseReference(s.host() + "/" + ref + ":" + tag)
			if err != nil {
				t.Fatal(err)
			}
			options := crane.GetOptions(s.as("team")...).Remote
			got, err := remote.Get(at, options...)
			if err != nil {
				t.Fatal(err)
			}
			if got.MediaType.IsIndex() {
				index, err := got.ImageIndex()
				if err == nil {
					err = validate.Index(index)
				}
				if err != nil {
					t.Errorf("%s is not valid: %v", at, err)
				}
			} else {
				image, err := got.Image()
				if err == nil {
					err = validate.Image(image)
				}
				if err != nil {
					t.Errorf("%s is not valid: %v", at, err)
				}
			}
			if other, err := crane.Digest(strings.TrimPrefix(another.URL, "https://")+"/"+ref+":"+tag, append(s.as("team"), crane.WithTransport(another.Client().Transport))...); err != nil || other != got.Digest.String() {
				t.Errorf("another process says %s, %v of %s, want %s", other, err, at, got.Digest)
			}
		}
	}
	resp, body := s.ask("GET", "/v2/team/modules/vpc/aws/tags/list?n=2", "team")
	if link := resp.Header.Get("Link"); body != `{"name":"team/modules/vpc/aws","tags":["1.0.0","1.10.0"]}` || link != `</v2/team/modules/vpc/aws/tags/list?last=1.10.0&n=2>; rel="next"` {
		t.Errorf("the first page is %s, and the next one %q", body, link)
	}
	if _, body := s.ask("GET", "/v2/team/modules/vpc/aws/tags/list?n=2&last=1.10.0", "team"); body != `{"name":"team/modules/vpc/aws","tags":["1.9.0"]}` {
		t.Errorf("the second page is %s", body)
	}
}

// RG-16: another OCI registry is no storage, and gets copies: with the same digests, and the
// engine installs from them.
func TestCopiesInAnotherRegistry(t *testing.T) {
	s := start(t)
	signer := registrytest.NewSigner(t)
	s.publish("team/vpc/aws", "1.0.0", tarGz(t, saying("one")))
	s.publishProvider(registrytest.NewRelease(t, signer, "team/cloud", "1.2.0", 5_000, here, "plan9_386"), signer)
	another := httptest.NewTLSServer(ggcr.New(ggcr.Logger(log.New(io.Discard, "", 0))))
	defer another.Close()
	host := strings.TrimPrefix(another.URL, "https://")
	for from, to := range map[string]string{"team/modules/vpc/aws:1.0.0": "copied/vpc:1.0.0", "team/providers/cloud:1.2.0": "copied/cloud:1.2.0"} {
		if err := crane.Copy(s.host()+"/"+from, host+"/"+to, s.as("team")...); err != nil {
			t.Fatal(err)
		}
		if got, err := crane.Digest(host+"/"+to, s.as("team")...); err != nil || got != s.digest(from) {
			t.Errorf("the digest of %s is %s, %v, want %s", to, got, err, s.digest(from))
		}
	}
	if got := s.engine("team", "").Says(t, enginetest.Using(t, "oci://"+host+"/copied/vpc?tag=1.0.0", "")); got != "one" {
		t.Errorf("the copy says %q", got)
	}
	more := fmt.Sprintf("provider_installation {\n  oci_mirror {\n    repository_template = \"%s/copied/${type}\"\n    include = [\"own.example.com/team/*\"]\n  }\n}\n", host)
	if out, err := s.engine("team", more).Init(t, enginetest.Requiring(t, "own.example.com/team/cloud", "~> 1.0")); err != nil {
		t.Errorf("tofu init from the copy: %v: %s", err, out)
	}
}

// The digests of manifests are what configurations have written down: they never change,
// with no release of this program.
func TestDigestsNeverChange(t *testing.T) {
	s := start(t)
	archive := tarGz(t, saying("one"))
	s.publish("team/vpc/aws", "1.0.0", zipOf(t, saying("one")))
	_, zipped := s.ask("GET", "/v2/team/modules/vpc/aws/manifests/1.0.0", "team")
	if want := `{"schemaVersion":2,"mediaType":"application/vnd.oci.image.manifest.v1+json","artifactType":"application/vnd.opentofu.modulepkg",` +
		`"config":{"mediaType":"application/vnd.oci.empty.v1+json","digest":"sha256:44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a","size":2,"data":"e30="},` +
		`"layers":[{"mediaType":"archive/zip","digest":"sha256:` + registrytest.Sum(zipOf(t, saying("one"))) + fmt.Sprintf(`","size":%d,`, len(zipOf(t, saying("one")))) +
		`"annotations":{"org.opencontainers.image.title":"team-vpc-aws-1.0.0.zip"}}],"annotations":{"org.opencontainers.image.version":"1.0.0"}}`; zipped != want {
		t.Errorf("the manifest is\n%s\nwant\n%s", zipped, want)
	}
	s.publish("team/vpc/gcp", "1.0.0", archive)
	const want = "sha256:069fdd44cbedc9700f3efb6c4eaf0a5c3912540f111c8d44cbed04c0df88877e"
	if got := s.digest("team/modules/vpc/gcp:1.0.0"); got != want {
		t.Errorf("the digest of a converted module is %s, want %s", got, want)
	}
}

// The zip archive of a module has the files of its tar archive, with their modes. If it is
// deleted, it is made again with the same bytes, and a digest leads to it.
func TestConvertedModulesAreMadeAgain(t *testing.T) {
	s := start(t)
	s.publish("team/vpc/aws", "1.0.0", tarGz(t, saying("one")))
	digest := s.digest("team/modules/vpc/aws:1.0.0")
	blobOf := func() []byte {
		t.Helper()
		image, err := crane.Pull(s.host()+"/team/modules/vpc/aws@"+digest, s.as("team")...)
		if err != nil {
			t.Fatal(err)
		}
		layers, err := image.Layers()
		if err != nil {
			t.Fatal(err)
		}
		content, err := layers[0].Compressed()
		if err != nil {
			t.Fatal(err)
		}
		defer content.Close()
		b, err := io.ReadAll(content)
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	first := blobOf()
	z, err := zip.NewReader(bytes.NewReader(first), int64(len(first)))
	if err != nil {
		t.Fatal(err)
	}
	var files []string
	for _, f := range z.File {
		files = append(files, fmt.Sprint(f.Name, " ", f.Mode()))
	}
	if diff := cmp.Diff([]string{"main.tf -rw-r--r--", "run.sh -rwxr-xr-x"}, files); diff != "" {
		t.Errorf("the files differ (-want +got):\n%s", diff)
	}
	keys, err := s.store.List(t.Context(), "")
	if err != nil {
		t.Fatal(err)
	}
	made := slices.DeleteFunc(keys, func(k string) bool { return !strings.Contains(k, "oci/") })
	if diff := cmp.Diff([]string{"index/oci/modules/team/vpc/aws.json", "oci/modules/team/vpc/aws/1.0.0.zip"}, sorted(made)); diff != "" {
		t.Errorf("what was stored differs (-want +got):\n%s", diff)
	}
	for _, gone := range [][]string{made[:1], made[1:], made} {
		for _, key := range gone {
			if err := s.store.Delete(t.Context(), key); err != nil {
				t.Fatal(err)
			}
		}
		s.Config.Handler = s.handler(nil) // another process, which has searched nothing yet
		if !bytes.Equal(blobOf(), first) {
			t.Errorf("without %s there are other bytes", gone)
		}
	}
}

// A client resumes a blob, and asks for its size alone.
func TestBlobs(t *testing.T) {
	s := start(t)
	archive := zipOf(t, saying("one"))
	s.publish("team/vpc/aws", "1.0.0", archive)
	path := "/v2/team/modules/vpc/aws/blobs/sha256:" + registrytest.Sum(archive)
	head, body := s.ask("HEAD", path, "team")
	if head.StatusCode != http.StatusOK || head.ContentLength != int64(len(archive)) || body != "" || head.Header.Get("Docker-Content-Digest") != "sha256:"+registrytest.Sum(archive) {
		t.Errorf("HEAD is %s %v", head.Status, head.Header)
	}
	part, body := s.ask("GET", path, "team", "Range", "bytes=10-19")
	if part.StatusCode != http.StatusPartialContent || body != string(archive[10:20]) {
		t.Errorf("a range is %s with %d bytes", part.Status, len(body))
	}
	if config, body := s.ask("GET", "/v2/team/modules/vpc/aws/blobs/sha256:44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a", "team"); config.StatusCode != http.StatusOK || body != "{}" {
		t.Errorf("the configuration is %s %q", config.Status, body)
	}
	if head, _ := s.ask("HEAD", "/v2/team/modules/vpc/aws/manifests/1.0.0", "team"); head.StatusCode != http.StatusOK || head.ContentLength <= 0 || head.Header.Get("Content-Type") != "application/vnd.oci.image.manifest.v1+json" {
		t.Errorf("HEAD of a manifest is %s %v", head.Status, head.Header)
	}
	s.refused("GET", "/v2/team/modules/vpc/aws/blobs/sha256:"+strings.Repeat("0", 64), "team", http.StatusNotFound, "BLOB_UNKNOWN", "no archive")
	s.refused("GET", "/v2/team/modules/vpc/aws/blobs/sha512:0", "team", http.StatusBadRequest, "DIGEST_INVALID", "")
	if err := s.store.Delete(t.Context(), "modules/team/vpc/aws/team-vpc-aws-1.0.0.zip"); err != nil {
		t.Fatal(err)
	}
	s.refused("GET", path, "team", http.StatusNotFound, "BLOB_UNKNOWN", "no longer in the storage")
	s.publish("team/vpc/gcp", "1.0.0", tarGz(t, saying("one")))
	if err := s.store.Delete(t.Context(), "modules/team/vpc/gcp/team-vpc-gcp-1.0.0.tar.gz"); err != nil {
		t.Fatal(err)
	}
	s.refused("GET", "/v2/team/modules/vpc/gcp/manifests/1.0.0", "team", http.StatusNotFound, "BLOB_UNKNOWN", "no longer in the storage")
}

// A version that was retracted is no tag, and its digest leads nowhere.
func TestRetractedVersionsAreNoTags(t *testing.T) {
	s := start(t)
	s.publish("team/vpc/aws", "1.0.0", zipOf(t, saying("one")))
	s.publish("team/vpc/aws", "1.1.0", zipOf(t, saying("two")))
	digest := s.digest("team/modules/vpc/aws:1.1.0")
	if err := s.registry.RetractModule(t.Context(), s.module("team/vpc/aws"), "1.1.0", "ann", "it deletes the gateway"); err != nil {
		t.Fatal(err)
	}
	if tags, err := crane.ListTags(s.host()+"/team/modules/vpc/aws", s.as("team")...); err != nil || !slices.Equal(tags, []string{"1.0.0"}) {
		t.Errorf("the tags are %q, %v, want 1.0.0", tags, err)
	}
	s.refused("GET", "/v2/team/modules/vpc/aws/manifests/1.1.0", "team", http.StatusNotFound, "MANIFEST_UNKNOWN", "it deletes the gateway")
	s.refused("GET", "/v2/team/modules/vpc/aws/manifests/"+digest, "team", http.StatusNotFound, "MANIFEST_UNKNOWN", "may have been retracted")
	s.refused("GET", "/v2/team/modules/vpc/aws/manifests/latest", "team", http.StatusNotFound, "MANIFEST_UNKNOWN", "no tag \"latest\"")
	s.refused("GET", "/v2/team/modules/vpc/azure/tags/list", "team", http.StatusNotFound, "NAME_UNKNOWN", "no module team/vpc/azure")
}

// Callers read where they may, and ask for credentials as clients understand it.
func TestRights(t *testing.T) {
	s := start(t)
	s.publish("private/vpc/aws", "1.0.0", zipOf(t, saying("one")))
	s.refused("GET", "/v2/private/modules/vpc/aws/manifests/1.0.0", "team", http.StatusForbidden, "DENIED", "may not read in the namespace private")
	s.refused("GET", "/v2/private/modules/vpc/aws/tags/list", "", http.StatusUnauthorized, "UNAUTHORIZED", "no token")
	if resp, _ := s.ask("GET", "/v2/private/providers/cloud/tags/list", ""); !strings.HasPrefix(resp.Header.Get("WWW-Authenticate"), "Basic ") {
		t.Errorf("the challenge is %q, want Basic", resp.Header.Get("WWW-Authenticate"))
	}
	if _, err := crane.Digest(s.host()+"/private/modules/vpc/aws:1.0.0", s.as("admin")...); err != nil {
		t.Errorf("the administrator: %v", err)
	}

	// Namespaces of providers are in lower case, and rights are checked in lower case.
	signer := registrytest.NewSigner(t)
	for _, name := range []string{"private/cloud", "team/cloud"} {
		s.publishProvider(registrytest.NewRelease(t, signer, name, "1.0.0", 0, here), signer)
	}
	s.publish("Private/vpc/aws", "1.0.0", zipOf(t, saying("one")))
	s.refused("GET", "/v2/Private/providers/cloud/tags/list", "capital", http.StatusForbidden, "DENIED", "in the namespace private")
	for _, repo := range []string{"Private/modules/vpc/aws", "Team/providers/cloud"} {
		if resp, body := s.ask("GET", "/v2/"+repo+"/tags/list", "capital"); resp.StatusCode != http.StatusOK {
			t.Errorf("the tags of %s: %s %s", repo, resp.Status, body)
		}
	}
}

// Repositories that users push keep working beside those of the registry. A name of the
// registry takes no push, except where users pushed before the registry had such names.
func TestPushedRepositories(t *testing.T) {
	s := start(t)
	image, err := random.Image(1000, 1)
	if err != nil {
		t.Fatal(err)
	}
	s.publish("team/vpc/aws", "1.0.0", zipOf(t, saying("one")))
	for _, ref := range []string{"team/app:v1", "team/modules/vpc:v1", "team/modules/vpc/aws/more:v1", "team/mirror/a/b/c:v1"} {
		if err := crane.Push(image, s.host()+"/"+ref, s.as("team")...); err != nil {
			t.Errorf("pushing to %s: %v", ref, err)
		}
		if _, err := crane.Pull(s.host()+"/"+ref, s.as("team")...); err != nil {
			t.Errorf("pulling %s: %v", ref, err)
		}
	}
	for ref, says := range map[string]string{
		"team/modules/vpc/aws:v1": "terrier module push", "team/modules/new/aws:v1": "terrier module push", "team/providers/cloud:v1": "terrier provider push",
	} {
		if err := crane.Push(image, s.host()+"/"+ref, s.as("team")...); err == nil || !strings.Contains(err.Error(), "nothing can be pushed") || !strings.Contains(err.Error(), says) {
			t.Errorf("pushing to %s: %v, want an error that says %q", ref, err, says)
		}
	}

	before := httptest.NewServer(s.inside) // as it was before
	defer before.Close()
	at := strings.TrimPrefix(before.URL, "http://")
	if err := crane.Push(image, at+"/team/modules/vpc/aws:v1"); err != nil {
		t.Fatal(err)
	}
	if tags, err := crane.ListTags(s.host()+"/team/modules/vpc/aws", s.as("team")...); err != nil || !slices.Equal(tags, []string{"v1"}) {
		t.Errorf("the tags of a pushed repository are %q, %v, want v1", tags, err)
	}
	if err := crane.Push(image, s.host()+"/team/modules/vpc/aws:v2", s.as("team")...); err != nil {
		t.Errorf("pushing to a repository that was pushed before: %v", err)
	}
	if err := crane.Delete(s.host()+"/team/modules/vpc/aws@"+digestOf(t, image), s.as("team")...); err != nil {
		t.Fatal(err)
	}
	if tags, err := crane.ListTags(s.host()+"/team/modules/vpc/aws", s.as("team")...); err != nil || !slices.Equal(tags, []string{"1.0.0"}) {
		t.Errorf("the tags after all was deleted are %q, %v, want 1.0.0", tags, err)
	}
}

// A bucket of another program has no checksums of modules: they are worked out once.
func TestBucketOfAnotherProgram(t *testing.T) {
	s := start(t)
	for file, content := range map[string][]byte{
		"team-vpc-aws-1.0.0.tar.gz": tarGz(t, saying("one")), "team-vpc-aws-1.1.0.zip": zipOf(t, saying("two")), "team-vpc-aws-1.2.0.tar.xz": []byte("not ours"),
	} {
		if err := s.store.Put(t.Context(), registry.ModuleKey(s.module("team/vpc/aws"), file), bytes.NewReader(content)); err != nil {
			t.Fatal(err)
		}
	}
	if tags, err := crane.ListTags(s.host()+"/team/modules/vpc/aws", s.as("team")...); err != nil || !slices.Equal(tags, []string{"1.0.0", "1.1.0"}) {
		t.Fatalf("the tags are %q, %v", tags, err)
	}
	for _, tag := range []string{"1.0.0", "1.1.0"} {
		digest := s.digest("team/modules/vpc/aws:" + tag)
		s.Config.Handler = s.handler(nil)
		image, err := crane.Pull(s.host()+"/team/modules/vpc/aws@"+digest, s.as("team")...)
		if err == nil {
			err = validate.Image(image)
		}
		if err != nil {
			t.Errorf("%s: %v", tag, err)
		}
	}
	s.refused("GET", "/v2/team/modules/vpc/aws/manifests/1.2.0", "team", http.StatusNotFound, "MANIFEST_UNKNOWN", "only zip and gzipped tar archives")
}

// digestOf is the digest of an image.
func digestOf(t *testing.T, image v1.Image) string {
	t.Helper()
	d, err := image.Digest()
	if err != nil {
		t.Fatal(err)
	}
	return d.String()
}
