package e2e

import (
	"context"
	"encoding/json"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/terrier-iac/terrier/api/infra/v1alpha2"
	"github.com/terrier-iac/terrier/internal/policy"
	"github.com/terrier-iac/terrier/internal/testkit"
)

// policed applies a ClusterPolicy for the namespace of the test, which goes with the test.
// Its name is that of the namespace.
func policed(t *testing.T, c *testkit.Cluster, spec string) string {
	t.Helper()
	applied := c.Apply(t, "apiVersion: policy.terrier.dev/v1alpha1\nkind: ClusterPolicy\nmetadata: {name: "+c.Namespace+"}\nspec:\n  selector: {namespaces: ["+c.Namespace+"]}\n"+indent(2, spec)+"\n")
	t.Cleanup(func() {
		if err := client.IgnoreNotFound(c.Client.Delete(context.WithoutCancel(t.Context()), applied[0])); err != nil {
			t.Errorf("deleting the policy: %v", err)
		}
	})
	return "ClusterPolicy/" + c.Namespace
}

// awaitPolicy waits until the status of a policy counts these stacks.
func awaitPolicy(t *testing.T, c *testkit.Cluster, want func(status map[string]any) bool) {
	t.Helper()
	testkit.Eventually(t, testkit.Patience, "the policy counts its stacks", func(ctx context.Context) error {
		var o unstructured.Unstructured
		o.SetAPIVersion("policy.terrier.dev/v1alpha1")
		o.SetKind("ClusterPolicy")
		if err := c.Client.Get(ctx, client.ObjectKey{Name: c.Namespace}, &o); err != nil {
			return err
		}
		status, _ := o.Object["status"].(map[string]any)
		if !want(status) {
			text, _ := json.Marshal(status)
			return errNot("counted yet: " + string(text))
		}
		return nil
	})
}

// heldBy waits for a pending plan that a policy holds.
func heldBy(name string) func(*v1alpha2.Terraform) error {
	return func(s *v1alpha2.Terraform) error {
		if !strings.Contains(message(s), "held by "+name) {
			return errNot("held by " + name)
		}
		return testkit.HasReason("TerraformPlannedWithChanges")(s)
	}
}

// A plan that destroys waits for a user, although the stack applies plans by itself; one
// that only creates does not. It is approved with kubectl, the command line and the page.
func TestAPolicyHoldsDestroys(t *testing.T) {
	t.Parallel()
	c := cluster(t)
	p := platform(t)
	w := p.World(t)
	name := policed(t, c, "guards: {maxDestroys: 0}")
	for stack, approve := range map[string]func(t *testing.T, s *v1alpha2.Terraform){
		"kubectl": func(t *testing.T, s *v1alpha2.Terraform) {
			c.Patch(t, "kubectl", `{"spec":{"approvePlan":"`+s.Status.Plan.Pending+`"}}`)
		},
		"cli": func(t *testing.T, _ *v1alpha2.Terraform) {
			for _, command := range []string{"plan", "explain"} {
				if out := c.Terrier(t, command, "cli"); !strings.Contains(out, name+" holds: maxDestroys") || !strings.Contains(out, "severity: high") {
					t.Errorf("terrier %s says\n%s", command, out)
				}
			}
			c.Terrier(t, "approve", "cli", "--yes")
		},
		"page": func(t *testing.T, s *v1alpha2.Terraform) {
			browser := signedIn(t, c)
			at := p.HTTP + "/stacks/" + c.Namespace + "/page"
			resp, err := browser.Get(at + "/plan")
			_, body := opened(t, resp, err)
			if !strings.Contains(body, "Findings of policies") || !strings.Contains(body, name) || !strings.Contains(body, "the plan destroys 1 resource, 0 are allowed") {
				t.Errorf("the page of the plan shows\n%s", body)
			}
			digest := regexp.MustCompile(`name="digest" value="([^"]+)"`).FindStringSubmatch(body)
			if digest == nil {
				t.Fatalf("the page of the plan has no form:\n%s", body)
			}
			form := url.Values{"plan": {s.Status.Plan.Pending}, "digest": {digest[1]}, "sure": {"yes"}}
			req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, at+"/approve", strings.NewReader(form.Encode()))
			if err != nil {
				t.Fatal(err)
			}
			req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
			req.Header.Set("Origin", p.HTTP)
			resp, err = browser.Do(req)
			if _, body := opened(t, resp, err); resp.StatusCode != http.StatusOK {
				t.Errorf("approving is answered with %s:\n%s", resp.Status, body)
			}
		},
	} {
		t.Run(stack, func(t *testing.T) {
			keep, gone := stack+"-keep", stack+"-gone"
			c.Apply(t, inline(stack, "approvePlan: auto\ninterval: 1h", things(w, "1", keep, gone)))
			c.AwaitReady(t, stack) // creating needs no approval
			c.Apply(t, inline(stack, "approvePlan: auto\ninterval: 1h", things(w, "1", keep)))
			s := c.Await(t, stack, heldBy(name))
			want := "Plan generated: held by " + name + `: maxDestroys: the plan destroys 1 resource, 0 are allowed: world_thing.` + gone + `. To approve it, annotate it with terrier.dev/confirm=` + s.Status.Plan.Pending + `.`
			if !strings.HasPrefix(message(s), want) {
				t.Errorf("the message is %q, want %q", message(s), want)
			}
			if len(w.Named(gone)) != 1 {
				t.Error("the resource is gone before the approval")
			}
			approve(t, s)
			s = c.Await(t, stack, func(s *v1alpha2.Terraform) error {
				if len(w.Named(gone)) != 0 {
					return errNot("destroyed yet")
				}
				return testkit.IsReady(s)
			})
			var kept policy.Judgement
			status, err := testkit.StatusOf(s)
			if err != nil || status.Applied == nil {
				t.Fatal(status, err)
			}
			record := "stacks/" + string(s.UID) + "/plans/" + strings.TrimPrefix(status.Applied.Digest, "sha256:") + "/verdict.json"
			if err := json.Unmarshal(p.Record(t, record), &kept); err != nil || len(kept.Findings) != 1 || len(kept.Policies) != 1 || kept.Policies[0].Policy != name || kept.Input == "" {
				t.Errorf("the record of the verdict is %+v (%v)", kept, err)
			}
		})
	}
	awaitPolicy(t, c, func(status map[string]any) bool { return status["selected"] == int64(3) })
	out := c.Terrier(t, "audit", "list", "--stack", c.Namespace+"/kubectl", "-o", "json")
	for _, want := range []string{"plan-held", name + ": maxDestroys", "held-by"} {
		if !strings.Contains(out, want) {
			t.Errorf("the audit log does not say %q", want)
		}
	}
}

// A policy wants two users of a group, and not the one who made the stack. A patch of the
// object is no way around it.
func TestTwoUsersApprove(t *testing.T) {
	t.Parallel()
	c := cluster(t)
	w := platform(t).World(t)
	name := policed(t, c, "guards: {maxDestroys: 0}\napproval: {count: 2, groups: [ops], notRequester: true}")
	ann, bob, eve := member(t, c, "ann", "ops"), member(t, c, "bob", "ops"), member(t, c, "eve", "dev")
	patch := func(who client.Client, text string) {
		t.Helper()
		if err := who.Patch(t.Context(), c.Stack(t, "stack"), client.RawPatch(types.MergePatchType, []byte(text))); err != nil {
			t.Fatal(err)
		}
	}
	c.Apply(t, inline("stack", "approvePlan: auto\ninterval: 1h", things(w, "1", "keep", "gone")))
	c.AwaitReady(t, "stack")
	c.Apply(t, inline("stack", "approvePlan: auto\ninterval: 1h", things(w, "1", "keep")))
	plan := c.Await(t, "stack", heldBy(name)).Status.Plan.Pending
	says := func(want string) {
		t.Helper()
		c.Await(t, "stack", func(s *v1alpha2.Terraform) error {
			if !strings.Contains(message(s), want) {
				return errNot("told: " + want + ": " + message(s))
			}
			return nil
		})
		if len(w.Named("gone")) != 1 {
			t.Fatal("the resource is destroyed before two users of the group have approved it")
		}
	}
	patch(eve, `{"spec":{"approvePlan":"`+plan+`"}}`)
	says("the approval of eve does not count: this user is not among those who may approve it")
	patch(ann, `{"metadata":{"annotations":{"terrier.dev/confirm":"`+plan+`"}}}`)
	says("has 1: of ann")
	patch(eve, `{"metadata":{"annotations":{"terrier.dev/approved-by":"`+plan+`\tann\tops\n`+plan+`\tzoe\tops"}}}`)
	says("has 1: of ann")
	patch(bob, `{"metadata":{"annotations":{"terrier.dev/confirm":"`+plan+` as well"}}}`)
	c.Await(t, "stack", func(s *v1alpha2.Terraform) error {
		if len(w.Named("gone")) != 0 {
			return errNot("destroyed yet")
		}
		return testkit.IsReady(s)
	})
	out := c.Terrier(t, "audit", "list", "--stack", c.Namespace+"/stack", "-o", "json")
	for _, want := range []string{`"who":"eve"`, `"who":"ann"`, `"who":"bob"`} {
		if !strings.Contains(strings.ReplaceAll(out, `": "`, `":"`), want) {
			t.Errorf("the audit log has no approval with %s:\n%s", want, out)
		}
	}
}

// signedIn is a browser with the rights of the kubeconfig.
func signedIn(t *testing.T, c *testkit.Cluster) *http.Client {
	t.Helper()
	browser := window(t, c)
	resp, err := browser.Get(strings.TrimSpace(c.Terrier(t, "ui")))
	_, body := opened(t, resp, err)
	code := regexp.MustCompile(`name="code" value="([^"]+)"`).FindStringSubmatch(body)
	if code == nil {
		t.Fatalf("the link shows\n%s", body)
	}
	resp, err = browser.PostForm(platform(t).HTTP+"/sign-in", url.Values{"code": {code[1]}, "to": {"/about"}})
	if at, _ := opened(t, resp, err); at.Path != "/about" {
		t.Fatalf("signing in ends up at %s", at)
	}
	return browser
}

// A policy that changes between a plan and its apply has the pending plan judged again. The
// approval of the former verdict does not count.
func TestAPolicyChangesBetweenPlanAndApply(t *testing.T) {
	t.Parallel()
	c := cluster(t)
	w := platform(t).World(t)
	name := policed(t, c, "guards: {protected: [{types: [world_thing]}]}")
	c.Apply(t, inline("stack", "approvePlan: auto\ninterval: 1h", things(w, "1", "a", "b", "c")))
	c.AwaitReady(t, "stack")
	c.Apply(t, inline("stack", "approvePlan: auto\ninterval: 1h", things(w, "1", "a")))
	first := c.Await(t, "stack", heldBy(name)).Status.Plan.Pending

	// Two verdicts later the plan has the name of neither of the first two.
	policed(t, c, "guards: {maxDestroys: 1}")
	s := c.Await(t, "stack", func(s *v1alpha2.Terraform) error {
		if s.Status.Plan.Pending == first || !strings.Contains(message(s), "maxDestroys: the plan destroys 2 resources, 1 is allowed") {
			return errNot("judged again")
		}
		return nil
	})
	second := s.Status.Plan.Pending
	c.Patch(t, "stack", `{"spec":{"approvePlan":"`+first+`"}}`)
	s = c.Await(t, "stack", func(s *v1alpha2.Terraform) error {
		if !strings.Contains(message(s), `approvePlan is "`+first+`", which is not this plan.`) && !strings.Contains(message(s), `spec.approvePlan is "`+first+`", which is not this plan.`) {
			return errNot("told that the approval does not count")
		}
		return nil
	})
	if s.Status.Plan.Pending != second || len(w.Named("b")) != 1 {
		t.Errorf("the plan is called %s, want %s, and b to be there: %+v", s.Status.Plan.Pending, second, w.Things())
	}
	c.Patch(t, "stack", `{"spec":{"approvePlan":"`+second+`"}}`)
	c.Await(t, "stack", func(s *v1alpha2.Terraform) error {
		if len(w.Named("b")) != 0 {
			return errNot("applied yet")
		}
		return testkit.IsReady(s)
	})
}

// A policy that cannot be evaluated holds every plan, and says which field is wrong. Once it
// is corrected the plan goes on by itself.
func TestABrokenPolicyHolds(t *testing.T) {
	t.Parallel()
	c := cluster(t)
	w := platform(t).World(t)
	name := policed(t, c, "guards: {maxDestroys: 0, windows: [{from: '00:00', to: '24:00', timeZone: Europe/Berlen}]}")
	c.Apply(t, inline("stack", "approvePlan: auto\ninterval: 1h", things(w, "1", "a")))
	s := c.Await(t, "stack", heldBy(name))
	if want := `could not be evaluated: spec: spec.guards.windows[0].timeZone: is "Europe/Berlen", which is no time zone`; !strings.Contains(message(s), want) || len(w.Things()) != 0 {
		t.Errorf("the message is %q, want it to say %q, and nothing applied", message(s), want)
	}
	policed(t, c, "guards: {maxDestroys: 0, windows: [{from: '00:00', to: '24:00', timeZone: Europe/Berlin}]}")
	c.AwaitReady(t, "stack")
}

// A freeze keeps an apply waiting, and says until when. Its end lets it go on.
func TestAFreeze(t *testing.T) {
	t.Parallel()
	c := cluster(t)
	w := platform(t).World(t)
	name := policed(t, c, "guards: {freezes: [{from: '2020-01-01T00:00:00Z', to: '2099-01-01T00:00:00Z', reason: release}]}")
	c.Apply(t, inline("stack", "approvePlan: auto\ninterval: 1h", things(w, "1", "a")))
	s := c.AwaitReason(t, "stack", "ApplyWithheld")
	if !strings.Contains(message(s), "is not applied yet: "+name+": freezes: nothing is applied from 2020-01-01T00:00:00Z to 2099-01-01T00:00:00Z: release.") || len(w.Things()) != 0 {
		t.Errorf("the message is %q", message(s))
	}
	policed(t, c, "guards: {freezes: [{from: '2020-01-01T00:00:00Z', to: '2021-01-01T00:00:00Z'}]}")
	c.AwaitReady(t, "stack")
}

// The destroy of a deleted stack is planned, judged and held. The annotation that retains
// the resources always lets the object go.
func TestAPolicyHoldsADeletion(t *testing.T) {
	t.Parallel()
	c := cluster(t)
	w := platform(t).World(t)
	name := policed(t, c, "guards: {maxDestroys: 0}")
	for _, stack := range []string{"approved", "retained"} {
		c.Apply(t, inline(stack, "approvePlan: auto\ninterval: 1h\ndestroyResourcesOnDeletion: true", things(w, "1", stack)))
		c.AwaitReady(t, stack)
	}
	for _, stack := range []string{"approved", "retained"} {
		if err := c.Client.Delete(t.Context(), c.Stack(t, stack)); err != nil {
			t.Fatal(err)
		}
		s := c.Await(t, stack, heldBy(name))
		if want := "Deletion in progress: the plan " + s.Status.Plan.Pending + " would destroy 1 resource. It is held by " + name; !strings.HasPrefix(message(s), want) || len(w.Named(stack)) != 1 {
			t.Errorf("the message is %q, want %q", message(s), want)
		}
		if stack == "approved" {
			c.Terrier(t, "approve", stack, "--yes")
		} else {
			c.Patch(t, stack, `{"metadata":{"annotations":{"terrier.dev/deletion":"retain"}}}`)
		}
		c.AwaitGone(t, stack)
	}
	if len(w.Named("approved")) != 0 || len(w.Named("retained")) != 1 {
		t.Errorf("the world holds %+v, want the retained resource alone", w.Things())
	}
}

// A stack has guards of its own. One that cannot be read stalls it, and names the annotation.
func TestGuardsOfAStack(t *testing.T) {
	t.Parallel()
	c := cluster(t)
	w := platform(t).World(t)
	c.Apply(t, inline("stack", "approvePlan: auto\ninterval: 1h", things(w, "1", "a", "b")))
	c.AwaitReady(t, "stack")
	c.Patch(t, "stack", `{"metadata":{"annotations":{"guard.terrier.dev/maxDestroy":"0"}}}`)
	s := c.AwaitReason(t, "stack", "SpecInvalid")
	if want := "the annotation guard.terrier.dev/maxDestroy is no guard; it may be guard.terrier.dev/maxDestroys"; message(s) != want {
		t.Errorf("the message is %q, want %q", message(s), want)
	}
	c.Patch(t, "stack", `{"metadata":{"annotations":{"guard.terrier.dev/maxDestroy":null,"guard.terrier.dev/maxDestroys":"0"}}}`)
	c.AwaitReady(t, "stack")
	c.Apply(t, inline("stack", "approvePlan: auto\ninterval: 1h", things(w, "1", "a")))
	c.Await(t, "stack", heldBy("the annotations of the stack"))
	c.Patch(t, "stack", `{"metadata":{"annotations":{"guard.terrier.dev/maxDestroys":"5"}}}`)
	c.Await(t, "stack", func(s *v1alpha2.Terraform) error {
		if len(w.Named("b")) != 0 {
			return errNot("applied yet")
		}
		return testkit.IsReady(s)
	})
}

// What a definition can check gets one error when it is applied.
func TestPoliciesAreValidated(t *testing.T) {
	t.Parallel()
	c := cluster(t)
	for spec, want := range map[string]string{
		"guards: {maxDestroyedShare: 120%}":                                               "maxDestroyedShare is a share from 0% to 100%, as 20%",
		"guards: {maxDestroys: -1}":                                                       "should be greater than or equal to 0",
		"guards: {windows: [{from: '18:00', to: '08:00'}]}":                               "the window ends before it begins",
		"guards: {windows: [{from: '8:00', to: '18:00'}]}":                                "from and to are times of a day from 00:00 to 24:00, as 08:30",
		"guards: {freezes: [{from: '2027-01-01T00:00:00Z', to: '2026-01-01T00:00:00Z'}]}": "the freeze ends before it begins",
		"guards: {protected: [{attributes: [name]}]}":                                     "set types or addresses",
		"guards: {maxPlanAge: 1d}":                                                        "maxPlanAge is a duration, as 24h or 90m",
		"guards: {maxDestroys: 0, effect: Warn}":                                          `supported values: "Hold", "Deny"`,
		"selector: {}":                                                                    "the policy says nothing: set spec.guards, spec.rego or spec.drift",
		"rego: {path: x}":                                                                 "set either modules or sourceRef",
		"guards: {maxDestroyz: 0}":                                                        `unknown field "spec.guards.maxDestroyz"`,
	} {
		o := &unstructured.Unstructured{}
		o.SetAPIVersion("policy.terrier.dev/v1alpha1")
		o.SetKind("ClusterPolicy")
		o.SetName(c.Namespace + "-invalid")
		object := yamlOf(t, "spec:\n"+indent(2, spec))
		o.Object["spec"] = object["spec"]
		err := c.Client.Create(t.Context(), o, client.FieldValidation("Strict"), client.DryRunAll)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s is answered with %v, want %q", spec, err, want)
			continue
		}
		if lines := regexp.MustCompile(`, spec[.a-zA-Z]*: `).Split(err.Error(), -1); len(lines) > 1 && !strings.Contains(spec, "rego") {
			t.Errorf("%s gets %d errors: %v", spec, len(lines), err)
		}
	}
	own := &unstructured.Unstructured{}
	own.SetAPIVersion("policy.terrier.dev/v1alpha1")
	own.SetKind("Policy")
	own.SetName("p")
	own.SetNamespace(c.Namespace)
	own.Object["spec"] = yamlOf(t, "spec: {guards: {maxDestroys: 0}, selector: {namespaces: ['*']}}")["spec"]
	if err := c.Client.Create(t.Context(), own, client.DryRunAll); err == nil || !strings.Contains(err.Error(), "a Policy selects stacks of its own namespace") {
		t.Errorf("a Policy for all namespaces is answered with %v", err)
	}
}

// A dry run shows and counts what it finds, and changes nothing.
func TestADryRunOfAPolicy(t *testing.T) {
	t.Parallel()
	c := cluster(t)
	w := platform(t).World(t)
	name := policed(t, c, "mode: DryRun\nguards: {maxDestroys: 0, effect: Deny}")
	c.Apply(t, inline("stack", "interval: 1h", things(w, "1", "a")))
	c.Patch(t, "stack", `{"spec":{"approvePlan":"`+c.AwaitPending(t, "stack").Status.Plan.Pending+`"}}`)
	c.AwaitReady(t, "stack")
	c.Apply(t, inline("stack", "interval: 1h\napprovePlan: wait", w.HCL()))
	s := c.AwaitPending(t, "stack")
	if out := c.Terrier(t, "explain", "stack"); !strings.Contains(out, name+" dry run: deny: maxDestroys") {
		t.Errorf("terrier explain says\n%s", out)
	}
	awaitPolicy(t, c, func(status map[string]any) bool {
		found, _ := status["findings"].(map[string]any)
		return found["dryRun"] == int64(1) && found["deny"] == nil
	})
	c.Patch(t, "stack", `{"spec":{"approvePlan":"`+s.Status.Plan.Pending+`"}}`)
	c.Await(t, "stack", func(s *v1alpha2.Terraform) error {
		if len(w.Things()) != 0 {
			return errNot("applied yet")
		}
		return testkit.IsReady(s)
	})
}

// yamlOf is a piece of YAML.
func yamlOf(t *testing.T, text string) map[string]any {
	t.Helper()
	out := map[string]any{}
	if err := yaml.Unmarshal([]byte(text), &out); err != nil {
		t.Fatal(err)
	}
	return out
}
