package e2e

import (
	"encoding/json"
	"fmt"
	"net/http"
	"path/filepath"
	"strings"
	"testing"

	"github.com/terrier-iac/terrier/internal/testkit"
	"github.com/terrier-iac/terrier/test/proxmox"
)

// buildingExample is the example of tenants with machines.
type buildingExample struct {
	exampleCommand
	ports []string
}

// start runs the command until it says that the tenants are up.
func (b *buildingExample) start(t *testing.T) {
	t.Helper()
	b.starts(t, "tenant-building", "the tenants are up", []string{"PROXMOX_PORT=" + b.ports[0], "DNS_PORT=" + b.ports[1], "TERRIER_PORT=" + b.ports[2]})
}

// administer asks the stand-in of Proxmox VE, past its API.
func (b *buildingExample) administer(t *testing.T, method, path, body string, into any) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, "http://127.0.0.1:"+b.ports[0]+"/stand-in/"+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer "+strings.TrimSpace(read(t, filepath.Join(b.dir, "proxmox", "admin"))))
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	answer := struct{ Data any }{into}
	if err := json.NewDecoder(resp.Body).Decode(&answer); err != nil || resp.StatusCode != http.StatusOK {
		t.Fatalf("%s %s is answered with %s, %v", method, path, resp.Status, err)
	}
}

// tagged are the machines of a tenant, by name.
func (b *buildingExample) tagged(t *testing.T, tenant string) map[string]proxmox.VM {
	t.Helper()
	all, found := map[int]proxmox.VM{}, map[string]proxmox.VM{}
	b.administer(t, http.MethodGet, "vms", "", &all)
	for _, vm := range all {
		if vm.Pool == tenant {
			found[vm.Config["name"]] = vm
		}
	}
	return found
}

// approve approves the plan of a stack, and waits for its apply.
func (b *buildingExample) approve(t *testing.T, stack string) {
	t.Helper()
	b.run(t, "terrier", "approve", stack, "-n", "tenants")
	b.run(t, "kubectl", "-n", "tenants", "wait", "terraforms.infra.contrib.fluxcd.io/"+stack, "--for=condition=Ready", "--timeout=2m")
}

// One command runs the tenants of the guide: a plan for each directory of the inventory, machines
// after approvals, records, drift that is found and undone, and a start that goes on.
func TestTenantBuildingExample(t *testing.T) {
	t.Parallel()
	b := &buildingExample{exampleCommand: exampleCommand{dir: t.TempDir(), bin: filepath.Join(testkit.Repository(t), "bin")}, ports: []string{freePort(t), freePort(t), freePort(t)}}
	t.Cleanup(func() {
		b.stop(t)
		if t.Failed() {
			t.Logf("the example said:\n%s", b.said)
		}
	})
	b.start(t)
	want := map[string]map[string]string{
		"grooveiq":    {"api-vm01": "ip=10.100.0.10/24,gw=10.100.0.1"},
		"vintronics":  {"shop-vm01": "ip=dhcp", "shop-vm02": "ip=dhcp"},
		"moneyrouter": {"ledger-vm01": "ip=10.102.0.10/24,gw=10.102.0.1"},
	}
	for tenant := range want {
		if vms := b.tagged(t, tenant); len(vms) > 0 {
			t.Errorf("before any approval %s has %v", tenant, vms)
		}
	}
	for tenant, machines := range want {
		b.approve(t, tenant)
		vms := b.tagged(t, tenant)
		if len(vms) != len(machines) {
			t.Errorf("%s has %v, want %v", tenant, vms, machines)
		}
		for name, ip := range machines {
			if vm := vms[name]; vm.Config["ipconfig0"] != ip || !vm.Running || vm.Node != "pve-tenant" {
				t.Errorf("%s of %s is %+v", name, tenant, vm)
			}
		}
		if records := read(t, filepath.Join(b.dir, "proxmox", "records.json")); strings.Count(records, "."+tenant+".example.") != len(machines) {
			t.Errorf("the records are %s", records)
		}
	}
	if mac := b.tagged(t, "moneyrouter")["ledger-vm01"].Config["net0"]; !strings.HasPrefix(mac, "virtio=2E:59:DF:9E:D3:C7,") {
		t.Errorf("ledger-vm01 has %s, want the MAC address of the inventory", mac)
	}

	vm := b.tagged(t, "grooveiq")["api-vm01"]
	b.administer(t, http.MethodPatch, fmt.Sprint("vms/", vm.ID), `{"set": {"cores": "8"}}`, nil)
	b.run(t, "terrier", "replan", "grooveiq", "-n", "tenants", "--wait")
	b.approve(t, "grooveiq")
	if cores := b.tagged(t, "grooveiq")["api-vm01"].Config["cores"]; cores != "2" {
		t.Errorf("after the repair api-vm01 has %s cores", cores)
	}

	b.stop(t)
	b.start(t)
	if again := b.tagged(t, "grooveiq")["api-vm01"]; again.ID != vm.ID {
		t.Errorf("another start has %+v, want %+v", again, vm)
	}
	b.run(t, "kubectl", "-n", "tenants", "wait", "terraforms.infra.contrib.fluxcd.io/grooveiq", "--for=condition=Ready", "--timeout=2m")
}
