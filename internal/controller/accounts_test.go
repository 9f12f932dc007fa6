package controller

import (
	"context"
	"fmt"
	"strings"
	"testing"

	authnv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/kube"
	"github.com/terrier-iac/terrier/internal/runner"
	"github.com/terrier-iac/terrier/internal/stack"
	"github.com/terrier-iac/terrier/internal/testkit"
)

// asAccounts is a cupboard whose inputs are read as ServiceAccounts, through config.
func asAccounts(t *testing.T, config func(*testkit.Cluster) *rest.Config) *cupboard {
	t.Helper()
	c := newCupboard(t)
	c.jobs.config.ReadAs = "default"
	c.jobs.accounts = kube.NewAccounts(config(c.kube), c.kube.Client.Scheme(), c.kube.Client.RESTMapper())
	return c
}

func administrator(k *testkit.Cluster) *rest.Config { return k.Config }

// mayGet lets a ServiceAccount get objects of these names in the namespace of the test, as
// the command of the message does.
func mayGet(t *testing.T, k *testkit.Cluster, account string, resources, names []string) {
	t.Helper()
	meta := metav1.ObjectMeta{Namespace: k.Namespace, Name: account + "-inputs"}
	role := &rbacv1.Role{ObjectMeta: meta, Rules: []rbacv1.PolicyRule{{APIGroups: []string{""}, Resources: resources, ResourceNames: names, Verbs: []string{"get"}}}}
	binding := &rbacv1.RoleBinding{
		ObjectMeta: meta, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: meta.Name},
		Subjects: []rbacv1.Subject{{Kind: "ServiceAccount", Namespace: k.Namespace, Name: account}},
	}
	if err := k.Client.Create(t.Context(), role); err != nil {
		t.Fatal(err)
	}
	if err := k.Client.Create(t.Context(), binding); err != nil {
		t.Fatal(err)
	}
}

// Inputs are read with the rights of the ServiceAccount of the stack. One message names
// all rights that are missing, and a Role that grants them.
func TestInputsAreReadAsTheAccount(t *testing.T) {
	c := asAccounts(t, administrator)
	asked := everything()
	asked.Pod.Account = "net"
	p, blocked := c.resolve(t, asked)
	if blocked == nil || blocked.Kind != fault.Denied || blocked.Reason != stack.InputsFailed {
		t.Fatalf("without any right: blocked = %+v, inputs %+v", blocked, p.in.Inputs)
	}
	ns := c.kube.Namespace
	for _, want := range []string{
		"the ServiceAccount net of the namespace " + ns + " lacks the right to get in the namespace " + ns, "Secret creds", "ConfigMap config", "Secret rc", "Secret backend", "Secret nope",
		"kubectl -n " + ns + " create role net-inputs --verb=get --resource=", "--resource-name=creds", "--resource-name=backend",
		"create rolebinding net-inputs --role=net-inputs --serviceaccount=" + ns + ":net",
	} {
		if !strings.Contains(blocked.Message, want) {
			t.Errorf("the message does not say %q: %s", want, blocked.Message)
		}
	}
	mayGet(t, c.kube, "net", []string{"secrets", "configmaps"}, []string{"creds", "config", "rc", "backend", "nope"})
	testkit.Eventually(t, testkit.Patience, "the Role is enough", func(context.Context) error {
		if p, blocked = c.resolve(t, asked); blocked != nil {
			return fmt.Errorf("blocked: %+v", blocked)
		}
		return nil
	})
	if got := p.in.Resolved.Environment["API_TOKEN"]; got != "token-canary-1" {
		t.Errorf("API_TOKEN is %q", got)
	}

	for name, account := range map[string]string{"another account": "other", "no account": ""} {
		asked.Pod.Account = account
		if _, blocked := c.resolve(t, asked); blocked == nil || blocked.Kind != fault.Denied {
			t.Errorf("%s has the rights of the first: blocked = %+v", name, blocked)
		}
	}
	for _, account := range []string{"system:masters", "x:y", "../net", "net\n", "NET"} {
		asked.Pod.Account = account
		if _, blocked := c.resolve(t, asked); blocked == nil || blocked.Kind != fault.Invalid || !strings.Contains(blocked.Message, "serviceAccountName") {
			t.Errorf("the account %q: blocked = %+v, want it refused by its name", account, blocked)
		}
	}
}

// A pod gets no Secret from its kubelet that its account may not read.
func TestAPodMountsWhatItsAccountMayRead(t *testing.T) {
	c := asAccounts(t, administrator)
	c.jobs.config.Pods = true
	asked := stack.Configuration{Pod: stack.Pod{Account: "net", Template: []byte(`{"spec":{"volumes":[
		{"name":"a","secret":{"secretName":"creds"}},
		{"name":"b","projected":{"sources":[{"secret":{"name":"rc"}},{"configMap":{"name":"config"}}]}},
		{"name":"c","secret":{"secretName":"later"}}
	]}}`)}}
	_, blocked := c.resolve(t, asked)
	if blocked == nil || blocked.Kind != fault.Denied {
		t.Fatalf("blocked = %+v, want it denied", blocked)
	}
	for _, want := range []string{"runnerPodTemplate: the ServiceAccount net", "Secret creds", "Secret rc", "ConfigMap config", "Secret later"} {
		if !strings.Contains(blocked.Message, want) {
			t.Errorf("the message does not say %q: %s", want, blocked.Message)
		}
	}
	mayGet(t, c.kube, "net", []string{"secrets", "configmaps"}, []string{"creds", "rc", "config", "later"})
	testkit.Eventually(t, testkit.Patience, "the Role is enough", func(context.Context) error {
		if _, blocked = c.resolve(t, asked); blocked != nil {
			return fmt.Errorf("blocked: %+v", blocked)
		}
		return nil
	})
	c.jobs.config.ReadAs = ""
	asked.Pod.Account = "other"
	if _, blocked := c.resolve(t, asked); blocked != nil {
		t.Errorf("without --read-as-service-account: blocked = %+v", blocked)
	}
}

// A credential that the account may no longer read stays as it was recorded: a destroy
// needs it.
func TestADestroyOutlivesTheRight(t *testing.T) {
	c := asAccounts(t, administrator)
	p, blocked := c.resolve(t, everything())
	if blocked == nil {
		t.Fatal("nothing is missing")
	}
	job := &runner.Job{Env: map[string]string{"API_TOKEN": "recorded"}}
	c.refresh(t.Context(), p, job)
	if got := job.Env["API_TOKEN"]; got != "recorded" {
		t.Errorf("API_TOKEN is %q, want what was recorded", got)
	}
}

// A message names nothing that a shell takes for more than a name.
func TestNamesInMessagesAreNames(t *testing.T) {
	c := asAccounts(t, administrator)
	for _, name := range []string{"x; touch /tmp/x", "$(id)", "a/b", "../../creds", ""} {
		asked := stack.Configuration{EnvFrom: []stack.EnvFrom{{Kind: "Secret", Name: name}}}
		if _, blocked := c.resolve(t, asked); blocked == nil || blocked.Kind != fault.Invalid || strings.Contains(blocked.Message, "kubectl") {
			t.Errorf("the Secret %q: blocked = %+v, want it refused by its name", name, blocked)
		}
	}
}

// A controller that may not act as ServiceAccounts of a namespace says so, and reads
// nothing by its own rights.
func TestTheControllerMayNotActAsTheAccount(t *testing.T) {
	c := asAccounts(t, func(k *testkit.Cluster) *rest.Config {
		account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: k.Namespace, Name: "controller"}}
		if err := k.Client.Create(t.Context(), account); err != nil {
			t.Fatal(err)
		}
		token := &authnv1.TokenRequest{}
		if err := k.Client.SubResource("token").Create(t.Context(), account, token); err != nil {
			t.Fatal(err)
		}
		config := rest.AnonymousClientConfig(k.Config)
		config.BearerToken = token.Status.Token
		return config
	})
	mayGet(t, c.kube, "controller", []string{"secrets", "configmaps"}, nil)
	_, blocked := c.resolve(t, everything())
	if blocked == nil || blocked.Kind != fault.Denied || !strings.Contains(blocked.Message, "this controller may not act as the ServiceAccount default") {
		t.Errorf("blocked = %+v, want the missing right to impersonate", blocked)
	}
}
