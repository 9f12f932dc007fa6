package inventory

import (
	"bytes"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

// lookup finds an entry of a mapping.
func lookup(m *yaml.Node, name string) (key, value *yaml.Node) {
	if m == nil || m.Kind != yaml.MappingNode {
		return nil, nil
	}
	for i := 0; i+1 < len(m.Content); i += 2 {
		if m.Content[i].Kind == yaml.ScalarNode && m.Content[i].Value == name {
			return m.Content[i], m.Content[i+1]
		}
	}
	return nil, nil
}

// drop removes an entry of a mapping. A comment below it belongs to what follows, and stays.
func drop(m *yaml.Node, name string) bool {
	for i := 0; i+1 < len(m.Content); i += 2 {
		key := m.Content[i]
		if key.Kind != yaml.ScalarNode || key.Value != name {
			continue
		}
		foot := strings.TrimSpace(strings.Join([]string{m.Content[i+1].FootComment, key.FootComment}, "\n"))
		m.Content = slices.Delete(m.Content, i, i+2)
		switch {
		case foot == "":
		case i < len(m.Content):
			m.Content[i].HeadComment = strings.TrimSpace(foot + "\n\n" + m.Content[i].HeadComment)
		case i > 0:
			m.Content[i-2].FootComment = strings.TrimSpace(m.Content[i-2].FootComment + "\n\n" + foot)
		default:
			m.FootComment = strings.TrimSpace(m.FootComment + "\n\n" + foot)
		}
		return true
	}
	return false
}

// editable reports a node that must not be changed, since others stand for it.
func editable(n *yaml.Node) error {
	switch {
	case n.Kind == yaml.AliasNode:
		return problem(HostsFile, n.Line, "the alias *%s is in the place of a change: write out what it stands for", n.Value)
	case n.Anchor != "":
		return problem(HostsFile, n.Line, "the anchor &%s is in the place of a change, and aliases stand for it: write it out", n.Anchor)
	case n.Kind != yaml.MappingNode:
		return problem(HostsFile, n.Line, "this has to be a mapping, and is %s", kindOf(n))
	}
	return nil
}

// section is the mapping of an entry, which is made if it is missing or null. The one name
// that hosts and children may be becomes a mapping with it.
func (m *merging) section(of *yaml.Node, name string) (*yaml.Node, error) {
	if err := editable(of); err != nil {
		return nil, err
	}
	_, v := lookup(of, name)
	switch {
	case v == nil:
		v = mapping()
		of.Content = append(of.Content, text(name), v)
		unflow(of)
		m.changed = true
	case isNull(v):
		comment := v.LineComment
		*v = *mapping()
		v.LineComment = comment
		m.changed = true
	case v.Kind == yaml.ScalarNode && (name == "hosts" || name == "children"):
		one := *v
		*v = *mapping()
		v.Content = []*yaml.Node{&one, null()}
		m.changed = true
	}
	return v, editable(v)
}

// unflow writes a mapping in lines that was {}.
func unflow(n *yaml.Node) {
	if len(n.Content) <= 2 {
		n.Style &^= yaml.FlowStyle
	}
}

// add makes a host a member of a group, which is made if it is missing.
func (m *merging) add(group, host string) error {
	body, err := m.group(group)
	if err != nil {
		return err
	}
	hosts, err := m.section(body, "hosts")
	if err != nil {
		return err
	}
	hosts.Content = append(hosts.Content, text(host), null())
	unflow(hosts)
	m.changed = true
	return nil
}

// group is the mapping of a group: the first place that has hosts, or else the first one.
func (m *merging) group(name string) (*yaml.Node, error) {
	var places []*yaml.Node
	m.each(m.root, 0, func(group string, _, value *yaml.Node) {
		if group == name {
			places = append(places, value)
		}
	})
	for _, p := range places {
		if _, hosts := lookup(p, "hosts"); hosts != nil {
			return p, nil
		}
	}
	if len(places) > 0 {
		if isNull(places[0]) {
			*places[0] = *mapping()
			m.changed = true
		}
		return places[0], editable(places[0])
	}
	if _, all := lookup(m.root, All); name == All || all == nil && len(m.root.Content) > 0 {
		return m.section(m.root, name)
	}
	all, err := m.section(m.root, All)
	if err != nil {
		return nil, err
	}
	children, err := m.section(all, "children")
	if err != nil {
		return nil, err
	}
	return m.section(children, name)
}

// each visits the groups as they are written, in the order of the file.
func (m *merging) each(groups *yaml.Node, depth int, visit func(name string, key, value *yaml.Node)) {
	if groups == nil || groups.Kind != yaml.MappingNode || depth > maxDepth {
		return
	}
	for i := 0; i+1 < len(groups.Content); i += 2 {
		key, value := groups.Content[i], groups.Content[i+1]
		visit(key.Value, key, value)
		_, children := lookup(value, "children")
		m.each(children, depth+1, visit)
	}
}

// spots are the places where a host is written by its name.
func (m *merging) spots(name string) (out []spot) {
	m.each(m.root, 0, func(group string, _, value *yaml.Node) {
		_, hosts := lookup(value, "hosts")
		if key, of := lookup(hosts, name); key != nil {
			out = append(out, spot{group, hosts, key, of})
		}
	})
	return out
}

// isIn reports whether a host is a member of a group itself, by its name or by a range.
func (m *merging) isIn(name, group string) bool {
	if slices.ContainsFunc(m.spots(name), func(s spot) bool { return s.group == group }) {
		return true
	}
	found := false
	m.each(m.root, 0, func(in string, _, value *yaml.Node) {
		_, hosts := lookup(value, "hosts")
		if in != group || hosts == nil {
			return
		}
		keys := hosts.Content
		if hosts.Kind == yaml.ScalarNode {
			keys = []*yaml.Node{hosts, nil}
		}
		for i := 0; i < len(keys); i += 2 {
			if names, _, err := hostNames(keys[i].Value); err == nil && slices.Contains(names, name) {
				found = true
			}
		}
	})
	return found
}

func (m *merging) remove(s spot) error {
	if err := editable(s.hosts); err != nil {
		return err
	}
	m.changed = drop(s.hosts, s.key.Value) || m.changed
	return nil
}

// encode writes a document with the indent, and the first line, that the text had.
func encode(doc *yaml.Node, existing []byte) ([]byte, error) {
	var b bytes.Buffer
	if bytes.HasPrefix(existing, []byte("---\n")) || len(existing) == 0 {
		b.WriteString("---\n")
	}
	explicitNulls(doc, false)
	e := yaml.NewEncoder(&b)
	e.SetIndent(indentOf(doc.Content[0]))
	if err := e.Encode(doc); err != nil {
		return nil, fmt.Errorf("writing %s: %w", HostsFile, err)
	}
	if err := e.Close(); err != nil {
		return nil, fmt.Errorf("writing %s: %w", HostsFile, err)
	}
	return b.Bytes(), nil
}

// explicitNulls writes out the nulls between { and }, where the encoder would make empty
// texts of those without a word.
func explicitNulls(n *yaml.Node, flow bool) {
	flow = flow || n.Style&yaml.FlowStyle != 0
	if flow && isNull(n) && n.Value == "" {
		n.Value = "null"
	}
	for _, each := range n.Content {
		explicitNulls(each, flow)
	}
}

// indentOf is how far the first nested key is indented; two spaces if there is none.
func indentOf(root *yaml.Node) int {
	for i := 1; root.Kind == yaml.MappingNode && i < len(root.Content); i += 2 {
		v := root.Content[i]
		if v.Kind == yaml.MappingNode && v.Style&yaml.FlowStyle == 0 && len(v.Content) > 0 {
			if n := v.Content[0].Column - root.Content[i-1].Column; n >= 2 && n <= 8 {
				return n
			}
		}
	}
	return 2
}

// verify reads what was written: the hosts are as they were asked for, and all others as
// they were.
func (m *merging) verify(after []byte, hosts []Host) error {
	now, err := readHosts(after)
	if err != nil {
		return fmt.Errorf("reading what was written: %w", err)
	}
	wanted := map[string]bool{}
	for _, h := range hosts {
		wanted[h.Name] = true
		is := now.hosts[h.Name]
		if is == nil {
			return problem(HostsFile, 0, "the host %s could not be written", quoted(h.Name))
		}
		for _, g := range h.Groups {
			if !is.groups[g] {
				return problem(HostsFile, 0, "the host %s could not be put into the group %s", quoted(h.Name), quoted(g))
			}
		}
		for name, v := range h.variables() {
			n, err := nodeOf(v)
			if err != nil {
				return err
			}
			want, err := newWalk(HostsFile).valueOf(n, 0)
			if err != nil {
				return err
			}
			if got := is.vars[name]; !reflect.DeepEqual(got.Data, want.Data) {
				return problem(HostsFile, got.Line, "the variable %s of the host %s is set here as well, and this value wins: remove it", quoted(name), quoted(h.Name))
			}
		}
	}
	for name := range m.removed {
		if now.hosts[name] != nil {
			return problem(HostsFile, 0, "the host %s is gone, and a range or a merge key still stands for it: write the hosts out", quoted(name))
		}
	}
	for _, name := range slices.Sorted(maps.Keys(m.before.hosts)) {
		if wanted[name] || m.removed[name] {
			continue
		}
		was, is := m.before.hosts[name], now.hosts[name]
		if is == nil || !sameData(was.vars, is.vars) || !maps.Equal(was.groups, is.groups) {
			return problem(HostsFile, 0, "the host %s would change with the others: write it out", quoted(name))
		}
	}
	for _, name := range slices.Sorted(maps.Keys(m.before.groups)) {
		if is := now.groups[name]; is == nil || !sameData(m.before.groups[name].vars, is.vars) {
			return problem(HostsFile, 0, "the group %s would change with the hosts: write it out", quoted(name))
		}
	}
	return nil
}

func sameData(a, b scope) bool {
	return maps.EqualFunc(a, b, func(a, b Value) bool {
		return reflect.DeepEqual(a.Data, b.Data) && a.Vaulted == b.Vaulted && a.unfit == b.unfit
	})
}
