package proxmox

import (
	"fmt"
	"net/netip"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// An option of a machine is text with parts: virtio=BC:24:11:00:00:01,bridge=vmbr0,tag=100.
// https://pve.proxmox.com/pve-docs/qm.conf.5.html has all of them.

// part is the value of a part; empty if there is none.
func part(text, name string) string {
	for p := range strings.SplitSeq(text, ",") {
		if v, ok := strings.CutPrefix(p, name+"="); ok {
			return v
		}
	}
	return ""
}

// withPart sets a part, in its place or at the end.
func withPart(text, name, value string) string {
	parts := strings.Split(text, ",")
	for i, p := range parts {
		if strings.HasPrefix(p, name+"=") {
			parts[i] = name + "=" + value
			return strings.Join(parts, ",")
		}
	}
	return text + "," + name + "=" + value
}

func contains(list []string, s string) bool { return slices.Contains(list, s) }

var (
	dnsName   = regexp.MustCompile(`^[A-Za-z0-9]([A-Za-z0-9-]*[A-Za-z0-9])?(\.[A-Za-z0-9]([A-Za-z0-9-]*[A-Za-z0-9])?)*$`)
	macText   = regexp.MustCompile(`^[0-9A-Fa-f]{2}(:[0-9A-Fa-f]{2}){5}$`)
	sizeText  = regexp.MustCompile(`^(\+?)(\d+)([KMGT]?)$`)
	tagText   = regexp.MustCompile(`^[A-Za-z0-9_][A-Za-z0-9_.+-]*$`)
	diskName  = regexp.MustCompile(`^(scsi|virtio|sata|ide)\d+$`)
	netName   = regexp.MustCompile(`^net\d+$`)
	netModels = []string{"virtio", "e1000", "rtl8139", "vmxnet3"}
	// plainOptions are taken as they are.
	plainOptions = []string{
		"agent", "balloon", "bios", "boot", "cicustom", "cipassword", "citype", "ciupgrade", "ciuser", "cpu", "description", "machine", "nameserver",
		"numa", "onboot", "ostype", "protection", "scsihw", "searchdomain", "startup", "tablet", "vga",
	}
	// countedFrom are options that are whole numbers, and their least values.
	countedFrom = map[string]int{"cores": 1, "sockets": 1, "memory": 16}
	// later are the options that a machine which runs has only from its next start on.
	later = []string{"cores", "sockets", "memory", "cpu", "numa", "machine", "bios", "scsihw", "agent"}
)

// sizeOf reads a size: 32G.
func sizeOf(text string) (size int64, more, ok bool) {
	m := sizeText.FindStringSubmatch(text)
	if m == nil {
		return 0, false, false
	}
	n, err := strconv.ParseInt(m[2], 10, 64)
	if err != nil {
		return 0, false, false
	}
	return n << (10 * strings.Index(" KMGT", m[3]+strings.Repeat(" ", 1-len(m[3])))), m[1] == "+", true
}

// value checks the value of an option, and returns how it is kept.
func (r *request) value(vm *VM, name, v string) (string, error) {
	least, counted := countedFrom[name]
	kind := strings.TrimRight(name, "0123456789")
	switch {
	case counted:
		n, err := strconv.Atoi(v)
		if err != nil {
			return "", badParameter(name, "type check ('integer') failed - got '%s'", v)
		}
		if n < least {
			return "", badParameter(name, "value must have a minimum value of %d", least)
		}
		return v, nil
	case name == "name":
		if !dnsName.MatchString(v) {
			return "", badParameter(name, "value does not look like a valid DNS name")
		}
		return v, nil
	case name == "tags":
		return keptTags(v)
	case name == "sshkeys":
		// Encoded once more than the form is: https://bugzilla.proxmox.com/show_bug.cgi?id=1213
		plain, err := url.PathUnescape(v)
		if err != nil || plain == v && strings.ContainsAny(v, " \n") {
			return "", badParameter(name, "invalid format - invalid urlencoded string: %s", v)
		}
		return v, nil
	case contains(plainOptions, name) || kind == "serial":
		return v, nil
	case kind == "ipconfig":
		return v, checkIPConfig(name, v)
	case netName.MatchString(name):
		return r.network(vm, name, v)
	case diskName.MatchString(name):
		return r.disk(vm, name, v)
	default:
		return "", badParameter(name, "property is not defined in schema and the schema does not allow additional properties")
	}
}

func keptTags(text string) (string, error) {
	tags := tagsOf(strings.ToLower(text))
	for _, tag := range tags {
		if !tagText.MatchString(tag) {
			return "", badParameter("tags", "invalid format - invalid characters in tag '%s'", tag)
		}
	}
	slices.Sort(tags)
	return strings.Join(slices.Compact(tags), ";"), nil
}

func checkIPConfig(name, v string) error {
	address, gateway := part(v, "ip"), part(v, "gw")
	switch {
	case gateway != "" && (address == "" || address == "dhcp"):
		return badParameter(name, "invalid format - gateway specified without specifying an IP address")
	case address == "" || address == "dhcp":
		return nil
	}
	if p, err := netip.ParsePrefix(address); err != nil || !p.Addr().Is4() {
		return badParameter(name, "invalid format - format error: ip: value does not look like a valid IPv4 network configuration")
	}
	if _, err := netip.ParseAddr(gateway); gateway != "" && err != nil {
		return badParameter(name, "invalid format - format error: gw: value does not look like a valid ipv4 address")
	}
	return nil
}

// network checks a network device, and draws a MAC address if it has none.
func (r *request) network(vm *VM, name, v string) (string, error) {
	first, rest, _ := strings.Cut(v, ",")
	model, mac, given := strings.Cut(first, "=")
	if model == "model" {
		model, mac, given = mac, part(v, "macaddr"), part(v, "macaddr") != ""
	}
	if !contains(netModels, model) {
		return "", badParameter(name, "invalid format - format error: model: value '%s' does not have a value in the enumeration '%s'", model, strings.Join(netModels, ", "))
	}
	if given {
		first, err := strconv.ParseUint(mac[:min(2, len(mac))], 16, 8)
		if !macText.MatchString(mac) || err != nil || first&1 == 1 {
			return "", badParameter(name, "invalid format - format error: macaddr: value does not look like a valid unicast MAC address")
		}
	} else {
		r.LastMAC++
		mac = fmt.Sprintf("BC:24:11:%02X:%02X:%02X", r.LastMAC>>16&0xff, r.LastMAC>>8&0xff, r.LastMAC&0xff) // the prefix of Proxmox
	}
	tag := part(rest, "tag")
	if n, err := strconv.Atoi(tag); tag != "" && (err != nil || n < 1 || n > 4094) {
		return "", badParameter(name, "invalid format - format error: tag: value must have a minimum value of 1 and a maximum value of 4094")
	}
	path := "/sdn/zones/localnetwork/" + part(rest, "bridge")
	if tag != "" {
		path += "/" + tag
	}
	if err := r.need("SDN.Use", path); err != nil {
		return "", err
	}
	kept := model + "=" + strings.ToUpper(mac)
	if rest != "" {
		kept += "," + rest
	}
	return kept, nil
}

// disk checks a disk. STORAGE:32 makes a new one of 32 GiB, STORAGE:cloudinit a drive of
// cloud-init.
func (r *request) disk(vm *VM, name, v string) (string, error) {
	volume, rest, more := strings.Cut(v, ",")
	if volume == "none" {
		return v, nil
	}
	store, what, ok := strings.Cut(volume, ":")
	if !ok {
		return "", badParameter(name, "invalid format - format error: file: invalid format - unable to parse volume ID '%s'", volume)
	}
	if _, err := r.storage(store); err != nil {
		return "", err
	}
	size, err := strconv.Atoi(what)
	switch {
	case what == "cloudinit":
		volume, rest, more = fmt.Sprintf("%s:vm-%d-cloudinit", store, vm.ID), "media=cdrom", true
	case err == nil:
		volume = vm.volume(store)
		if rest = strings.Trim(rest+fmt.Sprintf(",size=%dG", size), ","); !more {
			more = true
		}
	default:
		if old := vm.Config[name]; old != "" && strings.Split(old, ",")[0] == volume && part(v, "size") == "" && part(old, "size") != "" {
			v = withPart(v, "size", part(old, "size")) // it stays as large as it is
		}
		return v, nil
	}
	if err := r.need("Datastore.AllocateSpace", "/storage/"+store); err != nil {
		return "", err
	}
	if more {
		return volume + "," + rest, nil
	}
	return volume, nil
}

// volume is the name of a disk that the machine has not yet.
func (vm *VM) volume(store string) string {
	for n := 0; ; n++ {
		name := fmt.Sprintf("%s:vm-%d-disk-%d", store, vm.ID, n)
		taken := false
		for _, v := range vm.Config {
			taken = taken || v == name || strings.HasPrefix(v, name+",")
		}
		if !taken {
			return name
		}
	}
}

// set changes options: all of them, or none. Those that are empty or named in delete go.
func (r *request) set(vm *VM) error {
	changed, pending := map[string]string{}, map[string]string{}
	names := []string{}
	for name := range r.form {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		v := r.form.Get(name)
		switch name {
		case "delete":
			for _, gone := range strings.FieldsFunc(v, func(c rune) bool { return c == ',' || c == ';' || c == ' ' }) {
				if err := r.need(privilegeOf(gone), vm.places()...); err != nil {
					return err
				}
				changed[gone] = ""
			}
			continue
		case "digest":
			if v != vm.digest() {
				return broken("detected modified configuration - file changed by other user? Try again.")
			}
			continue
		case "background_delay", "force", "revert", "skiplock":
			continue
		}
		if err := r.need(privilegeOf(name), vm.places()...); err != nil {
			return err
		}
		kept, err := r.value(vm, name, v)
		if err != nil {
			return err
		}
		if vm.Running && contains(later, name) {
			pending[name] = kept
		} else {
			changed[name] = kept
		}
	}
	for name, v := range changed {
		old := vm.Config[name]
		if vm.Config[name] = v; v == "" {
			delete(vm.Config, name)
			if diskName.MatchString(name) && old != "" && part(old, "media") == "" {
				vm.detach(strings.Split(old, ",")[0])
			}
		}
	}
	for name, v := range pending {
		if vm.Pending == nil {
			vm.Pending = map[string]string{}
		}
		vm.Pending[name] = v
	}
	return nil
}

// detach keeps a disk that is no longer used, as Proxmox does: its data are still there.
func (vm *VM) detach(volume string) {
	for n := 0; ; n++ {
		if name := "unused" + strconv.Itoa(n); vm.Config[name] == "" {
			vm.Config[name] = volume
			return
		}
	}
}
