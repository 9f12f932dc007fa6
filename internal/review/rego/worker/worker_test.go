package worker

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/policy"
	"github.com/terrier-iac/terrier/internal/policy/document"
	"github.com/terrier-iac/terrier/internal/review/rego"
	"github.com/terrier-iac/terrier/internal/sandbox"
)

// The test binary is its own worker.
func TestMain(m *testing.M) {
	sandbox.Main()
	Main()
	code := m.Run()
	if err := goleak.Find(); code == 0 && err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

func newPool(t testing.TB) *Pool {
	t.Helper()
	p := New(t.TempDir(), 4<<30, time.Now)
	ctx, stop := context.WithCancel(context.WithoutCancel(t.Context()))
	done := make(chan error)
	go func() { done <- p.Run(ctx) }()
	t.Cleanup(func() {
		stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return p
}

// terrier is a source of one module in package terrier.
func terrier(rules string) rego.Source {
	return rego.Source{Format: rego.Terrier, Modules: map[string]string{"policy.rego": "package terrier\n" + rules}}
}

func member(name, rules string, change ...func(*Member)) Member {
	m := Member{Policy: name, Source: terrier(rules)}
	m.Digest = m.Source.Digest()
	for _, c := range change {
		c(&m)
	}
	return m
}

const aPlan = `{"format_version": "1.2", "resource_changes": [{"address": "terraform_data.a", "mode": "managed", "type": "terraform_data", "name": "a", "change": {"actions": ["create"], "before": null, "after": {"input": 9007199254740993}, "after_unknown": {}, "before_sensitive": false, "after_sensitive": {}}}]}`

func asked(name string) Asked {
	return Asked{
		Document: []byte(aPlan), Now: time.Unix(1e9, 0).UTC(), Object: map[string]any{"kind": "Terraform"},
		Facts: document.Facts{Stack: document.Stack{Kind: "Terraform", Namespace: "apps", Name: name}},
	}
}

func TestFindings(t *testing.T) {
	p := newPool(t)
	found := p.Findings(t.Context(), asked("network"), []Member{
		member("wrong", `deny contains`),
		member("denying", `deny contains to_number("a")`, func(m *Member) { m.OnError, m.Approval = policy.Deny, &policy.Approval{Count: 3} }),
		member("dry", `deny contains "no"`, func(m *Member) { m.DryRun = true }),
		member("held", `hold contains "wait"`, func(m *Member) { m.Approval = &policy.Approval{Count: 2} }),
		member("seen", `warn contains sprintf("%s %d %s", [input.stack.name, input.changes[0].after.input, input.parameters.word])`, func(m *Member) { m.Parameters = map[string]any{"word": "now"} }),
		member("null", `warn contains "modules are not known" if input.modules == []`),
	})
	byPolicy := map[string]policy.Finding{}
	for _, f := range found {
		byPolicy[f.Policy] = f
	}
	if len(found) != 6 || policy.Combine(found) != policy.Deny || found[0].Policy != "denying" {
		t.Errorf("Findings() = %+v", found)
	}
	if f := byPolicy["wrong"]; !f.Error || f.Effect != policy.Hold || !strings.Contains(f.Message, "policy.rego:2") {
		t.Errorf("what does not compile: %+v", f)
	}
	if f := byPolicy["denying"]; !f.Error || f.Effect != policy.Deny || f.Approval != nil {
		t.Errorf("one that denies on errors: %+v", f)
	}
	if f := byPolicy["dry"]; !f.DryRun {
		t.Errorf("a dry run: %+v", f)
	}
	if f := byPolicy["held"]; f.Approval == nil || f.Approval.Count != 2 {
		t.Errorf("a hold: %+v", f)
	}
	if f := byPolicy["seen"]; f.Message != "network 9007199254740993 now" {
		t.Errorf("what it sees: %+v", f)
	}
	if n := len(p.judging.idle); n != 1 {
		t.Errorf("%d workers are idle, want one that has judged", n)
	}
}

// A plan that cannot be read is held by each policy.
func TestPlansThatCannotBeRead(t *testing.T) {
	p := newPool(t)
	for _, text := range []string{"{", "[]", `"text"`} {
		a := asked("network")
		a.Document = []byte(text)
		found := p.Findings(t.Context(), a, []Member{member("one", `allow contains "a"`), member("two", `allow contains "b"`)})
		if len(found) != 2 || policy.Combine(found) != policy.Hold || !strings.Contains(found[0].Message, "document") {
			t.Errorf("%s: %+v", text, found)
		}
	}
}

func TestCompile(t *testing.T) {
	p := newPool(t)
	if err := p.Compile(t.Context(), terrier(`deny contains "a"`), nil); err != nil {
		t.Error(err)
	}
	declares := rego.Source{Modules: map[string]string{"policy.rego": "# METADATA\n# custom:\n#   parameters:\n#     tags: {type: array}\npackage terrier\ndeny contains \"a\"\n"}}
	if err := p.Compile(t.Context(), declares, map[string]any{"tags": []any{"owner"}}); err != nil {
		t.Errorf("Compile() with a parameter that the policy declares = %v", err)
	}
	if err := p.Compile(t.Context(), declares, map[string]any{"tag": "owner"}); fault.Of(err) != fault.Invalid || !strings.Contains(err.Error(), "parameters.tag: the policy has no such parameter; it has tags") {
		t.Errorf("Compile() with another parameter = %v", err)
	}
	if err := p.Compile(t.Context(), terrier(`deny contains`), nil); fault.Of(err) != fault.Invalid || !strings.Contains(err.Error(), "policy.rego:2") {
		t.Errorf("Compile() = %v, want an error with its line", err)
	}
	if n := len(p.compiling.idle); n != 1 {
		t.Errorf("%d workers are idle, want the one that was used twice", n)
	}
}

// A text ends its worker at most, and no other policy notices.
func TestTextsThatAreHostileToTheCompiler(t *testing.T) {
	nested := func(open, end string, n int) string {
		return "warn contains \"a\" if { x := " + strings.Repeat(open, n) + "1" + strings.Repeat(end, n) + " }"
	}
	types := "a0 := {\"k\": input.x}\n"
	for i := range 60 {
		types += fmt.Sprintf("a%d := [a%d, a%d]\n", i+1, i, i)
	}
	locals := "warn contains \"a\" if {\n\tx0 := {\"k\": 1}\n"
	for i := range 60 {
		locals += fmt.Sprintf("\tx%d := [x%d, x%d]\n", i+1, i, i)
	}
	many := "warn contains \"a\"\n"
	for i := range 12_000 {
		many += fmt.Sprintf("f%d(x) := y if { some y in [z | z := x[_][_]; z > %d]; not f%d(x) }\n", i+1, i, i)
	}
	p := newPool(t)
	for name, rules := range map[string]string{
		"brackets":             nested("[", "]", 500_000),
		"braces":               nested(`{"a": `, "}", 100_000),
		"a sum":                "warn contains \"a\" if { x := 1" + strings.Repeat("+1", 500_000) + " }",
		"signs":                nested("-", "", 500_000),
		"comprehensions":       nested("[y | y := ", "]", 50_000),
		"types of rules":       types + `warn contains "a" if a60 == a59`,
		"types of locals":      locals + "\tx60 == x59\n}",
		"ten thousand of them": many,
	} {
		t.Run(name, func(t *testing.T) {
			p.most.compile = 2 * time.Second
			err := p.Compile(t.Context(), terrier(rules), nil)
			p.most.compile = compileMost
			if err == nil {
				t.Log("it compiles in time")
			} else if len(err.Error()) > 2100 {
				t.Errorf("Compile() = an error of %d bytes", len(err.Error()))
			} else {
				t.Log(err)
			}
			if err := p.Compile(t.Context(), terrier(`deny contains "a"`), nil); err != nil {
				t.Errorf("Compile() of another one = %v", err)
			}
		})
	}
}

// An evaluation ends its worker at most. Each of these needs more time or memory than there is.
func TestPoliciesThatAreHostile(t *testing.T) {
	// x60 is a list of 2^60 elements in 60 steps: a tree whose branches are shared. The compiler
	// does not see it.
	tree := func(name, leaf string) string {
		text := fmt.Sprintf("\t%s0 := array.concat([%s], [])\n", name, leaf)
		for i := range 60 {
			text += fmt.Sprintf("\t%[1]s%[2]d := array.concat([%[1]s%[3]d], [%[1]s%[3]d])\n", name, i+1, i)
		}
		return text
	}
	text := "\tt := concat(\"\", [\"abcdefgh\" | some i in numbers.range(1, 100000)])\n"
	for name, body := range map[string]string{
		"a tree as JSON":   tree("x", "input.stack.name") + "\tmsg := json.marshal(x60)",
		"a tree as a text": tree("x", "input.stack.name") + "\tmsg := sprintf(\"%v\", [x60])",
		"a tree of texts":  text + tree("x", "t") + "\tmsg := json.marshal(x60)",
		"two trees":        tree("x", "input.stack.name") + tree("y", "input.stack.name") + "\tx60 == y60\n\tmsg := \"a\"",
		"a comprehension":  "\tmsg := sprintf(\"%d\", [count([1 | some i in numbers.range(1, 90000); some j in numbers.range(1, 90000)])])",
		"texts":            text + "\tmsg := sprintf(\"%d\", [count([u | some i in numbers.range(1, 90000); u := replace(t, \"a\", format_int(i, 10))])])",
		"a YAML bomb":      "\tmsg := sprintf(\"%v\", [yaml.unmarshal(\"a: &a [x,x,x,x,x,x,x,x,x]\\nb: &b [*a,*a,*a,*a,*a,*a,*a,*a,*a]\\nc: &c [*b,*b,*b,*b,*b,*b,*b,*b,*b]\\nd: &d [*c,*c,*c,*c,*c,*c,*c,*c,*c]\\ne: &e [*d,*d,*d,*d,*d,*d,*d,*d,*d]\\nf: &f [*e,*e,*e,*e,*e,*e,*e,*e,*e]\\ng: &g [*f,*f,*f,*f,*f,*f,*f,*f,*f]\\nh: [*g,*g,*g,*g,*g,*g,*g,*g,*g]\\n\")])",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newPool(t)
			hostile := member("hostile", "deny contains msg if {\n"+body+"\n}", func(m *Member) { m.OnError = policy.Deny })
			found := p.Findings(t.Context(), asked("network"), []Member{hostile, member("honest", `warn contains "seen"`)})
			if len(found) != 2 || !found[0].Error || found[0].Policy != "hostile" || found[0].Effect != policy.Deny || found[1].Message != "seen" {
				t.Errorf("Findings() = %+v, want a failure of the hostile policy alone", found)
			}
			t.Log(found[0].Message)
		})
	}
}

// A worker has a share of the memory, and ends before the kernel ends it.
func TestMemory(t *testing.T) {
	for total, want := range map[int64]int64{0: memoryLeast, 1 << 30: memoryLeast, 4 << 30: 512 << 20, 64 << 30: memoryMost} {
		if got := New(t.TempDir(), total, time.Now).memory; got != want {
			t.Errorf("with %d bytes: %d for a worker, want %d", total, got, want)
		}
	}
	p := newPool(t)
	p.memory = memoryLeast
	long := `"` + strings.Repeat("abcdefgh", 100_000) + `"`
	body := "\tx0 := array.concat([" + long + "], [])\n"
	for i := range 11 {
		body += fmt.Sprintf("\tx%[1]d := array.concat([x%[2]d], [x%[2]d])\n", i+1, i)
	}
	found := p.Findings(t.Context(), asked("network"), []Member{
		member("hostile", "deny contains msg if {\n"+body+"\tmsg := json.marshal(x11)\n}"), member("honest", `warn contains "seen"`),
	})
	if len(found) != 2 || found[0].Policy != "hostile" || !strings.Contains(found[0].Message, "it needs more than 192 MiB of memory") || found[1].Message != "seen" {
		t.Errorf("Findings() = %+v, want that the memory does not suffice", found)
	}
}

// A policy that ended its worker ends no other one for a while, in its namespace.
func TestWhatEndedItsWorkerIsNotAskedAtOnce(t *testing.T) {
	var mu sync.Mutex
	now := time.Unix(1e9, 0)
	p := newPool(t)
	p.most.evaluate = time.Second / 2
	p.ended.Now = func() time.Time { mu.Lock(); defer mu.Unlock(); return now }
	m := member("slow", `warn contains sprintf("%d", [count([1 | some i in numbers.range(1, 90000); some j in numbers.range(1, 90000)])])`)
	ask := func(namespace string) string {
		a := asked("network")
		a.Facts.Stack.Namespace = namespace
		found := p.Findings(t.Context(), a, []Member{m})
		if len(found) != 1 || !found[0].Error {
			t.Fatalf("Findings() = %+v", found)
		}
		return found[0].Message
	}
	const at, not = "it took longer than 500ms", "it is asked again after a minute"
	if got := ask("apps"); !strings.Contains(got, at) || strings.Contains(got, not) {
		t.Errorf("the first time: %q", got)
	}
	if got := ask("apps"); !strings.Contains(got, not) {
		t.Errorf("at once: %q", got)
	}
	if got := ask("others"); strings.Contains(got, not) {
		t.Errorf("another namespace: %q", got)
	}
	mu.Lock()
	now = now.Add(againAfter + time.Second)
	mu.Unlock()
	if got := ask("apps"); strings.Contains(got, not) {
		t.Errorf("after a minute: %q", got)
	}
}

func TestManyAtOnce(t *testing.T) {
	p := newPool(t)
	m := member("p", `warn contains input.stack.name`)
	var all sync.WaitGroup
	for i := range 50 {
		all.Go(func() {
			name := fmt.Sprint("s", i)
			found := p.Findings(t.Context(), asked(name), []Member{m})
			if len(found) != 1 || found[0].Message != name {
				t.Errorf("%s: %+v", name, found)
			}
		})
	}
	all.Wait()
}

// A question that its caller gives up ends, and the next one is answered.
func TestAQuestionThatIsGivenUp(t *testing.T) {
	p := newPool(t)
	ctx, stop := context.WithCancel(t.Context())
	stop()
	slow := member("slow", `warn contains "a"`)
	if found := p.Findings(ctx, asked("a"), []Member{slow}); len(found) != 1 || !found[0].Error {
		t.Errorf("Findings() = %+v", found)
	}
	if found := p.Findings(t.Context(), asked("a"), []Member{slow}); len(found) != 1 || found[0].Error {
		t.Errorf("the next one: %+v", found)
	}
}

// A source is the same in a worker as in the controller.
func TestSourcesOnTheWay(t *testing.T) {
	s := rego.Source{Format: rego.Conftest, Modules: map[string]string{"a.rego": "package main\ndeny[msg] { msg := \"<&>\" }"}, Data: map[string]any{"n": json.Number("9007199254740993")}, Lenient: true}
	p := newPool(t)
	if err := p.Compile(t.Context(), s, nil); err != nil {
		t.Fatal(err)
	}
	found := p.Findings(t.Context(), asked("a"), []Member{{Policy: "p", Source: s, Digest: s.Digest()}})
	if len(found) != 1 || found[0].Message != "<&>" || found[0].Effect != policy.Deny {
		t.Errorf("Findings() = %+v", found)
	}
}

func BenchmarkFindings(b *testing.B) {
	p := newPool(b)
	var all []Member
	for i := range 20 {
		all = append(all, member(fmt.Sprint("p", i), fmt.Sprintf("warn contains \"a %d\" if some c in input.changes", i)))
	}
	for b.Loop() {
		if found := p.Findings(b.Context(), asked("network"), all); len(found) != 20 {
			b.Fatalf("%+v", found)
		}
	}
}
