// Package service is the questions that a person has about stacks and tenants
// and the commands they give, for whatever they sit in front of: the command line and
// the HTTP API are two views of it. It answers from Kubernetes as whoever
// asks, and from the records that the server keeps of runs. Nothing of
// Kubernetes shows in its types.
//
// It decides nothing about a stack: a command edits the object, and the
// controller draws the conclusions. An edit names what it was made upon, so
// that it never reaches something that its author did not see.
//
// Start reading at Stacks, then at Tenants.
package service

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"time"

	sourcev1 "github.com/fluxcd/source-controller/api/v1"
	appsv1 "k8s.io/api/apps/v1"
	authnv1 "k8s.io/api/authentication/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/terrier-iac/terrier/api/infra/v1alpha2"
	tenantsv1 "github.com/terrier-iac/terrier/api/tenants/v1"
	"github.com/terrier-iac/terrier/internal/fault"
)

// Key names a stack.
type Key struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
}

func (k Key) String() string { return k.Namespace + "/" + k.Name }

var objectName = regexp.MustCompile(`^[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?$`)

// check refuses what can name no object, so that no name is ever taken for a
// path.
func (k Key) check() error {
	for _, s := range []string{k.Namespace, k.Name} {
		if !objectName.MatchString(s) {
			return fault.New(fault.Invalid, "NameInvalid", fmt.Errorf("%.80q cannot be a name", s))
		}
	}
	return nil
}

// ParseKey reads NAME or NAMESPACE/NAME, with an optional kind before it as
// kubectl writes it (terraform.infra.contrib.fluxcd.io/NAME).
func ParseKey(s, namespace string) (Key, error) {
	parts := strings.Split(s, "/")
	if kind, _, _ := strings.Cut(strings.ToLower(parts[0]), "."); len(parts) > 1 && (kind == "terraform" || kind == "terraforms" || kind == "tf") {
		parts = parts[1:]
	}
	k := Key{Namespace: namespace, Name: parts[len(parts)-1]}
	if len(parts) == 2 {
		k.Namespace = parts[0]
	}
	if len(parts) > 2 || k.Name == "" || k.Namespace == "" {
		return Key{}, fault.New(fault.Invalid, "NameInvalid", fmt.Errorf("%q is not the name of a stack", s))
	}
	return k, nil
}

// Stacks answers questions about stacks and carries out commands.
type Stacks struct {
	kube    client.WithWatch
	records Records
	now     func() time.Time
}

// New returns the Stacks that kube may see, with the records of their runs.
func New(kube client.WithWatch, records Records, now func() time.Time) *Stacks {
	return &Stacks{kube: kube, records: records, now: now}
}

// NewScheme returns the kinds that a client for New must know.
func NewScheme() (*runtime.Scheme, error) {
	s := runtime.NewScheme()
	return s, errors.Join(corev1.AddToScheme(s), coordinationv1.AddToScheme(s), authnv1.AddToScheme(s), v1alpha2.AddToScheme(s),
		appsv1.AddToScheme(s), tenantsv1.AddToScheme(s), sourcev1.AddToScheme(s))
}

// FieldManager is who edits objects on behalf of the person at the keyboard.
const FieldManager = "terrier"

// read fetches the object of a stack.
func (s *Stacks) read(ctx context.Context, key Key) (*v1alpha2.Terraform, error) {
	if err := key.check(); err != nil {
		return nil, err
	}
	var o v1alpha2.Terraform
	if err := s.kube.Get(ctx, types.NamespacedName(key), &o); err != nil {
		return nil, kubeFault(err, "stack "+key.String())
	}
	return &o, nil
}

// edits bounds how often an edit is made anew because the object changed.
const edits = 8

// edit changes the object of a stack and returns it as it is then. The change
// is made upon the very version that change was shown: if that is no longer
// the newest, change is asked again about the newest.
func (s *Stacks) edit(ctx context.Context, key Key, change func(*v1alpha2.Terraform) error) (*v1alpha2.Terraform, error) {
	var err error
	for range edits {
		var o *v1alpha2.Terraform
		if o, err = s.read(ctx, key); err != nil {
			return nil, err
		}
		before := o.DeepCopy()
		if err := change(o); err != nil {
			return nil, err
		}
		patch := client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})
		err = kubeFault(s.kube.Patch(ctx, o, patch, client.FieldOwner(FieldManager)), "stack "+key.String())
		if err == nil {
			return o, nil
		}
		if fault.Of(err) != fault.Conflict {
			return nil, err
		}
	}
	return nil, err
}

// Filter chooses stacks.
type Filter struct {
	Namespace string // all if empty
	Name      string // all if empty
	Selector  string // of labels, as kubectl reads it
}

func (f Filter) options() ([]client.ListOption, error) {
	var out []client.ListOption
	if f.Namespace != "" {
		out = append(out, client.InNamespace(f.Namespace))
	}
	if f.Name != "" {
		out = append(out, client.MatchingFields{"metadata.name": f.Name})
	}
	if f.Selector != "" {
		sel, err := parseSelector(f.Selector)
		if err != nil {
			return nil, err
		}
		out = append(out, client.MatchingLabelsSelector{Selector: sel})
	}
	return out, nil
}

// List returns the stacks that f chooses, by namespace and name.
func (s *Stacks) List(ctx context.Context, f Filter) ([]Stack, error) {
	opts, err := f.options()
	if err != nil {
		return nil, err
	}
	var list v1alpha2.TerraformList
	if err := s.kube.List(ctx, &list, opts...); err != nil {
		return nil, kubeFault(err, "stacks")
	}
	out := make([]Stack, 0, len(list.Items))
	for i := range list.Items {
		out = append(out, view(&list.Items[i]))
	}
	sortStacks(out)
	return out, nil
}

// Get returns one stack.
func (s *Stacks) Get(ctx context.Context, key Key) (Stack, error) {
	o, err := s.read(ctx, key)
	if err != nil {
		return Stack{}, err
	}
	return view(o), nil
}

func compareStacks(a, b Stack) int {
	return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
}
