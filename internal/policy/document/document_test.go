package document

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/plan"
)

// recorded is what an engine said of a plan.
func recorded(tb testing.TB, name string) []byte {
	tb.Helper()
	b, err := os.ReadFile(filepath.Join("..", "..", "plan", "testdata", name))
	if err != nil {
		tb.Fatal(err)
	}
	return b
}

// masked is that document as it is kept: without what is sensitive, and without the values
// that the run got from Secrets.
func masked(tb testing.TB, raw []byte, fromSecrets ...string) []byte {
	tb.Helper()
	doc, err := plan.ParseDocument(raw)
	if err != nil {
		tb.Fatal(err)
	}
	return plan.NewRedactor(fromSecrets).RedactJSON(doc.Masked())
}

func made(tb testing.TB, masked []byte, f Facts) map[string]any {
	tb.Helper()
	doc, err := Make(masked, f)
	if err != nil {
		tb.Fatal(err)
	}
	return doc
}

// plain is a value as a test writes it.
func plain(tb testing.TB, v any) any {
	tb.Helper()
	b, err := json.Marshal(v)
	if err != nil {
		tb.Fatal(err)
	}
	var out any
	if err := json.Unmarshal(b, &out); err != nil {
		tb.Fatal(err)
	}
	return out
}

func TestChanges(t *testing.T) {
	doc := made(t, masked(t, recorded(t, "plan.json")), Facts{})
	kinds := map[string]any{}
	byAddress := map[string]map[string]any{}
	for _, c := range doc["changes"].([]any) {
		m := c.(map[string]any)
		kinds[m["address"].(string)] = m["kind"]
		byAddress[m["address"].(string)] = m
	}
	want := map[string]any{
		"terraform_data.adopted": "import", "terraform_data.created": "create", "terraform_data.forgotten": "forget", "terraform_data.gone": "delete",
		"terraform_data.new_name": "move", "terraform_data.replaced": "replace", "terraform_data.updated": "update", "module.child.terraform_data.inner[0]": "delete",
	}
	if d := cmp.Diff(kinds, want); d != "" {
		t.Error(d)
	}
	counts := map[string]any{"create": 1, "update": 1, "replace": 1, "delete": 2, "forget": 1, "import": 1, "move": 1, "read": 0, "outputs": doc["counts"].(map[string]any)["outputs"]}
	if d := cmp.Diff(doc["counts"], any(counts)); d != "" {
		t.Error(d)
	}
	created := byAddress["terraform_data.created"]
	if d := cmp.Diff(plain(t, created["unknown"]), any([]any{"id", "input.from", "output"})); d != "" {
		t.Error(d)
	}
	if d := cmp.Diff(plain(t, created["sensitive"]), any([]any{"input.key"})); d != "" {
		t.Error(d)
	}
	if d := cmp.Diff(plain(t, created["after"]), any(map[string]any{"input": map[string]any{"key": "(sensitive)", "zone": "south"}, "triggers_replace": nil})); d != "" {
		t.Error(d)
	}
	if got := byAddress["terraform_data.new_name"]["previous"]; got != "terraform_data.old_name" {
		t.Errorf("previous = %v", got)
	}
	if got := plain(t, byAddress["terraform_data.replaced"]["actions"]); !cmp.Equal(got, any([]any{"create", "delete"})) {
		t.Errorf("actions = %v", got)
	}
	if got := plain(t, byAddress["terraform_data.updated"]["attributes"]); !slices.Contains(got.([]any), any("input.name")) {
		t.Errorf("attributes = %v", got)
	}
	if got := byAddress["module.child.terraform_data.inner[0]"]["module"]; got != "module.child" {
		t.Errorf("module = %v", got)
	}
}

// What was changed outside is no part of what the plan does.
func TestDriftIsNoChange(t *testing.T) {
	doc := made(t, masked(t, recorded(t, "drift.json")), Facts{})
	if n := len(doc["drift"].([]any)); n != 2 {
		t.Errorf("%d drifted resources, want 2", n)
	}
	if n := len(doc["changes"].([]any)); n != 3 {
		t.Errorf("%d changes, want 3", n)
	}
}

func TestModulesAsTheConfigurationHasThem(t *testing.T) {
	raw := masked(t, recorded(t, "plan.json"))
	want := []any{map[string]any{"path": "module.child", "parent": "", "declared": "./child", "kind": "local"}}
	if d := cmp.Diff(plain(t, made(t, raw, Facts{})["modules"]), any(want)); d != "" {
		t.Error(d)
	}
	resolved := Facts{Modules: []Module{{Path: "module.a", Declared: "git::https://user:canary@git.example.com/a.git?ref=v1", Source: "git::https://canary@git.example.com/a.git", Address: "https://git.example.com/a.git"}}}
	text, err := json.Marshal(made(t, raw, resolved)["modules"])
	if err != nil || strings.Contains(string(text), "canary") || !strings.Contains(string(text), "module.a") {
		t.Errorf("modules %s, %v", text, err)
	}
}

func TestFacts(t *testing.T) {
	f := Facts{
		Stack: Stack{Kind: "Terraform", Namespace: "a", Name: "network", Annotations: map[string]string{
			"note": "kept", "kubectl.kubernetes.io/last-applied-configuration": "canary", "terrier.dev/changed-by": "canary", "terrier.dev/requester-groups": "canary",
		}},
		Source: Source{Kind: "GitRepository", URL: "https://user:canary@git.example.com/a.git", Branch: "main"},
		Now:    time.Unix(1e9, 0).UTC(),
	}
	doc := made(t, masked(t, recorded(t, "unchanged.json")), f)
	text, err := json.Marshal(doc)
	if err != nil || strings.Contains(string(text), "canary") {
		t.Errorf("the document shows a canary (%v): %.2000s", err, text)
	}
	stack := doc["stack"].(map[string]any)
	if d := cmp.Diff(stack["annotations"], any(map[string]any{"note": "kept"})); d != "" {
		t.Error(d)
	}
	if doc["now"] != "2001-09-09T01:46:40Z" {
		t.Errorf("now = %v", doc["now"])
	}
	for _, key := range []string{"modules", "providers", "incomplete", "changes", "drift"} {
		if _, ok := doc[key].([]any); !ok {
			t.Errorf("%s is %T, want a list: policies iterate over it", key, doc[key])
		}
	}
}

// No sensitive value of a real plan is in the document, wherever it stands, and neither is a
// value that the run got from a Secret and the module does not call sensitive.
func TestNoSecretReachesThePolicy(t *testing.T) {
	for _, name := range []string{"plan.json", "plan-again.json", "destroy.json", "drift.json", "drift-found.json", "unchanged.json"} {
		raw := recorded(t, name)
		text, err := json.Marshal(made(t, masked(t, raw, "south"), Facts{Requester: "ann"}))
		if err != nil {
			t.Fatal(err)
		}
		for _, canary := range []string{"staple-and-elephant", `"south"`} {
			if strings.Contains(string(text), canary) {
				t.Errorf("%s: the document shows %q", name, canary)
			}
		}
		if strings.Contains(string(raw), "staple-and-elephant") && !strings.Contains(string(text), plan.Mask) {
			t.Errorf("%s: nothing is masked", name)
		}
	}
}

func TestPathsAreThoseOfDiffs(t *testing.T) {
	var marks any
	if err := json.Unmarshal([]byte(`{"a": true, "b": {"c d": true, "e": [false, {"f": true}]}, "g": false, "tags": {"x-y": true}}`), &marks); err != nil {
		t.Fatal(err)
	}
	want := []any{"a", `b["c d"]`, "b.e[1].f", "tags.x-y"}
	if d := cmp.Diff(paths(marks), want); d != "" {
		t.Error(d)
	}
	many := map[string]any{}
	for i := range 2 * pathsMost {
		many[string(rune('a'+i%26))+strings.Repeat("x", i)] = true
	}
	if n := len(paths(many)); n != pathsMost {
		t.Errorf("%d paths, want %d", n, pathsMost)
	}
}

func TestDocumentsThatCannotBeRead(t *testing.T) {
	for _, text := range []string{``, `[]`, `null`, `{}`, `{"format_version": "1.2"`} {
		if _, err := Make([]byte(text), Facts{}); fault.Of(err) != fault.Invalid {
			t.Errorf("Make(%s) = %v, want an error", text, err)
		}
	}
}

func FuzzMake(f *testing.F) {
	for _, name := range []string{"plan.json", "drift.json"} {
		f.Add(recorded(f, name))
	}
	f.Add([]byte(`{"format_version": "1", "resource_changes": [{"address": "a", "change": null}, null, 7], "configuration": {"root_module": {"module_calls": {"a": null, "b": {"module": 1}}}}}`))
	f.Fuzz(func(t *testing.T, raw []byte) {
		doc, err := Make(raw, Facts{})
		if err != nil {
			return
		}
		if _, err := json.Marshal(doc); err != nil {
			t.Errorf("the document is no JSON: %v", err)
		}
	})
}
