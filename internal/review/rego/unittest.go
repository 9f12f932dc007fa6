package rego

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/open-policy-agent/opa/v1/ast"
	"github.com/open-policy-agent/opa/v1/cover"
	"github.com/open-policy-agent/opa/v1/storage/inmem"
	"github.com/open-policy-agent/opa/v1/tester"
	"github.com/open-policy-agent/opa/v1/topdown"
)

// Tests is what came of the unit tests of a policy.
type Tests struct {
	Results  []TestResult `json:"results"`
	Coverage float64      `json:"coverage"` // percent of the lines of the modules that are no tests
	Files    []Covered    `json:"files"`
	Lines    int          `json:"lines"` // of those modules, that can be evaluated
}

// TestResult is what came of one test: a rule whose name begins with test_.
type TestResult struct {
	Name    string        `json:"name"`             // its package and rule
	At      string        `json:"at"`               // its file and line
	Failed  string        `json:"failed,omitempty"` // the file and line of the condition that did not hold
	Text    string        `json:"text,omitempty"`   // that line
	Outcome string        `json:"outcome"`
	Error   string        `json:"error,omitempty"`
	Output  string        `json:"output,omitempty"` // what was printed
	Took    time.Duration `json:"took"`
}

// The outcomes of a test.
const (
	Passed  = "pass"
	Fails   = "fail"
	Errored = "error"
	Skipped = "skip"
)

// Covered is how much of one file the tests evaluate.
type Covered struct {
	File     string  `json:"file"`
	Coverage float64 `json:"coverage"`
	Missing  []int   `json:"missing,omitempty"` // lines that no test evaluates
}

// OK reports whether there are tests, and none of them failed.
func (t Tests) OK() bool {
	return len(t.Results) > 0 && !slices.ContainsFunc(t.Results, func(r TestResult) bool { return r.Outcome == Fails || r.Outcome == Errored })
}

// RunTests runs the unit tests of a policy, which was read with its tests, with the
// functions and bounds that policies have. Only tests whose name matches the regular
// expression filter run.
func RunTests(ctx context.Context, source Source, filter string) (Tests, error) {
	boundBuiltins()
	if source.Format == Weave {
		return Tests{}, invalid(fmt.Errorf("a Policy of %s has no unit tests", WeaveGroup))
	}
	s := &Set{source: source, modules: map[string]*ast.Module{}}
	if err := s.parse(); err != nil {
		return Tests{}, invalid(err)
	}
	covered := cover.New()
	results, err := runTests(ctx, s, filter, func(r *tester.Runner) { r.SetCoverageQueryTracer(covered) })
	if err != nil {
		return Tests{}, err
	}
	var out Tests
	var failed []string
	for _, r := range results {
		out.Results = append(out.Results, outcome(r))
		if r.Fail {
			failed = append(failed, regexp.QuoteMeta(r.Package+"."+r.Name))
		}
	}
	out.cover(covered.Report(s.modules))
	if len(failed) > 0 { // once more, with the steps of those that fail
		traced, err := runTests(ctx, s, "^("+strings.Join(failed, "|")+")$", func(r *tester.Runner) { r.EnableTracing(true) })
		if err != nil {
			return Tests{}, err
		}
		for _, r := range traced {
			out.stopped(s, r)
		}
	}
	slices.SortFunc(out.Results, func(a, b TestResult) int { return cmp.Or(strings.Compare(a.Name, b.Name), strings.Compare(a.At, b.At)) })
	return out, ctx.Err()
}

// runTests runs the tests whose names match a filter.
func runTests(ctx context.Context, s *Set, filter string, with func(*tester.Runner)) ([]*tester.Result, error) {
	data := s.source.Data
	if data == nil {
		data = map[string]any{}
	}
	store := inmem.NewFromObject(data)
	txn, err := store.NewTransaction(ctx)
	if err != nil {
		return nil, err
	}
	defer store.Abort(ctx, txn)
	runner := tester.NewRunner().SetCompiler(newCompiler()).SetStore(store).SetModules(maps.Clone(s.modules)).
		CapturePrintOutput(true).RaiseBuiltinErrors(!s.source.Lenient).SetTimeout(Deadline).SetParallel(1)
	with(runner)
	if filter != "" {
		runner.Filter(filter)
	}
	results, err := runner.RunTests(ctx, txn)
	if err != nil {
		if errs, ok := err.(ast.Errors); ok {
			err = explained(errs)
		}
		return nil, invalid(err)
	}
	var out []*tester.Result
	for r := range results {
		if r != nil {
			out = append(out, r)
		}
	}
	return out, nil
}

// stopped says where a test failed: at the last condition in its file that did not hold.
func (t *Tests) stopped(s *Set, r *tester.Result) {
	failed := outcome(r)
	for i := range t.Results {
		to := &t.Results[i]
		if to.Name != failed.Name || to.At != failed.At || r.Location == nil {
			continue
		}
		for _, e := range slices.Backward(r.Trace) {
			if e.Op == topdown.FailOp && e.Location != nil && e.Location.File == r.Location.File && e.Location.Row > 0 {
				to.Failed, to.Text = fmt.Sprintf("%s:%d", e.Location.File, e.Location.Row), s.source.line(e.Location.File, e.Location.Row)
				return
			}
		}
	}
}

func outcome(r *tester.Result) TestResult {
	t := TestResult{Name: strings.TrimPrefix(r.Package, "data.") + "." + r.Name, Outcome: Passed, Output: string(r.Output), Took: r.Duration}
	if r.Location != nil {
		t.At = fmt.Sprintf("%s:%d", r.Location.File, r.Location.Row)
	}
	switch {
	case r.Error != nil:
		t.Outcome, t.Error = Errored, plainly(r.Error).Error()
	case r.Skip:
		t.Outcome = Skipped
	case r.Fail:
		t.Outcome = Fails
	}
	return t
}

// cover keeps what is covered of the modules that are no tests.
func (t *Tests) cover(report cover.Report) {
	var covered, all int
	for _, file := range slices.Sorted(maps.Keys(report.Files)) {
		if strings.HasSuffix(file, "_test.rego") {
			continue
		}
		r := report.Files[file]
		c := Covered{File: file, Coverage: r.Coverage}
		for _, missing := range r.NotCovered {
			for line := missing.Start.Row; line <= missing.End.Row; line++ {
				c.Missing = append(c.Missing, line)
			}
		}
		covered += r.CoveredLines
		all += r.CoveredLines + r.NotCoveredLines
		t.Files = append(t.Files, c)
	}
	if t.Lines = all; all > 0 {
		t.Coverage = 100 * float64(covered) / float64(all)
	}
}
