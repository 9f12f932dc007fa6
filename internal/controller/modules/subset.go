package modules

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"

	"github.com/terrier-iac/terrier/internal/archive"
	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/stack"
	"github.com/terrier-iac/terrier/internal/workdir/module"
)

// Subset is the part of an archive that a stack depends on: an archive of its own.
type Subset struct {
	File   string // its path, as long as Archives keeps it
	Digest string // sha256:…; of the same files it is always the same
	Whole  string // why the whole archive counts; empty if it does not. File and Digest are its own then
}

// Subset takes from an archive what a stack depends on: its root module at dir with all
// below, the files and directories of always, and what paths select. A run gets this archive and no other, so
// that the digest covers everything that a run can read of its source: what was approved is
// what is applied, and a file that was not selected fails a run in place of being stale.
func (m *Reader) Subset(file, digest, dir string, paths, always []string) (Subset, error) {
	whole := Subset{File: file, Digest: digest}
	if m.Archives == nil {
		whole.Whole = "this platform keeps no parts of sources"
		return whole, nil
	}
	of := key{digest: digest, path: dir, extra: stack.Digest([]any{paths, always})}
	if s, ok := m.subsets.Get(of); ok {
		if s.Whole != "" {
			whole.Whole = s.Whole
			return whole, nil
		}
		if at, err := m.Archives.Path(s.Digest); err == nil {
			s.File = at
			return s, nil
		}
	}
	var s Subset
	if err := m.trees.with(m.Dir, file, digest, func(tree *archive.Scratch) (err error) {
		s, err = m.subset(tree, selection{dir: Below(dir), paths: paths, always: always, left: mostMatching})
		return err
	}); err != nil {
		return Subset{}, err
	}
	m.subsets.Put(of, s)
	if s.Whole != "" {
		whole.Whole = s.Whole
		return whole, nil
	}
	var err error
	s.File, err = m.Archives.Path(s.Digest)
	return s, err
}

// subset packs what is selected of an archive.
func (m *Reader) subset(tree *archive.Scratch, s selection) (Subset, error) {
	if why := s.resolve(tree.Root.FS()); why != "" {
		return Subset{Whole: why}, nil
	}
	f, err := os.CreateTemp(m.Dir, "subset-*.tar")
	if err != nil {
		return Subset{}, err
	}
	defer os.Remove(f.Name())
	defer f.Close()
	sum := sha256.New()
	if err := archive.Tar(tree.Dir, func(name string, isDir bool) bool { return isDir || !s.takes(name) }, io.MultiWriter(f, sum), archive.Limits{}); s.left < 0 {
		return Subset{}, fault.New(fault.Invalid, archive.Reason, errors.New("its patterns take too long to compare with all files of this source: write fewer or shorter patterns, or name directories"))
	} else if err != nil {
		return Subset{}, fmt.Errorf("taking %s from the source: %w", s.dir, err)
	}
	if _, err := f.Seek(0, io.SeekStart); err != nil {
		return Subset{}, err
	}
	out := Subset{Digest: "sha256:" + hex.EncodeToString(sum.Sum(nil))}
	return out, m.Archives.Put(out.Digest, f)
}

// selection says which files of a source a stack depends on.
type selection struct {
	dir    string   // of the root module
	paths  []string // patterns, and stack.SourceAuto
	always []string // files, and directories with everything below

	dirs []string // that are taken with everything below
	left int      // of mostMatching; negative once it is used up
}

// mostMatching bounds the work of comparing patterns with the files of one source: about some
// seconds, and more than 20 short patterns need for 50,000 files.
const mostMatching = 1 << 29

// resolve finds the directories, and says why the whole source counts; empty if it does not.
func (s *selection) resolve(tree fs.FS) string {
	if s.dir == "." {
		return "the root module is in the root of the source"
	}
	if slices.ContainsFunc(s.always, func(name string) bool { return name == "" || name == "." }) {
		return "a step after the apply uses the root of the source"
	}
	if info, err := fs.Stat(tree, s.dir); err != nil || !info.IsDir() {
		return "the source has no directory " + s.dir // what reads the module says so
	}
	s.dirs = []string{s.dir}
	if !slices.Contains(s.paths, stack.SourceAuto) {
		return ""
	}
	reach := module.ReachOf(tree, s.dir)
	s.dirs = append(s.dirs, reach.Dirs...)
	if reach.Whole == "" && slices.Contains(s.dirs, ".") {
		return "a local module is in the root of the source"
	}
	return reach.Whole
}

// takes reports whether a file is selected.
func (s *selection) takes(name string) bool {
	if slices.ContainsFunc(s.always, func(of string) bool { return name == of || strings.HasPrefix(name, of+"/") }) {
		return true
	}
	for _, dir := range s.dirs {
		if strings.HasPrefix(name, dir+"/") {
			return true
		}
	}
	for _, pattern := range s.paths {
		if s.left < 0 {
			return false
		}
		if pattern != stack.SourceAuto && selects(strings.Split(pattern, "/"), strings.Split(name, "/"), &s.left) {
			return true
		}
	}
	return false
}

// selects reports whether a pattern is a name, or a directory above it. Two asterisks stand
// for any number of directories. What is between them is taken where it first occurs: this
// leaves the most for the rest, so no other place needs to be tried. It takes its work off left.
func selects(pattern, name []string, left *int) bool {
	anywhere := false // the next part may begin in any directory
	for len(pattern) > 0 {
		n := slices.Index(pattern, "**")
		switch {
		case n == 0:
			anywhere, pattern = true, pattern[1:]
			continue
		case n < 0:
			n = len(pattern)
		}
		at := 0
		for ; !begins(pattern[:n], name[at:], left); at++ {
			if !anywhere || at+n >= len(name) || *left < 0 {
				return false
			}
		}
		anywhere, pattern, name = false, pattern[n:], name[at+n:]
	}
	return true // the name is below what the pattern matches, or is it
}

// begins reports whether a name begins with what a pattern without two asterisks matches.
func begins(pattern, name []string, left *int) bool {
	if len(pattern) > len(name) {
		return false
	}
	for i, p := range pattern {
		if *left -= 8 + len(p)*len(name[i]); *left < 0 {
			return false
		}
		if matches, err := path.Match(p, name[i]); err != nil || !matches {
			return false
		}
	}
	return true
}
