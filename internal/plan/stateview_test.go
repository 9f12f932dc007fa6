package plan

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const viewed = `{"version":4,"terraform_version":"1.12.6","serial":7,"lineage":"l",
"outputs":{"plain":{"value":1,"type":"number"},"hidden":{"value":"topsecret","type":"string","sensitive":true}},
"resources":[
 {"mode":"managed","type":"t","name":"a","module":"module.m[\"x\"]","provider":"module.m.provider[\"registry.opentofu.org/p/t\"].alias",
  "instances":[{"index_key":0,"status":"tainted","attributes":{"id":"1","list":[{"k":"topsecret","n":2}],"note":"has topsecret in it","admin_password":"hunter22","empty_token":""},
   "sensitive_attributes":[[{"type":"get_attr","value":"list"},{"type":"index","value":{"value":0,"type":"number"}},{"type":"get_attr","value":"k"}]]}]},
 {"mode":"data","type":"d","name":"b","provider":"p","instances":[{"index_key":"a\"${b}","attributes":{"id":"2"}}]},
 {"mode":"managed","type":"t","name":"gone","instances":[{"deposed":"cafe","attributes":{"id":"3"},"sensitive_attributes":[[{"type":"get_attr","value":"nowhere"}]]}]}
]}`

func TestViewStateShowsNoSecret(t *testing.T) {
	v, err := ViewState([]byte(viewed), Showing{})
	if err != nil {
		t.Fatal(err)
	}
	text, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	for _, secret := range []string{"topsecret", "hunter22"} {
		if strings.Contains(string(text), secret) {
			t.Errorf("%s is shown: %s", secret, text)
		}
	}
	var addresses []string
	for _, r := range v.Resources {
		addresses = append(addresses, r.Address)
	}
	want := []string{`module.m["x"].t.a[0]`, `data.d.b["a\"$${b}"]`, "t.gone"}
	if diff := cmp.Diff(want, addresses); diff != "" {
		t.Errorf("addresses (-want +got):\n%s", diff)
	}
	a := v.Resources[0]
	if !a.Tainted || a.Provider != "registry.opentofu.org/p/t" || a.Attributes["id"] != "1" || a.Attributes["empty_token"] != "" {
		t.Errorf("the first resource is %+v; want what is no secret as it is", a)
	}
	if v.Resources[2].Attributes["id"] != Mask {
		t.Errorf("a path that leads nowhere covers %v, want all that it may have meant", v.Resources[2].Attributes)
	}
	open, err := ViewState([]byte(viewed), Showing{Reveal: true})
	if err != nil {
		t.Fatal(err)
	}
	if got := open.Resources[0].Attributes["admin_password"]; got != "hunter22" || open.Outputs[0].Value != "topsecret" {
		t.Errorf("revealed: %v and %v, want the values", got, open.Outputs[0].Value)
	}
}

func TestDiffStates(t *testing.T) {
	at := func(resources string) []byte {
		return []byte(`{"lineage":"l","serial":1,"resources":[` + resources + `]}`)
	}
	one := func(name, id string) string {
		return `{"mode":"managed","type":"t","name":"` + name + `","instances":[{"attributes":{"id":"` + id + `"}}]}`
	}
	for name, tt := range map[string]struct {
		before, after []byte
		want          StateDifference
	}{
		"the same":              {at(one("a", "1")), at(one("a", "1")), StateDifference{}},
		"one goes, one comes":   {at(one("a", "1")), at(one("b", "1")), StateDifference{Gone: []string{"t.a"}, Added: []string{"t.b"}}},
		"another object":        {at(one("a", "1")), at(one("a", "2")), StateDifference{Changed: []string{"t.a"}}},
		"over nothing":          {nil, at(one("a", "1")), StateDifference{Added: []string{"t.a"}}},
		"over what is no state": {[]byte("x"), at(one("a", "1")), StateDifference{Added: []string{"t.a"}}},
	} {
		got, err := DiffStates(tt.before, tt.after)
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if diff := cmp.Diff(tt.want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

const fromSecrets = `{"version":4,"serial":1,"lineage":"l",
"outputs":{"url":{"value":"https://u:from-a-secret@h/","type":"string"},"plain":{"value":"x","type":"string"}},
"resources":[
 {"mode":"managed","type":"t","name":"a","instances":[{"index_key":"from-a-secret","attributes":{
   "id":"from-a-secret","port":54321,"nested":[{"x":["in from-a-secret"]}],"wrapped":{"type":"string","value":"from-a-secret"},"pin":"007",
   "list":{"type":["list","string"],"value":["a"]},"genuine":{"type":"A","value":"1.2.3.4"},"count":3}}]},
 {"mode":"managed","type":"t","name":"w","instances":[
   {"attributes":{"kind":"a string","in":{"value":{"k":"marked-secret"},"type":["object",{"k":"string"}]}},"sensitive_attributes":[[{"type":"get_attr","value":"in"},{"type":"get_attr","value":"k"}]]},
   {"deposed":"cafe","attributes":{"id":"1"}}]}
]}`

// What came from a Secret is masked wherever it stands, although neither the module
// nor the state says that it is secret.
func TestViewStateMasksWhatCameFromSecrets(t *testing.T) {
	m := Remembered{Key: []byte("k")}
	m.Add([]string{"from-a-secret", "54321", "007"})
	p, err := m.Prints()
	if err != nil {
		t.Fatal(err)
	}
	v, err := ViewState([]byte(fromSecrets), Showing{Secrets: p})
	if err != nil {
		t.Fatal(err)
	}
	want := []StateResource{
		{Address: `t.a["` + Mask + `"]`, Mode: "managed", Attributes: map[string]any{
			"id": Mask, "port": Mask, "nested": []any{map[string]any{"x": []any{"in " + Mask}}}, "wrapped": Mask, "pin": Mask,
			"list": []any{"a"}, "genuine": map[string]any{"type": "A", "value": "1.2.3.4"}, "count": json.Number("3"),
		}},
		{Address: "t.w", Mode: "managed", Attributes: map[string]any{"kind": "a string", "in": map[string]any{"k": Mask}}},
		{Address: "t.w", Mode: "managed", Deposed: "cafe", Attributes: map[string]any{"id": "1"}},
	}
	if diff := cmp.Diff(want, v.Resources); diff != "" {
		t.Errorf("resources (-want +got):\n%s", diff)
	}
	if got := v.Resources[2].Title(); got != "t.w (deposed object cafe)" {
		t.Errorf("Title() = %q", got)
	}
	outputs := []StateOutput{{Name: "plain", Value: "x"}, {Name: "url", Sensitive: true, Value: Mask}}
	if diff := cmp.Diff(outputs, v.Outputs); diff != "" {
		t.Errorf("outputs (-want +got):\n%s", diff)
	}
	open, err := ViewState([]byte(fromSecrets), Showing{Secrets: p, Reveal: true})
	if err != nil {
		t.Fatal(err)
	}
	if a := open.Resources[0]; a.Address != `t.a["from-a-secret"]` || a.Attributes["wrapped"] != "from-a-secret" || open.Outputs[1].Value != "https://u:from-a-secret@h/" {
		t.Errorf("revealed: %+v, %+v", a, open.Outputs)
	}
	blind, err := ViewState([]byte(fromSecrets), Showing{Unknown: "the server does not answer"})
	if err != nil {
		t.Fatal(err)
	}
	if blind.Masked == "" || blind.Resources[0].Attributes["count"] != Mask || blind.Outputs[0].Value != Mask {
		t.Errorf("not known what came from Secrets: %+v, want every value masked", blind)
	}
}
