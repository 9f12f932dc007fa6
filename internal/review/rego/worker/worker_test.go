package worker

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"runtime"
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

// findings are those of policies that could be asked.
func findings(tb testing.TB, p *Pool, a Asked, members []Member) []policy.Finding {
	tb.Helper()
	found, err := p.Findings(tb.Context(), a, members)
	if err != nil {
		tb.Error(err)
	}
	return found
}

func TestFindings(t *testing.T) {
	p := newPool(t)
	found := findings(t, p, asked("network"), []Member{
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
		found := findings(t, p, a, []Member{member("one", `allow contains "a"`), member("two", `allow contains "b"`)})
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
			found := findings(t, p, asked("network"), []Member{hostile, member("honest", `warn contains "seen"`)})
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
	found := findings(t, p, asked("network"), []Member{
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
		found := findings(t, p, a, []Member{m})
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

// What breaks a worker that did other things before need not be the policy that it was asked
// last: the policy is asked again, of a new one.
func TestABrokenWorkerIsNotBlamedOnThePolicyThatWasAskedLast(t *testing.T) {
	p := newPool(t)
	m := member("p", `warn contains input.stack.name`)
	for i := range 3 {
		name := fmt.Sprint("s", i)
		if found := findings(t, p, asked(name), []Member{m}); len(found) != 1 || found[0].Error || found[0].Message != name {
			t.Fatalf("%s: %+v", name, found)
		}
		if err := p.judging.idle[0].program.Kill(); err != nil {
			t.Fatal(err)
		}
		if found := p.Early(t.Context(), asked(name).Facts, []Member{m}); len(found) != 1 || found[0].Message != name {
			t.Fatalf("%s: Early() = %+v", name, found)
		}
		if i == 1 {
			continue // the next plan has a worker that was not killed
		}
		if err := p.judging.idle[0].program.Kill(); err != nil {
			t.Fatal(err)
		}
	}
	if err := p.Compile(t.Context(), m.Source, nil); err != nil {
		t.Fatal(err)
	}
	if err := p.compiling.idle[0].program.Kill(); err != nil {
		t.Fatal(err)
	}
	if err := p.Compile(t.Context(), m.Source, nil); err != nil {
		t.Errorf("Compile() = %v after the worker was killed", err)
	}
	if n := p.ended.Len(); n != 0 {
		t.Errorf("%d policies are said to have ended their workers, want none", n)
	}
	if len(p.judging.idle) != 1 || len(p.compiling.idle) != 1 {
		t.Errorf("%d and %d workers are idle, want one of each", len(p.judging.idle), len(p.compiling.idle))
	}
}

// A policy that breaks a new worker is to blame, and the others are asked nevertheless.
func TestAPolicyThatBreaksANewWorkerIsToBlame(t *testing.T) {
	p := newPool(t)
	p.most.evaluate = 3 * time.Second // the quick ones have that long, too, on a machine that may be busy
	slow := member("slow", `warn contains sprintf("%d", [count([1 | some i in numbers.range(1, 90000); some j in numbers.range(1, 90000)])])`)
	quick := member("quick", `warn contains input.stack.name`)
	found := findings(t, p, asked("a"), []Member{quick, slow, quick})
	if len(found) != 3 || policy.Combine(found) != policy.Hold || found[0].Policy != "slow" || !found[0].Error {
		t.Errorf("Findings() = %+v, want an error of the slow one", found)
	}
	if _, ended := p.ended.Get(slow.endedAs(asked("a").Facts)); !ended || p.ended.Len() != 1 {
		t.Errorf("%d policies are said to have ended their workers, the slow one: %v", p.ended.Len(), ended)
	}
}

// A plan for which no worker is free is not judged, and its policies are not to blame.
func TestNoWorkerIsFree(t *testing.T) {
	p := newPool(t)
	p.most.place = time.Millisecond
	for range cap(p.judging.places) {
		p.judging.places <- struct{}{}
	}
	m := member("p", `warn contains "a"`)
	if found, err := p.Findings(t.Context(), asked("a"), []Member{m}); err == nil || !strings.Contains(err.Error(), "no process that evaluates policies was free within 1ms") {
		t.Errorf("Findings() = %+v, %v", found, err)
	}
	<-p.judging.places
	if found := findings(t, p, asked("a"), []Member{m}); len(found) != 1 || found[0].Error {
		t.Errorf("once one is free: %+v", found)
	}
}

// The sets of a worker have a bound in bytes, and one that alone is larger is evaluated
// nevertheless.
func TestTheSetsOfAWorkerAreBounded(t *testing.T) {
	made := func(name string, kib int) rego.Source {
		return terrier(fmt.Sprintf("warn contains %q\n# %s", name, strings.Repeat("a", kib<<10)))
	}
	small, others := made("small", 1), []rego.Source{made("b", 100), made("c", 100), made("large", 300)}
	s := newServer(setsShare * (2*setLeast + setWeight*(150<<10)))
	compile := func(of rego.Source) {
		if r := s.answer(t.Context(), request{Compile: &source{of.Digest(), of, nil}}); r.Error != "" {
			t.Fatal(r.Error)
		}
	}
	if r := s.answer(t.Context(), request{Input: &input{Document: []byte(aPlan)}}); r.Error != "" {
		t.Fatal(r.Error)
	}
	compile(small)
	for _, one := range others {
		compile(one)
		if r := s.answer(t.Context(), request{Evaluate: &evaluate{one.Digest(), "p", nil}}); len(r.Findings) != 1 || r.Findings[0].Error {
			t.Errorf("what was compiled last: %+v", r)
		}
	}
	var unknown []bool
	for _, one := range append(others, small) {
		unknown = append(unknown, s.answer(t.Context(), request{Evaluate: &evaluate{one.Digest(), "p", nil}}).Unknown)
	}
	if got, want := fmt.Sprint(unknown), "[true false false true]"; got != want { // the newest that fits, and the last
		t.Errorf("unknown are %s of b, c, large and small, want %s", got, want)
	}
}

// The weight of sets is at least what they need.
func TestTheWeightOfSets(t *testing.T) {
	many := ""
	for i := range 3000 {
		many += fmt.Sprintf("deny contains sprintf(\"%%s %d\", [c.address]) if {\n\tsome c in input.changes\n\tc.type == \"aws_%d\"\n\tnot c.after.tags.owner\n}\n", i, i)
	}
	facts := ""
	for i := range 10000 {
		facts += fmt.Sprintf("f%d := %d\n", i, i)
	}
	data := map[string]any{}
	for i := range 20000 {
		data[fmt.Sprint("key-", i)] = map[string]any{"allowed": true, "n": i}
	}
	for name, of := range map[string]rego.Source{
		"many rules": terrier(many),
		"facts":      terrier("deny contains \"a\" if f0\n" + facts),
		"data":       {Modules: map[string]string{"policy.rego": "package terrier\ndeny contains \"a\" if data.x"}, Data: data},
	} {
		before := live()
		set, err := rego.Compile(t.Context(), of)
		if err != nil {
			t.Fatal(err)
		}
		grew := live() - before
		t.Logf("%s: %d bytes need %d: %.1f for each", name, set.Size(), grew, float64(grew)/float64(set.Size()))
		if most := setLeast + setWeight*set.Size(); grew > most {
			t.Errorf("%s: a set of %d bytes needs %d bytes, more than its weight %d", name, set.Size(), grew, most)
		}
		runtime.KeepAlive(set)
	}
}

// live is how many bytes the objects need that are in use.
func live() int {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int(m.HeapAlloc)
}

func TestManyAtOnce(t *testing.T) {
	p := newPool(t)
	m := member("p", `warn contains input.stack.name`)
	var all sync.WaitGroup
	for i := range 50 {
		all.Go(func() {
			name := fmt.Sprint("s", i)
			found := findings(t, p, asked(name), []Member{m})
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
	if found, err := p.Findings(ctx, asked("a"), []Member{slow}); err == nil {
		t.Errorf("Findings() = %+v without an error, although no policy was asked", found)
	}
	if found := findings(t, p, asked("a"), []Member{slow}); len(found) != 1 || found[0].Error {
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
	found := findings(t, p, asked("a"), []Member{{Policy: "p", Source: s, Digest: s.Digest()}})
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
		if found := findings(b, p, asked("network"), all); len(found) != 20 {
			b.Fatalf("%+v", found)
		}
	}
}
