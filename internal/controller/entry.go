package controller

import (
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/terrier-iac/terrier/internal/cache"
	"github.com/terrier-iac/terrier/internal/controller/aftersteps"
	"github.com/terrier-iac/terrier/internal/controller/prerequisites"
	"github.com/terrier-iac/terrier/internal/controller/vaults"
	"github.com/terrier-iac/terrier/internal/dialect"
	"github.com/terrier-iac/terrier/internal/record"
	"github.com/terrier-iac/terrier/internal/schedule"
	"github.com/terrier-iac/terrier/internal/stack"
)

// entry is what the controller remembers of one stack between two passes. Every
// field can be lost: it is read again from the object, the records or the server.
//
// The passes of one stack follow each other, so that fields which only a pass
// uses need no lock. Others read the labels, hence the pointer.
type entry struct {
	objectRef
	id      string       // the UID of the object
	created atomic.Int64 // when the API server created the object, in seconds since 1970; 0 before it was read

	written      string           // the version of the object that the last write made; see covers
	checks       *record.Check    // nil before the record was read
	audited      *stack.Requests  // nil before the record was read
	turns        *rate.Limiter    // of requests that are recorded; nil before the first one
	approvers    *stack.Approvers // nil before the record was read
	verdict      *stack.Verdict   // that repeats the one in the status, and is not written; nil if the status has it
	verdictRead  bool             // the record of the verdict was read
	timeline     timeline         // decisions that are not in the records yet
	applied      recordSeen       // the record of the last apply
	stateOwn     bool             // the state was the stack's own, and as expected, when it was read last
	secrets      string           // a digest of the secret values that are remembered; empty before that
	outputs      publishedOutputs // where the outputs are as they were written
	room         roomWait         // of a run that the runner had no room for
	image        *making          // the image that runs start from, or that is being made; nil before that
	right        readRight        // to the Secret of the source that the object owns, as it was seen last
	rightSeen    time.Time        // when that was; zero if it was not
	vault        vaults.Known     // what its run has of a Vault
	login        vaults.Known     // and of one that its identity signed it in to
	wholeSource  string           // why the whole source counts although the stack names parts; empty if it does not
	debouncedAt  time.Time        // since when the status says less than is known; zero if it says all
	statusLabels atomic.Pointer[writtenLabels]

	stepOutputs   outputsSeen        // that the steps after an apply would be given
	hosts         aftersteps.Written // by the run that ended last, into repositories
	failingSince  time.Time          // since when passes over it end early; zero if they do not
	targetsFailed time.Time          // since when targets cannot be written; zero if they can

	looking prerequisites.Looking // for prerequisites that are missing
	turn    time.Time             // since when it has a slot, and its prerequisites are asked once more; zero if not
}

// createdAt is when the API server created the object; zero if this controller never read it.
func (e *entry) createdAt() time.Time {
	if at := e.created.Load(); at != 0 {
		return time.Unix(at, 0).UTC()
	}
	return time.Time{}
}

// index holds the entries of all stacks. A pass makes an entry when it loads its
// object, and index.drop removes it once the server has the object no more.
type index struct {
	mu     sync.Mutex
	byID   map[string]*entry
	byName map[string][]*entry // the newest object of a name comes last

	budgets schedule.Budgets // of drift checks

	// Objects as this controller wrote them last. Few are read again before the
	// cache of the API server's objects has the write.
	copies cache.Map[string, client.Object]
}

// make returns the entry of a stack, a new one if there is none.
func (x *index) make(id string, of objectRef) *entry {
	return x.place(id, of, func(others []*entry, e *entry) []*entry { return append(others, e) })
}

// makeFormer returns the entry of a stack whose object is gone, a new one if there is none.
// It comes before those of objects that have the name now.
func (x *index) makeFormer(id string, of objectRef) *entry {
	return x.place(id, of, func(others []*entry, e *entry) []*entry { return slices.Insert(others, 0, e) })
}

func (x *index) place(id string, of objectRef, among func(others []*entry, e *entry) []*entry) *entry {
	x.mu.Lock()
	defer x.mu.Unlock()
	if e := x.byID[id]; e != nil {
		return e
	}
	if x.byID == nil {
		x.byID, x.byName = map[string]*entry{}, map[string][]*entry{}
	}
	e := &entry{objectRef: of, id: id}
	x.byID[id] = e
	x.byName[of.String()] = among(x.byName[of.String()], e)
	return e
}

// find returns the entry of the stack with this UID, nil if there is none.
func (x *index) find(id string) *entry {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.byID[id]
}

// kindOf returns the kind of the stack with this UID, empty if there is none.
func (x *index) kindOf(id string) string {
	if e := x.find(id); e != nil {
		return dialect.KindOf(e.dialect)
	}
	return ""
}

// all returns the entries of all objects that had this name, the newest last.
func (x *index) all(of objectRef) []*entry {
	x.mu.Lock()
	defer x.mu.Unlock()
	return slices.Clone(x.byName[of.String()])
}

// newest returns the entry of the newest object with this name, nil if there is
// none.
func (x *index) newest(of objectRef) *entry {
	x.mu.Lock()
	defer x.mu.Unlock()
	if all := x.byName[of.String()]; len(all) > 0 {
		return all[len(all)-1]
	}
	return nil
}

// drop forgets a stack, of which no pass is made meanwhile.
func (x *index) drop(id string) {
	x.remove(id)
	x.budgets.Drop(id) // it wakes others, which are looked up here
}

func (x *index) remove(id string) {
	x.mu.Lock()
	defer x.mu.Unlock()
	e := x.byID[id]
	if e == nil {
		return
	}
	delete(x.byID, id)
	e.hosts.Drop()
	name := e.objectRef.String()
	x.byName[name] = slices.DeleteFunc(x.byName[name], func(other *entry) bool { return other == e })
	if len(x.byName[name]) == 0 {
		delete(x.byName, name)
		x.copies.Delete(name)
	}
}

// dropAll forgets the stacks of another controller.
func (x *index) dropAll(given func(id string) bool) {
	x.mu.Lock()
	var ids []string
	for id := range x.byID {
		if given(id) {
			ids = append(ids, id)
		}
	}
	x.mu.Unlock()
	for _, id := range ids {
		x.drop(id)
	}
}

// wrote notes the version that a write of this controller has made.
func (x *index) wrote(of objectRef, obj client.Object) {
	x.make(string(obj.GetUID()), of).written = obj.GetResourceVersion()
	copied := obj.DeepCopyObject().(client.Object)
	copied.SetManagedFields(nil)
	x.copies.Put(of.String(), copied)
}

// copyOf returns the object as this controller wrote it last, nil if that is in
// doubt or the copy is gone.
func (x *index) copyOf(e *entry) client.Object {
	obj, ok := x.copies.Get(e.objectRef.String())
	if !ok || string(obj.GetUID()) != e.id || obj.GetResourceVersion() != e.written {
		return nil
	}
	return obj.DeepCopyObject().(client.Object)
}
