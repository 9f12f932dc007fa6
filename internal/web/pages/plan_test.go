package pages

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/net/html"
	"golang.org/x/net/html/atom"

	"github.com/terrier-iac/terrier/internal/access"
	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/plan"
	"github.com/terrier-iac/terrier/internal/query"
	"github.com/terrier-iac/terrier/internal/stack"
	"github.com/terrier-iac/terrier/internal/web/ui"
)

// planned is an estate with the document of one plan, and who read it.
type planned struct {
	*estate
	document []byte
	mu       sync.Mutex
	reads    int
	fail     error
}

func (p *planned) Plan(_ context.Context, k query.Key, digest string) (query.PlanDocument, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.reads++
	return query.PlanDocument{PlanInfo: query.PlanInfo{Digest: digest}, Document: p.document}, p.fail
}

// recorded is a document as it is kept, from a plan that a real engine made.
func recorded(t testing.TB, name string) []byte {
	t.Helper()
	raw, err := os.ReadFile(filepath.Join("..", "..", "plan", "testdata", name))
	if err != nil {
		t.Fatal(err)
	}
	d, err := plan.ParseDocument(raw)
	if err != nil {
		t.Fatal(err)
	}
	return d.Masked()
}

// large is a document of n resources that change in all ways.
func large(n int) []byte {
	var list []map[string]any
	for i := range n {
		before := map[string]any{"name": fmt.Sprintf("thing-%d", i), "size": i, "tags": map[string]any{"team": "core", "tier": "gold"}, "arn": "arn:aws:x:eu:1:" + strings.Repeat("a", 40), "note": hostile}
		after := map[string]any{"name": fmt.Sprintf("thing-%d", i), "size": i + 1, "tags": map[string]any{"team": "core", "tier": "silver"}, "arn": before["arn"], "note": hostile + "x"}
		c := map[string]any{"actions": []string{"update"}, "before": before, "after": after, "after_unknown": map[string]any{"etag": true}, "before_sensitive": map[string]any{"token": true}, "after_sensitive": map[string]any{"token": true}}
		switch i % 5 {
		case 0:
			c["actions"], c["before"] = []string{"create"}, nil
		case 1:
			c["actions"], c["after"] = []string{"delete"}, nil
		case 2:
			c["actions"], c["replace_paths"] = []string{"delete", "create"}, [][]any{{"size"}}
		}
		list = append(list, map[string]any{"address": fmt.Sprintf(`module.m["%d"].world_thing.x[%d]`, i%50, i), "type": "world_thing", "name": "x", "mode": "managed", "provider_name": "registry.example/t/world", "change": c})
	}
	b, err := json.Marshal(map[string]any{"format_version": "1.2", "resource_changes": list})
	if err != nil {
		panic(err) // it is made of what encodes
	}
	return b
}

func planVisit(t *testing.T, document []byte, address string) (*Visit, *planned) {
	t.Helper()
	p := &planned{estate: town(), document: document}
	v := visitor(t, p.estate, address)
	v.Backend.Stacks = p
	return v, p
}

func TestPlansKeepTheRules(t *testing.T) {
	documents := map[string][]byte{"recorded": recorded(t, "plan.json"), "a destroy": recorded(t, "destroy.json"), "with drift": recorded(t, "drift.json"), "without changes": recorded(t, "unchanged.json"), "large": large(450)}
	for name, document := range documents {
		for _, address := range []string{"", "?view=text", "?q=terraform+updated", "?q=" + "%3Cscript%3E", "?action=delete", "?action=nonsense", "?offset=200", "?offset=-7", "?offset=99999", "?digest=sha256:other"} {
			if name != "recorded" && len(address) > 10 && name != "large" {
				continue
			}
			t.Run(name+address, func(t *testing.T) {
				v, _ := planVisit(t, document, "/stacks/apps/checkout/plan"+address)
				p, err := Plan(v)
				if err != nil {
					t.Fatal(err)
				}
				d := parse(t, v, p)
				if text := d.text(); strings.Contains(text, "correct-horse") || strings.Contains(text, "staple-and") {
					t.Errorf("the page shows a secret")
				}
				for _, n := range d.all(is(atom.Form)) {
					if strings.HasSuffix(attr(n, "action"), "/approve") && strings.Contains(address, "other") {
						t.Error("a plan that does not wait can be approved")
					}
				}
			})
		}
	}
}

// What is most to lose comes first, and each kind of change says what it is.
func TestAPlanSaysWhatItDoes(t *testing.T) {
	v, _ := planVisit(t, recorded(t, "plan.json"), "/stacks/apps/checkout/plan")
	p, err := Plan(v)
	if err != nil {
		t.Fatal(err)
	}
	d := parse(t, v, p)
	var heads []string
	for _, n := range d.all(func(n *html.Node) bool { return strings.Contains(attr(n, "class"), "grouphead") }) {
		heads = append(heads, textOf(n))
	}
	if want := []string{"-Destroy 2", "±Replace 1", "~Update 1", "+Create 1", "↓Import 1", "→Move 1", "·Forget 1"}; !cmp.Equal(heads, want) {
		t.Errorf("groups are %q, want %q", heads, want)
	}
	text := d.text()
	for _, want := range []string{"created first", "moved from terraform_data.old_name", "imported by the id 11111111-2222", "known after apply", "sensitive, changed", "forces replacement",
		"12345678901234567890", "it is no longer in the configuration", "Plan: 1 to import", "1 attribute unchanged: input"} {
		if !strings.Contains(text, want) {
			t.Errorf("the page does not say %q", want)
		}
	}
	if !strings.Contains(text, `new \x1b[31mname`) {
		t.Errorf("a control character is not shown as one: %s", text)
	}
}

func TestLinksToAChangeLeadToItsPage(t *testing.T) {
	v, _ := planVisit(t, large(450), "/stacks/apps/checkout/plan?offset=200&q=world_thing&digest=sha256:plan-main-4f1c9ab2d7")
	p, err := Plan(v)
	if err != nil {
		t.Fatal(err)
	}
	d := parse(t, v, p)
	links := d.all(func(n *html.Node) bool { return n.DataAtom == atom.A && textOf(n) == "Link to this change" })
	if len(links) != changesShown {
		t.Fatalf("%d links, want %d", len(links), changesShown)
	}
	address, id, _ := strings.Cut(attr(links[0], "href"), "#")
	if want := "/stacks/apps/checkout/plan?digest=sha256%3Aplan-main-4f1c9ab2d7&offset=200&q=world_thing"; address != want {
		t.Errorf("a link leads to %q, want %q", address, want)
	}
	if len(d.all(func(n *html.Node) bool { return attr(n, "id") == id })) != 1 {
		t.Errorf("there is no %q on the page", id)
	}
}

func TestAPlanIsReadOnce(t *testing.T) {
	v, p := planVisit(t, recorded(t, "plan.json"), "/stacks/apps/checkout/plan")
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			if _, err := Plan(v); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	if p.reads != 1 {
		t.Errorf("the plan was read %d times, want once", p.reads)
	}
}

func TestAPlanThatCannotBeReadIsAskedForAgain(t *testing.T) {
	v, p := planVisit(t, recorded(t, "plan.json"), "/stacks/apps/checkout/plan")
	p.fail = fault.New(fault.Later, "NotReady", errors.New("not yet"))
	if _, err := Plan(v); fault.Of(err) != fault.Later {
		t.Fatalf("Plan() = %v, want Later", err)
	}
	p.fail = nil
	if _, err := Plan(v); err != nil {
		t.Errorf("Plan() = %v once it can be read", err)
	}
}

func TestKeptPlansAreBounded(t *testing.T) {
	var k keptPlans
	small := large(1)
	for i := range 3 * plansKept {
		if _, err := k.get(t.Context(), planID{"u", fmt.Sprint(i)}, func(context.Context) ([]byte, error) { return small, nil }); err != nil {
			t.Fatal(err)
		}
	}
	if got := k.plans.Len(); got != plansKept {
		t.Errorf("%d plans are kept, want %d", got, plansKept)
	}
	read := false
	if _, err := k.get(t.Context(), planID{"u", fmt.Sprint(3*plansKept - 1)}, func(context.Context) ([]byte, error) { read = true; return small, nil }); err != nil || read {
		t.Errorf("the newest plan was read again (%v)", err)
	}
	if _, err := k.get(t.Context(), planID{"other", fmt.Sprint(3*plansKept - 1)}, func(context.Context) ([]byte, error) { read = true; return small, nil }); err != nil || !read {
		t.Errorf("the plan of another stack was shown")
	}
}

// Who decides sees the reason if they cannot, and what was seen travels along.
func TestDecidingOnAPlan(t *testing.T) {
	for name, tt := range map[string]struct {
		address string
		can     bool
		forms   int
		says    string
	}{
		"a pending plan":          {"/stacks/apps/checkout/plan", true, 1, "I have reviewed what this plan destroys"},
		"without the right":       {"/stacks/apps/checkout/plan", false, 0, "You may not change the stack"},
		"planOnly":                {"/stacks/net/watch/plan", true, 0, "planOnly is set"},
		"another plan":            {"/stacks/apps/checkout/plan?digest=sha256:gone", true, 0, "Another plan is pending."},
		"a plan that was applied": {"/stacks/apps/cart/plan", true, 0, "This plan was applied last."},
	} {
		t.Run(name, func(t *testing.T) {
			v, _ := planVisit(t, recorded(t, "plan.json"), tt.address)
			v.Can = func(access.Request) bool { return tt.can }
			p, err := Plan(v)
			if err != nil {
				t.Fatal(err)
			}
			d := parse(t, v, p)
			forms := d.forms("/approve")
			if len(forms) != tt.forms {
				t.Errorf("%d forms to approve it, want %d", len(forms), tt.forms)
			}
			if !strings.Contains(d.text(), tt.says) {
				t.Errorf("the page does not say %q", tt.says)
			}
			if len(forms) == 1 && (forms[0].Fields.Get("digest") != "sha256:plan-main-4f1c9ab2d7" || forms[0].Fields.Get("back") != "plan") {
				t.Errorf("the form carries %v", forms[0].Fields)
			}
		})
	}
}

func TestAnchorsAreUnique(t *testing.T) {
	seen := map[string]string{}
	for _, s := range []string{"a.b", "a_b", "a b", "a:20b", `a["x"]`, "a[\"x\"]\u202e", "ä", "a.b[0]", "a.b[1]"} {
		id := ui.Anchor(s)
		if was, ok := seen[id]; ok || strings.ContainsAny(id, " \t\n\"'<>&#%") {
			t.Errorf("%q and %q have the id %q", s, was, id)
		}
		seen[id] = s
	}
}

// BenchmarkPlan is what the first byte of a page about 5,000 resources takes:
// cold, it is read and parsed; warm, it is the second page of it.
func BenchmarkPlan(b *testing.B) {
	document := large(5000)
	r, err := NewRenderer("v1")
	if err != nil {
		b.Fatal(err)
	}
	visit := func(b *testing.B, v *Visit) {
		p, err := Plan(v)
		if err != nil {
			b.Fatal(err)
		}
		if _, err := r.Render(v, p); err != nil {
			b.Fatal(err)
		}
	}
	fresh := func() *Visit {
		p := &planned{estate: town(), document: document}
		v := &Visit{Context: b.Context(), Backend: &Backend{Board: board{p.estate}, Stacks: p}, Can: func(access.Request) bool { return true }, Path: "/stacks/apps/checkout/plan", Names: map[string]string{"namespace": "apps", "name": "checkout"}, Query: map[string][]string{"q": {"world_thing"}}, Now: now}
		return v
	}
	b.Run("cold", func(b *testing.B) {
		for b.Loop() {
			visit(b, fresh())
		}
	})
	b.Run("warm", func(b *testing.B) {
		v := fresh()
		visit(b, v)
		for b.Loop() {
			visit(b, v)
		}
	})
}

var updateGolden = flag.Bool("update-pages", false, "rewrite the golden pages")

// The changes of a plan that a real engine made, as a browser gets them.
func TestThePageOfARecordedPlan(t *testing.T) {
	v, _ := planVisit(t, recorded(t, "plan.json"), "/stacks/apps/checkout/plan")
	p, err := Plan(v)
	if err != nil {
		t.Fatal(err)
	}
	d := parse(t, v, p)
	var got strings.Builder
	for _, n := range d.all(func(n *html.Node) bool { return attr(n, "data-part") == "changes" }) {
		if err := html.Render(&got, n); err != nil {
			t.Fatal(err)
		}
	}
	golden := filepath.Join("testdata", "plan.html")
	if *updateGolden {
		if err := os.WriteFile(golden, []byte(got.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(strings.Split(got.String(), "\n"), strings.Split(string(want), "\n")); diff != "" {
		t.Errorf("the page is another (go test -update-pages writes it):\n%s", diff)
	}
}

// Check blocks that fail are on the page of the plan, of the stack, and in the list.
func TestFailingCheckBlocksAreShown(t *testing.T) {
	const document = `{"format_version":"1.2","checks":[{"address":{"kind":"check"},"status":"fail","instances":[
		{"address":{"to_display":"check.expiry"},"status":"fail","problems":[{"message":"expires <b>soon</b>"}]}]}]}`
	v, made := planVisit(t, []byte(document), "/stacks/apps/checkout/plan")
	p, err := Plan(v)
	if err != nil {
		t.Fatal(err)
	}
	if text := parse(t, v, p).text(); !strings.Contains(text, "Failing check blocks 1") || !strings.Contains(text, "check.expiry: expires <b>soon</b>") {
		t.Errorf("the page of the plan does not show the check block: %s", text)
	}
	failing := &stack.FailingCheckBlocks{Failed: []stack.FailedCheckBlock{{Address: "check.expiry", Message: "expires soon"}}}
	for i := range made.rows {
		made.rows[i].FailingCheckBlocks = failing
	}
	if text := show(t, made.estate, "/stacks", Stacks).text(); !strings.Contains(text, "Check failing") {
		t.Errorf("the list does not show the check block: %s", text)
	}
	if notes := headNotes(query.Stack{FailingCheckBlocks: failing}); len(notes) != 1 || notes[0].Text != "1 check block fails: check.expiry: expires soon." {
		t.Errorf("the notes of the stack are %+v", notes)
	}
}
