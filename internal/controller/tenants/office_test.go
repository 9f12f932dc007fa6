package tenants

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	tenantsv1 "github.com/terrier-iac/terrier/api/tenants/v1"
	"github.com/terrier-iac/terrier/internal/kube"
	"github.com/terrier-iac/terrier/internal/rows"
	"github.com/terrier-iac/terrier/internal/secret"
	"github.com/terrier-iac/terrier/internal/tenant"
	"github.com/terrier-iac/terrier/internal/testkit"
)

// board is a table in memory with the columns id, url, active and plan.
type board struct {
	mu     sync.Mutex
	rows   map[string][3]string // by id
	odd    [][4]string          // rows that no key could have
	mark   string
	err    error
	reads  int
	listen map[string]func()

	gates map[string]chan struct{} // of servers that hang until theirs is closed, by host
	hung  int                      // reads that hang
}

// hang makes a server hang until the returned function is called, or the test ends.
func (b *board) hang(t *testing.T, host string) (goOn func()) {
	gate := make(chan struct{})
	goOn = sync.OnceFunc(func() {
		b.with(func() {
			if b.gates[host] == gate { // else it is closed again already, for the next reads
				delete(b.gates, host)
			}
		})
		close(gate)
	})
	b.with(func() { b.gates = map[string]chan struct{}{host: gate} })
	t.Cleanup(goOn)
	return goOn
}

// hanging is how many reads hang.
func (b *board) hanging() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.hung
}

func (b *board) Read(ctx context.Context, _ string, c rows.Config, columns []string) (tenant.Snapshot, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if gate := b.gates[c.Host]; gate != nil {
		b.hung++
		b.mu.Unlock()
		select {
		case <-gate:
		case <-ctx.Done():
		}
		b.mu.Lock()
		b.hung--
		if ctx.Err() != nil {
			return tenant.Snapshot{}, ctx.Err()
		}
	}
	b.reads++
	if b.err != nil {
		return tenant.Snapshot{}, b.err
	}
	all := slices.Clone(b.odd)
	for id, r := range b.rows {
		all = append(all, [4]string{id, r[0], r[1], r[2]})
	}
	s := tenant.Snapshot{Columns: columns, Mark: b.mark}
	for _, r := range all {
		var cells []tenant.Cell
		for _, c := range columns {
			text := r[slices.Index([]string{"id", "url", "active", "plan"}, c)]
			cells = append(cells, tenant.Cell{Text: text, Null: text == ""})
		}
		s.Rows = append(s.Rows, cells)
	}
	return s, nil
}

func (b *board) Listen(ctx context.Context, key string, _ rows.Config, notify func()) error {
	b.mu.Lock()
	b.listen[key] = notify
	b.mu.Unlock()
	<-ctx.Done()
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.listen, key)
	return nil
}

func (b *board) Drop(string) {}

// with changes the table.
func (b *board) with(change func()) {
	b.mu.Lock()
	defer b.mu.Unlock()
	change()
}

func (b *board) queries() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.reads
}

// rumours collects events.
type rumours struct {
	mu  sync.Mutex
	all []string
}

func (r *rumours) Event(obj client.Object, kind, reason, message string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.all = append(r.all, kind+" "+reason+" "+message)
}

func (r *rumours) count(reason string) (n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, e := range r.all {
		if strings.Contains(e, " "+reason+" ") {
			n++
		}
	}
	return n
}

// office is a namespace with the reconcilers of registries and templates, and a
// table. In the place of the reconciler of Tenants is one that lets them go, and
// says that they are ready if it is told to.
type office struct {
	*testkit.Cluster
	t       *testing.T
	table   *board
	made    testkit.Requests
	heard   *rumours
	metrics *prometheus.Registry
	syncs   int
	options []func(*Options)
	stop    func()

	mu    sync.Mutex
	ready bool
}

func newOffice(t *testing.T, set ...func(*Options)) *office {
	o := &office{
		Cluster: testkit.Kube(t, tenantsv1.AddToScheme), t: t, heard: &rumours{}, metrics: prometheus.NewRegistry(),
		table: &board{rows: map[string][3]string{}, listen: map[string]func(){}}, options: set,
	}
	o.start()
	t.Cleanup(func() {
		o.stop()
		o.abandon()
	})
	return o
}

// start runs the reconcilers.
func (o *office) start() {
	t := o.t
	t.Helper()
	live, err := client.New(o.made.Of(o.Config), client.Options{Scheme: o.Client.Scheme()})
	if err != nil {
		t.Fatal(err)
	}
	skip := true
	mgr, err := ctrl.NewManager(o.Config, ctrl.Options{
		Scheme: o.Client.Scheme(), Metrics: metricsserver.Options{BindAddress: "0"}, Controller: config.Controller{SkipNameValidation: &skip},
		Cache: cache.Options{
			DefaultNamespaces: map[string]cache.Config{o.Namespace: {}},
			ByObject:          map[client.Object]cache.ByObject{&tenantsv1.Tenant{}: {Transform: Slim}},
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	options := Options{
		Live: live, Rows: o.table, Events: o.heard, Metrics: o.metrics, Key: secret.New("key"), Now: time.Now, Log: slog.New(slog.DiscardHandler),
	}
	for _, s := range o.options {
		s(&options)
	}
	if err = setupRows(mgr, options); err == nil {
		err = ctrl.NewControllerManagedBy(mgr).Named("stand-in").For(&tenantsv1.Tenant{}).Complete(o)
	}
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- mgr.Start(ctx) }()
	o.stop = func() {
		stop()
		if err := <-done; err != nil {
			t.Errorf("the manager ended with: %v", err)
		}
	}
}

// restart runs other reconcilers, which have seen nothing yet.
func (o *office) restart() {
	o.t.Helper()
	o.stop()
	o.metrics = prometheus.NewRegistry()
	o.start()
}

// Reconcile is the stand-in.
func (o *office) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	var t tenantsv1.Tenant
	if err := o.Client.Get(ctx, req.NamespacedName, &t); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	o.mu.Lock()
	ready := o.ready
	o.mu.Unlock()
	switch {
	case t.DeletionTimestamp != nil:
		controllerutil.RemoveFinalizer(&t, tenantsv1.TenantFinalizer)
		return ctrl.Result{}, client.IgnoreNotFound(o.Client.Update(ctx, &t))
	case ready:
		return ctrl.Result{}, o.say(ctx, &t, true)
	}
	return ctrl.Result{}, nil
}

// say writes the status of a Tenant that is, or is not, ready as it is now.
func (o *office) say(ctx context.Context, t *tenantsv1.Tenant, ready bool) error {
	before := t.DeepCopy()
	t.Status.ObservedGeneration, t.Status.Row, t.Status.TemplateGeneration = t.Generation, t.Annotations[tenantsv1.AnnotationRow], generationOf(t)
	for kind, is := range map[string]bool{"Ready": ready, "Degraded": !ready} {
		setCondition(&t.Status.Conditions, t.Generation, time.Now(), kind, is, "Test", "")
	}
	if changed, err := kube.Differ(before, t); err != nil || !changed {
		return err
	}
	return o.Client.Status().Patch(ctx, t, client.MergeFrom(before))
}

// tenantsAreReady makes the stand-in say so of all that come and of those that
// are there.
func (o *office) tenantsAreReady() {
	o.t.Helper()
	o.mu.Lock()
	o.ready = true
	o.mu.Unlock()
	for _, t := range o.tenants() {
		if err := o.say(o.t.Context(), &t, true); err != nil {
			o.t.Fatal(err)
		}
	}
}

// abandon takes finalizers off, so that the namespace can go.
func (o *office) abandon() {
	ctx, cancel := context.WithTimeout(context.Background(), testkit.Patience)
	defer cancel()
	for _, list := range []client.ObjectList{&tenantsv1.TenantList{}, &tenantsv1.TenantTemplateList{}, &tenantsv1.TenantRegistryList{}} {
		if err := o.Client.List(ctx, list, client.InNamespace(o.Namespace)); err != nil {
			o.t.Errorf("cleaning up: %v", err)
		}
		objects, err := meta.ExtractList(list)
		if err != nil {
			o.t.Error(err)
		}
		for _, obj := range objects {
			patch := client.RawPatch("application/merge-patch+json", []byte(`{"metadata":{"finalizers":null}}`))
			if err := o.Client.Patch(ctx, obj.(client.Object), patch); client.IgnoreNotFound(err) != nil {
				o.t.Errorf("cleaning up: %v", err)
			}
		}
	}
}

// open makes the registry reg, with more lines of its spec, and the template web.
// Without a guard among them it deletes tenants at once.
func (o *office) open(more ...string) {
	o.t.Helper()
	if !slices.ContainsFunc(more, func(l string) bool { return strings.HasPrefix(l, "guard:") }) {
		more = append(more, "guard: {gracePeriod: 0s}")
	}
	o.Apply(o.t, `
apiVersion: operator.kubernetes-tenants.org/v1
kind: TenantRegistry
metadata: {name: reg}
spec:
  source: {type: postgresql, syncInterval: 1h, postgresql: {host: nowhere, username: u, database: d, table: t, channel: rows}}
  valueMappings: {uid: id, hostOrUrl: url, activate: active}
  extraValueMappings: {plan: plan}
`+indented(more))
	o.template()
}

// template makes or changes the template web.
func (o *office) template(more ...string) {
	o.t.Helper()
	o.Apply(o.t, webTemplate+indented(more))
}

const webTemplate = `
apiVersion: operator.kubernetes-tenants.org/v1
kind: TenantTemplate
metadata: {name: web}
spec:
  registryId: reg
  configMaps:
  - id: config
    nameTemplate: "{{ .uid }}-config"
    spec: {apiVersion: v1, kind: ConfigMap, data: {plan: "{{ .plan }}"}}
`

func indented(lines []string) (text string) {
	for _, l := range lines {
		text += "  " + l + "\n"
	}
	return text
}

// insert adds n active rows a000, a001, …
func (o *office) insert(n int) {
	o.table.with(func() {
		for i := range n {
			id := fmt.Sprintf("a%03d", i)
			o.table.rows[id] = [3]string{"https://" + id + ".example.com", "1", "gold"}
		}
	})
}

func (o *office) set(id, url, active, plan string) {
	o.table.with(func() { o.table.rows[id] = [3]string{url, active, plan} })
}

func (o *office) delete(ids ...string) {
	o.table.with(func() {
		for _, id := range ids {
			delete(o.table.rows, id)
		}
	})
}

// change changes the registry as a person does, whatever the controller writes meanwhile.
func (o *office) change(set func(*tenantsv1.TenantRegistry)) *tenantsv1.TenantRegistry {
	o.t.Helper()
	r := o.registry()
	before := r.DeepCopy()
	set(r)
	if err := o.Client.Patch(o.t.Context(), r, client.MergeFrom(before)); err != nil {
		o.t.Fatal(err)
	}
	return r
}

// sync asks for a read, and waits until it was acted upon.
func (o *office) sync() *tenantsv1.TenantRegistry {
	o.t.Helper()
	o.syncs++
	want := fmt.Sprint("sync ", o.syncs)
	o.annotate(o.registry(), tenantsv1.AnnotationSyncNow, want)
	var r *tenantsv1.TenantRegistry
	o.eventually("the rows were read", func() error {
		if r = o.registry(); r.Status.LastHandledSync != want {
			return fmt.Errorf("the status is %+v", r.Status)
		}
		return nil
	})
	return r
}

func (o *office) annotate(obj client.Object, key, value string) {
	o.t.Helper()
	patch := client.RawPatch("application/merge-patch+json", fmt.Appendf(nil, `{"metadata":{"annotations":{%q:%q}}}`, key, value))
	if err := o.Client.Patch(o.t.Context(), obj, patch); err != nil {
		o.t.Fatal(err)
	}
}

func (o *office) registry() *tenantsv1.TenantRegistry {
	o.t.Helper()
	var r tenantsv1.TenantRegistry
	o.get("reg", &r)
	return &r
}

func (o *office) web() *tenantsv1.TenantTemplate {
	o.t.Helper()
	var r tenantsv1.TenantTemplate
	o.get("web", &r)
	return &r
}

func (o *office) get(name string, obj client.Object) {
	o.t.Helper()
	if err := o.Client.Get(o.t.Context(), client.ObjectKey{Namespace: o.Namespace, Name: name}, obj); err != nil {
		o.t.Fatal(err)
	}
}

// tenants are those that are there, by name.
func (o *office) tenants() map[string]tenantsv1.Tenant {
	o.t.Helper()
	var list tenantsv1.TenantList
	if err := o.Client.List(o.t.Context(), &list, client.InNamespace(o.Namespace)); err != nil {
		o.t.Fatal(err)
	}
	all := map[string]tenantsv1.Tenant{}
	for _, t := range list.Items {
		all[t.Name] = t
	}
	return all
}

func (o *office) eventually(what string, check func() error) {
	o.t.Helper()
	testkit.Eventually(o.t, testkit.Patience, what, func(context.Context) error { return check() })
}

// wantTenants waits until exactly these are there.
func (o *office) wantTenants(when string, names ...string) {
	o.t.Helper()
	slices.Sort(names)
	o.eventually(when+" the tenants are right", func() error {
		if got := slices.Sorted(maps.Keys(o.tenants())); !slices.Equal(got, names) {
			return fmt.Errorf("they are %v, want %v", got, names)
		}
		return nil
	})
}

// wantCondition waits until an object says so; empty for any.
func (o *office) wantCondition(read func() []metav1.Condition, kind string, status metav1.ConditionStatus, reason string) metav1.Condition {
	o.t.Helper()
	var c *metav1.Condition
	o.eventually(kind+" is "+string(status)+" "+reason, func() error {
		if c = meta.FindStatusCondition(read(), kind); c == nil || c.Status != status || c.Reason != reason {
			return fmt.Errorf("it is %+v", c)
		}
		return nil
	})
	return *c
}

func (o *office) ofRegistry() []metav1.Condition { return o.registry().Status.Conditions }
func (o *office) ofTemplate() []metav1.Condition { return o.web().Status.Conditions }

var errDown = errors.New("nobody answers at nowhere:5432")

// writes are the paths of the writes to the API server since it was called last,
// each after its method.
func (o *office) writes() []string {
	var all []string
	for _, r := range o.made.Take() {
		if r.Method != http.MethodGet {
			all = append(all, r.Method+" "+r.Path)
		}
	}
	return all
}
