// Package modules reads what root modules declare: it unpacks each version of each
// module once into scratch space, and remembers what package module found there. It
// runs nothing and fetches nothing.
//
// Start reading at Reader.
package modules

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/terrier-iac/terrier/internal/archive"
	"github.com/terrier-iac/terrier/internal/cache"
	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/source"
	"github.com/terrier-iac/terrier/internal/stack"
	"github.com/terrier-iac/terrier/internal/workdir"
	"github.com/terrier-iac/terrier/internal/workdir/module"
)

// kept bounds how many answers a Reader remembers.
const kept = 4096

// templateBytes bounds the template for a main.tf.
const templateBytes = 1 << 20

// Reader reads what root modules declare, each version of each once.
type Reader struct {
	Dir    string // scratch space
	Engine string // tofu or terraform

	// Archives keeps what Subset makes; nil makes none.
	Archives Archives

	known   cache.Map[key, loaded]
	subsets cache.Map[key, Subset]
	trees   trees
}

// Archives keeps archives by digest.
type Archives interface {
	Put(digest string, from io.Reader) error
	Path(digest string) (string, error)
}

// New returns a reader that unpacks modules in dir.
func New(dir string) *Reader {
	return &Reader{Dir: dir, known: cache.Map[key, loaded]{Size: kept}, subsets: cache.Map[key, Subset]{Size: kept}}
}

type key struct{ digest, path, extra string }

// loaded is what was read of a module once.
type loaded struct {
	root     module.Root
	template string // the text of main.tf.tpl
}

// Archive reads the root module at path in a verified archive. Extra are files
// of the root module that stand in for those of the archive. Without them, the
// template that the module has for its main.tf comes along.
func (m *Reader) Archive(file, digest, path string, extra map[string][]byte) (module.Root, string, error) {
	return m.once(key{digest: digest, path: path}, extra, func(dir string) error {
		f, err := os.Open(file)
		if err != nil {
			return err
		}
		defer f.Close()
		return archive.Extract(f, dir, archive.Limits{})
	})
}

// Inline reads a root module that is given as text, with extra files.
func (m *Reader) Inline(hcl string, extra map[string][]byte) (module.Root, error) {
	root, _, err := m.once(key{digest: stack.Digest(hcl)}, extra, func(dir string) error {
		f := workdir.Inline(hcl)
		return os.WriteFile(filepath.Join(dir, f.Path), f.Content, 0o600)
	})
	return root, err
}

// once fills a scratch directory and inspects it, unless that was done before.
func (m *Reader) once(of key, extra map[string][]byte, fill func(dir string) error) (module.Root, string, error) {
	if len(extra) > 0 {
		of.extra = stack.Digest(extra)
	}
	k, ok := m.known.Get(of)
	if ok {
		return k.root, k.template, nil
	}
	if err := os.MkdirAll(m.Dir, 0o700); err != nil {
		return module.Root{}, "", err
	}
	dir, err := os.MkdirTemp(m.Dir, "module-")
	if err != nil {
		return module.Root{}, "", err
	}
	defer os.RemoveAll(dir)
	if err := fill(dir); err != nil {
		return module.Root{}, "", fmt.Errorf("unpacking the module: %w", err)
	}
	if k, err = m.inspect(dir, of.path, extra); err != nil {
		return module.Root{}, "", err
	}
	m.known.Put(of, k)
	return k.root, k.template, nil
}

// inspect reads an unpacked module. A template for its main.tf takes the place
// of the one that is there, which may be no configuration at all.
func (m *Reader) inspect(dir, path string, extra map[string][]byte) (loaded, error) {
	tree, err := os.OpenRoot(dir)
	if err != nil {
		return loaded{}, err
	}
	defer tree.Close()
	k := loaded{}
	if path == "" {
		path = "."
	}
	if k.template, err = templateOf(tree, filepath.Join(path, workdir.TemplatePath)); err != nil {
		return loaded{}, err
	}
	if k.template != "" {
		if err := tree.RemoveAll(filepath.Join(path, workdir.InlinePath)); err != nil {
			return loaded{}, err
		}
	}
	for name, content := range extra {
		name = filepath.Join(path, name)
		if err := errors.Join(tree.RemoveAll(name), tree.WriteFile(name, content, 0o600)); err != nil {
			return loaded{}, err
		}
	}
	// An error is about a path that is not there, which module.Inspect reports.
	if pointer, err := source.FindPointer(tree.FS(), Below(path), func(string) bool { return false }); err == nil && pointer != "" {
		return k, fault.New(fault.Invalid, "", fmt.Errorf("%s is a pointer of Git LFS, and its content is not in the artifact, since the source-controller of Flux does not fetch it: "+
			"let Terrier serve the GitRepository, push the checked-out tree as an artifact with terrier push, or leave the file out with spec.ignore of the source", pointer))
	}
	k.root, err = module.Inspect(tree.FS(), path, m.Engine)
	return k, err
}

// Below is the directory of a root module in the tree of its source. No file in it or
// below may be a pointer of Git LFS.
func Below(path string) string {
	return filepath.ToSlash(filepath.Clean(strings.TrimPrefix(path, "/")))
}

// templateOf reads the template for main.tf; empty if there is none.
func templateOf(tree *os.Root, name string) (string, error) {
	info, err := tree.Lstat(name)
	if err != nil || !info.Mode().IsRegular() {
		return "", nil // module.Inspect reports a path that is not there
	}
	if info.Size() > templateBytes {
		return "", fault.New(fault.Invalid, "TemplateGenerationFailed", fmt.Errorf("%s has %d bytes, more than %d", name, info.Size(), templateBytes))
	}
	b, err := tree.ReadFile(name)
	return string(b), err
}
