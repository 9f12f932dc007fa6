package afterapply

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// Every form of a step is read as it is written.
func TestParse(t *testing.T) {
	got, err := Parse([]byte(`[
		{"name": "up", "timeout": "5m", "waitFor": {"protocol": "ssh", "hostsFrom": "hosts"}},
		{"name": "configure", "retries": 2, "pause": "30s", "outputs": ["token"], "ansible": {"playbook": "../ansible/site.yml", "hostsFrom": "hosts", "inventory": "../hosts.yml", "extraVars": ["zone"], "limit": "web"}},
		{"name": "register", "files": ["data"], "command": ["bin/register", "--all"]}
	]`))
	if err != nil {
		t.Fatal(err)
	}
	want := []Step{
		{Name: "up", Timeout: Duration{5 * time.Minute}, WaitFor: &WaitFor{Protocol: "ssh", HostsFrom: "hosts"}},
		{Name: "configure", Retries: 2, Pause: Duration{30 * time.Second}, Outputs: []string{"token"}, Ansible: &Ansible{Playbook: "../ansible/site.yml", HostsFrom: "hosts", Inventory: "../hosts.yml", ExtraVars: []string{"zone"}, Limit: "web"}},
		{Name: "register", Files: []string{"data"}, Command: []string{"bin/register", "--all"}},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("Parse() is not what was written (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{"../ansible/site.yml", "../hosts.yml"}, got[1].Uses()); diff != "" {
		t.Errorf("Uses() of a playbook (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{"data", "bin/register"}, got[2].Uses()); diff != "" {
		t.Errorf("Uses() of a program (-want +got):\n%s", diff)
	}
}

// An error names the step and the field, and says what it may be.
func TestParseErrors(t *testing.T) {
	for name, tt := range map[string]struct{ text, want string }{
		"no list":                                   {`{}`, "is not a list"},
		"no name":                                   {`[{"command": ["a"]}]`, "[0].name: \"\" is no name"},
		"the same name twice":                       {`[{"name": "a", "command": ["a"]}, {"name": "a", "command": ["a"]}]`, `[1].name: "a" is the name of another`},
		"nothing to do":                             {`[{"name": "a"}]`, "[0]: has 0 of waitFor, ansible, command, targets and inventory"},
		"two things to do":                          {`[{"name": "a", "command": ["a"], "waitFor": {"protocol": "ssh", "hosts": ["a"]}}]`, "[0]: has 2 of"},
		"an unknown field":                          {`[{"name": "a", "comand": ["a"]}]`, "[0].comand: there is no such field"},
		"no duration":                               {`[{"name": "a", "timeout": "5", "command": ["a"]}]`, `[0]: "5" is no duration`},
		"a timeout without end":                     {`[{"name": "a", "timeout": "1000h", "command": ["a"]}]`, "[0].timeout: 1000h0m0s is not between"},
		"too many retries":                          {`[{"name": "a", "retries": 1000, "command": ["a"]}]`, "[0].retries: 1000 is not between 0 and 20"},
		"an empty command":                          {`[{"name": "a", "command": []}]`, "[0].command: is empty"},
		"an option for a program":                   {`[{"name": "a", "command": ["-c"]}]`, `[0].command[0]: "-c" is no program`},
		"another protocol":                          {`[{"name": "a", "waitFor": {"protocol": "icmp", "hosts": ["a"]}}]`, `[0].waitFor.protocol: "icmp" is neither`},
		"tcp without a port":                        {`[{"name": "a", "waitFor": {"protocol": "tcp", "hosts": ["a"]}}]`, "[0].waitFor.port: 0 is no port"},
		"no hosts":                                  {`[{"name": "a", "waitFor": {"protocol": "ssh"}}]`, "[0].waitFor: needs hosts"},
		"a host with a port":                        {`[{"name": "a", "waitFor": {"protocol": "ssh", "hosts": ["a b"]}}]`, `[0].waitFor.hosts[0]: "a b" is no name`},
		"no playbook":                               {`[{"name": "a", "ansible": {"hostsFrom": "h"}}]`, `[0].ansible.playbook: "" is no path`},
		"a playbook of the image":                   {`[{"name": "a", "ansible": {"playbook": "/etc/x.yml", "hostsFrom": "h"}}]`, `[0].ansible.playbook: "/etc/x.yml" is no path`},
		"no inventory":                              {`[{"name": "a", "ansible": {"playbook": "x.yml"}}]`, "[0].ansible: needs an inventory"},
		"targets without hosts":                     {`[{"name": "a", "targets": {"port": 9100}}]`, "[0].targets.hostsFrom: is missing"},
		"a scheme of files":                         {`[{"name": "a", "targets": {"hostsFrom": "h", "port": 1, "scrapeConfig": {"scheme": "file"}}}]`, `[0].targets.scrapeConfig.scheme: "file" is neither`},
		"a path of the scrape":                      {`[{"name": "a", "targets": {"hostsFrom": "h", "port": 1, "scrapeConfig": {"path": "metrics"}}}]`, `[0].targets.scrapeConfig.path: "metrics" is no path`},
		"a label of Terrier":                        {`[{"name": "a", "targets": {"hostsFrom": "h", "port": 1, "scrapeConfig": {"labels": {"terrier.dev/x": "y"}}}}]`, "[0].targets.scrapeConfig.labels: "},
		"a label of the scrape":                     {`[{"name": "a", "targets": {"hostsFrom": "h", "port": 9100, "labels": {"__address__": "x"}}}]`, `[0].targets.labels: "__address__" is no name`},
		"an option for a limit":                     {`[{"name": "a", "ansible": {"playbook": "x.yml", "hostsFrom": "h", "limit": "-e x"}}]`, `[0].ansible.limit: "-e x" is no pattern`},
		"a file above the source":                   {`[{"name": "a", "inventory": {"path": "/hosts.yml", "hostsFrom": "h"}}]`, `[0].inventory.path: "/hosts.yml" is no path`},
		"a file of a workflow":                      {`[{"name": "a", "inventory": {"path": ".github/workflows/a.yml", "hostsFrom": "h", "mode": "commit"}}]`, `[0].inventory.path: ".github/workflows/a.yml" has a part`},
		"another kind of file":                      {`[{"name": "a", "inventory": {"path": "hosts", "hostsFrom": "h"}}]`, `[0].inventory.path: "hosts" is no file such as hosts.yml`},
		"no such mode":                              {`[{"name": "a", "inventory": {"path": "hosts.yml", "hostsFrom": "h", "mode": "push"}}]`, `[0].inventory.mode: "push" is none of`},
		"a branch without a name":                   {`[{"name": "a", "inventory": {"path": "hosts.yml", "hostsFrom": "h", "mode": "branch"}}]`, "[0].inventory.branch: the mode branch needs"},
		"a branch of a commit":                      {`[{"name": "a", "inventory": {"path": "hosts.yml", "hostsFrom": "h", "mode": "commit", "branch": "x"}}]`, "[0].inventory.branch: the mode branch needs"},
		"no other host in a file that others write": {`[{"name": "a", "inventory": {"path": "hosts.yml", "hostsFrom": "h", "mode": "commit", "exact": true}}]`, "[0].inventory.exact: hosts that others wrote stay"},
		"secrets in a repository":                   {`[{"name": "a", "outputs": ["x"], "inventory": {"path": "hosts.yml", "hostsFrom": "h"}}]`, "[0].outputs: names sensitive outputs"},
		"a program after a file that is written":    {`[{"name": "a", "inventory": {"path": "hosts.yml", "hostsFrom": "h", "mode": "commit"}}, {"name": "b", "command": ["b"]}]`, "[1]: the step b comes after a"},
		"a playbook with a file that is written":    {`[{"name": "b", "ansible": {"playbook": "x.yml", "inventory": ".."}}, {"name": "a", "inventory": {"path": "../hosts.yml", "hostsFrom": "h", "mode": "commit"}}]`, "[0]: the step b uses .., which the step a writes"},
		"a file that two steps write":               {`[{"name": "a", "inventory": {"path": "hosts.yml", "hostsFrom": "h", "mode": "commit"}}, {"name": "b", "inventory": {"path": "./hosts.yml", "hostsFrom": "i", "mode": "commit"}}]`, "[1].inventory.path: the step a writes this file"},
	} {
		t.Run(name, func(t *testing.T) {
			if got, err := Parse([]byte(tt.text)); err == nil || !strings.HasPrefix(err.Error(), tt.want) || got != nil {
				t.Errorf("Parse() = %v, %v, want an error that begins with %q", got, err, tt.want)
			}
		})
	}
}

func outputs() map[string]Output {
	return map[string]Output{
		"hosts": {Value: json.RawMessage(`{"web01": {"ip": "10.0.0.1", "user": "fedora", "groups": ["web"]}, "db01": "10.0.0.2"}`)},
		"zone":  {Value: json.RawMessage(`{"id": 7}`)},
		"token": {Value: json.RawMessage(`"hunter2"`), Sensitive: true},
	}
}

// A step is given the outputs that it may have, as typed values.
func TestGiven(t *testing.T) {
	plain, err := Step{Command: []string{"a", "b"}}.Given(outputs())
	if err != nil || strings.Contains(string(plain.Outputs), "hunter2") || !strings.Contains(string(plain.Outputs), `"zone":{"id":7}`) || plain.Timeout != DefaultTimeout || plain.Pause != DefaultPause {
		t.Errorf("Given() = %s, %+v, %v, want all outputs but the sensitive one", plain.Outputs, plain, err)
	}
	named, err := Step{Command: []string{"a"}, Outputs: []string{"token"}}.Given(outputs())
	if err != nil || !strings.Contains(string(named.Outputs), "hunter2") {
		t.Errorf("Given() = %s, %v, want the sensitive output that is named", named.Outputs, err)
	}
	play, err := Step{Ansible: &Ansible{Playbook: "site.yml", HostsFrom: "hosts", Inventory: "hosts.yml", ExtraVars: []string{"zone"}, Limit: "web"}}.Given(outputs())
	if err != nil {
		t.Fatal(err)
	}
	want := []string{"ansible-playbook", "--inventory", "terrier-step:inventory.json", "--inventory", "hosts.yml", "--extra-vars", "@terrier-step:vars.json", "--limit", "web", "site.yml"}
	if diff := cmp.Diff(want, play.Argv); diff != "" {
		t.Errorf("the arguments of a playbook (-want +got):\n%s", diff)
	}
	var inventory any
	if err := json.Unmarshal(play.Files[0].Content, &inventory); err != nil {
		t.Fatal(err)
	}
	type object = map[string]any
	if diff := cmp.Diff(any(object{"all": object{
		"hosts":    object{"web01": object{"ansible_host": "10.0.0.1", "ansible_user": "fedora"}, "db01": object{"ansible_host": "10.0.0.2"}},
		"children": object{"web": object{"hosts": object{"web01": object{}}}},
	}}), inventory); diff != "" {
		t.Errorf("the inventory (-want +got):\n%s", diff)
	}
	if got := string(play.Files[1].Content); got != `{"zone":{"id":7}}` {
		t.Errorf("the variables are %s, want the output with its type", got)
	}
	wait, err := Step{WaitFor: &WaitFor{Protocol: "ssh", HostsFrom: "hosts"}}.Given(outputs())
	if diff := cmp.Diff([]string{"10.0.0.2:22", "10.0.0.1:22"}, wait.Hosts); diff != "" || err != nil || !wait.SSH {
		t.Errorf("the hosts of a wait, %v (-want +got):\n%s", err, diff)
	}
	watched, err := Step{Targets: &Targets{HostsFrom: "hosts", Port: 9100, Labels: map[string]string{"team": "a"}}}.Given(outputs())
	if got := string(watched.Targets); err != nil || watched.Said != "2 targets" || got != `[{"targets":["10.0.0.2:9100"],"labels":{"host":"db01","team":"a"}},{"targets":["10.0.0.1:9100"],"labels":{"host":"web01","team":"a"}}]` {
		t.Errorf("the targets are %s, %q, %v, want each host with its labels", got, watched.Said, err)
	}
	for want, s := range map[string]Step{
		"outputs: the stack has no output none":                 {Command: []string{"a"}, Outputs: []string{"none"}},
		"hostsFrom: there is no output none":                    {WaitFor: &WaitFor{Protocol: "ssh", HostsFrom: "none"}},
		"hostsFrom: the output zone: id: is neither an address": {WaitFor: &WaitFor{Protocol: "ssh", HostsFrom: "zone"}},
		"ansible.extraVars: there is no output token":           {Ansible: &Ansible{Playbook: "a", Inventory: "b", ExtraVars: []string{"token"}}},
	} {
		if _, err := s.Given(outputs()); err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("Given() = %v, want %q", err, want)
		}
	}
}

// A file that is verified runs the steps again, and one that Terrier writes does not.
func TestAnInventoryIsAFileOfItsStep(t *testing.T) {
	steps, err := Parse([]byte(`[{"name": "a", "ansible": {"playbook": "x.yml", "hostsFrom": "h"}}, {"name": "b", "inventory": {"path": "../hosts.yml", "hostsFrom": "h", "exact": true}},
		{"name": "c", "inventory": {"path": "../written.yml", "hostsFrom": "h", "mode": "branch", "branch": "hosts"}}, {"name": "d", "targets": {"hostsFrom": "h", "port": 80}}]`))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"../hosts.yml"}, append(steps[1].Uses(), steps[2].Uses()...)); diff != "" {
		t.Errorf("Uses() (-want +got):\n%s", diff)
	}
	g, err := Step{Inventory: &Inventory{Path: "hosts.yml", HostsFrom: "hosts"}}.Given(outputs())
	if err != nil || len(g.Written) != 2 || g.Written[1].Name != "web01" || g.Written[1].User != "fedora" {
		t.Errorf("Given() = %+v, %v, want both hosts of the output", g.Written, err)
	}
	if _, err := (Step{Inventory: &Inventory{HostsFrom: "token"}}).Given(outputs()); err == nil || !strings.Contains(err.Error(), "it is sensitive") {
		t.Errorf("Given() of a sensitive output = %v", err)
	}
}

// Hosts are read in each form that modules have.
func TestHosts(t *testing.T) {
	for value, want := range map[string]string{
		`"10.0.0.1"`:                    "10.0.0.1 10.0.0.1",
		`["10.0.0.1", "h.example.com"]`: "10.0.0.1 10.0.0.1, h.example.com h.example.com",
		`[{"name": "a", "ip": "10.0.0.1"}, {"address": "b"}]`: "a 10.0.0.1, b b",
		`{"a": "10.0.0.1", "b": {"ansible_host": "fd00::1"}}`: "a 10.0.0.1, b fd00::1",
		`{"a": {"user": "x"}}`:                                "a: has no ip, address or ansible_host",
		`["10.0.0.1", "10.0.0.1"]`:                            "the host 10.0.0.1 is there twice",
		`["-oProxyCommand=x"]`:                                `"-oProxyCommand=x" at "-oProxyCommand=x" is no host`,
		`7`:                                                   "is neither an address, a list nor a map of hosts",
		`null`:                                                "is neither an address, a list nor a map of hosts",
	} {
		hosts, err := Hosts(json.RawMessage(value))
		var all []string
		for _, h := range hosts {
			all = append(all, h.Name+" "+h.Address)
		}
		got := strings.Join(all, ", ")
		if err != nil {
			got = err.Error()
		}
		if got != want {
			t.Errorf("Hosts(%s) = %s, want %s", value, got, want)
		}
	}
	if got := joined("fd00::1", 22); got != "[fd00::1]:22" {
		t.Errorf("an address of IPv6 is %s with its port", got)
	}
}

// No text makes Parse panic, and each step that it takes does one thing.
func FuzzParse(f *testing.F) {
	f.Add(`[{"name": "a", "command": ["a"]}]`)
	f.Add(`[{"name": "a", "timeout": "1m", "ansible": {"playbook": "a", "hostsFrom": "b"}}]`)
	f.Fuzz(func(t *testing.T, text string) {
		steps, err := Parse([]byte(text))
		if err != nil {
			return
		}
		for _, s := range steps {
			if _, err := s.Given(nil); err == nil && s.WaitFor == nil && s.Ansible == nil && s.Targets == nil && len(s.Command) == 0 {
				t.Errorf("Parse(%q) took a step that does nothing: %+v", text, s)
			}
		}
	})
}
