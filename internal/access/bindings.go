package access

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	rbacclient "k8s.io/client-go/kubernetes/typed/rbac/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
)

// Bindings knows in which namespaces roles are bound to which users and groups.
// That says about which namespaces to ask first, and nothing about the answer: the
// rules of a role are not read, and RBAC is one authorizer among others.
type Bindings struct {
	kube rbacclient.RoleBindingInterface
	log  *slog.Logger
	now  func() time.Time

	mu    sync.RWMutex
	bound map[types.NamespacedName][]string             // the subjects of each binding
	where map[string]map[types.NamespacedName]time.Time // the bindings of each subject, and when each was seen first
}

// NewBindings returns the Bindings of the cluster of config, which are empty until
// Follow runs.
func NewBindings(config *rest.Config, log *slog.Logger, now func() time.Time) (*Bindings, error) {
	kube, err := rbacclient.NewForConfig(compact(config))
	if err != nil {
		return nil, err
	}
	return &Bindings{kube: kube.RoleBindings(metav1.NamespaceAll), log: log, now: now, bound: map[types.NamespacedName][]string{}, where: map[string]map[types.NamespacedName]time.Time{}}, nil
}

// Follow watches the cluster until ctx ends. Where the server may not list
// bindings there are none: users then see new rights a little later.
func (b *Bindings) Follow(ctx context.Context) error {
	_, err := b.kube.List(ctx, metav1.ListOptions{Limit: 1})
	if apierrors.IsForbidden(err) {
		b.log.Info("role bindings cannot be listed, so that users see new rights later", "err", err)
		<-ctx.Done()
		return nil
	}
	lists := &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) { return b.kube.List(ctx, o) },
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			return b.kube.Watch(ctx, o)
		},
	}
	r := cache.NewReflectorWithOptions(lists, &rbacv1.RoleBinding{}, b, cache.ReflectorOptions{Name: "role bindings"})
	r.RunWithContext(ctx) // it meets an error of the list above again, and retries
	return nil
}

// Likely returns the namespaces in which a role is bound to u or to one of its
// groups, and when the newest of these bindings was seen.
func (b *Bindings) Likely(u User) map[string]time.Time {
	b.mu.RLock()
	defer b.mu.RUnlock()
	out := map[string]time.Time{}
	for _, subject := range append([]string{userSubject(u.Name)}, groupSubjects(u.Groups)...) {
		for binding, at := range b.where[subject] {
			if at.After(out[binding.Namespace]) {
				out[binding.Namespace] = at
			}
		}
	}
	return out
}

func userSubject(name string) string { return "user " + name }

func groupSubjects(names []string) []string {
	out := make([]string, 0, len(names))
	for _, name := range names {
		out = append(out, "group "+name)
	}
	return out
}

// subjects are those of a binding, as tokens name them.
func subjects(o *rbacv1.RoleBinding) []string {
	var out []string
	for _, s := range o.Subjects {
		switch s.Kind {
		case rbacv1.UserKind:
			out = append(out, userSubject(s.Name))
		case rbacv1.GroupKind:
			out = append(out, groupSubjects([]string{s.Name})...)
		case rbacv1.ServiceAccountKind:
			out = append(out, userSubject("system:serviceaccount:"+cmp.Or(s.Namespace, o.Namespace)+":"+s.Name))
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

func (b *Bindings) Add(o any) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.take(o)
}

func (b *Bindings) Update(o any) error { return b.Add(o) }

func (b *Bindings) Delete(o any) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	binding, ok := o.(*rbacv1.RoleBinding)
	if !ok {
		return fmt.Errorf("%T is no role binding", o)
	}
	b.drop(types.NamespacedName{Namespace: binding.Namespace, Name: binding.Name})
	return nil
}

// Replace implements cache.ReflectorStore: these are all bindings.
func (b *Bindings) Replace(all []any, _ string) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	gone := maps.Clone(b.bound)
	for _, o := range all {
		if err := b.take(o); err != nil {
			return err
		}
		binding := o.(*rbacv1.RoleBinding) // as take has seen
		delete(gone, types.NamespacedName{Namespace: binding.Namespace, Name: binding.Name})
	}
	for key := range gone {
		b.drop(key)
	}
	return nil
}

// Resync implements cache.ReflectorStore and does nothing.
func (b *Bindings) Resync() error { return nil }

// take is called holding b.mu. A binding that is known already keeps its time, so
// that a new list of the same bindings causes no questions.
func (b *Bindings) take(o any) error {
	binding, ok := o.(*rbacv1.RoleBinding)
	if !ok {
		return fmt.Errorf("%T is no role binding", o)
	}
	key, now := types.NamespacedName{Namespace: binding.Namespace, Name: binding.Name}, subjects(binding)
	was, known := b.bound[key]
	if known && slices.Equal(was, now) {
		return nil
	}
	b.drop(key)
	b.bound[key] = now
	for _, subject := range now {
		if b.where[subject] == nil {
			b.where[subject] = map[types.NamespacedName]time.Time{}
		}
		b.where[subject][key] = b.now()
	}
	return nil
}

func (b *Bindings) drop(key types.NamespacedName) {
	for _, subject := range b.bound[key] {
		delete(b.where[subject], key)
		if len(b.where[subject]) == 0 {
			delete(b.where, subject)
		}
	}
	delete(b.bound, key)
}

var _ cache.ReflectorStore = (*Bindings)(nil)
