package cli

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/query"
)

// Env is the environment of a program.
type Env struct {
	Args     []string // without the program's name
	Environ  []string // as os.Environ returns it
	Stdin    io.Reader
	Stdout   io.Writer
	Stderr   io.Writer
	Dir      string // the working directory
	Now      func() time.Time
	Version  string
	Terminal bool        // a user answers questions at Stdin
	Kinds    query.Kinds // of stacks; all if empty
}

// getenv reads a variable; the last of several counts.
func (e Env) getenv(name string) string {
	value := ""
	for _, pair := range e.Environ {
		if k, v, ok := strings.Cut(pair, "="); ok && k == name {
			value = v
		}
	}
	return value
}

// path resolves the name of a file in the working directory.
func (e Env) path(name string) string {
	if filepath.IsAbs(name) {
		return name
	}
	return filepath.Join(e.Dir, name)
}

// stdin is the name of a file that stands for standard input, or output.
const stdin = "-"

// manifestBytes bounds a manifest.
const manifestBytes = 16 << 20

// readFile reads at most limit bytes of a file, or of standard input.
func (e Env) readFile(name string, limit int64) ([]byte, error) {
	if name == stdin {
		return io.ReadAll(io.LimitReader(e.Stdin, limit))
	}
	f, err := os.Open(e.path(name))
	if errors.Is(err, os.ErrNotExist) {
		return nil, fault.New(fault.Missing, "FileMissing", err)
	}
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(io.LimitReader(f, limit))
}
