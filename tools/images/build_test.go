package main

import (
	"context"
	"crypto/sha256"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
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
	for _, program := range []string{"terrier", "terrier-runner", "terrier-backend", "tofu"} {
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
