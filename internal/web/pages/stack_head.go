package pages

import (
	"fmt"

	"github.com/terrier-iac/terrier/internal/access"
	"github.com/terrier-iac/terrier/internal/query"
	"github.com/terrier-iac/terrier/internal/stack"
)

// stackHead is the upper part of every page below a stack: what it is, how it
// stands, what can be done, and the tabs. The part "stackhead" shows it.
type stackHead struct {
	Stack   query.Stack
	Pill    Pill
	Tenant  string
	Tabs    Tabs
	Buttons []Button
	Decide  *Decide // the plan that waits
	Notes   []headNote
	Back    string // the address of the stack
}

// headNote is something about a stack that has to be seen on each of its pages.
type headNote struct {
	Tone Tone
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
}

// stackPath is the address of a stack, or of something below it.
func stackPath(k query.Key, below ...string) string {
	parts := []string{"stacks", k.Namespace, k.Name}
	for _, p := range below {
		if p != "" {
			parts = append(parts, p)
		}
	}
	return pathOf(parts...)
}

// stackTabs are the tabs of a stack. Those that the visitor may not open say so
// beforehand.
func stackTabs(v *Visit, k query.Key, current string) Tabs {
	t := Tabs{Label: "Stack"}
	for _, n := range stackTabNames {
		tab := Tab{Name: n.name, Href: stackPath(k, n.path), Current: n.path == current}
		if n.right != access.ResourceStacks && !tab.Current && v.Can != nil && !v.Can(access.Request{Verb: "get", Resource: n.right, Namespace: k.Namespace, Name: k.Name}) {
			tab.Why = "You may not see this: it takes the right to get terraforms/" + n.right.Part() + "."
		}
		t.Items = append(t.Items, tab)
	}
	return t
}

// headOf reads the stack that the path names and makes the head of its page,
// with the tab current.
func headOf(v *Visit, current string) (stackHead, error) {
	key := v.Key()
	s, err := v.House.Stacks.Get(v.Context, key)
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
	h.Buttons = append(stackButtons(s, may), glassButton(v, s, may))
	if s.Pending != "" {
		d := decideOf(s, may, "")
		h.Decide = &d
	}
	h.Notes = headNotes(s)
	return h
}

// rowStatus is how a stack stands on the board, which knows it as everybody else
// sees it.
func rowStatus(v *Visit, s query.Stack) query.Status {
	if row, ok := v.row(s.Key()); ok {
		return row.Status
	}
	return query.StatusWaiting // it is new, or on its way out
}

// mayChange says why the visitor may not change the stack; empty if they may.
func mayChange(v *Visit, k query.Key) string {
	if v.Can == nil || !v.Can(access.Request{Verb: "patch", Resource: access.ResourceStacks, Namespace: k.Namespace, Name: k.Name}) {
		return fmt.Sprintf("You may not change the stack: it takes the right to patch terraforms in the namespace %s.", k.Namespace)
	}
	return ""
}

// headNotes are what somebody has to know before they do anything.
func headNotes(s query.Stack) []headNote {
	var out []headNote
	if s.Deleting {
		out = append(out, headNote{ToneWarn, "minus", "The object is being deleted.", ""})
	}
	if s.Suspended {
		out = append(out, headNote{ToneIdle, "pause", "Suspended: nothing is planned, applied or looked at.", "Resume it to go on."})
	}
	if s.Phase == string(stack.GlassBroken) {
		out = append(out, headNote{ToneBusy, "person", "Somebody works on it by hand: nothing is planned or applied by itself.", "It goes on when the session ends."})
	}
	if l := s.Lock; l != nil {
		n := headNote{ToneWarn, "lock", "Somebody else holds the lock on the state.", "Break it only if its holder is dead."}
		if l.Who != "" {
			n.Text = fmt.Sprintf("%s holds the lock on the state", cut(200, l.Who))
			if l.Since != "" {
				n.Text += " since " + cut(60, l.Since)
			}
			n.Text += "."
		}
		out = append(out, n)
	}
	if g := s.Untracked; g != nil {
		out = append(out, headNote{ToneBad, "alert", fmt.Sprintf("The apply %s was cut short: %s that it built may be in no state.", g.Run, query.Count(len(g.Objects), "object")), "Repair brings them in."})
	}
	if s.Destroy {
		out = append(out, headNote{ToneWarn, "minus", "destroy is set: everything that the stack built is taken down.", ""})
	}
	return out
}

// modes are the ways of working in a few words.
var modes = map[stack.Mode]string{
	stack.Auto: "applies every plan", stack.Manual: "applies what is approved",
	stack.PlanOnly: "plans, never applies", stack.DriftOnly: "only looks for drift",
}
