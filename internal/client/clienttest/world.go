package clienttest

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/terrier-iac/terrier/api/infra/v1alpha2"
	tenantsv1 "github.com/terrier-iac/terrier/api/tenants/v1"
	"github.com/terrier-iac/terrier/internal/access"
	"github.com/terrier-iac/terrier/internal/blob"
	"github.com/terrier-iac/terrier/internal/dialect/kinds"
	"github.com/terrier-iac/terrier/internal/kube"
	"github.com/terrier-iac/terrier/internal/query"
	"github.com/terrier-iac/terrier/internal/record"
	"github.com/terrier-iac/terrier/internal/runner"
	"github.com/terrier-iac/terrier/internal/secret"
	"github.com/terrier-iac/terrier/internal/stack"
	"github.com/terrier-iac/terrier/internal/testkit"
)

// Who is a user of the test.
type Who string

// The two people: one may do everything in the namespace, one nothing.
const (
	Boss     Who = "boss"
	Stranger Who = "stranger"
)

// World is a namespace of a real cluster with two stacks, a registry, a template
// and a tenant, and the records that the server keeps.
type World struct {
	*testkit.Cluster
	Kube    client.WithWatch // as the server
	Records *query.Blobs
	Now     func() time.Time

	blobs store
	runs  *runs
}

const manifest = `
apiVersion: infra.contrib.fluxcd.io/v1alpha2
kind: Terraform
metadata: {name: net, labels: {team: net}}
spec: {path: ./net, sourceRef: {kind: GitRepository, name: modules}}
---
apiVersion: infra.contrib.fluxcd.io/v1alpha2
kind: Terraform
metadata: {name: shop}
spec: {sourceRef: {kind: GitRepository, name: modules}}
---
apiVersion: operator.kubernetes-tenants.org/v1
kind: TenantRegistry
metadata: {name: customers}
spec:
  source: {type: mysql, mysql: {host: db, username: reader, database: shop, table: customers}}
  valueMappings: {uid: id, hostOrUrl: url, activate: active}
---
apiVersion: operator.kubernetes-tenants.org/v1
kind: TenantTemplate
metadata: {name: web}
spec: {registryId: customers}
---
apiVersion: operator.kubernetes-tenants.org/v1
kind: Tenant
metadata: {name: acme-web, labels: {kubernetes-tenants.org/registry: customers}}
spec: {uid: acme, templateRef: web}
`

func newWorld(t *testing.T) *World {
	t.Helper()
	w := &World{Cluster: testkit.Kube(t, v1alpha2.AddToScheme, tenantsv1.AddToScheme), Now: time.Now, runs: &runs{}}
	w.Apply(t, manifest)
	w.Kube = must(access.NewClient(w.Config, kinds.All()))(t)
	files, err := blob.OpenFiles(t.TempDir(), 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { done(t, "closing the records", files.Close()) })
	w.blobs = store{files}
	w.Records = query.NewBlobs(w.blobs, w.runs, time.Millisecond)
	w.admit(t)
	return w
}

// admit makes the two people, and gives one of them all rights to the namespace.
func (w *World) admit(t *testing.T) {
	t.Helper()
	api := must(kubernetes.NewForConfig(w.Config))(t)
	for _, who := range []Who{Boss, Stranger} {
		account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: string(who)}}
		must(api.CoreV1().ServiceAccounts(w.Namespace).Create(t.Context(), account, metav1.CreateOptions{}))(t)
	}
	meta := metav1.ObjectMeta{Name: string(Boss)}
	all := []rbacv1.PolicyRule{{APIGroups: []string{"*"}, Resources: []string{"*"}, Verbs: []string{"*"}}}
	must(api.RbacV1().Roles(w.Namespace).Create(t.Context(), &rbacv1.Role{ObjectMeta: meta, Rules: all}, metav1.CreateOptions{}))(t)
	must(api.RbacV1().RoleBindings(w.Namespace).Create(t.Context(), &rbacv1.RoleBinding{ObjectMeta: meta,
		RoleRef:  rbacv1.RoleRef{APIGroup: "rbac.authorization.k8s.io", Kind: "Role", Name: string(Boss)},
		Subjects: []rbacv1.Subject{{Kind: "ServiceAccount", Name: string(Boss), Namespace: w.Namespace}}}, metav1.CreateOptions{}))(t)
	auth := must(access.NewKubeAuth(w.Config, kinds.All()))(t)
	testkit.Eventually(t, testkit.Patience, "the cluster knows of the rights", func(ctx context.Context) error {
		return auth.Authorize(ctx, w.User(Boss), access.Request{Verb: "list", Resource: access.ResourceTenants, Namespace: w.Namespace})
	})
}

// User is the name of who in the cluster.
func (w *World) User(who Who) access.User {
	accounts := "system:serviceaccounts"
	return access.User{Name: "system:serviceaccount:" + w.Namespace + ":" + string(who), Groups: []string{accounts, accounts + ":" + w.Namespace}}
}

// Token is the bearer token of who.
func (w *World) Token(t *testing.T, who Who) secret.Text {
	t.Helper()
	api := must(kubernetes.NewForConfig(w.Config))(t)
	made := must(api.CoreV1().ServiceAccounts(w.Namespace).CreateToken(t.Context(), string(who), &authenticationv1.TokenRequest{}, metav1.CreateOptions{}))(t)
	return secret.New(made.Status.Token)
}

// Board is a board that knows what the cluster knows at the moment it is asked.
func (w *World) Board() *Board {
	return &Board{Board: query.NewBoard(query.BoardOptions{Kinds: kinds.All(), Now: w.Now}), world: w}
}

// Board looks at the cluster before it answers.
type Board struct {
	*query.Board
	world *World
}

// Page implements the question that lists are.
func (b *Board) Page(scope access.Scope, q query.BoardQuery) (query.BoardPage, error) {
	var all v1alpha2.TerraformList
	if err := b.world.Kube.List(context.Background(), &all, client.InNamespace(b.world.Namespace)); err != nil {
		return query.BoardPage{}, err
	}
	for i := range all.Items {
		b.Set(&all.Items[i])
	}
	b.Synced()
	return b.Board.Page(scope, q)
}

func (w *World) key(name string) query.Key {
	return query.Key{Namespace: w.Namespace, Name: name}
}

func (w *World) object(t *testing.T, name string) *v1alpha2.Terraform {
	t.Helper()
	var o v1alpha2.Terraform
	if err := w.Kube.Get(t.Context(), types.NamespacedName{Namespace: w.Namespace, Name: name}, &o); err != nil {
		t.Fatal(err)
	}
	return &o
}

// id is how the records know the stack net.
func (w *World) id(t *testing.T) query.StackID {
	t.Helper()
	return query.StackID{Key: w.key("net"), UID: string(w.object(t, "net").UID)}
}

// edit changes the spec of net, as its owner does.
func (w *World) edit(t *testing.T, change func(*v1alpha2.TerraformSpec)) {
	t.Helper()
	o := w.object(t, "net")
	change(&o.Spec)
	done(t, "editing the stack", w.Kube.Update(t.Context(), o))
}

// status writes the status of net, as the controller does.
func (w *World) status(t *testing.T, memory stack.Status, change func(*v1alpha2.TerraformStatus)) {
	t.Helper()
	raw, err := json.Marshal(memory)
	if err != nil {
		t.Fatal(err)
	}
	o := w.object(t, "net")
	o.Status.Terrier = &v1alpha2.TerrierStatus{Memory: &apiextensionsv1.JSON{Raw: raw}}
	if change != nil {
		change(&o.Status)
	}
	done(t, "writing the status", w.Kube.Status().Update(t.Context(), o))
}

// waits makes a plan of net wait, with its document in the records.
func (w *World) waits(t *testing.T, p query.PlanInfo) {
	t.Helper()
	w.status(t, stack.Status{Plans: stack.Plans{Pending: planOf(p)}}, func(s *v1alpha2.TerraformStatus) {
		s.Plan.Pending, s.Terrier.Phase = p.Name, string(stack.AwaitingApproval)
	})
	w.put(t, record.Plan(w.id(t).UID, p.Digest, runner.FilePlanDoc), document)
}

func planOf(p query.PlanInfo) *stack.Plan {
	return &stack.Plan{Name: p.Name, Digest: p.Digest, Changes: p.Changes}
}

const document = `{"format_version":"1.2","resource_changes":[]}`

// Plans that users see.
var (
	shown = query.PlanInfo{Name: "plan-main-b8e362c206", Digest: "sha256:" + strings.Repeat("ab", 32), Changes: stack.Changes{Add: 1}}
	other = query.PlanInfo{Name: "plan-main-0000000000", Digest: "sha256:" + strings.Repeat("cd", 32), Changes: stack.Changes{Destroy: 3}}
)

func (w *World) put(t *testing.T, key, content string) {
	t.Helper()
	done(t, "keeping "+key, w.blobs.Put(t.Context(), key, strings.NewReader(content)))
}

// ran keeps a run of net that has ended.
func (w *World) ran(t *testing.T, run string, at time.Time, log string) {
	t.Helper()
	id := w.id(t)
	raw, err := json.Marshal(runner.Report{ID: run, Stack: id.UID, Name: id.String(), Kind: stack.PlanRun, Phase: runner.Done, Outcome: stack.Succeeded, Started: at})
	if err != nil {
		t.Fatal(err)
	}
	w.put(t, record.Run(id.UID, run, record.ReportFile), string(raw))
	w.put(t, record.Run(id.UID, run, runner.FileLog), log)
}

// stored puts a state of net into the cluster, and versions of it into the
// records.
func (w *World) stored(t *testing.T, now string, versions ...string) {
	t.Helper()
	states := kube.States{Client: w.Kube, Now: w.Now}
	ref := kube.StateRef{Namespace: w.Namespace, Workspace: "default", Suffix: "net"}
	done(t, "storing the state", states.Save(t.Context(), ref, kube.Owner{Name: "net"}, []byte(now)))
	var list stack.StateVersions
	prefix := record.StateVersions(w.id(t).UID)
	for _, v := range versions {
		f := must(stack.ReadState([]byte(v)))(t)
		one := stack.StateVersion{Lineage: f.Lineage, Serial: f.Serial, Digest: f.Digest, Bytes: f.Bytes, By: "apply-1"}
		list.With(one)
		list.Head = f.StateID
		w.put(t, prefix+one.Key(), v)
	}
	raw, err := json.Marshal(list)
	if err != nil {
		t.Fatal(err)
	}
	w.put(t, prefix+"index.json", string(raw))
}

func stateOf(serial int, names ...string) string {
	var resources []string
	for _, n := range names {
		resources = append(resources, fmt.Sprintf(`{"mode":"managed","type":"t","name":%q,"instances":[{"attributes":{"id":%q}}]}`, n, n))
	}
	return fmt.Sprintf(`{"version":4,"serial":%d,"lineage":"l","outputs":{"door":{"value":"open","type":"string","sensitive":true}},"resources":[%s]}`, serial, strings.Join(resources, ","))
}

// store is files, as the service reads them.
type store struct{ *blob.Files }

func (s store) Get(ctx context.Context, key string) ([]byte, error) {
	r, err := s.Files.Get(ctx, key)
	if err != nil {
		return nil, err
	}
	defer r.Close()
	var out bytes.Buffer
	_, err = io.Copy(&out, r)
	return out.Bytes(), err
}
