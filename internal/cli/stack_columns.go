package cli

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/terrier-iac/terrier/internal/query"
)

// stackColumns are the columns of "terrier get", in their order. To add a column,
// add it here: its heading, when it is shown, and its cell. The columns of the page
// are in internal/web/pages/stacks_columns.go.
var stackColumns = []stackColumn{
	{"NAMESPACE", func(v listView) bool { return v.everywhere }, func(_ listView, s query.Stack) cell { return plain(s.Namespace) }},
	{"KIND", func(v listView) bool { return v.kinds }, func(v listView, s query.Stack) cell { return plain(v.known.Spelled(s.Kind)) }},
	{"NAME", always, func(_ listView, s query.Stack) cell { return plain(s.Name) }},
	{"READY", always, func(_ listView, s query.Stack) cell { return cell{s.Ready, statusColour(s)} }},
	{"PHASE", always, func(_ listView, s query.Stack) cell { return cell{s.Phase, statusColour(s)} }},
	{"PLAN", always, func(_ listView, s query.Stack) cell { return plain(planText(s)) }},
	{"REVISION", always, func(_ listView, s query.Stack) cell { return plain(shortRevision(s.Revision)) }},
	{"AGE", always, func(v listView, s query.Stack) cell { return plain(age(v.now, s.Created)) }},
	{"MODE", ifWide, func(_ listView, s query.Stack) cell { return plain(string(s.Mode)) }},
	{"SOURCE", ifWide, func(_ listView, s query.Stack) cell { return plain(s.Source) }},
	{"SINCE", ifWide, func(v listView, s query.Stack) cell { return plain(age(v.now, s.Since)) }},
	{"NEXT", ifWide, nextAttempt},
	{"MAY DRIFT", ifWide, mayDrift},
	{"MESSAGE", always, stackMessage},
}

type stackColumn struct {
	head  string
	shown func(listView) bool
	cell  func(listView, query.Stack) cell
}

// listView is how a list of stacks is printed.
type listView struct {
	everywhere bool // the stacks of all namespaces
	wide       bool
	kinds      bool        // the list has stacks of several kinds
	known      query.Kinds // that there are
	now        time.Time
}

func always(listView) bool   { return true }
func ifWide(v listView) bool { return v.wide }

func (p stackCommands) listView(f format, filter query.Filter) listView {
	return listView{everywhere: filter.Namespace == "", wide: f == forWide, known: p.connection.StackKinds(), now: p.Now()}
}

// table is a table without rows.
func (v listView) table() *table {
	t := &table{}
	for _, c := range stackColumns {
		if c.shown(v) {
			t.head = append(t.head, c.head)
		}
	}
	return t
}

func (v listView) row(s query.Stack) []cell {
	var out []cell
	for _, c := range stackColumns {
		if c.shown(v) {
			out = append(out, c.cell(v, s))
		}
	}
	return out
}

// mayDrift is how many attributes drifted that a rule lets drift.
func mayDrift(_ listView, s query.Stack) cell {
	if n := s.Tolerated.Total(); n > 0 {
		return plain(strconv.Itoa(n))
	}
	return cell{}
}

func nextAttempt(v listView, s query.Stack) cell {
	if s.NextAttempt.IsZero() {
		return cell{}
	}
	return plain(span(s.NextAttempt.Sub(v.now)))
}

// messageWidth is how much of a message a table shows unless it is wide.
const messageWidth = 72

// stackMessage begins with the check blocks that fail: a stack may be ready beside them.
func stackMessage(v listView, s query.Stack) cell {
	message := s.Message
	if f := s.FailingCheckBlocks; f != nil {
		message = strings.TrimSuffix(query.Count(f.Count(), "failing check")+"; "+message, "; ")
	}
	switch {
	case v.wide:
		return plain(message)
	case s.Ready == "False":
		return plain(ends(message, messageWidth)) // the cause of a failure is mostly at its end
	default:
		return plain(cut(message, messageWidth))
	}
}

func statusColour(s query.Stack) string {
	switch {
	case s.Stalled || s.Ready == "False":
		return red
	case s.Ready == "True":
		return green
	default:
		return yellow
	}
}

// planText is the pending plan and its changes.
func planText(s query.Stack) string {
	text := s.Pending
	if s.Plan != nil {
		c := s.Plan.Changes
		text = fmt.Sprintf("%s +%d ~%d -%d", s.Pending, c.Add, c.Change, c.Destroy)
	}
	if s.Rejection != nil {
		text += " (rejected)"
	}
	return text
}

// shortRevision cuts the hash of a revision.
func shortRevision(r string) string {
	i := strings.LastIndexByte(r, ':')
	if i < 0 || len(r)-i-1 <= 10 {
		return r
	}
	return r[:i+11]
}
