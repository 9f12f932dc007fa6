// Package inventory reads the inventory of one tenant as Ansible does: hosts.yml,
// group_vars and host_vars. It also writes hosts back into a hosts.yml, and the JSON
// of a dynamic inventory. It refuses to evaluate anything: no Jinja, no inventory
// plugin, no script, no decryption of a vault. A text that it cannot read without a
// doubt is an error with its file and line, and never half of an inventory.
//
// The meaning of files is that of ansible-core 2.14 to 2.19:
//
//   - groups and hosts: the plugin ansible.builtin.yaml (lib/ansible/plugins/inventory/yaml.py),
//     ranges: expand_hostname_range (lib/ansible/plugins/inventory/__init__.py)
//   - files of variables: DataLoader.find_vars_files (lib/ansible/parsing/dataloader.py)
//   - precedence: https://docs.ansible.com/ansible/latest/reference_appendices/general_precedence.html
//     and VariableManager.get_vars (lib/ansible/vars/manager.py)
//   - plain scalars: YAML 1.1, as PyYAML resolves them (yaml/resolver.py)
//
// Start reading at Read, then at Inventory.Variables.
package inventory

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"net/netip"
	"path"
	"slices"
	"strconv"
	"strings"
)

// Names in the directory of a tenant.
const (
	HostsFile   = "hosts.yml"
	GroupVars   = "group_vars"
	HostVars    = "host_vars"
	All         = "all"       // the group of all hosts
	Ungrouped   = "ungrouped" // the group of hosts that are in no other
	hostsFile2  = "hosts.yaml"
	addressVar  = "ansible_host"
	userVar     = "ansible_user"
	portVar     = "ansible_port"
	priorityVar = "ansible_group_priority"
)

// macVars are the variables of a host that are its MAC address; the first that is set counts.
var macVars = []string{"mac_address", "mac"}

// Host is one host of an inventory.
type Host struct {
	Name    string
	Address string   // ansible_host, or the name if that is an IP address; empty if neither is there
	User    string   // ansible_user
	Port    int      // ansible_port; zero if it is not set
	MAC     string   // in lower case, with colons
	Groups  []string // all that it is in but "all", in order of names, with the parents of groups

	// Vars are more variables of the host. Only Merge and the JSON of a dynamic inventory
	// use them.
	Vars map[string]any
}

// Note is something that a reader should know about and that is no error.
type Note struct {
	File string // below the directory of the tenant
	Line int    // zero if it is about the whole file
	Text string
}

func (n Note) String() string { return at(n.File, n.Line) + ": " + n.Text }

// Problem is an error with its place.
type Problem struct {
	File string
	Line int
	Text string
}

func (p *Problem) Error() string { return at(p.File, p.Line) + ": " + p.Text }

func at(file string, line int) string {
	if line == 0 {
		return file
	}
	return file + ":" + strconv.Itoa(line)
}

func problem(file string, line int, format string, args ...any) error {
	return &Problem{file, line, fmt.Sprintf(format, args...)}
}

// Bounds of one tenant. What is larger is an error.
const (
	maxFile   = 1 << 20 // bytes
	maxTotal  = 8 << 20 // bytes of all files
	maxFiles  = 500
	maxNodes  = 200_000 // values of one file, each alias counted with all that it stands for
	maxDepth  = 64
	maxHosts  = 10_000
	maxGroups = 2_000

	maxExpanded = 32 << 20 // bytes of all values of a tenant, each alias counted with all that it stands for
	maxName     = 253      // bytes of the name of a host, its address, its user and its MAC address
	maxGroup    = 255      // bytes of the name of a group
	maxFileName = 255      // bytes of the name of a file, by Linux
	maxKey      = 1024     // bytes of a host's key, ranges included
	maxMembers  = 500_000  // groups of all hosts together, the parents of groups included
)

// Inventory is what the files of one tenant say.
type Inventory struct {
	Notes []Note

	hosts  map[string]*host
	groups map[string]*group
}

type host struct {
	name   string
	vars   scope // of hosts.yml
	files  scope // of host_vars
	groups map[string]bool
}

type group struct {
	name     string
	children []string
	parents  []string
	hosts    []string
	priority int
	depth    int   // the longest way from "all"
	vars     scope // of hosts.yml
	files    scope // of group_vars
	line     int
}

// scope are the variables of one place.
type scope map[string]Value

// Read reads the directory of one tenant. A directory without a hosts.yml has an empty
// inventory, and its variables all the same. The error is a Problem, or that of tree.
func Read(tree fs.FS, dir string) (*Inventory, error) {
	r := &reader{tree: tree, dir: dir, inventory: &Inventory{hosts: map[string]*host{}, groups: map[string]*group{}}}
	for _, name := range []string{All, Ungrouped} {
		r.inventory.groups[name] = &group{name: name, priority: 1}
	}
	if err := r.hosts(); err != nil {
		return nil, err
	}
	if err := r.inventory.reconcile(); err != nil {
		return nil, err
	}
	if err := r.variables(); err != nil {
		return nil, err
	}
	slices.SortStableFunc(r.inventory.Notes, func(a, b Note) int {
		return cmp.Or(strings.Compare(a.File, b.File), cmp.Compare(a.Line, b.Line))
	})
	return r.inventory, nil
}

// reader reads the files of one tenant within bounds.
type reader struct {
	tree      fs.FS
	dir       string
	inventory *Inventory
	files     int
	bytes     int64
	expanded  int // bytes of values that were read
}

func (r *reader) note(file string, line int, format string, args ...any) {
	r.inventory.Notes = append(r.inventory.Notes, Note{file, line, fmt.Sprintf(format, args...)})
}

// file reads one file; nil if it is not there.
func (r *reader) file(name string) ([]byte, error) {
	full := path.Join(r.dir, name)
	info, err := fs.Stat(r.tree, full)
	switch {
	case isMissing(err):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("reading %s: %w", name, err)
	case !info.Mode().IsRegular():
		return nil, problem(name, 0, "it is no file")
	}
	r.files++
	r.bytes += info.Size()
	switch {
	case info.Size() > maxFile:
		return nil, problem(name, 0, "it has %d bytes, more than %d", info.Size(), maxFile)
	case r.bytes > maxTotal:
		return nil, problem(name, 0, "with it the files of this tenant have more than %d bytes", maxTotal)
	case r.files > maxFiles:
		return nil, problem(name, 0, "with it this tenant has more than %d files", maxFiles)
	}
	content, err := fs.ReadFile(r.tree, full)
	if err != nil {
		return nil, fmt.Errorf("reading %s: %w", name, err)
	}
	if content == nil {
		content = []byte{} // it is there
	}
	return content, nil
}

func isMissing(err error) bool { return errors.Is(err, fs.ErrNotExist) }

// Hosts are all hosts, in order of their names.
func (v *Inventory) Hosts() []Host {
	out := make([]Host, 0, len(v.hosts))
	for _, name := range slices.Sorted(maps.Keys(v.hosts)) {
		out = append(out, v.host(v.hosts[name]))
	}
	return out
}

func (v *Inventory) host(h *host) Host {
	vars := v.ofHost(h)
	out := Host{Name: h.name, Address: vars.text(addressVar), User: vars.text(userVar)}
	if out.Address == "" {
		if _, err := netip.ParseAddr(h.name); err == nil {
			out.Address = h.name
		}
	}
	if n, err := strconv.Atoi(vars.text(portVar)); err == nil {
		out.Port = n
	}
	for _, name := range macVars {
		if mac := vars.text(name); mac != "" {
			out.MAC = CanonicalMAC(mac)
			break
		}
	}
	for name := range h.groups {
		if name != All {
			out.Groups = append(out.Groups, name)
		}
	}
	slices.Sort(out.Groups)
	return out
}

// text is a value as text; empty if it is none, or has to be evaluated.
func (v Value) text() string {
	if v.Vaulted || v.Jinja {
		return ""
	}
	switch d := v.Data.(type) {
	case string:
		return d
	case fmt.Stringer: // a number
		return d.String()
	}
	return ""
}

// CanonicalMAC is a MAC address in lower case with colons; a text that is none stays as
// it is, in lower case.
func CanonicalMAC(s string) string {
	s = strings.ToLower(strings.TrimSpace(s))
	digits := strings.NewReplacer(":", "", "-", "", ".", "").Replace(s)
	if len(digits) != 12 || strings.Trim(digits, "0123456789abcdef") != "" {
		return s
	}
	var pairs []string
	for i := 0; i < len(digits); i += 2 {
		pairs = append(pairs, digits[i:i+2])
	}
	return strings.Join(pairs, ":")
}
