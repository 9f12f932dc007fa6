package pages

import (
	"fmt"

	"github.com/terrier-iac/terrier/internal/access"
	"github.com/terrier-iac/terrier/internal/query"
	"github.com/terrier-iac/terrier/internal/stack"
	"github.com/terrier-iac/terrier/internal/web/ui"
)

// stackHead is the upper part of every page below a stack: its name, its status,
// its actions and the tabs. The part "stackhead" shows it.
type stackHead struct {
	Stack   query.Stack
	Pill    ui.Pill
	Tenant  string
	Tabs    ui.Tabs
	Buttons []ui.Button
	Cancel  *cancelForm // the run that goes on
	Decide  *Decide     // the pending plan
	Notes   []headNote
	Back    string // the address of the stack
}

// Command is a command of the command line for the stack.
func (h stackHead) Command(verb string) string {
	return "terrier " + verb + " " + h.Stack.Key().Argument() + " -n " + h.Stack.Namespace
}

// headNote is an important note on all pages of a stack.
type headNote struct {
	Tone ui.Tone
	Icon string
	Text string
	More string
}

// The tabs of a stack, by the last part of their address.
const (
	tabOverview  = ""
	tabRuns      = "runs"
	tabResources = "resources"
	tabOutputs   = "outputs"
	tabInputs    = "inputs"
	tabGraph     = "graph"
	tabStates    = "states"
	tabDrift     = "drift"
	tabEvents    = "events"
	tabManifest  = "manifest"
)

// stackTabNames are the tabs in their order, each with the right that its row in
// the table of routes takes.
var stackTabNames = []struct {
	path, name string
	right      access.Resource
}{
	{tabOverview, "Overview", access.ResourceStacks}, {tabRuns, "Runs", access.ResourceLog}, {tabResources, "Resources", access.ResourceState},
	{tabOutputs, "Outputs", access.ResourceOutputs}, {tabInputs, "Inputs", access.ResourceStacks}, {tabGraph, "Graph", access.ResourceStacks},
	{tabStates, "States", access.ResourceState}, {tabDrift, "Drift", access.ResourcePlan}, {tabEvents, "Events", access.ResourceStacks},
	{tabManifest, "Manifest", access.ResourceStacks},
}

// StackPath is the address of a stack, for the pages of other packages.
func StackPath(k query.Key) string { return stackPath(k) }

// stackPath is the address of a stack, or of something below it.
func stackPath(k query.Key, below ...string) string {
	parts := []string{"stacks", k.Namespace, k.Address()}
	for _, p := range below {
		if p != "" {
			parts = append(parts, p)
		}
	}
	return ui.PathOf(parts...)
}

// stackTabs are the tabs of a stack. Those that the visitor may not open are
// marked.
func stackTabs(v *Visit, k query.Key, current string) ui.Tabs {
	t := ui.Tabs{Label: "Stack"}
	for _, n := range stackTabNames {
		tab := ui.Tab{Name: n.name, Href: stackPath(k, n.path), Current: n.path == current}
		if n.right != access.ResourceStacks && !tab.Current && v.Can != nil && !v.Can(ofStack("get", n.right, k)) {
			tab.Why = fmt.Sprintf("You may not view this. You need the permission to get %s/%s.", resourceOf(v, k), n.right.Part())
		}
		t.Items = append(t.Items, tab)
	}
	return t
}

// headOf reads the stack that the path names and makes the head of its page,
// with the tab current.
func headOf(v *Visit, current string) (stackHead, error) {
	key := v.Key()
	s, err := v.Backend.Stacks.Get(v.Context, key)
	if err != nil {
		return stackHead{}, err
	}
	return headFor(v, s, current), nil
}

// headFor is headOf for a stack that was read already.
func headFor(v *Visit, s query.Stack, current string) stackHead {
	h := stackHead{Stack: s, Pill: statusPill(rowStatus(v, s)), Tabs: stackTabs(v, s.Key(), current), Back: stackPath(s.Key())}
	if row, ok := v.row(s.Key()); ok {
		h.Tenant = row.Tenant
	}
	may := mayChange(v, s.Key())
	h.Buttons = append(stackButtons(s, may), breakGlassButton(v, s, may))
	h.Cancel = cancelOf(s, may)
	if s.Pending != "" {
		d := decideOf(s, may, "")
		d.overridable(v, s, may)
		h.Decide = &d
	}
	h.Notes = headNotes(s)
	return h
}

// rowStatus is the status of a stack on the board, the same as in the
// list.
func rowStatus(v *Visit, s query.Stack) query.Status {
	if row, ok := v.row(s.Key()); ok {
		return row.Status
	}
	return query.StatusWaiting // it is new, or being deleted
}

// resourceOf is what roles call the kind of a stack.
func resourceOf(v *Visit, k query.Key) string {
	if k.Kind == "" {
		return "terraforms"
	}
	return v.Backend.Kinds.Resource(k.Kind)
}

// mayChange says why the visitor may not change the stack; empty if they may.
func mayChange(v *Visit, k query.Key) string {
	if v.Can == nil || !v.Can(ofStack("patch", access.ResourceStacks, k)) {
		return fmt.Sprintf("You may not change the stack. You need the permission to patch %s in the namespace %s.", resourceOf(v, k), k.Namespace)
	}
	return ""
}

// headNotes are what a user has to know before any action.
func headNotes(s query.Stack) []headNote {
	var out []headNote
	if s.Deleting {
		out = append(out, headNote{ui.ToneWarn, "minus", "The object is being deleted.", ""})
	}
	if s.Suspended {
		out = append(out, headNote{ui.ToneIdle, "pause", "The stack is suspended. Terrier does not plan, apply or check it.", "To continue, choose Resume."})
	}
	if s.Phase == string(stack.BreakGlassSession) {
		out = append(out, headNote{ui.ToneBusy, "person", "A break-glass session is open. Terrier plans and applies nothing.", "It reconciles the stack when the session ends."})
	}
	if l := s.Lock; l != nil {
		n := headNote{ui.ToneWarn, "lock", "Another holder has locked the state.", "Break the lock only if its holder no longer runs."}
		if l.Who != "" {
			n.Text = fmt.Sprintf("%s has locked the state", ui.Cut(200, l.Who))
			if l.Since != "" {
				n.Text += " since " + ui.Cut(60, l.Since)
			}
			n.Text += "."
		}
		out = append(out, n)
	}
	if g := s.Untracked; g != nil {
		out = append(out, headNote{ui.ToneBad, "alert", fmt.Sprintf("The apply %s was interrupted: %s may exist.", g.Run, query.Count(g.Count(), "untracked resource")), "To import them, choose Repair."})
	}
	if f := s.FailingCheckBlocks; f != nil {
		out = append(out, headNote{ui.ToneWarn, "alert", ui.Visible(ui.Cut(1000, f.String())) + ".", "A check block never prevents an apply."})
	}
	if s.Destroy {
		out = append(out, headNote{ui.ToneWarn, "minus", "destroy is set: Terrier destroys all resources of the stack.", ""})
	}
	return out
}

// modes are the modes in a few words.
var modes = map[stack.Mode]string{
	stack.Auto: "applies every plan", stack.Manual: "applies what is approved",
	stack.PlanOnly: "plans, never applies", stack.DriftOnly: "only checks for drift",
}
