package proxmox

import (
	"net/netip"
	"strconv"
	"strings"
)

// The guest agent answers in the place of a guest: with the addresses that it would have, and
// with the files that were written by it.

// mostWritten is how many bytes file-write takes.
const mostWritten = 60 << 10

func (vm *VM) agent() bool {
	on := vm.Config["agent"]
	return on == "1" || strings.HasPrefix(on, "1,") || part(on, "enabled") == "1"
}

// answers is why the guest agent does not answer; nil if it does.
func (vm *VM) answers() error {
	switch {
	case !vm.agent():
		return broken("No QEMU guest agent configured")
	case !vm.Running:
		return broken("VM %d is not running", vm.ID)
	default:
		return nil
	}
}

// interfaces answers as the guest agent does: with what cloud-init has set, or what DHCP gave.
func interfaces(r *request, vm *VM) (any, error) {
	if err := vm.answers(); err != nil {
		return nil, err
	}
	answer := []map[string]any{{
		"name": "lo", "hardware-address": "00:00:00:00:00:00",
		"ip-addresses": []map[string]any{{"ip-address-type": "ipv4", "ip-address": "127.0.0.1", "prefix": 8}},
	}}
	device := vm.Config["net0"]
	if device == "" {
		return map[string]any{"result": answer}, nil
	}
	_, mac, _ := strings.Cut(strings.Split(device, ",")[0], "=")
	row := map[string]any{"name": "eth0", "hardware-address": strings.ToLower(mac), "ip-addresses": []map[string]any{}}
	if p, ok := r.address(vm, mac); ok {
		row["ip-addresses"] = []map[string]any{{"ip-address-type": "ipv4", "ip-address": p.Addr().String(), "prefix": p.Bits()}}
	}
	return map[string]any{"result": append(answer, row)}, nil
}

// address is the one of the guest. DHCP gives what is reserved, or else the host number of the
// machine within its VLAN.
func (r *request) address(vm *VM, mac string) (netip.Prefix, bool) {
	static := part(vm.Config["ipconfig0"], "ip")
	if p, err := netip.ParsePrefix(static); err == nil {
		return p, true
	}
	tag, err := strconv.Atoi(part(vm.Config["net0"], "tag"))
	v, ok := r.vlan(tag)
	if err != nil || static != "dhcp" || !ok {
		return netip.Prefix{}, false
	}
	subnet, err := netip.ParsePrefix(v.Subnet)
	if err != nil {
		return netip.Prefix{}, false
	}
	if a, err := netip.ParseAddr(r.Reservations[strings.ToUpper(mac)]); err == nil {
		return netip.PrefixFrom(a, subnet.Bits()), true
	}
	a := subnet.Addr().As4()
	a[3] = byte(100 + vm.ID%100)
	return netip.PrefixFrom(netip.AddrFrom4(a), subnet.Bits()), true
}

// writeFile writes a file of the guest.
func writeFile(r *request, vm *VM) (any, error) {
	file, content := r.form.Get("file"), r.form.Get("content")
	if len(content) > mostWritten {
		return nil, badParameter("content", "value may only be %d characters long", mostWritten)
	}
	if err := vm.answers(); err != nil {
		return nil, err
	}
	if !strings.HasPrefix(file, "/") {
		return nil, broken("Agent error: failed to open file '%s' (mode: 'wb'): No such file or directory", file)
	}
	if vm.Files == nil {
		vm.Files = map[string]string{}
	}
	vm.Files[file] = content
	return nil, nil
}

// readFile answers with a file of the guest that was written before.
func readFile(r *request, vm *VM) (any, error) {
	if err := vm.answers(); err != nil {
		return nil, err
	}
	file := r.form.Get("file")
	content, ok := vm.Files[file]
	if !ok {
		return nil, broken("Agent error: failed to open file '%s' (mode: 'r'): No such file or directory", file)
	}
	return map[string]any{"content": content}, nil
}
