package main

import (
	"archive/tar"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// builder makes all images of some platforms.
type builder struct {
	root, programs, out, lock string
	version, by               string
	platforms                 []platform
	debian                    *debian

	revision string // the commit
	created  time.Time
}

// built is the image of one platform, and what is in it.
type built struct {
	platform platform
	image    v1.Image
	programs []string // their files on this machine
	packages []pkg
}

// build makes the images of each recipe: the packages of a platform are opened once.
func (b *builder) build(ctx context.Context) error {
	if err := errors.Join(b.check(), b.identify(ctx)); err != nil {
		return err
	}
	images := make([][]built, len(recipes))
	for _, p := range b.platforms {
		pinned, err := readLock(b.lock, p.arch)
		if err != nil {
			return err
		}
		if _, err := b.debian.fetch(ctx, p.arch, pinned); err != nil {
			return err
		}
		archive, err := b.debian.open(ctx, pinned)
		if err != nil {
			return err
		}
		for i, r := range recipes {
			image, err := b.assemble(r, p, archive, pinned)
			if err != nil {
				return fmt.Errorf("assembling %s for %s: %w", r.name, p, err)
			}
			images[i] = append(images[i], image)
		}
	}
	for i, r := range recipes {
		if err := b.write(r, images[i]); err != nil {
			return fmt.Errorf("writing %s: %w", r.name, err)
		}
	}
	return nil
}

// identify finds the commit and the time of the images: SOURCE_DATE_EPOCH, or the time
// of the commit.
func (b *builder) identify(ctx context.Context) error {
	git := func(args ...string) (string, error) {
		out, err := output(exec.CommandContext(ctx, "git", append([]string{"-C", b.root}, args...)...))
		return strings.TrimSpace(string(out)), err
	}
	commit, err := git("log", "-1", "--format=%H %ct")
	if err != nil {
		return fmt.Errorf("finding the commit of the images: %w", err)
	}
	changed, err := git("status", "--porcelain", "--untracked-files=normal") // Go compiles new files, too
	if err != nil {
		return fmt.Errorf("finding changes since the commit: %w", err)
	}
	revision, seconds, _ := strings.Cut(commit, " ")
	b.revision = revision
	if changed != "" {
		b.revision += modifiedSuffix
	}
	if epoch := os.Getenv("SOURCE_DATE_EPOCH"); epoch != "" {
		seconds = epoch
	}
	unix, err := strconv.ParseInt(seconds, 10, 64)
	if err != nil {
		return fmt.Errorf("SOURCE_DATE_EPOCH: %q is not a number of seconds", seconds)
	}
	b.created = time.Unix(unix, 0).UTC()
	return nil
}

// modifiedSuffix marks the revision of a tree with changes that are not committed.
const modifiedSuffix = "-modified"

// part is one layer of an image, and the step that made it for its history.
type part struct {
	step string
	tree tree
}

// assemble makes the image of one platform.
func (b *builder) assemble(r recipe, p platform, archive packages, pinned []pkg) (built, error) {
	parts, err := layers(r, archive)
	if err != nil {
		return built{}, err
	}
	used := map[string]bool{}
	for _, part := range parts {
		for _, f := range part.tree {
			used[f.owner] = true
		}
	}
	out := built{platform: p, packages: slices.DeleteFunc(slices.Clone(pinned), func(p pkg) bool { return !used[p.name] })}
	for _, prog := range r.programs {
		local := filepath.Join(b.programs, p.dir(), prog.name)
		t := tree{}
		t.program("usr/local/bin/"+prog.name, local)
		if err := b.licence(t, prog, local); err != nil {
			return built{}, err
		}
		out.programs = append(out.programs, local)
		parts = append(parts, part{"program " + prog.name, t})
	}
	out.image, err = b.configure(r, p, parts)
	return out, err
}

// layers are those that come from Debian.
func layers(r recipe, archive packages) ([]part, error) {
	base, err := archive.pick(foundation.keep)
	if err != nil {
		return nil, err
	}
	bundleAuthorities(base)
	base.accounts()
	for _, dir := range mergedDirs {
		base[dir] = file{kind: '2', mode: 0o777, link: "usr/" + dir}
		base.dir("usr/"+dir, 0o755, 0)
	}
	archive.describe(base)
	parts := []part{{"certificate authorities, accounts and directories", base}}
	if len(r.keep) == 0 {
		return parts, nil
	}
	picked, err := archive.pick(r.keep)
	if err != nil {
		return nil, err
	}
	for p := range base {
		delete(picked, p)
	}
	// git looks for its templates, and complains if there is no such directory.
	picked.dir("usr/share/git-core/templates", 0o755, 0)
	// Debian's alternatives, which are links that a package makes when it is installed.
	picked["usr/bin/awk"] = file{kind: tar.TypeSymlink, mode: 0o777, link: "mawk"}
	archive.describe(picked)
	return append(parts, part{"Debian packages of " + r.name, picked}), nil
}

// bundleAuthorities replaces the authorities of Debian with one file, as
// update-ca-certificates makes it.
func bundleAuthorities(t tree) {
	var bundle strings.Builder
	var owner string
	for _, p := range slices.Sorted(maps.Keys(t)) {
		if f := t[p]; path.Ext(p) == ".crt" {
			bundle.Write(f.data)
			owner = f.owner
			delete(t, p)
		}
	}
	t["etc/ssl/certs/ca-certificates.crt"] = file{kind: '0', mode: 0o644, data: []byte(bundle.String()), owner: owner}
}

// accounts adds the user, and the two directories that it may write. A volume should be
// mounted at each; the rest is read-only.
func (t tree) accounts() {
	id := strconv.Itoa(user)
	t.text("etc/passwd", "root:x:0:0:root:/nonexistent:/usr/sbin/nologin\nterrier:x:"+id+":"+id+":terrier:/home/terrier:/usr/sbin/nologin\n"+
		"nobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin\n")
	t.text("etc/group", "root:x:0:\nterrier:x:"+id+":\nnogroup:x:65534:\n")
	t.text("etc/nsswitch.conf", "passwd: files\ngroup: files\nhosts: files dns\n")
	t.dir("home/terrier", 0o755, user)
	t.dir("var/lib/terrier", 0o700, user)
	t.dir("tmp", 0o1777, 0)
}

// describe adds the control files of the packages in a tree, where scanners look for
// them.
func (a packages) describe(t tree) {
	for _, f := range slices.Collect(maps.Values(t)) {
		if f.owner != "" {
			t["var/lib/dpkg/status.d/"+f.owner] = file{kind: '0', mode: 0o644, data: []byte(a.controls[f.owner]), owner: f.owner}
		}
	}
}

// licence adds the licence of a program: a file beside it, or that of the repository.
func (b *builder) licence(t tree, p program, local string) error {
	name, from := p.name, local+".LICENSE"
	if p.ours {
		name, from = "terrier", filepath.Join(b.root, "LICENSE")
	}
	text, err := os.ReadFile(from)
	if err != nil {
		return fmt.Errorf("reading the licence of %s: %w", p.name, err)
	}
	t.text("usr/share/doc/"+name+"/LICENSE", string(text))
	return nil
}

// configure makes an image of layers.
func (b *builder) configure(r recipe, p platform, parts []part) (v1.Image, error) {
	image := mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON)
	created := v1.Time{Time: b.created}
	for _, part := range parts {
		layer, err := part.tree.layer()
		if err != nil {
			return nil, err
		}
		image, err = mutate.Append(image, mutate.Addendum{
			Layer: layer, History: v1.History{Created: created, CreatedBy: "images: " + part.step},
		})
		if err != nil {
			return nil, err
		}
	}
	config, err := image.ConfigFile()
	if err != nil {
		return nil, err
	}
	config = config.DeepCopy()
	config.OS, config.Architecture, config.Created = p.os, p.arch, created
	ports := map[string]struct{}{}
	for _, port := range r.ports {
		ports[port] = struct{}{}
	}
	config.Config = v1.Config{
		User:         fmt.Sprintf("%d:%d", user, user),
		Entrypoint:   []string{"/usr/local/bin/" + r.name},
		Env:          []string{"PATH=/usr/local/bin:/usr/bin", "HOME=/home/terrier"},
		WorkingDir:   "/",
		ExposedPorts: ports,
		StopSignal:   "SIGTERM",
		Labels:       b.labels(r),
	}
	return mutate.ConfigFile(image, config)
}

const labelPrefix = "org.opencontainers.image."

func (b *builder) labels(r recipe) map[string]string {
	const prefix = labelPrefix
	return map[string]string{
		prefix + "title": r.title, prefix + "description": r.about, prefix + "licenses": r.licences,
		prefix + "version": b.version, prefix + "revision": b.revision, prefix + "created": b.created.Format(time.RFC3339),
		prefix + "source": home, prefix + "documentation": home + "/blob/main/docs/images.md",
	}
}

// check refuses a version that cannot be a tag.
func (b *builder) check() error {
	if b.version == "" || strings.ContainsAny(b.version, "+/: ") {
		return errors.New("-version: " + strconv.Quote(b.version) + " cannot be the tag of an image")
	}
	return nil
}
