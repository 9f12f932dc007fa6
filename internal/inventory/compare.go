package inventory

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Compare says in what a hosts.yml is not what hosts are, one line for each difference:
//
//   - web02: ansible_host 10.0.0.2, in the groups web    it is missing
//   - db01                                               it is there, and should not be
//     ~ web01: ansible_host is 10.0.0.1, want 10.0.0.9     it is there with another value
//
// A host that is in the file besides is no difference, unless a Merge for managedBy wrote it,
// or exact asks for every one. Variables count as Ansible sees them, from the host or from a
// group of this file. Errors are Problems of the file, and of hosts that cannot be written.
func Compare(existing []byte, hosts []Host, managedBy string, exact bool) ([]string, error) {
	v, err := readHosts(existing)
	if err != nil {
		return nil, err
	}
	m := &merging{by: managedBy, before: v}
	wanted := map[string]bool{}
	var lines []string
	for _, h := range slices.SortedFunc(slices.Values(hosts), func(a, b Host) int { return strings.Compare(a.Name, b.Name) }) {
		if err := h.check(); err != nil {
			return nil, problem(HostsFile, 0, "%s", err)
		}
		wanted[h.Name] = true
		is := v.hosts[h.Name]
		if is == nil {
			lines = append(lines, "+ "+h.Name+": "+h.describe())
			continue
		}
		lines = append(lines, v.differences(is, h)...)
	}
	for _, name := range slices.Sorted(maps.Keys(v.hosts)) {
		if !wanted[name] && (exact || managedBy != "" && m.markOf(name).By == managedBy) {
			lines = append(lines, "- "+name)
		}
	}
	return lines, nil
}

// describe is a host in one line.
func (h Host) describe() string {
	var parts []string
	vars := h.variables()
	for _, name := range slices.Sorted(maps.Keys(vars)) {
		parts = append(parts, name+" "+shown(vars[name]))
	}
	if len(h.Groups) > 0 {
		parts = append(parts, "in the groups "+strings.Join(h.Groups, ", "))
	}
	return strings.Join(parts, ", ")
}

// differences are the lines about a host that is there.
func (v *Inventory) differences(is *host, want Host) (lines []string) {
	has, vars := v.ofHost(is), want.variables()
	mac := v.host(is).MAC
	for _, name := range slices.Sorted(maps.Keys(vars)) {
		value, there := has.get(name)
		switch {
		case name == macVars[0] && mac == want.MAC:
		case name == addressVar && v.host(is).Address == want.Address: // the name may be the address
		case !there:
			lines = append(lines, fmt.Sprintf("~ %s: %s is not set, want %s", want.Name, name, shown(vars[name])))
		case value.Vaulted || value.Jinja:
			lines = append(lines, fmt.Sprintf("~ %s: %s is encrypted or a template, want %s", want.Name, name, shown(vars[name])))
		case shown(value.Data) != shown(vars[name]):
			lines = append(lines, fmt.Sprintf("~ %s: %s is %s, want %s", want.Name, name, shown(value.Data), shown(vars[name])))
		}
	}
	for _, g := range want.Groups {
		if !is.groups[g] {
			lines = append(lines, fmt.Sprintf("~ %s: is not in the group %s", want.Name, g))
		}
	}
	return lines
}

// shown is a value in one line: a text as it is, anything else as JSON.
func shown(v any) string {
	if s, ok := v.(string); ok {
		return s
	}
	b, err := json.Marshal(v)
	if err != nil {
		return fmt.Sprint(v)
	}
	return string(b)
}
