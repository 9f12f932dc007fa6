package plan

import (
	"encoding/json"
	"math/rand"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/stack"
)

// The sensitive variable of the recorded plans, before and after.
var canaries = []string{"correct-horse-battery", "staple-and-elephant"}

func raw(t testing.TB, name string) []byte {
	t.Helper()
	b, err := os.ReadFile(filepath.Join("testdata", name))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func parse(t testing.TB, b []byte) *Document {
	t.Helper()
	d, err := ParseDocument(b)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func TestChangesAreCountedAsTheEngineCountsThem(t *testing.T) {
	for name, want := range map[string]stack.Changes{
		"plan.json":        {Add: 2, Change: 1, Destroy: 3, Import: 1, Forget: 1, Move: 1, Outputs: 4},
		"destroy.json":     {Destroy: 8, Outputs: 3},
		"unchanged.json":   {},
		"drift-found.json": {Add: 1, Change: 1},
	} {
		if got := parse(t, raw(t, name)).Changes(); got != want {
			t.Errorf("%s: Changes() = %+v, want %+v", name, got, want)
		}
	}
	engine := of[Summary](stream(t, "plan.jsonl"))[0].Changes
	ours := parse(t, raw(t, "plan.json")).Changes()
	ours.Move, ours.Outputs = 0, 0 // the engine does not count them
	if ours != engine {
		t.Errorf("Changes() = %+v, the engine counted %+v", ours, engine)
	}
}

func TestParseDocumentRefusesWhatIsNoPlan(t *testing.T) {
	for _, text := range []string{"", "{}", "[]", `{"format_version":"1.2"`, `{"format_version":"1.2","resource_changes":{}}`} {
		if _, err := ParseDocument([]byte(text)); fault.Of(err) != fault.Invalid {
			t.Errorf("ParseDocument(%q) error = %v, want Invalid", text, err)
		}
	}
}

func TestHashIsOfTheEffect(t *testing.T) {
	const original = "plan.json"
	want := parse(t, raw(t, original)).Hash()
	if again := parse(t, raw(t, "plan-again.json")).Hash(); again != want {
		t.Errorf("a second plan of the same has hash %s, want %s", again, want)
	}
	for name, tt := range map[string]struct {
		edit func(map[string]any)
		same bool
	}{
		"order":     {func(m map[string]any) { shuffle(m["resource_changes"].([]any)) }, true},
		"time":      {func(m map[string]any) { m["timestamp"] = "2001-01-01T00:00:00Z" }, true},
		"format":    {func(m map[string]any) { m["format_version"] = "1.99" }, true},
		"variables": {func(m map[string]any) { delete(m, "variables") }, true},
		"no-ops":    {func(m map[string]any) { m["resource_changes"] = without(m, "no-op") }, false}, // moves and imports are no-ops to the engine
		"reasons":   {func(m map[string]any) { resource(m, "gone")["action_reason"] = "because" }, true},
		"a value":   {func(m map[string]any) { after(m, "updated")["input"].(map[string]any)["added"] = "later" }, false},
		"a secret":  {func(m map[string]any) { after(m, "updated")["input"].(map[string]any)["secret"] = "other" }, false},
		"a big number": {func(m map[string]any) {
			after(m, "updated")["input"].(map[string]any)["size"] = json.Number("12345678901234567892")
		}, false},
		"a mark":      {func(m map[string]any) { change(m, "updated")["after_sensitive"] = true }, false},
		"an unknown":  {func(m map[string]any) { change(m, "updated")["after_unknown"] = map[string]any{} }, false},
		"an action":   {func(m map[string]any) { change(m, "gone")["actions"] = []any{"forget"} }, false},
		"an address":  {func(m map[string]any) { resource(m, "gone")["address"] = "terraform_data.other" }, false},
		"an output":   {func(m map[string]any) { delete(m["output_changes"].(map[string]any), "made") }, false},
		"move gone":   {func(m map[string]any) { delete(resource(m, "new_name"), "previous_address") }, false},
		"import gone": {func(m map[string]any) { delete(change(m, "adopted"), "importing") }, false},
	} {
		t.Run(name, func(t *testing.T) {
			m := decode(raw(t, original)).(map[string]any)
			tt.edit(m)
			got := parse(t, encode(m)).Hash()
			if (got == want) != tt.same {
				t.Errorf("hash is the same: %t, want %t", got == want, tt.same)
			}
		})
	}
}

func shuffle(list []any) {
	rand.New(rand.NewSource(7)).Shuffle(len(list), func(i, j int) { list[i], list[j] = list[j], list[i] })
}

func without(m map[string]any, action string) []any {
	var out []any
	for _, r := range m["resource_changes"].([]any) {
		if r.(map[string]any)["change"].(map[string]any)["actions"].([]any)[0] != action {
			out = append(out, r)
		}
	}
	return out
}

func resource(m map[string]any, name string) map[string]any {
	for _, r := range m["resource_changes"].([]any) {
		if r.(map[string]any)["name"] == name {
			return r.(map[string]any)
		}
	}
	return nil
}

func change(m map[string]any, name string) map[string]any {
	return resource(m, name)["change"].(map[string]any)
}

func after(m map[string]any, name string) map[string]any {
	return change(m, name)["after"].(map[string]any)
}

func TestItems(t *testing.T) {
	got := map[string]Change{}
	for _, c := range parse(t, raw(t, "plan.json")).Items() {
		got[c.Address] = c
	}
	if len(got) != 8 {
		t.Errorf("%d changes, want 8", len(got))
	}
	updated := got["terraform_data.updated"]
	before := map[string]any{
		"name": "old name", "nested": map[string]any{"deep": map[string]any{"left": "alone", "on": true}},
		"policy": `{"Statement":[{"Action":"read","Effect":"Allow"}]}`, "removed": "soon",
		"secret": Mask, "size": json.Number("12345678901234567890"), "tags": []any{"a", "b", "c"},
	}
	want := []Diff{
		{Path: "input.added", After: "now"},
		{Path: "input.name", Before: "old name", After: "new \x1b[31mname"},
		{Path: "input.nested.deep.on", Before: true, After: false},
		{Path: "input.policy(json).Statement[0].Effect", Before: "Allow", After: "Deny"},
		{Path: "input.removed", Before: "soon"},
		{Path: "input.secret", Before: Mask, After: Mask, Sensitive: true},
		{Path: "input.size", Before: json.Number("12345678901234567890"), After: json.Number("12345678901234567891")},
		{Path: "input.tags[1]", After: "x"},
		{Path: "output", Before: before, Unknown: true},
	}
	if diff := cmp.Diff(want, updated.Diffs); diff != "" {
		t.Errorf("diffs of the update (-want +got):\n%s", diff)
	}
	replaced := got["terraform_data.replaced"]
	if !replaced.CreateFirst || replaced.Reason != "replace_because_cannot_update" {
		t.Errorf("replaced = %+v, want the new one made first and a reason", replaced)
	}
	forcing := Diff{Path: "triggers_replace[0]", Before: json.Number("1"), After: json.Number("2"), ForcesReplacement: true}
	if got := replaced.Diffs[len(replaced.Diffs)-1]; !cmp.Equal(got, forcing) {
		t.Errorf("last diff of the replacement = %+v, want %+v", got, forcing)
	}
	if c := got["terraform_data.adopted"]; c.Action != Import || c.Import != "11111111-2222-3333-4444-555555555555" {
		t.Errorf("adopted = %+v, want an import by its id", c)
	}
	if c := got["terraform_data.new_name"]; c.Action != Move || c.Previous != "terraform_data.old_name" {
		t.Errorf("new_name = %+v, want a move from old_name", c)
	}
}

func TestNothingSensitiveIsShown(t *testing.T) {
	for _, name := range []string{"plan.json", "destroy.json", "unchanged.json"} {
		d := parse(t, raw(t, name))
		items, err := json.Marshal([]any{d.Items(), d.Outputs(), d.Drift()})
		if err != nil {
			t.Fatal(err)
		}
		var wide strings.Builder
		if err := Render(&wide, d, Options{Wide: true}); err != nil {
			t.Fatal(err)
		}
		for where, text := range map[string]string{"Masked": string(d.Masked()), "Items": string(items), "Render": wide.String()} {
			for _, canary := range canaries {
				if strings.Contains(text, canary) {
					t.Errorf("%s of %s shows %q", where, name, canary)
				}
			}
		}
	}
}

// A literal in a provider block carries no mark anywhere in the document.
func TestConstantsOfTheConfigurationAreMasked(t *testing.T) {
	d := parse(t, []byte(`{"format_version":"1.2","configuration":{"provider_config":{"x":{"name":"x",
		"expressions":{"password":{"constant_value":"hunter2-literal"}}}},
		"root_module":{"module_calls":{"m":{"module":{"variables":{"v":{"default":"default-secret","sensitive":true}}}}}}}}`))
	got := string(d.Masked())
	for _, canary := range []string{"hunter2-literal", "default-secret"} {
		if strings.Contains(got, canary) {
			t.Errorf("Masked() shows %q: %s", canary, got)
		}
	}
}

func TestAVariableWithoutDeclarationIsMasked(t *testing.T) {
	d := parse(t, []byte(`{"format_version":"1.2","variables":{"v":{"value":"who knows"}}}`))
	if got := string(d.Masked()); strings.Contains(got, "who knows") {
		t.Errorf("Masked() = %s, want the variable masked", got)
	}
}

func TestMaskedStaysAPlan(t *testing.T) {
	d := parse(t, raw(t, "plan.json"))
	masked := parse(t, d.Masked())
	if got, want := masked.Changes(), d.Changes(); got != want {
		t.Errorf("changes of the masked document = %+v, want %+v", got, want)
	}
	m := decode(d.Masked()).(map[string]any)
	for _, section := range []string{"variables", "prior_state", "planned_values", "configuration", "resource_changes"} {
		if m[section] == nil {
			t.Errorf("the masked document has no %s", section)
		}
	}
	if got := after(m, "updated")["input"].(map[string]any)["size"]; got != json.Number("12345678901234567891") {
		t.Errorf("size = %v, want every digit of it", got)
	}
	if got := m["variables"].(map[string]any)["zone"].(map[string]any)["value"]; got != "south" {
		t.Errorf("a variable that is not sensitive = %v, want its value", got)
	}
}

func TestMaskedIsBounded(t *testing.T) {
	d := parse(t, raw(t, "plan.json"))
	full := len(d.Masked())
	for limit := 2048; limit < full; limit += 1000 {
		b := d.maskedWithin(limit)
		if len(b) > limit {
			t.Errorf("within %d bytes: %d bytes", limit, len(b))
		}
		var m struct {
			Truncated []string          `json:"truncated"`
			Changes   []json.RawMessage `json:"resource_changes"`
		}
		if err := json.Unmarshal(b, &m); err != nil || len(m.Truncated) == 0 || len(m.Changes) == 0 {
			t.Errorf("within %d bytes: %d changes, truncated %v (%v); want some changes and a note", limit, len(m.Changes), m.Truncated, err)
		}
	}
}

// A variable is shown only if the document says that it is not sensitive.
func TestHides(t *testing.T) {
	d := parse(t, raw(t, "plan.json"))
	cut := d
	for limit := len(d.Masked()); !slices.Contains(cut.Truncated(), "configuration"); limit -= 500 {
		if limit < 1500 {
			t.Fatal("the test needs a document without its configuration")
		}
		cut = parse(t, d.maskedWithin(limit))
	}
	for variable := range d.wire.Configuration.Root.Variables {
		if want := d.wire.Configuration.Root.Variables[variable].Sensitive; d.Hides(variable) != want || !cut.Hides(variable) {
			t.Errorf("%s: hidden %v, and %v without the configuration; want %v and true", variable, d.Hides(variable), cut.Hides(variable), want)
		}
	}
	if !d.Hides("unheard-of") {
		t.Error("a variable that the module does not declare is shown")
	}
}

func FuzzParseDocument(f *testing.F) {
	for _, name := range []string{"plan.json", "destroy.json", "unchanged.json"} {
		f.Add(raw(f, name))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		d, err := ParseDocument(b)
		if err != nil {
			return
		}
		d.Changes()
		d.Hash()
		if !json.Valid(d.Masked()) {
			t.Errorf("Masked() is no JSON")
		}
		var out strings.Builder
		if err := Render(&out, d, Options{Wide: true}); err != nil {
			t.Error(err)
		}
		for _, r := range out.String() {
			if r < ' ' && r != '\n' || r == 0x7f || r == '\u202e' {
				t.Fatalf("Render() passes %U through", r)
			}
		}
	})
}

// A replacement that leaves the old resource where it is destroys nothing.
func TestForgetAndCreateIsNoReplacement(t *testing.T) {
	for _, order := range []string{`"forget","create"`, `"create","forget"`} {
		d := parse(t, []byte(`{"format_version":"1.2","resource_changes":[{"address":"a.b","mode":"managed","type":"a","name":"b","change":{"actions":[`+order+`],"before":{"x":1},"after":{"x":2}}}]}`))
		if got, want := d.Changes(), (stack.Changes{Add: 1, Forget: 1}); got != want {
			t.Errorf("%s: Changes() = %+v, want %+v", order, got, want)
		}
		if items := d.Items(); len(items) != 1 || items[0].Action != ForgetCreate {
			t.Errorf("%s: Items() = %+v, want it to be forgotten and created", order, items)
		}
	}
}
