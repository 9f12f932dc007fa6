package proxmox

import (
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// applied is a root module with one VM in a directory of its own, and the API that it is about.
type applied struct {
	*engine
	*Server
}

// block is the root module, with some more arguments.
func block(more string) string {
	return `
module "vm" {
  source      = "./proxmox-vm"
  name        = "api-vm01"
  tenant      = "grooveiq"
  pool        = "grooveiq"
  target_node = "pve-tenant"
  template    = "fedora-43-template"
  cores       = 2
  memory      = 512
  disk        = "12G"
  network     = { vlan_id = 100, ip = "10.100.0.10", gateway = "10.100.0.1" }
` + more + `
}
`
}

func initialised(t *testing.T) *applied {
	t.Helper()
	s, err := New(Options{Estate: Building(func(tenant string) string { return "secret-of-" + tenant }), TaskTime: 20 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(s)
	t.Cleanup(server.Close)
	a := &applied{newEngine(t, server.URL), s}
	// The token of the tenant, whose rights are enough.
	a.env = append(a.env, "PROXMOX_VE_API_TOKEN=terrier@pve!grooveiq=secret-of-grooveiq")
	if err := os.CopyFS(filepath.Join(a.dir, "proxmox-vm"), os.DirFS(filepath.Join(a.root, "modules", "proxmox-vm"))); err != nil {
		t.Fatal(err)
	}
	a.write(t, "")
	if out, err := a.run(t, "init", "-no-color"); err != nil {
		t.Fatalf("init: %v\n%s", err, out)
	}
	return a
}

func (a *applied) write(t *testing.T, more string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(a.dir, "main.tf"), []byte(block(more)), 0o600); err != nil {
		t.Fatal(err)
	}
}

func (a *applied) apply(t *testing.T) string {
	t.Helper()
	out, err := a.run(t, "apply", "-no-color", "-auto-approve")
	if err != nil {
		t.Fatalf("apply: %v\n%s", err, out)
	}
	return out
}

// unwrapped is what the engine says, in one line.
func unwrapped(out string) string {
	return strings.Join(strings.Fields(strings.ReplaceAll(out, "│", "")), " ")
}

// only is the one VM of the tenant.
func (a *applied) only(t *testing.T) VM {
	t.Helper()
	all := a.Tagged("grooveiq")
	if len(all) != 1 || len(a.VMs()) != 3 {
		t.Fatalf("the machines are %v, want one of grooveiq", a.VMs())
	}
	return all[0]
}

// settled checks that a plan has no changes.
func (a *applied) settled(t *testing.T) {
	t.Helper()
	if out, err := a.run(t, "plan", "-no-color", "-detailed-exitcode"); err != nil {
		t.Errorf("a plan after it: %v\n%s", err, out)
	}
}

// After a failure there is one VM, at the latest once the next apply is over.
func TestWhatGoesWrongLeavesOneVM(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		fault Fault
		says  string // the failure of the first apply; empty if it has none
	}{
		"the answer to the clone is lost": {Fault{Method: "POST", Path: "nodes/*/qemu/*/clone", Times: 1, Lost: true}, ""},
		"the task of the clone fails":     {Fault{Path: "nodes/*/qemu/*/clone", Times: 1, Task: "no space left on device"}, "the task qmclone failed: no space left on device"},
		"the node is away for a read":     {Fault{Method: "GET", Path: "nodes/*/qemu/*/config", Times: 1, Status: 595, Message: "No route to host"}, ""},
		"the node is away for a change":   {Fault{Method: "PUT", Path: "nodes/*/qemu/*/config", Times: 1, Status: 595, Message: "No route to host"}, "is answered with 595: No route to host"},
		"the disk cannot grow":            {Fault{Path: "nodes/*/qemu/*/resize", Times: 1, Status: 500, Message: "out of space"}, "is answered with 500: out of space"},
		"the start fails":                 {Fault{Path: "nodes/*/qemu/*/status/start", Times: 1, Task: "got no memory"}, "the task qmstart failed: got no memory"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a := initialised(t)
			a.Fault(c.fault)
			out, err := a.run(t, "apply", "-no-color", "-auto-approve")
			if (err != nil) != (c.says != "") || !strings.Contains(unwrapped(out), c.says) {
				t.Errorf("the first apply: %v, want %q\n%s", err, c.says, out)
			}
			a.apply(t)
			vm := a.only(t)
			if !vm.Running || vm.Config["cores"] != "2" || part(vm.Config["scsi0"], "size") != "12G" || vm.Config["ipconfig0"] != "ip=10.100.0.10/24,gw=10.100.0.1" {
				t.Errorf("the machine is %+v", vm)
			}
			a.settled(t)
			if out, err := a.run(t, "destroy", "-no-color", "-auto-approve"); err != nil || len(a.VMs()) != 2 {
				t.Errorf("destroy: %v, and the machines are %v\n%s", err, a.VMs(), out)
			}
		})
	}
}

// A VM that is locked for a while is waited for; one that stays locked is told.
func TestALockedVMIsTold(t *testing.T) {
	t.Parallel()
	a := initialised(t)
	a.apply(t)
	lock := func(with string) {
		if there, err := a.Manually(a.only(t).ID, func(vm *VM) { vm.Lock = with }); err != nil || !there {
			t.Fatal(there, err)
		}
	}
	lock("backup")
	a.write(t, "tags = [\"changed\"]")
	if out, err := a.run(t, "apply", "-no-color", "-auto-approve"); err == nil || !strings.Contains(unwrapped(out), "VM is locked (backup)") {
		t.Errorf("the apply of a locked VM: %v\n%s", err, out)
	}
	lock("")
	a.apply(t)
	if tags := a.only(t).Config["tags"]; tags != "changed;grooveiq;mac-auto" {
		t.Errorf("the tags are %s", tags)
	}
}

// Each manual change is a difference, and an apply undoes it.
func TestManualChangesAreUndone(t *testing.T) {
	t.Parallel()
	a := initialised(t)
	a.apply(t)
	before := a.only(t)
	for name, c := range map[string]struct {
		change Change
		plan   string
	}{
		"cores":   {Change{Set: map[string]string{"cores": "8"}}, "= 8 -> 2"},
		"name":    {Change{Set: map[string]string{"name": "renamed"}}, `"renamed" -> "api-vm01"`},
		"disk":    {Change{Set: map[string]string{"scsi1": "local-lvm:vm-101-disk-7,size=8G"}}, `"scsi1" -> null`},
		"stopped": {Change{Running: new(bool)}, "started"},
		"network": {Change{Set: map[string]string{"net0": "virtio=BC:24:11:AA:AA:AA,bridge=vmbr0,tag=100,firewall=1"}}, "firewall"},
		"tags":    {Change{Set: map[string]string{"tags": "grooveiq;mac-auto;other"}}, `- "other",`},
		"ip":      {Change{Set: map[string]string{"ipconfig0": "ip=dhcp"}}, `"dhcp" -> "10.100.0.10/24"`},
	} {
		t.Run(name, func(t *testing.T) {
			if there, err := a.Manually(before.ID, c.change.apply); err != nil || !there {
				t.Fatal(there, err)
			}
			out, err := a.run(t, "plan", "-no-color", "-detailed-exitcode")
			if err == nil || !strings.Contains(out, c.plan) || !strings.Contains(out, "0 to add, 1 to change, 0 to destroy") {
				t.Errorf("the plan: %v, want %q\n%s", err, c.plan, out)
			}
			a.apply(t)
			after, want := a.only(t), before.copy()
			if name == "disk" { // its data stay
				want.Config["unused0"] = "local-lvm:vm-101-disk-7"
				if _, err := a.Manually(before.ID, func(vm *VM) { delete(vm.Config, "unused0") }); err != nil {
					t.Fatal(err)
				}
			}
			if name == "network" { // with an automatic address any is right
				want.Config["net0"] = "virtio=BC:24:11:AA:AA:AA,bridge=vmbr0,tag=100"
				before.Config["net0"] = want.Config["net0"]
			}
			if diff := cmp.Diff(want, after); diff != "" {
				t.Errorf("after the apply (-want +got):\n%s", diff)
			}
			a.settled(t)
		})
	}
	if err := a.Remove(before.ID); err != nil {
		t.Fatal(err)
	}
	a.apply(t)
	if vm := a.only(t); vm.Config["name"] != "api-vm01" || !vm.Running {
		t.Errorf("the VM that was deleted is %+v", vm)
	}
	a.settled(t)
}

// Another policy for MAC addresses changes this VM, and the plan warns of it.
func TestAnotherPolicyForMACAddressesIsAnUpdate(t *testing.T) {
	t.Parallel()
	a := initialised(t)
	a.apply(t)
	before := a.only(t)
	a.write(t, "mac_policy = \"deterministic\"")
	out, err := a.run(t, "plan", "-no-color")
	if err != nil || !strings.Contains(out, "0 to add, 1 to change, 0 to destroy") || !strings.Contains(unwrapped(out), "mac_policy: the MAC address of api-vm01 changes from one that Proxmox VE drew to B6:22:CB:E8:59:91.") {
		t.Errorf("the plan: %v\n%s", err, out)
	}
	a.apply(t)
	before.Config["net0"], before.Config["tags"] = "virtio=B6:22:CB:E8:59:91,bridge=vmbr0,tag=100", "grooveiq;mac-deterministic"
	if diff := cmp.Diff(before, a.only(t)); diff != "" {
		t.Errorf("after the apply (-want +got):\n%s", diff)
	}
	a.settled(t)
}

// A VM that is there is taken over without a change.
func TestAVMIsImported(t *testing.T) {
	t.Parallel()
	a := initialised(t)
	a.apply(t)
	before := a.only(t)
	if err := os.Remove(filepath.Join(a.dir, "terraform.tfstate")); err != nil {
		t.Fatal(err)
	}
	if out, err := a.run(t, "import", "-no-color", "module.vm.proxmox_virtual_environment_vm.this", "pve-tenant/"+before.number()); err != nil {
		t.Fatalf("import: %v\n%s", err, out)
	}
	a.apply(t) // it adds to the state what the API does not tell
	if diff := cmp.Diff(before, a.only(t)); diff != "" {
		t.Errorf("after the import (-want +got):\n%s", diff)
	}
	a.settled(t)
}

// A disk grows, and does not shrink.
func TestADiskDoesNotShrink(t *testing.T) {
	t.Parallel()
	a := initialised(t)
	a.apply(t)
	text, err := os.ReadFile(filepath.Join(a.dir, "main.tf"))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(a.dir, "main.tf"), []byte(strings.Replace(string(text), "12G", "11G", 1)), 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := a.run(t, "apply", "-no-color", "-auto-approve"); err == nil || !strings.Contains(unwrapped(out), "has 12 GiB, and cannot shrink to 11 GiB") {
		t.Errorf("the apply: %v\n%s", err, out)
	}
}
