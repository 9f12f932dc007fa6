package main

import (
	"debug/buildinfo"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/CycloneDX/cyclonedx-go"
)

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
