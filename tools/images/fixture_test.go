package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// mirror is a small mirror of Debian packages, on this machine, for apt itself.
type mirror struct {
	t   *testing.T
	dir string
}

// deb is a package of the mirror. A value that begins with -> is a link; one that begins
// with = is another name of a file.
type deb struct {
	name, version, depends string
	files                  map[string]string
}

func newMirror(t *testing.T, debs ...deb) *mirror {
	t.Helper()
	for _, program := range []string{"apt-get", "dpkg-deb"} {
		if _, err := exec.LookPath(program); err != nil {
			t.Skipf("%s is not here: images are built on Debian", program)
		}
	}
	m := &mirror{t, t.TempDir()}
	m.publish(debs...)
	return m
}

// sources is apt's list of mirrors.
func (m *mirror) sources() string { return filepath.Join(m.dir, "sources.list") }

// publish replaces what the mirror has.
func (m *mirror) publish(debs ...deb) {
	m.t.Helper()
	var index bytes.Buffer
	for _, d := range debs {
		index.WriteString(m.build(d))
	}
	sum := sha256.Sum256(index.Bytes())
	release := fmt.Sprintf("Suite: test\nArchitectures: amd64 arm64\nSHA256:\n %x %d Packages\n", sum, index.Len())
	writeFile(m.t, filepath.Join(m.dir, "Packages"), index.String())
	writeFile(m.t, filepath.Join(m.dir, "Release"), release)
	writeFile(m.t, m.sources(), "deb [trusted=yes] file:"+m.dir+" ./\n")
}

// build makes a package, and returns its entry in the index.
func (m *mirror) build(d deb) string {
	m.t.Helper()
	dir := m.t.TempDir()
	control := fmt.Sprintf("Package: %s\nVersion: %s\nArchitecture: all\nMaintainer: Test <test@example.com>\nDescription: test\n", d.name, d.version)
	if d.depends != "" {
		control += "Depends: " + d.depends + "\n"
	}
	writeFile(m.t, filepath.Join(dir, "DEBIAN/control"), control)
	for _, p := range slices.Sorted(maps.Keys(d.files)) {
		at, content := filepath.Join(dir, p), d.files[p]
		if err := os.MkdirAll(filepath.Dir(at), 0o755); err != nil {
			m.t.Fatal(err)
		}
		var err error
		if link, ok := strings.CutPrefix(content, "->"); ok {
			err = os.Symlink(link, at)
		} else if other, ok := strings.CutPrefix(content, "="); ok {
			err = os.Link(filepath.Join(dir, other), at)
		} else {
			writeFile(m.t, at, content)
			if strings.Contains(p, "bin/") {
				err = os.Chmod(at, 0o777|os.ModeSetuid)
			}
		}
		if err != nil {
			m.t.Fatal(err)
		}
	}
	name := d.name + "_" + strings.ReplaceAll(d.version, ":", "%3a") + "_all.deb"
	command(m.t, "", "dpkg-deb", "--root-owner-group", "-Zgzip", "--build", dir, filepath.Join(m.dir, name))
	data, err := os.ReadFile(filepath.Join(m.dir, name))
	if err != nil {
		m.t.Fatal(err)
	}
	sum := sha256.Sum256(data)
	return fmt.Sprintf("%sFilename: ./%s\nSize: %d\nSHA256: %s\n\n", control, name, len(data), hex.EncodeToString(sum[:]))
}

// debs are packages with all files that the recipes name. git is the program of this
// machine, with the libraries that it needs.
func debs(t *testing.T) []deb {
	t.Helper()
	doc := func(name string) string { return "usr/share/doc/" + name + "/copyright" }
	libc := map[string]string{doc("libc6"): "LGPL"}
	for _, p := range needed(t, "/usr/bin/git") {
		libc[p] = string(readFile(t, "/"+p))
	}
	return []deb{
		{"base-files", "12", "", map[string]string{
			"etc/debian_version": "12.1\n", "usr/lib/os-release": "ID=debian\n", "etc/os-release": "->../usr/lib/os-release",
			"usr/share/common-licenses/GPL-2": "GPL", doc("base-files"): "GPL",
		}},
		{"ca-certificates", "2025", "", map[string]string{
			"usr/share/ca-certificates/mozilla/B.crt": "second\n", "usr/share/ca-certificates/mozilla/A.crt": "first\n",
			doc("ca-certificates"): "MPL",
		}},
		{"git", "1:2.39-1", "perl, libc6", map[string]string{
			"usr/bin/git": string(readFile(t, "/usr/bin/git")), "usr/lib/git-core/git": "=usr/bin/git", "usr/bin/git-upload-pack": "->git",
			"usr/lib/git-core/git-remote-http": "http", "usr/lib/git-core/git-remote-https": "->git-remote-http",
			"usr/lib/git-core/git-submodule": "#!/bin/sh\n", "usr/lib/git-core/git-sh-setup": "setup", "usr/lib/git-core/git-sh-i18n": "i18n",
			"usr/lib/git-core/git-sh-i18n--envsubst": "envsubst", "usr/lib/git-core/git-send-email": "#!/usr/bin/perl\n", doc("git"): "GPL",
		}},
		{"perl", "5", "", map[string]string{"usr/bin/perl": "perl"}},
		{"openssh-client", "1:9.2", "", map[string]string{"usr/bin/ssh": "ssh", "usr/bin/ssh-keygen": "keygen", doc("openssh-client"): "BSD"}},
		{"dash", "0.5", "", map[string]string{"bin/dash": "dash", "bin/sh": "->dash", doc("dash"): "BSD"}},
		{"sed", "4.9", "", map[string]string{"bin/sed": "sed", doc("sed"): "GPL"}},
		{"bash", "5.2", "", map[string]string{"bin/bash": "bash", doc("bash"): "GPL"}},
		{"grep", "3.8", "", map[string]string{"bin/grep": "grep", doc("grep"): "GPL"}},
		{"mawk", "1.3", "", map[string]string{"usr/bin/mawk": "mawk", doc("mawk"): "GPL"}},
		{"findutils", "4.9", "", map[string]string{"usr/bin/find": "find", "usr/bin/xargs": "xargs", doc("findutils"): "GPL"}},
		{"coreutils", "9.1", "", coreutils(doc("coreutils"))},
		{"libc6", "2.36", "libgcc-s1", libc},
		{"libgcc-s1", "12", "gcc-12-base", map[string]string{
			"lib/x86_64-linux-gnu/libgcc_s.so.1": "gcc", "usr/share/doc/libgcc-s1": "->gcc-12-base",
		}},
		{"gcc-12-base", "12", "", map[string]string{doc("gcc-12-base"): "GPL with exceptions"}},
	}
}

// coreutils are the tools of scripts that no other package has, and one that no image has.
func coreutils(doc string) map[string]string {
	files := map[string]string{"usr/bin/who": "who", doc: "GPL"}
	for _, tool := range tools {
		switch name := path.Base(tool); name {
		case "mawk", "grep", "sed", "find", "xargs":
		case "[[]":
			files["usr/bin/["] = "["
		default:
			files[tool] = name
		}
	}
	return files
}

// needed lists the libraries and the loader of a program of this machine, as paths
// without a slash at the start.
func needed(t *testing.T, program string) []string {
	t.Helper()
	found, todo := map[string]bool{}, []string{program}
	for len(todo) > 0 {
		libraries, loader, err := linked(readFile(t, todo[0]))
		if err != nil {
			t.Fatal(err)
		}
		todo = todo[1:]
		var paths []string
		for _, name := range libraries {
			at, err := filepath.Glob("/usr/lib/*-linux-gnu/" + name)
			if err != nil || len(at) == 0 {
				t.Fatalf("%s is not found on this machine (%v)", name, err)
			}
			paths = append(paths, at[0])
		}
		if loader != "" {
			paths = append(paths, loader)
		}
		for _, p := range paths {
			if name := strings.TrimPrefix(p, "/"); !found[name] {
				found[name] = true
				todo = append(todo, p)
			}
		}
	}
	return slices.Sorted(maps.Keys(found))
}

// place is a repository with programs, and where images go.
type place struct {
	builder
	t *testing.T
}

// newPlace makes a repository with one commit. The programs are this test.
func newPlace(t *testing.T, m *mirror, platforms ...platform) *place {
	t.Helper()
	dir := t.TempDir()
	root := filepath.Join(dir, "root")
	writeFile(t, filepath.Join(root, "LICENSE"), "Apache")
	for _, args := range [][]string{{"init", "-q"}, {"add", "."}, {"-c", "user.name=t", "-c", "user.email=t@example.com", "commit", "-qm", "first"}} {
		command(t, root, "git", args...)
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range platforms {
		for _, r := range recipes {
			for _, program := range r.programs {
				at := filepath.Join(dir, "programs", p.dir(), program.name)
				writeFile(t, at, string(readFile(t, self)))
				if !program.ours {
					writeFile(t, at+".LICENSE", "MPL")
				}
			}
		}
	}
	return &place{builder{
		root: root, programs: filepath.Join(dir, "programs"), out: filepath.Join(dir, "out"), lock: filepath.Join(dir, "debian.lock"),
		version: "v1.2.3", by: "https://example.com/builder", platforms: platforms,
		debian: &debian{cache: filepath.Join(dir, "cache"), sources: m.sources()},
	}, t}
}

// renew forgets everything that was downloaded.
func (p *place) renew() {
	p.t.Helper()
	p.debian = &debian{cache: p.t.TempDir(), sources: p.debian.sources}
}

func (p *place) mustBuild() {
	p.t.Helper()
	if err := p.refresh(context.Background()); err != nil {
		p.t.Fatal(err)
	}
	if err := p.build(context.Background()); err != nil {
		p.t.Fatal(err)
	}
}

func command(t *testing.T, dir, name string, args ...string) string {
	t.Helper()
	cmd := exec.Command(name, args...)
	cmd.Dir, cmd.Env = dir, append(os.Environ(), "SOURCE_DATE_EPOCH=1") // of packages
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%s %s: %v\n%s", name, strings.Join(args, " "), err, out)
	}
	return string(out)
}

func readFile(t *testing.T, name string) []byte {
	t.Helper()
	data, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func writeFile(t *testing.T, name, content string) {
	t.Helper()
	if err := os.MkdirAll(path.Dir(name), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(name, []byte(content), 0o755); err != nil {
		t.Fatal(err)
	}
}
