package tenant

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// fakeObject is an object of a world that Plan acts on.
type fakeObject struct {
	uid      string
	version  int // of the resource that it was made of
	deletion DeletionPolicy
	once     bool
	owned    bool
	orphaned bool
	tied     bool // Kubernetes deletes it with its Tenant
	deleting bool
	holds    bool // a finalizer that takes its time
	ready    Readiness
}

// fakeWorld is a cluster and a tenant, driven as the reconciler does it.
type fakeWorld struct {
	t        *rapid.T
	now      time.Time
	template []Resource
	versions map[string]int  // of each resource: raised by an edit
	left     map[string]bool // by includeWhen
	broken   map[string]bool // cannot be rendered
	refuses  map[Ref]bool    // writes fail
	failures map[Ref]*Failure
	objects  map[Ref]*fakeObject
	deleting bool
	done     bool

	inventory []Item // as written down
	before    []Verdict
	next      int
}

func (w *fakeWorld) rendered() (objects []Object, errs []ResourceError) {
	ordered, err := Order(w.template)
	if err != nil {
		w.t.Fatal(err)
	}
	for i, r := range ordered {
		switch {
		case w.broken[r.ID]:
			errs = append(errs, ResourceError{ID: r.ID, Field: "spec", Message: "no"})
		case !w.left[r.ID]:
			_, o := thing(r, w.kind(r.ID))
			o.Order = i
			objects = append(objects, o)
		}
	}
	return objects, errs
}

func (w *fakeWorld) kind(id string) string {
	return []string{"ConfigMap", "Terraform", "Deployment", "Secret"}[int(id[len(id)-1])%4]
}

func (w *fakeWorld) observe(wrote map[Ref]bool) Observed {
	o := Observed{Now: w.now, Deleting: w.deleting, Resources: w.template, Inventory: w.inventory, Before: w.before, Live: map[Ref]Child{}}
	o.Objects, o.Errors = w.rendered()
	for _, item := range w.inventory {
		o.Live[item.Ref] = w.child(item.Ref, wrote)
	}
	for _, object := range o.Objects {
		ref := RefOf(object.Rendered)
		o.Live[ref] = w.child(ref, wrote)
	}
	return o
}

func (w *fakeWorld) child(ref Ref, wrote map[Ref]bool) Child {
	c := Child{Failure: w.failures[ref]}
	o := w.objects[ref]
	if o == nil {
		return c
	}
	c.Exists, c.Owned, c.Orphaned, c.Deleting, c.CreatedOnce = true, o.owned, o.orphaned, o.deleting, o.once
	c.Tied = o.tied
	c.UID, c.Deletion, c.Readiness, c.Wrote = o.uid, o.deletion, o.ready, wrote[ref]
	c.Current = o.owned && o.version == w.versions[ref.Name] && !o.deleting
	return c
}

// pass acts until there is nothing to do, or until the controller crashes after some
// acts, which loses everything that was not written.
func (w *fakeWorld) pass(crashAfter int) {
	wrote := map[Ref]bool{}
	acts := 0
	for round := 0; ; round++ {
		if round > 50 {
			w.t.Fatalf("does not converge: %v", brief(Plan(w.observe(wrote))))
		}
		o := w.observe(wrote)
		out := Plan(o)
		w.check(o, out)
		w.inventory = out.Inventory // written down before the acts
		if len(out.Acts) == 0 {
			w.before, w.done = out.Verdicts, out.Done
			w.checkTies(o)
			return
		}
		for _, a := range out.Acts {
			if acts == crashAfter {
				return
			}
			acts++
			w.do(o, a, wrote)
		}
	}
}

func (w *fakeWorld) do(o Observed, a Act, wrote map[Ref]bool) {
	switch {
	case a.Write != nil:
		ref := RefOf(a.Write.Rendered)
		if w.refuses[ref] {
			w.failures[ref] = &Failure{Message: "refused", RetryAt: w.now.Add(time.Minute)}
			return
		}
		delete(w.failures, ref)
		object := w.objects[ref]
		if object == nil {
			w.next++
			object = &fakeObject{uid: fmt.Sprint("uid-", w.next), holds: w.kind(ref.Name) == "Terraform"}
			w.objects[ref] = object
		}
		object.owned, object.orphaned, object.tied = true, false, a.Write.Deletion != Retain
		object.version, object.deletion = w.versions[ref.Name], a.Write.Deletion
		object.once = a.Write.Creation == Once
		object.ready = IsReady
		if k := w.kind(ref.Name); k == "Terraform" || k == "Deployment" {
			object.ready = IsProgressing
		}
		wrote[ref] = true
	case a.Remove != nil:
		object := w.objects[a.Remove.Ref]
		if object == nil {
			w.t.Fatalf("%s is removed, and is not there", a.Remove)
		}
		w.checkRemoval(o, a.Remove)
		if object.holds {
			object.deleting = true
		} else {
			delete(w.objects, a.Remove.Ref)
		}
	case a.Untie != nil:
		if object := w.objects[a.Untie.Ref]; object != nil {
			object.tied, object.deletion = false, a.Untie.Deletion
		}
	default:
		if object := w.objects[a.Orphan.Ref]; object != nil {
			object.owned, object.orphaned, object.tied = false, true, false
		}
	}
}

// checkTies holds that Kubernetes deletes nothing with the Tenant that is retained, once
// there is nothing left to do.
func (w *fakeWorld) checkTies(o Observed) {
	for _, object := range o.Objects {
		ref := RefOf(object.Rendered)
		is := w.objects[ref]
		if is == nil || !is.owned || is.deleting || w.failures[ref] != nil || o.Deleting {
			continue
		}
		if object.Deletion == Retain && is.tied {
			w.t.Fatalf("%s is retained, and Kubernetes deletes it with the Tenant", ref)
		}
	}
}

// check holds what is true of every outcome.
func (w *fakeWorld) check(o Observed, out Outcome) {
	ready := map[string]bool{}
	stopped := map[string]bool{}
	state := map[string]Verdict{}
	for _, v := range out.Verdicts {
		if v.State.leaving() {
			continue
		}
		state[v.ID] = v
		ready[v.ID], stopped[v.ID] = v.State == Ready, v.State.stops()
	}
	for _, a := range out.Acts {
		if a.Write == nil {
			continue
		}
		for _, id := range a.Write.DependIDs {
			if w.left[id] {
				continue
			}
			if !ready[id] && !(stopped[id] && a.Write.ProceedOnFailedDepends) {
				w.t.Fatalf("%s is written before %s is ready: %v", a.Write.ID, id, state[id])
			}
			if _, dep := thing(Resource{ID: id}, w.kind(id)); ready[id] {
				if c := o.Live[RefOf(dep.Rendered)]; !c.Exists || !c.Current && !c.CreatedOnce {
					w.t.Fatalf("%s is ready and not what it should be", id)
				}
			}
		}
	}
	// Nothing that is not ready is without a reason, and nothing is forgotten.
	for _, v := range out.Verdicts {
		if v.State != Ready && (v.Reason == "" || v.Message == "") {
			w.t.Fatalf("%s is %s for no reason", v.ID, v.State)
		}
	}
	objects, _ := w.rendered()
	for _, object := range objects {
		if _, ok := state[object.ID]; !ok && !o.Deleting {
			w.t.Fatalf("nothing is said of %s", object.ID)
		}
	}
	kept := map[Ref]int{}
	for _, i := range out.Inventory {
		kept[i.Ref]++
	}
	for _, d := range out.Departed {
		kept[d.Ref]++
		if c := w.objects[d.Ref]; c != nil && c.owned {
			w.t.Fatalf("%s is forgotten, and is there", d.Item)
		}
	}
	for _, i := range o.Inventory {
		if kept[i.Ref] != 1 {
			w.t.Fatalf("%s is in the inventory and gone from it %d times", i, kept[i.Ref])
		}
	}
	if out.Done != (o.Deleting && len(out.Inventory) == 0) {
		w.t.Fatal("done, and something is left")
	}
	if !o.Deleting && out.Done {
		w.t.Fatal("done without being deleted")
	}
	for _, c := range out.Conditions {
		if c.Reason == "" || c.Message == "" {
			w.t.Fatalf("condition %s says nothing", c.Type)
		}
	}
}

// checkRemoval holds that nothing goes that is retained, or before what was
// made on top of it.
func (w *fakeWorld) checkRemoval(o Observed, item *Item) {
	level := levels(w.template)
	policy := item.Deletion
	if i := slices.IndexFunc(w.template, func(r Resource) bool { return r.ID == item.ID }); i >= 0 && w.deleting {
		policy = w.template[i].Deletion
	}
	if policy == Retain || w.objects[item.Ref].deletion == Retain {
		w.t.Fatalf("%s is retained, and deleted", item)
	}
	for _, other := range o.Inventory {
		object := w.objects[other.Ref]
		if object == nil || !w.deleting || other.Deletion == Retain || object.deletion == Retain || !object.owned {
			continue
		}
		_, known := level[other.ID]
		_, itself := level[item.ID]
		if known && itself && level[other.ID] > level[item.ID] && w.policyOf(other.ID) != Retain {
			w.t.Fatalf("%s goes before %s, which was made later", item, other)
		}
	}
}

func (w *fakeWorld) policyOf(id string) DeletionPolicy {
	for _, r := range w.template {
		if r.ID == id {
			return r.Deletion
		}
	}
	return ""
}

// draw changes the template.
func (w *fakeWorld) draw() {
	n := rapid.IntRange(1, 6).Draw(w.t, "resources")
	w.template, w.left, w.broken = nil, map[string]bool{}, map[string]bool{}
	for i := range n {
		r := Resource{ID: fmt.Sprint("r", rapid.IntRange(i*2, i*2+1).Draw(w.t, "id")), Timeout: 5 * time.Minute, Creation: WhenNeeded, Deletion: Delete}
		for _, d := range w.template {
			if rapid.IntRange(0, 2).Draw(w.t, "depends") == 0 {
				r.DependIDs = append(r.DependIDs, d.ID)
			}
		}
		if rapid.IntRange(0, 4).Draw(w.t, "retain") == 0 {
			r.Deletion = Retain
		}
		if rapid.IntRange(0, 4).Draw(w.t, "once") == 0 {
			r.Creation = Once
		}
		r.ProceedOnFailedDepends = rapid.IntRange(0, 4).Draw(w.t, "proceed") == 0
		r.NoWait = rapid.IntRange(0, 4).Draw(w.t, "noWait") == 0
		if rapid.IntRange(0, 6).Draw(w.t, "left") == 0 {
			w.left[r.ID] = true
		} else if rapid.IntRange(0, 8).Draw(w.t, "broken") == 0 {
			w.broken[r.ID] = true
		}
		w.versions[r.ID]++
		w.template = append(w.template, r)
	}
	// How it is written is no order.
	for i := range w.template {
		j := rapid.IntRange(0, i).Draw(w.t, "swap")
		w.template[i], w.template[j] = w.template[j], w.template[i]
	}
}

func (w *fakeWorld) refs() []Ref {
	var all []Ref
	for ref := range w.objects {
		all = append(all, ref)
	}
	slices.SortFunc(all, func(a, b Ref) int { return strings.Compare(a.Name, b.Name) })
	return all
}

// TestPlanHolds drives random tenants through random histories.
func TestPlanHolds(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := &fakeWorld{t: t, now: noon, versions: map[string]int{}, refuses: map[Ref]bool{}, failures: map[Ref]*Failure{}, objects: map[Ref]*fakeObject{}}
		w.draw()
		for range rapid.IntRange(1, 25).Draw(t, "steps") {
			switch rapid.IntRange(0, 6).Draw(t, "step") {
			case 0:
				w.draw()
			case 1: // something becomes ready, fails or stops being ready
				if refs := w.refs(); len(refs) > 0 {
					w.objects[rapid.SampledFrom(refs).Draw(t, "who")].ready = rapid.SampledFrom([]Readiness{IsReady, IsProgressing, IsFailed}).Draw(t, "ready")
				}
			case 2:
				w.now = w.now.Add(time.Duration(rapid.IntRange(1, 10).Draw(t, "minutes")) * time.Minute)
			case 3: // writes of an object are refused from now on
				id := rapid.SampledFrom(w.template).Draw(t, "refused").ID
				_, o := thing(Resource{ID: id}, w.kind(id))
				w.refuses[RefOf(o.Rendered)] = true
			case 4: // a user deletes an object
				if refs := w.refs(); len(refs) > 0 {
					delete(w.objects, rapid.SampledFrom(refs).Draw(t, "lost"))
				}
			case 5: // a finalizer is done
				for ref, o := range w.objects {
					if o.deleting {
						delete(w.objects, ref)
					}
				}
			case 6:
				if rapid.IntRange(0, 4).Draw(t, "delete") == 0 {
					w.deleting = true
				}
			}
			w.pass(rapid.SampledFrom([]int{-1, -1, -1, 0, 1, 2, 3}).Draw(t, "crash"))
			if w.done {
				break
			}
		}
		w.settle()
	})
}

// settle makes every request succeed, after which everything is as desired.
func (w *fakeWorld) settle() {
	w.refuses, w.broken = map[Ref]bool{}, map[string]bool{}
	for range 40 {
		w.now = w.now.Add(10 * time.Minute)
		for ref, o := range w.objects {
			o.ready = IsReady
			if o.deleting {
				delete(w.objects, ref)
			}
		}
		w.pass(-1)
		if w.done {
			break
		}
	}
	if w.deleting && !w.done {
		w.t.Fatalf("a deleted tenant does not go: %v", brief(Plan(w.observe(nil))))
	}
	if !w.deleting {
		out := Plan(w.observe(nil))
		if out.Ready != out.Desired || !out.Written || len(out.Acts) > 0 || len(out.Inventory) != out.Desired {
			w.t.Fatalf("not all is well in the end: %v, %d of %d ready, written %t, %d in the inventory", brief(out), out.Ready, out.Desired, out.Written, len(out.Inventory))
		}
	}
	held := map[Ref]bool{}
	for _, i := range w.inventory {
		held[i.Ref] = true
	}
	for ref, o := range w.objects {
		if o.owned && !held[ref] {
			w.t.Fatalf("%s was forgotten", ref)
		}
	}
}
