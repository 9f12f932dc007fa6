package tenants

import (
	"context"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	tenantsv1 "github.com/terrier-iac/terrier/api/tenants/v1"
	"github.com/terrier-iac/terrier/internal/tenant"
)

// hangingRegistry reads a server that hangs, for longer than the test.
const hangingRegistry = `
apiVersion: operator.kubernetes-tenants.org/v1
kind: TenantRegistry
metadata: {name: %s}
spec:
  source: {type: postgresql, syncInterval: 1s, timeout: 1000h, postgresql: {host: hangs, username: u, database: d, table: t}}
  valueMappings: {uid: id, activate: active}
`

func (o *office) edit(spec string) {
	o.t.Helper()
	if err := o.Client.Patch(o.t.Context(), o.registry(), client.RawPatch(types.MergePatchType, []byte(`{"spec":`+spec+`}`))); err != nil {
		o.t.Fatal(err)
	}
}

func (o *office) wantHanging(when string, n int) {
	o.t.Helper()
	o.eventually(when+" the reads hang", func() error {
		if got := o.table.hanging(); got != n {
			return fmt.Errorf("%d do, want %d", got, n)
		}
		return nil
	})
}

// Users choose databases and timeouts: those of one registry must not stop another.
func TestADatabaseThatHangsStopsItsOwnRegistryOnly(t *testing.T) {
	o := newOffice(t, func(o *Options) { o.RegistryWorkers = 1 })
	goOn := o.table.hang(t, "hangs")
	for i := range readsAtOnce - 1 {
		o.Apply(t, fmt.Sprintf(hangingRegistry, fmt.Sprint("hang", i)))
	}
	o.wantHanging("all of them at once,", readsAtOnce-1)
	o.insert(2)
	o.open()
	o.sync()
	o.wantTenants("while other databases hang", "a000-web", "a001-web")
	first := func() []metav1.Condition {
		var r tenantsv1.TenantRegistry
		o.get("hang0", &r)
		return r.Status.Conditions
	}
	o.wantCondition(first, "Ready", metav1.ConditionFalse, "DatabaseConnectionFailed")
	goOn()
	o.wantCondition(first, "Ready", metav1.ConditionTrue, "DatabaseConnected")
}

// A read that goes on says nothing about rows: neither those before it count, nor is
// anything concluded from their absence. What needs no rows goes on.
func TestARegistryWhoseReadGoesOn(t *testing.T) {
	o := newOffice(t)
	o.insert(3)
	o.open()
	o.sync()
	o.wantTenants("with three rows", "a000-web", "a001-web", "a002-web")
	o.delete("a000", "a001", "a002")
	o.wantCondition(func() []metav1.Condition { return o.sync().Status.Conditions }, "Guarded", metav1.ConditionTrue, "NoRows")
	goOn := o.table.hang(t, "nowhere")
	token := o.registry().Status.Blocked.Token
	o.annotate(o.registry(), tenantsv1.AnnotationAllowDeletions, token)
	o.wantHanging("after a user has allowed the deletions,", 1)
	o.template("serviceAccountName: other")
	o.generation("all have the new template", 2, 3)
	if r := o.registry(); len(o.tenants()) != 3 || r.Status.Blocked == nil || r.Status.Blocked.Token != token {
		t.Errorf("%d tenants are there, and blocked is %+v: nothing is deleted before the read has ended", len(o.tenants()), r.Status.Blocked)
	}
	o.wantCondition(o.ofRegistry, "Ready", metav1.ConditionTrue, "DatabaseConnected")
	goOn()
	o.wantTenants("once the read has ended")
}

// A user allows what the status shows. Rows that were asked for before that do not count for
// the permission.
func TestRowsFromBeforeAPermission(t *testing.T) {
	o := newOffice(t)
	o.insert(3)
	o.open()
	o.sync()
	all := []string{"a000-web", "a001-web", "a002-web"}
	o.wantTenants("with three rows", all...)
	o.delete("a000", "a001", "a002")
	o.wantCondition(func() []metav1.Condition { return o.sync().Status.Conditions }, "Guarded", metav1.ConditionTrue, "NoRows")
	before := o.table.queries()
	first := o.table.hang(t, "nowhere")
	o.annotate(o.registry(), tenantsv1.AnnotationSyncNow, "again")
	o.wantHanging("before the permission,", 1)
	o.template("serviceAccountName: other")
	o.generation("no pass waits for that read any more", 2, 3)
	second := o.table.hang(t, "nowhere")
	o.annotate(o.registry(), tenantsv1.AnnotationAllowDeletions, o.registry().Status.Blocked.Token)
	first()
	o.eventually("another read has begun", func() error {
		if n := o.table.queries(); n != before+1 || o.table.hanging() != 1 {
			return fmt.Errorf("%d have ended, %d go on", n-before, o.table.hanging())
		}
		return nil
	})
	o.wantTenants("with rows from before the permission", all...)
	o.insert(3)
	second()
	if r := o.sync(); r.Status.Blocked != nil {
		t.Errorf("blocked are %+v, want none: the rows are back", r.Status.Blocked)
	}
	o.wantTenants("since their rows are back", all...)
	for name, tn := range o.tenants() {
		if tn.DeletionTimestamp != nil {
			t.Errorf("%s is being deleted", name)
		}
	}
}

// blocks has rows that are gone, and a deleted template, with one set of deletions that a
// guard blocks.
func (o *office) blocks() (token string) {
	o.t.Helper()
	o.insert(3)
	o.open("guard: {gracePeriod: 0s, maxDeletions: 1}")
	o.Apply(o.t, strings.ReplaceAll(webTemplate, "web", "api"))
	o.sync()
	o.wantTenants("with two templates", "a000-api", "a001-api", "a002-api", "a000-web", "a001-web", "a002-web")
	o.delete("a000", "a001", "a002")
	api := &tenantsv1.TenantTemplate{}
	o.get("api", api)
	if err := o.Client.Delete(o.t.Context(), api); err != nil {
		o.t.Fatal(err)
	}
	o.eventually("all deletions are blocked", func() error {
		b := o.sync().Status.Blocked
		if b == nil || b.Count != 6 {
			return fmt.Errorf("blocked are %+v", b)
		}
		token = b.Token
		return nil
	})
	return token
}

// Without rows a pass knows the deletions of deleted templates only. The set that a user may
// allow stays the one with rows, until rows are known again.
func TestAPermissionOutlastsASlowRead(t *testing.T) {
	o := newOffice(t)
	token := o.blocks()
	goOn := o.table.hang(t, "nowhere")
	o.annotate(o.registry(), tenantsv1.AnnotationAllowDeletions, token)
	o.wantHanging("after a user has allowed the deletions,", 1)
	o.template("serviceAccountName: other")
	o.generation("a pass does not wait for the read", 2, 3)
	goOn()
	o.wantTenants("once the read has ended")
}

func TestAPermissionOutlastsAFailedRead(t *testing.T) {
	o := newOffice(t)
	token := o.blocks()
	o.sync() // the pass before it has told by now what its status says
	said := o.heard.count("DeletionsBlocked")
	o.table.with(func() { o.table.err = errDown })
	o.annotate(o.registry(), tenantsv1.AnnotationAllowDeletions, token)
	o.wantCondition(o.ofRegistry, "Ready", metav1.ConditionFalse, "DatabaseConnectionFailed")
	if b := o.registry().Status.Blocked; b == nil || b.Token != token || len(o.tenants()) != 6 {
		t.Errorf("while the database is down blocked are %+v, want those of before", b)
	}
	if n := o.heard.count("DeletionsBlocked"); n != said {
		t.Errorf("it was told %d times that deletions are blocked, want %d", n, said)
	}
	o.table.with(func() { o.table.err = nil })
	o.annotate(o.registry(), tenantsv1.AnnotationSyncNow, "once more")
	o.wantTenants("once the database answers")
}

// Another process does not know of which set the rows are a part until it has read them.
func TestAPermissionOutlastsARestart(t *testing.T) {
	o := newOffice(t)
	token := o.blocks()
	o.table.with(func() { o.table.err = errDown })
	o.restart()
	o.wantCondition(o.ofRegistry, "Ready", metav1.ConditionFalse, "DatabaseConnectionFailed")
	o.annotate(o.registry(), tenantsv1.AnnotationAllowDeletions, token)
	o.template("serviceAccountName: other")
	o.generation("a pass without rows", 2, 3)
	if b := o.registry().Status.Blocked; b == nil || b.Token != token || len(o.tenants()) != 6 {
		t.Errorf("while the database is down blocked are %+v, want those of before", b)
	}
	o.table.with(func() { o.table.err = nil })
	o.annotate(o.registry(), tenantsv1.AnnotationSyncNow, "once more")
	o.wantTenants("once the database answers")
}

// A registry that is created again under its name, before a pass sees that the former is
// gone, does not leave its read going.
func TestTheReadOfAFormerRegistryIsStopped(t *testing.T) {
	c, err := newRegistries(nil, Options{Rows: &board{}}, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	of := func(uid types.UID) *remembered {
		return c.remembers(&tenantsv1.TenantRegistry{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "reg", UID: uid}})
	}
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	of("1").reading = &reading{stop: stop}
	if m := of("1"); m.reading == nil || ctx.Err() != nil {
		t.Errorf("the read of a registry that is there is %+v, %v", m.reading, ctx.Err())
	}
	if m := of("2"); m.reading != nil || ctx.Err() == nil {
		t.Errorf("the new registry has the read %+v, and that of the former goes on: %t", m.reading, ctx.Err() == nil)
	}
}

// A read that is not asked for any more is stopped, and its rows are not used.
func TestAReadThatIsNotAskedForAnyMore(t *testing.T) {
	o := newOffice(t)
	o.insert(1)
	o.table.hang(t, "nowhere")
	o.open()
	o.wantHanging("at first,", 1)
	o.edit(`{"suspend":true}`)
	o.wantCondition(o.ofRegistry, "Ready", metav1.ConditionFalse, "Suspended")
	o.wantHanging("while the registry is suspended,", 0)
	o.edit(`{"suspend":false}`)
	o.wantHanging("once it is resumed,", 1)
	o.wantCondition(o.ofRegistry, "Ready", metav1.ConditionFalse, "DatabaseConnectionFailed")
	o.edit(`{"source":{"postgresql":{"host":"elsewhere"}}}`)
	o.wantTenants("with a database that answers", "a000-web")
	o.wantHanging("then", 0)
	if err := o.Client.Delete(t.Context(), o.registry()); err != nil {
		t.Fatal(err)
	}
	o.wantTenants("without the registry")
}

// A namespace has a few reads at once. Those of others do not wait for them.
func TestReadsOfOneNamespace(t *testing.T) {
	woken := make(chan types.NamespacedName, 10)
	b := newBeside(func(key types.NamespacedName) { woken <- key })
	ctx, end := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- b.Run(ctx) }()
	hang := func(ctx context.Context) (tenant.Snapshot, error) {
		<-ctx.Done()
		return tenant.Snapshot{}, ctx.Err()
	}
	start := func(namespace string, i int) (*reading, bool) {
		r := &reading{}
		r.left.Store(true)
		return r, b.start(t.Context(), types.NamespacedName{Namespace: namespace, Name: fmt.Sprint(i)}, r, hang)
	}
	var all []*reading
	for i := range readsAtOnce {
		r, ok := start("a", i)
		if all = append(all, r); !ok {
			t.Fatalf("read %d of a namespace is not started", i)
		}
	}
	if _, ok := start("a", 9); ok {
		t.Error("a namespace has more reads at once than it may have")
	}
	other, ok := start("b", 0)
	if !ok {
		t.Error("another namespace has to wait for the first")
	}
	all[0].stop()
	<-all[0].ended
	if key := <-woken; key.Name != "0" || key.Namespace != "a" {
		t.Errorf("woken is %s, want the registry whose read has ended", key)
	}
	if _, ok := start("a", 9); !ok {
		t.Error("a read does not begin after another one has ended")
	}
	end()
	if err := <-done; err != nil {
		t.Error(err)
	}
	<-other.ended // Run has waited for it
	if n := b.places.Busy(); n != 0 || !b.places.Idle() {
		t.Errorf("%d reads are still counted", n)
	}
}

// A registry that waits for a read of its namespace to end is woken then, in its turn. One that
// is suspended or deleted meanwhile leaves its turn to the next.
func TestRegistriesThatWaitForAReadAreWoken(t *testing.T) {
	woken := make(chan types.NamespacedName, 10)
	b := newBeside(func(key types.NamespacedName) { woken <- key })
	ctx, end := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- b.Run(ctx) }()
	defer func() {
		end()
		if err := <-done; err != nil {
			t.Error(err)
		}
	}()
	start := func(name string) (*reading, bool) {
		r := &reading{}
		return r, b.start(t.Context(), types.NamespacedName{Namespace: "a", Name: name}, r, func(ctx context.Context) (tenant.Snapshot, error) {
			<-ctx.Done()
			return tenant.Snapshot{}, ctx.Err()
		})
	}
	var all []*reading
	for i := range readsAtOnce {
		r, _ := start(fmt.Sprint(i))
		all = append(all, r)
	}
	for _, name := range []string{"suspended", "first", "second"} {
		if _, ok := start(name); ok {
			t.Fatalf("the read of %s begins beside %d others", name, readsAtOnce)
		}
	}
	b.withdraw(types.NamespacedName{Namespace: "a", Name: "suspended"})
	for _, want := range []string{"first", "second"} {
		all[0].stop()
		<-all[0].ended
		if key := <-woken; key.Name != want {
			t.Errorf("woken is %s, want %s", key.Name, want)
		}
		if _, ok := start(want); !ok {
			t.Errorf("the read of %s does not begin once it is woken", want)
		}
		all = all[1:]
	}
	if len(woken) > 0 || len(b.places.Waiting("a")) > 0 {
		t.Errorf("%d more are woken, and %v wait", len(woken), b.places.Waiting("a"))
	}
}

// A registry chooses how long a read may take, within bounds.
func TestTheTimeoutOfARegistryIsBounded(t *testing.T) {
	for want, given := range map[time.Duration]time.Duration{time.Minute: time.Minute, longestRead: 1000 * time.Hour} {
		obj := &tenantsv1.TenantRegistry{}
		obj.Spec.Source.Timeout = &metav1.Duration{Duration: given}
		if got, _ := limitsOf(obj); got != want {
			t.Errorf("a timeout of %s is %s, want %s", given, got, want)
		}
	}
}

// An edit of a registry resets the comparison with earlier reads, also if the first read
// after it fails: the mark may be another column.
func TestAnEditResetsTheMark(t *testing.T) {
	o := newOffice(t)
	o.insert(1)
	o.table.with(func() { o.table.mark = "2026-11-30" })
	o.open()
	o.edit(`{"source":{"highWaterMark":"changed"}}`)
	if r := o.sync(); r.Status.LastRead.HighWaterMark != "2026-11-30" {
		t.Fatalf("the last read is %+v", r.Status.LastRead)
	}
	o.table.with(func() { o.table.err = errDown })
	o.edit(`{"source":{"highWaterMark":"version"}}`)
	o.eventually("the first read after the edit has failed", func() error {
		r := o.registry()
		if c := meta.FindStatusCondition(r.Status.Conditions, "Ready"); c.Status != metav1.ConditionFalse || c.ObservedGeneration != r.Generation {
			return fmt.Errorf("%+v", c)
		}
		return nil
	})
	o.table.with(func() { o.table.err, o.table.mark = nil, "17" })
	r := o.sync()
	if c := meta.FindStatusCondition(r.Status.Conditions, "Guarded"); c.Reason == reasonOlderRead || r.Status.LastRead.HighWaterMark != "17" {
		t.Errorf("Guarded is %+v, the last read %+v: the mark of another column counts", c, r.Status.LastRead)
	}
}

// Reads that end just in time hold some workers and not all: one for each namespace.
func TestOnePassOfANamespaceWaits(t *testing.T) {
	b := newBeside(func(types.NamespacedName) {})
	b.patience = time.Hour // a pass that waits outlasts the test
	wait := func(namespace, name string) (*reading, chan struct{}) {
		r, over := &reading{ended: make(chan struct{})}, make(chan struct{})
		go func() {
			defer close(over)
			b.wait(t.Context(), types.NamespacedName{Namespace: namespace, Name: name}, r, false)
		}()
		return r, over
	}
	var reads []*reading
	var passes []chan struct{}
	for i, namespace := range []string{"a", "b"} {
		r, over := wait(namespace, "first")
		reads, passes = append(reads, r), append(passes, over)
		for b.waiters.Busy() <= i {
			runtime.Gosched()
		}
	}
	for _, namespace := range []string{"a", "c"} {
		r, over := wait(namespace, "second")
		<-over
		if !r.left.Load() {
			t.Errorf("the registry of %s is not woken by the end of its read", namespace)
		}
	}
	for i, r := range reads {
		close(r.ended)
		<-passes[i]
		if r.left.Load() {
			t.Error("a read that ended in time wakes its registry")
		}
	}
	if !b.waiters.Idle() {
		t.Error("places of passes are taken that wait no more")
	}
}
