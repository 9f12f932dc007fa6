package e2e

import (
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/terrier-iac/terrier/api/infra/v1alpha2"
	"github.com/terrier-iac/terrier/internal/testkit"
	"github.com/terrier-iac/terrier/internal/testkit/port"
)

// service is what a stack is said to have built: it answers well or not.
type service struct {
	*httptest.Server
	well  atomic.Bool
	asked atomic.Int64
}

func newService(t *testing.T, well bool) *service {
	t.Helper()
	s := &service{}
	s.well.Store(well)
	s.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.asked.Add(1)
		if r.URL.Path != "/ready" || !s.well.Load() {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
	}))
	t.Cleanup(s.Close)
	return s
}

// checked is a stack whose health is asked for, by its outputs.
func checked(w *testkit.World, address, port, token string) string {
	return inline("app", `approvePlan: auto
retryInterval: 1s
enableInventory: true
healthChecks:
- {name: web, type: http, url: "http://${{ .address }}/ready?token=${{ .token }}"}
- {name: door, type: tcp, address: "{{ .address }}"}`, things(w, port, "a")+fmt.Sprintf(`
output "address" { value = %q }
output "token" {
  value     = %q
  sensitive = true
}
`, address, token))
}

func conditionOf(s *v1alpha2.Terraform, kind string) string {
	c := meta.FindStatusCondition(s.Status.Conditions, kind)
	if c == nil {
		return "none"
	}
	return string(c.Status) + "/" + c.Reason
}

// What was applied counts once it works, after each apply, and what
// depends on it waits until then.
func TestWhatWasAppliedMustBeHealthy(t *testing.T) {
	t.Parallel()
	const token = "canary-health-77c1"
	c := cluster(t)
	w := platform(t).World(t)
	s := newService(t, false)
	address := s.Listener.Addr().String()

	c.Apply(t, checked(w, address, "one", token))
	c.Apply(t, inline("after", "approvePlan: auto\nretryInterval: 1s\ndependsOn: [{name: app}]", things(w, "x", "later")))
	app := c.AwaitReason(t, "app", "HealthChecksFailed")
	want := "1 of 2 health checks failed: web: http://" + address + "/ready?token=(sensitive): answered 503 Service Unavailable, after "
	if got := message(app); !strings.HasPrefix(got, want) || strings.Contains(got, token) {
		t.Errorf("the message is %q, want it to begin with %q", got, want)
	}
	if got := conditionOf(app, "HealthCheck"); got != "False/HealthChecksFailed" {
		t.Errorf("HealthCheck = %s", got)
	}
	// In between, while they are asked again, it says that they are.
	c.Await(t, "after", func(s *v1alpha2.Terraform) error {
		if testkit.HasReason("DependencyNotReady")(s) != nil || !strings.Contains(message(s), "health checks failed") {
			return errors.New("it does not say what it waits for")
		}
		return nil
	})
	if left := w.Named("later"); len(left) != 0 {
		t.Errorf("a stack that depends on what is not well has built %+v", left)
	}
	applied := app.Status.Plan.LastApplied

	// Only the checks are asked again.
	before := s.asked.Load()
	c.Await(t, "app", func(*v1alpha2.Terraform) error {
		if s.asked.Load() < before+2 {
			return errors.New("it is not asked again")
		}
		return nil
	})
	if n := len(w.Named("a")); n != 1 {
		t.Errorf("the world holds a %d times", n)
	}
	s.well.Store(true)
	app = c.AwaitReady(t, "app")
	if got := conditionOf(app, "HealthCheck"); got != "True/HealthChecksSucceed" || app.Status.Plan.LastApplied != applied || app.Status.ReconciliationFailures != 0 {
		t.Errorf("HealthCheck = %s after %d failures, with %s applied; want it well, and %s", got, app.Status.ReconciliationFailures, app.Status.Plan.LastApplied, applied)
	}
	c.AwaitReady(t, "after")

	// The second apply is asked for its health like the first.
	gone := port.Address(t) // no server listens there
	c.Apply(t, checked(w, gone, "two", token))
	app = c.AwaitReason(t, "app", "HealthChecksFailed")
	for _, part := range []string{"2 of 2 health checks failed", "web: http://" + gone + "/ready", "door: " + gone + ": connect: connection refused"} {
		if !strings.Contains(message(app), part) {
			t.Errorf("the message is %q, want %q in it", message(app), part)
		}
	}
	if got := conditionOf(app, "Apply"); got != "True/TerraformAppliedSucceed" {
		t.Errorf("Apply = %s, want it to stand", got)
	}
	if raw := string(app.Status.Terrier.Memory.Raw); strings.Contains(raw, token) {
		t.Errorf("the memory holds the token: %s", raw)
	}

	// Nothing is asked of a stack that asks for nothing.
	c.Patch(t, "app", `{"spec":{"healthChecks":null}}`)
	app = c.AwaitReady(t, "app")
	if got := conditionOf(app, "HealthCheck"); got != "none" {
		t.Errorf("HealthCheck = %s without any check", got)
	}
}

// An output that is not there fails the check that needs it, by name.
func TestHealthCheckNamesTheOutputItLacks(t *testing.T) {
	c := cluster(t)
	w := platform(t).World(t)
	c.Apply(t, inline("app", `approvePlan: auto
retryInterval: 1s
healthChecks: [{name: web, type: http, url: "${{ .endpoint }}/ready"}]`, things(w, "x", "a")))
	app := c.AwaitReason(t, "app", "HealthChecksFailed")
	if got, want := message(app), `1 of 1 health checks failed: web: the module has no output "endpoint"`; got != want {
		t.Errorf("the message is %q, want %q", got, want)
	}
}

// Checks are made from where the run is: one without a network reaches nothing,
// not even what listens on the machine.
func TestHealthChecksStayInTheSandbox(t *testing.T) {
	c := cluster(t)
	w := platform(t).World(t)
	s := newService(t, true)
	manifest := inline("app", `approvePlan: auto
retryInterval: 1s
healthChecks: [{name: web, type: http, url: "`+s.URL+`/ready"}]`, things(w, "x", "a"))
	c.Apply(t, strings.Replace(manifest, "metadata: {name: app}", `metadata: {name: app, annotations: {terrier.dev/network: none}}`, 1))
	c.AwaitReason(t, "app", "HealthChecksFailed")
	if n := s.asked.Load(); n != 0 {
		t.Errorf("the service was asked %d times by a run without a network", n)
	}
	c.Patch(t, "app", `{"metadata":{"annotations":{"terrier.dev/network":null}}}`)
	c.AwaitReady(t, "app")
	if n := s.asked.Load(); n == 0 {
		t.Error("the service was never asked")
	}
}

// What exists is listed after each apply, for as long as it is wanted, for each kind
// of backend.
func TestInventoryFollowsTheState(t *testing.T) {
	c := cluster(t)
	w := platform(t).World(t)
	server := httptest.NewServer(&stateServer{})
	defer server.Close()
	for name, backend := range map[string]string{
		"ours":   "",
		"theirs": "\nbackendConfig:\n  customConfiguration: |\n    backend \"http\" {\n      address = \"" + server.URL + "\"\n    }",
	} {
		t.Run(name, func(t *testing.T) {
			c.Apply(t, inline(name, "approvePlan: auto\nenableInventory: true"+backend, things(w, name, name+"-a", name+"-b")))
			s := c.AwaitReady(t, name)
			compareInventory(t, w, s, name+"-a", name+"-b")

			c.Apply(t, inline(name, "approvePlan: auto\nenableInventory: true"+backend, things(w, name, name+"-a")))
			s = c.Await(t, name, func(s *v1alpha2.Terraform) error {
				if len(w.Named(name+"-b")) != 0 {
					return errors.New("b exists")
				}
				return testkit.IsReady(s)
			})
			compareInventory(t, w, s, name+"-a")

			c.Patch(t, name, `{"spec":{"enableInventory":false}}`)
			c.Await(t, name, func(s *v1alpha2.Terraform) error {
				if s.Status.Inventory != nil || s.Status.Terrier.Inventory != nil {
					return fmt.Errorf("it still lists %+v", s.Status.Inventory)
				}
				return nil
			})
		})
	}
	// Of a state that we keep it is made without any run.
	last := c.Stack(t, "ours").Status.LastPlanAt
	c.Patch(t, "ours", `{"spec":{"enableInventory":true}}`)
	s := c.Await(t, "ours", func(s *v1alpha2.Terraform) error {
		if s.Status.Inventory == nil {
			return errors.New("it lists nothing")
		}
		return nil
	})
	compareInventory(t, w, s, "ours-a")
	if !s.Status.LastPlanAt.Equal(last) {
		t.Errorf("a plan was made at %v to list what exists", s.Status.LastPlanAt)
	}
}

func compareInventory(t *testing.T, w *testkit.World, s *v1alpha2.Terraform, names ...string) {
	t.Helper()
	var got, want []v1alpha2.Resource
	for _, n := range names {
		for _, thing := range w.Named(n) {
			want = append(want, v1alpha2.Resource{Name: n, Type: "world_thing", Identifier: thing.ID})
		}
	}
	if s.Status.Inventory != nil {
		got = slices.Clone(s.Status.Inventory.Entries)
	}
	slices.SortFunc(got, func(a, b v1alpha2.Resource) int { return strings.Compare(a.Name, b.Name) })
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("status.inventory (-want +got):\n%s", diff)
	}
}
