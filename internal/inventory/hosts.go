package inventory

import (
	"maps"
	"slices"
	"strconv"

	"go.yaml.in/yaml/v3"
)

// hosts reads hosts.yml.
func (r *reader) hosts() error {
	name := HostsFile
	content, err := r.file(name)
	if err == nil && content == nil {
		name = hostsFile2
		content, err = r.file(name)
	}
	if err != nil || content == nil {
		return err
	}
	if isVault(content) {
		return problem(name, 0, "it is encrypted with Ansible Vault: Terrier has to read hosts and groups. Encrypt values, or files in %s and %s", GroupVars, HostVars)
	}
	return r.inventory.parseHosts(name, content, &r.expanded)
}

// parseHosts reads the text of a hosts.yml.
func (v *Inventory) parseHosts(name string, content []byte, expanded *int) error {
	root, err := parse(name, content)
	if err != nil || root == nil {
		return err
	}
	s := &structure{walk: newWalk(name), inventory: v}
	s.bytes = expanded
	groups, err := s.entries(root, 0)
	if err != nil {
		return err
	}
	for _, e := range groups {
		if e.name == "plugin" && e.value.Kind == yaml.ScalarNode {
			return s.fail(e.key, "an inventory plugin is a program, and Terrier runs none: list the hosts")
		}
		if err := s.group(e.name, e.key, e.value, 1); err != nil {
			return err
		}
	}
	return nil
}

// structure reads groups and hosts.
type structure struct {
	*walk
	inventory *Inventory
	members   int
}

// group reads what one place of a hosts.yml says of a group; other places may say more.
func (s *structure) group(name string, key, body *yaml.Node, depth int) error {
	if name == "" {
		return s.fail(key, "a group needs a name")
	}
	if len(name) > maxGroup {
		return s.fail(key, "the name of the group %s has %d bytes, and may have %d", quoted(name), len(name), maxGroup)
	}
	g := s.inventory.groups[name]
	if g == nil {
		if len(s.inventory.groups) >= maxGroups {
			return s.fail(key, "there are more than %d groups", maxGroups)
		}
		g = &group{name: name, priority: 1}
		s.inventory.groups[name] = g
	}
	if g.line == 0 {
		g.line = key.Line
	}
	parts, err := s.entries(body, depth)
	if err != nil {
		return err
	}
	for _, e := range parts {
		switch e.name {
		case "vars":
			err = s.groupVars(g, e.value, depth+1)
		case "children":
			err = s.children(g, e.value, depth+1)
		case "hosts":
			err = s.groupHosts(g, e.value, depth+1)
		default:
			err = s.fail(e.key, "the group %s has %s; a group has hosts, children and vars", quoted(name), quoted(e.name))
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// named are the entries of a part that may also be one name.
func (s *structure) named(n *yaml.Node, depth int) ([]entry, error) {
	target, leave, err := s.enter(n, depth)
	defer leave()
	if err != nil {
		return nil, err
	}
	if target.Kind == yaml.ScalarNode && !isNull(target) {
		return []entry{{target.Value, target, &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!null", Line: target.Line}}}, nil
	}
	return s.entries(target, depth)
}

func (s *structure) groupVars(g *group, n *yaml.Node, depth int) error {
	entries, err := s.entries(n, depth)
	if err != nil {
		return err
	}
	for _, e := range entries {
		v, err := s.valueOf(e.value, depth+1)
		if err != nil {
			return err
		}
		v.Line = e.key.Line
		if e.name == priorityVar {
			n, err := strconv.Atoi(v.text())
			if err != nil {
				return s.fail(e.value, "%s has to be a whole number", priorityVar)
			}
			g.priority = n
			continue
		}
		if err := s.short(e.name, v); err != nil {
			return err
		}
		g.vars = g.vars.with(e.name, v)
	}
	return nil
}

func (s *structure) children(g *group, n *yaml.Node, depth int) error {
	entries, err := s.named(n, depth)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if e.name == All {
			return s.fail(e.key, "the group %q cannot be in another", All)
		}
		if err := s.group(e.name, e.key, e.value, depth+1); err != nil {
			return err
		}
		if !slices.Contains(g.children, e.name) {
			g.children = append(g.children, e.name)
			child := s.inventory.groups[e.name]
			child.parents = append(child.parents, g.name)
		}
	}
	return nil
}

func (s *structure) groupHosts(g *group, n *yaml.Node, depth int) error {
	entries, err := s.named(n, depth)
	if err != nil {
		return err
	}
	for _, e := range entries {
		names, port, err := hostNames(e.name)
		if err != nil {
			return s.fail(e.key, "%s", err)
		}
		vars, err := s.entries(e.value, depth+1)
		if err != nil {
			return err
		}
		own := scope{}
		if port != 0 {
			own = own.with(portVar, Value{Data: whole(strconv.Itoa(port)), File: s.file, Line: e.key.Line})
		}
		for _, v := range vars {
			value, err := s.valueOf(v.value, depth+2)
			if err != nil {
				return err
			}
			value.Line = v.key.Line
			if err := s.short(v.name, value); err != nil {
				return err
			}
			own = own.with(v.name, value)
		}
		for _, name := range names {
			if s.members++; s.members > maxHosts {
				return s.fail(e.key, "groups have more than %d hosts", maxHosts)
			}
			s.host(g, name, own)
		}
	}
	return nil
}

// host adds a host to a group. A variable that another place of the file gives it, too, is
// replaced, as the order of the file says.
func (s *structure) host(g *group, name string, own scope) {
	h := s.inventory.hosts[name]
	if h == nil {
		h = &host{name: name, vars: scope{}, groups: map[string]bool{}}
		s.inventory.hosts[name] = h
	}
	maps.Copy(h.vars, own)
	if !slices.Contains(g.hosts, name) {
		g.hosts = append(g.hosts, name)
	}
	h.groups[g.name] = true
}

func (s scope) with(name string, v Value) scope {
	if s == nil {
		s = scope{}
	}
	s[name] = v
	return s
}

// reconcile finishes the groups: each one without a parent is in "all", each host in the
// parents of its groups, and one in no group in "ungrouped".
func (v *Inventory) reconcile() error {
	all := v.groups[All]
	for _, name := range slices.Sorted(maps.Keys(v.groups)) {
		g := v.groups[name]
		if name != All && len(g.parents) == 0 {
			g.parents = []string{All}
			all.children = append(all.children, name)
		}
	}
	if err := v.depths(); err != nil {
		return err
	}
	members := 0
	for _, name := range slices.Sorted(maps.Keys(v.hosts)) {
		h := v.hosts[name]
		grouped := false
		for in := range h.groups {
			grouped = grouped || in != All && in != Ungrouped
		}
		if !grouped {
			h.groups[Ungrouped] = true
			if u := v.groups[Ungrouped]; !slices.Contains(u.hosts, name) {
				u.hosts = append(u.hosts, name)
			}
		} else if h.groups[Ungrouped] { // Ansible takes it out again
			delete(h.groups, Ungrouped)
			u := v.groups[Ungrouped]
			u.hosts = slices.DeleteFunc(u.hosts, func(other string) bool { return other == name })
		}
		for _, in := range slices.Collect(maps.Keys(h.groups)) {
			v.ancestors(in, h.groups)
		}
		if members += len(h.groups); members > maxMembers {
			return problem(HostsFile, 0, "the hosts are in more than %d groups together, the parents of groups included", maxMembers)
		}
	}
	return nil
}

func (v *Inventory) ancestors(name string, into map[string]bool) {
	for _, parent := range v.groups[name].parents {
		if !into[parent] {
			into[parent] = true
			v.ancestors(parent, into)
		}
	}
}

// depths finds the longest way to each group from "all", and groups that contain themselves.
func (v *Inventory) depths() error {
	const open, done = 1, 2
	state := map[string]int{}
	var visit func(name string) error
	visit = func(name string) error {
		g := v.groups[name]
		switch state[name] {
		case done:
			return nil
		case open:
			return problem(HostsFile, g.line, "the group %s is among its own children", quoted(name))
		}
		state[name] = open
		for _, parent := range g.parents {
			if err := visit(parent); err != nil {
				return err
			}
			g.depth = max(g.depth, v.groups[parent].depth+1)
		}
		state[name] = done
		return nil
	}
	for _, name := range slices.Sorted(maps.Keys(v.groups)) {
		if err := visit(name); err != nil {
			return err
		}
	}
	return nil
}
