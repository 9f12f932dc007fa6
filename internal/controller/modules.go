package controller

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync"

	"github.com/terrier-iac/terrier/internal/archive"
	"github.com/terrier-iac/terrier/internal/stack"
	"github.com/terrier-iac/terrier/internal/workdir"
	"github.com/terrier-iac/terrier/internal/workdir/module"
)

// modulesKept bounds how many answers Modules remembers.
const modulesKept = 4096

// Modules reads what root modules declare, each version of each once.
type Modules struct {
	Dir    string // scratch space
	Engine string // tofu or terraform

	mu    sync.Mutex
	known map[moduleKey]module.Root
}

type moduleKey struct{ digest, path string }

// Archive reads the root module at path in a verified archive.
func (m *Modules) Archive(file, digest, path string) (module.Root, error) {
	return m.once(moduleKey{digest, path}, path, func(dir string) error {
		f, err := os.Open(file)
		if err != nil {
			return err
		}
		defer f.Close()
		return archive.Extract(f, dir, archive.Limits{})
	})
}

// Inline reads a root module that is given as text.
func (m *Modules) Inline(hcl string) (module.Root, error) {
	return m.once(moduleKey{digest: stack.Digest(hcl)}, "", func(dir string) error {
		f := workdir.Inline(hcl)
		return os.WriteFile(filepath.Join(dir, f.Path), f.Content, 0o600)
	})
}

// once fills a scratch directory and inspects it, unless that was done before.
func (m *Modules) once(key moduleKey, path string, fill func(dir string) error) (module.Root, error) {
	m.mu.Lock()
	root, ok := m.known[key]
	m.mu.Unlock()
	if ok {
		return root, nil
	}
	if err := os.MkdirAll(m.Dir, 0o700); err != nil {
		return module.Root{}, err
	}
	dir, err := os.MkdirTemp(m.Dir, "module-")
	if err != nil {
		return module.Root{}, err
	}
	defer os.RemoveAll(dir)
	if err := fill(dir); err != nil {
		return module.Root{}, fmt.Errorf("unpacking the module: %w", err)
	}
	root, err = module.Inspect(os.DirFS(dir), path, m.Engine)
	if err != nil {
		return module.Root{}, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.known == nil || len(m.known) >= modulesKept {
		m.known = map[moduleKey]module.Root{} // content-addressed: forgetting costs a little work
	}
	m.known[key] = root
	return root, nil
}

// restore writes an archive into the scratch space under the name of its
// digest, whole or not at all.
func (m *Modules) restore(r io.Reader, name string) (string, error) {
	path := filepath.Join(m.Dir, "restored-"+name+".tar.gz")
	if _, err := os.Stat(path); err == nil {
		return path, nil
	}
	if err := os.MkdirAll(m.Dir, 0o700); err != nil {
		return "", err
	}
	f, err := os.CreateTemp(m.Dir, "restoring-")
	if err != nil {
		return "", err
	}
	defer os.Remove(f.Name())
	_, err = io.Copy(f, r)
	if err := errors.Join(err, f.Close()); err != nil {
		return "", err
	}
	return path, os.Rename(f.Name(), path)
}
