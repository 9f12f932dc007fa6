package tenants

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	tenantsv1 "github.com/terrier-iac/terrier/api/tenants/v1"
	"github.com/terrier-iac/terrier/internal/kube/children"
	"github.com/terrier-iac/terrier/internal/tenant"
	"github.com/terrier-iac/terrier/internal/tenantapi"
	"github.com/terrier-iac/terrier/internal/testkit"
)

// shopGroups is some of what a tenant of a shop gets.
const shopGroups = `
serviceAccounts:
- {id: account, nameTemplate: "{{ .uid }}-account", spec: {apiVersion: v1, kind: ServiceAccount}}
secrets:
- {id: secret, nameTemplate: "{{ .uid }}-secret", spec: {apiVersion: v1, kind: Secret, stringData: {host: "{{ .host }}"}}}
services:
- {id: service, nameTemplate: "{{ .uid }}-service", spec: {apiVersion: v1, kind: Service, spec: {selector: {a: b}, ports: [{port: 80}]}}}
`

// count is how many requests have a method and all parts.
func count(requests []string, method string, parts ...string) int {
	n := 0
	for _, r := range requests {
		if strings.HasPrefix(r, method+" ") && !slices.ContainsFunc(parts, func(p string) bool { return !strings.Contains(r, p) }) {
			n++
		}
	}
	return n
}

// What a new tenant asks of the API server: each object is made by one request,
// and the status is written when there is something to say.
func TestWhatANewTenantCosts(t *testing.T) {
	l := newLab(t)
	l.run()
	groups := "configMaps:" + configMap("config") + "manifests:" + terraform("stack") + "deployments:" + deployment("app", 1, "waitForReady: false") + shopGroups
	// The first tenant has its kinds watched.
	l.Apply(t, "apiVersion: operator.kubernetes-tenants.org/v1\nkind: Tenant\nmetadata: {name: first-web}\nspec:\n  uid: first\n  templateRef: web\n"+indent(groups))
	made := map[string]children.Key{}
	for kind, name := range map[string]string{"ConfigMap": "config", "Secret": "secret", "Deployment": "app", "Terraform": "stack"} {
		gvk := kindsInTests[kind]
		made["acme-"+name] = children.Key{Group: gvk.Group, Version: gvk.Version, Kind: kind, Namespace: l.Namespace, Name: "acme-" + name}
	}
	made["acme-account"] = children.Key{Version: "v1", Kind: "ServiceAccount", Namespace: l.Namespace, Name: "acme-account"}
	made["acme-service"] = children.Key{Version: "v1", Kind: "Service", Namespace: l.Namespace, Name: "acme-service"}
	testkit.Eventually(t, testkit.Patience, "the kinds are watched", func(context.Context) error {
		for _, key := range made {
			if !l.c.Children.Watches().Unclaimed(key) {
				return fmt.Errorf("%s is not known to be no tenant's", key)
			}
		}
		if l.heard.count("TemplateResourcesApplying") == 0 {
			return errors.New("the first tenant is being looked at")
		}
		return nil
	})
	row := tenant.Row{UID: "acme", HostOrURL: "https://acme.example.com", Activate: "1", Extra: map[string]string{}}
	l.rowSecret(row)
	l.line.since()
	l.heard.forget()

	l.tenant(groups, tenantsv1.AnnotationRow+": "+digestOf(l.c.Key, row))
	var all []string
	seen := func(what string, n int) {
		t.Helper()
		testkit.Eventually(t, testkit.Patience, what, func(context.Context) error {
			all = append(all, l.line.since()...)
			if got := count(all, "GET", "/terraforms/acme-stack"); got < n {
				return fmt.Errorf("the stack was looked at %d times", got)
			}
			return nil
		})
	}
	testkit.Eventually(t, testkit.Patience, "five of six are ready", func(context.Context) error {
		if s := l.get().Status; s.ReadyResources != 5 {
			return errors.New(l.text())
		}
		return nil
	})
	seen("nothing", 0)
	for name, key := range made {
		if gets, applies := count(all, "GET", "/"+name), count(all, "PATCH", "/"+name); gets > 0 || applies != 1 {
			t.Errorf("to make %s it was looked at %d times and applied %d times, want one apply only", key, gets, applies)
		}
	}
	l.stackIs("acme-stack", "Unknown", "Progressing", "Waiting for its turn", 0)
	seen("the stack waits", 1)
	l.stackIs("acme-stack", "Unknown", "Progressing", "Applying", 0)
	seen("the stack is applied", 2)
	l.stackIs("acme-stack", "True", "Ready", "applied", 0)
	testkit.Eventually(t, testkit.Patience, "all are ready", l.calm)
	seen("the stack is ready", 3)
	if got := count(all, "PATCH", "/tenants/acme-web/status"); got > 3 {
		t.Errorf("the status was written %d times, want 3 at most: before anything is made, when it is, and when it is ready", got)
	}
	if got := count(all, "GET", "/secrets/", "acme"); got > 1 {
		t.Errorf("Secrets were read %d times, want the row once:\n%s", got, strings.Join(all, "\n"))
	}
	if got := l.heard.count("Template"); got > 2 || got != l.heard.count(" ") {
		t.Errorf("%d events were told, want 2 at most:\n%s", l.heard.count(" "), strings.Join(l.heard.all, "\n"))
	}
}

// rowSecret keeps a row as a registry does.
func (l *lab) rowSecret(row tenant.Row) {
	l.t.Helper()
	data, err := tenantapi.RowData(row)
	if err != nil {
		l.t.Fatal(err)
	}
	s := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: l.Namespace, Name: tenantapi.RowSecret("acme-web")}, Type: tenantapi.RowSecretType, Data: data}
	if err := l.Client.Create(l.t.Context(), s); err != nil {
		l.t.Fatal(err)
	}
}

// Words for what is on its way are written when they have lasted, and with
// everything else that is.
func TestWordsAreWrittenWhenTheyLast(t *testing.T) {
	l := newLab(t)
	l.tenant("manifests:" + terraform("db"))
	l.look()
	says := func(when, want string) {
		t.Helper()
		if got := l.get().Status.Resources; len(got) != 1 || !strings.Contains(got[0].Message, want) {
			t.Errorf("%s it says %+v, want %q", when, got, want)
		}
	}
	l.stackIs("acme-db", "Unknown", "Progressing", "Waiting for its turn", 0)
	if got := l.look().RequeueAfter; got > statusDebounce {
		t.Errorf("with other words it is looked at after %s, want %s at the latest", got, statusDebounce)
	}
	says("with new words", "has not seen")
	l.later(statusDebounce / 2)
	l.stackIs("acme-db", "Unknown", "Progressing", "Applying", 0)
	l.look()
	says("with newer words", "has not seen")
	l.later(statusDebounce/2 + time.Second)
	l.look()
	says("with words that lasted", "Applying")
	l.stackIs("acme-db", "Unknown", "Progressing", "Writing outputs", 0)
	l.look()
	says("with words after words", "Applying")
	l.stackIs("acme-db", "False", "Stalled", "no such module", 0)
	l.look()
	l.wantStates("with a failure", "db Failed ResourceFailed")
	says("at once with a failure", "no such module")
	l.stackIs("acme-db", "True", "Ready", "applied", 0)
	l.look()
	l.wantStates("as soon as it is ready", "")
}

// A stack that fails is planned again every few seconds, with other words meanwhile.
// The status says soon why it fails, although no words last long.
func TestWordsThatAlternateAreWrittenToo(t *testing.T) {
	l := newLab(t)
	l.tenant("manifests:" + terraform("db"))
	l.look()
	says := func() string {
		t.Helper()
		got := l.get().Status.Resources
		if len(got) != 1 {
			t.Fatalf("it says %+v, want one resource", got)
		}
		return got[0].Message
	}
	l.stackIs("acme-db", "Unknown", "Progressing", "Terraform Planning", 0)
	l.look()
	l.later(statusDebounce + time.Second)
	l.look()
	if !strings.Contains(says(), "Planning") {
		t.Fatalf("it says %q, want words that lasted", says())
	}
	for passed := time.Duration(0); !strings.Contains(says(), "bad queue"); {
		if passed > 2*statusDebounce {
			t.Fatalf("after %s it says %q, want why the stack fails", passed, says())
		}
		l.stackIs("acme-db", "Unknown", "Progressing", "Terraform Planning", 0)
		l.look()
		l.later(time.Second)
		l.stackIs("acme-db", "Unknown", "Progressing", "bad queue", 0)
		next := l.look().RequeueAfter
		if !strings.Contains(says(), "bad queue") && (next <= 0 || next > statusDebounce) {
			t.Errorf("with words that are not written yet it is looked at after %s, want %s at the latest", next, statusDebounce)
		}
		pause := min(14*time.Second, max(next, time.Second))
		l.later(pause)
		l.look()
		passed += time.Second + pause
	}
}
