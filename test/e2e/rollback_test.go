package e2e

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/terrier-iac/terrier/api/infra/v1alpha2"
	"github.com/terrier-iac/terrier/internal/stack"
	"github.com/terrier-iac/terrier/internal/testkit"
)

// revised is a stack that is rolled back by itself, in a revision of its module.
func revised(w *testkit.World, s *service, value string, names ...string) string {
	object := inline("app", "approvePlan: auto\nretryInterval: 1s\nhealthChecks:\n- {name: web, type: http, url: \"http://${{ .address }}/ready\", timeout: 5s}",
		things(w, value, names...)+fmt.Sprintf("\noutput \"address\" { value = %q }\n", s.Listener.Addr().String()))
	return strings.Replace(object, "metadata: {name: app}", "metadata: {name: app, annotations: {terrier.dev/rollback-on: failed-health}}", 1)
}

// rolledBackFrom is the rollback in the status of a stack, nil if there is none.
func rolledBackFrom(t *testing.T, s *v1alpha2.Terraform) *stack.Rollback {
	t.Helper()
	var m stack.Status
	if err := json.Unmarshal(s.Status.Terrier.Memory.Raw, &m); err != nil {
		t.Fatal(err)
	}
	return m.Rollback
}

// hasValue reports that the world has not one thing of the name a with this value.
func hasValue(w *testkit.World, value string) error {
	found := w.Named("a")
	if len(found) != 1 || found[0].Value == nil || *found[0].Value != value {
		return fmt.Errorf("the world holds %+v, want one of the value %s", found, value)
	}
	return nil
}

// KY-22: a good revision, a bad one, and the good one is there again. The bad one is not tried
// again; another one ends the rollback.
func TestRollback(t *testing.T) {
	t.Parallel()
	c := cluster(t)
	w := platform(t).World(t)
	s := newService(t, true)

	c.Apply(t, revised(w, s, "good", "a"))
	c.AwaitReady(t, "app")
	s.well.Store(false)
	c.Apply(t, revised(w, s, "bad", "a"))
	awaitValue(t, w, "a", "bad")
	awaitValue(t, w, "a", "good")
	s.well.Store(true)
	app := c.AwaitReason(t, "app", string(stack.RolledBack))
	b := rolledBackFrom(t, app)
	if b == nil || !strings.Contains(message(app), "since the health checks failed: 1 of 1 health checks failed: web") {
		t.Fatalf("it is rolled back by %+v, and says %q", b, message(app))
	}
	awaitEvents(t, c, "app", " RolledBack ")

	// A request for a plan plans what is there.
	c.Patch(t, "app", `{"metadata":{"annotations":{"reconcile.fluxcd.io/requestedAt":"once"}}}`)
	c.Await(t, "app", func(app *v1alpha2.Terraform) error {
		if app.Status.LastHandledReconcileAt != "once" {
			return errors.New("the request is not answered")
		}
		return testkit.HasReason(string(stack.RolledBack))(app)
	})
	if err := hasValue(w, "good"); err != nil {
		t.Error(err)
	}

	c.Apply(t, revised(w, s, "better", "a"))
	app = c.AwaitReady(t, "app")
	if b := rolledBackFrom(t, app); b != nil {
		t.Errorf("it is rolled back by %+v after another revision", b)
	}
	if err := hasValue(w, "better"); err != nil {
		t.Error(err)
	}
}

// A rollback that destroys what the bad revision has made waits for a user.
func TestARollbackThatDestroysWaits(t *testing.T) {
	t.Parallel()
	c := cluster(t)
	w := platform(t).World(t)
	s := newService(t, true)
	c.Apply(t, revised(w, s, "one", "a"))
	c.AwaitReady(t, "app")
	s.well.Store(false)
	c.Apply(t, revised(w, s, "one", "a", "data"))
	app := c.Await(t, "app", func(app *v1alpha2.Terraform) error {
		if app.Status.Plan.Pending == "" || !strings.Contains(message(app), "so it needs an approval") {
			return fmt.Errorf("it says %q", message(app))
		}
		return nil
	})
	if n := w.Named("data"); len(n) != 1 {
		t.Fatalf("the world holds %+v before an approval, want the data", n)
	}
	s.well.Store(true)
	c.Patch(t, "app", `{"metadata":{"annotations":{"terrier.dev/confirm":"`+app.Status.Plan.Pending+`"}}}`)
	c.AwaitReason(t, "app", string(stack.RolledBack))
	if n := w.Named("data"); len(n) != 0 {
		t.Errorf("the world holds %+v after the approval", n)
	}
}

// A rollback whose apply fails is retried as often as the user says. It stops there, says so, and
// neither goes further back nor forward again.
func TestARollbackThatFailsStops(t *testing.T) {
	t.Parallel()
	c := cluster(t)
	w := platform(t).World(t)
	s := newService(t, true)
	few := func(value string) string {
		return strings.Replace(revised(w, s, value, "a"), "retryInterval: 1s", "retryInterval: 1s\n  remediation: {retries: 1}", 1)
	}
	c.Apply(t, few("good"))
	c.AwaitReady(t, "app")
	s.well.Store(false)
	c.Apply(t, few("bad"))
	awaitValue(t, w, "a", "bad")
	w.Fault(testkit.WorldFault{Call: "update", Name: "a", Do: "fail"}) // the health checks go on until their time is over
	app := c.Await(t, "app", func(app *v1alpha2.Terraform) error {
		if !meta.IsStatusConditionTrue(app.Status.Conditions, "Stalled") || !strings.Contains(message(app), "This was a rollback") {
			return fmt.Errorf("it says %q", message(app))
		}
		return nil
	})
	if !strings.HasSuffix(message(app), "It is not rolled back any further. To plan what the object asks for: terrier rollback app --end") {
		t.Errorf("it says %q", message(app))
	}
	if err := hasValue(w, "bad"); err != nil {
		t.Error(err)
	}

	// A user tries again what was rolled back, which works by now.
	w.Fault()
	s.well.Store(true)
	c.Terrier(t, "rollback", "app", "--end", "--reason", "the service is repaired")
	c.AwaitReady(t, "app")
	if err := hasValue(w, "bad"); err != nil {
		t.Error(err)
	}
}

// The source of the good revision is gone from its repository: the records have it. A deletion
// during the rollback destroys what is there.
func TestARollbackOfASourceThatIsGone(t *testing.T) {
	t.Parallel()
	c := cluster(t)
	w := platform(t).World(t)
	s := newService(t, true)
	g := testkit.NewGit(t)
	manifest := "---\napiVersion: infra.contrib.fluxcd.io/v1alpha2\nkind: Terraform\nmetadata: {name: app, annotations: {terrier.dev/rollback-on: failed-health}}\nspec:\n" +
		indent(2, "interval: 1h\nretryInterval: 1s\napprovePlan: auto\ndestroyResourcesOnDeletion: true\nsourceRef: {kind: GitRepository, name: code}\n"+
			"healthChecks:\n- {name: web, type: http, url: \"http://${{ .address }}/ready\", timeout: 5s}") + "\n"
	module := func(value string) map[string]string {
		return map[string]string{"main.tf": things(w, value, "a") + fmt.Sprintf("\noutput \"address\" { value = %q }\n", s.Listener.Addr().String())}
	}
	g.Commit(module("good"))
	c.Apply(t, g.Manifest("code")+manifest)
	good := c.AwaitReady(t, "app").Status.LastAppliedRevision
	s.well.Store(false)
	g.Commit(module("bad"))
	fetch(t, c, "bad", metav1.ConditionTrue)
	awaitValue(t, w, "a", "bad")
	awaitValue(t, w, "a", "good")
	s.well.Store(true)
	app := c.AwaitReason(t, "app", string(stack.RolledBack))
	if app.Status.LastAppliedRevision != good {
		t.Errorf("%s is applied, want %s", app.Status.LastAppliedRevision, good)
	}
	c.Delete(t, "app")
	c.AwaitGone(t, "app")
	made(t, w)
}
