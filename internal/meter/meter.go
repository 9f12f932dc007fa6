// Package meter lets a process run Go templates of users: it bounds their costs, so
// that each ends by itself, since nothing can stop one from outside. Package library
// has the functions that they may call.
//
// It renders nothing and knows no variables.
//
// Start reading at Budget. A caller gives the template the method Spend as a
// function, lets Rounds rewrite the template's trees, and calls functions by
// library.Call.
package meter

import (
	"cmp"
	"errors"
	"strconv"
	"strings"
	"text/template/parse"
)

// Bounds of one value or text.
const (
	MaxText  = 1 << 20 // bytes of a text
	MaxDepth = 64      // of lists in lists
)

// Budget is what templates may still do. It is for one goroutine.
type Budget struct {
	Actions int // bytes of actions to execute; a loop counts in each round
	Text    int // bytes that functions are given or make
}

// Why a template does not go on.
var (
	ErrTooLong = errors.New("it writes too much")
	ErrTooMuch = errors.New("it does too much: its loops go round too often, or its texts are too long")
	ErrAbsent  = errors.New("there is no such value")
)

// SpendName is the name by which templates call Spend. One that calls it by
// itself only ends sooner.
const SpendName = "spend"

// Spend counts what a template does.
func (b *Budget) Spend(n uint) (string, error) {
	if b.Actions < 0 || n > uint(b.Actions) {
		return "", ErrTooMuch
	}
	b.Actions -= int(n)
	return "", nil
}

// Take counts n bytes of text.
func (b *Budget) Take(n int) error {
	if n < 0 || n > b.Text {
		return ErrTooMuch
	}
	b.Text -= n
	return nil
}

func (b *Budget) text(s string) error {
	if len(s) > MaxText {
		return ErrTooLong
	}
	return b.Take(len(s) + 1)
}

// Rounds makes every execution of a list of nodes call Spend, with how long its
// actions are, before it does anything else: lists are what loops and templates
// repeat.
func Rounds(list *parse.ListNode) {
	if list == nil {
		return
	}
	length := 0
	for _, n := range list.Nodes {
		var branch *parse.BranchNode
		switch n := n.(type) {
		case *parse.TextNode:
			continue // bounded by what is written
		case *parse.RangeNode:
			branch = &n.BranchNode
		case *parse.IfNode:
			branch = &n.BranchNode
		case *parse.WithNode:
			branch = &n.BranchNode
		default:
			length += len(n.String())
			continue
		}
		length += len(branch.Pipe.String())
		Rounds(branch.List)
		Rounds(branch.ElseList)
	}
	length++ // a round of nothing takes its time, too
	number := &parse.NumberNode{NodeType: parse.NodeNumber, IsUint: true, Uint64: uint64(length), Text: strconv.Itoa(length)}
	call := &parse.CommandNode{NodeType: parse.NodeCommand, Args: []parse.Node{parse.NewIdentifier(SpendName), number}}
	list.Nodes = append([]parse.Node{&parse.ActionNode{
		NodeType: parse.NodeAction,
		Pipe:     &parse.PipeNode{NodeType: parse.NodePipe, Cmds: []*parse.CommandNode{call}},
	}}, list.Nodes...)
}

// Writer is a buffer with an end.
type Writer struct {
	strings.Builder
	Left int
	Full error // what writing more than that gives; ErrTooLong if nil
}

func (w *Writer) Write(p []byte) (int, error) {
	if w.Left -= len(p); w.Left < 0 {
		return 0, cmp.Or(w.Full, ErrTooLong)
	}
	return w.Builder.Write(p)
}
