package rego

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/open-policy-agent/opa/v1/ast"
	"github.com/open-policy-agent/opa/v1/rego"

	"github.com/terrier-iac/terrier/internal/policy"
)

// planned are the parts of the input that are known once there is a plan.
var planned = [...]string{"plan", "changes", "counts", "drift", "modules", "providers", "incomplete", "engine", "previous", "run"}

// Early are the findings that a program has whatever the plan will be: it is evaluated with
// what is known of a stack, and a finding that depends on anything else is left out. Only
// programs in the format of Terrier see more than the plan. An error means that nothing can be
// said yet; the plan is judged in any case.
func (s *Set) Early(ctx context.Context, name string, known map[string]any, parameters any) (findings []policy.Finding, err error) {
	if s.source.Format != Terrier {
		return nil, nil
	}
	defer func() {
		if p := recover(); p != nil {
			findings, err = nil, invalid(fmt.Errorf("the evaluation broke off: %.200v", p))
		}
	}()
	if parameters == nil {
		parameters = map[string]any{}
	}
	in := maps.Clone(known)
	in["parameters"] = parameters
	var unknown []string
	for _, part := range planned {
		delete(in, part)
		unknown = append(unknown, "input."+part)
	}
	input, err := ast.InterfaceToValue(in)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	done := make(chan struct{})
	defer func() {
		close(done)
		cancel(nil)
	}()
	go watch(done, cancel)
	compiler, err := s.foreseeing()
	if err != nil {
		return nil, err
	}
	answer := ast.NewObject()
	for _, r := range s.rules {
		found, err := s.certain(ctx, compiler, r, input, unknown)
		if err != nil {
			return nil, err
		}
		answer.Insert(ast.StringTerm(r.ref), ast.ArrayTerm(ast.NewTerm(found)))
	}
	return s.bounded(name, s.findings(name, s.rules, answer)), nil
}

// certain are the elements of a rule that depend on nothing unknown: an evaluation of what is
// known leaves no condition of them.
func (s *Set) certain(ctx context.Context, compiler *ast.Compiler, r rule, input ast.Value, unknown []string) (ast.Set, error) {
	out := ast.NewSet()
	left, err := rego.New(
		rego.Query(r.ref+"[given]"), rego.Compiler(compiler), rego.Store(s.store), rego.Capabilities(allowed()),
		rego.ParsedInput(input), rego.Unknowns(unknown), rego.StrictBuiltinErrors(!s.source.Lenient),
	).Partial(ctx)
	if err != nil {
		return nil, plainly(err)
	}
	for _, body := range left.Queries {
		if t := bound(body); t != nil {
			out.Add(t)
		}
	}
	return out, nil
}

// bound is the value that a query gives to its one variable without any condition, else nil.
func bound(body ast.Body) *ast.Term {
	if len(body) != 1 || body[0].Negated || len(body[0].With) > 0 || !body[0].IsEquality() {
		return nil
	}
	sides := body[0].Operands()
	i := slices.IndexFunc(sides, func(t *ast.Term) bool { v, ok := t.Value.(ast.Var); return ok && v == "given" })
	if len(sides) != 2 || i < 0 || !sides[1-i].IsGround() {
		return nil
	}
	return sides[1-i]
}

// foreseeing compiles the modules without the word every: an evaluation in part breaks off at
// one whose elements are not known.
func (s *Set) foreseeing() (*ast.Compiler, error) {
	modules, found := map[string]*ast.Module{}, false
	for name, m := range s.modules {
		m = m.Copy()
		ast.WalkExprs(m, func(e *ast.Expr) bool {
			if every, ok := e.Terms.(*ast.Every); ok {
				e.Terms, found = counted(every), true
			}
			return false
		})
		modules[name] = m
	}
	if !found {
		return s.compiler, nil
	}
	c := newCompiler()
	if c.Compile(modules); c.Failed() {
		return nil, invalid(c.Errors)
	}
	return c, nil
}

// counted says the same as every: that no element is without a solution of the body, and that
// there is a value that has the elements.
//
//	[domain, count([true | some key, value in domain; count([true | body]) == 0])] = [_, 0]
func counted(every *ast.Every) []*ast.Term {
	count := func(body ast.Body) *ast.Term {
		return ast.CallTerm(ast.NewTerm(ast.Count.Ref()), ast.ArrayComprehensionTerm(ast.BooleanTerm(true), body))
	}
	in := ast.CallTerm(ast.NewTerm(ast.Member.Ref()), every.Value, every.Domain)
	if every.Key != nil {
		in = ast.CallTerm(ast.NewTerm(ast.MemberWithKey.Ref()), every.Key, every.Value, every.Domain)
	}
	unsolved := ast.NewBody(
		&ast.Expr{Terms: &ast.SomeDecl{Symbols: []*ast.Term{in}}},
		ast.Equality.Expr(count(every.Body), ast.InternedTerm(0)),
	)
	return ast.Equality.Expr(
		ast.ArrayTerm(every.Domain.Copy(), count(unsolved)), ast.ArrayTerm(ast.VarTerm(ast.WildcardPrefix+"every"), ast.InternedTerm(0)),
	).Terms.([]*ast.Term)
}
