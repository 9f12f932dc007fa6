package source

import (
	"bytes"
	"fmt"
	"io"
	"path"
	"strings"

	"github.com/go-git/go-git/v5/plumbing/filemode"
	"github.com/go-git/go-git/v5/plumbing/object"
	"github.com/terrier-iac/terrier/internal/archive"
)

// gitWriter writes git trees. Names in a git tree are not trusted; archive.Tree
// checks them.
type gitWriter struct {
	out    *archive.Tree
	sparse []string // clean names of directories; all if empty

	pointers []lfsFile // what is not written, since its content is elsewhere
}

// tree writes t, which is the directory at name; the root's name is "".
func (w *gitWriter) tree(t *object.Tree, name string) error {
	for _, e := range t.Entries {
		if e.Name == "" || e.Name == "." || e.Name == ".." || strings.Contains(e.Name, "/") || strings.EqualFold(e.Name, ".git") {
			return invalid(archive.Reason, "the tree holds the name %q", path.Join(name, e.Name))
		}
		if err := w.entry(t, e, path.Join(name, e.Name)); err != nil {
			return err
		}
	}
	return nil
}

func (w *gitWriter) entry(t *object.Tree, e object.TreeEntry, name string) error {
	inside, above := w.wants(name)
	switch e.Mode {
	case filemode.Dir:
		if !inside && !above {
			return nil
		}
		sub, err := t.Tree(e.Name)
		if err != nil {
			return gitFault(fmt.Sprintf("reading the directory %q", name), err)
		}
		if err := w.out.Mkdir(name); err != nil {
			return err
		}
		return w.tree(sub, name)
	case filemode.Submodule:
		return nil // only named here; its content is elsewhere
	case filemode.Regular, filemode.Deprecated, filemode.Executable, filemode.Symlink:
		if !inside {
			return nil
		}
		blob, err := t.TreeEntryFile(&e)
		if err != nil {
			return gitFault(fmt.Sprintf("reading the file %q", name), err)
		}
		return w.blob(blob, e.Mode, name)
	default:
		return invalid(archive.Reason, "%q is of a kind that git does not have", name)
	}
}

func (w *gitWriter) blob(blob *object.File, mode filemode.FileMode, name string) error {
	content, err := blob.Reader()
	if err != nil {
		return gitFault(fmt.Sprintf("reading the file %q", name), err)
	}
	defer content.Close()
	if mode != filemode.Symlink {
		return w.file(name, mode == filemode.Executable, blob.Size, content)
	}
	target, err := io.ReadAll(io.LimitReader(content, 4096))
	if err != nil {
		return gitFault(fmt.Sprintf("reading the symbolic link %q", name), err)
	}
	return w.out.Symlink(name, string(target))
}

// file writes a file, unless it is a pointer of Git LFS.
func (w *gitWriter) file(name string, executable bool, size int64, content io.Reader) error {
	if size <= maxPointer {
		small, err := io.ReadAll(io.LimitReader(content, maxPointer))
		if err != nil {
			return gitFault(fmt.Sprintf("reading the file %q", name), err)
		}
		if p, ok := ParsePointer(small); ok {
			w.pointers = append(w.pointers, lfsFile{p, name, executable})
			return nil
		}
		content = bytes.NewReader(small)
	}
	return w.out.Write(name, executable, size, content)
}

// wants reports whether name lies in a wanted directory, and whether it is
// above one.
func (w *gitWriter) wants(name string) (inside, above bool) {
	if len(w.sparse) == 0 {
		return true, true
	}
	for _, dir := range w.sparse {
		inside = inside || dir == "." || name == dir || strings.HasPrefix(name, dir+"/")
		above = above || strings.HasPrefix(dir, name+"/")
	}
	return inside, above
}
