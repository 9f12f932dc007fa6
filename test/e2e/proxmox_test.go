package e2e

import (
	"bytes"
	"io/fs"
	"maps"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/terrier-iac/terrier/api/infra/v1alpha2"
	"github.com/terrier-iac/terrier/internal/testkit"
	"github.com/terrier-iac/terrier/test/nameserver"
	"github.com/terrier-iac/terrier/test/proxmox"
)

// tokenOf is the secret of a token of Proxmox VE.
func tokenOf(tenant string) string { return "canary-of-the-token-of-" + tenant }

const dnsSecret = "Y2FuYXJ5LW9mLWRucw=="

// tenantBuilding is a platform for tenants with machines: Proxmox VE, DNS and a repository.
type tenantBuilding struct {
	*testkit.Cluster
	platform *testkit.Platform
	pve      *proxmox.Server
	api      string
	names    *nameserver.Server
	git      *testkit.Git
	files    map[string]string
}

// seedBlock is the block of the guide, letter by letter.
const seedBlock = `module "grooveiq_api" {
source = "../modules/proxmox-vm"
name = "api-vm01"
target_node = "pve-tenant"
template = "fedora-43-template"
cores = 2
memory = 4096
disk = "32G"
network = {
vlan_id = 100 # grooveiq VLAN
ip = "10.100.0.10"
gateway = "10.100.0.1"
}
}
`

// around is what the tenant has beside it.
const around = `
terraform {
  required_providers {
    dns = { source = "hashicorp/dns" }
  }
}
resource "dns_a_record_set" "api" {
  zone      = "grooveiq.example."
  name      = "api-vm01"
  addresses = [module.grooveiq_api.address]
}
output "hosts" { value = module.grooveiq_api.hosts }
output "forced" { value = module.grooveiq_api.forced }
`

func newTenantBuilding(t *testing.T) *tenantBuilding {
	t.Helper()
	mirror := filepath.Join(testkit.Repository(t), "bin", "mirror-building")
	if _, err := os.Stat(mirror); err != nil {
		t.Fatalf("run make providers-building: %v", err)
	}
	estate := proxmox.Building(tokenOf)
	// A template of the management plane, which a tenant could clone if no policy were there.
	estate.VMs[9100] = proxmox.Template(9100, "pve-mgmt", "fedora-43-template", proxmox.Fulfilled()...)
	estate.Tokens[0].Grants = append(estate.Tokens[0].Grants, proxmox.Grant{Path: "/vms/9100", Privileges: []string{"VM.Audit", "VM.Clone"}})
	// A machine of another tenant.
	estate.VMs[150] = &proxmox.VM{ID: 150, Node: "pve-tenant", Pool: "vintronics", Running: true, Config: map[string]string{"name": "api-vm01", "tags": "vintronics"}}
	// The servers end after the namespace, whose stacks are destroyed with it.
	b := &tenantBuilding{git: testkit.NewGit(t), files: map[string]string{}}
	var err error
	if b.pve, err = proxmox.New(proxmox.Options{Estate: estate, TaskTime: 20 * time.Millisecond}); err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(b.pve)
	t.Cleanup(server.Close)
	b.api = server.URL
	if b.names, err = nameserver.Start("127.0.0.1:0", "", map[string]nameserver.Key{"grooveiq.example.": {Name: "grooveiq.", Secret: dnsSecret}}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := b.names.Close(); err != nil {
			t.Error(err)
		}
	})
	b.platform = testkit.Up(t, "--provider-mirror", mirror, "--provider-registries=false")
	b.Cluster = b.platform.Cluster(t)
	module := os.DirFS(filepath.Join(testkit.Repository(t), "modules", "proxmox-vm"))
	files, err := fs.Glob(module, "*.tf")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range files {
		text, err := fs.ReadFile(module, name)
		if err != nil {
			t.Fatal(err)
		}
		b.files["modules/proxmox-vm/"+name] = string(text)
	}
	port := b.names.Address()[strings.LastIndex(b.names.Address(), ":")+1:]
	b.PutSecret(t, "proxmox", map[string]string{
		"PROXMOX_VE_ENDPOINT": b.api, "PROXMOX_VE_API_TOKEN": "terrier@pve!grooveiq=" + tokenOf("grooveiq"),
		"DNS_UPDATE_SERVER": "127.0.0.1", "DNS_UPDATE_PORT": port, "DNS_UPDATE_KEYNAME": "grooveiq.", "DNS_UPDATE_KEYALGORITHM": "hmac-sha256", "DNS_UPDATE_KEYSECRET": dnsSecret,
	})
	return b
}

// commit changes files of the repository.
func (b *tenantBuilding) commit(t *testing.T, files map[string]string) {
	t.Helper()
	maps.Copy(b.files, files)
	b.git.Commit(b.files)
}

// stack is a manifest of a stack of the tenant.
func (b *tenantBuilding) stack(name, path string) string {
	return `---
apiVersion: infra.contrib.fluxcd.io/v1alpha2
kind: Terraform
metadata: {name: ` + name + `}
spec:
  interval: 1h
  retryInterval: 1h
  destroyResourcesOnDeletion: true
  sourceRef: {kind: GitRepository, name: code}
  path: ` + path + `
  writeOutputsToSecret: {name: ` + name + `-outputs}
  runnerPodTemplate: {spec: {envFrom: [{secretRef: {name: proxmox}}]}}
`
}

// written are the calls that changed anything.
func (b *tenantBuilding) written() []proxmox.Call {
	return slices.DeleteFunc(b.pve.Calls("", ""), func(c proxmox.Call) bool { return c.Method == "GET" })
}

// approve approves the pending plan and waits for its apply.
func (b *tenantBuilding) approve(t *testing.T, name string) *v1alpha2.Terraform {
	t.Helper()
	b.Terrier(t, "approve", name)
	return b.AwaitReady(t, name)
}

// vm is the one VM of grooveiq.
func (b *tenantBuilding) vm(t *testing.T) proxmox.VM {
	t.Helper()
	all := b.pve.Tagged("grooveiq")
	if len(all) != 1 {
		t.Fatalf("the machines of grooveiq are %+v, want one", all)
	}
	return all[0]
}

// TB-06, TB-09, TB-12, TB-17 to TB-20: the block of the guide becomes one VM, after its approval
// only; manual changes are found and undone; a destroy takes all of the tenant and nothing else;
// and the same configuration makes the same VM again.
func TestTheBlockOfTheGuideBecomesOneVM(t *testing.T) {
	t.Parallel()
	b := newTenantBuilding(t)
	b.commit(t, map[string]string{"grooveiq/main.tf": seedBlock, "grooveiq/around.tf": around, "grooveiq/tenant.yaml": "tenant: grooveiq\npool: grooveiq\ngroups: [web]\nssh_keys: [ssh-ed25519 AAAAC3Nz automation]\n"})
	b.Apply(t, b.git.Manifest("code")+b.stack("grooveiq", "./grooveiq"))
	b.AwaitPending(t, "grooveiq")
	if out := b.Terrier(t, "plan", "grooveiq"); len(b.written()) > 0 || len(b.names.Records()) > 0 || !strings.Contains(out, "Plan: 2 to add, 0 to change, 0 to destroy") || !strings.Contains(out, "dns_a_record_set.api") {
		t.Errorf("before the approval Proxmox VE was sent %+v, DNS has %v, and the plan is\n%s", b.written(), b.names.Records(), out)
	}
	b.approve(t, "grooveiq")

	b.sent(t)
	if got := b.names.Records(); !slices.Equal(got, []string{"api-vm01.grooveiq.example.\t3600\tIN\tA\t10.100.0.10"}) {
		t.Errorf("DNS has %q", got)
	}
	hosts := strings.Join(strings.Fields(b.Secret(t, "grooveiq-outputs")["hosts"]), "")
	if want := `[{"address":"10.100.0.10","groups":["web"],"mac":"BC:24:11:00:00:02","name":"api-vm01","user":"ansible","vlan":100}]`; hosts != want {
		t.Errorf("the hosts are %s, want %s", hosts, want)
	}

	b.drift(t)
	b.unsaid(t)

	// TB-13: another policy is a change of this VM. TB-19: what is made again is the same.
	b.commit(t, map[string]string{"grooveiq/tenant.yaml": b.files["grooveiq/tenant.yaml"] + "mac_policy: deterministic\n"})
	b.Kubectl(t, "annotate", "gitrepository/code", "reconcile.fluxcd.io/requestedAt=now")
	b.AwaitPending(t, "grooveiq")
	b.approve(t, "grooveiq")
	before, others := b.vm(t), b.pve.VMs()
	if !strings.HasPrefix(before.Config["net0"], "virtio=B6:22:CB:E8:59:91,") {
		t.Errorf("the MAC address is in %s, want the one of tenant and name", before.Config["net0"])
	}
	delete(others, before.ID)
	b.Delete(t, "grooveiq")
	b.AwaitGone(t, "grooveiq")
	if left := b.pve.Tagged("grooveiq"); len(left) > 0 || len(b.names.Records()) > 0 {
		t.Errorf("after the destroy there are %+v and %v", left, b.names.Records())
	}
	if diff := cmp.Diff(others, b.pve.VMs()); diff != "" {
		t.Errorf("the destroy changed machines of others (-want +got):\n%s", diff)
	}
	b.Apply(t, b.stack("grooveiq", "./grooveiq"))
	b.AwaitPending(t, "grooveiq")
	b.approve(t, "grooveiq")
	if diff := cmp.Diff(before, b.vm(t)); diff != "" {
		t.Errorf("made again (-want +got):\n%s", diff)
	}
}

// sent checks the values that Proxmox VE was sent, and what came of them.
func (b *tenantBuilding) sent(t *testing.T) {
	t.Helper()
	vm := b.vm(t)
	id := "101" // 100 is a machine of the management plane
	for pattern, want := range map[string]map[string]string{
		"nodes/pve-tenant/qemu/9000/clone":        {"newid": id, "name": "api-vm01", "pool": "grooveiq", "full": "1", "storage": "local-lvm", "description": "Managed by Terrier."},
		"nodes/pve-tenant/qemu/" + id + "/resize": {"disk": "scsi0", "size": "32G"},
		"nodes/pve-tenant/qemu/" + id + "/config": {
			"name": "api-vm01", "cores": "2", "sockets": "1", "memory": "4096", "net0": "virtio,bridge=vmbr0,tag=100", "ipconfig0": "ip=10.100.0.10/24,gw=10.100.0.1",
			"ciuser": "ansible", "sshkeys": "ssh-ed25519%20AAAAC3Nz%20automation%0A", "tags": "grooveiq;mac-auto", "onboot": "1", "protection": "0", "ostype": "l26", "agent": "enabled=0", "description": "Managed by Terrier.",
		},
	} {
		calls := slices.DeleteFunc(b.written(), func(c proxmox.Call) bool { return c.Path != pattern })
		if len(calls) != 1 {
			t.Errorf("%s was called %d times, want once: %+v", pattern, len(calls), calls)
			continue
		}
		got := map[string]string{}
		for name := range calls[0].Form {
			got[name] = calls[0].Form.Get(name)
		}
		if diff := cmp.Diff(want, got); diff != "" || calls[0].User != "terrier@pve!grooveiq" {
			t.Errorf("%s by %s (-want +got):\n%s", pattern, calls[0].User, diff)
		}
	}
	if vm.Node != "pve-tenant" || vm.Pool != "grooveiq" || !vm.Running || !strings.HasSuffix(vm.Config["scsi0"], ",size=32G") {
		t.Errorf("the VM is %+v", vm)
	}
}

// drift changes the VM manually, and has each change undone.
func (b *tenantBuilding) drift(t *testing.T) {
	t.Helper()
	for _, c := range []struct {
		what   string
		change func(*proxmox.VM)
		shown  string
	}{
		{"cores", func(vm *proxmox.VM) { vm.Config["cores"] = "8" }, "cores: 8 → 2"},
		{"a name", func(vm *proxmox.VM) { vm.Config["name"] = "renamed" }, `name: "renamed" → "api-vm01"`},
		{"a disk", func(vm *proxmox.VM) { vm.Config["scsi1"] = "local-lvm:vm-101-disk-7,size=8G" }, "scsi1"},
		{"a VM that is deleted", nil, "Create (1)"},
	} {
		id := b.vm(t).ID
		var err error
		there := true
		if c.change == nil {
			err = b.pve.Remove(id)
		} else {
			there, err = b.pve.Manually(id, c.change)
		}
		if err != nil || !there {
			t.Fatal(there, err)
		}
		b.Terrier(t, "replan", "grooveiq", "--wait")
		b.AwaitReason(t, "grooveiq", "DriftDetected")
		if out := b.Terrier(t, "plan", "grooveiq"); !strings.Contains(out, c.shown) {
			t.Errorf("%s: the plan does not say %q:\n%s", c.what, c.shown, out)
		}
		b.approve(t, "grooveiq")
		vm := b.vm(t)
		if vm.Config["cores"] != "2" || vm.Config["name"] != "api-vm01" || vm.Config["scsi1"] != "" || !vm.Running {
			t.Errorf("%s: after the apply the VM is %+v", c.what, vm)
		}
		out := b.Terrier(t, "replan", "grooveiq", "--wait")
		if s := b.AwaitReady(t, "grooveiq"); s.Status.Plan.Pending != "" || !strings.Contains(out, "OutputsWritten") {
			t.Errorf("%s: a check after it ended with %s, and the plan %+v", c.what, out, s.Status.Plan)
		}
	}
}

// unsaid checks that the token and the key are told nowhere.
func (b *tenantBuilding) unsaid(t *testing.T) {
	t.Helper()
	for _, secret := range []string{tokenOf("grooveiq"), dnsSecret} {
		for what, text := range map[string]string{
			"the state":   string(b.State(t, "grooveiq")),
			"the log":     b.Terrier(t, "logs", "grooveiq"),
			"the outputs": b.Terrier(t, "outputs", "grooveiq", "--show-secrets"),
			"an object":   b.Kubectl(t, "get", "events,terraforms,configmaps,gitrepositories", "-o", "json"),
			"Terrier":     b.platform.Log(),
		} {
			if strings.Contains(text, secret) {
				t.Errorf("%s tells %s", what, secret)
			}
		}
		err := filepath.WalkDir(b.platform.Dir, func(path string, entry fs.DirEntry, err error) error {
			if err != nil || !entry.Type().IsRegular() {
				return ignoreGone(err)
			}
			content, err := os.ReadFile(path)
			if bytes.Contains(content, []byte(secret)) && !strings.Contains(path, "etcd") {
				t.Errorf("%s holds %s", path, secret)
			}
			return ignoreGone(err)
		})
		if err != nil {
			t.Fatal(err)
		}
	}
}

// TB-20, TB-21: a policy of the platform denies a node of the management plane, and the token of a
// tenant opens no pool of another one.
func TestATenantStaysOnItsNodesAndInItsPool(t *testing.T) {
	t.Parallel()
	b := newTenantBuilding(t)
	rule, err := os.ReadFile(filepath.Join(testkit.Repository(t), "policies", "target-nodes", "policy.rego"))
	if err != nil {
		t.Fatal(err)
	}
	name := policed(t, b.Cluster, "rego:\n  parameters: {nodes: [pve-tenant]}\n  modules:\n    policy.rego: |\n"+indent(6, string(rule)))
	b.commit(t, map[string]string{
		"management/main.tf":     strings.Replace(seedBlock, "pve-tenant", "pve-mgmt", 1),
		"management/tenant.yaml": "tenant: grooveiq\npool: grooveiq\n",
		"foreign/main.tf":        seedBlock,
		"foreign/tenant.yaml":    "tenant: grooveiq\npool: vintronics\n",
	})
	before := b.pve.VMs()
	b.Apply(t, b.git.Manifest("code")+b.stack("management", "./management")+b.stack("foreign", "./foreign"))
	b.Patch(t, "management", `{"spec":{"approvePlan":"auto"}}`)
	b.Patch(t, "foreign", `{"spec":{"approvePlan":"auto"}}`)
	b.Await(t, "management", func(s *v1alpha2.Terraform) error {
		if !strings.Contains(message(s), "denied by "+name+": target-node: module.grooveiq_api.proxmox_virtual_environment_vm.this would be on the node pve-mgmt") {
			return errNot("denied, but " + message(s))
		}
		return nil
	})
	b.Await(t, "foreign", func(s *v1alpha2.Terraform) error {
		if !strings.Contains(message(s), "Permission check failed (/vms/101, VM.Allocate)") {
			return errNot("refused, but " + message(s))
		}
		return nil
	})
	if diff := cmp.Diff(before, b.pve.VMs()); diff != "" {
		t.Errorf("the machines changed (-want +got):\n%s", diff)
	}
}
