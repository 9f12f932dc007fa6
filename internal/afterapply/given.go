package afterapply

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/terrier-iac/terrier/internal/inventory"
	"github.com/terrier-iac/terrier/internal/plural"
)

// Output is one output of a stack.
type Output struct {
	Value     json.RawMessage
	Sensitive bool
}

// Given is what a step is carried out with.
type Given struct {
	Outputs json.RawMessage  // an object of values by their names
	Argv    []string         // a program and its arguments; nil of a wait
	Files   []File           // that arguments name
	Hosts   []string         // host:port, to wait for
	Targets []byte           // of a monitoring: a list of the form that file_sd of Prometheus reads
	Written []inventory.Host // of an inventory
	Said    string           // what a step says that has nothing to run
	SSH     bool             // each has to say that it speaks SSH
	Timeout time.Duration
	Pause   time.Duration
}

// File is a file that is made for a step. Arguments name it as StepFile.
type File struct {
	Name    string
	Content []byte
}

// FilePlace begins the arguments that name a file of the step. The supervisor puts
// the directory of these files in its place.
const FilePlace = "terrier-step:"

// StepFile is how an argument names a file of the step.
func StepFile(name string) string { return FilePlace + name }

// Names of the files of a playbook.
const (
	inventoryFile = "inventory.json"
	varsFile      = "vars.json"
)

// Given works out what the step is carried out with. Sensitive outputs are in it only if the
// step names them. Its error is the step's to fail by.
func (s Step) Given(outputs map[string]Output) (Given, error) {
	g := Given{Timeout: cmp.Or(s.Timeout.Duration, DefaultTimeout), Pause: cmp.Or(s.Pause.Duration, DefaultPause)}
	shown := map[string]json.RawMessage{}
	for name, o := range outputs {
		if o.Sensitive && !slices.Contains(s.Outputs, name) {
			continue
		}
		shown[name] = o.Value
	}
	for _, name := range s.Outputs {
		if _, ok := outputs[name]; !ok {
			return g, fmt.Errorf("outputs: the stack has no output %s", name)
		}
	}
	var err error
	if g.Outputs, err = json.Marshal(shown); err != nil {
		return g, fmt.Errorf("encoding the outputs: %w", err)
	}
	switch {
	case s.WaitFor != nil:
		err = g.wait(*s.WaitFor, shown)
	case s.Ansible != nil:
		err = g.play(*s.Ansible, shown)
	case s.Targets != nil:
		err = g.watch(*s.Targets, shown)
	case s.Inventory != nil:
		err = g.list(*s.Inventory, shown)
	default:
		g.Argv = slices.Clone(s.Command)
	}
	return g, err
}

func (g *Given) wait(w WaitFor, outputs map[string]json.RawMessage) error {
	addresses := w.Hosts
	if w.HostsFrom != "" {
		hosts, err := hostsOf(w.HostsFrom, outputs)
		if err != nil {
			return err
		}
		for _, h := range hosts {
			addresses = append(addresses, h.Address)
		}
	}
	port := w.Port
	if g.SSH = w.Protocol == "ssh"; port == 0 {
		port = sshPort
	}
	for _, a := range addresses {
		g.Hosts = append(g.Hosts, joined(a, port))
	}
	return nil
}

// watch makes a target of each host.
func (g *Given) watch(t Targets, outputs map[string]json.RawMessage) error {
	hosts, err := hostsOf(t.HostsFrom, outputs)
	if err != nil {
		return err
	}
	type group struct {
		Targets []string          `json:"targets"`
		Labels  map[string]string `json:"labels"`
	}
	groups := []group{}
	for _, h := range hosts {
		labels := map[string]string{"host": h.Name}
		maps.Copy(labels, t.Labels)
		groups = append(groups, group{[]string{joined(h.Address, t.Port)}, labels})
	}
	g.Said = plural.Count(len(groups), "target")
	g.Targets, err = json.Marshal(groups)
	return err
}

// list reads the hosts of an inventory. Each has a name, which the file has.
func (g *Given) list(i Inventory, outputs map[string]json.RawMessage) error {
	value, ok := outputs[i.HostsFrom]
	if !ok {
		return fmt.Errorf("inventory.hostsFrom: there is no output %s, or it is sensitive", i.HostsFrom)
	}
	var err error
	if g.Written, err = inventory.FromOutput(value); err != nil {
		return fmt.Errorf("inventory.hostsFrom: the output %s: %w", i.HostsFrom, err)
	}
	return nil
}

// joined is host:port.
func joined(host string, port int) string {
	if strings.Contains(host, ":") {
		return "[" + host + "]:" + strconv.Itoa(port)
	}
	return host + ":" + strconv.Itoa(port)
}

func (g *Given) play(a Ansible, outputs map[string]json.RawMessage) error {
	g.Argv = []string{cmp.Or(a.Program, ansible)}
	if a.HostsFrom != "" {
		hosts, err := hostsOf(a.HostsFrom, outputs)
		if err != nil {
			return err
		}
		text, err := inventoryOf(hosts)
		if err != nil {
			return err
		}
		g.Files = append(g.Files, File{inventoryFile, text})
		g.Argv = append(g.Argv, "--inventory", StepFile(inventoryFile))
	}
	if a.Inventory != "" {
		g.Argv = append(g.Argv, "--inventory", a.Inventory)
	}
	if len(a.ExtraVars) > 0 {
		vars := map[string]json.RawMessage{}
		for _, name := range a.ExtraVars {
			value, ok := outputs[name]
			if !ok {
				return fmt.Errorf("ansible.extraVars: there is no output %s, or it is sensitive and the outputs of the step do not name it", name)
			}
			vars[name] = value
		}
		text, err := json.Marshal(vars)
		if err != nil {
			return fmt.Errorf("encoding the variables: %w", err)
		}
		g.Files = append(g.Files, File{varsFile, text})
		g.Argv = append(g.Argv, "--extra-vars", "@"+StepFile(varsFile))
	}
	if a.Limit != "" {
		g.Argv = append(g.Argv, "--limit", a.Limit)
	}
	g.Argv = append(g.Argv, a.Playbook)
	return nil
}

// Host is one host of an output.
type Host struct {
	Name, Address, User string
	Groups              []string
	Vars                map[string]json.RawMessage
}

// hostsOf reads the hosts of an output.
func hostsOf(name string, outputs map[string]json.RawMessage) ([]Host, error) {
	value, ok := outputs[name]
	if !ok {
		return nil, fmt.Errorf("hostsFrom: there is no output %s, or it is sensitive and the outputs of the step do not name it", name)
	}
	hosts, err := Hosts(value)
	if err != nil {
		return nil, fmt.Errorf("hostsFrom: the output %s: %w", name, err)
	}
	return hosts, nil
}

// Hosts reads hosts from a value: one address, a list of addresses, a map from names to
// addresses, or either with objects in place of addresses. An object has ip, address or
// ansible_host, and may have name, user, groups and vars.
func Hosts(value json.RawMessage) ([]Host, error) {
	var one string
	if json.Unmarshal(value, &one) == nil && one != "" {
		return checked([]Host{{Name: one, Address: one}})
	}
	var list []json.RawMessage
	if json.Unmarshal(value, &list) == nil && list != nil {
		var hosts []Host
		for i, item := range list {
			h, err := host("", item)
			if err != nil {
				return nil, fmt.Errorf("[%d]: %w", i, err)
			}
			hosts = append(hosts, h)
		}
		return checked(hosts)
	}
	var named map[string]json.RawMessage
	if json.Unmarshal(value, &named) != nil || named == nil {
		return nil, errors.New("is neither an address, a list nor a map of hosts")
	}
	var hosts []Host
	for _, name := range slices.Sorted(maps.Keys(named)) {
		h, err := host(name, named[name])
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		hosts = append(hosts, h)
	}
	return checked(hosts)
}

func checked(hosts []Host) ([]Host, error) {
	seen := map[string]bool{}
	for _, h := range hosts {
		switch {
		case !isHost(h.Name) || !isHost(h.Address):
			return nil, fmt.Errorf("%.80q at %.80q is no host", h.Name, h.Address)
		case seen[h.Name]:
			return nil, fmt.Errorf("the host %s is there twice", h.Name)
		}
		seen[h.Name] = true
	}
	return hosts, nil
}

func host(name string, value json.RawMessage) (Host, error) {
	var address string
	if json.Unmarshal(value, &address) == nil {
		return Host{Name: cmp.Or(name, address), Address: address}, nil
	}
	var o struct {
		Name        string                     `json:"name"`
		IP          string                     `json:"ip"`
		Address     string                     `json:"address"`
		AnsibleHost string                     `json:"ansible_host"`
		User        string                     `json:"user"`
		AnsibleUser string                     `json:"ansible_user"`
		Group       string                     `json:"group"`
		Groups      []string                   `json:"groups"`
		Vars        map[string]json.RawMessage `json:"vars"`
	}
	if err := json.Unmarshal(value, &o); err != nil {
		return Host{}, errors.New("is neither an address nor an object with ip, address or ansible_host")
	}
	h := Host{Name: cmp.Or(name, o.Name), Address: cmp.Or(o.AnsibleHost, o.IP, o.Address), User: cmp.Or(o.AnsibleUser, o.User), Groups: o.Groups, Vars: o.Vars}
	if o.Group != "" && !slices.Contains(h.Groups, o.Group) {
		h.Groups = append(h.Groups, o.Group)
	}
	if h.Name = cmp.Or(h.Name, h.Address); h.Address == "" {
		return h, errors.New("has no ip, address or ansible_host")
	}
	return h, nil
}

// inventoryOf is an inventory of Ansible with these hosts, in JSON, which is YAML.
func inventoryOf(hosts []Host) ([]byte, error) {
	all, children := map[string]map[string]any{}, map[string]any{}
	groups := map[string]map[string]any{}
	for _, h := range hosts {
		vars := map[string]any{"ansible_host": h.Address}
		if h.User != "" {
			vars["ansible_user"] = h.User
		}
		for name, v := range h.Vars {
			vars[name] = v
		}
		all[h.Name] = vars
		for _, g := range h.Groups {
			if groups[g] == nil {
				groups[g] = map[string]any{}
				children[g] = map[string]any{"hosts": groups[g]}
			}
			groups[g][h.Name] = map[string]any{}
		}
	}
	top := map[string]any{"hosts": all}
	if len(children) > 0 {
		top["children"] = children
	}
	return json.MarshalIndent(map[string]any{"all": top}, "", "  ")
}
