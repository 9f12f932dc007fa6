package main

import (
	"archive/tar"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// debian gets packages from the mirror that apt of this machine is set up for. apt
// checks the signatures; its state here is our own, so that nothing of the machine
// is read or changed, and so that it serves other architectures.
type debian struct {
	cache   string
	sources string
	updated map[string]bool // by architecture
}

// pkg is one version of one Debian package.
type pkg struct{ arch, name, version, sha256 string }

func (p pkg) String() string { return fmt.Sprintf("%s %s (%s)", p.name, p.version, p.arch) }

// kept is where a package of a digest lies.
func (d *debian) kept(sha256 string) string { return filepath.Join(d.cache, "packages", sha256+".deb") }

// machineSources are the places of apt's list of mirrors on Debian, newest first.
var machineSources = []string{"/etc/apt/sources.list.d/debian.sources", "/etc/apt/sources.list"}

// apt runs one of apt's programs for an architecture, in dir.
func (d *debian) apt(ctx context.Context, arch, dir, program string, args ...string) ([]byte, error) {
	if _, err := exec.LookPath(program); err != nil {
		return nil, fmt.Errorf("%s is missing: build images on a machine with apt, as Debian has it", program)
	}
	sources := d.sources
	for _, s := range machineSources {
		if _, err := os.Stat(s); err == nil && sources == "" {
			sources = s
		}
	}
	state, err := filepath.Abs(filepath.Join(d.cache, arch))
	if err != nil {
		return nil, err
	}
	for _, dir := range []string{"state/lists/partial", "cache/archives/partial"} {
		if err := os.MkdirAll(filepath.Join(state, dir), 0o755); err != nil {
			return nil, err
		}
	}
	// Without a package that is installed, all that one needs is named.
	status := filepath.Join(state, "status")
	if err := os.WriteFile(status, nil, 0o644); err != nil {
		return nil, err
	}
	var options []string
	for _, o := range []string{
		"APT::Architecture=" + arch, "APT::Architectures=" + arch, "APT::Install-Recommends=false",
		"Dir::State=" + filepath.Join(state, "state"), "Dir::State::status=" + status, "Dir::Cache=" + filepath.Join(state, "cache"),
		"Dir::Cache::pkgcache=pkgcache.bin", "Dir::Cache::srcpkgcache=srcpkgcache.bin",
		"Dir::Etc::sourcelist=" + sources, "Dir::Etc::sourceparts=/dev/null", "Dir::Etc::preferences=/dev/null", "Dir::Etc::preferencesparts=/dev/null",
		"Acquire::Languages=none", "Debug::NoLocking=true", "APT::Sandbox::User=root",
	} {
		options = append(options, "-o", o)
	}
	cmd := exec.CommandContext(ctx, program, append(options, args...)...)
	cmd.Dir, cmd.Env = dir, append(os.Environ(), "LC_ALL=C")
	return output(cmd)
}

// update fetches the lists of an architecture once.
func (d *debian) update(ctx context.Context, arch string) error {
	if d.updated[arch] {
		return nil
	}
	if _, err := d.apt(ctx, arch, "", "apt-get", "update", "--error-on=any"); err != nil {
		return fmt.Errorf("fetching the lists of Debian's mirror for %s: %w", arch, err)
	}
	if d.updated == nil {
		d.updated = map[string]bool{}
	}
	d.updated[arch] = true
	return nil
}

// archiveName is how apt calls a package that it would install.
var archiveName = regexp.MustCompile(`(?m)^'[^']+' ([^ _]+)_([^ _]+)_[^ _]+\.deb `)

// closure lists the packages that some packages need, and those, in the newest
// versions of the mirror.
func (d *debian) closure(ctx context.Context, arch string, names []string) ([]pkg, error) {
	if err := d.update(ctx, arch); err != nil {
		return nil, err
	}
	out, err := d.apt(ctx, arch, "", "apt-get", append([]string{"install", "--yes", "--print-uris"}, names...)...)
	if err != nil {
		return nil, fmt.Errorf("asking apt what %s need: %w", strings.Join(names, ", "), err)
	}
	var all []pkg
	for _, m := range archiveName.FindAllStringSubmatch(string(out), -1) {
		all = append(all, pkg{arch: arch, name: m[1], version: strings.ReplaceAll(m[2], "%3a", ":")})
	}
	if len(all) == 0 {
		return nil, fmt.Errorf("apt names no package for %s", strings.Join(names, ", "))
	}
	return all, nil
}

// fetch makes sure that packages of one architecture are kept, and returns them with
// their digests. A package that has a digest already must have that one.
func (d *debian) fetch(ctx context.Context, arch string, packages []pkg) ([]pkg, error) {
	all, missing := slices.Clone(packages), []string(nil)
	for _, p := range all {
		if _, err := os.Stat(d.kept(p.sha256)); p.sha256 == "" || err != nil {
			missing = append(missing, p.name+"="+p.version)
		}
	}
	if len(missing) == 0 {
		return all, nil
	}
	if err := d.update(ctx, arch); err != nil {
		return nil, err
	}
	if err := os.MkdirAll(filepath.Dir(d.kept("")), 0o755); err != nil {
		return nil, err
	}
	scratch, err := os.MkdirTemp(d.cache, "download-")
	if err != nil {
		return nil, err
	}
	defer func() { _ = os.RemoveAll(scratch) }()
	if _, err := d.apt(ctx, arch, scratch, "apt-get", append([]string{"download"}, missing...)...); err != nil {
		return nil, d.explain(ctx, all, missing, err)
	}
	for i, p := range all {
		if slices.Contains(missing, p.name+"="+p.version) {
			if all[i].sha256, err = d.keep(p, scratch); err != nil {
				return nil, err
			}
		}
	}
	return all, nil
}

// explain finds the packages that the mirror does not have, after apt refused to download
// some.
func (d *debian) explain(ctx context.Context, packages []pkg, missing []string, failure error) error {
	var gone []string
	for _, p := range packages {
		version := p.name + "=" + p.version
		if !slices.Contains(missing, version) {
			continue
		}
		if _, err := d.apt(ctx, p.arch, "", "apt-get", "download", "--print-uris", version); err != nil {
			gone = append(gone, p.String())
		}
	}
	if len(gone) == 0 {
		return fmt.Errorf("downloading Debian packages: %w", failure)
	}
	return fmt.Errorf("the mirror does not have %s any more: run `make images-lock`, and commit debian.lock", strings.Join(gone, ", "))
}

// keep moves a package that was downloaded to where packages lie, and returns its digest.
func (d *debian) keep(p pkg, scratch string) (digest string, err error) {
	found, err := filepath.Glob(filepath.Join(scratch, p.name+"_"+strings.ReplaceAll(p.version, ":", "%3a")+"_*.deb"))
	if err != nil {
		return "", err
	}
	if len(found) != 1 {
		return "", fmt.Errorf("apt downloaded %d files for %s", len(found), p)
	}
	data, err := os.ReadFile(found[0])
	if err != nil {
		return "", err
	}
	sum := sha256.Sum256(data)
	digest = hex.EncodeToString(sum[:])
	if p.sha256 != "" && p.sha256 != digest {
		return "", fmt.Errorf("%s has the digest %s and not %s as in debian.lock: find out why before you run `make images-lock`", p, digest, p.sha256)
	}
	return digest, os.Rename(found[0], d.kept(digest))
}

// unpack adds the files of a package to a tree, under the paths that they have where
// /bin, /lib and /sbin are links into /usr. Its control file comes back.
func (d *debian) unpack(ctx context.Context, p pkg, into tree) (control string, err error) {
	data, err := os.ReadFile(d.kept(p.sha256))
	if err != nil {
		return "", err
	}
	if sum := sha256.Sum256(data); hex.EncodeToString(sum[:]) != p.sha256 {
		return "", fmt.Errorf("%s was changed: delete it and build again", d.kept(p.sha256))
	}
	field, err := output(exec.CommandContext(ctx, "dpkg-deb", "--field", d.kept(p.sha256)))
	if err != nil {
		return "", fmt.Errorf("reading the control file of %s: %w", p, err)
	}
	files, err := output(exec.CommandContext(ctx, "dpkg-deb", "--fsys-tarfile", d.kept(p.sha256)))
	if err != nil {
		return "", fmt.Errorf("unpacking %s: %w", p, err)
	}
	for r := tar.NewReader(bytes.NewReader(files)); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return string(field), nil
		}
		if err != nil {
			return "", fmt.Errorf("unpacking %s: %w", p, err)
		}
		f := file{kind: h.Typeflag, mode: h.Mode & 0o755, link: h.Linkname, mtime: h.ModTime, owner: p.name}
		switch h.Typeflag {
		case tar.TypeDir:
			continue // made again where something in it is kept
		case tar.TypeLink: // another name of a file is a link by name here
			f.kind, f.mode, f.link = tar.TypeSymlink, 0o777, "/"+merged(h.Linkname)
		case tar.TypeSymlink:
			f.mode = 0o777
		case tar.TypeReg:
			if f.data, err = io.ReadAll(r); err != nil {
				return "", fmt.Errorf("unpacking %s: %w", p, err)
			}
		default:
			return "", fmt.Errorf("unpacking %s: %s is neither file, directory nor link", p, h.Name)
		}
		into[merged(h.Name)] = f
	}
}

// mergedDirs are links into /usr on Debian, and in our images.
var mergedDirs = []string{"bin", "sbin", "lib", "lib64"}

// merged is a path of a package as our images have it.
func merged(p string) string {
	p = strings.TrimPrefix(path.Clean("/"+p), "/")
	for _, dir := range mergedDirs {
		if strings.HasPrefix(p, dir+"/") {
			return "usr/" + p
		}
	}
	return p
}

// output runs a program and returns what it wrote. The error has what it complained
// of.
func output(cmd *exec.Cmd) ([]byte, error) {
	var out, complaint bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &complaint
	if err := cmd.Run(); err != nil {
		return nil, fmt.Errorf("%w: %s", err, strings.TrimSpace(complaint.String()))
	}
	return out.Bytes(), nil
}
