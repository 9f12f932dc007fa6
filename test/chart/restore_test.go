package chart

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1alpha2 "github.com/terrier-iac/terrier/api/infra/v1alpha2"
	tenantsv1 "github.com/terrier-iac/terrier/api/tenants/v1"
	"github.com/terrier-iac/terrier/internal/kube"
	"github.com/terrier-iac/terrier/internal/testkit"
)

// estateManifest is a tenant with a stack, and a stack of no tenant. Each has a resource
// whose ID is in no other place than its state.
const estateManifest = `
apiVersion: operator.kubernetes-tenants.org/v1
kind: TenantRegistry
metadata: {name: customers}
spec:
  source: {type: sqlite, syncInterval: 1s, sqlite: {path: %q, table: customers}}
  valueMappings: {uid: id, hostOrUrl: url, activate: active}
---
apiVersion: operator.kubernetes-tenants.org/v1
kind: TenantTemplate
metadata: {name: shop}
spec:
  registryId: customers
  manifests:
    - id: net
      nameTemplate: "{{ .uid }}-net"
      spec:
        apiVersion: infra.contrib.fluxcd.io/v1alpha2
        kind: Terraform
        spec:
          interval: 1h
          retryInterval: 1s
          values: {hcl: 'resource "terraform_data" "it" { input = "{{ .hostOrUrl }}" }'}
---
apiVersion: infra.contrib.fluxcd.io/v1alpha2
kind: Terraform
metadata: {name: own}
spec:
  approvePlan: auto
  destroyResourcesOnDeletion: true
  interval: 1h
  retryInterval: 1s
  values: {hcl: 'resource "terraform_data" "it" { input = "own" }'}
`

// estate is what a cluster had when it was backed up.
type estate struct {
	states map[string][]byte // by the stack
}

var estateStacks = []string{"acme-net", "own"}

// controller starts a controller for the plane, with an empty data directory.
func (p *plane) controller(t *testing.T) *exec.Cmd {
	t.Helper()
	var ready struct{ HTTP string }
	return program(t, &ready, "controller", "--kubeconfig", p.kubeconfig, "--data-dir", filepath.Join(t.TempDir(), "data"),
		"--http-address", "127.0.0.1:0", "--output", "json", "--sqlite-dir", filepath.Dir(database(t)))
}

func (p *plane) stack(t *testing.T, name string) *infrav1alpha2.Terraform {
	t.Helper()
	s := &infrav1alpha2.Terraform{}
	if err := p.Get(t.Context(), client.ObjectKey{Namespace: "team-a", Name: name}, s); err != nil {
		t.Fatal(err)
	}
	return s
}

func (p *plane) states(t *testing.T) map[string][]byte {
	t.Helper()
	all := map[string][]byte{}
	for _, name := range estateStacks {
		var s corev1.Secret
		if err := p.Get(t.Context(), client.ObjectKey{Namespace: "team-a", Name: "tfstate-default-" + name}, &s); err != nil {
			t.Fatal(err)
		}
		all[name] = s.Data["tfstate"]
	}
	return all
}

// newEstate has a controller make the estate, and leaves it without one.
func newEstate(t *testing.T, p *plane) *estate {
	t.Helper()
	p.manifest(t, "team-a", fmt.Sprintf(estateManifest, database(t)))
	running := p.controller(t)
	for _, name := range estateStacks {
		(&installed{plane: p}).await(t, "team-a", name, "is applied", isReady)
	}
	stop(t, running)
	if owners := p.stack(t, "acme-net").OwnerReferences; len(owners) != 1 || owners[0].Kind != "Tenant" {
		t.Fatalf("the stack of the tenant belongs to %+v", owners)
	}
	// One stack is in deletion, and its resources are half gone.
	leaving := p.stack(t, "own").DeepCopy()
	leaving.ObjectMeta = metav1.ObjectMeta{Namespace: "team-a", Name: "leaving", Finalizers: []string{"example.com/held"}}
	if err := errors.Join(p.Create(t.Context(), leaving), p.Delete(t.Context(), leaving)); err != nil {
		t.Fatal(err)
	}
	return &estate{p.states(t)}
}

// refused runs the commands of a restore with a state whose namespace the backup lacks: they
// fail, and no stack is made that would begin without its state.
func (e *estate) refused(t *testing.T, p *plane, dir, commands string) {
	t.Helper()
	path := filepath.Join(dir, "states.json")
	states := read(t, path)
	write := func(text string) {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(strings.Replace(states, `"namespace": "team-a"`, `"namespace": "nowhere"`, 1))
	if said, err := p.try(t, dir, commands); err == nil || !strings.Contains(said, "nowhere") {
		t.Errorf("with a state that cannot be restored the commands end with %v, and say\n%s", err, said)
	}
	write(states)
	var stacks infrav1alpha2.TerraformList
	if err := p.List(t.Context(), &stacks); err != nil || len(stacks.Items) > 0 {
		t.Errorf("after a restore that failed there are %d stacks, %v", len(stacks.Items), err)
	}
}

// restored looks at what the commands have made in a new cluster, while no controller runs.
func (e *estate) restored(t *testing.T, p *plane, dir, commands string) {
	t.Helper()
	for _, name := range []string{"team-a", "team-b", "team-c"} {
		if err := p.Get(t.Context(), client.ObjectKey{Name: name}, &corev1.Namespace{}); err != nil {
			t.Error(err)
		}
	}
	if diff := cmp.Diff(e.states, p.states(t)); diff != "" {
		t.Errorf("the states (-backup +restored):\n%s", diff)
	}
	definition := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Name: "gitrepositories.source.toolkit.fluxcd.io"}}
	definition.SetGroupVersionKind(schema.GroupVersionKind{Group: "apiextensions.k8s.io", Version: "v1", Kind: "CustomResourceDefinition"})
	if err := p.Get(t.Context(), client.ObjectKeyFromObject(definition), definition); err != nil || !managedBy(definition, kube.FieldManager, metav1.ManagedFieldsOperationUpdate) {
		t.Errorf("the definition of another controller's kind is managed by %+v, %v; want that Terrier takes it for its own", definition.ManagedFields, err)
	}
	p.collected(t)
	for _, name := range estateStacks {
		s := p.stack(t, name)
		if len(s.OwnerReferences) > 0 || s.DeletionTimestamp != nil || s.Annotations["terrier.dev/adopt-state"] != "true" {
			t.Errorf("the stack %s is %+v, want that it belongs to no object, adopts its state, and stays", name, s.ObjectMeta)
		}
	}
	if s := p.stack(t, "acme-net"); !managedBy(s, "tenant-operator", metav1.ManagedFieldsOperationApply) {
		t.Errorf("the fields of the stack of the tenant belong to %+v", s.ManagedFields)
	}
	for _, gone := range []client.Object{
		&infrav1alpha2.Terraform{ObjectMeta: metav1.ObjectMeta{Name: "leaving"}},
		&tenantsv1.Tenant{ObjectMeta: metav1.ObjectMeta{Name: "acme-shop"}},
	} {
		if err := p.Get(t.Context(), client.ObjectKey{Namespace: "team-a", Name: gone.GetName()}, gone); !apierrors.IsNotFound(err) {
			t.Errorf("reading %s: %v, want that it was not restored", gone.GetName(), err)
		}
	}

	// What is there stays as it is.
	own := p.stack(t, "own")
	delete(own.Annotations, "terrier.dev/adopt-state")
	own.Spec.Suspend = true
	if err := p.Update(t.Context(), own); err != nil {
		t.Fatal(err)
	}
	p.run(t, dir, commands)
	if is := p.stack(t, "own"); is.ResourceVersion != own.ResourceVersion {
		t.Errorf("the second restore changed a stack: %+v", is.ObjectMeta)
	}
	own.Annotations["terrier.dev/adopt-state"], own.Spec.Suspend = "true", false
	if err := p.Update(t.Context(), own); err != nil {
		t.Fatal(err)
	}
}

func managedBy(o metav1.Object, manager string, operation metav1.ManagedFieldsOperationType) bool {
	return slices.ContainsFunc(o.GetManagedFields(), func(f metav1.ManagedFieldsEntry) bool { return f.Manager == manager && f.Operation == operation })
}

// collected returns once the API server has collected a stack whose owner does not exist, and
// so has had the occasion to collect all of them.
func (p *plane) collected(t *testing.T) {
	t.Helper()
	s := p.stack(t, "own").DeepCopy()
	s.ObjectMeta = metav1.ObjectMeta{Namespace: "team-a", Name: "canary", OwnerReferences: []metav1.OwnerReference{
		{APIVersion: tenantsv1.GroupVersion.String(), Kind: tenantsv1.TenantKind, Name: "acme-shop", UID: types.UID("0f6c7a4e-0000-4000-8000-000000000000")},
	}}
	if err := p.Create(t.Context(), s); err != nil {
		t.Fatal(err)
	}
	testkit.Eventually(t, testkit.Patience, "a stack without its owner is collected", func(ctx context.Context) error {
		if err := p.Get(ctx, client.ObjectKeyFromObject(s), s); !apierrors.IsNotFound(err) {
			return errors.Join(errors.New("it is there"), err)
		}
		return nil
	})
}

// goesOn has a controller take the estate over: the tenant has its stack again, each stack its
// state, and nothing is destroyed or created.
func (e *estate) goesOn(t *testing.T, p *plane) {
	t.Helper()
	running := p.controller(t)
	testkit.Eventually(t, testkit.Patience, "the tenant has its stack again", func(ctx context.Context) error {
		var tenant tenantsv1.Tenant
		if err := p.Get(ctx, client.ObjectKey{Namespace: "team-a", Name: "acme-shop"}, &tenant); err != nil {
			return err
		}
		s := p.stack(t, "acme-net")
		if len(s.OwnerReferences) != 1 || s.OwnerReferences[0].UID != tenant.UID || s.Labels["kubernetes-tenants.org/orphaned"] != "" {
			return fmt.Errorf("the stack is %+v, and the tenant says %+v", s.ObjectMeta, tenant.Status)
		}
		return nil
	})
	for _, name := range estateStacks {
		s := (&installed{plane: p}).await(t, "team-a", name, "is as planned", isReady)
		if s.Status.Plan.LastApplied != "" {
			t.Errorf("the plan %s of %s was applied, want that nothing has to be", s.Status.Plan.LastApplied, name)
		}
	}
	// A change of the row reaches the stack: its fields are the tenant's.
	change(t, database(t), `UPDATE customers SET url = 'https://new.example.com'`)
	testkit.Eventually(t, testkit.Patience, "the row changes the stack", func(context.Context) error {
		if s := p.stack(t, "acme-net"); s.Spec.Values == nil || !strings.Contains(string(s.Spec.Values.Raw), "new.example.com") {
			return fmt.Errorf("%+v", s.Spec.Values)
		}
		return nil
	})
	stop(t, running)
	if is := p.states(t); !slices.Equal(is["own"], e.states["own"]) {
		t.Error("the state of a stack that did not change was written")
	}
}

// change writes to a database.
func change(t *testing.T, path, statement string) {
	t.Helper()
	db, err := sql.Open("sqlite", path)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	if _, err := db.ExecContext(t.Context(), statement); err != nil {
		t.Fatal(err)
	}
}
