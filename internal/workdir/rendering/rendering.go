// Package rendering makes the main.tf of a module out of its main.tf.tpl: a Go
// template between {{ and }} over the variables of the stack, with the functions
// of sprig.
//
// Values of the object itself are inserted as text, structure included: such
// templates exist for that. Values of Secrets, ConfigMaps and the outputs of other
// stacks are data and stay data: in the rendered text each is one string, number,
// truth value or name. The package refuses functions whose result depends on
// anything but their arguments; and it ends in bounded time, with a text of bounded
// length.
//
// Start reading at Main; how data stays data is in place.go.
package rendering

import (
	"encoding/json"
	"fmt"
	"strings"
	"text/template"
	"text/template/parse"

	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/meter"
	"github.com/terrier-iac/terrier/internal/workdir"
)

// Bounds of one template.
const (
	maxSource   = 1 << 20  // bytes of the template
	maxRendered = 4 << 20  // bytes of what it writes
	maxExecuted = 1 << 20  // bytes of actions that it executes; a loop counts in each round
	maxHandled  = 16 << 20 // bytes that its functions are given
)

// Datum is one variable.
type Datum struct {
	Value   json.RawMessage
	Foreign bool // it is not written in the object

	// Source is the value before templates in it were rendered, if it had any:
	// what they made of it is foreign.
	Source json.RawMessage
}

// Main renders a template over variables by their names. The variable values is
// also called Values.
func Main(text string, variables map[string]Datum) ([]byte, error) {
	if len(text) > maxSource {
		return nil, invalid(fmt.Errorf("%s has %d bytes, more than %d", workdir.TemplatePath, len(text), maxSource))
	}
	r := &render{Budget: meter.Budget{Actions: maxExecuted, Text: maxHandled}, keys: map[string]bool{}}
	data := map[string]any{}
	for name, d := range variables {
		v, err := r.decode(d)
		if err != nil {
			return nil, invalid(fmt.Errorf("%s: the variable %q: %w", workdir.TemplatePath, name, err))
		}
		data[name] = v
	}
	if v, ok := data["values"]; ok {
		data["Values"] = v
	}
	t, err := template.New(workdir.TemplatePath).Funcs(r.functions()).Parse(text)
	if err != nil {
		return nil, invalid(fmt.Errorf("reading %w", err))
	}
	for _, each := range t.Templates() {
		printAll(each.Root)
		meter.Rounds(each.Root)
	}
	w := &meter.Writer{Left: maxRendered}
	if err := t.Execute(w, data); err != nil {
		return nil, invalid(fmt.Errorf("rendering %w", err))
	}
	out, err := r.fill(w.String())
	if err != nil {
		return nil, invalid(fmt.Errorf("rendering %s: %w", workdir.TemplatePath, err))
	}
	return out, nil
}

func invalid(err error) error { return fault.New(fault.Invalid, "TemplateGenerationFailed", err) }

// render is one rendering.
type render struct {
	meter.Budget
	placed []placed        // what stands for foreign text, by its number
	keys   map[string]bool // names of fields out of foreign text that are no plain names
}

// decode reads a variable.
func (r *render) decode(d Datum) (any, error) {
	v, err := workdir.Decode(d.Value)
	if err != nil {
		return nil, err
	}
	if d.Foreign {
		return r.taint(v), nil
	}
	if d.Source == nil {
		return v, nil
	}
	source, err := workdir.Decode(d.Source)
	if err != nil {
		return nil, err
	}
	return r.compare(v, source), nil
}

// compare marks as foreign what templates made.
func (r *render) compare(v, source any) any {
	switch s := source.(type) {
	case string:
		if strings.Contains(s, "${{") {
			return r.taint(v)
		}
	case []any:
		if list, ok := v.([]any); ok && len(list) == len(s) {
			for i := range list {
				list[i] = r.compare(list[i], s[i])
			}
		}
	case map[string]any:
		if m, ok := v.(map[string]any); ok {
			for k := range m {
				m[k] = r.compare(m[k], s[k])
			}
		}
	}
	return v
}

// printed is the function that everything goes through which a template writes.
const printed = "printed"

// printAll makes every action that writes something call printed with it.
func printAll(list *parse.ListNode) {
	if list == nil {
		return
	}
	for _, n := range list.Nodes {
		switch n := n.(type) {
		case *parse.ActionNode:
			if len(n.Pipe.Decl) == 0 {
				call := &parse.CommandNode{NodeType: parse.NodeCommand, Pos: n.Pos, Args: []parse.Node{parse.NewIdentifier(printed).SetPos(n.Pos)}}
				n.Pipe.Cmds = append(n.Pipe.Cmds, call)
			}
		case *parse.IfNode:
			printAll(n.List)
			printAll(n.ElseList)
		case *parse.RangeNode:
			printAll(n.List)
			printAll(n.ElseList)
		case *parse.WithNode:
			printAll(n.List)
			printAll(n.ElseList)
		}
	}
}

// print turns a value into what is written.
func (r *render) print(v any) (string, error) {
	if v == nil {
		return "", meter.ErrAbsent
	}
	plain, foreign, err := r.strip(v)
	if err != nil {
		return "", err
	}
	text := fmt.Sprint(plain)
	if !foreign {
		return text, nil
	}
	return r.stand(placed{text: text}), nil
}
