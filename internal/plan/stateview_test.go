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
	v, err := ViewState([]byte(viewed), false)
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
	open, err := ViewState([]byte(viewed), true)
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
