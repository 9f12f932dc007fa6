// Package rendering renders one text of a tenant's template: Go template between
// {{ and }}, the functions of sprig that give the same each time, and the few
// that Tenant Operator adds.
//
// A text is rendered once. What a variable holds is written as it is, and is
// never read as a template, whatever it looks like. A variable that is not there
// is no text, and printing it is an error that says which variables are there;
// but functions made for that, such as default, and conditions may be given one.
// A text that is one expression, and nothing else, keeps what its value is: a
// number stays a number.
//
// Start reading at Parse; what a missing variable is follows from rewrite.go.
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

	"github.com/terrier-iac/terrier/internal/meter"
	"github.com/terrier-iac/terrier/internal/tenant/memo"
)

// Bounds of all texts of one tenant.
const (
	maxSource   = 1 << 20  // bytes of one text
	maxRendered = 1 << 20  // bytes that one text becomes
	maxTotal    = 4 << 20  // bytes that all of them become
	maxExecuted = 1 << 18  // bytes of actions that they execute; a loop counts in each round
	maxHandled  = 16 << 20 // bytes that their functions are given
)

// Run is one rendering of all texts of one tenant: the values of its variables,
// and what its texts may still do. It is for one goroutine.
type Run struct {
	meter.Budget
	left   int
	values map[string]any
}

// NewRun returns one that may do all that a tenant may.
func NewRun(values map[string]string) *Run {
	r := &Run{Budget: meter.Budget{Actions: maxExecuted, Text: maxHandled}, left: maxTotal, values: make(map[string]any, len(values))}
	for name, text := range values {
		r.values[name] = text
	}
	return r
}

// Text is a text that was parsed. It is for any number of goroutines.
type Text struct {
	literal string // the text, if it is no template

	trees    map[string]*parse.Tree
	calls    []string // the functions that it calls
	whole    bool     // it is one expression and nothing else
	required map[string]bool
	pool     sync.Pool // of *instance
}

const mainTree = "text"

// IsTemplate reports whether there is anything to render in a text.
func IsTemplate(text string) bool { return strings.Contains(text, "{{") }

// Parse reads a text. Its error is everything that is wrong with it.
func Parse(text string) (*Text, error) {
	if !IsTemplate(text) {
		return &Text{literal: text}, nil
	}
	c := parsed.Of(text, func() compiled {
		t, err := compile(text)
		return compiled{t, err}
	})
	return c.text, c.err
}

// parsed are texts that were parsed lately.
var parsed = &memo.Memory[compiled]{}

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
	tree.Mode = parse.SkipFuncCheck // rewrite says more about what is not there
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

// isOneExpression reports whether all that a template writes is one value.
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

// Variables are the names of the variables that it uses, in order; true stands
// for one that has to be there.
func (t *Text) Variables() map[string]bool { return t.required }

// Render returns what a text becomes: a string, or, if it is one expression, the
// int64, float64 or bool that this gives.
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
	return nil, errors.New("it becomes what is no UTF-8 text; a value is not one, or is cut within a character")
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
