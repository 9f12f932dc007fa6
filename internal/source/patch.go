package source

import (
	"bytes"
	"fmt"
	"maps"
	"slices"

	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/plumbing/filemode"
	fdiff "github.com/go-git/go-git/v5/plumbing/format/diff"
	"github.com/go-git/go-git/v5/utils/diff"
)

// Patch returns the changes of texts as git writes them and "git apply" takes them: the files
// that are in after, by path, with what before has of them. A file that is in before alone does
// not change.
func Patch(before, after map[string][]byte) ([]byte, error) {
	var p textPatch
	for _, name := range slices.Sorted(maps.Keys(after)) {
		if bytes.Equal(before[name], after[name]) {
			continue
		}
		f := filePatch{to: &patchedFile{name, after[name]}}
		if was, ok := before[name]; ok {
			f.from = &patchedFile{name, was}
		}
		for _, d := range diff.Do(string(before[name]), string(after[name])) {
			c := chunk{text: d.Text}
			switch {
			case d.Type > 0:
				c.kind = fdiff.Add
			case d.Type < 0:
				c.kind = fdiff.Delete
			}
			f.chunks = append(f.chunks, c)
		}
		p = append(p, f)
	}
	var out bytes.Buffer
	if err := fdiff.NewUnifiedEncoder(&out, fdiff.DefaultContextLines).Encode(p); err != nil {
		return nil, fmt.Errorf("writing a patch: %w", err)
	}
	return out.Bytes(), nil
}

// textPatch is a patch of several files.
type textPatch []fdiff.FilePatch

func (p textPatch) FilePatches() []fdiff.FilePatch { return p }
func (p textPatch) Message() string                { return "" }

type filePatch struct {
	from, to *patchedFile
	chunks   []fdiff.Chunk
}

func (f filePatch) IsBinary() bool { return false }

func (f filePatch) Files() (from, to fdiff.File) {
	if f.from == nil {
		return nil, f.to
	}
	return f.from, f.to
}

func (f filePatch) Chunks() []fdiff.Chunk { return f.chunks }

type patchedFile struct {
	name string
	text []byte
}

func (f *patchedFile) Hash() plumbing.Hash     { return plumbing.ComputeHash(plumbing.BlobObject, f.text) }
func (f *patchedFile) Mode() filemode.FileMode { return filemode.Regular }
func (f *patchedFile) Path() string            { return f.name }

type chunk struct {
	text string
	kind fdiff.Operation
}

func (c chunk) Content() string       { return c.text }
func (c chunk) Type() fdiff.Operation { return c.kind }
