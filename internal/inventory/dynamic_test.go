package inventory

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/terrier-iac/terrier/internal/fault"
)

func TestFromOutput(t *testing.T) {
	for name, tt := range map[string]struct {
		output string
		want   []Host
	}{
		"none": {"null", nil},
		"a list": {`[{"name":"b","ip":"10.0.0.2/24","group":"web"},{"name":"a","address":"10.0.0.1","user":"u","port":22,"mac":"02-00-00-00-00-0A","groups":["web","db"],"vars":{"n":1.50},"disk":"32G"}]`, []Host{
			{Name: "b", Address: "10.0.0.2", Groups: []string{"web"}},
			{Name: "a", Address: "10.0.0.1", User: "u", Port: 22, MAC: "02:00:00:00:00:0a", Groups: []string{"db", "web"}, Vars: map[string]any{"n": json.Number("1.50")}},
		}},
		"a map":              {`{"b":{"ansible_host":"10.0.0.2"},"a":"10.0.0.1"}`, []Host{{Name: "a", Address: "10.0.0.1"}, {Name: "b", Address: "10.0.0.2"}}},
		"a host to be given": {`[{"name":"a","address":null,"groups":null}]`, []Host{{Name: "a"}}},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := FromOutput([]byte(tt.output))
			if diff := cmp.Diff(tt.want, got); diff != "" || err != nil {
				t.Errorf("FromOutput(): %v (-want +got):\n%s", err, diff)
			}
		})
	}
	for output, want := range map[string]string{
		`"10.0.0.1"`: "a list of hosts, or a map", `[{"address":"x"}]`: "hosts[0]: it has no name", `[{"name":"a"},{"name":"a"}]`: "there twice", `[{"name":1}]`: "hosts[0]: name: it is a number",
		`{"a":{"name":"b"}}`: `hosts["a"]: name: it is "b"`, `[{"name":"a","port":"22"}]`: "port: it is no port", `[{"name":"a","groups":"web"}]`: "groups: it is a string", `[] []`: "more than one", `[`: "no JSON",
		`[{"name":"a","groups":["all"]}]`: "no name of a group", `[{"name":"a[1:2]"}]`: "no name of one host",
	} {
		if got, err := FromOutput([]byte(output)); err == nil || !strings.Contains(err.Error(), want) || fault.Of(err) != fault.Invalid {
			t.Errorf("FromOutput(%s) = %v, %v, want Invalid with %q", output, got, err, want)
		}
	}
}

func TestDynamic(t *testing.T) {
	var d Dynamic
	written := Host{Name: "api-vm01", Address: "10.100.0.9", User: "old", Groups: []string{"api", "ungrouped"}, Vars: map[string]any{"tier": "1"}}
	if err := d.Add("groove.iq", written, Host{Name: "alone"}); err != nil {
		t.Fatal(err)
	}
	if err := d.Add("groove.iq", Host{Name: "api-vm01", Address: "10.100.0.10", MAC: "02:00:00:00:00:01", Groups: []string{"prod"}}); err != nil {
		t.Fatal(err)
	}
	got, err := d.List()
	if err != nil {
		t.Fatal(err)
	}
	want := `{
  "_meta": {
    "hostvars": {
      "alone": {},
      "api-vm01": {
        "ansible_host": "10.100.0.10",
        "ansible_user": "old",
        "mac_address": "02:00:00:00:00:01",
        "tier": "1"
      }
    }
  },
  "all": {
    "children": [
      "api",
      "prod",
      "tenant_groove_iq"
    ]
  },
  "api": {
    "hosts": [
      "api-vm01"
    ]
  },
  "prod": {
    "hosts": [
      "api-vm01"
    ]
  },
  "tenant_groove_iq": {
    "hosts": [
      "alone",
      "api-vm01"
    ]
  }
}
`
	if diff := cmp.Diff(want, string(got)); diff != "" {
		t.Errorf("List() (-want +got):\n%s", diff)
	}
	if got, err := d.Host("alone"); err != nil || string(got) != "{}\n" {
		t.Errorf("Host(alone) = %s, %v", got, err)
	}
	if _, err := d.Host("nope"); fault.Of(err) != fault.Missing {
		t.Errorf("Host(nope) = %v, want Missing", err)
	}
	if err := d.Add("other", Host{Name: "alone"}); fault.Of(err) != fault.Conflict || !strings.Contains(err.Error(), "groove.iq and other") {
		t.Errorf("Add() of a host that another tenant has = %v, want Conflict with both names", err)
	}
	var none Dynamic
	if got, err := none.List(); err != nil || !json.Valid(got) {
		t.Errorf("List() of nothing = %s, %v", got, err)
	}
}
