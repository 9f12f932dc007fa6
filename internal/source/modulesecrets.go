package source

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"strings"

	"github.com/go-git/go-git/v5/plumbing/format/gitignore"
)

// secretFiles are the patterns of files that are of the machine or the person that has them,
// and often hold secrets.
var secretFiles = []string{
	".env", ".env.*", "terraform.tfvars", "terraform.tfvars.json", "*.auto.tfvars", "*.auto.tfvars.json", "*.tfstate", "*.tfstate.*",
	"id_rsa", "id_dsa", "id_ecdsa", "id_ed25519", "*.p12", "*.pfx", "*.jks", ".netrc", ".git-credentials", ".terraformrc", "*.tfrc", "*.tfrc.json",
}

// keyFiles may be certificates, which every user of a module may read. Their content says it.
var keyFiles = []string{"*.pem", "*.key"}

// exampleEnds end the names of files of environments that say what to write, and hold none of it.
var exampleEnds = []string{".example", ".sample", ".template", ".dist"}

// mostKeyFile bounds what is read of a file that may be a private key.
const mostKeyFile = 1 << 20

// Secrets finds the files of the archive that often hold secrets. Exclude has the patterns that
// leave all of them out.
func (t ModuleTree) Secrets() (files, exclude []string, err error) {
	root, err := os.OpenRoot(t.dir)
	if err != nil {
		return nil, nil, fmt.Errorf("reading the module: %w", err)
	}
	defer root.Close()
	seen := map[string]bool{}
	add := func(file, pattern string) {
		files = append(files, file)
		if !seen[pattern] {
			seen[pattern] = true
			exclude = append(exclude, pattern)
		}
	}
	err = t.Each(func(name string, _ fs.DirEntry) error {
		if pattern := matching(secretFiles, name); pattern != "" {
			add(name, pattern)
			return nil
		}
		if matching(keyFiles, name) == "" {
			return nil
		}
		private, err := hasPrivateKey(root, name)
		if err == nil && private {
			add(name, "/"+name)
		}
		return err
	})
	return files, exclude, err
}

// matching is the first pattern that a file has; empty if it has none.
func matching(patterns []string, name string) string {
	for _, end := range exampleEnds {
		if strings.HasPrefix(path.Base(name), ".env.") && strings.HasSuffix(name, end) {
			return ""
		}
	}
	for _, p := range patterns {
		if gitignore.ParsePattern(p, nil).Match(strings.Split(name, "/"), false) == gitignore.Exclude {
			return p
		}
	}
	return ""
}

// hasPrivateKey reports whether a file has a private key in PEM. One that is too large to tell
// counts as such. What is no file below the root is none: packing refuses it.
func hasPrivateKey(root *os.Root, file string) (found bool, err error) {
	if info, err := root.Stat(file); err != nil || !info.Mode().IsRegular() {
		return false, nil //nolint:nilerr // packing says what is wrong with it
	}
	f, err := root.Open(file)
	if err != nil {
		return false, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	text, err := io.ReadAll(io.LimitReader(f, mostKeyFile+1))
	if err != nil {
		return false, fmt.Errorf("reading %s: %w", file, err)
	}
	return len(text) > mostKeyFile || bytes.Contains(text, []byte("PRIVATE KEY-----")), nil
}
