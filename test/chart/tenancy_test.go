package chart

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	authzv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1alpha2 "github.com/terrier-iac/terrier/api/infra/v1alpha2"
	"github.com/terrier-iac/terrier/internal/testkit"
)

// With rbac.readAsServiceAccount the controller reads inputs as the ServiceAccount of the
// stack only, and may list no Secret. A change counts from the next reconcile on.
func TestInputsAreReadAsTheServiceAccount(t *testing.T) {
	i := install(t, "--set", "rbac.namespaces={team-a}", "--set", "rbac.readAsServiceAccount=true", "--set", "runs.as=processes")
	g := testkit.NewGit(t)
	g.Commit(map[string]string{"main.tf": moduleText})
	stack := strings.Replace(fmt.Sprintf(stackManifest, "net"), "interval: 1h", "interval: 3s\n  serviceAccountName: net", 1)
	i.manifest(t, "team-a", g.Manifest("modules")+"---\n"+secretManifest("inputs", "word", "first")+"---\n"+stack)
	i.await(t, "team-a", "net", "says which right is missing", func(_ *infrav1alpha2.Terraform, c *metav1.Condition) bool {
		return c.Status == metav1.ConditionFalse && strings.Contains(c.Message, "kubectl -n team-a create role net-inputs --verb=get --resource=secrets,configmaps --resource-name=inputs --resource-name=settings")
	})
	i.manifest(t, "team-a", `
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: net-inputs}
rules: [{apiGroups: [""], resources: [secrets, configmaps], resourceNames: [inputs, settings], verbs: [get]}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: net-inputs}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: net-inputs}
subjects: [{kind: ServiceAccount, name: net, namespace: team-a}]
`)
	i.await(t, "team-a", "net", "becomes ready", isReady)
	i.manifest(t, "team-a", secretManifest("inputs", "word", "second"))
	testkit.Eventually(t, testkit.Patience, "the changed Secret is applied", func(ctx context.Context) error {
		var out corev1.Secret
		err := i.Get(ctx, client.ObjectKey{Namespace: "team-a", Name: "net-outputs"}, &out)
		if err == nil && string(out.Data["word"]) != "second" {
			err = fmt.Errorf("the output is %q", out.Data["word"])
		}
		return err
	})
	o := &infrav1alpha2.Terraform{ObjectMeta: metav1.ObjectMeta{Namespace: "team-a", Name: "net"}}
	if err := i.Delete(t.Context(), o); err != nil {
		t.Fatal(err)
	}
	testkit.Eventually(t, testkit.Patience, "the stack is gone, and with it its readable plan", func(ctx context.Context) error {
		if err := i.Get(ctx, client.ObjectKeyFromObject(o), o); !apierrors.IsNotFound(err) {
			return errors.Join(errors.New("it is there"), err)
		}
		return nil
	})
	stop(t, i.commands[0])
	asAccount := 0
	for _, r := range i.recorder.all() {
		switch {
		case r.resource != "secrets" && r.resource != "configmaps":
		case r.as != "":
			if r.as != "system:serviceaccount:team-a:net" {
				t.Errorf("%+v is of another account", r)
			}
			asAccount++
		case r.name == "inputs" || r.name == "settings":
			t.Errorf("the controller read an input with its own rights: %+v", r)
		case r.namespace != "terrier-system" && (r.verb == "list" || r.verb == "watch") && r.status < 400:
			t.Errorf("the controller may find every Secret: %+v", r)
		}
	}
	if asAccount == 0 {
		t.Error("nothing was read as the ServiceAccount")
	}
	for _, text := range i.recorder.denials() {
		verb, of, _ := strings.Cut(text, " ")
		if tries := verb == "list" || verb == "watch"; !tries || !strings.HasPrefix(of, "secrets.") && !strings.HasPrefix(of, "configmaps.") {
			t.Errorf("the controller was denied: %s", text)
		}
	}
}

const stackOfATenant = `
apiVersion: infra.contrib.fluxcd.io/v1alpha2
kind: Terraform
metadata: {name: %s, annotations: {terrier.dev/adopt-state: "true", terrier.dev/changed-by: system:admin, terrier.dev/decided-by: system:admin}}
spec:
  approvePlan: auto
  interval: 1h
  retryInterval: 1s
  values: {hcl: 'output "x" { value = "mine" }'}
  %s
`

// A tenant who may write stacks in a namespace, and nothing else, gets no Secret of
// another namespace or of the controller, acts for no other user, overwrites no Secret,
// and keeps no stack of another tenant.
func TestATenantReachesNothingOfOthers(t *testing.T) {
	i := install(t, "--set", "rbac.namespaces={team-a,team-b}", "--set", "runs.as=processes")
	i.manifest(t, "team-b", strings.Replace(inlineStack, "{name: inline}", "{name: victim}", 1)+"---\n"+secretManifest("theirs", "x.tfrc", "credentials \"h.example.com\" {\n token = \"canary\"\n}\n"))
	i.manifest(t, "team-a", secretManifest("taken", "word", "before")+`
---
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: tenant}
rules: [{apiGroups: [infra.contrib.fluxcd.io], resources: [terraforms], verbs: [get, list, create, update, patch, delete]}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: tenant}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: tenant}
subjects: [{kind: ServiceAccount, name: tenant, namespace: team-a}]
`)
	i.await(t, "team-b", "victim", "becomes ready", isReady)

	config := rest.AnonymousClientConfig(i.config)
	config.BearerToken = i.token(t, "team-a", "tenant")
	tenant, err := client.New(config, client.Options{Scheme: i.Scheme()})
	if err != nil {
		t.Fatal(err)
	}
	attacks := map[string]struct{ field, refusal string }{
		"source":     {"sourceRef: {kind: GitRepository, name: theirs, namespace: team-b}", "no ReferenceGrant there"},
		"dependency": {"dependsOn: [{name: victim, namespace: team-b}]", "no ReferenceGrant there"},
		"theirs":     {"cliConfigSecretRef: {name: theirs, namespace: team-b}", "no ReferenceGrant there"},
		"keys":       {"cliConfigSecretRef: {name: terrier-records-keys, namespace: terrier-system}", "no ReferenceGrant there"},
		"overwrite":  {"writeOutputsToSecret: {name: taken}", "Terrier did not write the data of the Secret"},
		"reads":      {"readInputsFromSecrets: [{as: it, name: team-b/theirs}]", "is no name of a Secret"},
	}
	testkit.Eventually(t, testkit.Patience, "the tenant may write stacks", func(ctx context.Context) error {
		return tenant.List(ctx, &infrav1alpha2.TerraformList{}, client.InNamespace("team-a"))
	})
	for name, a := range attacks {
		text := fmt.Sprintf(stackOfATenant, name, a.field)
		if name == "source" {
			text = strings.Replace(text, "  values: {hcl: 'output \"x\" { value = \"mine\" }'}\n", "", 1)
		}
		for _, o := range objects(t, text) {
			o.SetNamespace("team-a")
			if err := tenant.Create(t.Context(), o); err != nil {
				t.Fatalf("%s: %v", name, err)
			}
		}
	}
	for name, a := range attacks {
		s := i.await(t, "team-a", name, "is refused", func(_ *infrav1alpha2.Terraform, c *metav1.Condition) bool {
			return c.Status == metav1.ConditionFalse && strings.Contains(c.Message, a.refusal)
		})
		if c := meta.FindStatusCondition(s.Status.Conditions, "Ready"); strings.Contains(c.Message, "canary") || strings.Contains(c.Message, "does not exist") {
			t.Errorf("%s: the condition tells of what it refuses: %s", name, c.Message)
		}
	}
	var taken corev1.Secret
	if err := i.Get(t.Context(), client.ObjectKey{Namespace: "team-a", Name: "taken"}, &taken); err != nil || string(taken.Data["word"]) != "before" || len(taken.Data) != 1 {
		t.Errorf("the Secret of another owner holds %q, %v", taken.Data, err)
	}
	for _, r := range i.recorder.all() {
		if r.resource == "secrets" && (r.name == "theirs" || r.name == "terrier-records-keys") {
			t.Errorf("the controller asked for a Secret of another namespace: %+v", r)
		}
	}
	for _, as := range []rest.ImpersonationConfig{{UserName: "system:serviceaccount:terrier-system:terrier"}, {UserName: "ann", Groups: []string{"system:masters"}}} {
		other := rest.CopyConfig(config)
		other.Impersonate = as
		c, err := client.New(other, client.Options{Scheme: i.Scheme()})
		if err != nil {
			t.Fatal(err)
		}
		if err := c.List(t.Context(), &corev1.SecretList{}, client.InNamespace("team-b")); !apierrors.IsForbidden(err) {
			t.Errorf("as %+v the tenant lists Secrets: %v", as, err)
		}
	}
	victim := &infrav1alpha2.Terraform{ObjectMeta: metav1.ObjectMeta{Namespace: "team-b", Name: "victim"}}
	if err := i.Delete(t.Context(), victim); err != nil {
		t.Fatal(err)
	}
	testkit.Eventually(t, testkit.Patience, "the stack that the tenant depends on is gone", func(ctx context.Context) error {
		if err := i.Get(ctx, client.ObjectKeyFromObject(victim), victim); !apierrors.IsNotFound(err) {
			return errors.Join(errors.New("it is there"), err)
		}
		return nil
	})
}

// A stack that names a ServiceAccount has its pod under that, and no other stack has. The
// account has the rights that were bound to it, and its token is its owner's to withhold.
func TestPodsOfAnAccount(t *testing.T) {
	i := install(t, "--set", "rbac.namespaces={team-a}")
	i.manifest(t, "team-a", `
apiVersion: v1
kind: ServiceAccount
metadata: {name: net}
automountServiceAccountToken: false
---
apiVersion: v1
kind: ServiceAccount
metadata: {name: cloud}
`)
	for _, account := range []string{"net", "cloud"} {
		i.manifest(t, "team-a", strings.Replace(inlineStack, "{name: inline}", "{name: "+account+"}", 1)+"  serviceAccountName: "+account+"\n")
	}
	found := map[string]corev1.Pod{}
	testkit.Eventually(t, testkit.Patience, "both runs have their pods", func(ctx context.Context) error {
		var list corev1.PodList
		err := i.List(ctx, &list, client.InNamespace("team-a"), client.MatchingLabels{"app.kubernetes.io/name": "terrier-run"})
		for _, p := range list.Items {
			found[p.Annotations["terrier.dev/stack"]] = p
		}
		if err != nil || len(found) != 2 {
			return fmt.Errorf("%d pods, %w", len(found), err)
		}
		return nil
	})
	for _, account := range []string{"net", "cloud"} {
		pod := found["team-a/"+account]
		if got := pod.Spec.ServiceAccountName; got != account {
			t.Errorf("the pod of %s runs under %q", account, got)
		}
		if pod.Spec.AutomountServiceAccountToken != nil {
			t.Errorf("the pod of %s decides about the token of its account: %t", account, *pod.Spec.AutomountServiceAccountToken)
		}
		i.mayNothing(t, "team-a", account) // nothing was bound to it
	}
	net := found["team-a/net"]
	onlyOurToken(t, &net)
}

// onlyOurToken reports tokens in a pod but the one by which the controller knows it, which
// is of no use to the API server.
func onlyOurToken(t *testing.T, pod *corev1.Pod) {
	t.Helper()
	tokens := 0
	for _, v := range pod.Spec.Volumes {
		if v.Secret != nil {
			t.Errorf("the volume %s is a Secret", v.Name)
		}
		if v.Projected == nil {
			continue
		}
		for _, s := range v.Projected.Sources {
			if s.ServiceAccountToken == nil {
				continue
			}
			tokens++
			if s.ServiceAccountToken.Audience != "terrier-run" {
				t.Errorf("the volume %s has a token for the audience %q", v.Name, s.ServiceAccountToken.Audience)
			}
		}
	}
	if tokens != 1 {
		t.Errorf("the pod has %d tokens, want its own one", tokens)
	}
}

// mayNothing asks the API server about what a hostile run would try as an account.
func (i *installed) mayNothing(t *testing.T, in, account string) {
	t.Helper()
	user := "system:serviceaccount:" + in + ":" + account
	for _, a := range []authzv1.ResourceAttributes{
		{Verb: "get", Resource: "secrets", Namespace: in}, {Verb: "list", Resource: "secrets", Namespace: in}, {Verb: "list", Resource: "secrets"},
		{Verb: "get", Resource: "secrets", Namespace: "terrier-system"}, {Verb: "get", Resource: "configmaps", Namespace: in},
		{Verb: "create", Resource: "pods", Namespace: in}, {Verb: "create", Resource: "pods", Subresource: "exec", Namespace: in},
		{Verb: "create", Resource: "serviceaccounts", Subresource: "token", Namespace: in},
		{Verb: "impersonate", Resource: "serviceaccounts", Namespace: in}, {Verb: "impersonate", Resource: "users"},
		{Verb: "create", Group: "rbac.authorization.k8s.io", Resource: "rolebindings", Namespace: in},
		{Verb: "get", Group: "infra.contrib.fluxcd.io", Resource: "terraforms", Namespace: in},
		{Verb: "patch", Group: "infra.contrib.fluxcd.io", Resource: "terraforms", Namespace: in},
		{Verb: "get", Group: "infra.contrib.fluxcd.io", Resource: "terraforms", Subresource: "state", Namespace: in},
		{Verb: "get", Group: "coordination.k8s.io", Resource: "leases", Namespace: in},
	} {
		review := &authzv1.SubjectAccessReview{Spec: authzv1.SubjectAccessReviewSpec{
			User: user, Groups: []string{"system:serviceaccounts", "system:serviceaccounts:" + in, "system:authenticated"}, ResourceAttributes: &a,
		}}
		if err := i.Create(t.Context(), review); err != nil {
			t.Fatal(err)
		}
		if review.Status.Allowed {
			t.Errorf("%s may %s %s/%s in %q", user, a.Verb, a.Resource, a.Subresource, a.Namespace)
		}
	}
}
