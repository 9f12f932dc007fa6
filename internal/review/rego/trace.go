package rego

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/open-policy-agent/opa/v1/ast"
	"github.com/open-policy-agent/opa/v1/topdown"
)

// RuleTrace is what came of one rule in an evaluation.
type RuleTrace struct {
	Rule  string   `json:"rule"` // its package and name
	At    string   `json:"at"`   // its file and line
	Fired int      `json:"fired"`
	With  []string `json:"with,omitempty"`  // the values of its variables, of the first times
	Stops []Stop   `json:"stops,omitempty"` // its conditions that did not hold; the last ones in the text of the rule first
}

// Stop is a condition that did not hold.
type Stop struct {
	At        string `json:"at"`
	Condition string `json:"condition"` // the line in the file
	Times     int    `json:"times"`
}

// Bounds of what is shown of one rule.
const (
	withShown  = 5
	valueBytes = 80
)

// tracer notes what came of each rule, and the steps if it is asked to.
type tracer struct {
	set   *Set
	steps bool

	events []*topdown.Event
	cut    bool
	rules  map[*ast.Location]*ruled
	in     map[uint64]*ruled // by the query that evaluates the body of a rule
}

// ruled is a rule that was asked for.
type ruled struct {
	rule  *ast.Rule
	fired int
	with  []string
	stops map[int]int // how often a condition did not hold, by its line
}

var _ topdown.QueryTracer = (*tracer)(nil)

func newTracer(s *Set, steps bool) *tracer {
	return &tracer{set: s, steps: steps, rules: map[*ast.Location]*ruled{}, in: map[uint64]*ruled{}}
}

// Enabled implements topdown.QueryTracer.
func (*tracer) Enabled() bool { return true }

// Config implements topdown.QueryTracer.
func (*tracer) Config() topdown.TraceConfig { return topdown.TraceConfig{PlugLocalVars: true} }

// TraceEvent implements topdown.QueryTracer.
func (t *tracer) TraceEvent(e topdown.Event) {
	if t.steps && len(t.events) < stepsShown {
		t.events = append(t.events, &e)
	} else {
		t.cut = true
	}
	if rule, ok := e.Node.(*ast.Rule); ok {
		t.ofRule(rule, e)
		return
	}
	r := t.in[e.QueryID]
	if expr, ok := e.Node.(*ast.Expr); ok && r != nil && e.Op == topdown.FailOp && expr.Location != nil && expr.Location.File == r.rule.Location.File {
		r.stops[expr.Location.Row]++
	}
}

func (t *tracer) ofRule(rule *ast.Rule, e topdown.Event) {
	if rule.Location == nil || rule.Default {
		return
	}
	r := t.rules[rule.Location]
	if r == nil {
		r = &ruled{rule: rule, stops: map[int]int{}}
		t.rules[rule.Location] = r
	}
	switch e.Op {
	case topdown.EnterOp:
		t.in[e.QueryID] = r
	case topdown.ExitOp:
		if r.fired++; len(r.with) < withShown {
			if with := values(e); with != "" {
				r.with = append(r.with, with)
			}
		}
	}
}

// values are the variables of a rule, as its author called them, with their values. An
// object is shown by its address.
func values(e topdown.Event) string {
	if e.Locals == nil {
		return ""
	}
	var all []string
	e.Locals.Iter(func(k, v ast.Value) bool {
		name, ok := k.(ast.Var)
		if !ok {
			return false
		}
		author := e.LocalMetadata[name].Name
		if author == "" || author.IsWildcard() || author.IsGenerated() {
			return false
		}
		if value, ok := inShort(v); ok {
			all = append(all, string(author)+" = "+value)
		}
		return false
	})
	slices.Sort(all)
	return strings.Join(slices.Compact(all), ", ")
}

func inShort(v ast.Value) (string, bool) {
	switch v := v.(type) {
	case ast.String, ast.Number, ast.Boolean, ast.Null:
		return cut(clean(v.String()), valueBytes), true
	case ast.Object:
		if address := v.Get(ast.StringTerm("address")); address != nil {
			return cut(clean(address.Value.String()), valueBytes), true
		}
	}
	return "", false
}

// ruleTraces are the rules that were asked for, in the order of their text.
func (t *tracer) ruleTraces() []RuleTrace {
	all := make([]*ruled, 0, len(t.rules))
	for _, r := range t.rules {
		all = append(all, r)
	}
	slices.SortFunc(all, func(a, b *ruled) int {
		x, y := a.rule.Location, b.rule.Location
		return cmp.Or(cmp.Compare(x.File, y.File), cmp.Compare(x.Row, y.Row), cmp.Compare(x.Col, y.Col))
	})
	out := []RuleTrace{}
	for _, r := range all {
		at := r.rule.Location
		one := RuleTrace{Rule: strings.TrimPrefix(r.rule.Ref().GroundPrefix().String(), "data."), At: fmt.Sprintf("%s:%d", at.File, at.Row), Fired: r.fired, With: r.with}
		if r.rule.Module != nil {
			one.Rule = strings.TrimPrefix(r.rule.Module.Package.Path.String(), "data.") + "." + headName(r.rule.Head)
		}
		for line, n := range r.stops {
			one.Stops = append(one.Stops, Stop{At: fmt.Sprintf("%s:%d", at.File, line), Condition: t.set.source.line(at.File, line), Times: n})
		}
		slices.SortFunc(one.Stops, func(a, b Stop) int { return cmp.Or(cmp.Compare(lineOf(b), lineOf(a)), cmp.Compare(a.At, b.At)) })
		out = append(out, one)
	}
	return out
}

func lineOf(s Stop) int {
	var n int
	if _, err := fmt.Sscan(s.At[strings.LastIndexByte(s.At, ':')+1:], &n); err != nil {
		return 0
	}
	return n
}

// line is one line of the text of the policy.
func (s Source) line(file string, n int) string {
	i := 0
	for line := range strings.Lines(s.Modules[file]) {
		if i++; i == n {
			return cut(clean(strings.TrimSpace(line)), 2*valueBytes)
		}
	}
	return ""
}

// text are the steps as a text.
func (t *tracer) text() []string {
	if !t.steps {
		return nil
	}
	var b strings.Builder
	topdown.PrettyTraceWithLocation(&b, t.events)
	out := strings.Split(strings.TrimRight(b.String(), "\n"), "\n")
	if t.cut {
		out = append(out, fmt.Sprintf("the evaluation has more than %d steps; the others are not shown", stepsShown))
	}
	return out
}
