package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/terrier-iac/terrier/internal/testkit"
	"github.com/terrier-iac/terrier/test/opnsense"
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
	b.starts(t, "tenant-building", "the tenants are up", []string{"PROXMOX_PORT=" + b.ports[0], "DNS_PORT=" + b.ports[1], "TERRIER_PORT=" + b.ports[2], "SSH_PORT=" + b.ports[3], "DHCP_PORT=" + b.ports[4]})
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
	b.run(t, "kubectl", "-n", "tenants", "wait", "terraforms.infra.contrib.fluxcd.io/"+stack, "--for=condition=Ready", "--timeout=5m")
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

// reserved are the reservations of the DHCP server: addresses and MAC addresses by host names.
func (b *buildingExample) reserved(t *testing.T) map[string]string {
	t.Helper()
	var kept map[string]opnsense.Reservation
	if err := json.Unmarshal([]byte(read(t, filepath.Join(b.dir, "proxmox", "reservations.json"))), &kept); err != nil {
		t.Fatal(err)
	}
	all := map[string]string{}
	for _, r := range kept {
		all[r.Hostname] = r.Address + " " + strings.ToUpper(r.MAC)
	}
	return all
}

// addresses is what the guest agent of a machine says of its networks, to the token of its tenant.
func (b *buildingExample) addresses(t *testing.T, tenant string, vm proxmox.VM) string {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, fmt.Sprintf("http://127.0.0.1:%s/api2/json/nodes/%s/qemu/%d/agent/network-get-interfaces", b.ports[0], vm.Node, vm.ID), nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Authorization", "PVEAPIToken=terrier@pve!"+tenant+"="+strings.TrimSpace(read(t, filepath.Join(b.dir, "proxmox", "tokens", tenant))))
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// One command runs the tenants of the guide: a plan for each directory of the inventory, machines
// after approvals and steps, records and reservations, drift that is undone or accepted, a tenant
// that goes and comes back the same, and a start that goes on.
func TestTenantBuildingExample(t *testing.T) {
	t.Parallel()
	b := &buildingExample{exampleCommand: exampleCommand{dir: t.TempDir(), bin: filepath.Join(testkit.Repository(t), "bin")}, ports: []string{reserved(t), reserved(t), reserved(t), reserved(t), reserved(t)}}
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
	b.inventoryAgrees(t)
	b.hostsAreConfigured(t)

	vm := b.tagged(t, "grooveiq")["api-vm01"]
	b.driftsBothWays(t, vm.ID)
	b.commitToOne(t)
	b.directoriesGo(t)

	b.stop(t)
	b.start(t)
	if again := b.tagged(t, "grooveiq")["api-vm01"]; again.ID != vm.ID {
		t.Errorf("another start has %+v, want %+v", again, vm)
	}
	b.run(t, "kubectl", "-n", "tenants", "wait", "terraforms.infra.contrib.fluxcd.io/grooveiq", "--for=condition=Ready", "--timeout=5m")
}

// awaitsItsVLAN is TB-14: the VLAN of moneyrouter is missing, which holds this tenant and no
// other. Once the network team has made it, the tenant goes on without a touch.
func (b *buildingExample) awaitsItsVLAN(t *testing.T) {
	t.Helper()
	for tenant, want := range map[string]string{"grooveiq": "", "vintronics": "", "moneyrouter": "PrerequisiteMissing"} {
		b.await(t, "moneyrouter alone waits", func() (bool, string) { // each of the others as well, until it was looked at
			reason, pending := b.status(t, tenant, `.conditions[?(@.type=="Ready")].reason`), b.status(t, tenant, ".plan.pending")
			return (reason == "PrerequisiteMissing") == (want != "") && (pending == "") == (want != ""), fmt.Sprintf("%s is %s with the plan %q", tenant, reason, pending)
		})
	}
	want := map[string]string{"vlan": "NotFound", "dhcp-scope": "Met", "firewall-zone": "Met", "template": "Met", "reservations": "Met", "hypervisor": "Met"}
	b.await(t, "moneyrouter waits for its VLAN alone", func() (bool, string) {
		got := map[string]string{}
		for name := range want {
			got[name] = b.status(t, "moneyrouter", `.conditions[?(@.type=="Prerequisite-`+name+`")].reason`)
		}
		diff := cmp.Diff(want, got)
		return diff == "", diff
	})
	b.edit(t, "substrate/net/vlans.yaml", "vlans:\n", "vlans:\n- {id: 102, name: moneyrouter, interface: vmbr0.102}\n")
	b.push(t, "substrate", "substrate")
	b.planned(t, "moneyrouter", "")
}

// inventoryAgrees is TB-08 and TB-13: hosts.yml, Terraform and the DHCP server have the same
// addresses and MAC addresses, and DHCP gives a machine what is reserved for it.
func (b *buildingExample) inventoryAgrees(t *testing.T) {
	t.Helper()
	want := map[string]string{"shop-vm01": "10.101.0.10 EE:8C:69:3F:17:27", "shop-vm02": "10.101.0.11 8A:54:C2:47:E5:F9", "ledger-vm01": "10.102.0.10 2E:59:DF:9E:D3:C7"}
	if diff := cmp.Diff(want, b.reserved(t)); diff != "" {
		t.Errorf("the reservations (-want +got):\n%s", diff)
	}
	for name, vm := range b.tagged(t, "vintronics") {
		address, mac, _ := strings.Cut(want[name], " ")
		if got := b.addresses(t, "vintronics", vm); !strings.HasPrefix(vm.Config["net0"], "virtio="+mac+",") || !strings.Contains(got, `"`+address+`"`) {
			t.Errorf("%s has %s, and its guest agent says %s; want %s", name, vm.Config["net0"], got, want[name])
		}
	}
	var list struct {
		Meta struct {
			Hosts map[string]map[string]any `json:"hostvars"`
		} `json:"_meta"`
	}
	if err := json.Unmarshal([]byte(b.run(t, "terrier", "inventory", "--list", "-n", "tenants")), &list); err != nil {
		t.Fatal(err)
	}
	got := map[string]string{}
	for name, vars := range list.Meta.Hosts {
		got[name] = fmt.Sprint(vars["ansible_host"])
	}
	all := map[string]string{"api-vm01": "10.100.0.10", "shop-vm01": "10.101.0.10", "shop-vm02": "10.101.0.11", "ledger-vm01": "10.102.0.10"}
	if diff := cmp.Diff(all, got); diff != "" {
		t.Errorf("the dynamic inventory (-want +got):\n%s", diff)
	}
}

// hostsAreConfigured is TB-07: the playbook has configured each host after its apply, and changes
// nothing when it runs again.
func (b *buildingExample) hostsAreConfigured(t *testing.T) {
	t.Helper()
	step := `.conditions[?(@.type=="Step-configure")]`
	recap := func(tenant, want string) {
		t.Helper()
		b.await(t, "Ansible has configured "+tenant+" with "+want, func() (bool, string) {
			found := b.status(t, tenant, step+".reason") + " " + b.status(t, tenant, step+".message")
			return strings.HasPrefix(found, "Succeeded") && strings.Contains(found, want), found
		})
	}
	for tenant, want := range map[string]map[string]string{
		"grooveiq":    {"api-vm01": "api-vm01.grooveiq.example, 10.100.0.10: web"},
		"vintronics":  {"shop-vm01": "shop-vm01.vintronics.example, 10.101.0.10: shop", "shop-vm02": "shop-vm02.vintronics.example, 10.101.0.11: shop"},
		"moneyrouter": {"ledger-vm01": "ledger-vm01.moneyrouter.example, 10.102.0.10: ledger"},
	} {
		recap(tenant, "changed=1")
		got := map[string]string{}
		for name, vm := range b.tagged(t, tenant) {
			got[name] = strings.TrimSpace(vm.Files["/etc/motd"])
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("the hosts of %s (-want +got):\n%s", tenant, diff)
		}
	}
	b.run(t, "kubectl", "-n", "tenants", "annotate", "terraforms.infra.contrib.fluxcd.io/grooveiq", "terrier.dev/rerun-steps=again")
	recap("grooveiq", "changed=0")
	if log := b.run(t, "terrier", "logs", "grooveiq", "-n", "tenants"); strings.Contains(log, strings.TrimSpace(read(t, filepath.Join(b.dir, "proxmox", "tokens", "grooveiq")))) {
		t.Error("the log of the steps has the token of the tenant")
	}
}

// driftsBothWays is TB-17: cores that were changed manually are what the configuration says after
// an approval, or else the configuration says what they are after its change was merged.
func (b *buildingExample) driftsBothWays(t *testing.T, id int) {
	t.Helper()
	change := func() {
		t.Helper()
		b.administer(t, http.MethodPatch, fmt.Sprint("vms/", id), `{"set": {"cores": "8"}}`, nil)
		b.run(t, "terrier", "replan", "grooveiq", "-n", "tenants", "--wait")
	}
	change()
	b.approve(t, "grooveiq")
	if cores := b.tagged(t, "grooveiq")["api-vm01"].Config["cores"]; cores != "2" {
		t.Errorf("after the repair api-vm01 has %s cores", cores)
	}

	change()
	b.run(t, "terrier", "drift", "accept", "grooveiq", "-n", "tenants", "--reason", "the load of november", "--patch", filepath.Join(b.dir, "drift.patch"))
	apply := exec.CommandContext(t.Context(), "git", "apply", filepath.Join(b.dir, "drift.patch"))
	apply.Dir = filepath.Join(b.dir, "tree")
	if out, err := apply.CombinedOutput(); err != nil {
		t.Fatalf("git apply: %v: %s\n%s", err, out, read(t, filepath.Join(b.dir, "drift.patch")))
	}
	b.push(t, "tree", "building")
	b.await(t, "the plan of grooveiq is empty", func() (bool, string) {
		ready := `.conditions[?(@.type=="Ready")]`
		found := b.status(t, "grooveiq", ready+".status") + b.status(t, "grooveiq", ".plan.pending") + " " + b.status(t, "grooveiq", ready+".message")
		return strings.HasPrefix(found, "True "), found
	})
	if cores := b.tagged(t, "grooveiq")["api-vm01"].Config["cores"]; cores != "8" {
		t.Errorf("after the drift was accepted api-vm01 has %s cores", cores)
	}
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
	b.edit(t, "tree/tenant-inventory/grooveiq/terraform/main.tf", "cores       = 8", "cores       = 4")
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
// takes its tenant with it, machines and all, and no other. Once it is back, so is all that it had.
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
	before := identities(b.tagged(t, "vintronics"))
	rename(aside, inventory)
	rename(filepath.Join(inventory, "vintronics"), filepath.Join(b.dir, "vintronics"))
	b.push(t, "tree", "building")
	b.await(t, "vintronics is gone", func() (bool, string) {
		left := b.run(t, "kubectl", "-n", "tenants", "get", "terraforms.infra.contrib.fluxcd.io", "-l", "terrier.dev/tenant-id=vintronics", "-o", "jsonpath={.items[*].metadata.name}{.items[*].status.conditions}")
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
	if diff := cmp.Diff(map[string]string{"ledger-vm01": "10.102.0.10 2E:59:DF:9E:D3:C7"}, b.reserved(t)); diff != "" {
		t.Errorf("vintronics is gone, and the reservations are (-want +got):\n%s", diff)
	}

	// TB-19: what is made again is the same.
	rename(filepath.Join(b.dir, "vintronics"), filepath.Join(inventory, "vintronics"))
	b.push(t, "tree", "building")
	b.planned(t, "vintronics", "")
	b.approve(t, "vintronics")
	if diff := cmp.Diff(before, identities(b.tagged(t, "vintronics"))); diff != "" {
		t.Errorf("vintronics is made again (-want +got):\n%s", diff)
	}
	if len(b.reserved(t)) != 3 {
		t.Errorf("vintronics is made again, and the reservations are %v", b.reserved(t))
	}
}

// identities are what makes machines the same ones, by name.
func identities(machines map[string]proxmox.VM) map[string][]string {
	all := map[string][]string{}
	for name, vm := range machines {
		for _, option := range []string{"net0", "ipconfig0", "cores", "memory", "tags", "sshkeys"} {
			all[name] = append(all[name], vm.Config[option])
		}
	}
	return all
}
