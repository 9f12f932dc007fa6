package publish

import (
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/terrier-iac/terrier/internal/workdir/module"
)

// syntaxBytes bounds a file of configuration that is parsed. The registry parses no larger
// ones either.
const syntaxBytes = 1 << 20

// checkSyntax refuses configuration that no engine can read, where callers of the module
// reach it: a published version never changes, so no engine could ever use it.
func (m Module) checkSyntax() error {
	err := m.tree.Each(func(name string, _ fs.DirEntry) error {
		if !module.IsCalled(name) {
			return nil
		}
		src, err := readUpTo(filepath.Join(m.Dir, filepath.FromSlash(name)), syntaxBytes)
		if err != nil || len(src) > syntaxBytes {
			return err
		}
		if err := module.Check(name, src); err != nil {
			return invalid(ReasonSyntax, "%s. Correct the file: engines could not use the module, and a published version never changes", strings.TrimSuffix(err.Error(), "."))
		}
		return nil
	})
	return err
}

// readUpTo reads a file, and one byte more than the limit of a larger one.
func readUpTo(file string, limit int64) ([]byte, error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, limit+1))
	if err != nil {
		return nil, fmt.Errorf("reading %s: %w", file, err)
	}
	return b, nil
}
