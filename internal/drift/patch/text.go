package patch

import (
	"bytes"
	"cmp"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"
	"github.com/hashicorp/hcl/v2/hclwrite"
)

// text is one file, and the edits of it.
type text struct {
	name  string
	src   []byte
	body  *hclsyntax.Body
	edits []splice
}

// splice replaces a range of bytes.
type splice struct {
	from, to int
	with     string
}

// file reads a file of the source; nil if there is none.
func (p *proposer) file(name string) (*text, error) {
	if t := p.parsed[name]; t != nil {
		return t, nil
	}
	src, ok := p.Files[name]
	if !ok {
		return nil, nil
	}
	f, diags := hclsyntax.ParseConfig(src, name, hcl.InitialPos)
	if diags.HasErrors() {
		return nil, invalidFile(name, diags)
	}
	body, ok := f.Body.(*hclsyntax.Body)
	if !ok {
		return nil, invalidFile(name, fmt.Errorf("it is not in the native syntax of HCL"))
	}
	t := &text{name: name, src: src, body: body}
	p.parsed[name] = t
	return t, nil
}

// files are the configuration files of a directory, by name.
func (p *proposer) files(dir string) ([]*text, error) {
	var out []*text
	for _, name := range slices.Sorted(maps.Keys(p.Files)) {
		if !inDir(name, dir) || !strings.HasSuffix(name, ".tf") && !strings.HasSuffix(name, ".tofu") {
			continue
		}
		if base, is := strings.CutSuffix(name, ".tf"); is && p.Files[base+".tofu"] != nil {
			continue // the engine reads the other
		}
		t, err := p.file(name)
		if err != nil {
			return nil, err
		}
		out = append(out, t)
	}
	return out, nil
}

// replace puts a text in the place of a range. Two edits of one place would contradict: false.
func (t *text) replace(r hcl.Range, with string) bool {
	return t.splice(splice{r.Start.Byte, r.End.Byte, with})
}

func (t *text) splice(s splice) bool {
	for _, e := range t.edits {
		if e == s && s.from < s.to {
			return true // the same again, as of a variable that several attributes have
		}
		if s.from < e.to && e.from < s.to {
			return false
		}
	}
	t.edits = append(t.edits, s)
	return true
}

// removeLines takes whole lines out, and one blank line with them.
func (t *text) removeLines(r hcl.Range) bool {
	from, to := t.lines(r)
	if bytes.HasPrefix(t.src[to:], []byte("\n")) && (from == 0 || bytes.HasSuffix(t.src[:from], []byte("\n\n"))) {
		to++
	} else if to == len(t.src) && bytes.HasSuffix(t.src[:from], []byte("\n\n")) {
		from--
	}
	return t.splice(splice{from, to, ""})
}

// lines are the bytes of the lines of a range, with the comments right above.
func (t *text) lines(r hcl.Range) (from, to int) {
	from = bytes.LastIndexByte(t.src[:r.Start.Byte], '\n') + 1
	for from > 0 {
		above := bytes.LastIndexByte(t.src[:from-1], '\n') + 1
		line := strings.TrimSpace(string(t.src[above : from-1]))
		if !strings.HasPrefix(line, "#") && !strings.HasPrefix(line, "//") {
			break
		}
		from = above
	}
	if n := bytes.IndexByte(t.src[r.End.Byte:], '\n'); n >= 0 {
		return from, r.End.Byte + n + 1
	}
	return from, len(t.src)
}

// edited is the text after its edits. What cannot be parsed afterwards is our fault.
func (t *text) edited() ([]byte, error) {
	if len(t.edits) == 0 {
		return t.src, nil
	}
	edits := slices.Clone(t.edits)
	slices.SortStableFunc(edits, func(a, b splice) int { return cmp.Or(cmp.Compare(a.from, b.from), cmp.Compare(a.to, b.to)) })
	var out bytes.Buffer
	at := 0
	for _, e := range edits {
		out.Write(t.src[at:e.from])
		out.WriteString(e.with)
		at = e.to
	}
	out.Write(t.src[at:])
	if _, diags := hclwrite.ParseConfig(out.Bytes(), t.name, hcl.InitialPos); diags.HasErrors() {
		return nil, fmt.Errorf("editing %s: %w", t.name, diags)
	}
	return out.Bytes(), nil
}

// quote is the text of a range.
func (t *text) quote(r hcl.Range) string { return string(t.src[r.Start.Byte:r.End.Byte]) }

func placeOf(r hcl.Range) string { return fmt.Sprintf("%s:%d", r.Filename, r.Start.Line) }

// block is a block of a file.
type block struct {
	file   *text
	syntax *hclsyntax.Block
}

func (b *block) place() string { return placeOf(b.syntax.DefRange()) }

// indent is the space in front of what stands in the block.
func (b *block) indent() string {
	at := b.syntax.TypeRange.Start.Byte
	line := b.file.src[bytes.LastIndexByte(b.file.src[:at], '\n')+1 : at]
	return string(line) + "  "
}

// add puts lines at the end of the block.
func (b *block) add(lines ...string) bool {
	indent := b.indent()
	var out strings.Builder
	end := b.syntax.CloseBraceRange.Start.Byte
	if b.syntax.OpenBraceRange.Start.Line == b.syntax.CloseBraceRange.Start.Line { // resource "a" "b" {}
		inside := strings.TrimSpace(string(b.file.src[b.syntax.OpenBraceRange.End.Byte:end]))
		out.WriteString("\n")
		if inside != "" {
			out.WriteString(indent + inside + "\n")
		}
		for _, l := range lines {
			out.WriteString(strings.TrimRight(indent+l, " ") + "\n")
		}
		out.WriteString(strings.TrimSuffix(indent, "  "))
		return b.file.splice(splice{b.syntax.OpenBraceRange.End.Byte, end, out.String()})
	}
	start := bytes.LastIndexByte(b.file.src[:end], '\n') + 1
	for _, l := range lines {
		out.WriteString(strings.TrimRight(indent+l, " ") + "\n")
	}
	return b.file.splice(splice{start, start, out.String()})
}

// nested are the blocks of one type in a block.
func (b *block) nested(kind string) []*block {
	var out []*block
	for _, n := range b.syntax.Body.Blocks {
		if n.Type == kind {
			out = append(out, &block{b.file, n})
		}
	}
	return out
}

// scope is a module as one call of it has it.
type scope struct {
	p        *proposer
	dir      string
	caller   *scope // nil of the root module
	call     *block // by which the caller calls it
	repeated bool   // a call on the way has count or for_each
}

// scope finds a module by its address, as module.a.module.b. Why says why it cannot be edited.
func (p *proposer) scope(address string) (s *scope, why string, err error) {
	s = &scope{p: p, dir: path.Clean(p.Root)}
	steps, ok := parsePath(address)
	if address == "" {
		return s, "", nil
	}
	if !ok {
		return nil, "The address of its module cannot be read.", nil
	}
	for i := 0; i < len(steps); i++ {
		if steps[i].name != "module" || i+1 >= len(steps) {
			return nil, "The address of its module cannot be read.", nil
		}
		i++
		call, err := s.find(func(b *hclsyntax.Block) bool {
			return b.Type == "module" && len(b.Labels) == 1 && b.Labels[0] == steps[i].name
		})
		if err != nil {
			return nil, "", err
		}
		if call == nil {
			return nil, fmt.Sprintf("No file in %s calls the module %q.", s.dir, steps[i].name), nil
		}
		from, ok := literalText(call.syntax.Body.Attributes["source"])
		if !ok || !strings.HasPrefix(from, "./") && !strings.HasPrefix(from, "../") {
			return nil, fmt.Sprintf("Its module is not in this source: %s calls %s. Change it there, or its arguments.", call.place(), from), nil
		}
		next := &scope{p: p, dir: path.Join(s.dir, from), caller: s, call: call, repeated: s.repeated}
		if next.dir == ".." || strings.HasPrefix(next.dir, "../") {
			return nil, fmt.Sprintf("Its module is outside of the source: %s calls %s.", call.place(), from), nil
		}
		if i+1 < len(steps) && (steps[i+1].number >= 0 || steps[i+1].name != "module") {
			next.repeated = true
			i++
		}
		s = next
	}
	return s, "", nil
}

// find returns the block of the module that is meant; nil if there is none.
func (s *scope) find(is func(*hclsyntax.Block) bool) (*block, error) {
	files, err := s.p.files(s.dir)
	if err != nil {
		return nil, err
	}
	var found *block
	for _, f := range files { // override files come later by name only as a rule: their blocks count where they say it
		for _, b := range f.body.Blocks {
			if is(b) && found == nil {
				found = &block{f, b}
			}
		}
	}
	return found, nil
}

func (s *scope) resource(kind, name string) (*block, error) {
	return s.find(func(b *hclsyntax.Block) bool {
		return b.Type == "resource" && slices.Equal(b.Labels, []string{kind, name})
	})
}

// referrers are the places in the module that refer to a resource, outside of its own block.
func (s *scope) referrers(kind, name string, own *block) ([]string, error) {
	files, err := s.p.files(s.dir)
	if err != nil {
		return nil, err
	}
	var out []string
	for _, f := range files {
		diags := hclsyntax.VisitAll(f.body, func(n hclsyntax.Node) hcl.Diagnostics {
			e, ok := n.(*hclsyntax.ScopeTraversalExpr)
			if !ok || len(e.Traversal) < 2 || e.Traversal.RootName() != kind {
				return nil
			}
			at, ok := e.Traversal[1].(hcl.TraverseAttr)
			if !ok || at.Name != name || own != nil && f == own.file && own.syntax.Range().Overlaps(e.Range()) {
				return nil
			}
			if place := placeOf(e.Range()); !slices.Contains(out, place) {
				out = append(out, place)
			}
			return nil
		})
		if diags.HasErrors() {
			return nil, diags
		}
	}
	return out, nil
}

// literalText is an attribute that is a text in quotation marks.
func literalText(a *hclsyntax.Attribute) (string, bool) {
	if a == nil {
		return "", false
	}
	v, ok := literal(a.Expr)
	if !ok || v.IsNull() || v.Type().FriendlyName() != "string" {
		return "", false
	}
	return v.AsString(), true
}
