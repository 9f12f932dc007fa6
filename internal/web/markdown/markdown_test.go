package markdown

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func words(text string) []Node { return []Node{{Kind: Text, Text: text}} }

func TestParse(t *testing.T) {
	for name, tt := range map[string]struct {
		text string
		want []Node
	}{
		"headings": {"# One *two*\n\n## One two\n\n# One two", []Node{
			{Kind: Heading, Level: 1, ID: "x-one-two", Nodes: []Node{{Kind: Text, Text: "One "}, {Kind: Emphasis, Nodes: words("two")}}},
			{Kind: Heading, Level: 2, ID: "x-one-two-1", Nodes: words("One two")},
			{Kind: Heading, Level: 1, ID: "x-one-two-2", Nodes: words("One two")},
		}},
		"code": {"```hcl\nmodule \"x\" {}\n```\n\n    indented", []Node{{Kind: Code, Text: "module \"x\" {}", Language: "hcl"}, {Kind: Code, Text: "indented"}}},
		"a list": {"3. a\n4. `b`", []Node{{Kind: List, Ordered: true, Start: 3, Nodes: []Node{
			{Kind: Item, Nodes: []Node{{Kind: Plain, Nodes: words("a")}}}, {Kind: Item, Nodes: []Node{{Kind: Plain, Nodes: []Node{{Kind: Span, Text: "b"}}}}},
		}}}},
		"a table": {"| a |\n| - |\n| b |", []Node{{Kind: Table, Nodes: []Node{
			{Kind: Row, Head: true, Nodes: []Node{{Kind: Cell, Head: true, Nodes: words("a")}}}, {Kind: Row, Nodes: []Node{{Kind: Cell, Nodes: words("b")}}},
		}}}},
		"links": {"[a](https://example.com/x) [b](#One-two) [c](docs/x.md) [d](javascript:alert(1)) [e](//evil.example) <a@example.com>", []Node{{Kind: Paragraph, Nodes: []Node{
			{Kind: Link, Href: "https://example.com/x", Nodes: words("a")}, {Kind: Text, Text: " "}, {Kind: Link, Href: "#x-one-two", Nodes: words("b")}, {Kind: Text, Text: " "},
			{Kind: Text, Text: "c"}, {Kind: Text, Text: " "}, {Kind: Text, Text: "d"}, {Kind: Text, Text: " "}, {Kind: Text, Text: "e"}, {Kind: Text, Text: " "},
			{Kind: Link, Href: "mailto:a@example.com", Nodes: words("a@example.com")},
		}}}},
		"images and tags":         {"![a badge](https://example.com/b.png)<script>alert(1)</script>\n\n<div onclick=x>\n\n</div>", []Node{{Kind: Paragraph, Nodes: []Node{{Kind: Image, Text: "a badge"}, {Kind: Text, Text: "alert(1)"}}}}},
		"a link with credentials": {"[a](https://ann:secret@example.com)", []Node{{Kind: Paragraph, Nodes: words("a")}}},
	} {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(Parse(tt.text, "x-"), tt.want); diff != "" {
				t.Errorf("Parse (-got +want):\n%s", diff)
			}
		})
	}
}

// A text that a parser would read for long, or that would nest without end, is shown as it
// is written.
func TestHostileTexts(t *testing.T) {
	for name, unit := range map[string]string{
		"links": "[", "images": "![", "emphasis": "*a ", "both": "_a*", "code": "`a``", "tags": "<a ", "half links": "[a](", "references": "[a][b]", "quotes": ">", "quotes in quotes": "> ",
		"lists": "- ", "deleted": "~~a~", "cells": "|a", "entities": "&amp", "lines of links": "[a\n", "lines of emphasis": "*a\n", "parentheses": "[a](((", "comments": "<!--", "lists of lists": "1. ",
	} {
		t.Run(name, func(t *testing.T) {
			for _, times := range []int{3000, mostBytes / len(unit)} {
				if deep := depth(Parse(strings.Repeat(unit, times), "")); deep > mostDepth+2 {
					t.Errorf("the tree has %d levels", deep)
				}
			}
			if got := Parse(strings.Repeat(unit, 1+mostBytes/len(unit)), ""); len(got) != 1 || got[0].Kind != Code {
				t.Errorf("a text that is too large has %d nodes, want one", len(got))
			}
		})
	}
}

func depth(all []Node) int {
	deepest := 0
	for _, n := range all {
		deepest = max(deepest, depth(n.Nodes))
	}
	return deepest + 1
}
