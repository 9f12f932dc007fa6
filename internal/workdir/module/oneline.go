package module

import (
	"bytes"
	"fmt"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"
)

// OneLine is a block that was written on one line with several arguments.
type OneLine struct {
	Line  int    // as it was written
	Block string // variable "password"
}

func (o OneLine) String() string { return fmt.Sprintf("line %d (%s)", o.Line, o.Block) }

// Repair breaks the lines of blocks that hold two or more arguments on one
// line, which HCL refuses and people write all the same:
//
//	variable "password" { type = string sensitive = true }
//
// It inserts line breaks and changes no other byte. What HCL accepts comes back
// as it is. What HCL refuses even so is Invalid, and the message says where that
// is in the text as it was written.
//
// It is for modules that are given as text. A file of a source is its author's.
func Repair(name, src string) (string, []OneLine, error) {
	if !suspicious(src) {
		return src, nil, nil
	}
	text := []byte(src)
	if checkDepth(name, text) != nil {
		return src, nil, nil // the parser of the module reports it
	}
	if _, diags := hclsyntax.ParseConfig(text, name, hcl.InitialPos); !diags.HasErrors() {
		return src, nil, nil
	}
	tokens, _ := hclsyntax.LexConfig(text, name, hcl.InitialPos) // a token for every byte, in any case
	b := breaker{src: text, tokens: tokens}
	b.body()
	if len(b.found) == 0 {
		return src, nil, nil
	}
	repaired := b.insert()
	_, diags := hclsyntax.ParseConfig(repaired, name, hcl.InitialPos)
	for _, d := range diags {
		if d.Subject != nil {
			d.Subject.Start.Line -= b.before(d.Subject.Start.Byte)
		}
	}
	return string(repaired), b.found, diagnosed(diags)
}

// suspicious reports whether some line could be a block with two arguments, so
// that texts which are not need no second parser.
func suspicious(src string) bool {
	for line := range bytes.Lines([]byte(src)) {
		if _, in, ok := bytes.Cut(line, []byte("{")); ok && bytes.Count(in, []byte("=")) > 1 && bytes.Contains(in, []byte("}")) {
			return true
		}
	}
	return false
}

// breaker walks the bodies of a file and notes where line breaks are missing.
type breaker struct {
	src    []byte
	tokens hclsyntax.Tokens
	at     int
	breaks []int // offsets, in order
	found  []OneLine
}

func (b *breaker) kind(i int) hclsyntax.TokenType {
	if i < 0 || i >= len(b.tokens) {
		return hclsyntax.TokenEOF
	}
	return b.tokens[i].Type
}

// body walks to the end of one file or block, and over it. It keeps the depth
// of blocks as a number: blocks may be nested deeper than calls should be.
func (b *breaker) body() {
	for b.kind(b.at) != hclsyntax.TokenEOF {
		if b.kind(b.at) != hclsyntax.TokenIdent {
			b.at++ // between items, or the end of a block
			continue
		}
		if b.kind(b.at+1) == hclsyntax.TokenEqual {
			b.argument()
			continue
		}
		b.block()
	}
}

// argument walks over NAME = EXPRESSION, to the end of its line.
func (b *breaker) argument() {
	depth := 0
	for ; b.kind(b.at) != hclsyntax.TokenEOF; b.at++ {
		switch step := nesting(b.kind(b.at)); {
		case step < 0 && depth == 0:
			return // the end of the block that it is in
		case depth == 0 && b.ends(b.at):
			return
		default:
			depth += step
		}
	}
}

// block walks over the head of a block, and over the whole of it if that is one
// line.
func (b *breaker) block() {
	head := b.at
	for b.at++; ; b.at++ {
		switch b.kind(b.at) {
		case hclsyntax.TokenIdent, hclsyntax.TokenOQuote, hclsyntax.TokenQuotedLit, hclsyntax.TokenCQuote:
			continue
		case hclsyntax.TokenOBrace:
			if end, arguments := b.oneLine(b.at); len(arguments) > 1 {
				b.note(head, b.at, end, arguments)
				b.at = end
			}
			b.at++
		}
		return // into the body, or after what is no block
	}
}

// oneLine returns the closing brace of a block and the first tokens of its
// arguments, none unless all of it is on one line.
func (b *breaker) oneLine(open int) (end int, arguments []int) {
	depth := 0
	for i := open + 1; ; i++ {
		kind := b.kind(i)
		if kind == hclsyntax.TokenEOF || kind == hclsyntax.TokenOHeredoc || b.ends(i) {
			return 0, nil
		}
		if depth == 0 {
			switch {
			case kind == hclsyntax.TokenCBrace:
				return i, arguments
			case len(arguments) == 0 && i > open+1 && b.kind(i-1) != hclsyntax.TokenComment:
				return 0, nil // it begins with something else
			case kind == hclsyntax.TokenIdent && b.kind(i+1) == hclsyntax.TokenEqual && b.kind(i-1) != hclsyntax.TokenDot:
				arguments = append(arguments, i)
			}
		}
		depth += nesting(kind)
	}
}

// ends reports whether a token ends a line. A comment to the end of its line
// holds the line break.
func (b *breaker) ends(i int) bool {
	kind := b.kind(i)
	return kind == hclsyntax.TokenNewline || kind == hclsyntax.TokenComment && bytes.HasSuffix(b.tokens[i].Bytes, []byte("\n"))
}

// nesting is by how much a token changes the depth of an expression.
func nesting(kind hclsyntax.TokenType) int {
	switch kind {
	case hclsyntax.TokenOBrace, hclsyntax.TokenOBrack, hclsyntax.TokenOParen, hclsyntax.TokenOQuote, hclsyntax.TokenOHeredoc,
		hclsyntax.TokenTemplateInterp, hclsyntax.TokenTemplateControl:
		return 1
	case hclsyntax.TokenCBrace, hclsyntax.TokenCBrack, hclsyntax.TokenCParen, hclsyntax.TokenCQuote, hclsyntax.TokenCHeredoc,
		hclsyntax.TokenTemplateSeqEnd:
		return -1
	default:
		return 0
	}
}

// note keeps where a block has to be broken: after its brace, between its
// arguments, and before its end.
func (b *breaker) note(head, open, end int, arguments []int) {
	for _, i := range append(arguments, end) {
		b.breaks = append(b.breaks, b.tokens[i-1].Range.End.Byte)
	}
	from, to := b.tokens[head].Range, b.tokens[open-1].Range
	b.found = append(b.found, OneLine{Line: from.Start.Line, Block: string(b.src[from.Start.Byte:to.End.Byte])})
}

// insert returns the text with its line breaks.
func (b *breaker) insert() []byte {
	var out []byte
	last := 0
	for _, at := range b.breaks {
		out = append(append(out, b.src[last:at]...), '\n')
		last = at
	}
	return append(out, b.src[last:]...)
}

// before counts the line breaks that were inserted before an offset of the
// repaired text.
func (b *breaker) before(offset int) int {
	n := 0
	for i, at := range b.breaks {
		if at+i < offset {
			n++
		}
	}
	return n
}
