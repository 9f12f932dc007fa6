package tenants

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	tenantsv1 "github.com/terrier-iac/terrier/api/tenants/v1"
	"github.com/terrier-iac/terrier/internal/kube/children"
	"github.com/terrier-iac/terrier/internal/plan"
	"github.com/terrier-iac/terrier/internal/testkit"
)

// finalize puts a finalizer on an object, as its own controller does.
func (l *lab) finalize(kind, name string) {
	l.t.Helper()
	u := l.child(kind, name)
	u.SetFinalizers([]string{"example.com/takes-its-time"})
	if err := l.Client.Update(l.t.Context(), u); err != nil {
		l.t.Fatal(err)
	}
	l.t.Cleanup(func() { l.release(kind, name) })
}

// release removes it.
func (l *lab) release(kind, name string) {
	u := &unstructured.Unstructured{}
	u.SetGroupVersionKind(kindsInTests[kind])
	u.SetNamespace(l.Namespace)
	u.SetName(name)
	patch := client.RawPatch("application/merge-patch+json", []byte(`{"metadata":{"finalizers":null}}`))
	if err := client.IgnoreNotFound(l.Client.Patch(context.WithoutCancel(l.t.Context()), u, patch)); err != nil {
		l.t.Fatal(err)
	}
}

// D-06: an object of any kind goes when it is not in the template any more, and
// one that does not go is not forgotten.
func TestRemovedFromTheTemplate(t *testing.T) {
	l := newLab(t)
	l.tenant("configMaps:" + configMap("config") + "manifests:" + terraform("db"))
	l.look()
	l.finalize("Terraform", "acme-db")
	l.tenant("configMaps:" + configMap("config") + "manifests: []")
	l.look()
	l.wantStates("while the stack is destroyed", "db Deleting WaitsForFinalizers")
	if got := l.get().Status.Resources[0].Message; !strings.Contains(got, "example.com/takes-its-time") {
		t.Errorf("the message %q does not name the finalizer", got)
	}
	if l.child("Terraform", "acme-db").GetDeletionTimestamp() == nil {
		t.Error("the stack was not deleted")
	}
	l.restart()
	l.look()
	l.wantStates("after a restart", "db Deleting WaitsForFinalizers")
	l.release("Terraform", "acme-db")
	l.look()
	l.wantStates("in the end", "")
	if s := l.get().Status; len(s.Inventory) != 1 || len(s.AppliedResources) != 1 {
		t.Errorf("the inventory is %+v, want the ConfigMap only", s.Inventory)
	}
	if n := l.heard.count("OrphanedResourceDeleted"); n != 1 {
		t.Errorf("OrphanedResourceDeleted was told %d times, want once", n)
	}
}

// L-02: a child in a namespace whose name is a template is found again.
func TestRemovedFromATemplatedNamespace(t *testing.T) {
	l := newLab(t)
	l.c.observer.Namespaces = []string{"*"}
	elsewhere := l.Namespace + "-acme"
	space := "namespaces:\n- id: space\n  nameTemplate: \"" + l.Namespace + "-{{ .uid }}\"\n  spec: {apiVersion: v1, kind: Namespace}\n"
	config := "configMaps:" + strings.Replace(configMap("config"), "  spec:", "  targetNamespace: \""+l.Namespace+"-{{ .uid }}\"\n  spec:", 1)
	l.tenant(space + config)
	l.look()
	l.wantStates("in its own namespace", "")
	get := func() *unstructured.Unstructured {
		u := &unstructured.Unstructured{}
		u.SetGroupVersionKind(kindsInTests["ConfigMap"])
		err := l.Client.Get(t.Context(), client.ObjectKey{Namespace: elsewhere, Name: "acme-config"}, u)
		if client.IgnoreNotFound(err) != nil {
			t.Fatal(err)
		}
		if err != nil {
			return nil
		}
		return u
	}
	if u := get(); u == nil || u.GetLabels()[tenantsv1.LabelTenant] != "acme-web" || len(u.GetOwnerReferences()) > 0 {
		t.Errorf("the child elsewhere is %v, want it to be tracked by labels", u)
	}
	l.tenant(space + "configMaps: []")
	l.look()
	if get() != nil {
		t.Error("the child is still there")
	}
	l.deleteTenant()
	l.look()
	if u := l.child("Namespace", elsewhere); u != nil && u.GetDeletionTimestamp() == nil {
		t.Error("the namespace is still there")
	}
}

// A10, D-07: a tenant goes in reverse, waits for the end of each stack however
// long that takes, and the credentials that a destroy needs go last.
func TestDeletionWaitsForTheStacks(t *testing.T) {
	l := newLab(t)
	secret := "secrets:\n- id: creds\n  nameTemplate: \"{{ .uid }}-creds\"\n  spec: {apiVersion: v1, kind: Secret, stringData: {a: b}}\n"
	l.tenant(secret + "manifests:" + terraform("db", "waitForReady: false") + "configMaps:" + configMap("app", "dependIds: [db]"))
	l.look()
	l.wantStates("in the beginning", "")
	l.finalize("Terraform", "acme-db")
	l.deleteTenant()
	l.look()
	l.wantThere("ConfigMap", "acme-app", false)
	l.wantThere("Secret", "acme-creds", true)
	l.wantStates("while the stack is destroyed", "db Deleting WaitsForFinalizers; creds Deleting WaitsForDependents")
	l.stackIs("acme-db", "False", "TFExecApplyFailed", "the bucket is not empty", 0)
	l.look()
	l.later(statusDebounce)
	l.look()
	if text := l.text(); strings.Count(text, "the bucket is not empty") != 2 {
		t.Errorf("the object and the condition do not both say why the stack does not go:\n%s", text)
	}
	since := l.get().Status.Resources[0].Since
	for range 5 {
		l.later(time.Hour)
		l.look()
	}
	l.wantThere("Secret", "acme-creds", true)
	if got := l.get().Status.Resources[0].Since; got != since {
		t.Errorf("the stack goes since %s, want %s: it was the same all the time", got, since)
	}
	l.release("Terraform", "acme-db")
	l.look()
	l.wantThere("Secret", "acme-creds", false)
	if !l.gone() {
		t.Errorf("the tenant is still there: %s", l.states())
	}
	if n := l.heard.count("Normal TenantDeleted"); n != 1 {
		t.Errorf("TenantDeleted was told %d times, want once", n)
	}
}

// The words of a stack that cannot be destroyed show as little of the row as any
// others, also to a controller that has just started.
func TestWordsOfWhatGoesHideTheRow(t *testing.T) {
	l := newLab(t)
	l.tenant("manifests:"+terraform("db", "waitForReady: false"), `kubernetes-tenants.org/extra: '{"token":"s3cr3t-token"}'`)
	l.look()
	l.finalize("Terraform", "acme-db")
	l.deleteTenant()
	l.look()
	l.stackIs("acme-db", "False", "TFExecApplyFailed", "403 for s3cr3t-token of acme", 0)
	l.restart()
	l.look()
	l.later(statusDebounce)
	l.look()
	if text := l.text(); strings.Contains(text, "s3cr3t") || strings.Count(text, "403 for "+plan.Mask+" of acme") != 2 {
		t.Errorf("the words of the stack are not there, or with a value of the row:\n%s", text)
	}
}

// The same while the row cannot be read, by a controller that has just started: it does not know
// what to hide.
func TestWordsOfWhatGoesAreHiddenWithoutTheRow(t *testing.T) {
	for _, code := range []int{http.StatusInternalServerError, http.StatusForbidden} {
		t.Run(http.StatusText(code), func(t *testing.T) {
			l := newLab(t)
			l.tenant("manifests:"+terraform("db", "waitForReady: false"), `kubernetes-tenants.org/extra: '{"token":"s3cr3t-token"}'`)
			l.look()
			l.finalize("Terraform", "acme-db")
			l.deleteTenant()
			l.look()
			l.stackIs("acme-db", "False", "TFExecApplyFailed", "403 for s3cr3t-token of acme", 0)
			l.restart()
			l.line.broken(answering(code, "/secrets/terrier-row-acme-web"))
			if code != http.StatusForbidden {
				l.failsFor("the row cannot be read")
			}
			l.look()
			l.later(statusDebounce)
			l.look()
			if text := l.text(); strings.Contains(text, "s3cr3t") || !strings.Contains(text, hiddenMessage) || l.heard.count("s3cr3t") > 0 {
				t.Errorf("the words of the stack are not hidden:\n%s", text)
			}
			l.line.broken(nil)
			l.later(statusDebounce)
			l.look()
			l.later(statusDebounce)
			l.look()
			if text := l.text(); strings.Contains(text, "s3cr3t") || !strings.Contains(text, "403 for "+plan.Mask+" of acme") {
				t.Errorf("once the row can be read the words are\n%s", text)
			}
		})
	}
}

// For a deleted tenant each object is read, since no write would discover that it
// exists.
func TestNothingIsFreshOfATenantThatGoes(t *testing.T) {
	l := newLab(t)
	l.run()
	l.tenant("configMaps:" + configMap("config"))
	gvk := kindsInTests["ConfigMap"]
	key := children.Key{Version: gvk.Version, Kind: gvk.Kind, Namespace: l.Namespace, Name: "acme-other"}
	testkit.Eventually(t, testkit.Patience, "the kind is watched", func(context.Context) error {
		if !l.c.Children.Watches().Unclaimed(key) {
			return errors.New("not yet")
		}
		return nil
	})
	p := &pass{obj: l.get()}
	if !l.c.observer.fresh(p, key, note{}) {
		t.Error("what is wanted and unheard of is looked at before it is made")
	}
	p.o.Deleting = true
	if l.c.observer.fresh(p, key, note{}) {
		t.Error("a tenant that goes does not look whether there is an object")
	}
}

// A9, D-07: what is retained stays as an orphan, and owners that others set stay.
func TestRetained(t *testing.T) {
	l := newLab(t)
	l.tenant("manifests:" + terraform("db", "deletionPolicy: Retain") + "configMaps:" + configMap("config", "deletionPolicy: Retain") + configMap("app"))
	l.look()
	other := l.child("ConfigMap", "acme-app")
	u := l.child("ConfigMap", "acme-config")
	u.SetOwnerReferences(append(u.GetOwnerReferences(), ownerRef(other)))
	if err := l.Client.Update(t.Context(), u); err != nil {
		t.Fatal(err)
	}
	l.tenant("manifests:" + terraform("db", "deletionPolicy: Retain") + "configMaps:" + configMap("app"))
	l.look()
	wantOrphan(t, l.child("ConfigMap", "acme-config"), "RemovedFromTemplate")
	if refs := l.child("ConfigMap", "acme-config").GetOwnerReferences(); len(refs) != 1 || refs[0].UID != other.GetUID() {
		t.Errorf("owners of the orphan = %v, want the one that somebody else set", refs)
	}
	// Wanted again, it is ours again.
	l.tenant("manifests:" + terraform("db", "deletionPolicy: Retain") + "configMaps:" + configMap("config", "deletionPolicy: Retain") + configMap("app"))
	l.look()
	if u := l.child("ConfigMap", "acme-config"); u.GetLabels()[tenantsv1.LabelOrphaned] != "" || u.GetAnnotations()[tenantsv1.AnnotationOrphanedAt] != "" {
		t.Errorf("the markers of an orphan are still on %v", u.Object["metadata"])
	}
	l.deleteTenant()
	l.look()
	if !l.gone() {
		t.Errorf("the tenant is still there: %s", l.states())
	}
	wantOrphan(t, l.child("Terraform", "acme-db"), "TenantDeleted")
	l.wantThere("ConfigMap", "acme-app", false)
	if n := l.heard.count("OrphanMarkersAdded"); n != 3 {
		t.Errorf("OrphanMarkersAdded was told %d times, want three", n)
	}
}

func wantOrphan(t *testing.T, u *unstructured.Unstructured, reason string) {
	t.Helper()
	if u == nil {
		t.Fatalf("the object is gone; want an orphan because of %s", reason)
	}
	if u.GetDeletionTimestamp() != nil || u.GetLabels()[tenantsv1.LabelOrphaned] != "true" || u.GetLabels()[tenantsv1.LabelTenant] != "" ||
		u.GetAnnotations()[tenantsv1.AnnotationOrphanedReason] != reason || u.GetAnnotations()[tenantsv1.AnnotationOrphanedAt] == "" {
		t.Errorf("%s has the metadata %v, want the markers of an orphan because of %s", u.GetName(), u.Object["metadata"], reason)
	}
}

// A protected tenant stays until a user removes the annotation.
func TestDeletionProtection(t *testing.T) {
	l := newLab(t)
	l.tenant("configMaps:"+configMap("config"), "terrier.dev/deletion-protection: \"true\"")
	l.look()
	l.deleteTenant()
	l.look()
	l.wantThere("ConfigMap", "acme-config", true)
	wantCondition(t, l, "Ready", "False", "DeletionProtected")
	l.tenant("configMaps:"+configMap("config"), "terrier.dev/deletion-protection: \"false\"")
	l.look()
	if !l.gone() {
		t.Errorf("the tenant is still there: %s", l.states())
	}
}

// Whatever write is the last that a controller makes, the next one brings the
// tenant to the same end, and leaves nothing behind.
func TestKilledAtEveryWrite(t *testing.T) {
	groups := "secrets:\n- id: creds\n  nameTemplate: \"{{ .uid }}-creds\"\n  deletionPolicy: Retain\n  spec: {apiVersion: v1, kind: Secret, stringData: {a: b}}\n" +
		"manifests:" + terraform("db", "waitForReady: false") + "configMaps:" + configMap("app", "dependIds: [db]")
	for at := 1; at <= 12; at++ {
		l := newLab(t)
		l.tenant(groups)
		l.killedAt(at)
		l.look()
		l.wantStates("after a kill", "")
		// What is in the template when the controller comes back is not what it was.
		l.tenant("secrets: []\nmanifests: []\nconfigMaps:" + configMap("app") + configMap("new", "dependIds: [app]"))
		l.killedAt(at)
		l.look()
		l.wantStates("after an edit and a kill", "")
		l.wantThere("Terraform", "acme-db", false)
		wantOrphan(t, l.child("Secret", "acme-creds"), "RemovedFromTemplate")
		l.deleteTenant()
		l.killedAt(at)
		if !l.gone() {
			l.look()
		}
		if !l.gone() {
			t.Fatalf("killed after write %d, the tenant is still there: %s", at, l.states())
		}
		l.wantThere("ConfigMap", "acme-app", false)
		l.wantThere("ConfigMap", "acme-new", false)
	}
}

// killedAt reconciles with a line that dies after the nth write, and restarts.
func (l *lab) killedAt(n int) {
	l.t.Helper()
	l.line.since()
	l.line.cut(n)
	// The result does not matter: a killed controller reports none.
	_, _ = l.c.Reconcile(l.t.Context(), requestOf(l.key()))
	l.line.cut(0)
	l.restart()
}

func (l *line) cut(at int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.cutAt = at
}

// A controller that ends between the two finds again what it made; and nothing is
// written when nothing changed.
func TestTheInventoryIsWrittenBeforeTheObjects(t *testing.T) {
	l := newLab(t)
	l.tenant("configMaps:" + configMap("config") + configMap("more", "dependIds: [config]"))
	l.line.since()
	l.look()
	var writes []string
	for _, r := range l.line.since() {
		if !strings.HasPrefix(r, "GET ") {
			writes = append(writes, r)
		}
	}
	status := slices.IndexFunc(writes, func(w string) bool { return strings.Contains(w, "/status") })
	object := slices.IndexFunc(writes, func(w string) bool { return strings.Contains(w, "/configmaps") })
	if status < 0 || object < 0 || status > object {
		t.Errorf("writes were %q, want a status before the first object", writes)
	}
	l.look()
	for _, r := range l.line.since() {
		if !strings.HasPrefix(r, "GET ") {
			t.Errorf("a look at nothing new made the request %s", r)
		}
	}
}
