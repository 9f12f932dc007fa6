package tenants

import (
	"sync"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// objects keeps one value for each object of a kind. The value of a former object
// of the same name is dropped. The zero value is empty.
type objects[T any] struct {
	replaced func(*T) // ends the work for a value that is dropped so; nil for nothing

	mu     sync.Mutex
	values map[types.NamespacedName]ofObject[T]
}

type ofObject[T any] struct {
	uid   types.UID
	value *T
}

// of returns the value of an object; a new one is made by create.
func (o *objects[T]) of(obj client.Object, create func() *T) *T {
	value, former := o.swap(obj, create)
	if former != nil && o.replaced != nil {
		o.replaced(former)
	}
	return value
}

// swap returns the value of an object, and that of a former one in whose place it is now.
func (o *objects[T]) swap(obj client.Object, create func() *T) (value, former *T) {
	key := client.ObjectKeyFromObject(obj)
	o.mu.Lock()
	defer o.mu.Unlock()
	v, ok := o.values[key]
	if ok && v.uid == obj.GetUID() {
		return v.value, nil
	}
	if o.values == nil {
		o.values = map[types.NamespacedName]ofObject[T]{}
	}
	now := ofObject[T]{obj.GetUID(), create()}
	o.values[key] = now
	return now.value, v.value
}

// get returns the value of an object; nil if there is none.
func (o *objects[T]) get(key types.NamespacedName) *T {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.values[key].value
}

// forget drops the value of an object that is gone, and returns it.
func (o *objects[T]) forget(key types.NamespacedName) *T {
	o.mu.Lock()
	defer o.mu.Unlock()
	v := o.values[key].value
	delete(o.values, key)
	return v
}
