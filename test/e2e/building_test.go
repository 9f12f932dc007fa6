package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
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
	b.starts(t, "tenant-building", "the tenants are up", []string{"PROXMOX_PORT=" + b.ports[0], "DNS_PORT=" + b.ports[1], "TERRIER_PORT=" + b.ports[2], "SSH_PORT=" + b.ports[3]})
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

// edit changes a text of a file below the directory of the example.
func (b *buildingExample) edit(t *testing.T, file, old, with string) {
	t.Helper()
	path := filepath.Join(b.dir, file)
	was := read(t, path)
	if !strings.Contains(was, old) {
		t.Fatalf("%s has no %q:\n%s", file, old, was)
	}
	if err := os.WriteFile(path, []byte(strings.Replace(was, old, with, 1)), 0o600); err != nil {
		t.Fatal(err)
	}
}

// push is a commit: of the inventory (tree, building), or of what the network team has
// (substrate).
func (b *buildingExample) push(t *testing.T, directory, source string) {
	t.Helper()
	b.run(t, "terrier", "push", filepath.Join(b.dir, directory), "oci://127.0.0.1:"+b.ports[2]+"/tenants/"+source+":latest")
}

// object is a part of an object; empty if there is no such object.
func (b *buildingExample) object(t *testing.T, name, path string) string {
	t.Helper()
	return b.run(t, "kubectl", "-n", "tenants", "get", name, "--ignore-not-found", "-o", "jsonpath="+path)
}

// status is a part of the status of a stack.
func (b *buildingExample) status(t *testing.T, stack, path string) string {
	t.Helper()
	return b.object(t, "terraforms.infra.contrib.fluxcd.io/"+stack, "{.status"+path+"}")
}

// await waits until something is so.
func (b *buildingExample) await(t *testing.T, what string, is func() (bool, string)) {
	t.Helper()
	testkit.Eventually(t, testkit.Patience, what, func(context.Context) error {
		if ok, found := is(); !ok {
			return errNot("so: " + found)
		}
		return nil
	})
}

// planned waits for a plan of a stack that is another one than before.
func (b *buildingExample) planned(t *testing.T, stack, before string) {
	t.Helper()
	b.await(t, "the stack "+stack+" has a plan", func() (bool, string) {
		pending := b.status(t, stack, ".plan.pending")
		return pending != "" && pending != before, pending + ", " + b.status(t, stack, `.conditions[?(@.type=="Ready")].message`)
	})
}

// One command runs the tenants of the guide: a plan for each directory of the inventory, machines
// after approvals and steps, records, drift that is found and undone, and a start that goes on.
func TestTenantBuildingExample(t *testing.T) {
	t.Parallel()
	b := &buildingExample{exampleCommand: exampleCommand{dir: t.TempDir(), bin: filepath.Join(testkit.Repository(t), "bin")}, ports: []string{freePort(t), freePort(t), freePort(t), freePort(t)}}
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
	b.awaitsItsVLAN(t)
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

	b.commitToOne(t)
	b.directoriesGo(t)

	b.stop(t)
	b.start(t)
	if again := b.tagged(t, "grooveiq")["api-vm01"]; again.ID != vm.ID {
		t.Errorf("another start has %+v, want %+v", again, vm)
	}
	b.run(t, "kubectl", "-n", "tenants", "wait", "terraforms.infra.contrib.fluxcd.io/grooveiq", "--for=condition=Ready", "--timeout=2m")
}

// awaitsItsVLAN is TB-14: the VLAN of moneyrouter is missing, which holds this tenant and no
// other. Once the network team has made it, the tenant goes on without a touch.
func (b *buildingExample) awaitsItsVLAN(t *testing.T) {
	t.Helper()
	for tenant, want := range map[string]string{"grooveiq": "", "vintronics": "", "moneyrouter": "PrerequisiteMissing"} {
		reason, pending := b.status(t, tenant, `.conditions[?(@.type=="Ready")].reason`), b.status(t, tenant, ".plan.pending")
		if (reason == "PrerequisiteMissing") != (want != "") || (pending == "") != (want != "") {
			t.Errorf("%s is %s with the plan %q, want that moneyrouter alone waits", tenant, reason, pending)
		}
	}
	got := map[string]string{}
	for _, name := range []string{"vlan", "dhcp-scope", "firewall-zone"} {
		got[name] = b.status(t, "moneyrouter", `.conditions[?(@.type=="Prerequisite-`+name+`")].reason`)
	}
	if got["vlan"] != "NotFound" || got["dhcp-scope"] != "Met" || got["firewall-zone"] != "Met" {
		t.Errorf("moneyrouter waits for %v, want for its VLAN alone", got)
	}
	b.edit(t, "substrate/net/vlans.yaml", "vlans:\n", "vlans:\n- {id: 102, name: moneyrouter, interface: vmbr0.102}\n")
	b.push(t, "substrate", "substrate")
	b.planned(t, "moneyrouter", "")
}

// commitToOne is TB-04 and TB-10: a commit to one tenant plans that one alone. The machines that
// were applied are targets of the monitoring.
func (b *buildingExample) commitToOne(t *testing.T) {
	t.Helper()
	targets := map[string]string{"grooveiq": "10.100.0.10:9100", "vintronics": "10.101.0.11:9100", "moneyrouter": "10.102.0.10:9100"}
	for tenant, want := range targets {
		b.await(t, "the machines of "+tenant+" are targets", func() (bool, string) {
			text := b.object(t, "configmap/"+tenant+"-targets", `{.data.monitoring\.json}`)
			return strings.Contains(text, want) && strings.Contains(text, `"tenant":"`+tenant+`"`), text
		})
		if up := b.status(t, tenant, `.conditions[?(@.type=="Step-up")].reason`); up != "Succeeded" {
			t.Errorf("the step up of %s is %s", tenant, up)
		}
	}
	others := func() string {
		all := ""
		for _, tenant := range []string{"vintronics", "moneyrouter"} {
			all += tenant + " " + b.status(t, tenant, ".lastPlannedRevision") + " " + b.status(t, tenant, ".lastAttemptedRevision") + b.status(t, tenant, ".plan.pending") + "\n"
		}
		return all
	}
	before, last := others(), b.status(t, "grooveiq", ".lastPlannedRevision")
	b.edit(t, "tree/tenant-inventory/grooveiq/terraform/main.tf", "cores       = 2", "cores       = 4")
	b.push(t, "tree", "building")
	b.planned(t, "grooveiq", "")
	if now := b.status(t, "grooveiq", ".lastPlannedRevision"); now == last {
		t.Errorf("grooveiq has a plan of the revision %s, which is the one before the commit", now)
	}
	b.approve(t, "grooveiq")
	if cores := b.tagged(t, "grooveiq")["api-vm01"].Config["cores"]; cores != "4" {
		t.Errorf("after the commit api-vm01 has %s cores", cores)
	}
	if after := others(); after != before {
		t.Errorf("the other tenants were\n%s and are\n%s", before, after)
	}
}

// directoriesGo are the guards: a tree without tenants destroys nothing. A directory that is gone
// takes its tenant with it, machines and all, and no other.
func (b *buildingExample) directoriesGo(t *testing.T) {
	t.Helper()
	inventory, aside := filepath.Join(b.dir, "tree", "tenant-inventory"), filepath.Join(b.dir, "aside")
	rename := func(from, to string) {
		t.Helper()
		if err := os.Rename(from, to); err != nil {
			t.Fatal(err)
		}
	}
	guarded := func() string {
		return b.object(t, "tenantregistry/inventory", `{.status.conditions[?(@.type=="Guarded")].reason}`)
	}
	rename(inventory, aside)
	if err := os.Mkdir(inventory, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(inventory, "README.md"), []byte("no tenant\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	b.push(t, "tree", "building")
	b.await(t, "a guard holds what a tree without tenants would destroy", func() (bool, string) { return guarded() == "NoRows", guarded() })
	for _, tenant := range []string{"grooveiq", "vintronics", "moneyrouter"} {
		if since := b.object(t, "terraforms.infra.contrib.fluxcd.io/"+tenant, "{.metadata.deletionTimestamp}"); since != "" || len(b.tagged(t, tenant)) == 0 {
			t.Errorf("%s is being deleted since %q, and has %v", tenant, since, b.tagged(t, tenant))
		}
	}
	if err := os.RemoveAll(inventory); err != nil {
		t.Fatal(err)
	}
	rename(aside, inventory)
	rename(filepath.Join(inventory, "vintronics"), filepath.Join(b.dir, "vintronics"))
	b.push(t, "tree", "building")
	b.await(t, "vintronics is gone", func() (bool, string) {
		left := b.object(t, "terraforms.infra.contrib.fluxcd.io/vintronics", "{.metadata.name} {.status.conditions}")
		return left == "", left
	})
	if vms := b.tagged(t, "vintronics"); len(vms) > 0 {
		t.Errorf("vintronics is gone, and its machines are not: %v", vms)
	}
	if text := b.object(t, "configmap/vintronics-targets", "{.data}"); text != "" {
		t.Errorf("vintronics is gone, and is monitored: %s", text)
	}
	if records := read(t, filepath.Join(b.dir, "proxmox", "records.json")); strings.Contains(records, ".vintronics.example.") || !strings.Contains(records, ".grooveiq.example.") {
		t.Errorf("the records are %s", records)
	}
	for _, tenant := range []string{"grooveiq", "moneyrouter"} {
		if len(b.tagged(t, tenant)) != 1 {
			t.Errorf("%s has %v", tenant, b.tagged(t, tenant))
		}
	}
}
