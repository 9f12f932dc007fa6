package controller

import (
	"context"
	"fmt"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"

	"github.com/terrier-iac/terrier/api/infra/v1alpha2"
	"github.com/terrier-iac/terrier/internal/dialect/infra"
)

// indexedStacks are stacks in the store that caches have, with the index of a controller.
type indexedStacks struct {
	t     *testing.T
	c     *apart
	store toolscache.Indexer
	made  int
}

func newIndexedStacks(t *testing.T) *indexedStacks {
	c := newEstate(nil, nil)
	return &indexedStacks{t: t, c: c, store: toolscache.NewIndexer(toolscache.MetaNamespaceKeyFunc, toolscache.Indexers{
		indexDependsOn: func(o any) ([]string, error) { return c.watches.dependsOnKeys(o.(client.Object)), nil },
	})}
}

// on writes a stack that depends on others, a new one or another version.
func (s *indexedStacks) on(name string, others ...string) {
	s.t.Helper()
	s.made++
	o := asTerraform(name, 0, func(o *v1alpha2.Terraform) {
		o.ResourceVersion, o.UID = fmt.Sprint(s.made), types.UID(name)
		for _, other := range others {
			o.Spec.DependsOn = append(o.Spec.DependsOn, v1alpha2.ObjectRef{Name: other})
		}
	})
	if err := s.store.Update(&o); err != nil {
		s.t.Fatal(err)
	}
}

// drop removes a stack, and has the controller handle that.
func (s *indexedStacks) drop(name string) {
	s.t.Helper()
	o, _, err := s.store.GetByKey("apps/" + name)
	if err == nil {
		err = s.store.Delete(o)
	}
	if err != nil {
		s.t.Fatal(err)
	}
	s.c.watches.gone(s.t.Context(), event.DeleteEvent{Object: o.(client.Object)}, nil)
}

func (s *indexedStacks) cycle(start, next string) string {
	ref := func(name string) objectRef { return objectRef{infra.Dialect{}, nn("apps", name)} }
	return s.c.dependencies.cycle(ref(start), ref(next))
}

// A cycle is found however many other stacks its stacks depend on. Two deleted stacks that wait for
// each other would wait for ever.
func TestACycleAmongManyDependencies(t *testing.T) {
	s := newIndexedStacks(t)
	var leaves []string
	for i := range 128 {
		leaves = append(leaves, fmt.Sprintf("leaf-%d", i))
		s.on(leaves[i])
	}
	s.on("hub", append(leaves, "app")...)
	s.on("app", "hub")
	s.on("self", "self")
	s.on("far", "app")
	s.on("wide", append(leaves, "hub")...)
	for name, tt := range map[string]struct{ start, next, want string }{
		"behind many others":     {"app", "hub", "dependsOn is a cycle: apps/app → apps/hub → apps/app"},
		"from the other side":    {"hub", "app", "dependsOn is a cycle: apps/hub → apps/app → apps/hub"},
		"a stack and itself":     {"self", "self", "dependsOn is a cycle: apps/self → apps/self"},
		"one that leads to it":   {"far", "app", ""},
		"none among many stacks": {"wide", "leaf-0", ""},
	} {
		if got := s.cycle(tt.start, tt.next); got != tt.want {
			t.Errorf("%s: cycle() = %q, want %q", name, got, tt.want)
		}
	}
}

// A cycle of thousands of stacks is found, in a message that is not longer than others, and is
// gone once one stack of it changes or goes.
func TestACycleOfThousands(t *testing.T) {
	const stacks = 5000
	s := newIndexedStacks(t)
	name := func(i int) string { return fmt.Sprintf("s-%d", i%stacks) }
	for i := range stacks {
		s.on(name(i), name(i+1))
	}
	want := "dependsOn is a cycle of 5000 stacks: apps/s-10 → apps/s-11 → apps/s-12 → apps/s-13 → … → apps/s-8 → apps/s-9 → apps/s-10"
	if got := s.cycle(name(10), name(11)); got != want {
		t.Errorf("cycle() = %q, want %q", got, want)
	}
	for what, change := range map[string]func(){
		"was changed": func() { s.on(name(700), "elsewhere") },
		"is gone":     func() { s.drop(name(700)) },
	} {
		change()
		if got := s.cycle(name(10), name(11)); got != "" {
			t.Errorf("after a stack of it %s: %q", what, got)
		}
		s.on(name(700), name(701))
		if got := s.cycle(name(10), name(11)); !strings.HasPrefix(got, "dependsOn is a cycle") {
			t.Errorf("after the stack that %s is as before: %q", what, got)
		}
	}
}

// noObjects is a cache in which nothing is.
type noObjects struct{ client.Reader }

func (noObjects) Get(_ context.Context, key client.ObjectKey, _ client.Object, _ ...client.GetOption) error {
	return apierrors.NewNotFound(schema.GroupResource{Resource: "terraforms"}, key.Name)
}

// A dependency that is gone is said to be missing, also in a pass that comes before the controller
// has handled its deletion.
func TestADependencyThatIsGoneIsNoCycle(t *testing.T) {
	s := newIndexedStacks(t)
	s.on("app", "hub")
	s.on("hub", "app")
	p := &pass{dialect: infra.Dialect{}, obj: &v1alpha2.Terraform{}}
	p.obj.SetNamespace("apps")
	p.obj.SetName("app")
	s.c.dependencies.cache = noObjects{}
	why, err := s.c.dependencies.dependency(t.Context(), p, infra.Dialect{}, nn("apps", "hub"))
	if want := "dependency apps/hub does not exist"; err != nil || why != want {
		t.Errorf("dependency() = %q, %v, want %q", why, err, want)
	}
	if got := s.cycle("app", "hub"); got != "" {
		t.Errorf("cycle() = %q of a stack that is gone", got)
	}
	s.on("hub", "app")
	if got := s.cycle("app", "hub"); got == "" {
		t.Error("once the stack is there again no cycle is found")
	}
}
