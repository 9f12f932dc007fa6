package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/terrier-iac/terrier/internal/testkit"
)

// Stacks of scripts are counted, told of and logged as other stacks are.
func TestScriptsAreCountedAndToldOf(t *testing.T) {
	t.Parallel()
	p := testkit.Up(t, "--metrics-address", "127.0.0.1:0", "--log-level", "debug")
	c := p.Cluster(t)
	g := testkit.NewGit(t)
	g.Username = ""
	hash := g.Commit(map[string]string{"terraform/README": "nothing to plan\n"})
	hook := openInbox(t, false)
	c.Apply(t, alert("hook", c.Namespace, hook.URL))
	s := newScripted(t, c, "configmap.yaml", g.URL+"/terraform")
	s.await(t, "Success", hash, hash)
	s.patch(t, `{"spec":{"scripts":{"apply":{"inline":"echo 'the cloud is down' >&2; exit 3","configMapRef":null}}}}`)
	s.await(t, "Failed", "the cloud is down", hash)
	testkit.Eventually(t, testkit.Patience, "what was done is measured", func(ctx context.Context) error {
		all, err := scrapeOf(ctx, p)
		if err != nil {
			return err
		}
		for series, least := range map[string]float64{
			`terrier_runs_total{kind="script",outcome="Succeeded"}`:       1,
			`terrier_runs_total{kind="script",outcome="Failed"}`:          1,
			`terrier_run_seconds_count{kind="script"}`:                    2,
			`terrier_run_step_seconds_count{kind="script",step="script"}`: 2,
			`terrier_run_failures_total{reason="TFExecApplyFailed"}`:      1,
			`terrier_stacks_failing`:                                      1,
			`terrier_stacks{status="failed"}`:                             1,
			`terrier_tenant_stacks_failing{tenant="` + c.Namespace + `"}`: 1,
			`terrier_queue_wait_seconds_count{class="apply"}`:             0,
			`terrier_queue_waiting{class="apply"}`:                        0,
		} {
			name, _, _ := strings.Cut(series, "{")
			f := all[strings.TrimSuffix(name, "_count")]
			if f == nil {
				return fmt.Errorf("there is no metric %s", name)
			}
			got, has := f.series[series]
			if !has || got < least {
				return fmt.Errorf("%s is %v (%v), want at least %v; it has %v", series, got, has, least, f.series)
			}
		}
		return nil
	})
	testkit.Eventually(t, testkit.Patience, "the failure is told", func(context.Context) error {
		for _, n := range hook.all() {
			if n.Severity != "error" {
				continue
			}
			if n.InvolvedObject.Kind != "Terraform" || n.InvolvedObject.Name != s.name || !strings.Contains(n.Message, "the cloud is down") {
				t.Fatalf("the failure was told as %s", n.body)
			}
			return nil
		}
		return fmt.Errorf("told were %d notifications, and none of an error", len(hook.all()))
	})

	s.patch(t, `{"spec":{"scripts":{"apply":{"inline":"exit 0"}}}}`)
	s.await(t, "Success", hash, hash)
	s.delete(t)
	told := map[string]bool{}
	testkit.Eventually(t, testkit.Patience, "each change of the state is told", func(context.Context) error {
		for _, n := range hook.all() {
			told[n.Reason] = true
		}
		for _, reason := range []string{"TerraformAppliedSucceed", "TFExecApplyFailed", "Recovered", "TerraformDestroySucceed"} {
			if !told[reason] {
				return fmt.Errorf("%s was not told, but %v", reason, told)
			}
		}
		return nil
	})
	for _, level := range []string{"level=DEBUG", "level=INFO"} {
		if !strings.Contains(p.Log(), level) {
			t.Errorf("the log has no line of %s", level)
		}
	}
	if events := c.Kubectl(t, "get", "events", "-o", "jsonpath={range .items[*]}{.involvedObject.apiVersion} {.reason}{\"\\n\"}{end}"); !strings.Contains(events, "alustan.io/v1alpha1 TFExecApplyFailed") {
		t.Errorf("the events are %q", events)
	}
}

// delete deletes the object and waits for nothing.
func (s scripted) delete(t *testing.T) {
	t.Helper()
	o, err := s.object(t.Context(), "Terraform", "alustan.io/v1alpha1", s.name)
	if err == nil {
		err = s.Client.Delete(t.Context(), o)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// awaitGone waits until the object does not exist.
func (s scripted) awaitGone(t *testing.T) {
	t.Helper()
	testkit.Eventually(t, testkit.Patience, s.name+" is gone", func(ctx context.Context) error {
		left, err := s.object(ctx, "Terraform", "alustan.io/v1alpha1", s.name)
		if apierrors.IsNotFound(err) {
			return nil
		}
		return errors.Join(err, fmt.Errorf("it is there: %v", left.Object["status"]))
	})
}

// Stacks of two namespaces have nothing in common but their name: each has its state, and
// one outlives the other. A destroy script that fails keeps its object.
func TestScriptsOfTwoNamespaces(t *testing.T) {
	t.Parallel()
	w := platform(t).World(t)
	g := testkit.NewGit(t)
	g.Username = ""
	hash := g.Commit(map[string]string{"terraform/main.tf": w.HCL() + `
variable "var1" {}
resource "world_thing" "a" {
  name = var.var1
}
`})
	var stacks []scripted
	for _, value := range []string{"mine", "yours"} {
		s := newScripted(t, cluster(t), "inline.yaml", g.URL+"/terraform")
		s.patch(t, `{"spec":{"variables":{"var1":"`+value+`"}}}`)
		stacks = append(stacks, s)
	}
	mine, yours := stacks[0], stacks[1]
	for _, s := range stacks { // both have one world
		o, err := s.object(t.Context(), "Terraform", "alustan.io/v1alpha1", s.name)
		if err != nil {
			t.Fatal(err)
		}
		testkit.Others(mine.Cluster, string(o.GetUID()))
		testkit.Others(yours.Cluster, string(o.GetUID()))
	}
	mine.await(t, "Success", hash, hash)
	yours.await(t, "Success", hash, hash)
	if mine.name != yours.name || len(w.Named("mine")) != 1 || len(w.Named("yours")) != 1 {
		t.Fatalf("%s and %s made %+v", mine.name, yours.name, w.Things())
	}
	mine.patch(t, `{"spec":{"scripts":{"destroy":{"inline":"echo 'it is protected' >&2; exit 1"}}}}`)
	mine.await(t, "Success", hash, hash)
	mine.delete(t)
	mine.await(t, "Failed", "it is protected", hash)
	if len(w.Named("mine")) != 1 {
		t.Error("the resource is gone, and its destroy failed")
	}
	mine.patch(t, `{"spec":{"scripts":{"destroy":{"inline":"echo the last words\nterraform destroy -auto-approve"}}}}`)
	mine.awaitGone(t)
	if log := mine.Terrier(t, "logs", mine.name); !strings.Contains(log, "the last words") || !strings.Contains(log, "Destroy complete!") {
		t.Errorf("the log of the last run of the deleted stack is %q, want that of its destroy script", log)
	}
	if len(w.Named("mine")) != 0 || len(w.Named("yours")) != 1 {
		t.Errorf("after one of the two was destroyed there are %+v", w.Things())
	}
	yours.delete(t)
	yours.awaitGone(t)
}

// What a caller of a hook makes up has no effect: only a user with the right is answered,
// and only about what the API server has.
func TestHooksOfAForgedCaller(t *testing.T) {
	c := cluster(t)
	p := platform(t)
	g := testkit.NewGit(t)
	g.Username = ""
	hash := g.Commit(map[string]string{"terraform/README": "nothing to plan\n"})
	s := newScripted(t, c, "configmap.yaml", g.URL+"/terraform")
	s.await(t, "Success", hash, hash)
	o, err := s.object(t.Context(), "Terraform", "alustan.io/v1alpha1", s.name)
	if err != nil {
		t.Fatal(err)
	}
	before := o.DeepCopy()
	h := &http.Client{Transport: trusting(t, c)}
	call := func(method, path, token, body string) (int, string) {
		t.Helper()
		req, err := http.NewRequestWithContext(t.Context(), method, p.HTTP+path, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		if token != "" {
			req.Header.Set("Authorization", "Bearer "+token)
		}
		resp, err := h.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(resp.Body)
		if err := errors.Join(err, resp.Body.Close()); err != nil {
			t.Fatal(err)
		}
		if resp.StatusCode == http.StatusTooManyRequests && resp.Header.Get("Retry-After") == "" {
			t.Errorf("%s is answered with 429 and no Retry-After", path)
		}
		return resp.StatusCode, string(text)
	}
	body := func(change func(map[string]any)) string {
		made := o.DeepCopy().Object
		made["spec"] = map[string]any{"scripts": map[string]any{"apply": map[string]any{"inline": "curl https://evil.example"}}}
		made["status"] = map[string]any{"state": "Failed"}
		change(made)
		text, err := json.Marshal(map[string]any{"controller": map[string]any{}, "parent": made, "children": map[string]any{"Pod.v1": map[string]any{"x": made}}, "related": map[string]any{}})
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	meta := func(key, value string) func(map[string]any) {
		return func(o map[string]any) { o["metadata"].(map[string]any)[key] = value }
	}
	as := func(kind, version string) func(map[string]any) {
		return func(o map[string]any) { o["kind"], o["apiVersion"] = kind, version }
	}
	madeUp := body(func(map[string]any) {})
	admin := c.Config.BearerToken
	c.Kubectl(t, "create", "serviceaccount", "stranger")
	stranger := strings.TrimSpace(c.Kubectl(t, "create", "token", "stranger"))
	for name, tt := range map[string]struct {
		method, path, token, body string
		want                      int
	}{
		"no token":                    {http.MethodPost, "/sync", "", madeUp, http.StatusUnauthorized},
		"a token that is made up":     {http.MethodPost, "/sync", "made-up", madeUp, http.StatusUnauthorized},
		"a user without the right":    {http.MethodPost, "/finalize", stranger, madeUp, http.StatusForbidden},
		"the same about nothing":      {http.MethodPost, "/customize", stranger, "", http.StatusForbidden},
		"a spec that is made up":      {http.MethodPost, "/sync", admin, madeUp, http.StatusOK},
		"an equal name, other UID":    {http.MethodPost, "/sync", admin, body(meta("uid", "0")), http.StatusTooManyRequests},
		"a parent that is unknown":    {http.MethodPost, "/sync", admin, body(meta("name", "unknown")), http.StatusTooManyRequests},
		"a namespace that is unknown": {http.MethodPost, "/sync", admin, body(meta("namespace", "unknown")), http.StatusTooManyRequests},
		"the other kind of stack":     {http.MethodPost, "/sync", admin, body(as("Terraform", "infra.contrib.fluxcd.io/v1alpha2")), http.StatusTooManyRequests},
		"a Secret":                    {http.MethodPost, "/sync", admin, body(as("Secret", "v1")), http.StatusUnprocessableEntity},
		"a version that is not there": {http.MethodPost, "/sync", admin, body(as("Terraform", "alustan.io/v9")), http.StatusOK},
		"no JSON":                     {http.MethodPost, "/sync", admin, "{", http.StatusBadRequest},
		"a body that is too large":    {http.MethodPost, "/sync", admin, strings.Repeat(" ", 8<<20+1), http.StatusRequestEntityTooLarge},
	} {
		if got, text := call(tt.method, tt.path, tt.token, tt.body); got != tt.want {
			t.Errorf("%s: %d %s, want %d", name, got, text, tt.want)
		} else if tt.want == http.StatusOK && (strings.Contains(text, "Failed") || !strings.Contains(text, "Success")) {
			t.Errorf("%s: answered with %s, want the status that the API server has", name, text)
		}
	}
	after, err := s.object(t.Context(), "Terraform", "alustan.io/v1alpha1", s.name)
	if err != nil {
		t.Fatal(err)
	}
	if state, _, _ := unstructured.NestedString(after.Object, "status", "state"); after.GetGeneration() != before.GetGeneration() || state != "Success" {
		t.Errorf("the object was changed: %v, and was %v", after.Object, before.Object)
	}
	s.delete(t)
	s.awaitGone(t)
}

// A hundred equal calls of a hook, as metacontroller sends them, start one run: while the stack
// is new, while its script runs, and when it is applied.
func TestAHundredEqualCallsStartOneRun(t *testing.T) {
	c, p := cluster(t), platform(t)
	g := testkit.NewGit(t)
	g.Username = ""
	g.Commit(map[string]string{"README": "nothing to plan\n"})
	s := newHookStack(t, c, p.Shared(t), g.URL, hookController{composite: true, version: "v2"}, "many", "while ! test -e AT.go; do sleep 0.1; done")
	h := &http.Client{Transport: trusting(t, c)}
	header := http.Header{"Authorization": {"Bearer " + c.Config.BearerToken}, "Content-Type": {"application/json"}}
	calls := func(when string) map[int]int {
		t.Helper()
		o, err := s.get(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		body, err := json.Marshal(map[string]any{"controller": map[string]any{}, "parent": o.Object, "children": map[string]any{}, "related": map[string]any{}, "finalizing": false})
		if err != nil {
			t.Fatal(err)
		}
		answers := callHundredTimes(h, p.HTTP+"/sync", header, body)
		if answers[http.StatusOK]+answers[http.StatusTooManyRequests] != 100 {
			t.Errorf("%s, the answers are %v, want 200 and 429", when, answers)
		}
		return answers
	}
	calls("while the stack is new")
	testkit.Eventually(t, testkit.Patience, "the script runs", func(context.Context) error {
		if s.ran(t) == "" {
			return errors.New("it has not begun")
		}
		return nil
	})
	calls("while its script runs")
	s.touch(t, ".go")
	s.await(t, "Success", "", "")
	testkit.Eventually(t, testkit.Patience, "some of the calls when it is applied are answered with its status", func(context.Context) error {
		if answers := calls("when it is applied"); answers[http.StatusOK] == 0 {
			return fmt.Errorf("the answers are %v", answers)
		}
		return nil
	})
	if got := s.ran(t); got != "apply one" {
		t.Errorf("the scripts ran as %q, want one apply", got)
	}
	var runs struct{ Items []struct{ ID, Kind string } }
	if err := json.Unmarshal([]byte(c.Terrier(t, "runs", "terraform.alustan.io/"+s.name, "-o", "json")), &runs); err != nil {
		t.Fatal(err)
	}
	if len(runs.Items) != 1 || runs.Items[0].Kind != "script" {
		t.Errorf("the runs are %+v, want one of the script", runs.Items)
	}
	s.touch(t, ".allow")
	s.delete(t)
	s.awaitGone(t)
}
