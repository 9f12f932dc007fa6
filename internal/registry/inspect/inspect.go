// Package inspect makes the documentation of a module from its archive: what its
// configuration declares, and the texts of its authors, for the module, its submodules and
// its examples.
//
// It runs nothing and fetches nothing. Archives are hostile: what is read of one has
// bounds of number, size, depth and time, and an archive that exceeds them has an error in
// the place of its documentation. Start reading at Reader.
package inspect

import (
	"bytes"
	"fmt"
	"io"
	"maps"
	"path"
	"slices"
	"strings"

	"github.com/terrier-iac/terrier/internal/archive"
	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/workdir/module"
)

// Module is the documentation of one version of a module.
type Module struct {
	Root       Part   `json:"root"`
	Submodules []Part `json:"submodules,omitempty"` // in the directory modules
	Examples   []Part `json:"examples,omitempty"`   // in the directory examples, with their files
	Omitted    int    `json:"omitted,omitempty"`    // submodules and examples beyond the limit
}

// Part is the documentation of one directory.
type Part struct {
	Path    string `json:"path,omitempty"`    // in the archive; empty for the module itself
	Readme  string `json:"readme,omitempty"`  // in Markdown
	Problem string `json:"problem,omitempty"` // why a part of the documentation is missing
	module.Document
	Files []File `json:"files,omitempty"` // of an example
}

// File is a file of an example.
type File struct {
	Name    string `json:"name"`
	Content string `json:"content"`
}

// Bounds of what is read of one archive.
const (
	mostReadme = 256 << 10
	mostFile   = 1 << 20
	mostKept   = 16 << 20 // of all files together
	mostFiles  = 2000
	mostParts  = 100
	mostDepth  = 5 // parts of the path of a submodule
)

// directory is the kept files of one directory of an archive.
type directory struct {
	files   map[string]*bytes.Buffer
	readme  string // its name
	problem string
}

// collected is what was kept of an archive.
type collected struct {
	directories map[string]*directory
	files       int
	left        int64
	done        func() error // why reading ends
}

// read makes the documentation from an archive of a size. Done is called before each file,
// and ends it with an error.
func read(r io.ReaderAt, size int64, unpacked archive.Limits, done func() error) (Module, error) {
	c := collected{directories: map[string]*directory{}, left: mostKept, done: done}
	if _, _, err := archive.Read(r, size, unpacked, c.keep); err != nil {
		return Module{}, err
	}
	m := Module{Root: c.part("", false)}
	for _, dir := range slices.Sorted(maps.Keys(c.directories)) {
		switch {
		case dir == "" || !c.directories[dir].configured():
		case len(m.Submodules)+len(m.Examples) >= mostParts:
			m.Omitted++
		case under(dir, "modules"):
			m.Submodules = append(m.Submodules, c.part(dir, false))
		default:
			m.Examples = append(m.Examples, c.part(dir, true))
		}
		if err := done(); err != nil {
			return Module{}, err
		}
	}
	return m, nil
}

func under(dir, top string) bool { return strings.HasPrefix(dir, top+"/") }

// keep returns where the content of a file goes, nil if it is not a part of the
// documentation.
func (c *collected) keep(name string, size int64) io.Writer {
	if err := c.done(); err != nil {
		return refusing{err}
	}
	dir, base := path.Split(name)
	dir = strings.TrimSuffix(dir, "/")
	if dir != "" && (!under(dir, "modules") && !under(dir, "examples") || strings.Count(dir, "/") >= mostDepth) {
		return nil
	}
	readme, configuration := isReadme(base), isConfiguration(base)
	if !readme && !configuration {
		return nil
	}
	d := c.directories[dir]
	if d == nil {
		d = &directory{files: map[string]*bytes.Buffer{}}
		c.directories[dir] = d
	}
	most := int64(mostFile)
	if readme {
		most = mostReadme
	}
	switch {
	case size > most:
		d.omit("%s is not read: it has %d KiB, and the limit is %d KiB", base, size>>10, most>>10)
		return nil
	case c.files >= mostFiles, size > c.left:
		d.omit("%s is not read: the module has more than %d files or %d MiB of configuration", base, mostFiles, mostKept>>20)
		return nil
	}
	if readme && (d.readme == "" || betterReadme(base, d.readme)) {
		d.readme = base
	}
	c.files, c.left = c.files+1, c.left-size
	b := &bytes.Buffer{}
	d.files[base] = b
	return b
}

// refusing ends the reading of an archive.
type refusing struct{ error }

func (r refusing) Write([]byte) (int, error) { return 0, r.error }

// omit says what of the documentation is missing. The first reason counts.
func (d *directory) omit(format string, args ...any) {
	if d.problem == "" {
		d.problem = fault.Shorten(fmt.Sprintf(format, args...), 1<<10)
	}
}

func (d *directory) configured() bool {
	for name := range d.files {
		if isConfiguration(name) {
			return true
		}
	}
	return d.problem != "" // one of its files is not read
}

func (c *collected) part(dir string, source bool) Part {
	p := Part{Path: dir}
	d := c.directories[dir]
	if d == nil {
		return p
	}
	files := map[string][]byte{}
	for name, content := range d.files {
		if name != d.readme {
			files[name] = content.Bytes()
		}
	}
	if d.readme != "" {
		p.Readme = text(d.files[d.readme].Bytes())
	}
	var err error
	if p.Document, err = module.DocumentOf(files); err != nil {
		d.omit("%s", err)
	}
	p.Problem = d.problem
	if source {
		for _, name := range module.Configuration(slices.Sorted(maps.Keys(files))) {
			p.Files = append(p.Files, File{name, text(files[name])})
		}
	}
	return p
}

// text is content as UTF-8. Other bytes become marks.
func text(b []byte) string { return strings.ToValidUTF8(string(b), "\uFFFD") }

func isConfiguration(name string) bool { return len(module.Configuration([]string{name})) > 0 }

func isReadme(name string) bool { return slices.Contains(readmes(), strings.ToLower(name)) }

// readmes are the names of texts for users, the best first.
func readmes() []string { return []string{"readme.md", "readme.markdown", "readme.txt", "readme"} }

func betterReadme(a, b string) bool {
	return slices.Index(readmes(), strings.ToLower(a)) < slices.Index(readmes(), strings.ToLower(b))
}
