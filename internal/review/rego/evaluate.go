package rego

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/open-policy-agent/opa/v1/ast"
	"github.com/open-policy-agent/opa/v1/rego"
	"github.com/open-policy-agent/opa/v1/topdown"
	"github.com/open-policy-agent/opa/v1/topdown/print"

	"github.com/terrier-iac/terrier/internal/policy"
)

// Question is one policy asked about one plan.
type Question struct {
	Policy     string // how its findings call it
	Input      *Input
	Parameters any          // JSON of the policy's author; nil for none
	Explain    *Explanation // nil unless a user wants to know how the answer came about
}

// Explanation is how the answer of a policy came about.
type Explanation struct {
	Trace  []string    // the steps of the evaluation, if Steps is set
	Rules  []RuleTrace // which rules fired, and why others did not, if Why or Steps is set
	Prints []string    // what the policy printed
	Why    bool
	Steps  bool
}

// stepsShown bounds Explanation.Trace.
const stepsShown = 20_000

// evaluation is the name of the finding of a policy that failed as a whole.
const evaluation = "evaluation"

// Evaluate asks the policy. It always answers: a panic, an error, a deadline and a
// result of the wrong type are findings that hold the plan.
func (s *Set) Evaluate(ctx context.Context, q Question) (findings []policy.Finding) {
	defer func() {
		if p := recover(); p != nil {
			findings = []policy.Finding{policy.Failed(q.Policy, evaluation, fmt.Sprintf("the policy could not be evaluated: the evaluation broke off: %.200v", p))}
		}
	}()
	if missing := q.Input.missing(s); len(missing) > 0 {
		findings = append(findings, policy.Failed(q.Policy, "truncated", fmt.Sprintf(
			"the plan is too large for the policy to see all of it: %s is cut or left out; split the stack", strings.Join(missing, ", "))))
	}
	input := q.Input.shown(s.source.Format, q.Parameters)
	deadlined, cancel := context.WithTimeoutCause(ctx, Deadline, fmt.Errorf("it took longer than %v", Deadline))
	defer cancel()
	answer, err := s.run(deadlined, s.all, q, input)
	if err == nil {
		return s.bounded(q.Policy, append(findings, s.findings(q.Policy, s.rules, answer)...))
	}
	if deadlined.Err() != nil || stopped(err) || len(s.rules) == 1 {
		return append(findings, policy.Failed(q.Policy, evaluation, unable(err)))
	}
	// One rule that fails must not hide what the others say: a plan that one denies would
	// only be held.
	for _, r := range s.rules {
		found, err := s.alone(deadlined, r, q, input)
		if err != nil {
			found = []policy.Finding{policy.Failed(q.Policy, r.name, unable(err))}
		}
		findings = append(findings, found...)
	}
	return s.bounded(q.Policy, findings)
}

func (s *Set) alone(ctx context.Context, r rule, q Question, input ast.Value) ([]policy.Finding, error) {
	one := []rule{r}
	query, err := s.prepare(ctx, s.query(one))
	if err != nil {
		return nil, err
	}
	q.Explain = nil // the first evaluation has it
	answer, err := s.run(ctx, query, q, input)
	if err != nil {
		return nil, err
	}
	return s.findings(q.Policy, one, answer), nil
}

// Unable is the finding of a policy that could not be evaluated.
func Unable(name string, err error) policy.Finding {
	return policy.Failed(name, evaluation, unable(err))
}

func unable(err error) string { return text("the policy could not be evaluated: " + err.Error()) }

// stop is why an evaluation was cancelled.
type stop struct{ error }

func stopped(err error) bool {
	_, ok := errors.AsType[stop](err)
	return ok
}

// run evaluates a query that gives one object.
func (s *Set) run(ctx context.Context, query rego.PreparedEvalQuery, q Question, input ast.Value) (ast.Object, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	done := make(chan struct{})
	defer func() {
		close(done)
		cancel(nil)
	}()
	go watch(done, cancel)
	options := []rego.EvalOption{rego.EvalParsedInput(input), rego.EvalTime(q.now())}
	var traced *tracer
	if q.Explain != nil {
		options = append(options, rego.EvalPrintHook(printed{q.Explain}))
		if q.Explain.Steps || q.Explain.Why {
			traced = newTracer(s, q.Explain.Steps)
			// The index passes over rules whose conditions on the input cannot hold. A user wants
			// to read which condition it was.
			options = append(options, rego.EvalQueryTracer(traced), rego.EvalRuleIndexing(false))
		}
	}
	results, err := query.Eval(ctx, options...)
	if traced != nil {
		q.Explain.Rules, q.Explain.Trace = traced.ruleTraces(), traced.text()
	}
	switch {
	case ctx.Err() != nil:
		return nil, stop{context.Cause(ctx)}
	case err != nil:
		return nil, plainly(err)
	case len(results) != 1:
		return nil, fmt.Errorf("it gave %d results, not one", len(results))
	}
	t, ok := results[0].Bindings["result"].(*ast.Term)
	if !ok {
		return nil, errors.New("it gave no result")
	}
	object, ok := t.Value.(ast.Object)
	if !ok {
		return nil, errors.New("its result is no object")
	}
	return object, nil
}

func (q Question) now() time.Time {
	if q.Input.Now.IsZero() {
		return time.Unix(0, 0).UTC()
	}
	return q.Input.Now
}

// plainly is an error of the evaluation without its code.
func plainly(err error) error {
	e, ok := errors.AsType[*topdown.Error](err)
	if !ok {
		return err
	}
	at := ""
	if e.Location != nil {
		at = e.Location.String() + ": "
	}
	return errors.New(at + e.Message)
}

// printed takes what policies print.
type printed struct{ *Explanation }

// Print implements print.Hook.
func (p printed) Print(c print.Context, msg string) error {
	if len(p.Prints) < stepsShown {
		at := ""
		if c.Location != nil {
			at = c.Location.String() + ": "
		}
		p.Prints = append(p.Prints, at+text(msg))
	}
	return nil
}
