package proxmox

import (
	"net/http"
	"slices"
	"strconv"
	"strings"
)

// Token is an API token with privileges of its own:
// https://pve.proxmox.com/wiki/User_Management#pveum_tokens.
type Token struct {
	ID     string  `json:"id"` // user@realm!name
	Secret string  `json:"secret"`
	Grants []Grant `json:"grants"`
}

// Grant gives privileges on a path and everything below it. The privilege * is all of them.
type Grant struct {
	Path       string   `json:"path"`
	Privileges []string `json:"privileges"`
}

// owner are the privileges of who owns the machines of a pool.
func owner() []string {
	return []string{
		"Pool.Audit", "VM.Allocate", "VM.Audit", "VM.Clone", "VM.Config.CDROM", "VM.Config.CPU", "VM.Config.Cloudinit", "VM.Config.Disk",
		"VM.Config.HWType", "VM.Config.Memory", "VM.Config.Network", "VM.Config.Options", "VM.Migrate", "VM.Monitor", "VM.PowerMgmt",
	}
}

// TenantToken may make and change machines in the pool that is named like the tenant, in its
// VLANs, from the template 9000, and nothing else.
func TenantToken(tenant, secret string, vlans ...int) Token {
	t := Token{ID: "terrier@pve!" + tenant, Secret: secret, Grants: []Grant{
		{"/pool/" + tenant, owner()},
		{"/vms/9000", []string{"VM.Audit", "VM.Clone"}},
		{"/storage/local-lvm", []string{"Datastore.AllocateSpace", "Datastore.Audit"}},
	}}
	for _, vlan := range vlans {
		t.Grants = append(t.Grants, Grant{"/sdn/zones/localnetwork/vmbr0/" + strconv.Itoa(vlan), []string{"SDN.Audit", "SDN.Use"}})
	}
	return t
}

// authenticate finds the token of a header: PVEAPIToken=user@realm!name=secret.
func (e *Estate) authenticate(header string) (*Token, error) {
	text, ok := strings.CutPrefix(header, "PVEAPIToken=")
	if !ok {
		return nil, refusal{status: http.StatusUnauthorized, message: "No ticket"}
	}
	id, secret, _ := strings.Cut(text, "=")
	for i := range e.Tokens {
		if t := &e.Tokens[i]; t.ID == id {
			if !same(t.Secret, secret) {
				return nil, refusal{status: http.StatusUnauthorized, message: "invalid token value!"}
			}
			return t, nil
		}
	}
	return nil, refusal{status: http.StatusUnauthorized, message: "no such API token"}
}

// may reports whether the token has a privilege on one of some paths.
func (t *Token) may(privilege string, paths ...string) bool {
	return slices.ContainsFunc(t.Grants, func(g Grant) bool {
		return (slices.Contains(g.Privileges, privilege) || slices.Contains(g.Privileges, "*")) && slices.ContainsFunc(paths, func(path string) bool {
			return g.Path == "/" || path == g.Path || strings.HasPrefix(path, g.Path+"/")
		})
	})
}

// need refuses a call without the privilege on one of some paths.
func (r *request) need(privilege string, paths ...string) error {
	if !r.token.may(privilege, paths...) {
		return refusal{status: http.StatusForbidden, message: "Permission check failed (" + paths[0] + ", " + privilege + ")"}
	}
	return nil
}

// places are the paths of a machine: its own, and the one of its pool.
func (vm *VM) places() []string {
	all := []string{"/vms/" + vm.number()}
	if vm.Pool != "" {
		all = append(all, "/pool/"+vm.Pool)
	}
	return all
}

// sees reports whether the token may read a machine.
func (r *request) sees(vm *VM) bool { return r.token.may("VM.Audit", vm.places()...) }

// privilegeOf is what it takes to change an option of a machine.
func privilegeOf(option string) string {
	name := strings.TrimRight(option, "0123456789")
	switch {
	case option == "cores" || option == "sockets" || option == "cpu" || option == "numa":
		return "VM.Config.CPU"
	case option == "memory" || option == "balloon":
		return "VM.Config.Memory"
	case name == "scsi" || name == "virtio" || name == "sata" || name == "unused":
		return "VM.Config.Disk"
	case name == "ide":
		return "VM.Config.CDROM"
	case name == "net":
		return "VM.Config.Network"
	case name == "ipconfig" || slices.Contains([]string{"sshkeys", "ciuser", "cipassword", "cicustom", "nameserver", "searchdomain", "citype", "ciupgrade"}, option):
		return "VM.Config.Cloudinit"
	case name == "serial" || option == "vga" || option == "scsihw" || option == "machine" || option == "bios":
		return "VM.Config.HWType"
	default:
		return "VM.Config.Options"
	}
}
