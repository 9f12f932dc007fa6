package workdir

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"text/template/parse"

	"github.com/terrier-iac/terrier/internal/plan"
)

// Output is an output of a stack, as data of a template.
type Output struct {
	Value     json.RawMessage
	Sensitive bool
}

// Target renders what a health check asks: a template over the outputs of its
// stack, between ${{ and }} as upstream reads it, or between {{ and }} as
// upstream documents it. Shown is the same for messages, without what is
// sensitive; a template that cannot be rendered without is shown as it is.
func Target(text string, outputs map[string]Output) (target, shown string, err error) {
	asked := text
	text = delimited(text)
	values, masked := map[string]any{}, map[string]any{}
	for name, o := range outputs {
		v, err := exact(o.Value)
		if err != nil {
			return "", asked, invalid(fmt.Errorf("reading output %s: %w", name, err))
		}
		values[name] = numbers(v)
		if masked[name] = values[name]; o.Sensitive {
			masked[name] = plan.Mask
		}
	}
	t, err := new(budget).parse(text, "target")
	if err != nil {
		return "", asked, err
	}
	if err := present(t.Root, values); err != nil {
		return "", asked, err
	}
	b := budget{actions: maxExecuted, text: maxHandled}
	if target, err = b.render(text, values, "target"); err != nil {
		return "", asked, err
	}
	if strings.Contains(target, nothing) {
		return "", asked, invalid(errors.New("an output that it needs is null or not there"))
	}
	if shown, err = b.render(text, masked, "target"); err != nil {
		shown = asked
	}
	return target, shown, nil
}

// CheckTarget reports why text cannot be a template of a target at all.
func CheckTarget(text, path string) error { return CheckTemplate(delimited(text), path) }

// delimited is text with the one kind of delimiters that templates here have.
func delimited(text string) string {
	return strings.ReplaceAll(strings.ReplaceAll(text, "${{", "{{"), "{{", "${{")
}

// nothing is what a template writes for a missing value.
const nothing = "<no value>"

// present reports the first missing output in list, so that the message is about
// outputs and not about templates.
func present(list *parse.ListNode, values map[string]any) error {
	if list == nil {
		return nil
	}
	for _, n := range list.Nodes {
		var err error
		switch n := n.(type) {
		case *parse.ActionNode:
			err = named(n.Pipe, values)
		case *parse.IfNode:
			err = errors.Join(named(n.Pipe, values), present(n.List, values), present(n.ElseList, values))
		case *parse.RangeNode: // inside, a name is one of what is gone through
			err = errors.Join(named(n.Pipe, values), present(n.ElseList, values))
		case *parse.WithNode:
			err = errors.Join(named(n.Pipe, values), present(n.ElseList, values))
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func named(pipe *parse.PipeNode, values map[string]any) error {
	for _, c := range pipe.Cmds {
		for _, arg := range c.Args {
			var err error
			switch n := arg.(type) {
			case *parse.FieldNode:
				err = outputNamed(n.Ident[0], values)
			case *parse.VariableNode:
				if n.Ident[0] == "$" && len(n.Ident) > 1 {
					err = outputNamed(n.Ident[1], values)
				}
			case *parse.PipeNode:
				err = named(n, values)
			}
			if err != nil {
				return err
			}
		}
	}
	return nil
}

func outputNamed(name string, values map[string]any) error {
	if _, ok := values[name]; !ok {
		return invalid(fmt.Errorf("the module has no output %q", name))
	}
	return nil
}
