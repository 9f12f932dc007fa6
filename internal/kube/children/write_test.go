package children

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/terrier-iac/terrier/internal/tenant"
	"github.com/terrier-iac/terrier/internal/testkit"
)

const deployment = `
apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec:
  replicas: 2
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec:
      containers:
      - name: web
        image: registry.example/web:1
        ports: [{containerPort: 8080}]
        resources: {requests: {cpu: "0.5", memory: 1024Mi}}
        env: [{name: A, value: "1"}, {name: B, value: "2"}]
`

var strategies = []tenant.PatchStrategy{tenant.Apply, tenant.Merge, tenant.Replace}

// D-08: a merge of what is not there makes it.
func TestEveryStrategyMakesAndKeeps(t *testing.T) {
	for _, strategy := range strategies {
		t.Run(string(strategy), func(t *testing.T) {
			l := newLab(t)
			w := l.want(deployment, by(strategy))
			first := l.write(w)
			if got, want := first.Change, Created; got != want {
				t.Errorf("the first write is %q, want %q", got, want)
			}
			if got := l.asked(); got != "GET PATCH" && got != "GET POST" {
				t.Errorf("a new object took the requests %q, want one read and one write", got)
			}
			again := l.write(w)
			if again.Change != Unchanged || again.ResourceVersion != first.ResourceVersion {
				t.Errorf("the second write is %q, version %s, want none of %s", again.Change, again.ResourceVersion, first.ResourceVersion)
			}
			// Of an object that it updated the server says too much: defaults are the
			// updater's too. So it is asked, and changes nothing.
			if got := l.asked(); got != "GET" && (strategy != tenant.Replace || got != "GET PUT") {
				t.Errorf("an object that is as it should be took the requests %q, want GET", got)
			}
			if got, want := owners(l.live(l.key("Deployment", "web"))), []string{"Tenant/acme*"}; !slices.Equal(got, want) {
				t.Errorf("its owners are %q, want %q", got, want)
			}
		})
	}
}

func TestEveryStrategyRepairsDrift(t *testing.T) {
	for _, strategy := range strategies {
		t.Run(string(strategy), func(t *testing.T) {
			l := newLab(t)
			w, key := l.want(l.configMap("c", map[string]string{"a": "1"}), by(strategy)), l.key("ConfigMap", "c")
			l.write(w)
			l.patchAs("kubectl-edit", key, `{"data":{"a":"2"}}`)
			_, err := l.cluster.Write(t.Context(), w)
			conflict, ok := errors.AsType[*ConflictError](err)
			if !ok {
				t.Fatalf("Write() over what somebody set = %v, want a conflict", err)
			}
			if got, want := conflict.Fields, []string{".data.a"}; !slices.Equal(got, want) {
				t.Errorf("the conflict is about %q, want %q", got, want)
			}
			if got, want := conflict.Managers, []string{"kubectl-edit"}; !slices.Equal(got, want) {
				t.Errorf("the conflict is with %q, want %q", got, want)
			}
			w.Force = true
			if got, want := l.write(w).Change, Updated; got != want {
				t.Errorf("Write() with Force is %q, want %q", got, want)
			}
			data, _, _ := unstructured.NestedStringMap(l.live(key).Object, "data")
			if diff := cmp.Diff(data, map[string]string{"a": "1"}); diff != "" {
				t.Errorf("data (-got +want):\n%s", diff)
			}
		})
	}
}

// A field that the template no longer has is removed, except by merge, which removes
// nothing. Fields that others added stay.
func TestWhatIsNotWantedAnyMore(t *testing.T) {
	for strategy, want := range map[tenant.PatchStrategy]map[string]string{
		tenant.Apply:   {"a": "1", "theirs": "3"},
		tenant.Merge:   {"a": "1", "b": "2", "theirs": "3"},
		tenant.Replace: {"a": "1"},
	} {
		t.Run(string(strategy), func(t *testing.T) {
			l := newLab(t)
			key := l.key("ConfigMap", "c")
			l.write(l.want(l.configMap("c", map[string]string{"a": "1", "b": "2"}), by(strategy)))
			l.patchAs("them", key, `{"data":{"theirs":"3"}}`)
			l.write(l.want(l.configMap("c", map[string]string{"a": "1"}), by(strategy), force))
			data, _, _ := unstructured.NestedStringMap(l.live(key).Object, "data")
			if diff := cmp.Diff(data, want); diff != "" {
				t.Errorf("data (-got +want):\n%s", diff)
			}
		})
	}
}

// Replacing does not silently undo additions of others.
func TestReplaceAsksBeforeItDrops(t *testing.T) {
	l := newLab(t)
	key := l.key("ConfigMap", "c")
	l.write(l.want(l.configMap("c", map[string]string{"a": "1"}), by(tenant.Replace)))
	l.patchAs("them", key, `{"data":{"theirs":"3"}}`)
	_, err := l.cluster.Write(t.Context(), l.want(l.configMap("c", map[string]string{"a": "2"}), by(tenant.Replace)))
	conflict, ok := errors.AsType[*ConflictError](err)
	if !ok || !slices.Equal(conflict.Fields, []string{".data.theirs"}) {
		t.Fatalf("Write() = %v, want a conflict about .data.theirs", err)
	}
	l.write(l.want(l.configMap("c", map[string]string{"a": "2"}), by(tenant.Replace), force))
	data, _, _ := unstructured.NestedStringMap(l.live(key).Object, "data")
	if diff := cmp.Diff(data, map[string]string{"a": "2"}); diff != "" {
		t.Errorf("data with Force (-got +want):\n%s", diff)
	}
}

func TestReplaceKeepsWhatTheServerSet(t *testing.T) {
	for name, manifest := range map[string][2]string{
		"Service": {`
apiVersion: v1
kind: Service
metadata: {name: s}
spec: {type: NodePort, selector: {app: a}, ports: [{name: http, port: 80}]}`, `
apiVersion: v1
kind: Service
metadata: {name: s}
spec: {type: NodePort, selector: {app: b}, ports: [{name: http, port: 80}]}`},
		"PersistentVolumeClaim": {`
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: s}
spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}`, `
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: s, labels: {more: "1"}}
spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}`},
		"Job": {`
apiVersion: batch/v1
kind: Job
metadata: {name: s}
spec: {template: {spec: {restartPolicy: Never, containers: [{name: a, image: a}]}}}`, `
apiVersion: batch/v1
kind: Job
metadata: {name: s, labels: {more: "1"}}
spec: {template: {spec: {restartPolicy: Never, containers: [{name: a, image: a}]}}}`},
	} {
		t.Run(name, func(t *testing.T) {
			l := newLab(t)
			first := l.write(l.want(manifest[0], by(tenant.Replace)))
			second := l.write(l.want(manifest[1], by(tenant.Replace)))
			if got, want := second.Change, Updated; got != want || second.UID != first.UID {
				t.Errorf("the second write is %q of %s, want %q of %s", got, second.UID, want, first.UID)
			}
			for _, field := range [][]string{{"spec", "clusterIP"}, {"spec", "volumeMode"}, {"spec", "selector", "matchLabels"}} {
				before, _, _ := unstructured.NestedFieldNoCopy(first.Object, field...)
				after, _, _ := unstructured.NestedFieldNoCopy(second.Object, field...)
				if diff := cmp.Diff(after, before); diff != "" {
					t.Errorf("%v (-got +want):\n%s", field, diff)
				}
			}
		})
	}
}

// D-09: what another controller has is a conflict that names it, and nothing is
// written before that.
func TestAnotherController(t *testing.T) {
	for _, strategy := range strategies {
		t.Run(string(strategy), func(t *testing.T) {
			l := newLab(t)
			l.owned("c", true)
			w, key := l.want(l.configMap("c", map[string]string{"a": "1"}), by(strategy)), l.key("ConfigMap", "c")
			_, err := l.cluster.Write(t.Context(), w)
			conflict, ok := errors.AsType[*ConflictError](err)
			if !ok || conflict.Holder != "ConfigMap c-parent" {
				t.Fatalf("Write() = %v, want a conflict with ConfigMap c-parent", err)
			}
			if got := l.asked(); got != "GET" {
				t.Errorf("it took the requests %q, want no write", got)
			}
			w.Force = true
			l.write(w)
			u := l.live(key)
			if got, want := owners(u), []string{"ConfigMap/c-parent*"}; !slices.Equal(got, want) {
				t.Errorf("with Force its owners are %q, want %q", got, want)
			}
			if got := u.GetLabels()[labelTenant]; got != "acme" {
				t.Errorf("with Force its label %s is %q, want acme", labelTenant, got)
			}
		})
	}
}

// Owners that others put there stay, whatever the strategy.
func TestOtherOwnersStay(t *testing.T) {
	for _, strategy := range strategies {
		t.Run(string(strategy), func(t *testing.T) {
			l := newLab(t)
			l.owned("c", false)
			w, key := l.want(l.configMap("c", map[string]string{"a": "1"}), by(strategy), force), l.key("ConfigMap", "c")
			live := l.write(w)
			got, want := owners(l.live(key)), []string{"ConfigMap/c-parent", "Tenant/acme*"}
			if slices.Sort(got); !slices.Equal(got, want) {
				t.Errorf("its owners are %q, want %q", got, want)
			}
			if again := l.write(w); again.Change != Unchanged {
				t.Errorf("the second write is %q, want none", again.Change)
			}
			if err := l.cluster.Orphan(t.Context(), key, live.UID, "TenantDeleted", l.owner, time.Now()); err != nil {
				t.Fatal(err)
			}
			if got, want := owners(l.live(key)), []string{"ConfigMap/c-parent"}; !slices.Equal(got, want) {
				t.Errorf("the orphan's owners are %q, want %q", got, want)
			}
		})
	}
}

func TestAnotherTenant(t *testing.T) {
	l := newLab(t)
	other := l.tenant("other")
	for name, change := range map[string]func(*Write){"labels": retained, "owner": func(*Write) {}} {
		w := l.want(l.configMap(name, map[string]string{"a": "1"}), change, force)
		w.Owner = other
		l.write(w)
		w.Owner = l.owner
		_, err := l.cluster.Write(t.Context(), w)
		conflict, ok := errors.AsType[*ConflictError](err)
		if want := "Tenant " + l.Namespace + "/other"; !ok || conflict.Holder != want {
			t.Errorf("%s: Write() = %v, want a conflict with %s", name, err, want)
		}
	}
}

// A retained object must not go with its Tenant, also if it once would have.
func TestRetainLetsGoOfTheOwner(t *testing.T) {
	for _, strategy := range strategies {
		t.Run(string(strategy), func(t *testing.T) {
			l := newLab(t)
			manifest, key := l.configMap("c", map[string]string{"a": "1"}), l.key("ConfigMap", "c")
			l.write(l.want(manifest, by(strategy)))
			l.write(l.want(manifest, by(strategy), retained))
			u := l.live(key)
			if got := owners(u); len(got) > 0 {
				t.Errorf("its owners are %q, want none", got)
			}
			want := []string{"kubernetes-tenants.org/deletion-policy=Retain", "kubernetes-tenants.org/tenant-namespace=" + l.Namespace, "kubernetes-tenants.org/tenant=acme", "terrier.dev/tenant-id=acme"}
			if diff := cmp.Diff(marks(u), want); diff != "" {
				t.Errorf("its marks (-got +want):\n%s", diff)
			}
			l.write(l.want(manifest, by(strategy)))
			if got, want := owners(l.live(key)), []string{"Tenant/acme*"}; !slices.Equal(got, want) {
				t.Errorf("its owners are %q, want %q", got, want)
			}
		})
	}
}

func TestOnceIsNeverWrittenAgain(t *testing.T) {
	l := newLab(t)
	key := l.key("ConfigMap", "c")
	first := l.write(l.want(l.configMap("c", map[string]string{"a": "1"}), once))
	changed := l.want(l.configMap("c", map[string]string{"a": "2"}), once)
	if again := l.write(changed); again.Change != Unchanged || !again.CreatedOnce {
		t.Errorf("the second write is %q, want none", again.Change)
	}
	if err := l.cluster.Orphan(t.Context(), key, first.UID, "RemovedFromTemplate", l.owner, time.Now()); err != nil {
		t.Fatal(err)
	}
	if got, want := l.write(changed).Change, Adopted; got != want {
		t.Errorf("the write after it was left behind is %q, want %q", got, want)
	}
	u := l.live(key)
	if got, _, _ := unstructured.NestedString(u.Object, "data", "a"); got != "1" {
		t.Errorf("its data is %q, want 1, as it was made", got)
	}
	if got, want := owners(u), []string{"Tenant/acme*"}; !slices.Equal(got, want) {
		t.Errorf("its owners are %q, want %q", got, want)
	}
	if err := l.Client.Delete(t.Context(), u); err != nil {
		t.Fatal(err)
	}
	if got, want := l.write(changed).Change, Created; got != want {
		t.Errorf("the write after somebody deleted it is %q, want %q", got, want)
	}
}

func TestOrphanAndAdopt(t *testing.T) {
	now := time.Date(2026, 11, 28, 7, 0, 0, 0, time.UTC)
	for _, strategy := range strategies {
		for name, policy := range map[string]func(*Write){"Delete": func(*Write) {}, "Retain": retained} {
			t.Run(string(strategy)+name, func(t *testing.T) {
				l := newLab(t)
				w, key := l.want(l.configMap("c", map[string]string{"a": "1"}), by(strategy), policy), l.key("ConfigMap", "c")
				live := l.write(w)
				before := marks(l.live(key))
				if err := l.cluster.Orphan(t.Context(), key, live.UID, "TenantDeleted", l.owner, now); err != nil {
					t.Fatal(err)
				}
				u := l.live(key)
				all := strings.Join(marks(u), " ")
				for _, want := range []string{"orphaned=true", "orphaned-at=2026-11-28T07:00:00Z", "orphaned-reason=TenantDeleted"} {
					if !strings.Contains(all, want) {
						t.Errorf("the orphan's marks are %s, want %s among them", all, want)
					}
				}
				if len(owners(u)) > 0 || u.GetLabels()[labelTenant] != "" {
					t.Errorf("the orphan has the owners %q and the marks %s, want no Tenant", owners(u), all)
				}
				if got, want := l.write(w).Change, Adopted; got != want {
					t.Errorf("the write after that is %q, want %q", got, want)
				}
				if diff := cmp.Diff(marks(l.live(key)), before); diff != "" {
					t.Errorf("marks after adopting (-got +want):\n%s", diff)
				}
			})
		}
	}
}

// An autoscaler's replicas stay, with no conflict, and nothing is reset when the
// field leaves the template.
func TestIgnoredFieldsAreLeftToOthers(t *testing.T) {
	for _, strategy := range strategies {
		t.Run(string(strategy), func(t *testing.T) {
			l := newLab(t)
			key := l.key("Deployment", "web")
			w := l.want(deployment, by(strategy), ignoring("$.spec.replicas"))
			l.write(w)
			l.patchAs("autoscaler", key, `{"spec":{"replicas":7}}`)
			l.asked()
			if live := l.write(w); live.Change != Unchanged {
				t.Errorf("Write() after scaling is %q, want none", live.Change)
			}
			l.write(l.want(strings.Replace(deployment, "web:1", "web:2", 1), by(strategy), ignoring("$.spec.replicas")))
			u := l.live(key)
			if got, _, _ := unstructured.NestedInt64(u.Object, "spec", "replicas"); got != 7 {
				t.Errorf("replicas are %d, want 7, as the autoscaler set them", got)
			}
			if _, ok := u.Object["status"]; !ok {
				t.Errorf("the object has no status")
			}
		})
	}
}

func TestDelete(t *testing.T) {
	l := newLab(t)
	key := l.key("ConfigMap", "c")
	live := l.write(l.want(l.configMap("c", map[string]string{"a": "1"})))
	if err := l.cluster.Delete(t.Context(), key, "11111111-2222-3333-4444-555555555555"); err != nil {
		t.Errorf("Delete() of another object = %v, want nil", err)
	}
	l.patchAs("them", key, `{"metadata":{"finalizers":["example.com/wait"]}}`)
	if err := l.cluster.Delete(t.Context(), key, live.UID); err != nil {
		t.Fatal(err)
	}
	going, err := l.cluster.Read(t.Context(), key, l.owner)
	if err != nil || !going.Deleting || !slices.Equal(going.Finalizers, []string{"example.com/wait"}) {
		t.Errorf("Look() = %+v, %v, want one that waits for example.com/wait", going, err)
	}
	l.asked()
	if again := l.write(l.want(l.configMap("c", map[string]string{"a": "2"}))); !again.Deleting || l.asked() != "GET" {
		t.Errorf("Write() = %+v, want it to leave alone what goes", again)
	}
	l.patchAs("them", key, `{"metadata":{"finalizers":null}}`)
	if err := l.cluster.Delete(t.Context(), key, live.UID); err != nil {
		t.Errorf("Delete() of what is gone = %v, want nil", err)
	}
	if gone, err := l.cluster.Read(t.Context(), key, l.owner); gone.Exists || err != nil {
		t.Errorf("Look() = %+v, %v, want nothing", gone, err)
	}
}

// Roles of the ServiceAccount decide what it may write.
func TestAsAServiceAccount(t *testing.T) {
	l := newLab(t)
	l.Apply(t, `
apiVersion: v1
kind: ServiceAccount
metadata: {name: writer}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: writer}
rules:
- {apiGroups: [""], resources: [configmaps], verbs: [get, create, patch, update, delete]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: writer}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: writer}
subjects: [{kind: ServiceAccount, name: writer, namespace: `+l.Namespace+`}]
`)
	testkit.AwaitRights(t, l.Cluster, "writer", rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"configmaps"}, Verbs: []string{"get", "create", "patch", "update", "delete"}})
	account, err := l.cluster.As(l.Namespace, "writer")
	if err != nil {
		t.Fatal(err)
	}
	live, err := account.Write(t.Context(), l.want(l.configMap("c", map[string]string{"a": "1"})))
	if err != nil || live.Change != Created {
		t.Fatalf("Write() of what it may = %q, %v, want %q", live.Change, err, Created)
	}
	secret := l.want("{apiVersion: v1, kind: Secret, metadata: {name: s}}")
	if _, err := account.Write(t.Context(), secret); !apierrors.IsForbidden(err) {
		t.Errorf("Write() of what it may not = %v, want forbidden", err)
	}
	elsewhere := l.want("{apiVersion: v1, kind: ConfigMap, metadata: {name: s, namespace: default}}")
	if _, err := account.Write(t.Context(), elsewhere); !apierrors.IsForbidden(err) {
		t.Errorf("Write() in another namespace = %v, want forbidden", err)
	}
	ours := l.write(secret)
	if err := account.Delete(t.Context(), l.key("Secret", "s"), ours.UID); !apierrors.IsForbidden(err) {
		t.Errorf("Delete() of what it may not = %v, want forbidden", err)
	}
	if err := account.Delete(t.Context(), l.key("ConfigMap", "c"), live.UID); err != nil {
		t.Errorf("Delete() of what it may = %v, want nil", err)
	}
}

// Children that Tenant Operator made, by server-side apply under its name, are
// as they should be: not one is written.
func TestTakeoverWritesNothing(t *testing.T) {
	l := newLab(t)
	for _, manifest := range []string{deployment, `
apiVersion: v1
kind: Service
metadata: {name: s, labels: {}}
spec: {selector: {app: a}, ports: [{port: 80, targetPort: 8080}]}`, `
apiVersion: v1
kind: Secret
metadata: {name: s}
stringData: {password: hunter2}`, `
apiVersion: networking.k8s.io/v1
kind: Ingress
metadata: {name: s}
spec: {rules: [{host: a.example, http: {paths: [{path: /, pathType: Prefix, backend: {service: {name: s, port: {number: 80}}}}]}}]}`, `
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata: {name: s}
spec: {podSelector: {}, policyTypes: [Ingress], ingress: [{}]}`, `
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: s}
spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1024Mi}}}`,
	} {
		w := l.want(manifest)
		before := w
		before.Owner.TenantID = "" // a label that Tenant Operator does not know
		key := tenant.RefOf(w.Object)
		version := l.write(before).ResourceVersion
		l.restart()
		l.asked()
		after := l.write(w)
		if after.Change != Unchanged || after.ResourceVersion != version {
			t.Errorf("%s: the first write after taking over is %q, version %s, want none of %s", key, after.Change, after.ResourceVersion, version)
		}
		if got, want := l.asked(), "GET"; got != want {
			t.Errorf("%s: it took the requests %q, want %q", key, got, want)
		}
	}
}
