// Package rendering renders one text of a tenant's template: Go template between
// {{ and }}, the functions of sprig that give the same each time, and the few
// that Tenant Operator adds.
//
// A text is rendered once. The value of a variable is written as it is, and never
// read as a template. Printing a missing variable is an error that lists the
// variables; functions such as default, and conditions, accept one. A text that is
// a single expression keeps the type of its value: a number stays a number.
//
// Start reading at Parse; rewrite.go defines the meaning of a missing variable.
package rendering

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"text/template"
	"text/template/parse"
	"unicode/utf8"

	"github.com/terrier-iac/terrier/internal/cache"
	"github.com/terrier-iac/terrier/internal/meter"
)

// Bounds of all texts of one tenant.
const (
	maxSource   = 1 << 20  // bytes of one text
	maxRendered = 1 << 20  // bytes that one text becomes
	maxTotal    = 4 << 20  // bytes that all of them become
	maxExecuted = 1 << 18  // bytes of actions that they execute; a loop counts in each round
	maxHandled  = 16 << 20 // bytes of the arguments of their functions
)

// Run is one rendering of all texts of one tenant: the values of its variables,
// and the rest of its budget. It is for one goroutine.
type Run struct {
	meter.Budget
	left   int
	values map[string]any
}

// NewRun returns a Run with the whole budget of a tenant.
func NewRun(values map[string]string) *Run {
	r := &Run{Budget: meter.Budget{Actions: maxExecuted, Text: maxHandled}, left: maxTotal, values: make(map[string]any, len(values))}
	for name, text := range values {
		r.values[name] = text
	}
	return r
}

// Text is a parsed text. It is for any number of goroutines.
type Text struct {
	literal string // the text, if it is no template

	trees    map[string]*parse.Tree
	calls    []string // the functions that it calls
	whole    bool     // it is one expression and nothing else
	required map[string]bool
	pool     sync.Pool // of *instance
}

const mainTree = "text"

// IsTemplate reports whether a text has anything to render.
func IsTemplate(text string) bool { return strings.Contains(text, "{{") }

// Parse parses a text. Its error lists all problems.
func Parse(text string) (*Text, error) {
	if !IsTemplate(text) {
		return &Text{literal: text}, nil
	}
	c, ok := parsed.Get(text)
	if !ok {
		c.text, c.err = compile(text)
		parsed.Put(text, c)
	}
	return c.text, c.err
}

// parsed are the texts that were parsed lately: thousands of tenants have the same
// ones.
var parsed = &cache.Map[string, compiled]{
	Size: 1 << 16, Weigh: func(text string, _ compiled) int { return len(text) + 1<<10 }, Weight: 8 << 20,
}

type compiled struct {
	text *Text
	err  error
}

func compile(text string) (*Text, error) {
	if len(text) > maxSource {
		return nil, fmt.Errorf("the text has %d bytes, more than %d", len(text), maxSource)
	}
	t := &Text{trees: map[string]*parse.Tree{}}
	tree := parse.New(mainTree)
	tree.Mode = parse.SkipFuncCheck // the errors of rewrite say more about unknown functions
	if _, err := tree.Parse(text, "{{", "}}", t.trees); err != nil {
		return nil, plain(err)
	}
	t.trees[mainTree] = tree
	w := &rewriter{calls: map[string]bool{}, variables: map[string]bool{}}
	t.whole = isOneExpression(tree.Root)
	for _, name := range slices.Sorted(maps.Keys(t.trees)) {
		w.list(t.trees[name].Root, scope{isRow: name == mainTree, rootIsRow: name == mainTree})
	}
	if len(w.problems) > 0 {
		return nil, errors.New(strings.Join(w.problems, "; "))
	}
	for _, each := range t.trees {
		meter.Rounds(each.Root)
	}
	t.calls, t.required = slices.Sorted(maps.Keys(w.calls)), w.variables
	t.pool.New = func() any { return newInstance(t) }
	return t, nil
}

// isOneExpression reports whether a template writes exactly one value.
func isOneExpression(list *parse.ListNode) bool {
	writes := 0
	for _, n := range list.Nodes {
		switch a, ok := n.(*parse.ActionNode); {
		case !ok:
			return false
		case len(a.Pipe.Decl) == 0:
			writes++
		}
	}
	return writes == 1
}

// Variables are the names of the variables that it uses; true stands for one that
// is required.
func (t *Text) Variables() map[string]bool { return t.required }

// Render returns the rendered text: a string, or the int64, float64 or bool of a
// single expression.
func (t *Text) Render(r *Run) (any, error) {
	if t.trees == nil {
		return t.literal, nil
	}
	in := t.pool.Get().(*instance)
	defer t.pool.Put(in)
	in.run, in.value = r, nil
	w := &meter.Writer{Left: min(maxRendered, r.left)}
	err := in.template.Execute(w, r.values)
	value := in.value
	in.run, in.value = nil, nil
	if err != nil {
		return nil, plain(err)
	}
	if r.left -= w.Len(); t.whole && value != nil {
		return value, nil
	}
	if out := w.String(); utf8.ValidString(out) {
		return out, nil
	}
	return nil, errors.New("the result is no UTF-8 text: a value is not one, or is cut within a character")
}

// instance is a template that can be executed by one goroutine at a time.
type instance struct {
	template *template.Template
	run      *Run
	value    any // the number or truth value that was written last
}

func newInstance(t *Text) *instance {
	in := &instance{}
	fns := template.FuncMap{}
	for _, name := range t.calls {
		fns[name] = in.function(name)
	}
	fns[meter.SpendName] = func(n uint) (string, error) { return in.run.Spend(n) }
	in.template = template.New(mainTree).Funcs(fns)
	for name, tree := range t.trees {
		// Its error is that of a name given twice, and names of a map are not.
		template.Must(in.template.AddParseTree(name, tree))
	}
	return in
}
