package inventory

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/terrier-iac/terrier/internal/fault"
)

// Dynamic is a dynamic inventory: the JSON that Ansible asks a program for
// (https://docs.ansible.com/ansible/latest/dev_guide/developing_inventory.html#inventory-script-conventions).
// Variables are those of hosts only, so that groups of several tenants may share a name.
type Dynamic struct {
	hosts map[string]*dynamicHost
}

type dynamicHost struct {
	tenant string
	groups map[string]bool
	vars   map[string]any
}

// Add adds hosts of a tenant. A host that the tenant has already gets what is new besides,
// and what is in both as the later call says. Its error is Conflict: another tenant has a
// host of this name.
func (d *Dynamic) Add(tenant string, hosts ...Host) error {
	if d.hosts == nil {
		d.hosts = map[string]*dynamicHost{}
	}
	for _, h := range hosts {
		there := d.hosts[h.Name]
		switch {
		case there == nil:
			there = &dynamicHost{tenant: tenant, groups: map[string]bool{GroupOf(tenant): true}, vars: map[string]any{}}
			d.hosts[h.Name] = there
		case there.tenant != tenant:
			return fault.New(fault.Conflict, "", fmt.Errorf("the tenants %s and %s both have a host %s: choose one tenant, or rename one of the hosts", there.tenant, tenant, h.Name))
		}
		for _, g := range h.Groups {
			if g != All && g != Ungrouped {
				there.groups[g] = true
			}
		}
		maps.Copy(there.vars, h.variables())
	}
	return nil
}

// GroupOf is the group of all hosts of a tenant. Names of groups have neither hyphens nor dots.
func GroupOf(tenant string) string {
	return "tenant_" + strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '_' {
			return r
		}
		return '_'
	}, tenant)
}

// variables are all variables of a host.
func (h Host) variables() map[string]any {
	out := map[string]any{}
	maps.Copy(out, h.Vars)
	if h.Address != "" {
		out[addressVar] = h.Address
	}
	if h.User != "" {
		out[userVar] = h.User
	}
	if h.Port != 0 {
		out[portVar] = h.Port
	}
	if h.MAC != "" {
		out[macVars[0]] = h.MAC
	}
	return out
}

// List is the answer to --list: groups, and the variables of all hosts in _meta, so that
// Ansible does not ask for each of them.
func (d *Dynamic) List() ([]byte, error) {
	type members struct {
		Hosts    []string `json:"hosts,omitempty"`
		Children []string `json:"children,omitempty"`
	}
	groups := map[string]*members{}
	vars := map[string]map[string]any{}
	for _, name := range slices.Sorted(maps.Keys(d.hosts)) {
		h := d.hosts[name]
		vars[name] = h.vars
		for g := range h.groups {
			if groups[g] == nil {
				groups[g] = &members{}
			}
			groups[g].Hosts = append(groups[g].Hosts, name)
		}
	}
	out := map[string]any{"_meta": map[string]any{"hostvars": vars}, All: members{Children: slices.Sorted(maps.Keys(groups))}}
	for name, m := range groups {
		out[name] = m
	}
	return indented(out)
}

// Host is the answer to --host: the variables of one host. Its error is Missing.
func (d *Dynamic) Host(name string) ([]byte, error) {
	h := d.hosts[name]
	if h == nil {
		return nil, fault.New(fault.Missing, "", fmt.Errorf("there is no host %s", quoted(name)))
	}
	return indented(h.vars)
}

func indented(v any) ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	err := e.Encode(v)
	return b.Bytes(), err
}

// FromOutput reads the hosts of an output of a stack, in JSON: a list of objects with name,
// or an object of them by their names. An object has address (or ip, or ansible_host), and
// may have user, port, mac, groups (a list, or group with one), and vars. Its error is
// Invalid, and names the entry.
func FromOutput(value []byte) ([]Host, error) {
	d := json.NewDecoder(bytes.NewReader(value))
	d.UseNumber()
	var data any
	if err := d.Decode(&data); err != nil {
		return nil, invalid("the output is no JSON: %v", err)
	}
	if _, err := d.Token(); err != io.EOF {
		return nil, invalid("the output is more than one value of JSON")
	}
	var hosts []Host
	switch data := data.(type) {
	case nil:
		return nil, nil
	case []any:
		for i, each := range data {
			h, err := hostOf("", each)
			if err != nil {
				return nil, invalid("hosts[%d]: %v", i, err)
			}
			hosts = append(hosts, h)
		}
	case map[string]any:
		for _, name := range slices.Sorted(maps.Keys(data)) {
			h, err := hostOf(name, data[name])
			if err != nil {
				return nil, invalid("hosts[%s]: %v", quoted(name), err)
			}
			hosts = append(hosts, h)
		}
	default:
		return nil, invalid("the output is a %s: a list of hosts, or a map of hosts by their names, is needed", typeOf(data))
	}
	seen := map[string]bool{}
	for _, h := range hosts {
		if seen[h.Name] {
			return nil, invalid("the host %s is there twice", quoted(h.Name))
		}
		seen[h.Name] = true
	}
	return hosts, nil
}

func invalid(format string, args ...any) error {
	return fault.New(fault.Invalid, "", fmt.Errorf(format, args...))
}

// hostOf reads one entry of an output.
func hostOf(name string, data any) (Host, error) {
	if address, ok := data.(string); ok && name != "" {
		data = map[string]any{"address": address}
	}
	fields, ok := data.(map[string]any)
	if !ok {
		return Host{}, fmt.Errorf("it is a %s, and has to be an object with name and address", typeOf(data))
	}
	h := Host{Name: name}
	for _, field := range slices.Sorted(maps.Keys(fields)) {
		if err := h.take(field, fields[field]); err != nil {
			return Host{}, fmt.Errorf("%s: %w", field, err)
		}
	}
	if h.Name == "" {
		return Host{}, fmt.Errorf("it has no name")
	}
	slices.Sort(h.Groups)
	h.Groups = slices.Compact(h.Groups)
	return h, h.check()
}

// take takes over one field of an entry. Fields that are not known are the module's own.
func (h *Host) take(field string, v any) error {
	if v == nil {
		return nil
	}
	text, isText := v.(string)
	switch field {
	case "name", "address", "ip", addressVar, "user", userVar, "mac", macVars[0], "group":
		if !isText {
			return fmt.Errorf("it is a %s, and has to be a string", typeOf(v))
		}
	}
	switch field {
	case "name":
		if h.Name != "" && h.Name != text {
			return fmt.Errorf("it is %s, and the key is %s", quoted(text), quoted(h.Name))
		}
		h.Name = text
	case "address", "ip", addressVar:
		address, _, _ := strings.Cut(text, "/") // an address of an interface has the length of its network
		h.Address = cmp.Or(h.Address, address)
	case "user", userVar:
		h.User = cmp.Or(h.User, text)
	case "mac", macVars[0]:
		h.MAC = cmp.Or(h.MAC, CanonicalMAC(text))
	case "group":
		h.Groups = append(h.Groups, text)
	case "port", portVar:
		n, ok := v.(json.Number)
		port, err := strconv.Atoi(n.String())
		if !ok || err != nil || port < 1 || port > 65535 {
			return fmt.Errorf("it is no port")
		}
		h.Port = port
	case "groups":
		list, ok := v.([]any)
		if !ok {
			return fmt.Errorf("it is a %s, and has to be a list of names", typeOf(v))
		}
		for _, each := range list {
			name, ok := each.(string)
			if !ok {
				return fmt.Errorf("it has a %s, and has to be a list of names", typeOf(each))
			}
			h.Groups = append(h.Groups, name)
		}
	case "vars":
		vars, ok := v.(map[string]any)
		if !ok {
			return fmt.Errorf("it is a %s, and has to be an object", typeOf(v))
		}
		h.Vars = vars
	}
	return nil
}

// check reports what cannot be written into an inventory.
func (h Host) check() error {
	names, port, err := hostNames(h.Name)
	if err != nil {
		return err
	}
	if port != 0 || len(names) != 1 || names[0] != h.Name {
		return fmt.Errorf("%s is no name of one host", quoted(h.Name))
	}
	for _, g := range h.Groups {
		if g == "" || g == All || g == Ungrouped || strings.TrimSpace(g) != g || strings.ContainsAny(g, "\n\t:,[]{}&!") {
			return fmt.Errorf("%s is no name of a group", quoted(g))
		}
	}
	return nil
}
