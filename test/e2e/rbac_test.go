package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/terrier-iac/terrier/api/infra/v1alpha2"
	"github.com/terrier-iac/terrier/internal/testkit"
)

// operation is one of the HTTP API, as its document has it.
type operation struct{ id, method, path, right string }

// operations are all of the API.
func operations(t *testing.T) []operation {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(testkit.Repository(t), "internal/web/openapi.json"))
	if err != nil {
		t.Fatal(err)
	}
	var doc struct {
		Paths map[string]map[string]struct {
			ID    string `json:"operationId"`
			Right string `json:"x-terrier-right"`
		} `json:"paths"`
	}
	if err := json.Unmarshal(text, &doc); err != nil {
		t.Fatal(err)
	}
	var all []operation
	for path, methods := range doc.Paths {
		for method, o := range methods {
			all = append(all, operation{o.ID, strings.ToUpper(method), path, o.Right})
		}
	}
	// What suspends a stack or locks its state is taken back by what comes last.
	last := []string{"suspendStack", "resumeStack", "lockState", "unlockState"}
	slices.SortFunc(all, func(a, b operation) int {
		if x, y := slices.Index(last, a.id), slices.Index(last, b.id); x != y {
			return x - y
		}
		return strings.Compare(a.path+a.method, b.path+b.method)
	})
	if len(all) < 60 {
		t.Fatalf("the document has %d operations, want the whole API", len(all))
	}
	return all
}

// further are rights that the cluster asks for when it carries a command out in the name of
// the user, besides that of the operation.
var further = map[string][]string{
	"listPublishedOutputs": {"get secrets"},
	"breakGlass":           {"watch terraforms"},
	"previewDestroy":       {"watch terraforms"},
	"acceptState":          {"patch terraforms"},
	"lockState":            {"update leases"},
	"unlockState":          {"update leases"},
}

// resources are those that the document of the API names otherwise than roles do.
var resources = strings.NewReplacer("registries", "tenantregistries", "templates", "tenanttemplates", "sources", "gitrepositories")

// inWords are the rights of an operation; in is true if its namespace is in the query.
func inWords(right string) (all []string, in bool) {
	right, in = strings.CutSuffix(right, ", in the namespace of the query or in all")
	for one := range strings.SplitSeq(right, "; ") {
		all = append(all, resources.Replace(one))
	}
	return all, in
}

// bodies are those of operations that would do something with an empty one, or do not take it.
var bodies = map[string]string{
	"rollBackState":       `{"preview":true,"version":"1"}`,
	"undoRollout":         `{"preview":true}`,
	"createRegistryToken": `{"name":"matrix"}`,
	"approvePlan":         `{"name":"plan-of-nobody","digest":"sha256:0"}`,
	"rejectPlan":          `{"name":"plan-of-nobody","digest":"sha256:0"}`, "overrideWindow": `{"name":"plan-of-nobody","digest":"sha256:0"}`,
	"cancelRun":      `{"run":"no-such"}`,
	"rollBackStack":  `{"leaves":"no-such"}`,
	"breakLock":      `{"id":"no-such"}`,
	"repairStack":    `{"name":"no-such"}`,
	"orderByHand":    `{"id":"1","session":"none","args":["version"]}`,
	"allowDeletions": `{"token":"none"}`,
	"forgetRetained": `{"uid":"none"}`,
	"lockState":      `{"reason":"matrix"}`,
}

// Every operation of the HTTP API, for every role, in the namespace of the role and in
// another one.
func operationsMatrix(t *testing.T, r *rights, users []*caller, own, other string) {
	for _, u := range users {
		for _, o := range operations(t) {
			if o.right == "any signed-in user" {
				continue // lists of what one may see: listsMatrix
			}
			needs, in := inWords(o.right)
			needs = append(needs, further[o.id]...)
			for _, namespace := range []string{own, other} {
				path := strings.NewReplacer("{namespace}", namespace, "{name}", "net", "{run}", "newest", "{version}", "1", "{system}", "aws").Replace(o.path)
				if in {
					path += "?namespace=" + namespace
				}
				kind, body := "", ""
				if o.method != http.MethodGet {
					kind, body = "application/json", "{}"
					if b, ok := bodies[o.id]; ok {
						body = b
					}
				}
				everywhere := !in && !strings.Contains(o.path, "{namespace}") // which no RoleBinding gives
				may := r.has(t, u.role, needs...) && namespace == own && !everywhere
				status, answer := u.ask(t, o.method, path, kind, body)
				judged(t, fmt.Sprintf("%s: %s in %s", u.role, o.id, namespace), may, status, answer)
				if namespace == own && strings.Contains(answer, other) {
					t.Errorf("%s: %s says something of the other namespace: %.300s", u.role, o.id, answer)
				}
			}
		}
	}
}

// The pages of one stack, with their rights.
func pagesMatrix(t *testing.T, r *rights, users []*caller, own, other string) {
	const stack, retained = "/stacks/NAMESPACE/net", "/retained/NAMESPACE/net"
	for path, right := range map[string]string{
		stack: "get terraforms", stack + "/inputs": "get terraforms", stack + "/events": "get terraforms", stack + "/manifest": "get terraforms", stack + "/graph": "get terraforms",
		stack + "/runs": "get terraforms/log", stack + "/runs/newest": "get terraforms/log", stack + "/runs/newest/log": "get terraforms/log",
		stack + "/plan": "get terraforms/plan", stack + "/drift": "get terraforms/plan", stack + "/outputs": "get terraforms/outputs",
		stack + "/resources": "get terraforms/state", stack + "/states": "get terraforms/state", stack + "/states/1/file": "get terraforms/state", retained + "/state": "get terraforms/state",
		stack + "/break-glass": "patch terraforms", stack + "/repair": "patch terraforms",
		"/tenants/NAMESPACE/net": "get tenants", "/registries/NAMESPACE/net": "get tenantregistries", "/templates/NAMESPACE/net": "get tenanttemplates",
		"/sources/GitRepository/NAMESPACE/net": "get gitrepositories",
	} {
		for _, u := range users {
			for _, namespace := range []string{own, other} {
				status, answer := u.ask(t, http.MethodGet, strings.Replace(path, "NAMESPACE", namespace, 1), "", "")
				judged(t, u.role+": the page "+path+" of "+namespace, namespace == own && r.has(t, u.role, right), status, answer)
			}
		}
	}
	// Forms with nothing in them: who may send them is told what is missing, or that it was
	// done to no effect.
	harmless := url.Values{"plan": {"plan-of-nobody"}, "digest": {"sha256:0"}, "sure": {"yes"}, "id": {"none"}, "run": {"none"}, "name": {"none"}, "confirm": {"no"}}.Encode()
	for path, right := range map[string]string{
		stack + "/approve": "patch terraforms", stack + "/reject": "patch terraforms", stack + "/cancel": "patch terraforms", stack + "/repair": "patch terraforms",
		stack + "/drift/accept": "patch terraforms", stack + "/rollback": "patch terraforms",
		stack + "/replan": "patch terraforms", stack + "/break-glass/run": "patch terraforms", stack + "/break-glass/end": "patch terraforms",
		stack + "/override-window": "update terraforms/windows", stack + "/states/rollback": "update terraforms/state", stack + "/states/store": "update terraforms/state", stack + "/states/push": "update terraforms/state",
		retained + "/forget": "delete terraforms", "/registries/NAMESPACE/net/allow": "patch tenantregistries", "/registries/NAMESPACE/net/read": "patch tenantregistries",
		"/registries/NAMESPACE/net/suspend": "patch tenantregistries", "/templates/NAMESPACE/net/resume": "patch tenanttemplates", "/templates/NAMESPACE/net/undo": "update tenanttemplates",
	} {
		for _, u := range users {
			for _, namespace := range []string{own, other} {
				status, answer := u.ask(t, http.MethodPost, strings.Replace(path, "NAMESPACE", namespace, 1), "application/x-www-form-urlencoded", harmless)
				judged(t, u.role+": the form "+path+" of "+namespace, namespace == own && r.has(t, u.role, right), status, answer)
			}
		}
	}
	// Those that do something are tried by users who may not.
	for path, right := range map[string]string{
		stack + "/suspend": "patch terraforms", stack + "/resume": "patch terraforms", stack + "/break-glass": "patch terraforms", stack + "/unlock": "patch terraforms",
		stack + "/preview-destroy": "patch terraforms", stack + "/states/accept": "update terraforms/state", stack + "/states/lock": "update terraforms/state",
		stack + "/states/unlock": "update terraforms/state", "/registries/NAMESPACE/net/resume": "patch tenantregistries",
	} {
		for _, u := range users {
			for _, namespace := range []string{own, other} {
				if namespace == own && r.has(t, u.role, right) {
					continue
				}
				status, answer := u.ask(t, http.MethodPost, strings.Replace(path, "NAMESPACE", namespace, 1), "application/x-www-form-urlencoded", harmless)
				judged(t, u.role+": the form "+path+" of "+namespace, false, status, answer)
			}
		}
	}
}

// What kubectl can ask for.
func kubectlMatrix(t *testing.T, r *rights, users []*caller, own, other string) {
	const none = "net-of-nobody"
	group := map[string]schema.GroupVersionKind{
		"terraforms":       {Group: "infra.contrib.fluxcd.io", Version: "v1alpha2", Kind: "Terraform"},
		"secrets":          {Version: "v1", Kind: "Secret"},
		"leases":           {Group: "coordination.k8s.io", Version: "v1", Kind: "Lease"},
		"tenants":          {Group: "operator.kubernetes-tenants.org", Version: "v1", Kind: "Tenant"},
		"tenantregistries": {Group: "operator.kubernetes-tenants.org", Version: "v1", Kind: "TenantRegistry"},
		"tenanttemplates":  {Group: "operator.kubernetes-tenants.org", Version: "v1", Kind: "TenantTemplate"},
		"gitrepositories":  {Group: "source.toolkit.fluxcd.io", Version: "v1", Kind: "GitRepository"},
		"policies":         {Group: "policy.terrier.dev", Version: "v1alpha1", Kind: "Policy"},
		"clusterpolicies":  {Group: "policy.terrier.dev", Version: "v1alpha1", Kind: "ClusterPolicy"},
		"rolebindings":     {Group: "rbac.authorization.k8s.io", Version: "v1", Kind: "RoleBinding"},
	}
	for right := range r.of {
		verb, resource, _ := strings.Cut(right, " ")
		resource, part, _ := strings.Cut(resource, "/")
		if part != "" && part != "status" {
			continue // the API server serves no such part; the HTTP API does
		}
		kind, known := group[resource]
		if !known {
			t.Fatalf("no request is about %s", resource)
		}
		for _, u := range users {
			for _, namespace := range []string{own, other} {
				what := fmt.Sprintf("%s: kubectl %s in %s", u.role, right, namespace)
				may := namespace == own && r.has(t, u.role, right)
				o := &unstructured.Unstructured{}
				o.SetGroupVersionKind(kind)
				o.SetNamespace(namespace)
				o.SetName(none)
				if resource == "clusterpolicies" {
					o.SetNamespace("")
				}
				patch := client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"labels":{"a":"b"}}}`))
				var err error
				switch verb {
				case "get":
					err = u.Get(t.Context(), client.ObjectKeyFromObject(o), o)
				case "list":
					l := &unstructured.UnstructuredList{}
					l.SetGroupVersionKind(kind.GroupVersion().WithKind(kind.Kind + "List"))
					err = u.List(t.Context(), l, client.InNamespace(o.GetNamespace()))
				case "watch":
					l := &unstructured.UnstructuredList{}
					l.SetGroupVersionKind(kind.GroupVersion().WithKind(kind.Kind + "List"))
					var w watch.Interface
					if w, err = u.Watch(t.Context(), l, client.InNamespace(o.GetNamespace())); err == nil {
						w.Stop()
					}
				case "create":
					o.Object["spec"] = map[string]any{}
					if resource == "rolebindings" {
						delete(o.Object, "spec")
						o.Object["roleRef"] = map[string]any{"apiGroup": rbacv1.GroupName, "kind": "ClusterRole", "name": "admin"}
					}
					err = u.Create(t.Context(), o, client.DryRunAll)
				case "update":
					o.SetResourceVersion("1")
					err = u.Update(t.Context(), o, client.DryRunAll)
				case "patch":
					if part == "status" {
						err = u.Status().Patch(t.Context(), o, patch, client.DryRunAll)
					} else {
						err = u.Patch(t.Context(), o, patch, client.DryRunAll)
					}
				case "delete":
					err = u.Delete(t.Context(), o, client.DryRunAll)
				default:
					t.Fatalf("no request does %s", verb)
				}
				if !apierrors.IsForbidden(err) && !apierrors.IsNotFound(err) && !apierrors.IsInvalid(err) && !apierrors.IsConflict(err) && err != nil {
					t.Errorf("%s: %v", what, err)
				}
				r.asked[right] = true
				if apierrors.IsForbidden(err) == may {
					t.Errorf("%s: %v, and the table says that it is allowed: %t", what, err, may)
				}
			}
		}
	}
}

// LQ-65: who may do what, for each role, with kubectl, the HTTP API and the pages, in the
// namespace of the role and in that of another tenant. The expectations are the table of
// docs/rbac.md.
func TestWhoMayDoWhat(t *testing.T) {
	t.Parallel()
	a, b := cluster(t), cluster(t)
	r := rightsOfThePage(t, a)
	for _, c := range []*testkit.Cluster{a, b} {
		w := platform(t).World(t)
		c.Apply(t, inline("net", "approvePlan: auto\ninterval: 1h\nwriteOutputsToSecret: {name: outputs}", things(w, "1", "a")+"\noutput \"o\" { value = \"of-"+c.Namespace+"\" }"))
		c.AwaitReady(t, "net")
		c.Apply(t, inline("net", "approvePlan: wait\ninterval: 1h\nwriteOutputsToSecret: {name: outputs}", things(w, "2", "a")+"\noutput \"o\" { value = \"of-"+c.Namespace+"\" }"))
		c.AwaitPending(t, "net")
	}
	var users []*caller
	for _, role := range append(slices.Clone(r.roles), "nobody") {
		users = append(users, callerOf(t, a, role))
	}
	t.Run("kubectl", func(t *testing.T) { kubectlMatrix(t, r, users, a.Namespace, b.Namespace) })
	t.Run("lists", func(t *testing.T) { listsMatrix(t, r, users, a.Namespace, b.Namespace) })
	t.Run("pages", func(t *testing.T) { pagesMatrix(t, r, users, a.Namespace, b.Namespace) })
	t.Run("API", func(t *testing.T) { operationsMatrix(t, r, users, a.Namespace, b.Namespace) })
	for right := range r.of {
		if !r.asked[right] {
			t.Errorf("docs/rbac.md has the right %q, which nothing asks for", right)
		}
	}
	stranger := *users[0]
	stranger.token = "not-a-token"
	for _, path := range []string{"/api/v1/stacks", "/api/v1/namespaces/" + a.Namespace + "/stacks/net", "/v2/_catalog"} {
		if status, answer := stranger.ask(t, http.MethodGet, path, "", ""); status != http.StatusUnauthorized || bytes.Contains([]byte(answer), []byte(a.Namespace+"\"")) {
			t.Errorf("%s without a user: %d, want 401: %s", path, status, answer)
		}
	}
}

// Who approves what: the tenant by the role, the environment and the risk by a policy, and
// not the user who asked for the change.
func TestWhoApprovesWhat(t *testing.T) {
	t.Parallel()
	a, b := cluster(t), cluster(t)
	rightsOfThePage(t, a)
	const both = "resource \"terraform_data\" \"kept\" {}\nresource \"terraform_data\" \"gone\" {}"
	const one = "resource \"terraform_data\" \"kept\" {}"
	destroyed := func(s *v1alpha2.Terraform) bool {
		status, err := testkit.StatusOf(s)
		if err != nil || status.Applied == nil {
			t.Fatal(status, err)
		}
		return status.Applied.Changes.Destroy == 1
	}
	for c, environment := range map[*testkit.Cluster]string{a: "production", b: "staging"} {
		n := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: c.Namespace}}
		if err := c.Client.Patch(t.Context(), n, client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"labels":{"terrier.dev/environment":"`+environment+`"}}}`))); err != nil {
			t.Fatal(err)
		}
		c.Apply(t, inline("net", "approvePlan: auto\ninterval: 1h", both))
		c.AwaitReady(t, "net")
	}
	viewer, operator, approver, stranger := callerOf(t, a, "viewer"), callerOf(t, a, "operator"), callerOf(t, a, "approver"), callerOf(t, b, "approver")
	a.Apply(t, "apiVersion: policy.terrier.dev/v1alpha1\nkind: ClusterPolicy\nmetadata: {name: "+a.Namespace+"}\nspec:\n  selector: {environments: [production], namespaces: ["+a.Namespace+", "+b.Namespace+"]}\n"+
		"  guards: {maxDestroys: 0}\n  approval: {users: ['"+approver.name+"', '"+operator.name+"', '"+stranger.name+"'], notRequester: true}\n")
	t.Cleanup(func() {
		o := &unstructured.Unstructured{}
		o.SetAPIVersion("policy.terrier.dev/v1alpha1")
		o.SetKind("ClusterPolicy")
		o.SetName(a.Namespace)
		if err := a.Client.Delete(context.WithoutCancel(t.Context()), o); err != nil {
			t.Error(err)
		}
	})
	awaitPolicy(t, a, func(status map[string]any) bool { return status["selected"] == int64(1) })

	// Of another environment, the same change needs no user.
	b.Apply(t, inline("net", "approvePlan: auto\ninterval: 1h", one))
	b.Await(t, "net", func(s *v1alpha2.Terraform) error {
		if !destroyed(s) {
			return errNot("destroyed yet")
		}
		return testkit.IsReady(s)
	})

	change, err := json.Marshal(map[string]any{"spec": map[string]any{"values": map[string]any{"hcl": one}}})
	if err != nil {
		t.Fatal(err)
	}
	if err := operator.Patch(t.Context(), a.Stack(t, "net"), client.RawPatch(types.MergePatchType, change)); err != nil {
		t.Fatalf("the operator changes the code: %v", err)
	}
	pending := a.Await(t, "net", heldBy("ClusterPolicy/"+a.Namespace)).Status.Plan.Pending
	at := "/api/v1/namespaces/" + a.Namespace + "/stacks/net"
	_, text := approver.ask(t, http.MethodGet, at, "", "")
	var seen struct {
		Plan struct {
			Name   string `json:"name"`
			Digest string `json:"digest"`
		} `json:"plan"`
	}
	if err := json.Unmarshal([]byte(text), &seen); err != nil || seen.Plan.Name != pending {
		t.Fatalf("the approver sees %+v (%v), want %s: %s", seen, err, pending, text)
	}
	body := `{"name":"` + seen.Plan.Name + `","digest":"` + seen.Plan.Digest + `"}`
	for _, u := range []*caller{viewer, stranger} {
		status, answer := u.ask(t, http.MethodPost, at+"/approve", "application/json", body)
		judged(t, u.name+" approves", false, status, answer)
		err := u.Patch(t.Context(), a.Stack(t, "net"), client.RawPatch(types.MergePatchType, []byte(`{"spec":{"approvePlan":"`+pending+`"}}`)))
		if !apierrors.IsForbidden(err) {
			t.Errorf("%s approves with kubectl: %v, want that it is forbidden", u.name, err)
		}
	}
	if status, answer := operator.ask(t, http.MethodPost, at+"/approve", "application/json", body); status != http.StatusOK {
		t.Fatalf("the operator approves: %d: %s", status, answer)
	}
	a.Await(t, "net", func(s *v1alpha2.Terraform) error {
		if !strings.Contains(message(s), "the approval of "+operator.name+" does not count") {
			return errNot("told that the requester does not count: " + message(s))
		}
		return nil
	})
	if destroyed(a.Stack(t, "net")) {
		t.Fatal("the approval of the user who asked for the change was enough")
	}
	if status, answer := approver.ask(t, http.MethodPost, at+"/approve", "application/json", body); status != http.StatusOK {
		t.Fatalf("the approver approves: %d: %s", status, answer)
	}
	a.Await(t, "net", func(s *v1alpha2.Terraform) error {
		if !destroyed(s) {
			return errNot("destroyed yet")
		}
		return testkit.IsReady(s)
	})
}
