package controller

import (
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/terrier-iac/terrier/internal/cache"
	"github.com/terrier-iac/terrier/internal/record"
	"github.com/terrier-iac/terrier/internal/stack"
)

// entry is what the controller remembers of one stack between two passes. Every
// field can be lost: it is read again from the object, the records or the server.
//
// The passes of one stack follow each other, so that fields which only a pass
// uses need no lock. Others read the labels, hence the pointer.
type entry struct {
	id  string // the UID of the object
	key types.NamespacedName

	written      string           // the version of the object that the last write made; see covers
	checks       *record.Check    // nil before the record was read
	audited      *stack.Requests  // nil before the record was read
	timeline     timeline         // decisions that are not in the records yet
	stateOwn     bool             // the state was the stack's own, and as expected, when it was read last
	outputs      publishedOutputs // where the outputs are as they were written
	debouncedAt  time.Time        // since when the status says less than is known; zero if it says all
	statusLabels atomic.Pointer[writtenLabels]
}

// index holds the entries of all stacks. A pass makes an entry when it loads its
// object, and index.drop removes it once the server has the object no more.
type index struct {
	mu    sync.Mutex
	byID  map[string]*entry
	byKey map[types.NamespacedName][]*entry // the newest object of a name comes last

	// Objects as this controller wrote them last. Few are read again before the
	// cache of the API server's objects has the write.
	copies cache.Map[types.NamespacedName, client.Object]
}

// make returns the entry of a stack, a new one if there is none.
func (x *index) make(id string, key types.NamespacedName) *entry {
	x.mu.Lock()
	defer x.mu.Unlock()
	if e := x.byID[id]; e != nil {
		return e
	}
	if x.byID == nil {
		x.byID, x.byKey = map[string]*entry{}, map[types.NamespacedName][]*entry{}
	}
	e := &entry{id: id, key: key}
	x.byID[id] = e
	x.byKey[key] = append(x.byKey[key], e)
	return e
}

// find returns the entry of the stack with this UID, nil if there is none.
func (x *index) find(id string) *entry {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.byID[id]
}

// named returns the entries of all objects that had this name, the newest last.
func (x *index) named(key types.NamespacedName) []*entry {
	x.mu.Lock()
	defer x.mu.Unlock()
	return slices.Clone(x.byKey[key])
}

// newest returns the entry of the newest object with this name, nil if there is
// none.
func (x *index) newest(key types.NamespacedName) *entry {
	x.mu.Lock()
	defer x.mu.Unlock()
	if of := x.byKey[key]; len(of) > 0 {
		return of[len(of)-1]
	}
	return nil
}

// drop forgets a stack. It is the only place that does.
func (x *index) drop(id string) {
	x.mu.Lock()
	defer x.mu.Unlock()
	e := x.byID[id]
	if e == nil {
		return
	}
	delete(x.byID, id)
	x.byKey[e.key] = slices.DeleteFunc(x.byKey[e.key], func(other *entry) bool { return other == e })
	if len(x.byKey[e.key]) == 0 {
		delete(x.byKey, e.key)
		x.copies.Delete(e.key)
	}
}

// wrote notes the version that a write of this controller has made.
func (x *index) wrote(obj client.Object) {
	key := client.ObjectKeyFromObject(obj)
	x.make(string(obj.GetUID()), key).written = obj.GetResourceVersion()
	copied := obj.DeepCopyObject().(client.Object)
	copied.SetManagedFields(nil)
	x.copies.Put(key, copied)
}

// copyOf returns the object as this controller wrote it last, nil if that is in
// doubt or the copy is gone.
func (x *index) copyOf(e *entry) client.Object {
	obj, ok := x.copies.Get(e.key)
	if !ok || string(obj.GetUID()) != e.id || obj.GetResourceVersion() != e.written {
		return nil
	}
	return obj.DeepCopyObject().(client.Object)
}
