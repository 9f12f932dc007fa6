package cli

import (
	"context"
	"encoding/json"
	"errors"
	"path/filepath"
	"strings"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	kubeclient "sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/terrier-iac/terrier/internal/access"
	"github.com/terrier-iac/terrier/internal/audit"
	"github.com/terrier-iac/terrier/internal/client"
	"github.com/terrier-iac/terrier/internal/command"
	"github.com/terrier-iac/terrier/internal/dialect/kinds"
	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/kube"
	"github.com/terrier-iac/terrier/internal/notify"
	"github.com/terrier-iac/terrier/internal/query"
	"github.com/terrier-iac/terrier/internal/record"
	"github.com/terrier-iac/terrier/internal/runner"
	"github.com/terrier-iac/terrier/internal/secret"
	"github.com/terrier-iac/terrier/internal/stack"
	"github.com/terrier-iac/terrier/internal/testkit"
	"github.com/terrier-iac/terrier/internal/web"
)

// tenancy is a namespace of its own in the cluster of a test, with a user who may do everything
// in it, and a server. The administrator of the cluster is the user of the kubeconfig.
type tenancy struct {
	estate
	name, url, ca string
	log           *audit.Log
	sent          delivered
}

func newTenancy(t *testing.T) *tenancy {
	t.Helper()
	e := estate{Env: env(t), cluster: testkit.Kube(t), records: kept{}}
	e.Now = time.Now
	w := &tenancy{estate: e, name: e.cluster.Namespace + "-team"}
	e.cluster.Apply(t, "apiVersion: v1\nkind: ServiceAccount\nmetadata: {name: user}\n")
	w.create(t)
	log, err := audit.Open(filepath.Join(t.TempDir(), "audit"), audit.Options{Now: e.Now})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := log.Close(); err != nil {
			t.Error(err)
		}
		if err := kubeclient.IgnoreNotFound(e.cluster.Client.Delete(context.Background(), w.namespace())); err != nil {
			t.Log(err)
		}
	})
	w.log = log
	return w
}

func (w *tenancy) namespace() *corev1.Namespace {
	return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: w.name}}
}

// create creates the namespace, and lets the user do everything in it.
func (w *tenancy) create(t *testing.T) {
	t.Helper()
	w.cluster.Apply(t, strings.NewReplacer("TEAM", w.name, "HOME", w.cluster.Namespace).Replace(`
apiVersion: v1
kind: Namespace
metadata: {name: TEAM}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: all, namespace: TEAM}
rules: [{apiGroups: ["*"], resources: ["*"], verbs: ["*"]}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: all, namespace: TEAM}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: all}
subjects: [{kind: ServiceAccount, name: user, namespace: HOME}]
`))
	auth, err := access.NewKubeAuth(w.cluster.Config, kinds.All())
	if err != nil {
		t.Fatal(err)
	}
	user := access.User{Name: "system:serviceaccount:" + w.cluster.Namespace + ":user"}
	testkit.Eventually(t, testkit.Patience, "the cluster knows of the rights", func(ctx context.Context) error {
		return auth.Authorize(ctx, user, access.Request{Verb: "list", Resource: access.ResourceAudit, Namespace: w.name})
	})
}

// remake deletes the namespace, and creates it again under its name.
func (w *tenancy) remake(t *testing.T) {
	t.Helper()
	if err := w.cluster.Client.Delete(t.Context(), w.namespace()); err != nil {
		t.Fatal(err)
	}
	testkit.Eventually(t, testkit.Patience, "the namespace is gone", func(ctx context.Context) error {
		err := w.cluster.Client.Get(ctx, kubeclient.ObjectKeyFromObject(w.namespace()), w.namespace())
		if err == nil {
			return errors.New("it is there")
		}
		return kubeclient.IgnoreNotFound(err)
	})
	w.create(t)
}

// leave records what a deleted stack of the namespace leaves: its state and the log of its last
// run, an entry of the audit log, and a message that was sent. The records of an earlier release
// do not have the origin of the stack.
func (w *tenancy) leave(t *testing.T, stackName string, earlier bool, at time.Time) {
	t.Helper()
	n, err := kube.FindNamespace(t.Context(), w.cluster.Client, w.name)
	if err != nil || n.UID == "" {
		t.Fatalf("the namespace is %+v, %v", n, err)
	}
	origin := kube.Origin{NamespaceUID: n.UID}
	if earlier {
		origin = kube.Origin{}
	}
	uid := "uid-of-" + stackName
	put := func(key string, v any) {
		raw, err := json.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		w.records[key] = string(raw)
	}
	put(record.Retained(uid, record.RetainedFile), kube.Retained{Stack: w.name + "/" + stackName, UID: uid, At: at, Why: "terrier.dev/deletion is retain", Resources: []string{"t.tenant_" + stackName}, Origin: origin})
	w.records[record.Retained(uid, record.RetainedStateFile)] = string(aState(3, "state_of_"+stackName))
	gone := func(file string) string { return record.Gone("", w.name, stackName, uid, file) }
	put(gone(record.ReportFile), lastRun{runner.Report{ID: "destroy-of-" + stackName, Phase: runner.Done, Outcome: stack.Succeeded, Started: at, Gone: at}, origin})
	w.records[gone(runner.FileLog)] = "log of " + stackName + "\n"
	if err := w.log.Record(t.Context(), audit.Entry{What: audit.Deleted, Object: query.AuditObjectOf(query.Key{Namespace: w.name, Name: stackName})}); err != nil {
		t.Fatal(err)
	}
	w.sent = append(w.sent, notify.Delivery{ID: uid, At: w.Now(), Namespace: w.name, Kind: "Terraform", Name: stackName, Event: "Deleted", Provider: "chat", Attempts: 1, Outcome: notify.Delivered})
}

// serve starts a server for what was recorded so far.
func (w *tenancy) serve(t *testing.T) {
	t.Helper()
	auth, err := access.NewKubeAuth(w.cluster.Config, kinds.All())
	if err != nil {
		t.Fatal(err)
	}
	c, err := access.NewClient(w.cluster.Config, kinds.All())
	if err != nil {
		t.Fatal(err)
	}
	records := query.NewBlobs(w.records, w.records, time.Millisecond)
	people, err := command.NewPeople(w.cluster.Config, kinds.All(), records, w.Now)
	if err != nil {
		t.Fatal(err)
	}
	stacks := query.New(c, kinds.All(), records, w.Now)
	w.url, w.ca = listen(t, web.Options{
		Kinds: kinds.All(), Stacks: stacks, Former: stacks.OfFormer(), Retained: command.NewRetained(w.records, c, kinds.All()), Auth: auth, People: people.As, Hosts: []string{"127.0.0.1"},
		Notices: query.NewNotices(w.sent, query.NamespacesIn(c)), AuditLog: query.NewAuditLog(w.log, kube.Anchor{}, query.NamespacesIn(c)), Audit: w.log,
	})
	write(t, w.Env, "ca.crt", w.ca)
}

// as is the command line of a user.
func (w *tenancy) as(token string) estate {
	e := w.estate
	e.Environ = []string{"TERRIER_SERVER=" + w.url, "TERRIER_TOKEN=" + token, "TERRIER_SERVER_CA=ca.crt"}
	return e
}

func (w *tenancy) token(t *testing.T) string {
	t.Helper()
	api, err := kubernetes.NewForConfig(w.cluster.Config)
	if err != nil {
		t.Fatal(err)
	}
	made, err := api.CoreV1().ServiceAccounts(w.cluster.Namespace).CreateToken(t.Context(), "user", &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return made.Status.Token
}

// Rights are rights to the name of a namespace. Users of a namespace that was created again
// under the name of a deleted one get nothing of what stacks of that left, on any way, and are
// told the same as if there was nothing. Those of the same namespace get it as before, and an
// administrator gets all of it.
func TestAFormerNamespaceLeavesNothingToOthers(t *testing.T) {
	w := newTenancy(t)
	w.leave(t, "first", false, w.Now())
	w.leave(t, "early", true, w.Now().Add(-time.Hour)) // an earlier release wrote no origin
	n := " -n " + w.name
	serves := func(e estate, name string, not string) {
		t.Helper()
		uid := " --uid uid-of-" + name
		e.dialogue(t, []line{
			{"retained" + n, 0, []string{name}, not},
			{"retained show " + name + n, 0, []string{"t.tenant_" + name}, ""},
			{"retained state " + name + n + uid, 0, []string{"state_of_" + name}, ""},
			{"logs " + name + n, 0, []string{"log of " + name}, ""},
			{"logs " + name + n + " -f", 0, []string{"log of " + name}, ""},
			{"runs " + name + n, 0, []string{"destroy-of-" + name}, ""},
		})
	}
	none := func(e estate, name string) {
		t.Helper()
		never := "_" + name
		e.dialogue(t, []line{
			{"retained" + n, 0, nil, name},
			{"retained show " + name + n, 4, []string{"there is no record", "deleted and created again"}, never},
			{"retained state " + name + n, 4, []string{"there is no record"}, never},
			{"retained forget " + name + n + " --yes", 4, []string{"there is no record"}, never},
			{"logs " + name + n, 4, []string{"does not exist"}, "log of"},
			{"logs " + name + n + " -f", 4, []string{"does not exist"}, "log of"},
			{"runs " + name + n, 4, []string{"does not exist"}, "destroy-of"},
			{"audit list" + n, 0, nil, name},
			{"notifications" + n, 0, nil, name},
		})
		k, _, err := client.Connection{Server: w.url, Token: secret.New(w.token(t)), CA: filepath.Join(w.Dir, "ca.crt"), Now: w.Now}.Retained(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		key := query.Key{Namespace: w.name, Name: name}
		if state, err := k.State(t.Context(), key, "uid-of-"+name); fault.Of(err) != fault.Missing {
			t.Errorf("State() of %s by its UID = %v, %v, want Missing", name, state, err)
		}
		if err := k.Forget(t.Context(), key, "uid-of-"+name); fault.Of(err) != fault.Missing {
			t.Errorf("Forget() of %s by its UID = %v, want Missing", name, err)
		}
	}
	w.serve(t)
	user := w.as(w.token(t))
	serves(user, "first", "early") // of the early one it cannot be told: it was deleted before there was the namespace
	user.dialogue(t, []line{{"audit list" + n, 0, []string{"first"}, ""}, {"notifications" + n, 0, []string{"first"}, ""}})
	w.remake(t)
	w.as(w.token(t)).dialogue(t, []line{{"retained" + n, 0, []string{"No deleted stack", "a user with the permission in all namespaces"}, "first"}})
	w.leave(t, "second", false, w.Now())
	w.serve(t)
	user, admin := w.as(w.token(t)), w.as(w.cluster.Config.BearerToken)
	none(user, "first")
	none(user, "early")
	serves(user, "second", "first")
	for _, name := range []string{"first", "early", "second"} {
		serves(admin, name, "")
	}
	admin.dialogue(t, []line{
		{"retained show first" + n, 0, []string{"Namespace", "deleted", "terrier state push", "retained forget first"}, ""},
		{"audit list" + n, 0, []string{"first", "second"}, ""},
		{"notifications" + n, 0, []string{"first", "second"}, ""},
		{"retained forget first" + n + " --yes", 0, []string{"Deleted the record"}, ""},
		{"logs first" + n, 4, []string{"does not exist"}, "log of"},
	})
}
