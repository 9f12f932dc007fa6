package tenant

import (
	"cmp"
	"slices"
	"time"
)

// Observed is everything that Plan decides by.
type Observed struct {
	Now       time.Time
	Deleting  bool // the tenant itself is being deleted
	Protected bool // and deletion protection denies it

	Resources []Resource      // of the template
	Objects   []Object        // rendered; one that is missing was left out, unless there is an error for it
	Errors    []ResourceError // texts that could not be rendered
	Broken    *Failure        // why no resource could be rendered: row, variables, order

	Inventory []Item // the objects of the tenant, by its status
	Live      map[Ref]Child
	Before    []Verdict // by its status
}

// Act is one action. Actions of one Outcome do not wait for one another, except
// that a smaller Wave goes first.
type Act struct {
	Wave   int
	Write  *Object // write the object
	Remove *Item   // delete it
	Orphan *Item   // retain it as an orphan
	Untie  *Item   // let Kubernetes not delete it with its Tenant; its Deletion is what its metadata is to say
	Why    string  // of Orphan: RemovedFromTemplate or TenantDeleted

	Despite []string // of Write: dependencies that failed
}

// Departure is an object that left the inventory in this step.
type Departure struct {
	Item
	Stranger bool // it did not belong to this tenant, and stays
	Retained bool // it stays as an orphan
	Unknown  bool // the cluster does not have its kind, so it cannot exist
}

// Outcome is the actions to take, and the status to report.
type Outcome struct {
	Acts      []Act
	Inventory []Item // to be stored before the actions
	Departed  []Departure
	Verdicts  []Verdict // of every resource, and of every object that is leaving

	Desired, Ready, Failed, Conflicted int
	Skipped                            []string

	// Written says that every object is as rendered from this row and this template,
	// whether it is ready or not.
	Written bool

	Conditions []Condition
	Events     []Event
	Recheck    time.Duration // until time alone changes something; zero for never
	Done       bool          // the tenant is being deleted, and has no objects left
}

// Plan says what to do next for one tenant. Its result depends on nothing but o.
// The rules of wanted objects are in plan_rules.go, those of the others in
// plan_leave.go.
func Plan(o Observed) Outcome {
	p := newPlanning(o)
	p.retry(p.Broken)
	if !o.Deleting {
		for _, r := range p.Resources {
			p.want(r)
		}
	}
	p.leave()
	slices.SortStableFunc(p.out.Acts, func(a, b Act) int { return cmp.Compare(a.Wave, b.Wave) })
	slices.SortStableFunc(p.out.Inventory, func(a, b Item) int { return cmp.Compare(a.Order, b.Order) })
	p.count()
	p.out.Conditions = p.conditions()
	p.out.Events = p.events()
	return p.out
}

// planning is one Plan being made.
type planning struct {
	Observed
	out Outcome

	objects  map[string]*Object // by id
	errors   map[string]ResourceError
	level    map[string]int
	verdicts map[string]Verdict // of wanted resources, by id
	wanted   map[Ref]string     // ids, by place
	policy   map[string]DeletionPolicy
	held     map[Ref]Item // the inventory, by place
	before   map[past]Verdict
}

// past identifies a verdict: an id may be both wanted and, elsewhere, leaving.
type past struct {
	id      string
	leaving bool
}

func newPlanning(o Observed) *planning {
	p := &planning{
		Observed: o,
		objects:  map[string]*Object{}, errors: map[string]ResourceError{}, level: map[string]int{},
		verdicts: map[string]Verdict{}, wanted: map[Ref]string{}, policy: map[string]DeletionPolicy{},
		held: map[Ref]Item{}, before: map[past]Verdict{},
	}
	if ordered, err := Order(o.Resources); err == nil {
		p.Resources, p.level = ordered, levels(ordered)
	} else if p.Broken == nil {
		p.Broken = &Failure{Reason: DependencyError, Message: err.Error()}
	}
	for i := range o.Objects {
		p.objects[o.Objects[i].ID] = &o.Objects[i]
	}
	for _, e := range o.Errors {
		if _, ok := p.errors[e.ID]; !ok {
			p.errors[e.ID] = e
		}
	}
	for _, r := range o.Resources {
		p.policy[r.ID] = cmp.Or(r.Deletion, Delete)
	}
	for _, i := range o.Inventory {
		p.held[i.Place()] = i
	}
	for _, v := range o.Before {
		p.before[past{v.ID, v.State.leaving()}] = v
	}
	return p
}

// want decides about one resource of the template.
func (p *planning) want(r Resource) {
	if p.objects[r.ID] == nil && !p.failedToRender(r.ID) {
		return // left out for this tenant
	}
	w := &wanted{planning: p, r: r, object: p.objects[r.ID]}
	if w.object != nil {
		w.ref = RefOf(w.object.Rendered)
		w.child = p.Live[w.ref]
		w.first = p.wanted[w.ref.Place()]
		if w.first == "" {
			p.wanted[w.ref.Place()] = r.ID
			p.keep(w)
		}
	}
	w.depend()
	for _, rule := range wantedRules {
		if rule.when(w) {
			v, act := rule.then(w)
			if act == nil {
				v, act = w.untie(v)
			}
			p.verdicts[r.ID] = p.say(r.ID, v, w.child.Wrote)
			if act != nil {
				act.Wave = rank(p.level[r.ID], w.ref)
				p.out.Acts = append(p.out.Acts, *act)
			}
			return
		}
	}
}

// keep adds a wanted object to the inventory, before it is created.
func (p *planning) keep(w *wanted) {
	if _, had := p.held[w.ref.Place()]; w.child.NoRoom && !had {
		return
	}
	item := Item{ID: w.r.ID, Ref: w.ref, Deletion: cmp.Or(w.r.Deletion, Delete), Order: rank(p.level[w.r.ID], w.ref)}
	if w.child.Exists && !w.child.Deleting && (w.child.Owned || w.child.Current) {
		item.UID = w.child.UID
	} else if had, ok := p.held[w.ref.Place()]; ok && (w.child.Unseen || w.child.UID == had.UID) {
		item.UID = had.UID
	}
	p.out.Inventory = append(p.out.Inventory, item)
}

// failedToRender reports whether there is an error instead of an object.
func (p *planning) failedToRender(id string) bool {
	if p.Broken != nil {
		return true
	}
	_, one := p.errors[id]
	_, all := p.errors[""]
	return one || all
}

// say completes a verdict, and adds it to the outcome.
func (p *planning) say(id string, v Verdict, restart bool) Verdict {
	v.ID = id
	before, ok := p.before[past{id, v.State.leaving()}]
	if v.Since.IsZero() {
		v.Since = p.Now
		if ok && before.same(v) && !restart {
			v.Since = before.Since
		}
	}
	p.out.Verdicts = append(p.out.Verdicts, v)
	return v
}

// recheck asks for another pass after d at the latest.
func (p *planning) recheck(d time.Duration) {
	d = max(d, time.Second)
	if p.out.Recheck == 0 || d < p.out.Recheck {
		p.out.Recheck = d
	}
}

// retry asks for another pass when the next attempt is due.
func (p *planning) retry(f *Failure) {
	if f != nil && !f.RetryAt.IsZero() {
		p.recheck(f.RetryAt.Sub(p.Now))
	}
}

// count fills in the counters.
func (p *planning) count() {
	if p.Deleting {
		p.out.Desired = len(p.out.Inventory)
		for _, v := range p.out.Verdicts {
			if v.Reason == CleanupFailed {
				p.out.Failed++
			}
		}
		p.out.Done = len(p.out.Inventory) == 0
		return
	}
	p.out.Desired = len(p.verdicts)
	p.out.Written = p.Broken == nil && len(p.Errors) == 0 && len(p.out.Acts) == 0
	for _, v := range p.out.Verdicts {
		switch v.State {
		case Ready:
			p.out.Ready++
		case Conflicted:
			p.out.Conflicted++
			p.out.Failed++
		case Failed:
			p.out.Failed++
		case Skipped:
			p.out.Skipped = append(p.out.Skipped, v.ID)
		case Pending, Progressing, Deleting, Kept:
		}
	}
	for id, v := range p.verdicts {
		if object := p.objects[id]; object == nil || v.State == Pending || v.State == Skipped || v.State == Conflicted {
			p.out.Written = false
		} else if c := p.Live[RefOf(object.Rendered)]; !c.Current && !(object.Creation == Once && c.CreatedOnce && c.Exists) {
			p.out.Written = false
		}
	}
}

// Ranked gives items their places in the order of creation, as far as resources
// define one.
func Ranked(items []Item, resources []Resource) []Item {
	level := map[string]int{}
	if ordered, err := Order(resources); err == nil {
		level = levels(ordered)
	}
	ranked := slices.Clone(items)
	for i := range ranked {
		ranked[i].Order = rank(level[ranked[i].ID], ranked[i].Ref)
	}
	return ranked
}
