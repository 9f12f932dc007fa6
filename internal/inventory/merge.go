package inventory

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
)

// Managed is the variable that marks a host of a hosts.yml as managed: {by, groups, vars}.
// It says which groups and variables of the host Merge has written, so that a later Merge
// can remove them, and nothing else.
const Managed = "terrier_managed"

// Merge returns existing, a hosts.yml, with these hosts in it. Each gets its address, user,
// port, MAC address and Vars where it is written already, or else in the first of its
// groups, and is in all of its Groups, which are created if they are not there. Hosts that
// an earlier Merge for the same managedBy wrote, and that are not among hosts any more, are
// removed from all groups. Everything else stays: groups, other hosts, variables, order,
// comments. Blank lines and the width of lists do not, since the text is written again; a
// text that has nothing to change is returned as it is, byte by byte.
//
// A host that is written without the mark becomes managed. Errors are Problems: a text that
// is no inventory, a host that is managed by another, a host to remove that a range still
// stands for, an alias in the place of a change. On an error nothing is to be written.
func Merge(existing []byte, hosts []Host, managedBy string) ([]byte, error) {
	before, err := readHosts(existing)
	if err != nil {
		return nil, err
	}
	doc, err := parseDocument(HostsFile, existing)
	if err != nil {
		return nil, err
	}
	comments := doc == nil // there is nothing else in it
	if doc == nil {
		doc = &yaml.Node{Kind: yaml.DocumentNode, Content: []*yaml.Node{mapping()}}
	}
	if isNull(doc.Content[0]) {
		doc.Content[0] = mapping()
	}
	m := &merging{root: doc.Content[0], by: managedBy, before: before}
	if err := m.merge(hosts); err != nil {
		return nil, err
	}
	if !m.changed {
		return existing, nil
	}
	after, err := encode(doc, existing)
	if err != nil {
		return nil, err
	}
	if comments && len(existing) > 0 {
		after = slices.Concat(bytes.TrimRight(existing, "\n"), []byte("\n"), bytes.TrimPrefix(after, []byte("---\n")))
	}
	return after, m.verify(after, hosts)
}

// readHosts reads a hosts.yml alone.
func readHosts(content []byte) (*Inventory, error) {
	v := &Inventory{hosts: map[string]*host{}, groups: map[string]*group{}}
	for _, name := range []string{All, Ungrouped} {
		v.groups[name] = &group{name: name, priority: 1}
	}
	if len(content) > maxFile {
		return nil, problem(HostsFile, 0, "it has %d bytes, more than %d", len(content), maxFile)
	}
	if err := v.parseHosts(HostsFile, content, new(int)); err != nil {
		return nil, err
	}
	return v, v.reconcile()
}

// merging is one Merge.
type merging struct {
	root    *yaml.Node
	by      string
	before  *Inventory
	removed map[string]bool
	changed bool
}

// mark is the value of the variable Managed.
type mark struct {
	By     string   `yaml:"by"`
	Groups []string `yaml:"groups,flow"`
	Vars   []string `yaml:"vars,flow"`
}

// spot is one place where a host is written.
type spot struct {
	group string
	hosts *yaml.Node // the mapping
	key   *yaml.Node
	value *yaml.Node
}

func (m *merging) merge(hosts []Host) error {
	if m.by == "" {
		return problem(HostsFile, 0, "hosts need the name of what manages them")
	}
	wanted := map[string]bool{}
	for _, h := range hosts {
		if err := h.check(); err != nil {
			return problem(HostsFile, 0, "%s", err)
		}
		if wanted[h.Name] {
			return problem(HostsFile, 0, "the host %s is to be written twice", quoted(h.Name))
		}
		wanted[h.Name] = true
	}
	m.removed = map[string]bool{}
	for _, name := range slices.Sorted(maps.Keys(m.before.hosts)) {
		if wanted[name] || m.markOf(name).By != m.by {
			continue
		}
		m.removed[name] = true
		for _, s := range m.spots(name) {
			if err := m.remove(s); err != nil {
				return err
			}
		}
	}
	for _, h := range slices.SortedFunc(slices.Values(hosts), func(a, b Host) int { return strings.Compare(a.Name, b.Name) }) {
		if err := m.put(h); err != nil {
			return err
		}
	}
	return nil
}

// markOf is the mark of a host; zero if it has none.
func (m *merging) markOf(name string) mark {
	h := m.before.hosts[name]
	if h == nil {
		return mark{}
	}
	data, _ := h.vars[Managed].Data.(map[string]any)
	out := mark{}
	out.By, _ = data["by"].(string)
	out.Groups, out.Vars = texts(data["groups"]), texts(data["vars"])
	return out
}

func texts(v any) (out []string) {
	list, _ := v.([]any)
	for _, each := range list {
		if s, ok := each.(string); ok {
			out = append(out, s)
		}
	}
	return out
}

// put writes one host.
func (m *merging) put(h Host) error {
	was := m.markOf(h.Name)
	if was.By != "" && was.By != m.by {
		return problem(HostsFile, 0, "the host %s is managed by %s; %s cannot write it, too", quoted(h.Name), quoted(was.By), quoted(m.by))
	}
	groups := slices.Clone(h.Groups)
	for _, g := range groups {
		if m.isIn(h.Name, g) {
			continue
		}
		if err := m.add(g, h.Name); err != nil {
			return err
		}
	}
	if len(groups) == 0 && len(m.spots(h.Name)) == 0 {
		if err := m.add(All, h.Name); err != nil {
			return err
		}
	}
	spots := m.spots(h.Name)
	if len(spots) == 0 { // it is in its groups by ranges
		if err := m.add(All, h.Name); err != nil {
			return err
		}
		spots = m.spots(h.Name)
	}
	home := spots[0]
	for _, s := range slices.Backward(spots) { // the first that has the mark, or else variables
		if s.value.Kind == yaml.MappingNode && len(s.value.Content) > 0 {
			home = s
		}
	}
	for _, s := range spots {
		if _, marked := lookup(s.value, Managed); marked != nil {
			home = s
		}
	}
	if leaves := slices.Contains(was.Groups, home.group) && !slices.Contains(groups, home.group); leaves {
		next := slices.IndexFunc(spots, func(s spot) bool { return s.group != home.group })
		if next < 0 {
			if err := m.add(All, h.Name); err != nil {
				return err
			}
			spots = m.spots(h.Name)
			next = slices.IndexFunc(spots, func(s spot) bool { return s.group != home.group })
		}
		if err := editable(home.value); err != nil {
			return err
		}
		if err := move(home.value, spots[next].value); err != nil {
			return err
		}
		home = spots[next]
		m.changed = true
	}
	for _, s := range m.spots(h.Name) {
		if slices.Contains(was.Groups, s.group) && !slices.Contains(groups, s.group) && s.group != home.group {
			if err := m.remove(s); err != nil {
				return err
			}
		}
	}
	return m.write(home, h, was)
}

// move takes the entries of one mapping to another, where its own stay.
func move(from, to *yaml.Node) error {
	if isNull(to) {
		*to = *from
	} else {
		if err := editable(to); err != nil {
			return err
		}
		for i := 0; i+1 < len(from.Content); i += 2 {
			if _, there := lookup(to, from.Content[i].Value); there == nil {
				to.Content = append(to.Content, from.Content[i], from.Content[i+1])
			}
		}
	}
	*from = *null()
	return nil
}

// write sets the variables of a host.
func (m *merging) write(home spot, h Host, was mark) error {
	vars := h.variables()
	names := slices.Sorted(maps.Keys(vars))
	if isNull(home.value) {
		comment := home.value.LineComment
		*home.value = *mapping()
		home.value.LineComment = comment
	}
	if err := editable(home.value); err != nil {
		return err
	}
	for _, name := range was.Vars {
		if _, still := vars[name]; !still {
			m.changed = drop(home.value, name) || m.changed
		}
	}
	for _, name := range names {
		if err := m.set(home.value, name, vars[name]); err != nil {
			return err
		}
	}
	now := mark{By: m.by, Groups: h.Groups, Vars: names}
	if now.Groups == nil {
		now.Groups = []string{}
	}
	if !reflect.DeepEqual(normal(was), normal(now)) {
		var n yaml.Node
		if err := n.Encode(now); err != nil {
			return fmt.Errorf("writing the mark of %s: %w", h.Name, err)
		}
		n.Style = yaml.FlowStyle
		m.replace(home.value, Managed, &n)
	}
	return nil
}

func normal(k mark) mark {
	k.Groups, k.Vars = slices.Clone(k.Groups), slices.Clone(k.Vars)
	slices.Sort(k.Groups)
	slices.Sort(k.Vars)
	if len(k.Groups) == 0 {
		k.Groups = nil
	}
	if len(k.Vars) == 0 {
		k.Vars = nil
	}
	return k
}

// set sets one variable, unless it has this value.
func (m *merging) set(of *yaml.Node, name string, v any) error {
	n, err := nodeOf(v)
	if err != nil {
		return fmt.Errorf("writing the variable %s: %w", name, err)
	}
	if _, there := lookup(of, name); there != nil {
		w := newWalk(HostsFile)
		was, err := w.valueOf(there, 0)
		if err != nil {
			return err
		}
		is, err := newWalk(HostsFile).valueOf(n, 0)
		if err != nil {
			return err
		}
		if reflect.DeepEqual(was.Data, is.Data) && !was.Vaulted && was.unfit == "" {
			return nil
		}
	}
	m.replace(of, name, n)
	return nil
}

// replace sets an entry of a mapping, in its place or at the end; the comment behind it stays.
func (m *merging) replace(of *yaml.Node, name string, n *yaml.Node) {
	m.changed = true
	if _, there := lookup(of, name); there != nil {
		n.LineComment = there.LineComment
		*there = *n
		return
	}
	of.Content = append(of.Content, text(name), n)
}

// nodeOf is the node of a value. Texts that YAML 1.1 would take for something else are in
// quotes.
func nodeOf(v any) (*yaml.Node, error) {
	switch v := v.(type) {
	case nil:
		return null(), nil
	case string:
		return text(v), nil
	case json.Number:
		return &yaml.Node{Kind: yaml.ScalarNode, Value: v.String(), Tag: numberTag(v)}, nil
	case int:
		return &yaml.Node{Kind: yaml.ScalarNode, Value: strconv.Itoa(v), Tag: "!!int"}, nil
	case bool:
		return &yaml.Node{Kind: yaml.ScalarNode, Value: strconv.FormatBool(v), Tag: "!!bool"}, nil
	case []any:
		out := &yaml.Node{Kind: yaml.SequenceNode, Tag: "!!seq"}
		for _, each := range v {
			n, err := nodeOf(each)
			if err != nil {
				return nil, err
			}
			out.Content = append(out.Content, n)
		}
		return out, nil
	case map[string]any:
		out := mapping()
		for _, name := range slices.Sorted(maps.Keys(v)) {
			n, err := nodeOf(v[name])
			if err != nil {
				return nil, err
			}
			out.Content = append(out.Content, text(name), n)
		}
		return out, nil
	}
	return nil, fmt.Errorf("a value of type %T has no form in YAML", v)
}

// numberTag tells a whole number, as PyYAML reads it, from another.
func numberTag(n json.Number) string {
	if intPattern.MatchString(n.String()) {
		return "!!int"
	}
	return "!!float"
}

func text(s string) *yaml.Node {
	n := &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Value: s}
	if _, isText := plain(s).(string); !isText {
		n.Style = yaml.DoubleQuotedStyle
	}
	return n
}

func mapping() *yaml.Node { return &yaml.Node{Kind: yaml.MappingNode, Tag: "!!map"} }
func null() *yaml.Node    { return &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!null"} }
