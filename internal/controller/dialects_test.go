package controller

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	alustanv1 "github.com/terrier-iac/terrier/api/alustan/v1alpha1"
	"github.com/terrier-iac/terrier/api/infra/v1alpha2"
	"github.com/terrier-iac/terrier/internal/controller/records"
	"github.com/terrier-iac/terrier/internal/controller/states"
	"github.com/terrier-iac/terrier/internal/dialect"
	"github.com/terrier-iac/terrier/internal/dialect/alustan"
	"github.com/terrier-iac/terrier/internal/dialect/infra"
	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/kube"
	"github.com/terrier-iac/terrier/internal/record"
	"github.com/terrier-iac/terrier/internal/runner"
	"github.com/terrier-iac/terrier/internal/stack"
	"github.com/terrier-iac/terrier/internal/testkit"
)

// mapped is a second dialect: stacks that ConfigMaps ask for.
type mapped struct{}

func (mapped) Kind() schema.GroupVersionKind { return corev1.SchemeGroupVersion.WithKind("ConfigMap") }

func (mapped) New() client.Object { return &corev1.ConfigMap{} }

func (mapped) NewList() client.ObjectList { return &corev1.ConfigMapList{} }

func (mapped) AddToScheme(s *runtime.Scheme) error { return corev1.AddToScheme(s) }

func (mapped) View(client.Object) dialect.View { return dialect.View{} }

func (mapped) Terrier(client.Object) *v1alpha2.TerrierStatus { return nil }

func (mapped) Ask(client.Object, dialect.Asked) {}

func (mapped) Finalizer() string { return "mapped.example/stack" }

func (mapped) Annotations() []dialect.Annotation { return nil }

func (mapped) DependencyFinalizer() string { return "mapped.example/dependency." }

func (mapped) Decode(o client.Object) (dialect.Stack, error) {
	data := o.(*corev1.ConfigMap).Data
	var st dialect.Stack
	st.Configuration.Backend = stack.Backend{Kind: stack.Managed, Suffix: data["state"]}
	if kind, name, ok := strings.Cut(data["dependsOn"], "/"); ok {
		st.Configuration.DependsOn = []stack.Ref{{Kind: kind, Namespace: o.GetNamespace(), Name: name}}
	}
	return st, nil
}

func (mapped) Encode(client.Object, dialect.Summary) {}

func (mapped) OnlyProgress(client.Object, client.Object) bool { return false }

func (mapped) Ready(client.Object) (bool, string) { return false, "it never is" }

func (mapped) EventReason(stack.Run) string { return "Mapped" }

func asMapped(name string, age time.Duration, data map[string]string) corev1.ConfigMap {
	return corev1.ConfigMap{Data: data, ObjectMeta: metav1.ObjectMeta{
		Namespace: "apps", Name: name, UID: types.UID("mapped-" + name), CreationTimestamp: metav1.NewTime(time.Unix(1e9, 0).Add(-age)),
	}}
}

func asTerraform(name string, age time.Duration, change func(*v1alpha2.Terraform)) v1alpha2.Terraform {
	o := v1alpha2.Terraform{ObjectMeta: metav1.ObjectMeta{
		Namespace: "apps", Name: name, UID: types.UID("terraform-" + name), CreationTimestamp: metav1.NewTime(time.Unix(1e9, 0).Add(-age)),
	}}
	o.Spec.SourceRef = &v1alpha2.SourceRef{Kind: "GitRepository", Name: "x"}
	change(&o)
	return o
}

// estate is a cache with stacks of two dialects, whose indexes are those that the
// watches make.
type estate struct {
	client.Client
	maps       []corev1.ConfigMap
	terraforms []v1alpha2.Terraform
	scripts    []alustanv1.Terraform
	keys       map[string]func(client.Object) []string
}

func (e *estate) List(_ context.Context, list client.ObjectList, opts ...client.ListOption) error {
	if all, ok := list.(*metav1.PartialObjectMetadataList); ok { // without a selector
		for _, tf := range e.terraforms {
			all.Items = append(all.Items, metav1.PartialObjectMetadata{ObjectMeta: tf.ObjectMeta})
		}
		return nil
	}
	var o client.ListOptions
	o.ApplyOptions(opts)
	field, value := "", ""
	for _, r := range o.FieldSelector.Requirements() {
		field, value = r.Field, r.Value
	}
	has := func(obj client.Object) bool { return slices.Contains(e.keys[field](obj), value) }
	switch list := list.(type) {
	case *corev1.ConfigMapList:
		for _, m := range e.maps {
			if has(&m) {
				list.Items = append(list.Items, m)
			}
		}
	case *v1alpha2.TerraformList:
		for _, tf := range e.terraforms {
			if has(&tf) {
				list.Items = append(list.Items, tf)
			}
		}
	case *alustanv1.TerraformList:
		for _, s := range e.scripts {
			if has(&s) {
				list.Items = append(list.Items, s)
			}
		}
	}
	return nil
}

func (e *estate) Get(_ context.Context, key client.ObjectKey, obj client.Object, _ ...client.GetOption) error {
	switch to := obj.(type) {
	case *corev1.ConfigMap:
		for _, m := range e.maps {
			if client.ObjectKeyFromObject(&m) == key {
				m.DeepCopyInto(to)
				return nil
			}
		}
	case *v1alpha2.Terraform:
		for _, tf := range e.terraforms {
			if client.ObjectKeyFromObject(&tf) == key {
				tf.DeepCopyInto(to)
				return nil
			}
		}
	}
	return errors.New("there is no " + key.String())
}

func newEstate(maps []corev1.ConfigMap, terraforms []v1alpha2.Terraform) *apart {
	return (&estate{maps: maps, terraforms: terraforms}).of(mapped{})
}

// of is a controller of these stacks, and a second dialect.
func (e *estate) of(second dialect.Dialect) *apart {
	c := takeApart(&Stacks{Client: e, Dialects: dialect.NewRegistry(infra.Dialect{}, second), Log: slog.New(slog.DiscardHandler)})
	e.keys = map[string]func(client.Object) []string{indexDependsOn: c.dependsOnKeys, states.Index: c.stateKeys, indexRefers: c.refersKeys}
	return c
}

func TestRootModules(t *testing.T) {
	at := func(name, path string, change func(*v1alpha2.TerraformSpec)) v1alpha2.Terraform {
		return asTerraform(name, 0, func(o *v1alpha2.Terraform) { o.Spec.Path = path; change(&o.Spec) })
	}
	same := func(*v1alpha2.TerraformSpec) {}
	c := newEstate(nil, []v1alpha2.Terraform{
		at("whole", "", same), at("below", "./a/b/", same),
		at("suspended", "suspended", func(s *v1alpha2.TerraformSpec) { s.Suspend = true }),
		at("other", "other", func(s *v1alpha2.TerraformSpec) { s.SourceRef.Name = "y" }),
		at("elsewhere", "elsewhere", func(s *v1alpha2.TerraformSpec) { s.SourceRef.Namespace = "y" }),
		at("bucket", "bucket", func(s *v1alpha2.TerraformSpec) { s.SourceRef.Kind = "Bucket" }),
	})
	got, err := RootModules(t.Context(), c.whole.Client, c.whole.Dialects, "GitRepository", nn("apps", "x"))
	if want := []string{".", "a/b"}; err != nil || !slices.Equal(got, want) {
		t.Errorf("RootModules() = %q, %v; want %q", got, err, want)
	}
}

// foundState is a state as it was found.
type foundState struct{ found kube.Stored }

func (s foundState) Load(context.Context, kube.StateRef) (kube.Stored, error) { return s.found, nil }

// Two stacks on one state are found out, whatever their kinds are.
func TestAStateIsSharedAcrossDialects(t *testing.T) {
	young := asMapped("young", 0, map[string]string{"state": "shared"})
	old := asTerraform("old", time.Hour, func(o *v1alpha2.Terraform) { o.Spec.BackendConfig = &v1alpha2.BackendConfig{SecretSuffix: "shared"} })
	c := newEstate([]corev1.ConfigMap{young}, []v1alpha2.Terraform{old})
	st, err := mapped{}.Decode(&young)
	if err != nil {
		t.Fatal(err)
	}
	p := &pass{dialect: mapped{}, obj: &young, id: string(young.UID), st: st}
	_, err = c.states.Start(t.Context(), p.subject(), nil, "plan-1", stack.PlanRun, stack.Cause{})
	if fault.Reason(err, "") != string(stack.StateShared) || !strings.Contains(err.Error(), "apps/old") {
		t.Errorf("Start() = %v, want the older stack to be named", err)
	}

	// A state whose owner is a stack of another kind with the same name is not one of
	// a former stack.
	c.whole.index.make("terraform-same", objectRef{infra.Dialect{}, nn("apps", "same")})
	same := asMapped("same", 0, map[string]string{"state": "x"})
	c.states.Inspector.Store = foundState{kube.Stored{Owner: "same", OwnerUID: "terraform-same", Digest: "sha256:x"}}
	p = &pass{dialect: mapped{}, obj: &same, id: string(same.UID)}
	_, err = c.states.Start(t.Context(), p.subject(), &kube.StateRef{}, "plan-1", stack.PlanRun, stack.Cause{})
	if fault.Reason(err, "") != string(stack.StateShared) {
		t.Errorf("Start() = %v, want the state to be another stack's", err)
	}
}

// A key of a bucket has one owner among the stacks of both kinds, the older one, however
// each of them names the bucket.
func TestAKeyOfABucketIsSharedAcrossKinds(t *testing.T) {
	const key = "team/network.tfstate"
	plan := func(name string, age time.Duration, key string) v1alpha2.Terraform {
		return asTerraform(name, age, func(o *v1alpha2.Terraform) {
			o.Annotations = map[string]string{infra.Backend: "aws", infra.BackendSettings: `{"bucket": "store", "dynamodb_table": "locks", "region": "us-east-1", "key": "` + key + `"}`}
		})
	}
	script := func(name string, age time.Duration, key string) alustanv1.Terraform {
		o := alustanv1.Terraform{ObjectMeta: metav1.ObjectMeta{
			Namespace: "other", Name: name, UID: types.UID("script-" + name), CreationTimestamp: metav1.NewTime(time.Unix(1e9, 0).Add(-age)),
		}}
		spec := `{"scripts": {"apply": {"inline": "a"}, "destroy": {"inline": "d"}}, "gitRepo": {"url": "https://git.example/org/repo"},
			"backend": {"provider": "aws", "s3": "store", "dynamoDB": "locks", "region": "us-east-1", "key": "` + key + `"}}`
		if err := json.Unmarshal([]byte(spec), &o.Spec); err != nil {
			t.Fatal(err)
		}
		return o
	}
	for name, tt := range map[string]struct {
		plan   v1alpha2.Terraform
		script alustanv1.Terraform
		owner  string // of the refusal; empty if each has a state of its own
		young  dialect.Dialect
	}{
		"scripts come second":       {plan("a", time.Hour, key), script("b", 0, key), "apps/a", alustan.Dialect{}},
		"scripts come first":        {plan("a", 0, key), script("b", time.Hour, key), "other/b", infra.Dialect{}},
		"another key, scripts last": {plan("a", time.Hour, key), script("b", 0, "team/other.tfstate"), "", alustan.Dialect{}},
		"another key, plans last":   {plan("a", 0, key), script("b", time.Hour, "team/other.tfstate"), "", infra.Dialect{}},
	} {
		t.Run(name, func(t *testing.T) {
			c := (&estate{terraforms: []v1alpha2.Terraform{tt.plan}, scripts: []alustanv1.Terraform{tt.script}}).of(alustan.Dialect{})
			for d, obj := range map[dialect.Dialect]client.Object{infra.Dialect{}: &tt.plan, alustan.Dialect{}: &tt.script} {
				st, err := d.Decode(obj)
				if err != nil {
					t.Fatal(err)
				}
				p := &pass{dialect: d, obj: obj, id: string(obj.GetUID()), st: st}
				_, err = c.states.Start(t.Context(), p.subject(), nil, "plan-1", stack.PlanRun, stack.Cause{})
				refused := fault.Reason(err, "") == string(stack.StateShared)
				if want := tt.owner != "" && d == tt.young; refused != want || refused && !strings.Contains(err.Error(), tt.owner) {
					t.Errorf("Start() of %s = %v, refused %v; want %v, for %q", obj.GetName(), err, refused, want, tt.owner)
				}
			}
		})
	}
}

// A stack of one dialect waits for one of another, is woken by it, and goes first.
func TestDependenciesReachAcrossDialects(t *testing.T) {
	app := asMapped("app", 0, map[string]string{"dependsOn": "Terraform/net"})
	other := asMapped("other", 0, map[string]string{"dependsOn": "ConfigMap/net"})
	net := asTerraform("net", 0, func(*v1alpha2.Terraform) {})
	c := newEstate([]corev1.ConfigMap{app, other, asMapped("net", 0, nil)}, []v1alpha2.Terraform{net})
	if got, err := c.dependents(t.Context(), infra.Dialect{}, &net); err != nil || !slices.Equal(got, []string{"app"}) {
		t.Errorf("dependents() = %v, %v; want app and not other", got, err)
	}
	if got := c.neighbours(mapped{})(t.Context(), &net); len(got) != 1 || got[0].Name != "app" {
		t.Errorf("neighbours() = %v, want app to be woken", got)
	}
	for obj, want := range map[*corev1.ConfigMap]string{&app: "not reconciled it yet", &other: "it never is"} {
		st, err := mapped{}.Decode(obj)
		if err != nil {
			t.Fatal(err)
		}
		b, err := c.firstNotReady(t.Context(), &pass{dialect: mapped{}, obj: obj, st: st})
		if err != nil || b == nil || !strings.Contains(b.Message, want) {
			t.Errorf("%s waits for %+v, %v; want %q", obj.Name, b, err, want)
		}
	}
}

// The sweep of records knows the stacks of all dialects: it keeps what is of any of
// them, and writes down the one that is gone.
func TestTheSweepKnowsAllDialects(t *testing.T) {
	k := testkit.Kube(t, v1alpha2.AddToScheme)
	k.Apply(t, `
apiVersion: infra.contrib.fluxcd.io/v1alpha2
kind: Terraform
metadata: {name: one}
spec: {interval: 1h, path: ./, sourceRef: {kind: GitRepository, name: code}}
`)
	second := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: k.Namespace, Name: "two"}}
	if err := k.Client.Create(t.Context(), second); err != nil {
		t.Fatal(err)
	}
	var first v1alpha2.Terraform
	if err := k.Client.Get(t.Context(), client.ObjectKey{Namespace: k.Namespace, Name: "one"}, &first); err != nil {
		t.Fatal(err)
	}
	// A run of the one that is gone is left, and nothing else says of which kind it was.
	left, book := &script{report: &runner.Report{
		ID: "plan-1", Stack: "gone", ObjectKind: dialect.KindOf(mapped{}), Name: "apps/two", Kind: stack.PlanRun, Phase: runner.Done, Note: []byte("{}"),
	}}, &diary{}
	c := takeApart(&Stacks{
		Live: k.Client, Dialects: dialect.NewRegistry(infra.Dialect{}, mapped{}), Blobs: openRecords(t), Runner: left, Audit: book,
		Queue: queueOf(1), Now: time.Now, Log: slog.New(slog.DiscardHandler), Ours: theirs(nil),
	})
	alive := []string{string(first.UID), string(second.UID)}
	for _, id := range append(alive, "gone") {
		if err := c.records.Put(t.Context(), record.Outputs(id), []byte("{}")); err != nil {
			t.Fatal(err)
		}
	}
	if err := c.sweepGone(t.Context()); err != nil {
		t.Fatal(err)
	}
	retained, err := c.retained(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for id := range retained {
		if id != "gone" {
			t.Errorf("%s counts as gone", id)
		}
	}
	if _, ok := retained["gone"]; !ok {
		t.Error("the stack that is gone is not written down")
	}
	if got := book.entries; len(got) != 1 || got[0].Object.Kind != "ConfigMap" || got[0].Object.Name != "two" {
		t.Errorf("the audit log has %+v, want the ConfigMap two", got)
	}
}

// theirs says whether the cluster is the one of the records.
func theirs(err error) func(context.Context) error {
	return func(context.Context) error { return err }
}

// A list is no proof: one of another cluster, or an empty one, drops no record, however
// old the stacks are that are not in it. One that holds another stack does.
func TestTheSweepDoubtsLists(t *testing.T) {
	other := asTerraform("other", 0, func(*v1alpha2.Terraform) {})
	for name, tt := range map[string]struct {
		alive []v1alpha2.Terraform
		ours  error
		stay  int
	}{
		"an empty cluster": {nil, nil, 2},
		"another cluster":  {[]v1alpha2.Terraform{other}, fault.New(fault.Denied, "RecordsOfAnotherCluster", errors.New("another cluster")), 3},
		"this cluster":     {[]v1alpha2.Terraform{other}, nil, 0},
	} {
		t.Run(name, func(t *testing.T) {
			blobs := openRecords(t)
			c := takeApart(&Stacks{
				Live: &estate{terraforms: tt.alive}, Dialects: dialect.NewRegistry(infra.Dialect{}), Blobs: blobs, Runner: &script{}, Audit: &diary{},
				Queue: queueOf(1), Now: time.Now, Log: slog.New(slog.DiscardHandler), Ours: theirs(tt.ours),
			})
			if err := c.records.Put(t.Context(), record.Outputs("gone"), []byte("{}")); err != nil {
				t.Fatal(err)
			}
			if err := c.records.Put(t.Context(), record.Tree("sha256:unneeded"), []byte("archive")); err != nil {
				t.Fatal(err)
			}
			long := kube.Retained{UID: "gone", At: time.Now().Add(-kube.RetainedFor - time.Hour)}
			if err := record.At[kube.Retained](record.Retained("gone", record.RetainedFile)).Write(t.Context(), blobs, long); err != nil {
				t.Fatal(err)
			}
			if err := c.removals.sweep(t.Context()); !errors.Is(err, tt.ours) {
				t.Errorf("sweep() = %v, want %v", err, tt.ours)
			}
			left, err := blobs.List(t.Context(), "")
			if err != nil || len(left) != tt.stay {
				t.Errorf("%v is left, %v, want %d records", left, err, tt.stay)
			}
		})
	}
}

// Two stacks of one name and two kinds are two: in the index, in the schedule, and
// for those who wake them.
func TestStacksOfOneNameAreKeptApart(t *testing.T) {
	var x index
	key := nn("apps", "net")
	a, b := objectRef{infra.Dialect{}, key}, objectRef{mapped{}, key}
	x.make("one", a)
	x.make("two", b)
	if got := x.newest(a); got == nil || got.id != "one" {
		t.Errorf("newest() = %+v, want the first stack", got)
	}
	x.drop("one")
	if x.newest(a) != nil || x.newest(b) == nil {
		t.Error("the second stack was forgotten with the first")
	}
	if a.scheduleKey() == b.scheduleKey() {
		t.Error("the schedule knows both by one key")
	}
	var r wakeQueues
	queues := map[string]workqueue.TypedRateLimitingInterface[reconcile.Request]{}
	for _, d := range []dialect.Dialect{infra.Dialect{}, mapped{}} {
		q := workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[reconcile.Request]())
		defer q.ShutDown()
		queues[dialect.KindOf(d)] = q
		r.serve(dialect.KindOf(d), q)
	}
	r.add(b)
	if n, m := queues[dialect.KindOf(infra.Dialect{})].Len(), queues[dialect.KindOf(mapped{})].Len(); n != 0 || m != 1 {
		t.Errorf("woken are %d and %d stacks, want the second one", n, m)
	}
}

// A git server that answers again has the stacks reconciled whose states it keeps, and no others.
func TestStacksAreWokenByThePlaceOfTheirState(t *testing.T) {
	one, other := asMapped("one", 0, map[string]string{"state": "x"}), asMapped("other", 0, map[string]string{"state": "y"})
	c := newEstate([]corev1.ConfigMap{one, other}, nil)
	q := workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[reconcile.Request]())
	defer q.ShutDown()
	c.whole.wakes.serve(dialect.KindOf(mapped{}), q)
	c.whole.StateAnswered(t.Context(), states.ManagedPlace(kube.StateRef{Namespace: "apps", Workspace: "default", Suffix: "x"}))
	if got, _ := q.Get(); got.Name != "one" || q.Len() != 0 {
		t.Errorf("woken is %v, and %d more, want one", got, q.Len())
	}
}

// answeredState is a store that answers every question alike.
type answeredState struct {
	found kube.Stored
	err   error
}

func (s answeredState) Load(context.Context, kube.StateRef) (kube.Stored, error) {
	return s.found, s.err
}

// A stack that is deleted and may have inherited a state says why it does not know, and stays.
func TestADeletedStackThatMayHaveInheritedAState(t *testing.T) {
	full := thing("l", 3)
	for name, tt := range map[string]struct {
		store  answeredState
		reason stack.Reason
		says   string
	}{
		"its git server does not answer": {
			answeredState{err: fault.New(fault.Later, string(stack.StateFailed), errors.New("the git server has not answered"))}, stack.StateFailed, "has not answered",
		},
		"the state names no owner": {
			answeredState{found: kube.Stored{State: full, Digest: stack.Sum(full)}}, stack.StateNotAdopted, "terrier.dev/deletion=retain",
		},
	} {
		t.Run(name, func(t *testing.T) {
			obj := asMapped("one", 0, map[string]string{"state": "x"})
			c := newEstate([]corev1.ConfigMap{obj}, nil)
			kept := &records.Store{Blobs: openRecords(t)}
			in := c.observer.inspector
			in.Store, in.Records, in.Versions = tt.store, kept, &states.Versions{Records: kept, Log: slog.New(slog.DiscardHandler)}
			st, err := mapped{}.Decode(&obj)
			if err != nil {
				t.Fatal(err)
			}
			p := &pass{dialect: mapped{}, obj: &obj, id: string(obj.UID), st: st, entry: &entry{checks: &record.Check{}}}
			p.o.Deleting, p.o.Spec.DestroyLast, p.o.Spec.RetryEvery = true, true, time.Minute
			if err := c.observer.observe(t.Context(), p); err != nil {
				t.Fatal(err)
			}
			d := stack.Decide(p.o)
			if _, waits := d.Action.(stack.Wait); !waits || d.Reason != tt.reason || !strings.Contains(d.Message, tt.says) {
				t.Errorf("Decide() = %+v, want it to wait and say why", d)
			}
		})
	}
}
