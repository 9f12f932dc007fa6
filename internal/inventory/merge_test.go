package inventory

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const handWritten = `---
# Machines of grooveiq.
all:
  vars:
    ansible_user: automation # set by the image
  children:
    # The API, behind the proxy.
    api:
      hosts:
        legacy-api: # bought in 2019
          ansible_host: 10.100.0.99
      vars:
        tier: "1"
    monitoring:
      hosts:
        legacy-api:
`

func TestMerge(t *testing.T) {
	hosts := []Host{
		{Name: "api-vm01", Address: "10.100.0.10", User: "deploy", Groups: []string{"api"}, MAC: "02:00:00:00:00:01"},
		{Name: "db-vm01", Address: "10.100.0.20", Groups: []string{"db", "backup"}, Vars: map[string]any{"cores": json.Number("4"), "version": "1.10"}},
	}
	got, err := Merge([]byte(handWritten), hosts, "grooveiq/machines")
	if err != nil {
		t.Fatal(err)
	}
	want := `---
# Machines of grooveiq.
all:
  vars:
    ansible_user: automation # set by the image
  children:
    # The API, behind the proxy.
    api:
      hosts:
        legacy-api: # bought in 2019
          ansible_host: 10.100.0.99
        api-vm01:
          ansible_host: 10.100.0.10
          ansible_user: deploy
          mac_address: 02:00:00:00:00:01
          terrier_managed: {by: grooveiq/machines, groups: [api], vars: [ansible_host, ansible_user, mac_address]}
      vars:
        tier: "1"
    monitoring:
      hosts:
        legacy-api:
    db:
      hosts:
        db-vm01:
          ansible_host: 10.100.0.20
          cores: 4
          version: "1.10"
          terrier_managed: {by: grooveiq/machines, groups: [db, backup], vars: [ansible_host, cores, version]}
    backup:
      hosts:
        db-vm01:
`
	if diff := cmp.Diff(want, string(got)); diff != "" {
		t.Errorf("Merge() (-want +got):\n%s", diff)
	}
	again, err := Merge(got, hosts, "grooveiq/machines")
	if err != nil || string(again) != string(got) {
		t.Errorf("a second Merge() = %v, and changes the text:\n%s", err, cmp.Diff(string(got), string(again)))
	}
	// All hosts are destroyed: what was written before is there again, but for groups.
	gone, err := Merge(got, nil, "grooveiq/machines")
	if err != nil {
		t.Fatal(err)
	}
	if s := string(gone); strings.Contains(s, "vm01") || strings.Contains(s, Managed) || !strings.HasPrefix(s, strings.TrimSuffix(handWritten, "\n")) {
		t.Errorf("after the hosts are gone:\n%s", s)
	}
}

func TestMergeOfLaterChanges(t *testing.T) {
	const by = "t/machines"
	one := func(h Host) []Host { return []Host{h} }
	base := Host{Name: "vm1", Address: "10.0.0.1", User: "u", Groups: []string{"web"}}
	for name, tt := range map[string]struct {
		text  string // before the first Merge
		first []Host
		then  []Host
		has   []string
		lacks []string
	}{
		"an empty file":             {first: nil, then: one(base), has: []string{"---\nall:\n  children:\n    web:\n      hosts:\n        vm1:\n"}},
		"comments alone":            {text: "# machines of t\n", then: one(base), has: []string{"# machines of t\nall:\n"}},
		"braces":                    {text: "web: {hosts: {other: }, vars: {a: }}\n", then: one(base), has: []string{"other: null", "vm1: {"}},
		"a host without groups":     {then: one(Host{Name: "vm1", Address: "10.0.0.1"}), has: []string{"all:\n  hosts:\n    vm1:\n"}},
		"another address":           {first: one(base), then: one(Host{Name: "vm1", Address: "10.0.0.2", User: "u", Groups: []string{"web"}}), has: []string{"ansible_host: 10.0.0.2"}, lacks: []string{"10.0.0.1"}},
		"a variable that is gone":   {first: one(base), then: one(Host{Name: "vm1", Address: "10.0.0.1", Groups: []string{"web"}}), lacks: []string{"ansible_user"}},
		"another group":             {first: one(base), then: one(Host{Name: "vm1", Address: "10.0.0.1", User: "u", Groups: []string{"db"}}), has: []string{"web:\n      hosts: {}", "db:\n      hosts:\n        vm1:\n          ansible_host"}},
		"no group any more":         {first: one(base), then: one(Host{Name: "vm1", Address: "10.0.0.1", User: "u"}), has: []string{"web:\n      hosts: {}", "  hosts:\n    vm1:\n      ansible_host"}},
		"a host that was written":   {text: "web:\n  hosts:\n    vm1:\n      ansible_host: 10.9.9.9 # old\n      rack: 7\n", then: one(base), has: []string{"ansible_host: 10.0.0.1 # old", "rack: 7"}, lacks: []string{"10.9.9.9"}},
		"a group outside of all":    {text: "web:\n  hosts:\n    other:\n", then: one(base), has: []string{"web:\n  hosts:\n    other:\n    vm1:\n"}},
		"a group without hosts":     {text: "all:\n  children:\n    web:\n", then: one(base), has: []string{"    web:\n      hosts:\n        vm1:\n"}},
		"an empty mapping of hosts": {text: "all:\n  children:\n    web:\n      hosts: {}\n", then: one(base), has: []string{"    web:\n      hosts:\n        vm1:\n"}},
		"a member by a range":       {text: "web:\n  hosts:\n    vm[1:3]:\n", then: one(base), has: []string{"vm[1:3]:", "all:\n  hosts:\n    vm1:\n"}},
		"four spaces":               {text: "web:\n    hosts:\n        other:\n", then: one(base), has: []string{"        vm1:\n            ansible_host"}},
		"hosts of others stay":      {text: "web:\n  hosts:\n    x:\n      terrier_managed: {by: other, groups: [], vars: []}\n", then: one(base), has: []string{"by: other"}},
		"a text that needs quotes":  {then: one(Host{Name: "vm1", Vars: map[string]any{"a": "yes", "b": "0755", "c": true, "d": []any{"x", nil}, "e": "12:30"}}), has: []string{`a: "yes"`, `b: "0755"`, "c: true", `e: "12:30"`}},
	} {
		t.Run(name, func(t *testing.T) {
			text, err := Merge([]byte(tt.text), tt.first, by)
			if err == nil {
				text, err = Merge(text, tt.then, by)
			}
			if err != nil {
				t.Fatal(err)
			}
			for _, part := range tt.has {
				if !strings.Contains(string(text), part) {
					t.Errorf("the text lacks %q:\n%s", part, text)
				}
			}
			for _, part := range tt.lacks {
				if strings.Contains(string(text), part) {
					t.Errorf("the text has %q:\n%s", part, text)
				}
			}
			again, err := Merge(text, tt.then, by)
			if err != nil || string(again) != string(text) {
				t.Errorf("a second Merge() = %v\n%s", err, cmp.Diff(string(text), string(again)))
			}
			v, err := readHosts(text)
			if err != nil {
				t.Fatal(err)
			}
			for _, h := range tt.then {
				if got := v.host(v.hosts[h.Name]); got.Address != h.Address || got.User != h.User {
					t.Errorf("%s is %+v, want %+v", h.Name, got, h)
				}
			}
		})
	}
}

// What is not changed is not written again, so that its text stays as it is.
func TestMergeWithoutChange(t *testing.T) {
	const odd = "# a\n\n\nall:   {hosts: {x:   }}\n"
	got, err := Merge([]byte(odd), nil, "t/machines")
	if err != nil || string(got) != odd {
		t.Errorf("Merge() = %q, %v, want the text as it was", got, err)
	}
}

func TestMergeRefuses(t *testing.T) {
	host := []Host{{Name: "vm1", Address: "10.0.0.1", Groups: []string{"web"}}}
	for name, tt := range map[string]struct {
		text  string
		hosts []Host
		by    string
		want  string
	}{
		"a text that is no inventory":     {"web: [", host, "t", "it is no YAML"},
		"a host of another":               {"web: {hosts: {vm1: {terrier_managed: {by: other}}}}", host, "t", `is managed by "other"`},
		"a range that stands for it":      {"web: {hosts: {'vm[1:2]': }}\nall: {hosts: {vm1: {terrier_managed: {by: t}}}}", nil, "t", "a range or a merge key still stands for it"},
		"an alias in its place":           {"a: &a {hosts: {x: }}\nweb: *a\n", host, "t", "the alias *a is in the place of a change"},
		"an anchor in its place":          {"web: &a {hosts: {x: }}\nb: *a\n", host, "t", "the anchor &a is in the place of a change"},
		"a value that another place sets": {"web: {hosts: {vm1: {rack: 1}}}\ndb: {hosts: {vm1: {ansible_host: 10.9.9.9}}}", host, "t", "is set here as well"},
		"a name that is a range":          {"", []Host{{Name: "vm[1:2]"}}, "t", "no name of one host"},
		"a host twice":                    {"", []Host{{Name: "a"}, {Name: "a"}}, "t", "written twice"},
		"the group all":                   {"", []Host{{Name: "a", Groups: []string{"all"}}}, "t", "no name of a group"},
		"no name of what manages them":    {"", host, "", "what manages them"},
	} {
		t.Run(name, func(t *testing.T) {
			if got, err := Merge([]byte(tt.text), tt.hosts, tt.by); err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("Merge() = %v, want an error with %q; text:\n%s", err, tt.want, got)
			}
		})
	}
}

// Comments of hosts that stay survive, and those below a host that goes.
func TestMergeKeepsComments(t *testing.T) {
	text := `all:
  children:
    web:
      hosts:
        # made by Terrier
        vm1:
          terrier_managed: {by: t, groups: [web], vars: []}
        # written by us
        other: # keep
          rack: 1 # in the cellar
# the end
`
	got, err := Merge([]byte(text), nil, "t")
	if err != nil {
		t.Fatal(err)
	}
	for _, part := range []string{"# written by us", "other: # keep", "# in the cellar", "# the end"} {
		if !strings.Contains(string(got), part) {
			t.Errorf("the text lacks %q:\n%s", part, got)
		}
	}
}

// Whatever Merge writes, it reads again, and another Merge changes nothing.
func FuzzMerge(f *testing.F) {
	f.Add(handWritten, "vm1", "web", "yes")
	f.Add("web: {hosts: {'vm[1:3]': }}", "vm2", "db", "{{ x }}")
	f.Add("a: &a {hosts: {x: }}\nb: *a\n", "x", "a", "- 1")
	f.Fuzz(func(t *testing.T, text, name, group, value string) {
		hosts := []Host{{Name: name, Address: "10.0.0.1", Groups: []string{group}, Vars: map[string]any{"v": value}}}
		once, err := Merge([]byte(text), hosts, "t")
		if err != nil {
			return
		}
		twice, err := Merge(once, hosts, "t")
		if err != nil || string(once) != string(twice) {
			t.Errorf("the second Merge: %v\n%s", err, cmp.Diff(string(once), string(twice)))
		}
	})
}
