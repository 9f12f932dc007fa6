package tenants

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	tenantsv1 "github.com/terrier-iac/terrier/api/tenants/v1"
)

// answering breaks the requests of which a path has this part, and whose method is one of
// these; all without any.
func answering(code int, part string, methods ...string) func(*http.Request) int {
	return func(r *http.Request) int {
		if strings.Contains(r.URL.Path, part) && (len(methods) == 0 || slices.Contains(methods, r.Method)) {
			return code
		}
		return 0
	}
}

// failsFor lets passes fail until patience is over.
func (l *lab) failsFor(why string) {
	l.t.Helper()
	for range 2 {
		if _, err := l.c.Reconcile(l.t.Context(), requestOf(l.key())); err == nil {
			l.t.Errorf("%s, a pass says nothing of it", why)
		}
		l.later(patience/2 + time.Second)
	}
}

// An API that does not answer is reported of its own objects, which are tried after longer
// and longer pauses. The other objects of the tenant go on.
func TestAnAPIThatDoesNotAnswerStopsItsOwnObjects(t *testing.T) {
	for name, breaks := range map[string]func(*http.Request) int{
		"it cannot be read":      answering(http.StatusServiceUnavailable, "/apis/apps/v1/namespaces/"),
		"it cannot be written":   answering(http.StatusServiceUnavailable, "/apis/apps/v1/namespaces/", http.MethodPatch, http.MethodPost),
		"it has too much to do":  answering(http.StatusTooManyRequests, "/apis/apps/v1/namespaces/"),
		"its proxy has no route": answering(http.StatusBadGateway, "/apis/apps/v1/namespaces/"),
	} {
		t.Run(name, func(t *testing.T) {
			l := newLab(t)
			l.tenant("deployments:" + deployment("app", 1) + "configMaps:" + configMap("config") + configMap("after", "dependIds: [app]"))
			l.line.broken(breaks)
			l.failsFor(name)
			result := l.look()
			l.wantStates("while it lasts", "app Failed APIUnavailable; after Skipped DependencySkipped")
			l.wantThere("ConfigMap", "acme-config", true)
			wantCondition(t, l, "Degraded", "True", "ResourceFailures")
			if got := l.get().Status.Resources[0]; got.NextAttempt == nil || !strings.Contains(got.Message, "Deployment "+l.Namespace+"/acme-app") || !strings.Contains(got.Message, "kubectl get apiservices") {
				t.Errorf("the status says %+v, want the object, the next attempt and a way out", got)
			}
			pauses := []time.Duration{result.RequeueAfter}
			for range 3 {
				l.later(result.RequeueAfter + time.Second)
				result = l.look()
				pauses = append(pauses, result.RequeueAfter)
			}
			if want := []time.Duration{5 * time.Second, 10 * time.Second, 20 * time.Second, 40 * time.Second}; !slices.Equal(pauses, want) {
				t.Errorf("the pauses are %v, want %v", pauses, want)
			}
			l.line.broken(nil)
			l.later(time.Minute)
			l.look()
			l.wantStates("once it answers", "app Progressing NotReady; after Pending DependencyNotReady")
		})
	}
}

// A failure that passes within moments is no news.
func TestAShortOutageIsNotReported(t *testing.T) {
	l := newLab(t)
	l.tenant("configMaps:" + configMap("config"))
	l.line.broken(answering(http.StatusServiceUnavailable, "/configmaps"))
	if _, err := l.c.Reconcile(t.Context(), requestOf(l.key())); err == nil {
		t.Error("a pass that could not read an object is none that failed")
	}
	l.line.broken(nil)
	l.later(patience)
	l.look()
	l.wantStates("after it", "")
	l.line.broken(answering(http.StatusServiceUnavailable, "/configmaps"))
	l.restart()
	if _, err := l.c.Reconcile(t.Context(), requestOf(l.key())); err == nil {
		t.Error("a pass that could not read an object is none that failed")
	}
	wantCondition(t, l, "Ready", "True", "Reconciled")
}

// A deletion says which API it waits for.
func TestADeletionSaysWhichAPIItWaitsFor(t *testing.T) {
	l := newLab(t)
	l.tenant("deployments:" + deployment("app", 1, "waitForReady: false") + "configMaps:" + configMap("config"))
	l.look()
	l.restart()
	l.line.broken(answering(http.StatusServiceUnavailable, "/apis/apps/v1/namespaces/"))
	l.deleteTenant()
	l.failsFor("an API does not answer")
	l.look()
	l.wantStates("while it lasts", "app Kept APIUnavailable; config Deleting WaitsForDependents")
	wantCondition(t, l, "Degraded", "True", "ResourceFailures")
	l.line.broken(nil)
	l.later(time.Minute)
	l.look()
	if !l.gone() {
		t.Errorf("the tenant is still there: %s", l.states())
	}
}

// A serviceAccountName that is none is reported with the field, and a deletion goes on once
// it is corrected.
func TestAnInvalidServiceAccountIsReported(t *testing.T) {
	l := newLab(t)
	bad := "serviceAccountName: Not_A_Name\n"
	l.tenant(bad + "configMaps:" + configMap("config"))
	if result := l.look(); result.RequeueAfter != 0 {
		t.Errorf("it is tried again after %s, want not before something changes", result.RequeueAfter)
	}
	l.wantStates("with no name", "config Failed ServiceAccountInvalid")
	got := l.get().Status.Resources[0].Message
	for _, want := range []string{"spec.serviceAccountName", "Not_A_Name", "TenantTemplate web"} {
		if !strings.Contains(got, want) {
			t.Errorf("the message %q lacks %q", got, want)
		}
	}
	wantCondition(t, l, "Ready", "False", "ResourcesFailed")
	l.tenant("configMaps:" + configMap("config"))
	l.unnamed()
	l.look()
	l.wantStates("without one", "")
	l.tenant(bad + "configMaps:" + configMap("config"))
	l.deleteTenant()
	l.look()
	l.wantStates("in deletion", "config Kept ServiceAccountInvalid")
	wantCondition(t, l, "Degraded", "True", "ResourceFailures")
	l.wantThere("ConfigMap", "acme-config", true)
	l.unnamed()
	l.look()
	if !l.gone() {
		t.Errorf("the tenant is still there: %s", l.states())
	}
}

// unnamed removes the serviceAccountName.
func (l *lab) unnamed() {
	l.t.Helper()
	if err := l.Client.Patch(l.t.Context(), l.get(), client.RawPatch(types.MergePatchType, []byte(`{"spec":{"serviceAccountName":null}}`))); err != nil {
		l.t.Fatal(err)
	}
}

// A row that cannot be read is reported, and stops no deletion.
func TestARowThatCannotBeReadIsReported(t *testing.T) {
	for _, code := range []int{http.StatusInternalServerError, http.StatusForbidden} {
		t.Run(http.StatusText(code), func(t *testing.T) {
			l := newLab(t)
			l.tenant("configMaps:" + configMap("config"))
			l.look()
			l.restart()
			l.line.broken(answering(code, "/secrets/terrier-row-acme-web"))
			l.failsFor("the row cannot be read")
			result := l.look()
			wantCondition(t, l, "Ready", "False", "VariablesBuildError")
			if result.RequeueAfter != firstPause {
				t.Errorf("it is read again after %s, want %s", result.RequeueAfter, firstPause)
			}
			l.wantThere("ConfigMap", "acme-config", true)
			l.deleteTenant()
			l.look()
			if !l.gone() {
				t.Errorf("the tenant is still there: %s", l.states())
			}
		})
	}
}

// Passes that end early for another reason say so in a condition of each kind.
func TestPassesThatEndEarlyAreReported(t *testing.T) {
	l := newLab(t)
	options := l.c.Options
	options.Metrics = prometheus.NewRegistry()
	kept := &revisions{live: options.Live, kept: map[types.UID]int64{}}
	shared := &templates{checked: map[types.UID]checked{}}
	registries, err := newRegistries(options.Live, options, shared, kept)
	if err != nil {
		t.Fatal(err)
	}
	for name, tt := range map[string]struct {
		object     client.Object
		reconciler reconcile.Reconciler
		conditions func(client.Object) *[]metav1.Condition
		kind       string // of the condition
		breaks     func(*http.Request) int
		prepare    func(t *testing.T, obj client.Object)
		says       string
	}{
		"a Tenant that gets no finalizer": {
			&tenantsv1.Tenant{ObjectMeta: metav1.ObjectMeta{Name: "acme-web"}, Spec: tenantsv1.TenantSpec{UID: "acme", TemplateRef: "web"}},
			l.c, conditionsOfTenant, "Ready",
			func(r *http.Request) int {
				if r.Method == http.MethodPatch && strings.HasSuffix(r.URL.Path, "/tenants/acme-web") {
					return http.StatusUnprocessableEntity
				}
				return 0
			}, nil, "it is broken",
		},
		"a template whose generation cannot be stored": {
			&tenantsv1.TenantTemplate{ObjectMeta: metav1.ObjectMeta{Name: "web"}, Spec: tenantsv1.TenantTemplateSpec{RegistryID: "none"}},
			newTemplates(options.Live, options, shared, kept), conditionsOfTemplate, conditionApplied, nil,
			func(t *testing.T, obj client.Object) {
				theirs := &appsv1.ControllerRevision{ObjectMeta: metav1.ObjectMeta{Namespace: l.Namespace, Name: "web-1"}, Revision: 1}
				theirs.Data.Raw = []byte(`{}`)
				if err := l.Client.Create(t.Context(), theirs); err != nil {
					t.Fatal(err)
				}
			}, "the ControllerRevision web-1 has another owner",
		},
		"a registry in deletion whose tenants cannot be listed": {
			&tenantsv1.TenantRegistry{
				ObjectMeta: metav1.ObjectMeta{Name: "customers", Finalizers: []string{tenantsv1.RegistryFinalizer}},
				Spec: tenantsv1.TenantRegistrySpec{
					Source:        tenantsv1.Source{Type: "sqlite", SyncInterval: "1m", SQLite: &tenantsv1.SQLite{Path: "x", Selection: tenantsv1.Selection{Table: "t"}}},
					ValueMappings: tenantsv1.ValueMappings{UID: "id", Activate: "active"},
				},
			},
			registries, conditionsOfRegistry, conditionReady, answering(http.StatusInternalServerError, "/tenants"),
			func(t *testing.T, obj client.Object) {
				if err := l.Client.Delete(t.Context(), obj); err != nil {
					t.Fatal(err)
				}
			}, "it is broken",
		},
	} {
		t.Run(name, func(t *testing.T) {
			tt.object.SetNamespace(l.Namespace)
			if err := l.Client.Create(t.Context(), tt.object); err != nil {
				t.Fatal(err)
			}
			if tt.prepare != nil {
				tt.prepare(t, tt.object)
			}
			l.heard.forget()
			l.line.broken(tt.breaks)
			defer l.line.broken(nil)
			key := client.ObjectKeyFromObject(tt.object)
			for range 3 {
				if _, err := tt.reconciler.Reconcile(t.Context(), requestOf(key)); err == nil {
					t.Error("the pass did not fail")
				}
				l.later(patience/2 + time.Second)
			}
			got := tt.object.DeepCopyObject().(client.Object)
			if err := l.Client.Get(t.Context(), key, got); err != nil {
				t.Fatal(err)
			}
			c := meta.FindStatusCondition(*tt.conditions(got), tt.kind)
			if c == nil || c.Status != metav1.ConditionFalse || c.Reason != reasonReconcileFailed || !strings.Contains(c.Message, tt.says) {
				t.Errorf("the condition is %+v, want False, %s, and %q", c, reasonReconcileFailed, tt.says)
			}
			if n := l.heard.count(reasonReconcileFailed); n != 1 {
				t.Errorf("it was told %d times, want once", n)
			}
		})
	}
}

// An outage is reported once it lasts, with pauses that grow, and starts again after an answer.
func TestOutages(t *testing.T) {
	var s outages[string]
	now := time.Unix(1e9, 0)
	var got []string
	note := func(after time.Duration) {
		now = now.Add(after)
		again, lasting := s.lasts("x", now)
		got = append(got, fmt.Sprint(lasting, " ", again))
	}
	note(0)
	note(patience - time.Second)
	note(time.Second)
	note(time.Second)
	if _, lasting := s.lasts("y", now); lasting {
		t.Error("an outage of another is taken for one of this")
	}
	s.over("x")
	note(time.Hour)
	want := []string{"false 0s", "false 0s", "true 5s", "true 10s", "false 0s"}
	if !slices.Equal(got, want) {
		t.Errorf("the outage goes %q, want %q", got, want)
	}
	if err := errors.Join(reported{errors.New("x")}); !errors.As(err, new(reported)) {
		t.Error("an error that the status has is not recognised")
	}
}
