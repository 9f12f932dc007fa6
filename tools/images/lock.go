package main

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"
)

const lockHeader = `# The Debian packages that images take files from: architecture, name, version,
# SHA-256 of the package. Written by make images-lock, and compared at each build.
`

// readLock reads the pinned packages of an architecture.
func readLock(file, arch string) ([]pkg, error) {
	data, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%s is missing: run `make images-lock`", file)
	}
	if err != nil {
		return nil, err
	}
	var all []pkg
	for lines, n := bufio.NewScanner(bytes.NewReader(data)), 1; lines.Scan(); n++ {
		line := strings.TrimSpace(lines.Text())
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		f := strings.Fields(line)
		if len(f) != 4 || !isDigest(f[3]) {
			return nil, fmt.Errorf("%s:%d: want an architecture, a name, a version and a SHA-256: run `make images-lock`", file, n)
		}
		if f[0] == arch {
			all = append(all, pkg{f[0], f[1], f[2], f[3]})
		}
	}
	if len(all) == 0 {
		return nil, fmt.Errorf("%s has no package for %s: run `make images-lock`", file, arch)
	}
	return all, nil
}

func isDigest(text string) bool {
	b, err := hex.DecodeString(text)
	return err == nil && len(b) == 32
}

// refresh writes the lock again, with what the mirror has today. Only packages that
// an image takes a file from get into it.
func (b *builder) refresh(ctx context.Context) error {
	var all []pkg
	for _, p := range b.platforms {
		packages, err := b.pins(ctx, p.arch)
		if err != nil {
			return err
		}
		all = append(all, packages...)
	}
	slices.SortFunc(all, func(a, b pkg) int { return cmp.Or(cmp.Compare(a.arch, b.arch), cmp.Compare(a.name, b.name)) })
	var text strings.Builder
	text.WriteString(lockHeader)
	for _, p := range all {
		fmt.Fprintln(&text, p.arch, p.name, p.version, p.sha256)
	}
	if err := os.WriteFile(b.lock, []byte(text.String()), 0o644); err != nil {
		return err
	}
	fmt.Printf("images: %s names %d packages\n", b.lock, len(all))
	return nil
}

// pins finds the packages of an architecture.
func (b *builder) pins(ctx context.Context, arch string) ([]pkg, error) {
	var names []string
	for _, r := range append([]recipe{foundation}, recipes...) {
		names = append(names, r.packages...)
	}
	packages, err := b.debian.closure(ctx, arch, names)
	if err != nil {
		return nil, err
	}
	if packages, err = b.debian.fetch(ctx, arch, packages); err != nil {
		return nil, err
	}
	archive, err := b.debian.open(ctx, packages)
	if err != nil {
		return nil, err
	}
	used := map[string]bool{}
	for _, r := range append([]recipe{foundation}, recipes...) {
		picked, err := archive.pick(r.keep)
		if err != nil {
			return nil, fmt.Errorf("choosing files of %s for %s: %w", r.name, arch, err)
		}
		for _, f := range picked {
			used[f.owner] = true
		}
	}
	return slices.DeleteFunc(packages, func(p pkg) bool { return !used[p.name] }), nil
}
