package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	authzv1 "k8s.io/api/authorization/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/terrier-iac/terrier/api/infra/v1alpha2"
	tenantsv1 "github.com/terrier-iac/terrier/api/tenants/v1"
	"github.com/terrier-iac/terrier/internal/testkit"
	"github.com/terrier-iac/terrier/internal/testkit/executable"
)

// orchard is a git tree with the directories of tenants, and the platform that reads it.
type orchard struct {
	*testkit.Cluster
	w     *testkit.World
	g     *testkit.Git
	files map[string]string
}

// newOrchard commits tenants, and applies a registry and a template.
func newOrchard(t *testing.T, approve string, tenants ...string) *orchard {
	t.Helper()
	e := &orchard{Cluster: cluster(t), w: platform(t).World(t), g: testkit.NewGit(t), files: map[string]string{
		"README.md":                       "One directory for each tenant.\n",
		"tenant-inventory/README.md":      "no tenant\n",
		"tenant-inventory/docs/policy.md": "no tenant either\n",
		"modules/name/main.tf":            "variable \"tenant\" { type = string }\noutput \"vm\" { value = \"${var.tenant}-vm01\" }\n",
	}}
	for i, tenant := range tenants {
		dir := "tenant-inventory/" + tenant
		e.files[dir+"/hosts.yml"] = fmt.Sprintf("all:\n  children:\n    api:\n      hosts:\n        %s-old:\n          ansible_host: 10.%d.0.99\n", tenant, 100+i)
		e.files[dir+"/group_vars/all/main.yml"] = "cores: 2\nzones: [a, b]\nlabels: {tier: \"1\"}\ninternal: not for stacks\n"
		e.files[dir+"/group_vars/all/vault.yml"] = "$ANSIBLE_VAULT;1.1;AES256\n3132\n"
		e.files[dir+"/group_vars/api.yml"] = "cores: 8\n"
		e.files[dir+"/terraform/main.tf"] = e.module(tenant)
	}
	e.g.Commit(e.files)
	e.Apply(t, e.g.Manifest("estate")+`---
apiVersion: operator.kubernetes-tenants.org/v1
kind: TenantRegistry
metadata: {name: estate}
spec:
  source:
    type: inventory
    syncInterval: 1s
    inventory:
      sourceRef: {kind: GitRepository, name: estate}
      variables:
      - {name: cores, type: number, required: true}
      - {name: zones, type: list}
      - {name: labels, type: map}
  guard: {gracePeriod: 0s}
---
apiVersion: operator.kubernetes-tenants.org/v1
kind: TenantTemplate
metadata: {name: machines}
spec:
  registryId: estate
  manifests:
  - id: stack
    includeWhen: row.terraformPath != ""
    nameTemplate: "{{ .uid }}-machines"
    annotationsTemplate: {terrier.dev/source-paths: auto}
    spec:
      apiVersion: infra.contrib.fluxcd.io/v1alpha2
      kind: Terraform
      spec:
        interval: 1h
`+approve+`        sourceRef: {kind: GitRepository, name: estate}
        path: "{{ .terraformPath }}"
        fileMappings:
        - secretRef: {name: "terrier-row-{{ .uid }}-machines", key: extra.vars}
          location: workspace
          path: inventory.auto.tfvars.json
        writeOutputsToSecret: {name: "{{ .uid }}-machines-outputs"}
`)
	return e
}

func (e *orchard) module(tenant string) string {
	return e.w.HCL() + `
variable "cores" { type = number }
variable "zones" { type = list(string) }
variable "labels" { type = map(string) }
module "name" {
  source = "../../../modules/name"
  tenant = "` + tenant + `"
}
resource "world_thing" "vm" {
  name  = module.name.vm
  value = "${var.cores + 1}/${join(",", var.zones)}/${var.labels["tier"]}"
}
output "hosts" {
  value = [{ name = module.name.vm, address = "10.9.0.${var.cores}", groups = ["api"] }]
}
`
}

// change commits these files, and those that are empty are removed.
func (e *orchard) change(t *testing.T, files map[string]string) {
	t.Helper()
	maps.Copy(e.files, files)
	maps.DeleteFunc(e.files, func(_, text string) bool { return text == "" })
	e.g.Commit(e.files)
	e.fetch(t)
}

// fetch has the source fetched now, and waits for it.
func (e *orchard) fetch(t *testing.T) {
	t.Helper()
	want := strings.TrimSpace(e.g.Do("rev-parse", "HEAD"))
	e.Kubectl(t, "annotate", "--overwrite", "gitrepository/estate", "reconcile.fluxcd.io/requestedAt="+want)
	testkit.Eventually(t, testkit.Patience, "the source has "+want, func(context.Context) error {
		if got := e.Kubectl(t, "get", "gitrepository/estate", "-o", "jsonpath={.status.artifact.revision}"); !strings.Contains(got, want) {
			return errNot("fetched: " + got)
		}
		return nil
	})
}

func (e *orchard) value(tenant string) string {
	for _, thing := range e.w.Named(tenant + "-vm01") {
		if thing.Value != nil {
			return *thing.Value
		}
	}
	return ""
}

func (e *orchard) awaitValue(t *testing.T, tenant, want string) {
	t.Helper()
	testkit.Eventually(t, testkit.Patience, "the machine of "+tenant+" is "+want, func(context.Context) error {
		if got := e.value(tenant); got != want {
			return errNot(fmt.Sprintf("so: %q\n%s", got, e.Story()))
		}
		return nil
	})
	e.AwaitReady(t, tenant+"-machines")
}

func (e *orchard) awaitRegistry(t *testing.T, what string, is func(*tenantsv1.TenantRegistry) bool) *tenantsv1.TenantRegistry {
	t.Helper()
	var r tenantsv1.TenantRegistry
	testkit.Eventually(t, testkit.Patience, "of the registry: "+what, func(context.Context) error {
		r = tenantsv1.TenantRegistry{}
		if err := json.Unmarshal([]byte(e.Kubectl(t, "get", "tenantregistry/estate", "-o", "json")), &r); err != nil {
			return err
		}
		if !is(&r) {
			return errNot(fmt.Sprintf("so: %+v", r.Status))
		}
		return nil
	})
	return &r
}

func ofReason(kind, reason string) func(*tenantsv1.TenantRegistry) bool {
	return func(r *tenantsv1.TenantRegistry) bool {
		c := meta.FindStatusCondition(r.Status.Conditions, kind)
		return c != nil && c.Reason == reason
	}
}

var tenantsOfTheSeed = []string{"grooveiq", "vintronics", "moneyrouter"}

// TB-01, TB-03, TB-04 and the guards: the tenants of the seed, from the first commit to an
// emptied tree. What the inventory says reaches the module with its types.
func TestTenantInventory(t *testing.T) {
	t.Parallel()
	e := newOrchard(t, "", tenantsOfTheSeed...)
	for _, tenant := range tenantsOfTheSeed {
		e.awaitValue(t, tenant, "3/a,b/1")
	}
	versions := func(tenants ...string) (all []string) {
		for _, tenant := range tenants {
			s := e.Stack(t, tenant+"-machines")
			all = append(all, s.Status.LastAttemptedRevision+" "+s.Status.LastPlannedRevision+" "+s.Status.LastAppliedRevision)
		}
		return all
	}

	// What the stacks output is an inventory for Ansible, together with a checkout.
	checkout := t.TempDir()
	for name, text := range e.files {
		full := filepath.Join(checkout, name)
		if err := os.MkdirAll(filepath.Dir(full), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(full, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	var listed struct {
		Meta struct {
			Hostvars map[string]map[string]any `json:"hostvars"`
		} `json:"_meta"`
		Own struct {
			Hosts []string `json:"hosts"`
		} `json:"tenant_grooveiq"`
		API struct {
			Hosts []string `json:"hosts"`
		} `json:"api"`
	}
	out := e.Terrier(t, "inventory", "--list", "--directory", filepath.Join(checkout, "tenant-inventory"))
	if err := json.Unmarshal([]byte(out), &listed); err != nil {
		t.Fatalf("terrier inventory: %v:\n%s", err, out)
	}
	old := listed.Meta.Hostvars["grooveiq-old"]
	if vm := listed.Meta.Hostvars["grooveiq-vm01"]; vm["ansible_host"] != "10.9.0.2" || old["ansible_host"] != "10.100.0.99" || old["cores"] != 8.0 ||
		!slices.Equal(listed.Own.Hosts, []string{"grooveiq-old", "grooveiq-vm01"}) || len(listed.API.Hosts) != 6 {
		t.Errorf("terrier inventory lists\n%s", out)
	}
	if out := e.Terrier(t, "inventory", "--host", "vintronics-vm01"); !strings.Contains(out, `"ansible_host": "10.9.0.2"`) {
		t.Errorf("terrier inventory --host says\n%s", out)
	}

	// Without a checkout the hosts of the rows are there as well, as the registry has read them.
	t.Run("Ansible reads what terrier lists", func(t *testing.T) {
		hosts := hostsOfAnsible(t, e.Kubeconfig)
		if vm, old := hosts["grooveiq-vm01"], hosts["grooveiq-old"]; vm["ansible_host"] != "10.9.0.2" || old["ansible_host"] != "10.100.0.99" || old["cores"] != nil {
			t.Errorf("ansible-inventory has the hosts %v, want that of the output, and that of hosts.yml without its variables", hosts)
		}
	})

	// A directory without terraform is a tenant without a stack, and the registry says so.
	e.change(t, map[string]string{"tenant-inventory/newcomer/hosts.yml": "all:\n"})
	r := e.awaitRegistry(t, "four rows", func(r *tenantsv1.TenantRegistry) bool { return r.Status.LastRead != nil && r.Status.LastRead.Rows == 4 })
	warned, err := json.Marshal(r.Status.RowWarnings)
	if err != nil || !strings.Contains(string(warned), "newcomer") || !strings.Contains(string(warned), "has no terraform") || !strings.Contains(string(warned), "vault.yml") {
		t.Errorf("the warnings are %s (%v), want those of newcomer and of the encrypted file", warned, err)
	}
	if out := e.Terrier(t, "rows", "estate"); !strings.Contains(out, "the tenant has no stack") {
		t.Errorf("terrier rows shows no warning:\n%s", out)
	}

	// A commit to one tenant is no business of the others: they stay at the revision of their plan.
	before := versions("grooveiq", "vintronics")
	e.change(t, map[string]string{"tenant-inventory/moneyrouter/group_vars/all/main.yml": "cores: 4\nzones: [c]\nlabels: {tier: \"2\"}\n"})
	e.awaitValue(t, "moneyrouter", "5/c/2")
	if after := versions("grooveiq", "vintronics"); strings.Join(after, "\n") != strings.Join(before, "\n") {
		t.Errorf("the stacks of other tenants were %v and are %v", before, after)
	}

	// A change of a module that all tenants call has all of them planned.
	e.change(t, map[string]string{"modules/name/main.tf": e.files["modules/name/main.tf"] + "# changed\n"})
	testkit.Eventually(t, testkit.Patience, "all stacks have the new module", func(context.Context) error {
		for _, tenant := range tenantsOfTheSeed {
			if s := e.Stack(t, tenant+"-machines"); !strings.Contains(s.Status.LastPlannedRevision, strings.TrimSpace(e.g.Do("rev-parse", "HEAD"))) {
				return errNot("planned by " + tenant + ": " + s.Status.LastPlannedRevision)
			}
		}
		return nil
	})

	// Without its directory nothing is concluded; without any tenant a guard blocks.
	whole := maps.Clone(e.files)
	none := map[string]string{}
	for name := range e.files {
		if strings.HasPrefix(name, "tenant-inventory/") {
			none[name] = ""
		}
	}
	e.change(t, none)
	e.awaitRegistry(t, "unreadable", ofReason("Ready", "InventoryUnreadable"))
	e.change(t, map[string]string{"tenant-inventory/README.md": "no tenant\n"})
	e.awaitRegistry(t, "guarded", ofReason("Guarded", "NoRows"))
	for _, tenant := range tenantsOfTheSeed {
		if s := e.Stack(t, tenant+"-machines"); !s.DeletionTimestamp.IsZero() {
			t.Errorf("the stack of %s is being deleted", tenant)
		}
	}
	e.change(t, whole)
	e.awaitRegistry(t, "read", ofReason("Ready", "InventoryRead"))
	e.awaitRegistry(t, "not guarded", ofReason("Guarded", "NothingBlocked"))

	// One directory that is removed ends its tenant, and no other.
	gone := map[string]string{}
	for name := range e.files {
		if strings.HasPrefix(name, "tenant-inventory/vintronics/") {
			gone[name] = ""
		}
	}
	e.change(t, gone)
	e.AwaitGone(t, "vintronics-machines")
	if e.value("vintronics") != "" || e.value("grooveiq") == "" || e.value("moneyrouter") == "" {
		t.Errorf("there are %+v, want the machines of grooveiq and moneyrouter", e.w.Things())
	}

	// Argo CD prunes in the foreground. The platform refuses that for a tenant, and says what to
	// set; a registry goes, and its tenants with what they have.
	foreground := []string{"delete", "--cascade=foreground", "--wait=false"}
	if r := e.TryKubectl(t, append(foreground, "tenant/grooveiq-machines")...); r.Code == 0 || !strings.Contains(r.Stderr, "PrunePropagationPolicy=background") {
		t.Errorf("deleting a tenant in the foreground ends with %d: %s%s, want a refusal with a way out", r.Code, r.Stdout, r.Stderr)
	}
	if s := e.Stack(t, "grooveiq-machines"); !s.DeletionTimestamp.IsZero() {
		t.Error("the stack of grooveiq is being deleted")
	}
	e.Kubectl(t, append(foreground, "tenantregistry/estate")...)
	for _, tenant := range []string{"grooveiq", "moneyrouter"} {
		e.AwaitGone(t, tenant+"-machines")
		if e.value(tenant) != "" {
			t.Errorf("the machine of %s outlives its stack", tenant)
		}
	}
	testkit.Eventually(t, testkit.Patience, "the registry is gone", func(context.Context) error {
		if r := e.TryKubectl(t, "get", "tenantregistry/estate"); !strings.Contains(r.Stderr, "NotFound") {
			return errNot("so: " + r.Stdout + r.Stderr)
		}
		return nil
	})
}

// TB-02: what one tenant breaks stays its own, and each has a state of its own.
func TestTenantsOfAnInventoryAreIsolated(t *testing.T) {
	t.Parallel()
	e := newOrchard(t, "", tenantsOfTheSeed...)
	for _, tenant := range tenantsOfTheSeed {
		e.awaitValue(t, tenant, "3/a,b/1")
		if state := e.Secret(t, "tfstate-default-"+tenant+"-machines"); len(state) == 0 {
			t.Errorf("%s has no state of its own", tenant)
		}
	}
	e.change(t, map[string]string{
		"tenant-inventory/vintronics/terraform/main.tf":          "resource {",
		"tenant-inventory/moneyrouter/group_vars/all/main.yml":   "cores: 6\nzones: []\nlabels: {tier: x}\n",
		"tenant-inventory/grooveiq/group_vars/all/main.yml":      "cores: \"2\"\n",
		"tenant-inventory/grooveiq/group_vars/all/duplicate.yml": "a: 1\na: 2\n",
	})
	e.awaitValue(t, "moneyrouter", "7//x")
	e.Await(t, "vintronics-machines", func(s *v1alpha2.Terraform) error {
		if !strings.Contains(message(s), "main.tf:1") {
			return errNot("told of its HCL: " + message(s))
		}
		return nil
	})
	r := e.awaitRegistry(t, "an invalid row", ofReason("RowsValid", "RowErrors"))
	if len(r.Status.RowErrors) != 1 || r.Status.RowErrors[0].UID != "grooveiq" || !strings.Contains(r.Status.RowErrors[0].Message, `group_vars/all/duplicate.yml:2: the key "a" is there twice`) {
		t.Errorf("the invalid rows are %+v, want that of grooveiq with file and line", r.Status.RowErrors)
	}
	for _, tenant := range []string{"grooveiq", "vintronics"} {
		if got := e.value(tenant); got != "3/a,b/1" {
			t.Errorf("the machine of %s is %q, and nothing should have changed it", tenant, got)
		}
	}

	// An address of another tenant is refused, and both are named.
	e.change(t, map[string]string{
		"tenant-inventory/grooveiq/group_vars/all/main.yml":      "cores: 2\nzones: [a, b]\nlabels: {tier: \"1\"}\n",
		"tenant-inventory/grooveiq/group_vars/all/duplicate.yml": "",
		"tenant-inventory/moneyrouter/hosts.yml":                 "all: {hosts: {thief: {ansible_host: 10.100.0.99}}}\n",
	})
	r = e.awaitRegistry(t, "two invalid rows", func(r *tenantsv1.TenantRegistry) bool { return r.Status.RowErrorCount == 2 })
	for _, each := range r.Status.RowErrors {
		if !strings.Contains(each.Message, "the address 10.100.0.99 is that of grooveiq-old of tenant grooveiq and of thief of tenant moneyrouter") {
			t.Errorf("the error of %s is %q", each.UID, each.Message)
		}
	}
}

// TB-04, TB-05: a tenant's administrator approves the stacks of that tenant and of no other,
// and changes neither templates nor registries. A commit to another tenant voids no pending
// plan.
func TestTenantAdminsApproveTheirOwn(t *testing.T) {
	t.Parallel()
	e := newOrchard(t, "        approvePlan: \"\"\n", "grooveiq", "vintronics")
	pending := e.AwaitPending(t, "grooveiq-machines").Status.Plan.Pending
	e.AwaitPending(t, "vintronics-machines")
	role := &rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Namespace: e.Namespace, Name: "grooveiq-admin"}, Rules: []rbacv1.PolicyRule{{
		APIGroups: []string{"infra.contrib.fluxcd.io"}, Resources: []string{"terraforms", "terraforms/log", "terraforms/plan"},
		ResourceNames: []string{"grooveiq-machines"}, Verbs: []string{"get", "patch"},
	}}}
	admin := callerOf(t, e.Cluster, "nobody")
	for _, o := range []client.Object{role, &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Namespace: e.Namespace, Name: "grooveiq-admin"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: "grooveiq-admin"},
		Subjects:   []rbacv1.Subject{{Kind: "ServiceAccount", Namespace: e.Namespace, Name: "is-nobody"}},
	}} {
		if err := e.Client.Create(t.Context(), o); err != nil {
			t.Fatal(err)
		}
	}
	awaitAllowed(t, e.Cluster, "is-nobody", authzv1.ResourceAttributes{Group: "infra.contrib.fluxcd.io", Resource: "terraforms", Name: "grooveiq-machines", Verb: "patch"})
	// The other tenant changes: its plan is replaced, and that of grooveiq is not.
	e.change(t, map[string]string{"tenant-inventory/vintronics/group_vars/all/main.yml": "cores: 3\nzones: []\nlabels: {tier: x}\n"})
	at := "/api/v1/namespaces/" + e.Namespace + "/stacks/"
	var seen struct {
		Plan struct {
			Name   string `json:"name"`
			Digest string `json:"digest"`
		} `json:"plan"`
	}
	status, text := admin.ask(t, http.MethodGet, at+"grooveiq-machines", "", "")
	if err := json.Unmarshal([]byte(text), &seen); err != nil || status != http.StatusOK || seen.Plan.Name != pending {
		t.Fatalf("the admin sees %d, %+v (%v), want the plan %s: %s", status, seen, err, pending, text)
	}
	body := `{"name":"` + seen.Plan.Name + `","digest":"` + seen.Plan.Digest + `"}`
	status, text = admin.ask(t, http.MethodPost, at+"vintronics-machines/approve", "application/json", body)
	judged(t, "the admin of grooveiq approves for vintronics", false, status, text)
	status, text = admin.ask(t, http.MethodGet, at+"vintronics-machines", "", "")
	judged(t, "the admin of grooveiq sees vintronics", false, status, text)
	patch := func(kind schema.GroupVersionKind, name, change string) {
		t.Helper()
		o := &unstructured.Unstructured{}
		o.SetGroupVersionKind(kind)
		o.SetNamespace(e.Namespace)
		o.SetName(name)
		if err := admin.Patch(t.Context(), o, client.RawPatch(types.MergePatchType, []byte(change))); !apierrors.IsForbidden(err) {
			t.Errorf("the admin of grooveiq changes %s %s: %v, want that it is forbidden", kind.Kind, name, err)
		}
	}
	patch(v1alpha2.GroupVersion.WithKind("Terraform"), "vintronics-machines", `{"spec":{"approvePlan":"auto"}}`)
	patch(tenantsv1.GroupVersion.WithKind(tenantsv1.TemplateKind), "machines", `{"spec":{"registryId":"other"}}`)
	patch(tenantsv1.GroupVersion.WithKind(tenantsv1.RegistryKind), "estate", `{"spec":{"suspend":true}}`)
	if status, text = admin.ask(t, http.MethodPost, at+"grooveiq-machines/approve", "application/json", body); status != http.StatusOK {
		t.Fatalf("the admin approves for grooveiq: %d: %s", status, text)
	}
	e.awaitValue(t, "grooveiq", "3/a,b/1")
	if got := e.value("vintronics"); got != "" {
		t.Errorf("vintronics has the machine %q, which no user approved", got)
	}
}

// hostsOfAnsible are the hosts that the ansible-inventory of Debian has by a script that calls
// terrier inventory, as the documentation has it, with the variables of each.
func hostsOfAnsible(t *testing.T, kubeconfig string) map[string]map[string]any {
	t.Helper()
	program, err := exec.LookPath("ansible-inventory")
	if err != nil {
		t.Skip("ansible-inventory is not installed (Debian has it in ansible-core): terrier inventory is not compared with what it reads")
	}
	home := t.TempDir()
	script := filepath.Join(home, "inventory.sh")
	if err := executable.Write(script, []byte("#!/bin/sh\nexec "+testkit.Tool(t, "terrier")+" inventory \"$@\"\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	c := exec.CommandContext(t.Context(), program, "-i", script, "--list")
	c.Dir = home
	c.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + home, "LANG=C.UTF-8", "KUBECONFIG=" + kubeconfig}
	out, err := c.Output()
	if err != nil {
		t.Fatalf("ansible-inventory: %v: %s", err, out)
	}
	var listed struct {
		Meta struct {
			Hostvars map[string]map[string]any `json:"hostvars"`
		} `json:"_meta"`
	}
	if err := json.Unmarshal(out, &listed); err != nil {
		t.Fatalf("ansible-inventory: %v:\n%s", err, out)
	}
	return listed.Meta.Hostvars
}
