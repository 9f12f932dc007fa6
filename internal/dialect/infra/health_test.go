package infra

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/terrier-iac/terrier/api/infra/v1alpha2"
	"github.com/terrier-iac/terrier/internal/dialect"
	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/stack"
)

const checked = `
values: {hcl: x}
enableInventory: true
healthChecks:
- {name: web, type: http, url: "https://${{ .host }}/", timeout: 5s}
- {name: db, type: tcp, address: "{{ .db }}:5432"}
- {name: odd, type: tcp, address: "a:1", url: "ignored", timeout: -1s}
`

func TestDecodeHealthChecks(t *testing.T) {
	obj := object(t, checked)
	s, p, _, err := Decode(obj, Defaults{})
	if err != nil {
		t.Fatal(err)
	}
	want := []stack.Check{
		{Name: "web", Kind: stack.HTTPCheck, Target: "https://${{ .host }}/", Timeout: 5 * time.Second},
		{Name: "db", Kind: stack.TCPCheck, Target: "{{ .db }}:5432"},
		{Name: "odd", Kind: stack.TCPCheck, Target: "a:1"},
	}
	if diff := cmp.Diff(p.Checks, want); diff != "" || !p.Inventory {
		t.Errorf("inventory %v, checks (-got +want):\n%s", p.Inventory, diff)
	}
	before := p.Shape()
	obj.Spec.HealthChecks[0].URL = "https://other/"
	changed, p, _, err := Decode(obj, Defaults{})
	if err != nil || changed.Health == s.Health || p.Shape() != before {
		t.Errorf("Decode() = %v: a change of a check must be asked anew (%q, then %q), and void no approval", err, s.Health, changed.Health)
	}
	obj.Spec.HealthChecks = nil
	if s, _, _, err := Decode(obj, Defaults{}); err != nil || s.Health != "" {
		t.Errorf("Decode() = %q, %v; want nothing to be asked", s.Health, err)
	}
}

func TestDecodeRefusesHealthChecks(t *testing.T) {
	for name, tt := range map[string]struct{ check, want string }{
		"another type":             {`{name: a, type: icmp, address: x}`, `spec.healthChecks[0].type is "icmp", not tcp or http`},
		"http without a URL":       {`{name: a, type: http, address: "x:1"}`, "spec.healthChecks[0].url is empty, and the type is http"},
		"tcp without an address":   {`{name: a, type: tcp, url: "http://x/", address: " "}`, "spec.healthChecks[0].address is empty, and the type is tcp"},
		"a template that is not":   {`{name: a, type: tcp, address: "{{ .x:1"}`, "reading the template in spec.healthChecks[0].address"},
		"a function that is not":   {`{name: a, type: http, url: "https://${{ env 1 }}/"}`, "reading the template in spec.healthChecks[0].url"},
		"more than anybody checks": {strings.Repeat(`{name: a, type: tcp, address: "x:1"},`, 257), "spec.healthChecks has 257 checks, more than 256"},
	} {
		_, _, _, err := Decode(object(t, "{values: {hcl: x}, healthChecks: ["+tt.check+"]}"), Defaults{})
		if fault.Of(err) != fault.Invalid || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: Decode() = %v, want Invalid: %s", name, err, tt.want)
		}
	}
}

// The condition is about the last apply, where upstream's is about the first.
func TestHealthCheckCondition(t *testing.T) {
	obj := object(t, checked)
	s, _, _, err := Decode(obj, Defaults{})
	if err != nil {
		t.Fatal(err)
	}
	healthy := stack.HealthKey(s.Health, "apply-1")
	failed := stack.Status{LastWrite: "apply-2", Resources: stack.Resources{Healthy: healthy, Created: true}, Failure: stack.Failure{Failures: 2, FailedKind: stack.HealthRun, FailedStep: "health", FailedWith: "1 of 2 health checks failed: web: …"}}
	for _, step := range []struct {
		name string
		m    stack.Status
		want string // status/reason message; empty for no condition
	}{
		{"nothing was applied", stack.Status{}, ""},
		{"applied and not asked yet", stack.Status{LastWrite: "apply-1", Resources: stack.Resources{Created: true}}, "Unknown/Progressing The health checks have not run since the newest apply"},
		{"healthy", stack.Status{LastWrite: "apply-1", Resources: stack.Resources{Healthy: healthy, Created: true}}, "True/HealthChecksSucceed Health checks succeeded"},
		{"a plan failed since", stack.Status{LastWrite: "apply-1", Resources: stack.Resources{Healthy: healthy, Created: true}, Failure: stack.Failure{Failures: 1, FailedKind: stack.PlanRun}}, "True/HealthChecksSucceed Health checks succeeded"},
		{"applied again", stack.Status{LastWrite: "apply-2", Resources: stack.Resources{Healthy: healthy, Created: true}}, "Unknown/Progressing The health checks have not run since the newest apply"},
		{"not healthy", failed, "False/HealthChecksFailed 1 of 2 health checks failed: web: …"},
		{"taken down", stack.Status{LastWrite: "destroy-3", Resources: stack.Resources{Healthy: healthy, Destroyed: true}}, ""},
	} {
		Dialect{}.Encode(obj, dialect.Summary{Decision: stack.Decision{Ready: stack.Reconciling, Reason: stack.RetryLater}, Status: step.m, Now: noon})
		if got := shown(obj, ConditionHealthCheck); got != step.want {
			t.Errorf("%s: HealthCheck = %q, want %q", step.name, got, step.want)
		}
	}
	Dialect{}.Encode(obj, dialect.Summary{Decision: stack.Decision{Ready: stack.Reconciling, Reason: stack.RetryLater, Message: failed.FailedWith}, Status: failed, Now: noon})
	if got, want := shown(obj, dialect.ConditionReady), "False/HealthChecksFailed "+failed.FailedWith; got != want {
		t.Errorf("Ready = %q, want %q", got, want)
	}
	if ok, why := (Dialect{}).Ready(obj); ok || why != failed.FailedWith {
		t.Errorf("Ready() = %v, %q; want others to wait", ok, why)
	}
	if got := (Dialect{}).EventReason(stack.Run{Kind: stack.HealthRun, Outcome: stack.TimedOut}); got != "HealthChecksFailed" {
		t.Errorf("EventReason() = %q", got)
	}
	obj.Spec.HealthChecks = nil
	Dialect{}.Encode(obj, dialect.Summary{Status: failed, Now: noon})
	if got := shown(obj, ConditionHealthCheck); got != "" {
		t.Errorf("HealthCheck = %q without any check", got)
	}
}

func shown(obj *v1alpha2.Terraform, kind string) string {
	c := meta.FindStatusCondition(obj.Status.Conditions, kind)
	if c == nil {
		return ""
	}
	return string(c.Status) + "/" + c.Reason + " " + c.Message
}

// What another controller found stands until something is applied here.
func TestUpstreamsHealthStands(t *testing.T) {
	obj := object(t, checked)
	meta.SetStatusCondition(&obj.Status.Conditions, metav1.Condition{Type: ConditionHealthCheck, Status: metav1.ConditionTrue, Reason: "HealthChecksSucceed"})
	Dialect{}.Encode(obj, dialect.Summary{Status: stack.Status{Resources: stack.Resources{Created: true}}, Now: noon})
	if got := shown(obj, ConditionHealthCheck); got != "True/HealthChecksSucceed " {
		t.Errorf("HealthCheck = %q, want what upstream wrote", got)
	}
}

func TestEncodeInventory(t *testing.T) {
	obj := object(t, checked)
	encode := func(inv *dialect.Inventory) {
		Dialect{}.Encode(obj, dialect.Summary{Inventory: inv, Now: noon})
	}
	encode(nil)
	if obj.Status.Inventory != nil {
		t.Errorf("inventory = %+v before anything is known", obj.Status.Inventory)
	}
	encode(&dialect.Inventory{Of: "sha256:1", Items: []dialect.Item{{Name: "b", Type: "aws_bucket", ID: "arn:1"}}, More: 3})
	want := &v1alpha2.Inventory{Entries: []v1alpha2.Resource{{Name: "b", Type: "aws_bucket", Identifier: "arn:1"}}}
	more := &v1alpha2.InventoryStatus{Of: "sha256:1", More: 3, Incomplete: "the status has room for 1 resources, and 3 more exist"}
	check := func(when string) {
		t.Helper()
		if diff := cmp.Diff(obj.Status.Inventory, want) + cmp.Diff(obj.Status.Terrier.Inventory, more); diff != "" {
			t.Errorf("%s: (-got +want)\n%s", when, diff)
		}
	}
	check("listed")
	encode(nil)
	check("without news")
	if st, err := (Dialect{}).Decode(obj); err != nil || st.Listed != "sha256:1" {
		t.Errorf("Decode() = %q, %v; want to know what is listed", st.Listed, err)
	}
	encode(&dialect.Inventory{Of: "nothing"})
	want, more = &v1alpha2.Inventory{Entries: []v1alpha2.Resource{}}, &v1alpha2.InventoryStatus{Of: "nothing"}
	check("taken down")
	encode(&dialect.Inventory{Of: "sha256:2", Sealed: true})
	more = &v1alpha2.InventoryStatus{Of: "sha256:2", Incomplete: "the state is encrypted, so that its resources cannot be listed"}
	check("encrypted")

	obj.Status.Inventory = nil // by another writer
	if st, err := (Dialect{}).Decode(obj); err != nil || st.Listed != "" {
		t.Errorf("Decode() = %q, %v; want it listed again", st.Listed, err)
	}
	encode(&dialect.Inventory{Of: "sha256:2"})
	obj.Spec.EnableInventory = false
	encode(nil)
	want, more = nil, nil
	check("not wanted any more")
}
