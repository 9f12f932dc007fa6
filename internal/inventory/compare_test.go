package inventory

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// A hosts.yml is compared with hosts as Ansible reads it, with and without the marks of Terrier.
func TestCompare(t *testing.T) {
	const text = `all:
  vars: {ansible_user: automation}
  hosts:
    10.0.0.9:
  children:
    web:
      hosts:
        web01: {ansible_host: 10.0.0.1, mac: "52-54-00-AA-BB-CC", ansible_port: 2222}
        old01: {ansible_host: 10.0.0.7, terrier_managed: {by: me, groups: [web], vars: [ansible_host]}}
    edge:
      children: {web: }
`
	web := Host{Name: "web01", Address: "10.0.0.1", User: "automation", Port: 2222, MAC: "52:54:00:aa:bb:cc", Groups: []string{"edge", "web"}}
	old := Host{Name: "old01", Address: "10.0.0.7", Groups: []string{"web"}}
	other := web
	other.Address, other.Groups, other.Vars = "10.0.0.2", []string{"db"}, map[string]any{"cores": 4}
	for name, tt := range map[string]struct {
		hosts []Host
		exact bool
		want  []string
	}{
		"what is there by itself, by its group and by its parents": {hosts: []Host{web, old, {Name: "10.0.0.9", Address: "10.0.0.9"}}, exact: true},
		"a host that is managed and gone":                          {hosts: []Host{web}, want: []string{"- old01"}},
		"every other host, if all are asked for":                   {hosts: []Host{web}, exact: true, want: []string{"- 10.0.0.9", "- old01"}},
		"a host that is missing":                                   {hosts: []Host{web, old, {Name: "web02", Address: "10.0.0.3", User: "root", Groups: []string{"web"}}}, want: []string{"+ web02: ansible_host 10.0.0.3, ansible_user root, in the groups web"}},
		"other values and groups": {hosts: []Host{other, old}, want: []string{
			"~ web01: ansible_host is 10.0.0.1, want 10.0.0.2", "~ web01: cores is not set, want 4", "~ web01: is not in the group db",
		}},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := Compare([]byte(text), tt.hosts, "me", tt.exact)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("Compare() (-want +got):\n%s", diff)
			}
		})
	}
	if _, err := Compare([]byte("all: [1]\n"), nil, "me", false); err == nil || !strings.HasPrefix(err.Error(), "hosts.yml:1") {
		t.Errorf("Compare() of what is no inventory = %v, want the line", err)
	}
}

// What Merge has written is equal to the hosts that it was given.
func TestCompareAfterMerge(t *testing.T) {
	hosts := []Host{{Name: "web01", Address: "10.0.0.1", User: "root", Groups: []string{"web"}, Vars: map[string]any{"cores": 4, "zones": []any{"a", "b"}}}}
	text, err := Merge([]byte(handWritten), hosts, "me")
	if err != nil {
		t.Fatal(err)
	}
	if got, err := Compare(text, hosts, "me", false); err != nil || len(got) != 0 {
		t.Errorf("Compare() after Merge() = %v, %v, want no difference", got, err)
	}
	if got, err := Compare(text, nil, "me", false); err != nil || !cmp.Equal(got, []string{"- web01"}) {
		t.Errorf("Compare() without the host = %v, %v, want that it should vanish", got, err)
	}
}
