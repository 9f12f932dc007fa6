package cluster

import (
	"fmt"
	"os"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/terrier-iac/terrier/internal/testkit"
)

// previous is the tree of the former commit, which tools/cluster/previous.sh has built.
func previous(t *testing.T) string {
	t.Helper()
	tree := root + "/dist/previous/tree"
	commit, err := os.ReadFile(root + "/dist/previous/commit")
	if err != nil {
		t.Fatalf("there is nothing to upgrade from, which `make test-cluster` builds: %v", err)
	}
	t.Logf("from %s", commit)
	return tree
}

// The chart of a former commit is upgraded to this one while runs are going on: nothing is
// lost, done twice or created again, and neither on the way back.
func TestUpgrade(t *testing.T) {
	former, present := ship(t, previous(t), "0.1.0"), ship(t, root, "0.2.0")
	r := install(t, former, "extraArgs: [--sqlite-dir=/var/lib/terrier/shop]\n")
	witness := r.stacks.Witness(t, r.Platform)

	long, idle, later := r.World(t), r.World(t), r.World(t)
	g := newGate(t, long)
	shop := r.newCustomers(t)
	shop.exec(t, `INSERT INTO customers VALUES ('acme', 'https://acme.example.com', 1), ('bolt', 'https://bolt.example.com', 1)`)
	r.stacks.Apply(t, fmt.Sprintf(shopTemplate, r.Namespace, probe(t)))
	r.stacks.Apply(t, r.stackOf(t, "idle", approved+"\n  writeOutputsToSecret: {name: idle-outputs}", idle.HCL()+thing("quiet", "1")+"output \"id\" { value = world_thing.quiet.id }\n"))
	r.stacks.Apply(t, r.stackOf(t, "later", "", later.HCL()+thing("late", "1")))
	r.stacks.AwaitReady(t, "idle")
	pending := r.stacks.AwaitPending(t, "later").Status.Plan.Pending
	tenants := map[string]identity{}
	for _, name := range []string{"acme", "bolt"} {
		tenants[name] = r.identify(t, name, "https://"+name+".example.com")
	}
	applied := r.stacks.Stack(t, "idle").Status.LastAppliedRevision
	r.stacks.Apply(t, r.stackOf(t, "long", approved, gated(long, g)))
	long.Await(t.Context(), func(c testkit.WorldCall) bool { return c.Call == "create" && c.Name == "a" && c.Phase == "done" })
	applying := r.pods(t, "terrier.dev/run-kind=apply")
	if len(applying) != 1 {
		t.Fatalf("the pods %v apply, want one", applying)
	}

	r.upgrade(t, present)
	if got := r.must(t, "get", "deployment", "terrier", "-o", "jsonpath={.spec.template.spec.containers[0].image}"); got != "registry.example.com/team/terrier:v0.2.0" {
		t.Errorf("after the upgrade the controller is of %s", got)
	}
	if got := r.pods(t, "terrier.dev/run-kind=apply"); !sameRunning(applying, got) {
		t.Errorf("after the upgrade the pods %v apply, want %v as before", got, applying)
	}
	g.open(t)
	r.stacks.AwaitReady(t, "long")
	made(t, long, "a", "b")
	if got := r.stacks.Stack(t, "later").Status.Plan.Pending; got != pending {
		t.Errorf("after the upgrade the plan %q is pending, want %q as before", got, pending)
	}
	if got := r.stacks.Stack(t, "idle").Status.LastAppliedRevision; got != applied {
		t.Errorf("after the upgrade %q is applied, want %q as before", got, applied)
	}
	shop.exec(t, `UPDATE customers SET url = 'https://new.example.com' WHERE id = 'bolt'`)
	r.awaitShop(t, "bolt", "https://new.example.com") // the new controller reconciles
	for name, url := range map[string]string{"acme": "https://acme.example.com", "bolt": "https://new.example.com"} {
		if got := r.identify(t, name, url); got != tenants[name] {
			t.Errorf("after the upgrade the tenant %s has %+v, want %+v as before", name, got, tenants[name])
		}
	}
	r.stacks.Patch(t, "later", `{"spec":{"approvePlan":"`+pending+`"}}`)
	r.stacks.AwaitReady(t, "later")
	made(t, later, "late")

	// The way back, with a plan of the present that is pending, and an apply of the present
	// that goes on.
	r.stacks.Apply(t, r.stackOf(t, "later", "  approvePlan: \"\"", later.HCL()+thing("late", "2")))
	r.stacks.AwaitPending(t, "later")
	r.stacks.Apply(t, r.stackOf(t, "long", approved, gated(long, g)+thing("c", "1")+"resource \"terraform_data\" \"again\" {\n  depends_on = [world_thing.c]\n  provisioner \"local-exec\" { command = \"read x < "+g.path+"\" }\n}\n"))
	long.Await(t.Context(), func(c testkit.WorldCall) bool { return c.Call == "create" && c.Name == "c" && c.Phase == "done" })
	helm(t, "rollback", "terrier", "1", "--wait", "--timeout", "3m")
	if got := r.must(t, "get", "deployment", "terrier", "-o", "jsonpath={.spec.template.spec.containers[0].image}"); got != "registry.example.com/team/terrier:v0.1.0" {
		t.Errorf("after the way back the controller is of %s", got)
	}
	g.open(t)
	r.stacks.AwaitReady(t, "long")
	made(t, long, "a", "b", "c")
	r.stacks.Patch(t, "later", `{"spec":{"approvePlan":"`+r.stacks.AwaitPending(t, "later").Status.Plan.Pending+`"}}`)
	r.stacks.AwaitReady(t, "later")
	if got := later.Named("late")[0].Value; got == nil || *got != "2" {
		t.Errorf("after the way back the thing has %v, want 2", got)
	}
	for name, url := range map[string]string{"acme": "https://acme.example.com", "bolt": "https://new.example.com"} {
		if got := r.identify(t, name, url); got != tenants[name] {
			t.Errorf("after the way back the tenant %s has %+v, want %+v as before", name, got, tenants[name])
		}
	}

	// Forward again, and nothing is left.
	helm(t, "rollback", "terrier", "2", "--wait", "--timeout", "3m")
	witness.Collect()
	for name, w := range map[string]*testkit.World{"long": long, "idle": idle, "later": later} {
		if twice := w.CreatedTwice(); len(twice) > 0 || len(w.Overlaps()) > 0 || len(w.Leaked(r.stacks.State(t, name))) > 0 {
			t.Errorf("of the stack %s there was created twice %q, at once %q, and in no state %+v", name, twice, w.Overlaps(), w.Leaked(r.stacks.State(t, name)))
		}
	}
	for _, name := range []string{"long", "idle", "later"} {
		r.stacks.Delete(t, name)
	}
	r.closeShop(t, shop, "acme") // not both at once: a guard blocks that
	r.closeShop(t, shop, "bolt")
	for name, w := range map[string]*testkit.World{"long": long, "idle": idle, "later": later} {
		r.stacks.AwaitGone(t, name)
		made(t, w)
	}
	r.awaitNoPods(t)
	witness.Collect() // what was destroyed
	witness.CatchUp()
	witness.Judge(true)
	helm(t, "uninstall", "terrier", "--wait")
}

// identity tells the objects of a tenant from others of the same names.
type identity struct{ deployment, service, settings, pods string }

// identify waits until the shop of a tenant is open, and returns what its objects are.
func (r *release) identify(t *testing.T, tenant, url string) identity {
	t.Helper()
	d := r.awaitShop(t, tenant, url)
	s, err := r.Client.CoreV1().Services(r.Namespace).Get(t.Context(), tenant+"-shop", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	m, err := r.Client.CoreV1().ConfigMaps(r.Namespace).Get(t.Context(), tenant+"-settings", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	pods, err := r.Client.CoreV1().Pods(r.Namespace).List(t.Context(), metav1.ListOptions{LabelSelector: "app=" + tenant + "-web"})
	if err != nil {
		t.Fatal(err)
	}
	var all []string
	for _, p := range pods.Items {
		all = append(all, string(p.UID))
	}
	slices.Sort(all)
	return identity{fmt.Sprint(d.UID, " generation ", d.Generation), string(s.UID), string(m.UID), fmt.Sprint(all)}
}

// sameRunning says whether pods are the same ones, and all run.
func sameRunning(before, now map[string]corev1.Pod) bool {
	for name, p := range now {
		if before[name].UID != p.UID || p.Status.Phase != corev1.PodRunning {
			return false
		}
	}
	return len(before) == len(now)
}
