package main

import (
	"context"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

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
		want := []string{"base-files 12", "bash 5.2", "ca-certificates 2025", "coreutils 9.1", "dash 0.5", "findutils 4.9", "gcc-12-base 12", "git 1:2.39-1",
			"grep 3.8", "libc6 2.36", "libgcc-s1 12", "mawk 1.3", "openssh-client 1:9.2", "sed 4.9"}
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
