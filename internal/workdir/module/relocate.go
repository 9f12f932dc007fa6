package module

import (
	"bytes"
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"
)

// Relocate rewrites the calls of an example of a published module, as a user would write
// them: the source "../.." of a file in the directory examples/basic is the address of the
// module, "../../modules/subnet" is that of its submodule, and both get the version. Dir is
// the directory of the file in the archive. Calls of what is below dir stay, as does
// everything else. A file that cannot be read is returned as it is.
func Relocate(name string, src []byte, dir, address, version string) []byte {
	if strings.HasSuffix(name, ".json") || checkDepth(name, src) != nil {
		return src
	}
	f, diags := hclsyntax.ParseConfig(src, name, hcl.InitialPos)
	body, ok := f.Body.(*hclsyntax.Body)
	if diags.HasErrors() || !ok {
		return src
	}
	type edit struct {
		from, to int // bytes of src
		text     string
	}
	var edits []edit
	for _, b := range body.Blocks {
		source := b.Body.Attributes["source"]
		if b.Type != "module" || source == nil {
			continue
		}
		to, leads := inArchive(dir, literal(source.Expr))
		if !leads {
			continue
		}
		text := strconv.Quote(address + to)
		if b.Body.Attributes["version"] == nil {
			at := source.SrcRange.Start.Byte
			if line := src[bytes.LastIndexByte(src[:at], '\n')+1 : at]; len(bytes.TrimSpace(line)) == 0 {
				text += fmt.Sprintf("\n%sversion%s= %q", line, strings.Repeat(" ", max(1, source.EqualsRange.Start.Byte-at-len("version"))), version)
			}
		}
		r := source.Expr.Range()
		edits = append(edits, edit{r.Start.Byte, r.End.Byte, text})
	}
	slices.SortFunc(edits, func(a, b edit) int { return b.from - a.from })
	out := bytes.Clone(src)
	for _, e := range edits {
		out = slices.Replace(out, e.from, e.to, []byte(e.text)...)
	}
	return out
}

// inArchive says where a local source leads from a directory of an archive: "" is its root,
// and //modules/subnet a directory. It is false for a source that is not local, leads out of
// the archive, or stays below the directory.
func inArchive(dir, source string) (to string, ok bool) {
	if !strings.HasPrefix(source, "./") && !strings.HasPrefix(source, "../") && source != ".." {
		return "", false
	}
	at := path.Join(dir, source)
	switch {
	case at == "..", strings.HasPrefix(at, "../"), at == dir, strings.HasPrefix(at, dir+"/"):
		return "", false
	case at == ".":
		return "", true
	}
	return "//" + at, true
}
