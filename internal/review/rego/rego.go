// Package rego evaluates policies that are written in Rego, in this process; package worker
// gives them one of their own. It reads what a policy says of one plan as findings, and decides nothing.
// A policy that cannot be evaluated gives a finding that holds the plan, and never none.
//
// Policies have no network, no environment, no files and no randomness; see allowed. The
// bounds of time, memory and results are in bounds.go. Three formats are read: that of
// Terrier, directories of conftest, and Policy objects of the Weave policy agent.
//
// Start reading at Compile and Set.Evaluate.
package rego

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/open-policy-agent/opa/v1/ast"
	"github.com/open-policy-agent/opa/v1/rego"
	"github.com/open-policy-agent/opa/v1/storage"
	"github.com/open-policy-agent/opa/v1/storage/inmem"

	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/policy"
	"github.com/terrier-iac/terrier/internal/stack"
)

// Format says what a policy is shown, and how its rules are called.
type Format string

// The formats. The zero value is that of Terrier.
const (
	Terrier  Format = "terrier"  // package terrier with deny, hold, warn and allow
	Conftest Format = "conftest" // package main, or others, with deny, violation and warn; the input is the plan
	Weave    Format = "weave"    // violation; the input is the review of an object
)

// Version says in which version of the language modules are written.
type Version string

// The versions. The zero value tries both for each module, the newer one first.
const (
	V0 Version = "v0"
	V1 Version = "v1"
)

// Source is the text of a policy, and how it is to be read. Two sources with the same
// Digest give the same findings for the same input.
type Source struct {
	Format     Format
	Modules    map[string]string // Rego by the name of its file
	Data       map[string]any    // what the policy reads below data
	Version    Version
	Namespaces []string // of conftest: the packages whose rules count; main if empty, all if "*"
	Lenient    bool     // a built-in function that fails is undefined, as conftest has it, and no error
	Severity   string   // of findings that have none
	Rule       string   // of weave: what findings call their rule
	Title      string   // of weave: the message of findings that have none
	Audit      bool     // of weave: findings warn and do not deny
}

// Digest identifies the source.
func (s Source) Digest() string { return stack.Digest(s) }

// Bounds of one source.
const (
	modulesKept = 1000    // modules of one policy
	moduleBytes = 1 << 20 // of one module
	sourceBytes = 4 << 20 // of all modules
	dataBytes   = 4 << 20 // of all data, as JSON
)

// Set is a policy that was compiled. It may be evaluated by several goroutines at once.
type Set struct {
	source   Source
	digest   string
	compiler *ast.Compiler
	modules  map[string]*ast.Module
	store    storage.Store
	rules    []rule
	all      rego.PreparedEvalQuery
	mentions map[string]bool // the texts in the modules
	walks    bool            // it may read any part of its input
	size     int

	parameters map[string]parameter // that it declares; nil if it declares none
}

// rule is one rule that gives findings.
type rule struct {
	name   string // of findings that name none
	ref    string // data.terrier.deny
	effect policy.Effect
	except string // of conftest: the name that exceptions have for it
	ns     string // of conftest: its package
}

// Digest identifies what was compiled.
func (s *Set) Digest() string { return s.digest }

// Size is how many bytes its modules have, and its data as JSON.
func (s *Set) Size() int { return s.size }

// Rules names the rules that give findings, in order.
func (s *Set) Rules() []string {
	var names []string
	for _, r := range s.rules {
		names = append(names, strings.TrimPrefix(r.ref, "data."))
	}
	return names
}

// Compile makes a source ready to be evaluated. Its error says in which file and line
// something is wrong.
func Compile(ctx context.Context, source Source) (*Set, error) {
	boundBuiltins()
	if source.Format == "" {
		source.Format = Terrier
	}
	s := &Set{source: source, digest: source.Digest(), modules: map[string]*ast.Module{}, mentions: map[string]bool{}}
	if err := s.parse(); err != nil {
		return nil, invalid(err)
	}
	s.compiler = newCompiler()
	if s.compiler.Compile(s.modules); s.compiler.Failed() {
		return nil, invalid(explained(s.compiler.Errors))
	}
	if err := s.findRules(); err != nil {
		return nil, invalid(err)
	}
	var err error
	if s.parameters, err = declared(s); err != nil {
		return nil, invalid(err)
	}
	data := maps.Clone(source.Data)
	if data == nil {
		data = map[string]any{}
	}
	if _, has := data["conftest"]; source.Format == Conftest && !has {
		data["conftest"] = map[string]any{"file": map[string]any{"name": "plan.json", "dir": ""}} // as conftest has it
	}
	b, err := json.Marshal(data)
	if err != nil || len(b) > dataBytes {
		return nil, invalid(fmt.Errorf("its data are larger than %d MiB, or are no JSON", dataBytes>>20))
	}
	s.size += len(b)
	s.store = inmem.NewFromObjectWithOpts(data, inmem.OptReturnASTValuesOnRead(true))
	s.notice()
	s.all, err = s.prepare(ctx, s.query(s.rules))
	if err != nil {
		return nil, invalid(err)
	}
	return s, nil
}

func invalid(err error) error {
	return fault.New(fault.Invalid, "PolicyInvalid", short{fmt.Errorf("compiling the policy: %w", err)})
}

// short is an error that is cut to the size of a message: the library quotes whole lines.
type short struct{ error }

func (s short) Error() string { return text(s.error.Error()) }
func (s short) Unwrap() error { return s.error }

func newCompiler() *ast.Compiler {
	return ast.NewCompiler().WithCapabilities(allowed()).WithEnablePrintStatements(true).WithPathConflictsCheck(nil)
}

func (s *Set) parse() error {
	switch {
	case len(s.source.Modules) == 0:
		return errors.New("it has no modules: a policy needs at least one file whose name ends in .rego")
	case len(s.source.Modules) > modulesKept:
		return fmt.Errorf("it has %d modules, more than %d", len(s.source.Modules), modulesKept)
	}
	for _, name := range slices.Sorted(maps.Keys(s.source.Modules)) {
		text := s.source.Modules[name]
		if s.size += len(text); s.size > sourceBytes {
			return fmt.Errorf("its modules are larger than %d MiB together: split the policy, or leave out the files that it does not need", sourceBytes>>20)
		}
		if len(text) > moduleBytes {
			return fmt.Errorf("%s is larger than %d MiB", name, moduleBytes>>20)
		}
		m, err := parseModule(name, text, s.source.Version)
		if err != nil {
			return err
		}
		if m != nil { // a file of comments
			s.modules[name] = m
		}
	}
	return nil
}

// parseModule reads one module. Without a version the newer one is tried first, and the
// error is that of the newer one.
func parseModule(name, text string, v Version) (*ast.Module, error) {
	as := func(v ast.RegoVersion) (*ast.Module, error) {
		return ast.ParseModuleWithOpts(name, text, ast.ParserOptions{RegoVersion: v, ProcessAnnotation: true})
	}
	switch v {
	case V0:
		return as(ast.RegoV0)
	case V1:
		return as(ast.RegoV1)
	case "":
	default:
		return nil, fmt.Errorf("the version of Rego is %q, which is neither v0 nor v1", v)
	}
	m, err := as(ast.RegoV1)
	if err == nil {
		return m, nil
	}
	if old, oldErr := as(ast.RegoV0); oldErr == nil {
		return old, nil
	}
	return nil, err
}

// findRules lists the rules that give findings.
func (s *Set) findRules() error {
	var want string
	switch s.source.Format {
	case Terrier:
		s.rules, want = terrierRules(s.modules), "package terrier with a rule named deny, hold, warn or allow"
	case Conftest:
		s.rules, want = conftestRules(s.modules, s.source.Namespaces), "a rule named deny, violation or warn in the package "+strings.Join(namespaces(s.source.Namespaces), ", ")
	case Weave:
		s.rules, want = s.weaveRules(), "a rule named violation"
	default:
		return fmt.Errorf("the format is %q, which is none of terrier, conftest and weave", s.source.Format)
	}
	if len(s.rules) == 0 {
		return fmt.Errorf("it says nothing of plans: the format %s needs %s", s.source.Format, want)
	}
	return nil
}

// terrierRules are those of package terrier, the strictest first.
func terrierRules(modules map[string]*ast.Module) []rule {
	has := map[string]bool{}
	for _, m := range modules {
		if m.Package.Path.String() == "data.terrier" {
			for _, r := range m.Rules {
				has[headName(r.Head)] = true
			}
		}
	}
	var out []rule
	for _, e := range []policy.Effect{policy.Deny, policy.Hold, policy.Warn, policy.Allow} {
		if has[string(e)] {
			out = append(out, rule{name: string(e), ref: "data.terrier." + string(e), effect: e})
		}
	}
	return out
}

// headName is the name of a rule, without keys in it.
func headName(h *ast.Head) string {
	if len(h.Reference) > 0 {
		if v, ok := h.Reference[0].Value.(ast.Var); ok {
			return string(v)
		}
	}
	return string(h.Name)
}

// query asks for some rules in one evaluation, so that what they share is worked out
// once. A rule that is undefined is an empty list.
func (s *Set) query(rules []rule) string {
	var b strings.Builder
	b.WriteString("result := {")
	asked := map[string]bool{}
	ask := func(key, ref string) {
		if !asked[key] {
			if len(asked) > 0 {
				b.WriteString(", ")
			}
			asked[key] = true
			fmt.Fprintf(&b, "%s: [v | v := %s]", strconv.Quote(key), ref)
		}
	}
	for _, r := range rules {
		ask(r.ref, r.ref)
		if s.source.Format == Conftest && s.excepts(r.ns) {
			ask(r.ns+".exception", r.ns+".exception")
		}
	}
	b.WriteString("}")
	return b.String()
}

func (s *Set) prepare(ctx context.Context, query string) (rego.PreparedEvalQuery, error) {
	return rego.New(
		rego.Query(query), rego.Compiler(s.compiler), rego.Store(s.store), rego.Capabilities(allowed()),
		rego.StrictBuiltinErrors(!s.source.Lenient),
		rego.GenerateJSON(func(t *ast.Term, _ *rego.EvalContext) (any, error) { return t, nil }),
	).PrepareForEval(ctx)
}

// notice finds out which parts of the input the modules may read.
func (s *Set) notice() {
	for _, m := range s.modules {
		ast.WalkTerms(m, func(t *ast.Term) bool {
			switch v := t.Value.(type) {
			case ast.String:
				s.mentions[string(v)] = true
			case ast.Call:
				s.walks = s.walks || v[0].String() == "walk"
			}
			return false
		})
		ast.WalkExprs(m, func(e *ast.Expr) bool {
			s.walks = s.walks || e.IsCall() && e.Operator().String() == "walk"
			return false
		})
	}
}

// Reads reports whether the policy may read a section of the plan.
func (s *Set) Reads(section string) bool { return s.walks || s.mentions[section] }

// explained are errors of the compiler, with a word about functions that policies do not
// have.
func explained(errs ast.Errors) error {
	for _, e := range errs {
		if name, ok := strings.CutPrefix(e.Message, "undefined function "); ok && ast.BuiltinMap[name] != nil {
			e.Message = name + " is not available to policies: they have no network, no environment and no randomness, and no function whose cost has no bound"
		}
	}
	return errs
}
