package rendering

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"text/template/parse"
)

// Trees are rewritten before they are executed, so that every step is a function of
// this package, which counts costs and recognises missing variables:
//
//	{{ .plan }}             variable "plan" | written
//	{{ .plan | upper }}     variable "plan" | upper | written
//	{{ $x.a }}              field $x "a" | written
//	{{ with .x }}{{ .a }}   with variable "x": field . "a" | written
//	{{ eq .plan "gold" }}   eq (there (variable "plan")) "gold" | written
//
// A missing value flows through them as one of type absent. It is false in
// conditions, empty in loops, and an error in functions, except for the forgiving
// ones.

// Names of the functions that rewriting calls.
const (
	fnVariable = "variable"
	fnField    = "field"
	fnWritten  = "written"
	fnThere    = "there"
)

// forgiving are functions that accept a missing value.
var forgiving = map[string]bool{
	"default": true, "coalesce": true, "empty": true, "ternary": true, "hasKey": true, "dig": true,
	"all": true, "any": true, "and": true, "or": true, "not": true, fnField: true, fnVariable: true,
}

// builtin are functions of text/template that are called as they are; true means
// that their arguments must not be missing.
var builtin = map[string]bool{
	"and": false, "or": false, "not": false,
	"eq": true, "ne": true, "lt": true, "le": true, "gt": true, "ge": true, "index": true, "len": true,
}

// scope describes a place in a template.
type scope struct {
	isRow     bool // the dot is the row
	rootIsRow bool // $ is the row
	asked     []string
}

// asking returns a scope within a condition that names variables.
func (s scope) asking(names []string) scope {
	s.asked = append(slices.Clone(s.asked), names...)
	return s
}

// elsewhere returns a scope whose dot is not the row.
func (s scope) elsewhere() scope {
	s.isRow = false
	return s
}

type rewriter struct {
	calls     map[string]bool
	variables map[string]bool // true if it is required
	asked     []string        // variables in the pipeline that is being rewritten
	problems  []string
}

func (w *rewriter) problem(format string, args ...any) {
	w.problems = append(w.problems, fmt.Sprintf(format, args...))
}

func (w *rewriter) list(list *parse.ListNode, s scope) {
	if list == nil {
		return
	}
	for _, n := range list.Nodes {
		switch n := n.(type) {
		case *parse.ActionNode:
			w.pipe(n.Pipe, s, len(n.Pipe.Decl) > 0)
			if len(n.Pipe.Decl) == 0 {
				n.Pipe.Cmds = append(n.Pipe.Cmds, w.call(n.Pos, fnWritten))
			}
		case *parse.IfNode:
			within := w.condition(n.Pipe, s)
			w.list(n.List, within)
			w.list(n.ElseList, within)
		case *parse.WithNode:
			within := w.condition(n.Pipe, s)
			w.list(n.List, within.elsewhere())
			w.list(n.ElseList, within)
		case *parse.RangeNode:
			within := w.condition(n.Pipe, s)
			w.list(n.List, within.elsewhere())
			w.list(n.ElseList, within)
		case *parse.TemplateNode:
			if n.Pipe != nil {
				w.pipe(n.Pipe, s, true)
			}
		}
	}
}

// condition rewrites a condition of lists, and returns their scope: a variable that
// the condition names may be missing.
func (w *rewriter) condition(p *parse.PipeNode, s scope) scope {
	w.asked = nil
	w.pipe(p, s, true)
	return s.asking(w.asked)
}

// pipe rewrites a pipeline; free means that its value may be missing.
func (w *rewriter) pipe(p *parse.PipeNode, s scope, free bool) {
	var cmds []*parse.CommandNode
	for i, cmd := range p.Cmds {
		name := functionOf(cmd)
		if i > 0 && builtin[name] {
			cmds = append(cmds, w.call(cmd.Pos, fnThere))
		}
		valueIsFree := free
		if i+1 < len(p.Cmds) {
			valueIsFree = forgiving[functionOf(p.Cmds[i+1])]
		}
		w.command(cmd, name, s, valueIsFree)
		cmds = append(cmds, cmd)
	}
	p.Cmds = cmds
}

func functionOf(cmd *parse.CommandNode) string {
	if id, ok := cmd.Args[0].(*parse.IdentifierNode); ok {
		return id.Ident
	}
	return ""
}

func (w *rewriter) command(cmd *parse.CommandNode, name string, s scope, free bool) {
	if name == "" {
		if len(cmd.Args) > 1 {
			w.problem("%s is no function, and is given an argument", cmd.Args[0])
		}
		switch n := w.operand(cmd.Args[0], s, free).(type) {
		case *parse.PipeNode:
			if _, own := cmd.Args[0].(*parse.PipeNode); !own {
				cmd.Args = n.Cmds[0].Args
			}
		default:
			cmd.Args[0] = n
		}
		return
	}
	w.uses(name)
	asked := len(w.asked)
	for i, a := range cmd.Args[1:] {
		within := s
		switch key, isText := a.(*parse.StringNode); {
		case name == "hasKey" && isText:
			w.asked = append(w.asked, key.Text)
		case name == "and", name == "or": // evaluate an argument only after those before it
			within = s.asking(w.asked[asked:])
		}
		a = w.operand(a, within, forgiving[name])
		if builtin[name] {
			a = w.pipeOf(a.Position(), w.call(a.Position(), fnThere, a))
		}
		cmd.Args[i+1] = a
	}
}

// operand returns the rewritten form of a value.
func (w *rewriter) operand(n parse.Node, s scope, free bool) parse.Node {
	switch n := n.(type) {
	case *parse.FieldNode:
		if s.isRow {
			return w.variable(n.Pos, n.Ident, s, free)
		}
		return w.field(n.Pos, &parse.DotNode{NodeType: parse.NodeDot, Pos: n.Pos}, n.Ident)
	case *parse.VariableNode:
		if len(n.Ident) == 1 {
			return n
		}
		if n.Ident[0] == "$" && s.rootIsRow {
			return w.variable(n.Pos, n.Ident[1:], s, free)
		}
		base := *n
		base.Ident = n.Ident[:1]
		return w.field(n.Pos, &base, n.Ident[1:])
	case *parse.ChainNode:
		return w.field(n.Pos, w.operand(n.Node, s, true), n.Field)
	case *parse.PipeNode:
		w.pipe(n, s, free)
		return n
	case *parse.IdentifierNode:
		w.uses(n.Ident)
		return n
	default:
		return n
	}
}

// variable reads a variable of the row.
func (w *rewriter) variable(pos parse.Pos, path []string, s scope, free bool) parse.Node {
	name := path[0]
	w.asked = append(w.asked, name)
	w.variables[name] = w.variables[name] || !free && !slices.Contains(s.asked, name)
	return w.pipeOf(pos, w.call(pos, fnVariable, texts(pos, path)...))
}

func (w *rewriter) field(pos parse.Pos, base parse.Node, path []string) parse.Node {
	return w.pipeOf(pos, w.call(pos, fnField, append([]parse.Node{base}, texts(pos, path)...)...))
}

// uses notes a function, or the problem that there is none of that name.
func (w *rewriter) uses(name string) {
	switch _, native := builtin[name]; {
	case native:
	case isFunction(name):
		w.calls[name] = true
	case refused[name] != "":
		w.problem("the function %s is refused: %s", name, refused[name])
	default:
		w.problem("there is no function %s", name)
	}
}

func (w *rewriter) call(pos parse.Pos, name string, args ...parse.Node) *parse.CommandNode {
	w.calls[name] = true
	return &parse.CommandNode{NodeType: parse.NodeCommand, Pos: pos, Args: append([]parse.Node{parse.NewIdentifier(name).SetPos(pos)}, args...)}
}

func (w *rewriter) pipeOf(pos parse.Pos, cmd *parse.CommandNode) *parse.PipeNode {
	return &parse.PipeNode{NodeType: parse.NodePipe, Pos: pos, Cmds: []*parse.CommandNode{cmd}}
}

func texts(pos parse.Pos, all []string) []parse.Node {
	nodes := make([]parse.Node, len(all))
	for i, s := range all {
		nodes[i] = &parse.StringNode{NodeType: parse.NodeString, Pos: pos, Quoted: strconv.Quote(s), Text: s}
	}
	return nodes
}

// Functions returns the names of all functions that a text may call, in order.
func Functions() []string {
	all := slices.Collect(maps.Keys(builtin))
	for name := range functions() {
		all = append(all, name)
	}
	slices.Sort(all)
	return all
}
