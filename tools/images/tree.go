package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"maps"
	"os"
	"path"
	"slices"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// file is one entry of a layer.
type file struct {
	kind  byte   // tar.TypeReg, tar.TypeDir or tar.TypeSymlink
	mode  int64  // permissions
	uid   int    // and the group
	link  string // of a symbolic link
	data  []byte
	local string    // in place of data: a file of this machine
	mtime time.Time // the zero time is the beginning of Unix time
	owner string    // the Debian package that it comes from
}

// tree is the content of a layer, by the path from the root, without a slash at the
// start.
type tree map[string]file

func (t tree) dir(p string, mode int64, uid int) {
	t[p] = file{kind: tar.TypeDir, mode: mode, uid: uid}
}

func (t tree) text(p, content string) {
	t[p] = file{kind: tar.TypeReg, mode: 0o644, data: []byte(content)}
}

// program adds a program that lies on this machine.
func (t tree) program(p, local string) {
	t[p] = file{kind: tar.TypeReg, mode: 0o755, local: local}
}

// parents adds the directories that lead to the entries.
func (t tree) parents() {
	for _, p := range slices.Collect(maps.Keys(t)) {
		for dir := path.Dir(p); dir != "."; dir = path.Dir(dir) {
			if _, ok := t[dir]; !ok {
				t.dir(dir, 0o755, 0)
			}
		}
	}
}

// layer compresses the tree. The same tree is always the same bytes.
func (t tree) layer() (v1.Layer, error) {
	t.parents()
	open := func() (io.ReadCloser, error) {
		r, w := io.Pipe()
		go func() { w.CloseWithError(t.write(w)) }()
		return r, nil
	}
	return tarball.LayerFromOpener(open, tarball.WithCompressionLevel(gzip.DefaultCompression),
		tarball.WithCompressedCaching, tarball.WithMediaType(types.OCILayer))
}

func (t tree) write(w io.Writer) error {
	out := tar.NewWriter(w)
	for _, p := range slices.Sorted(maps.Keys(t)) {
		if err := t[p].write(out, p); err != nil {
			return fmt.Errorf("adding /%s: %w", p, err)
		}
	}
	return out.Close()
}

func (f file) write(out *tar.Writer, p string) error {
	h := &tar.Header{Typeflag: f.kind, Name: p, Mode: f.mode, Uid: f.uid, Gid: f.uid, Linkname: f.link, ModTime: f.mtime}
	if f.mtime.IsZero() {
		h.ModTime = time.Unix(0, 0)
	}
	var content io.Reader = bytes.NewReader(f.data)
	h.Size = int64(len(f.data))
	switch {
	case f.kind == tar.TypeDir:
		h.Name += "/"
	case f.local != "":
		local, err := os.Open(f.local)
		if err != nil {
			return err
		}
		defer func() { _ = local.Close() }()
		info, err := local.Stat()
		if err != nil {
			return err
		}
		content, h.Size = local, info.Size()
	}
	if err := out.WriteHeader(h); err != nil {
		return err
	}
	_, err := io.Copy(out, content)
	return err
}
