package rendering

import (
	"bytes"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"
	"github.com/hashicorp/hcl/v2/hclwrite"
	"github.com/zclconf/go-cty/cty"
)

// Where foreign text is written, the template writes a word instead that is a
// name of the language, a piece of a string, or a piece of a comment, depending
// on what is around it. Once all is written, the language itself says which, and
// the text takes the place of its word accordingly:
//
//	"a {{ .x }}"       in quotes        escaped: quotes, lines, ${ and %{
//	<<EOT              in a heredoc     ${ and %{ escaped; no line may end it
//	x = {{ .x }}       outside          only a number, a truth value or a name
//	x = {{ quote .x }} outside          a string
//	# {{ .x }}         in a comment     nothing
//
// In the end both texts are compared word by word: nothing but the words that
// stood for something may differ.

// placed is a foreign text.
type placed struct {
	text string
	hcl  string // what it is outside of strings; empty if only a plain word may be there
}

const standing = "terrier__placed__"

var (
	standIn = regexp.MustCompile(standing + `([0-9]{6})__`)
	bare    = regexp.MustCompile(`^-?[0-9]{1,40}(\.[0-9]{1,40})?$|^(true|false)$`)
)

// stand returns the word that stands for a text.
func (r *render) stand(p placed) string {
	r.placed = append(r.placed, p)
	return fmt.Sprintf("%s%06d__", standing, len(r.placed)-1)
}

// expression is what functions make of foreign text that write it as the
// language has it: strings in quotes, or JSON.
func (r *render) expression(name string, args []any, out any) (any, error) {
	text, ok := out.(string)
	if !ok {
		return r.taint(out), nil
	}
	switch name {
	case "squote":
		return "'" + r.stand(placed{text: strings.TrimSuffix(strings.TrimPrefix(text, "'"), "'")}) + "'", nil
	case "quote":
		var words []string
		for _, a := range args {
			if a != nil {
				s := fmt.Sprint(a)
				words = append(words, r.stand(placed{text: strconv.Quote(s), hcl: `"` + quoted(s) + `"`}))
			}
		}
		return strings.Join(words, " "), nil
	}
	return r.stand(placed{text: text, hcl: templates.Replace(controls.Replace(text))}), nil
}

var (
	// templates keeps what begins one from doing so.
	templates = strings.NewReplacer("${", "$${", "%{", "%%{")
	// controls are escapes of JSON that the language does not have; a backslash
	// before them is no escape of theirs.
	controls = strings.NewReplacer(`\\`, `\\`, `\b`, `\u0008`, `\f`, `\u000c`)
)

// quoted is s as it stands between quotes.
func quoted(s string) string {
	tokens := hclwrite.TokensForValue(cty.StringVal(s))
	var b bytes.Buffer
	for _, t := range tokens {
		if t.Type == hclsyntax.TokenQuotedLit {
			b.Write(t.Bytes)
		}
	}
	return b.String()
}

// span is where a placed text is in the final text.
type span struct {
	from, to int
	whole    bool // it is words of its own, not a piece of one
}

// fill puts every placed text where its word is.
func (r *render) fill(text string) ([]byte, error) {
	if len(r.placed) == 0 {
		return []byte(text), nil
	}
	tokens, diags := hclsyntax.LexConfig([]byte(text), "main.tf", hcl.InitialPos)
	if diags.HasErrors() {
		return nil, fmt.Errorf("the text cannot be read: %s", where(diags))
	}
	var out strings.Builder
	var spans []span
	end := 0
	for _, m := range standIn.FindAllStringSubmatchIndex(text, -1) {
		n, err := strconv.Atoi(text[m[2]:m[3]])
		if err != nil || n >= len(r.placed) {
			return nil, fmt.Errorf("the word %s is Terrier's own", text[m[0]:m[1]])
		}
		i, _ := slices.BinarySearchFunc(tokens, m[0], func(t hclsyntax.Token, at int) int {
			if t.Range.End.Byte <= at {
				return -1
			}
			return 1
		})
		if i == len(tokens) {
			return nil, fmt.Errorf("the text cannot be read")
		}
		as, whole, err := r.placed[n].as(tokens[i], m[0], m[1])
		if err != nil {
			return nil, err
		}
		out.WriteString(text[end:m[0]])
		spans = append(spans, span{out.Len(), out.Len() + len(as), whole})
		out.WriteString(as)
		end = m[1]
	}
	out.WriteString(text[end:])
	return []byte(out.String()), r.unchanged(tokens, out.String(), spans)
}

// as is what p becomes in the word t of the language.
func (p placed) as(t hclsyntax.Token, from, to int) (text string, whole bool, err error) {
	if strings.ContainsRune(p.text, 0) {
		return "", false, fmt.Errorf("line %d: a value holds a NUL byte, which no string can", t.Range.Start.Line)
	}
	switch t.Type {
	case hclsyntax.TokenComment:
		return "", false, nil
	case hclsyntax.TokenQuotedLit:
		return quoted(p.text), false, nil
	case hclsyntax.TokenStringLit:
		return templates.Replace(p.text), false, nil
	case hclsyntax.TokenIdent:
		alone := t.Range.Start.Byte == from && t.Range.End.Byte == to
		switch {
		case p.hcl != "" && alone:
			return p.hcl, true, nil
		case p.hcl == "" && alone && (bare.MatchString(p.text) || isName(p.text)):
			return p.text, true, nil
		case p.hcl == "" && !alone && isPiece(p.text, t.Range.Start.Byte == from):
			return p.text, true, nil
		}
	}
	return "", false, fmt.Errorf("line %d: a value that is not written in the object stands outside of quotes, "+
		"and is neither a number, nor true or false, nor a name: put it in quotes, or write it with quote or toJson", t.Range.Start.Line)
}

// isPiece reports whether a text can be a piece of a name, the first one or
// another.
func isPiece(s string, first bool) bool {
	return plainName.MatchString(s) || !first && plainName.MatchString("a"+s)
}

// unchanged compares the words of both texts, but for those that stood for
// something.
func (r *render) unchanged(before []hclsyntax.Token, text string, spans []span) error {
	after, diags := hclsyntax.LexConfig([]byte(text), "main.tf", hcl.InitialPos)
	if diags.HasErrors() {
		return fmt.Errorf("the text cannot be read: %s", where(diags))
	}
	want := kinds(before, func(t hclsyntax.Token) bool {
		return t.Type == hclsyntax.TokenIdent && standIn.Match(t.Bytes)
	})
	i, joined := 0, true
	got := kinds(after, func(t hclsyntax.Token) bool {
		for i < len(spans) && (spans[i].to <= t.Range.Start.Byte) {
			i++
		}
		if i == len(spans) || !spans[i].whole || t.Range.Start.Byte >= spans[i].to || t.Range.End.Byte <= spans[i].from {
			return false
		}
		// What grew together with what is beside it must still be a name.
		inside := t.Range.Start.Byte >= spans[i].from && t.Range.End.Byte <= spans[i].to
		joined = joined && (inside || t.Type == hclsyntax.TokenIdent && isName(string(t.Bytes)))
		return true
	})
	if !joined || !slices.Equal(want, got) {
		return fmt.Errorf("a value would change the structure of the text: it ends the text that it stands in")
	}
	return nil
}

// kinds lists the kinds of words, but for pieces of strings and those that skip
// says yes to.
func kinds(tokens []hclsyntax.Token, skip func(hclsyntax.Token) bool) []hclsyntax.TokenType {
	var list []hclsyntax.TokenType
	for _, t := range tokens {
		if skip(t) || t.Type == hclsyntax.TokenQuotedLit || t.Type == hclsyntax.TokenStringLit {
			continue
		}
		list = append(list, t.Type)
	}
	return list
}

// where names the problem and its line, and shows nothing of the text.
func where(diags hcl.Diagnostics) string {
	for _, d := range diags {
		if d.Severity == hcl.DiagError && d.Subject != nil {
			return fmt.Sprintf("line %d: %s", d.Subject.Start.Line, d.Summary)
		}
	}
	return "it is not HCL"
}
