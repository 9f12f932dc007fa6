package rego

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/open-policy-agent/opa/v1/ast"
	"go.uber.org/goleak"

	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/policy"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// inputOf is an input whose document is JSON.
func inputOf(tb testing.TB, document string) *Input {
	tb.Helper()
	dec := json.NewDecoder(strings.NewReader(document))
	dec.UseNumber()
	var doc map[string]any
	if err := dec.Decode(&doc); err != nil {
		tb.Fatal(err)
	}
	in, err := NewInput(doc, map[string]any{"kind": "Terraform", "metadata": map[string]any{"name": "network"}}, time.Unix(1e9, 0).UTC())
	if err != nil {
		tb.Fatal(err)
	}
	return in
}

func compiled(tb testing.TB, s Source) *Set {
	tb.Helper()
	set, err := Compile(tb.Context(), s)
	if err != nil {
		tb.Fatal(err)
	}
	return set
}

// terrier is a source of one module in package terrier.
func terrier(rules string) Source {
	return Source{Modules: map[string]string{"policy.rego": "package terrier\n" + rules}}
}

func asked(tb testing.TB, s Source, document string, parameters any) []policy.Finding {
	tb.Helper()
	return compiled(tb, s).Evaluate(tb.Context(), Question{Policy: "p", Input: inputOf(tb, document), Parameters: parameters})
}

func TestResultsAreFindings(t *testing.T) {
	for name, tt := range map[string]struct {
		rules string
		want  []policy.Finding
	}{
		"a text":             {`deny contains "no" if true`, []policy.Finding{{Policy: "p", Rule: "deny", Effect: policy.Deny, Message: "no"}}},
		"a list":             {`warn := ["a", "b"]`, []policy.Finding{{Policy: "p", Rule: "warn", Effect: policy.Warn, Message: "a"}, {Policy: "p", Rule: "warn", Effect: policy.Warn, Message: "b"}}},
		"a rule that is not": {`deny contains "no" if input.absent`, nil},
		"undefined":          {`deny := ["no"] if input.absent`, nil},
		"allow":              {`allow contains "yes"`, []policy.Finding{{Policy: "p", Rule: "allow", Effect: policy.Allow, Message: "yes"}}},
		"an object": {
			`hold contains {"msg": "m", "rule": "r", "severity": "HIGH", "link": "https://example.com/r", "addresses": ["b", "a"], "approval": {"count": 2, "groups": ["g"], "not_requester": true, "expires": "24h"}, "details": {"x": 1}}`,
			[]policy.Finding{{Policy: "p", Rule: "r", Effect: policy.Hold, Severity: "high", Message: "m", Link: "https://example.com/r", Addresses: []string{"a", "b"},
				Approval: &policy.Approval{Count: 2, Groups: []string{"g"}, NotRequester: true, Expires: policy.Duration(24 * time.Hour)}}},
		},
		"parameters": {`deny contains input.parameters.text`, []policy.Finding{{Policy: "p", Rule: "deny", Effect: policy.Deny, Message: "given"}}},
	} {
		t.Run(name, func(t *testing.T) {
			if d := cmp.Diff(asked(t, terrier(tt.rules), `{"a": 1}`, map[string]any{"text": "given"}), tt.want); d != "" {
				t.Error(d)
			}
		})
	}
}

// What a policy does wrong holds the plan.
func TestWhatIsWrongHolds(t *testing.T) {
	for name, tt := range map[string]struct{ rules, want string }{
		"a text and no set":    {`deny := "no"`, "the rule terrier.deny gives a text, where a set of texts or objects is wanted: deny contains message if { … }"},
		"true":                 {`allow if true`, "the rule terrier.allow gives true or false"},
		"a number in a set":    {`warn contains 7`, "a number, where a text or an object is wanted"},
		"no message":           {`warn contains {"rule": "r"}`, "no message"},
		"an empty message":     {`warn contains " "`, "no message"},
		"an unknown field":     {`hold contains {"msg": "m", "aproval": {}}`, `the field "aproval"`},
		"an unknown severity":  {`warn contains {"msg": "m", "severity": "dire"}`, `the severity "dire"`},
		"a link of javascript": {`warn contains {"msg": "m", "link": "javascript:alert(1)"}`, "a link that is no URL"},
		"a number of groups":   {`hold contains {"msg": "m", "approval": {"groups": 1}}`, "the field groups"},
		"no count":             {`hold contains {"msg": "m", "approval": {"count": 0}}`, "count is no number from 1 to 20"},
		"approval of a deny":   {`deny contains {"msg": "m", "approval": {"count": 1}}`, "an approval, which only a hold has"},
		"a failing function":   {`warn contains msg if { msg := to_number("abc") }`, "the policy could not be evaluated: policy.rego:2: "},
		"two outputs":          {"f(x) := x.a\nf(x) := x.b\nwarn contains f({\"a\": \"1\", \"b\": \"2\"})", "the policy could not be evaluated: policy.rego:"},
	} {
		t.Run(name, func(t *testing.T) {
			found := asked(t, terrier(tt.rules), `{}`, nil)
			if len(found) != 1 || !found[0].Error || found[0].Counts() != policy.Hold || !strings.Contains(found[0].Message, tt.want) {
				t.Errorf("Evaluate() = %+v, want a hold with %q", found, tt.want)
			}
		})
	}
}

// A rule that fails must not make a denied plan one that is only held.
func TestAnErrorHidesNoOtherRule(t *testing.T) {
	found := asked(t, terrier("deny contains \"no\"\nwarn contains to_number(\"abc\")"), `{}`, nil)
	if got := policy.Combine(found); got != policy.Deny || len(found) != 2 || !found[1].Error {
		t.Errorf("Evaluate() = %+v, want a deny and an error", found)
	}
}

// Policies cannot leave their process, and say the same each time.
func TestFunctionsThatPoliciesDoNotHave(t *testing.T) {
	for _, call := range []string{
		`http.send({"method": "get", "url": "https://example.com"})`, `net.lookup_ip_addr("example.com")`, `opa.runtime()`, `rand.intn("a", 5)`, `uuid.rfc4122("a")`,
		`net.cidr_expand("0.0.0.0/0")`, `bits.lsh(1, 1000000000)`, `io.jwt.decode("a")`, `crypto.x509.parse_certificates("a")`, `rego.parse_module("a", "b")`,
		`graph.reachable_paths({}, [])`, `providers.aws.sign_req({}, {}, 1)`, `json.match_schema({}, {})`, `graphql.parse_query("a")`, `strings.render_template("a", {})`,
	} {
		name, _, _ := strings.Cut(call, "(")
		_, err := Compile(t.Context(), terrier("warn contains \"m\" if { _ := "+call+" }"))
		if fault.Of(err) != fault.Invalid || !strings.Contains(fmt.Sprint(err), name+" is not available to policies") {
			t.Errorf("Compile(%s) = %v", call, err)
		}
	}
	found := asked(t, terrier(`warn contains sprintf("%d", [time.now_ns()])`), `{}`, nil)
	if len(found) != 1 || found[0].Message != "1000000000000000000" {
		t.Errorf("time.now_ns() = %+v, want the time of the input", found)
	}
}

// A new release of the library may have functions that reach the network, or whose cost has
// no bound: read what they do before they are added here.
func TestAllowedFunctions(t *testing.T) {
	const known = `abs all and any array.concat array.flatten array.reverse array.slice assign base64.decode base64.encode base64.is_valid base64url.decode base64url.encode base64url.encode_no_pad cast_array cast_boolean cast_null cast_object cast_set cast_string ceil concat contains count crypto.hmac.equal crypto.hmac.md5 crypto.hmac.sha1 crypto.hmac.sha256 crypto.hmac.sha512 crypto.md5 crypto.sha1 crypto.sha256 div endswith eq equal floor format_int glob.match glob.quote_meta graph.reachable gt gte hex.decode hex.encode indexof indexof_n internal.member_2 internal.member_3 internal.print internal.template_string internal.test_case intersection is_array is_boolean is_null is_number is_object is_set is_string json.filter json.is_valid json.marshal json.marshal_with_options json.patch json.remove json.unmarshal lower lt lte max min minus mul neq net.cidr_contains net.cidr_contains_matches net.cidr_intersects net.cidr_is_valid net.cidr_merge net.cidr_overlap numbers.range numbers.range_step object.filter object.get object.keys object.remove object.subset object.union object.union_n or plus print product re_match regex.find_all_string_submatch_n regex.find_n regex.is_valid regex.match regex.replace regex.split regex.template_match rego.metadata.chain rego.metadata.rule rem replace round semver.compare semver.is_valid set_diff sort split sprintf startswith strings.any_prefix_match strings.any_suffix_match strings.count strings.replace_n strings.reverse substring sum time.add_date time.clock time.date time.diff time.format time.now_ns time.parse_duration_ns time.parse_ns time.parse_rfc3339_ns time.weekday to_number trace trim trim_left trim_prefix trim_right trim_space trim_suffix type_name union units.parse units.parse_bytes upper urlquery.decode urlquery.decode_object urlquery.encode urlquery.encode_object uuid.parse walk yaml.is_valid yaml.marshal yaml.unmarshal`
	var names []string
	for _, b := range allowed().Builtins {
		names = append(names, b.Name)
	}
	slices.Sort(names)
	if d := cmp.Diff(strings.Join(names, " "), known); d != "" {
		t.Error(d)
	}
}

// One call is one step, and no deadline ends it: the bound is in front of the call.
func TestCallsHaveBounds(t *testing.T) {
	long := strings.Repeat("a", 2000)
	for _, call := range []string{
		`sprintf("%999999999d", [1])`, `sprintf("%[1]*d", [999999999])`, `numbers.range(1, 1000000000)`, `numbers.range_step(1, 1000000000, 2)`,
		`format_int(json.unmarshal("1e999999999"), 10)`, `to_number("1e999999999")`, `round(json.unmarshal("1e999999999"))`, `json.unmarshal("1e999999999") * 2`,
		`sum([json.unmarshal("1e999999999"), 1])`, `sprintf("%d", [json.unmarshal("1e999999999")])`,
		`concat("` + long + `", [sprintf("%d", [n]) | some n in numbers.range(1, 1000)])`, `concat("", [s | some _ in numbers.range(1, 1000); s := "` + long + `"])`,
	} {
		t.Run(call[:min(len(call), 40)], func(t *testing.T) {
			t.Parallel()
			found := asked(t, terrier("warn contains \"m\" if { _ := "+call+" }"), `{}`, nil)
			if len(found) != 1 || !found[0].Error {
				t.Errorf("Evaluate() = %+v, want a hold", found)
			}
		})
	}
	if found := asked(t, terrier(`warn contains replace("`+long+`", "a", "`+strings.Repeat(long, 20)+`")`), `{}`, nil); len(found) != 1 || !found[0].Error {
		t.Errorf("replace: %d findings, want a hold", len(found))
	}
}

func TestAnEvaluationHasADeadline(t *testing.T) {
	set := compiled(t, terrier(`warn contains "m" if {
	some a in numbers.range(1, 100000)
	some b in numbers.range(1, 100000)
	a * b == -1
}`))
	ctx, cancel := context.WithTimeoutCause(t.Context(), 100*time.Millisecond, fmt.Errorf("it took longer than a moment"))
	defer cancel()
	found := set.Evaluate(ctx, Question{Policy: "p", Input: inputOf(t, `{}`)})
	if len(found) != 1 || !found[0].Error || !strings.Contains(found[0].Message, "it took longer than a moment") {
		t.Errorf("Evaluate() = %+v, want a hold", found)
	}
}

// The memory that a policy needs is bounded as well: the evaluation ends before the process
// does.
func TestAnEvaluationThatNeedsTooMuchMemoryEnds(t *testing.T) {
	if testing.Short() {
		t.Skip("it needs half a GiB")
	}
	found := asked(t, terrier(`texts := [sprintf("%d-%d-some text that takes room in memory", [a, b]) |
	some a in numbers.range(1, 100000)
	some b in numbers.range(1, 100000)
]
warn contains "m" if count(texts) > 0`), `{}`, nil)
	if len(found) != 1 || !found[0].Error || !strings.Contains(found[0].Message, "MiB of memory") && !strings.Contains(found[0].Message, "longer than") {
		t.Errorf("Evaluate() = %+v, want a hold", found)
	}
}

func TestFindingsHaveBounds(t *testing.T) {
	found := asked(t, terrier(`warn contains sprintf("w%d", [n]) if some n in numbers.range(1, 5000)
deny contains "last of all" if true
hold contains {"msg": msg, "addresses": numbers_as_text} if msg := concat("", [s | some _ in numbers.range(1, 1000); s := "long \u001b[31m"])
numbers_as_text := [sprintf("%d", [n]) | some n in numbers.range(1, 30)]`), `{}`, nil)
	if len(found) != findingsMost || found[0].Effect != policy.Deny || policy.Combine(found) != policy.Deny {
		t.Fatalf("Evaluate() = %d findings, first %+v; want %d, the strictest first", len(found), found[0], findingsMost)
	}
	held := policy.With(policy.Hold, found)
	if len(held) != 2 || !slices.ContainsFunc(held, func(f policy.Finding) bool { return f.Error && strings.Contains(f.Message, "more than 500 findings") }) {
		t.Errorf("findings that hold: %+v", held)
	}
	for _, f := range held {
		if len(f.Message) > messageBytes+len("…") || strings.Contains(f.Message, "\x1b") || len(f.Addresses) > policy.AddressesKept {
			t.Errorf("a finding has %d bytes and %d addresses: %.60q", len(f.Message), len(f.Addresses), f.Message)
		}
	}
}

// A plan that was cut must not pass a policy that would have looked at what is missing.
func TestAPlanThatWasCutIsHeld(t *testing.T) {
	const doc = `{"plan": {"truncated": ["prior_state", "resource_changes"], "resource_changes": []}, "changes": []}`
	for name, tt := range map[string]struct {
		source Source
		want   bool
	}{
		"changes":             {terrier(`deny contains "no" if some c in input.changes`), true},
		"the state before":    {terrier(`deny contains "no" if input.plan.prior_state.x`), true},
		"a walk":              {terrier(`deny contains "no" if { walk(input, [_, v]); v == "x" }`), true},
		"something else":      {terrier(`deny contains "no" if input.stack.name == "x"`), false},
		"a plan for conftest": {Source{Format: Conftest, Modules: map[string]string{"a.rego": "package main\ndeny contains \"no\" if input.resource_changes[_].type == \"x\""}}, true},
	} {
		found := asked(t, tt.source, doc, nil)
		if got := len(found) == 1 && found[0].Error && found[0].Rule == "truncated"; got != tt.want || !tt.want && len(found) > 0 {
			t.Errorf("%s: Evaluate() = %+v, want a hold: %v", name, found, tt.want)
		}
	}
}

func TestWhatDoesNotCompile(t *testing.T) {
	whole := "package terrier\n#"
	whole += strings.Repeat("a", moduleBytes-len(whole))
	for name, tt := range map[string]struct {
		source Source
		want   string
	}{
		"no modules":      {Source{}, "it has no modules"},
		"no rule":         {terrier(`other := 1`), "the format terrier needs package terrier with a rule named deny, hold, warn or allow"},
		"another package": {Source{Modules: map[string]string{"a.rego": "package main\ndeny contains \"a\""}}, "the format terrier needs"},
		"a wrong text":    {terrier(`deny contains`), "policy.rego:2"},
		"a wrong version": {Source{Version: "v2", Modules: map[string]string{"a.rego": "package terrier"}}, `the version of Rego is "v2"`},
		"a wrong format":  {Source{Format: "sentinel", Modules: map[string]string{"a.rego": "package terrier"}}, `the format is "sentinel"`},
		"large":           {terrier("#" + strings.Repeat("a", moduleBytes)), "policy.rego is larger than 1 MiB"},
		"large together":  {Source{Modules: map[string]string{"a.rego": whole, "b.rego": whole, "c.rego": whole, "d.rego": whole, "e.rego": "package terrier"}}, "its modules are larger than 4 MiB together"},
		"conftest":        {Source{Format: Conftest, Modules: map[string]string{"a.rego": "package other\ndeny contains \"a\""}}, "needs a rule named deny, violation or warn in the package main"},
	} {
		if _, err := Compile(t.Context(), tt.source); fault.Of(err) != fault.Invalid || !strings.Contains(fmt.Sprint(err), tt.want) {
			t.Errorf("%s: Compile() = %v, want %q", name, err, tt.want)
		}
	}
}

func TestBothVersionsOfTheLanguage(t *testing.T) {
	v0, v1 := "package terrier\ndeny[msg] { msg := \"old\" }", "package terrier\ndeny contains msg if msg := \"new\""
	if got := asked(t, Source{Modules: map[string]string{"a.rego": v0, "b.rego": v1}}, `{}`, nil); len(got) != 2 {
		t.Errorf("both: %+v", got)
	}
	for _, s := range []Source{{Version: V1, Modules: map[string]string{"a.rego": v0}}, {Version: V0, Modules: map[string]string{"a.rego": v1}}} {
		if _, err := Compile(t.Context(), s); fault.Of(err) != fault.Invalid {
			t.Errorf("Compile(%s) = %v, want an error", s.Version, err)
		}
	}
}

func TestManyAtOnce(t *testing.T) {
	set := compiled(t, terrier(`deny contains input.stack.name if true`))
	var all sync.WaitGroup
	for i := range 50 {
		all.Go(func() {
			name := fmt.Sprint("s", i)
			found := set.Evaluate(t.Context(), Question{Policy: "p", Input: inputOf(t, `{"stack": {"name": "`+name+`"}}`)})
			if len(found) != 1 || found[0].Message != name {
				t.Errorf("%s: %+v", name, found)
			}
		})
	}
	all.Wait()
}

func TestExplain(t *testing.T) {
	set := compiled(t, terrier("deny contains \"no\" if {\n\tprint(\"looking at\", input.stack.name)\n\tinput.stack.name == \"network\"\n}"))
	e := &Explanation{Steps: true}
	set.Evaluate(t.Context(), Question{Policy: "p", Input: inputOf(t, `{"stack": {"name": "network"}}`), Explain: e})
	if len(e.Prints) != 1 || !strings.Contains(e.Prints[0], "policy.rego:3: looking at network") {
		t.Errorf("Prints = %q", e.Prints)
	}
	if trace := strings.Join(e.Trace, "\n"); !strings.Contains(trace, "data.terrier.deny") {
		t.Errorf("Trace = %s", trace)
	}
}

// FuzzResults: whatever a policy gives and a plan has, there is an answer of bounded size.
func FuzzResults(f *testing.F) {
	for _, seed := range []string{`{"a": "m"}`, `[]`, `{"a": {"msg": "m", "severity": "low"}}`, `{"a": {"approval": {"count": 1e400}, "msg": ""}}`, `{"a": ["x", null, 1]}`, `{"plan": {"truncated": [1]}}`} {
		f.Add(seed)
	}
	set := compiled(f, terrier("deny contains v if some v in input\nhold contains v if { some w in input; some v in w }\nwarn := input.a"))
	f.Fuzz(func(t *testing.T, text string) {
		var doc map[string]any
		dec := json.NewDecoder(strings.NewReader(text))
		dec.UseNumber()
		if dec.Decode(&doc) != nil || doc == nil {
			t.Skip()
		}
		in, err := NewInput(doc, nil, time.Time{})
		if err != nil {
			t.Skip()
		}
		hasBounds(t, text, set.Evaluate(t.Context(), Question{Policy: "p", Input: in}))
	})
}

func TestNumbersFit(t *testing.T) {
	for text, want := range map[string]bool{"1": true, "1e300": true, "1e401": false, "1e-999999999": false, "1E+0000000000000000400": true, strings.Repeat("9", 500): false} {
		if got := numberFits(ast.NumberTerm(json.Number(text))); got != want {
			t.Errorf("numberFits(%.30s) = %v, want %v", text, got, want)
		}
	}
}

// A finding that depends on no plan is told before there is one. What the plan decides is
// left out, also where it is asked for by a negation or a count.
func TestEarlyFindings(t *testing.T) {
	known := map[string]any{"stack": map[string]any{"environment": "production"}, "source": map[string]any{"kind": "GitRepository", "branch": "main", "pinned": false}, "run": map[string]any{"deletion": false}}
	for name, tt := range map[string]struct {
		rules string
		want  []string
	}{
		"of the source":          {`deny contains sprintf("no %s", [input.source.kind]) if input.source.kind != "OCIRepository"`, []string{"deny: no GitRepository"}},
		"of the parameters":      {`warn contains "x" if input.parameters.level > 2`, []string{"warn: x"}},
		"that does not apply":    {`deny contains "x" if input.source.kind == "Bucket"`, nil},
		"of changes":             {`hold contains c.address if some c in input.changes`, nil},
		"of no changes":          {`hold contains "x" if count(input.changes) == 0`, nil},
		"of none of the changes": {"hold contains \"x\" if not any_database\nany_database if { some c in input.changes; c.type == \"db\" }", nil},
		"of the run":             {`hold contains "x" if not input.run.deletion`, nil},
		"of some of a set": {"deny contains p.msg if some p in problem\nproblem contains {\"msg\": \"branch\"} if input.source.branch\nproblem contains {\"msg\": m.path} if some m in input.modules",
			[]string{"deny: branch"}},
		"of a count of a set":    {"hold contains \"x\" if count(problem) < 5\nproblem contains m if some m in input.modules", nil},
		"by the whole input":     {`deny contains "x" if not object.get(input, "plan", null)`, nil},
		"of a default":           {"deny contains \"x\" if not fine\ndefault fine := false\nfine if some m in input.modules", nil},
		"of every change":        {`hold contains "x" if every c in input.changes { c.kind == "create" }`, nil},
		"not of every change":    {"hold contains \"x\" if not fine\nfine if every c in input.changes { c.kind == \"create\" }", nil},
		"of every known element": {`hold contains "x" if every i, f in ["kind", "branch"] { i < 2; input.source[f] }`, []string{"hold: x"}},
		"of one that has not":    {`hold contains "x" if every f in ["kind", "tag"] { input.source[f] }`, nil},
		"of every one of none":   {`hold contains "x" if every f in input.source.tags { f }`, nil},
		"that fails":             {`deny contains "x" if to_number(input.source.kind) > 1`, nil},
		"with nothing about one": {`warn contains "x" if input.source.age > 5`, nil},
	} {
		t.Run(name, func(t *testing.T) {
			s, err := Compile(t.Context(), Source{Modules: map[string]string{"p.rego": "package terrier\n" + tt.rules}})
			if err != nil {
				t.Fatal(err)
			}
			found, err := s.Early(t.Context(), "P", known, map[string]any{"level": json.Number("3")})
			var got []string
			for _, f := range found {
				got = append(got, string(f.Effect)+": "+f.Message)
			}
			if diff := cmp.Diff(tt.want, got); diff != "" || (err != nil) != (name == "that fails") {
				t.Errorf("Early() has the error %v (-want +got):\n%s", err, diff)
			}
		})
	}
}

// The program of the library about versions says before a plan what it says of the source.
func TestEarlyFindingsOfTheLibrary(t *testing.T) {
	text, err := os.ReadFile("../../../policies/fixed-versions/policy.rego")
	if err != nil {
		t.Fatal(err)
	}
	s, err := Compile(t.Context(), Source{Modules: map[string]string{"policy.rego": string(text)}})
	if err != nil {
		t.Fatal(err)
	}
	known := map[string]any{"stack": map[string]any{"environment": "production"}, "source": map[string]any{"kind": "OCIRepository", "range": "~ 0.1.0-0", "pinned": false}}
	found, err := s.Early(t.Context(), "P", known, nil)
	if err != nil || len(found) != 1 || found[0].Effect != policy.Deny || found[0].Rule != "source-version" || !strings.Contains(found[0].Message, "the range ~ 0.1.0-0") {
		t.Errorf("Early() = %+v, %v", found, err)
	}
}
