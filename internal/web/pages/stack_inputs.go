package pages

import (
	"fmt"

	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/query"
	"github.com/terrier-iac/terrier/internal/web/ui"
)

// StackInputs lists the inputs of the runs of a stack, with the values from
// the object itself.
func StackInputs(v *Visit) (Page, error) {
	head, err := headOf(v, tabInputs)
	if err != nil {
		return Page{}, err
	}
	inputs, err := v.Backend.Details.Inputs(v.Context, v.Key())
	var rows []inputRow
	for _, i := range inputs {
		r := inputRow{InputInfo: i, Shown: len(i.Value) > 0}
		if r.Shown {
			r.Text = valueText(i.Value)
		}
		rows = append(rows, r)
	}
	return stackPage(v, "stack_inputs", "Inputs", struct {
		Head    stackHead
		Inputs  []inputRow
		Empty   ui.Empty
		Problem *Problem
	}{head, rows, ui.Empty{
		Title: "No inputs", Text: "The stack sets no variables and reads none from Secrets or ConfigMaps. To set a variable:",
		Command: fmt.Sprintf(`kubectl patch %s %s -n %s --type merge -p '{"spec":{"vars":[{"name":"NAME","value":"VALUE"}]}}'`, resourceOf(v, v.Key()), v.Key().Name, v.Key().Namespace),
	}, problemOf("The inputs cannot be shown", err)}), nil
}

// inputRow is an input with what is shown of its value.
type inputRow struct {
	query.InputInfo
	Shown bool
	Text  string
}

// StackOutputs lists the outputs of the last apply. Sensitive values never
// come here.
func StackOutputs(v *Visit) (Page, error) {
	head, err := headOf(v, tabOutputs)
	if err != nil {
		return Page{}, err
	}
	outputs, err := v.Backend.Details.OutputsKept(v.Context, v.Key())
	view := outputList{Head: head, Secret: head.Stack.OutputsIn}
	if fault.Of(err) == fault.Missing {
		view.Empty = &ui.Empty{Title: "No outputs", Text: "The stack has not been applied yet, or its module declares no outputs. To see what the stack waits for:", Command: head.Command("explain")}
	} else {
		view.Problem = problemOf("The outputs cannot be shown", err)
	}
	for _, o := range outputs {
		view.Outputs = append(view.Outputs, outputRow{Name: o.Name, Sensitive: o.Sensitive, Value: valueText(o.Value), Absent: len(o.Value) == 0})
	}
	if len(outputs) == 0 && view.Problem == nil && view.Empty == nil {
		view.Empty = &ui.Empty{Title: "No outputs", Text: "The module declares no outputs. Add an output block to it. The next apply stores the value. To plan now:", Command: head.Command("replan")}
	}
	return stackPage(v, "stack_outputs", "Outputs", view), nil
}

type outputList struct {
	Head    stackHead
	Secret  string
	Outputs []outputRow
	Empty   *ui.Empty
	Problem *Problem
}

type outputRow struct {
	Name      string
	Value     string
	Sensitive bool
	Absent    bool // the value is not shown
}

// StackManifest shows the object of a stack: its YAML, and the module in it.
func StackManifest(v *Visit) (Page, error) {
	head, err := headOf(v, tabManifest)
	if err != nil {
		return Page{}, err
	}
	m, err := v.Backend.Details.Manifest(v.Context, v.Key())
	return stackPage(v, "stack_manifest", "Manifest", struct {
		Head     stackHead
		Manifest query.Manifest
		Get      string // prints the object as it is
		Problem  *Problem
	}{head, m, "kubectl get " + v.Backend.Kinds.Resource(head.Stack.Kind) + " -n " + head.Stack.Namespace + " " + head.Stack.Name + " -o yaml", problemOf("The object cannot be shown", err)}), nil
}
