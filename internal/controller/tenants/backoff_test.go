package tenants

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/terrier-iac/terrier/internal/tenant"
)

// refusedService is a Service that no API server takes; address is YAML.
func refusedService(address string) string {
	return "services:\n- id: web\n  nameTemplate: \"{{ .uid }}-web\"\n  spec: {apiVersion: v1, kind: Service, spec: {clusterIP: " + address + ", ports: [{port: 80}]}}"
}

// writesSince counts the attempts to write objects since it was last called.
func (l *lab) writesSince() int {
	return len(slices.DeleteFunc(l.line.since(), func(r string) bool {
		return strings.HasPrefix(r, http.MethodGet) || strings.Contains(r, "/tenants/")
	}))
}

// pauses lets so many attempts come due one after another, and returns how long
// the reconciler wanted to wait after each.
func (l *lab) pauses(attempts int) (all []time.Duration) {
	l.t.Helper()
	for range attempts {
		l.writesSince()
		result := l.look()
		if n := l.writesSince(); n != 1 {
			l.t.Errorf("an attempt that is due made %d writes, want 1", n)
		}
		all = append(all, result.RequeueAfter)
		next := l.get().Status.Resources[0].NextAttempt
		if next == nil || next.Sub(l.clock().Truncate(time.Second)) != result.RequeueAfter {
			l.t.Errorf("the status says that the next attempt is at %v, want in %s", next, result.RequeueAfter)
		}
		l.look()
		if n := l.writesSince(); n != 0 {
			l.t.Errorf("a look before the attempt is due made %d writes", n)
		}
		l.later(result.RequeueAfter + time.Second)
	}
	return all
}

// What the API server refuses is tried after longer and longer pauses, says when,
// and is tried at once when anything that it depends on is something else.
func TestRefusedWritesAreTriedLessAndLess(t *testing.T) {
	second, minute := time.Second, time.Minute
	want := []time.Duration{5 * second, 10 * second, 20 * second, 40 * second, 80 * second, 160 * second, 5 * minute, 5 * minute}
	for name, manifest := range map[string]string{
		"an invalid object": refusedService(`"no address"`),
		"a forbidden write": "serviceAccountName: nobody\nconfigMaps:" + configMap("web"),
	} {
		t.Run(name, func(t *testing.T) {
			l := newLab(t)
			l.tenant(manifest)
			if got := l.pauses(len(want)); !slices.Equal(got, want) {
				t.Errorf("the pauses are %v, want %v", got, want)
			}
			l.look()
			if n := l.heard.count("Warning"); n != 1 {
				t.Errorf("%d warnings of one failure:\n%s", n, strings.Join(l.heard.all, "\n"))
			}
		})
	}
}

func TestRefusedWritesAreTriedAtOnceAfterAChange(t *testing.T) {
	l := newLab(t)
	row := func(address string) string { return `kubernetes-tenants.org/extra: '{"address":"` + address + `"}'` }
	template := refusedService(`"{{ .address }}"`)
	l.tenant(template, row("none"))
	for range 5 {
		l.later(l.look().RequeueAfter + time.Second)
	}
	l.look()
	for _, change := range []struct {
		what string
		make func()
	}{
		{"of the row", func() { l.tenant(template, row("nowhere")) }},
		{"of the template", func() { l.tenant(strings.Replace(template, "port: 80", "port: 81", 1), row("nowhere")) }},
		{"of the Tenant", func() {
			l.tenant(strings.Replace(template, "port: 80", "port: 81", 1), row("nowhere"), "example.com/asked: now")
		}},
	} {
		l.look()
		l.writesSince()
		change.make()
		l.writesSince()
		result := l.look()
		if n := l.writesSince(); n != 1 || result.RequeueAfter != firstPause {
			t.Errorf("after a change %s there were %d writes and a pause of %s, want one and %s", change.what, n, result.RequeueAfter, firstPause)
		}
	}
	l.tenant(template, row("None"))
	l.look()
	l.wantStates("once it is right", "")
}

// A template that cannot be rendered is not rendered again before it changes.
func TestWhatCannotBeRenderedIsNotTriedAgain(t *testing.T) {
	l := newLab(t)
	l.tenant("configMaps:" + configMap("config", "annotationsTemplate: {x: '{{ .nope }}'}"))
	if result := l.look(); result.RequeueAfter != 0 {
		t.Errorf("it is looked at again after %s, want not before something changes", result.RequeueAfter)
	}
	l.wantStates("with a variable that is not there", "config Failed TemplateRenderError")
	if next := l.get().Status.Resources[0].NextAttempt; next != nil {
		t.Errorf("the status says that it is tried again at %s", next)
	}
	l.tenant("configMaps:" + configMap("config"))
	l.look()
	l.wantStates("once it is right", "")
}

// An invalid condition is reported at once for a Tenant that no webhook has checked,
// and no object is created that would wait for it in vain.
func TestConditionsThatAreNoneAreSaidAtOnce(t *testing.T) {
	for field, expression := range map[string]string{"readyWhen": "object.status.", "includeWhen": "row.uid =="} {
		t.Run(field, func(t *testing.T) {
			l := newLab(t)
			l.tenant("configMaps:" + configMap("config", field+": "+expression) + configMap("after", "dependIds: [config]"))
			l.look()
			l.wantStates("at once", "config Failed TemplateRenderError; after Skipped DependencySkipped")
			if got := l.get().Status.Resources[0].Message; !strings.HasPrefix(got, field+": line 1, column ") {
				t.Errorf("the message is %q, want it to begin with the field and the place", got)
			}
			l.wantThere("ConfigMap", "acme-config", false)
			wantCondition(t, l, "Degraded", "True", "ResourceFailures")
			wantCondition(t, l, "Progressing", "False", "ReconcileComplete")
		})
	}
}

// A Tenant that is refused is not sent again and again; the caller retries one that
// could not be written for another reason.
func TestAttemptsOfTenants(t *testing.T) {
	var m remembered
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	forbidden := apierrors.NewForbidden(schema.GroupResource{Resource: "tenants"}, "a-web", errors.New("exceeded quota"))
	writes := 0
	write := func(err error) func() error {
		return func() error { writes++; return err }
	}
	var waits []time.Duration
	for range 8 {
		r, err := m.attempt("a-web", "x", now, write(forbidden))
		if !apierrors.IsForbidden(err) {
			t.Fatalf("attempt() = %v, want what the server said", err)
		}
		waits = append(waits, r.next.Sub(now))
		if again, err := m.attempt("a-web", "x", now, write(nil)); again.next != r.next || !apierrors.IsForbidden(err) {
			t.Fatalf("an attempt that is not due gives %v and %v", again.next, err)
		}
		now = r.next
	}
	if got, want := fmt.Sprint(waits), "[5s 10s 20s 40s 1m20s 2m40s 5m0s 5m0s]"; got != want || writes != 8 {
		t.Errorf("%d writes with pauses of %s, want 8 and %s", writes, got, want)
	}
	if r, _ := m.attempt("a-web", "y", now, write(forbidden)); r.attempts != 1 {
		t.Errorf("something else is attempt %d, want the first", r.attempts)
	}
	if r, err := m.attempt("a-web", "z", now, write(errors.New("connection refused"))); err == nil || !r.next.IsZero() {
		t.Errorf("a server that is not there gives %v and %v, want the error and no time", r, err)
	}
	if _, err := m.attempt("b-web", "x", now, write(forbidden)); err == nil {
		t.Error("a refusal is no error")
	}
	m.wanted(tenant.Step{Create: []tenant.Creation{{Name: "a-web"}}})
	if len(m.refused) != 0 {
		t.Errorf("%v are remembered though nobody wants them", m.refused)
	}
}
