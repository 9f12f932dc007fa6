package scan

import (
	"context"
	"fmt"
	"io"
	"io/fs"
	"path"
	"slices"
	"strings"
)

// Bounds on what is read of one file, in bytes.
const (
	fileBytes  = 8 << 20
	stateBytes = 64 << 20
)

// passedOver are directories whose content others have written.
var passedOver = []string{".git", ".hg", ".svn", ".terraform", ".terragrunt-cache", "node_modules"}

// Tree scans the files below a directory of a file system, which "." is the root of. Paths of
// findings begin with prefix. It follows no symbolic link. A file that matches a pattern of
// exclude, by its name or its path, is passed over, and so is all below a directory that does.
func Tree(ctx context.Context, files fs.FS, prefix string, exclude []string) (Report, error) {
	r := Report{Findings: []Finding{}}
	err := fs.WalkDir(files, ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return fmt.Errorf("reading %s: %w", path.Join(prefix, name), err)
		}
		if err := ctx.Err(); err != nil {
			return err
		}
		if name != "." && isExcluded(name, exclude) || d.IsDir() && slices.Contains(passedOver, d.Name()) {
			if d.IsDir() {
				return fs.SkipDir
			}
			return nil
		}
		if !d.Type().IsRegular() || formOf(path.Base(name), nil) == formNone {
			return nil
		}
		f, err := files.Open(name)
		if err != nil {
			r.Unread = append(r.Unread, Unread{File: path.Join(prefix, name), Why: "it cannot be opened"})
			return nil
		}
		defer f.Close()
		return r.Read(path.Join(prefix, name), f)
	})
	return r, err
}

// Read scans one file and adds what it finds. A file that is too large is named as not scanned.
func (r *Report) Read(name string, from io.Reader) error {
	limit := int64(fileBytes)
	if f := formOf(path.Base(name), nil); f == formState || f == formJSON || name == Stdin {
		limit = stateBytes
	}
	content, err := io.ReadAll(io.LimitReader(from, limit+1))
	if err != nil {
		return fmt.Errorf("reading %s: %w", name, err)
	}
	if int64(len(content)) > limit {
		r.Unread = append(r.Unread, Unread{File: name, Why: fmt.Sprintf("it is larger than %d MiB", limit>>20)})
		return nil
	}
	r.Files++
	r.Add(File(name, content))
	return nil
}

// isExcluded reports whether a path, or a part of it, matches a pattern.
func isExcluded(name string, patterns []string) bool {
	return slices.ContainsFunc(patterns, func(pattern string) bool {
		pattern = strings.TrimSuffix(strings.TrimPrefix(pattern, "./"), "/")
		for _, text := range []string{name, path.Base(name)} {
			if ok, err := path.Match(pattern, text); ok && err == nil {
				return true
			}
		}
		return false
	})
}

// CheckPatterns says which pattern of exclude is none.
func CheckPatterns(patterns []string) error {
	for _, pattern := range patterns {
		if _, err := path.Match(pattern, "a"); err != nil {
			return fmt.Errorf("%q is no pattern of file names", pattern)
		}
	}
	return nil
}
