package query

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"strings"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/terrier-iac/terrier/internal/access"
	"github.com/terrier-iac/terrier/internal/dialect"
	"github.com/terrier-iac/terrier/internal/fault"
)

// Kinds are the kinds of stack that there are.
type Kinds = dialect.Registry

// Object is the object of a stack with what its dialect reads in it. Nothing here
// and in package command knows more of it.
type Object struct {
	client.Object
	dialect.Stack              // what it asks for, and its status
	View          dialect.View // what it shows
	Invalid       error        // of the spec, or of a status that cannot be read; what could be read is here all the same
	Dialect       dialect.Dialect
	Kind          string // as Key has it
}

// ReadObject reads an object, which must be of one of the kinds.
func ReadObject(kinds Kinds, o client.Object) *Object {
	d := kinds.For(o)
	out := &Object{Object: o, Dialect: d, Kind: kinds.Word(d), View: d.View(o)}
	out.Stack, out.Invalid = d.Decode(o)
	return out
}

// Key names the stack.
func (o *Object) Key() Key { return Key{Namespace: o.GetNamespace(), Name: o.GetName(), Kind: o.Kind} }

// ID is how the records know the stack.
func (o *Object) ID() StackID { return StackID{Key: o.Key(), UID: string(o.GetUID())} }

// Deleting reports whether the object is being deleted.
func (o *Object) Deleting() bool { return o.GetDeletionTimestamp() != nil }

// Objects reads the objects of stacks as they are in the cluster, for questions
// and commands.
type Objects struct {
	Kube    client.WithWatch
	Kinds   Kinds
	Records Records
	Now     func() time.Time

	// Former also finds the last runs of deleted stacks whose namespace was deleted, too. The
	// user of the caller has the right in all namespaces.
	Former bool
}

// Read fetches the object of a stack.
func (s *Objects) Read(ctx context.Context, key Key) (*Object, error) {
	if err := key.Check(); err != nil {
		return nil, err
	}
	d := s.Kinds.Named(key.Kind)
	if d == nil {
		return nil, noKind(s.Kinds, key.Kind)
	}
	o := d.New()
	if err := s.Kube.Get(ctx, key.object(), o); err != nil {
		return nil, access.Fault(err, "stack "+key.String())
	}
	return ReadObject(s.Kinds, o), nil
}

// noKind is the error of a word that is no kind of stack.
func noKind(kinds Kinds, word string) error {
	var all []string
	for _, w := range kinds.Words() {
		all = append(all, kinds.Spelled(w))
	}
	return fault.New(fault.Invalid, "NameInvalid", fmt.Errorf("%.80q is not a kind of stack; it may be %s", word, strings.Join(all, " or ")))
}

// chosen are the dialects whose stacks f may choose.
func (s *Objects) chosen(f Filter) ([]dialect.Dialect, error) {
	if f.Kind == nil {
		return s.Kinds.All(), nil
	}
	if d := s.Kinds.Named(*f.Kind); d != nil {
		return []dialect.Dialect{d}, nil
	}
	return nil, noKind(s.Kinds, *f.Kind)
}

// All lists the objects that f chooses. Kinds that the cluster does not have, or that
// the user may not list, are left out as long as there is another one.
func (s *Objects) All(ctx context.Context, f Filter) ([]*Object, error) {
	dialects, err := s.chosen(f)
	if err != nil {
		return nil, err
	}
	opts, err := f.options()
	if err != nil {
		return nil, err
	}
	var out []*Object
	var left []error
	for _, d := range dialects {
		list := d.NewList()
		err := access.Fault(s.Kube.List(ctx, list, opts...), "stacks")
		if err != nil && !leftOut(err) {
			return nil, err
		}
		if err != nil {
			left = append(left, err)
			continue
		}
		objects, err := s.read(list)
		if err != nil {
			return nil, err
		}
		out = append(out, objects...)
	}
	if len(left) == len(dialects) {
		return nil, left[0]
	}
	return out, nil
}

// leftOut reports whether a list of one kind failed in a way that says nothing of
// the other kinds.
func leftOut(err error) bool {
	return fault.Of(err) == fault.Denied || fault.Reason(err, "") == access.ReasonNotInstalled
}

func (s *Objects) read(list client.ObjectList) ([]*Object, error) {
	var out []*Object
	err := meta.EachListItem(list, func(o runtime.Object) error {
		out = append(out, ReadObject(s.Kinds, o.(client.Object)))
		return nil
	})
	return out, err
}

// Observed is an object as it is now, or as it was last if it is gone.
type Observed struct {
	*Object
	Gone bool
}

// Changes lists and then watches the objects that f chooses. It begins again when the API
// server has forgotten the version that it got to; then objects that did not change
// in between come again.
func (s *Objects) Changes(ctx context.Context, f Filter) iter.Seq2[Observed, error] {
	return func(yield func(Observed, error) bool) {
		dialects, err := s.chosen(f)
		opts, wrong := f.options()
		if err := errors.Join(err, wrong); err != nil {
			yield(Observed{}, err)
			return
		}
		if len(dialects) == 1 {
			if err := s.watchOne(ctx, dialects[0], opts, func(o Observed) bool { return yield(o, nil) }); err != nil {
				yield(Observed{}, err)
			}
			return
		}
		s.watchAll(ctx, dialects, opts, yield)
	}
}

// watchAll watches several kinds at once. It ends with the first error, except that
// kinds that All leaves out are left out here, too.
func (s *Objects) watchAll(ctx context.Context, dialects []dialect.Dialect, opts []client.ListOption, yield func(Observed, error) bool) {
	ctx, cancel := context.WithCancel(ctx)
	var watchers sync.WaitGroup
	defer watchers.Wait()
	defer cancel()
	seen, ended := make(chan Observed), make(chan error)
	for _, d := range dialects {
		watchers.Go(func() {
			err := s.watchOne(ctx, d, opts, func(o Observed) bool {
				select {
				case seen <- o:
					return true
				case <-ctx.Done():
					return false
				}
			})
			select {
			case ended <- err:
			case <-ctx.Done():
			}
		})
	}
	for left := 0; ; {
		select {
		case o := <-seen:
			if !yield(o, nil) {
				return
			}
		case err := <-ended:
			left++
			if left == len(dialects) || !leftOut(err) {
				if err != nil {
					yield(Observed{}, err)
				}
				return
			}
		case <-ctx.Done():
			return
		}
	}
}

// watchOne watches one kind until ctx ends, or until yield wants no more.
func (s *Objects) watchOne(ctx context.Context, d dialect.Dialect, opts []client.ListOption, yield func(Observed) bool) error {
	for ctx.Err() == nil {
		more, err := s.watchOnce(ctx, d, opts, yield)
		if err != nil && ctx.Err() == nil {
			return access.Fault(err, "stacks")
		}
		if !more || err != nil {
			return nil
		}
	}
	return nil
}

// watchOnce reports whether to begin again.
func (s *Objects) watchOnce(ctx context.Context, d dialect.Dialect, opts []client.ListOption, yield func(Observed) bool) (bool, error) {
	list := d.NewList()
	if err := s.Kube.List(ctx, list, opts...); err != nil {
		return false, err
	}
	objects, err := s.read(list)
	if err != nil {
		return false, err
	}
	for _, o := range objects {
		if !yield(Observed{Object: o}) {
			return false, nil
		}
	}
	from := append(opts[:len(opts):len(opts)], &client.ListOptions{Raw: &metav1.ListOptions{ResourceVersion: list.GetResourceVersion()}})
	w, err := s.Kube.Watch(ctx, d.NewList(), from...)
	if err != nil {
		return false, err
	}
	defer w.Stop()
	for event := range w.ResultChan() {
		switch event.Type {
		case watch.Error:
			err := apierrors.FromObject(event.Object)
			if apierrors.IsResourceExpired(err) || apierrors.IsGone(err) {
				return true, nil
			}
			return false, err
		case watch.Added, watch.Modified, watch.Deleted:
			o, ok := event.Object.(client.Object)
			if ok && !yield(Observed{Object: ReadObject(s.Kinds, o), Gone: event.Type == watch.Deleted}) {
				return false, nil
			}
		}
	}
	return true, nil // the server ends watches now and then
}
