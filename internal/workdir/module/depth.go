package module

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"
)

// maxDepth bounds how deeply expressions are nested. HCL's parser calls itself
// for each level, and a Go program whose stack overflows cannot be saved: one
// file of brackets would end the process, and end it again after each start.
// The parser needs some 5 KiB for a level, of the 1 GiB that there are.
const maxDepth = 10_000

// checkDepth refuses source that is nested too deeply to be parsed. It reads only
// tokens, which needs no stack.
func checkDepth(name string, src []byte) error {
	if strings.HasSuffix(name, ".json") {
		return checkDepthJSON(name, src)
	}
	// What cannot be cut into tokens is the parser's to refuse; there is a
	// token for every byte in any case.
	tokens, _ := hclsyntax.LexConfig(src, name, hcl.InitialPos)
	return tokensDepth(tokens)
}

// checkDepthJSON also checks the templates in strings, which are parsed for their
// values.
func checkDepthJSON(name string, src []byte) error {
	d := json.NewDecoder(bytes.NewReader(src))
	depth := 0
	for {
		t, err := d.Token()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return invalid(fmt.Errorf("%s:%d: %w", name, 1+bytes.Count(src[:d.InputOffset()], []byte("\n")), err))
		}
		switch t := t.(type) {
		case json.Delim:
			if t == '{' || t == '[' {
				depth++
			} else {
				depth--
			}
			if depth > maxDepth {
				return tooDeep(name, 0)
			}
		case string:
			tokens, _ := hclsyntax.LexTemplate([]byte(t), name, hcl.InitialPos)
			if err := tokensDepth(tokens); err != nil {
				return err
			}
		}
	}
}

// tokensDepth adds up the brackets that are open and, for each, the operators
// since its last comma or line: a chain of operators nests as brackets do.
func tokensDepth(tokens hclsyntax.Tokens) error {
	type level struct {
		body      bool // an end of line ends an expression here
		operators int
	}
	levels := []level{{body: true}}
	depth := 0
	for _, t := range tokens {
		top := &levels[len(levels)-1]
		switch t.Type {
		case hclsyntax.TokenOBrace, hclsyntax.TokenOBrack, hclsyntax.TokenOParen, hclsyntax.TokenOQuote,
			hclsyntax.TokenOHeredoc, hclsyntax.TokenTemplateInterp, hclsyntax.TokenTemplateControl:
			// A directive is a level of its own, and nests what follows it.
			if t.Type == hclsyntax.TokenTemplateControl {
				top.operators, depth = top.operators+1, depth+1
			}
			levels = append(levels, level{body: t.Type == hclsyntax.TokenOBrace})
			depth++
		case hclsyntax.TokenCBrace, hclsyntax.TokenCBrack, hclsyntax.TokenCParen, hclsyntax.TokenCQuote,
			hclsyntax.TokenCHeredoc, hclsyntax.TokenTemplateSeqEnd:
			if len(levels) > 1 { // else it closes nothing, which the parser will say
				depth -= 1 + top.operators
				levels = levels[:len(levels)-1]
			}
			if t.Type == hclsyntax.TokenCBrack || t.Type == hclsyntax.TokenCParen {
				levels[len(levels)-1].operators++ // a[b][c] is an index into an index
				depth++
			}
		case hclsyntax.TokenComma:
			depth, top.operators = depth-top.operators, 0
		case hclsyntax.TokenNewline, hclsyntax.TokenComment:
			if top.body && bytes.HasSuffix(t.Bytes, []byte("\n")) { // a comment takes its line's end with it
				depth, top.operators = depth-top.operators, 0
			}
		case hclsyntax.TokenIdent, hclsyntax.TokenNumberLit, hclsyntax.TokenQuotedLit, hclsyntax.TokenStringLit,
			hclsyntax.TokenEOF:
		default:
			top.operators, depth = top.operators+1, depth+1
		}
		if depth > maxDepth {
			return tooDeep(t.Range.Filename, t.Range.Start.Line)
		}
	}
	return nil
}

func tooDeep(file string, line int) error {
	if line > 0 {
		file = fmt.Sprintf("%s:%d", file, line)
	}
	return invalid(fmt.Errorf("%s: the configuration is nested more than %d levels deep", file, maxDepth))
}
