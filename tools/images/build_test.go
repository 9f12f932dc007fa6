package main

import (
	"archive/tar"
	"context"
	"crypto/sha256"
	"debug/buildinfo"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log"
	"maps"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/CycloneDX/cyclonedx-go"
	"github.com/google/go-cmp/cmp"
	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/partial"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
)

var (
	amd64 = platform{"linux", "amd64"}
	arm64 = platform{"linux", "arm64"}
)

// TestImages looks at one build from all sides.
func TestImages(t *testing.T) {
	p := newPlace(t, newMirror(t, debs(t)...), amd64, arm64)
	p.mustBuild()
	for _, c := range []struct {
		name string
		test func(*testing.T, *place)
	}{
		{"their content is safe and complete", contentOfImages},
		{"archives are the images", archivesAreTheImages},
		{"push brings images and what refers to them", pushBringsAll},
		{"the SBOM lists every module and package", sbomListsAll},
		{"the provenance names images and materials", provenanceNamesAll},
		{"a second build is equal", secondBuildIsEqual},
	} {
		t.Run(c.name, func(t *testing.T) { c.test(t, p) })
	}
}

func secondBuildIsEqual(t *testing.T, p *place) {
	first := digests(t, p.out)

	p.renew()
	p.out = t.TempDir()
	later := time.Now().Add(time.Hour)
	for _, program := range []string{"terrier", "terrier-runner", "tofu"} {
		if err := os.Chtimes(filepath.Join(p.programs, amd64.dir(), program), later, later); err != nil {
			t.Fatal(err)
		}
	}
	if err := p.build(context.Background()); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(first, digests(t, p.out)); diff != "" {
		t.Errorf("the second build differs (-first +second):\n%s", diff)
	}
}

// digests are those of all files of a directory.
func digests(t *testing.T, dir string) map[string]string {
	t.Helper()
	all := map[string]string{}
	err := filepath.WalkDir(dir, func(p string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		name, err := filepath.Rel(dir, p)
		all[name] = fmt.Sprintf("%x", sha256.Sum256(readFile(t, p)))
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

func TestTheLockNamesOnlyPackagesThatAreUsed(t *testing.T) {
	p := newPlace(t, newMirror(t, debs(t)...), amd64, arm64)
	if err := p.refresh(context.Background()); err != nil {
		t.Fatal(err)
	}
	for _, arch := range []string{"amd64", "arm64"} {
		pinned, err := readLock(p.lock, arch)
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, one := range pinned {
			got = append(got, one.name+" "+one.version)
		}
		want := []string{"base-files 12", "ca-certificates 2025", "coreutils 9.1", "dash 0.5", "gcc-12-base 12", "git 1:2.39-1",
			"libc6 2.36", "libgcc-s1 12", "openssh-client 1:9.2", "sed 4.9"}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("packages for %s (-want +got):\n%s", arch, diff)
		}
	}
}

func TestAnotherPackageThanTheLockNamesIsRefused(t *testing.T) {
	newer := func(all []deb, version, text string) []deb {
		all = slices.Clone(all)
		for i, d := range all {
			if d.name == "sed" {
				all[i].version = version
				all[i].files = map[string]string{"bin/sed": text, "usr/share/doc/sed/copyright": "GPL"}
			}
		}
		return all
	}
	all := debs(t)
	for name, c := range map[string]struct {
		now  []deb
		want []string
	}{
		"a newer version":                   {newer(all, "4.10", "sed"), []string{"sed 4.9 (amd64)", "make images-lock"}},
		"other content of the same version": {newer(all, "4.9", "something else"), []string{"sed 4.9 (amd64)", "digest"}},
	} {
		t.Run(name, func(t *testing.T) {
			m := newMirror(t, all...)
			p := newPlace(t, m, amd64)
			if err := p.refresh(context.Background()); err != nil {
				t.Fatal(err)
			}
			p.renew()
			m.publish(c.now...)
			err := p.build(context.Background())
			if err == nil {
				t.Fatal("the build took it")
			}
			for _, w := range c.want {
				if !strings.Contains(err.Error(), w) {
					t.Errorf("the error does not say %q: %v", w, err)
				}
			}
		})
	}
}

func TestALibraryThatIsMissingIsNamed(t *testing.T) {
	all := debs(t)
	for _, d := range all {
		maps.DeleteFunc(d.files, func(p, _ string) bool { return strings.Contains(p, "libpcre2") })
	}
	err := newPlace(t, newMirror(t, all...), amd64).refresh(context.Background())
	if err == nil || !strings.Contains(err.Error(), "/usr/bin/git needs libpcre2-8.so.0") {
		t.Errorf("refresh() = %v, want the program and the library", err)
	}
}

// entries are those of an image, links with their targets.
func entries(t *testing.T, image v1.Image) map[string]*tar.Header {
	t.Helper()
	all := map[string]*tar.Header{}
	r := mutate.Extract(image)
	defer func() { _ = r.Close() }()
	for in := tar.NewReader(r); ; {
		h, err := in.Next()
		if errors.Is(err, io.EOF) {
			return all
		}
		if err != nil {
			t.Fatal(err)
		}
		all[strings.TrimSuffix(h.Name, "/")] = h
	}
}

// images are those of a layout, by platform.
func images(t *testing.T, dir string) map[string]v1.Image {
	t.Helper()
	all, err := layout.ImageIndexFromPath(dir)
	if err != nil {
		t.Fatal(err)
	}
	manifest, err := all.IndexManifest()
	if err != nil {
		t.Fatal(err)
	}
	index, err := all.ImageIndex(manifest.Manifests[0].Digest)
	if err != nil {
		t.Fatal(err)
	}
	platforms, err := index.IndexManifest()
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]v1.Image{}
	for _, d := range platforms.Manifests {
		if found[d.Platform.String()], err = index.Image(d.Digest); err != nil {
			t.Fatal(err)
		}
	}
	return found
}

func contentOfImages(t *testing.T, p *place) {
	for _, r := range recipes {
		for on, image := range images(t, filepath.Join(p.out, r.name)) {
			t.Run(r.name+" "+on, func(t *testing.T) {
				checkSafety(t, image)
				checkConfiguration(t, r, image)
				has := entries(t, image)
				for _, want := range []string{"etc/ssl/certs/ca-certificates.crt", "etc/passwd", "usr/local/bin/" + r.name, "var/lib/dpkg/status.d/base-files", "usr/share/doc/terrier/LICENSE"} {
					if has[want] == nil {
						t.Errorf("/%s is missing", want)
					}
				}
				for _, not := range []string{"usr/bin/perl", "usr/bin/who", "usr/bin/ssh-keygen", "usr/lib/git-core/git-send-email", "usr/share/ca-certificates"} {
					if has[not] != nil {
						t.Errorf("/%s is in it", not)
					}
				}
				git := has["usr/bin/git"] != nil && has["usr/lib/git-core/git-remote-https"] != nil && has["usr/lib/x86_64-linux-gnu/libpcre2-8.so.0"] != nil &&
					has["usr/share/doc/gcc-12-base/copyright"] != nil && has["usr/local/bin/tofu"] != nil
				if git != (r.name == "terrier-runner") {
					t.Errorf("has git, its libraries, the engine and their copyrights: %t", git)
				}
			})
		}
	}
}

// checkSafety looks for what an image must not have.
func checkSafety(t *testing.T, image v1.Image) {
	t.Helper()
	const setuid, sticky, others = 0o6000, 0o1000, 0o022
	owned := map[string]bool{"home/terrier": true, "var/lib/terrier": true}
	for p, h := range entries(t, image) {
		switch {
		case h.Mode&setuid != 0:
			t.Errorf("/%s is setuid or setgid", p)
		case h.Typeflag != tar.TypeSymlink && h.Mode&others != 0 && !(p == "tmp" && h.Mode&sticky != 0):
			t.Errorf("/%s has mode %o: others may write it", p, h.Mode)
		case (h.Uid != 0 || h.Gid != 0) != owned[p]:
			t.Errorf("/%s belongs to %d:%d", p, h.Uid, h.Gid)
		}
	}
}

func checkConfiguration(t *testing.T, r recipe, image v1.Image) {
	t.Helper()
	config, err := image.ConfigFile()
	if err != nil {
		t.Fatal(err)
	}
	c := config.Config
	if c.User != "65532:65532" || c.StopSignal != "SIGTERM" || !slices.Equal(c.Entrypoint, []string{"/usr/local/bin/" + r.name}) || len(c.ExposedPorts) != len(r.ports) {
		t.Errorf("configuration %+v", c)
	}
	for _, label := range []string{"title", "description", "licenses", "version", "revision", "created", "source"} {
		if c.Labels["org.opencontainers.image."+label] == "" {
			t.Errorf("no label %s", label)
		}
	}
}

func TestTheBundleHasAllAuthoritiesInOrder(t *testing.T) {
	all := tree{}
	all.text("usr/share/ca-certificates/mozilla/B.crt", "second\n")
	all.text("usr/share/ca-certificates/mozilla/A.crt", "first\n")
	bundleAuthorities(all)
	if got := string(all["etc/ssl/certs/ca-certificates.crt"].data); got != "first\nsecond\n" || len(all) != 1 {
		t.Errorf("bundle %q, %d entries", got, len(all))
	}
}

func archivesAreTheImages(t *testing.T, p *place) {
	tag, err := name.NewTag("terrier:v1.2.3")
	if err != nil {
		t.Fatal(err)
	}
	loaded, err := tarball.ImageFromPath(filepath.Join(p.out, "terrier-linux-amd64.tar"), &tag)
	if err != nil {
		t.Fatal(err)
	}
	got, err := loaded.ConfigName()
	if err != nil {
		t.Fatal(err)
	}
	want, err := images(t, filepath.Join(p.out, "terrier"))["linux/amd64"].ConfigName()
	if err != nil || got != want {
		t.Errorf("the archive has the image %s, want %s (%v)", got, want, err)
	}
}

func pushBringsAll(t *testing.T, p *place) {
	server := httptest.NewServer(registry.New(registry.WithReferrersSupport(true), registry.Logger(log.New(io.Discard, "", 0))))
	t.Cleanup(server.Close)
	host := strings.TrimPrefix(server.URL, "http://") + "/team"
	if err := push(context.Background(), p.out, host); err != nil {
		t.Fatal(err)
	}
	for _, r := range recipes {
		ref, err := name.ParseReference(host + "/" + r.name + ":v1.2.3")
		if err != nil {
			t.Fatal(err)
		}
		index, err := remote.Index(ref)
		if err != nil {
			t.Fatal(err)
		}
		if got := referrers(t, ref.Context(), index); !slices.Equal(got, []string{string(provenanceType)}) {
			t.Errorf("the index of %s has %q attached", r.name, got)
		}
		for on, image := range images(t, filepath.Join(p.out, r.name)) {
			if got := referrers(t, ref.Context(), image); !slices.Equal(got, []string{string(sbomType), string(provenanceType)}) {
				t.Errorf("%s for %s has %q attached", r.name, on, got)
			}
		}
	}
}

// A newer Go builds the engine again, as it does our own programs: Go is asked each time.
func TestTheEngineIsBuiltEachTime(t *testing.T) {
	for _, target := range []string{"bin/tofu", "bin/images/linux_amd64/tofu", "bin/images/linux_arm64/tofu"} {
		out, err := exec.CommandContext(t.Context(), "make", "-C", "../..", "--dry-run", "--old-file=tools/tofu/go.mod", target).CombinedOutput()
		if err != nil || !strings.Contains(string(out), "go build") {
			t.Errorf("make %s: %v\n%s", target, err, out)
		}
	}
}

// A file that no commit has is compiled like any other: images with it name no clean
// commit, and are not pushed.
func TestANewFileModifiesTheTree(t *testing.T) {
	p := newPlace(t, newMirror(t, debs(t)...), amd64)
	writeFile(t, filepath.Join(p.root, "new.go"), "package main")
	p.mustBuild()
	for _, image := range images(t, filepath.Join(p.out, "terrier")) {
		config, err := image.ConfigFile()
		if err != nil {
			t.Fatal(err)
		}
		if got := config.Config.Labels[labelPrefix+"revision"]; !strings.HasSuffix(got, modifiedSuffix) {
			t.Errorf("the revision is %s, want it modified", got)
		}
	}
	if err := push(t.Context(), p.out, "registry.invalid/team"); err == nil || !strings.Contains(err.Error(), "not committed") {
		t.Errorf("push() = %v, want that changes are not committed", err)
	}
}

// referrers lists the types of what refers to a manifest in a registry.
func referrers(t *testing.T, repository name.Repository, to partial.Describable) []string {
	t.Helper()
	digest, err := to.Digest()
	if err != nil {
		t.Fatal(err)
	}
	found, err := remote.Referrers(repository.Digest(digest.String()))
	if err != nil {
		t.Fatal(err)
	}
	manifest, err := found.IndexManifest()
	if err != nil {
		t.Fatal(err)
	}
	var kinds []string
	for _, d := range manifest.Manifests {
		image, err := remote.Image(repository.Digest(d.Digest.String()))
		if err != nil {
			t.Fatal(err)
		}
		artifact, err := image.Manifest()
		if err != nil {
			t.Fatal(err)
		}
		kinds = append(kinds, artifact.ArtifactType)
	}
	slices.Sort(kinds)
	return kinds
}

func sbomListsAll(t *testing.T, p *place) {
	checkSBOM(t, p.out, "terrier-runner", filepath.Join(p.programs, amd64.dir()), p.lock)
}

// checkSBOM compares the SBOM of an image with its programs and the lock.
func checkSBOM(t *testing.T, out, image, programs, lock string) {
	t.Helper()
	var bom cyclonedx.BOM
	file, err := os.Open(filepath.Join(out, image+"-linux-amd64.cdx.json"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = file.Close() }()
	if err := cyclonedx.NewBOMDecoder(file, cyclonedx.BOMFileFormatJSON).Decode(&bom); err != nil {
		t.Fatal(err)
	}
	listed := map[string]bool{}
	for _, c := range *bom.Components {
		listed[c.Name] = true
	}
	for _, r := range recipes {
		if r.name != image {
			continue
		}
		for _, program := range r.programs {
			info, err := buildinfo.ReadFile(filepath.Join(programs, program.name))
			if err != nil {
				t.Fatal(err)
			}
			for _, m := range info.Deps {
				if m.Replace != nil {
					m = m.Replace
				}
				if !listed[m.Path] {
					t.Errorf("the module %s of %s is missing", m.Path, program.name)
				}
			}
		}
	}
	pinned, err := readLock(lock, "amd64")
	if err != nil {
		t.Fatal(err)
	}
	for _, one := range pinned {
		if image == "terrier-runner" && !listed[one.name] {
			t.Errorf("the package %s is missing", one.name)
		}
	}
}

func provenanceNamesAll(t *testing.T, p *place) {
	var statement struct {
		Type    string `json:"_type"`
		Subject []struct {
			Name   string
			Digest map[string]string
		}
		Predicate struct {
			BuildDefinition struct {
				ResolvedDependencies []struct {
					URI    string
					Digest map[string]string
				}
			}
		}
	}
	if err := json.Unmarshal(readFile(t, filepath.Join(p.out, "terrier.intoto.json")), &statement); err != nil {
		t.Fatal(err)
	}
	if len(statement.Subject) != 3 {
		t.Errorf("%d subjects, want the index and two images", len(statement.Subject))
	}
	digests := map[string]bool{}
	for _, s := range statement.Subject {
		digests[s.Digest["sha256"]] = true
	}
	for on, image := range images(t, filepath.Join(p.out, "terrier")) {
		if d, err := image.Digest(); err != nil || !digests[d.Hex] {
			t.Errorf("%s is no subject (%v)", on, err)
		}
	}
	materials := statement.Predicate.BuildDefinition.ResolvedDependencies
	commit := strings.TrimSpace(command(t, p.root, "git", "rev-parse", "HEAD"))
	if len(materials) == 0 || materials[0].Digest["gitCommit"] != commit {
		t.Fatalf("the first material is not the commit %s: %v", commit, materials)
	}
	named := func(prefix string) bool {
		return slices.ContainsFunc(materials, func(m struct {
			URI    string
			Digest map[string]string
		}) bool {
			return strings.HasPrefix(m.URI, prefix)
		})
	}
	for _, want := range []string{"pkg:generic/go@1.", "pkg:golang/github.com/google/go-containerregistry@v", "pkg:deb/debian/ca-certificates@2025?"} {
		if !named(want) {
			t.Errorf("no material %s…", want)
		}
	}
}

func TestUsage(t *testing.T) {
	for name, c := range map[string]struct {
		args []string
		want string
	}{
		"no command":               {nil, "usage"},
		"unknown command":          {[]string{"bake"}, `"bake"`},
		"unknown platform":         {[]string{"build", "-platforms", "linux/amd64,windows/amd64"}, `-platforms: "windows/amd64"`},
		"a version that is no tag": {[]string{"build", "-version", "v1+dirty"}, `-version: "v1+dirty"`},
		"no registry":              {[]string{"push"}, "REGISTRY="},
		"no lock":                  {[]string{"build", "-lock", "absent.lock"}, "make images-lock"},
	} {
		t.Run(name, func(t *testing.T) {
			err := run(context.Background(), c.args)
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("run(%q) = %v, want %q", c.args, err, c.want)
			}
		})
	}
}
