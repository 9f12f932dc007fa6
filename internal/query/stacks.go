// Package query is what a user can ask about stacks and tenants: lists, details,
// the timeline, explanations, the graph, what was kept of runs and states. The
// command line and the HTTP API are two views of it. It answers from Kubernetes
// with the rights of the caller, and from the records that the server keeps of
// runs. Nothing of Kubernetes shows in what it answers.
//
// Start reading at Stacks, then at Tenants and at Board.
package query

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"iter"
	"regexp"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/plan/usage"
)

func parseSelector(s string) (labels.Selector, error) {
	sel, err := labels.Parse(s)
	if err != nil {
		return nil, fault.New(fault.Invalid, "SelectorInvalid", fmt.Errorf("reading the label selector %q: %w", s, err))
	}
	return sel, nil
}

// SortStacks orders stacks by namespace, name and kind.
func SortStacks(s []Stack) { slices.SortFunc(s, compareStacks) }

// StackReader answers questions about stacks.
type StackReader interface {
	List(context.Context, Filter) ([]Stack, error)
	Get(context.Context, Key) (Stack, error)
	Describe(context.Context, Key) (Detail, error)
	Explain(context.Context, Key) (Explanation, error)

	Runs(context.Context, Key) ([]Report, error)
	Run(ctx context.Context, key Key, run string) (Report, error)
	Log(ctx context.Context, key Key, run string, o LogOptions) (io.ReadCloser, error)
	Plan(ctx context.Context, key Key, digest string) (PlanDocument, error)
	Verdict(ctx context.Context, key Key, digest string) (*Verdict, error)
	Applied(context.Context, Key) ([]AppliedPlan, error)

	Watch(context.Context, Filter) iter.Seq2[Change, error]
	Outputs(ctx context.Context, key Key, show bool) ([]Output, error)

	// ProposeDrift edits the configuration so that it accepts drift, and changes nothing itself.
	ProposeDrift(context.Context, Key, DriftOrder) (DriftPatch, error)
	// NextCheck says when drift was checked last and is checked next, and why then.
	NextCheck(context.Context, Key) (DriftCheck, error)

	// Uses is Missing while no run has found out which modules and providers the stack uses.
	Uses(context.Context, Key) (usage.Record, error)

	StateReader
}

// Key names a stack, or another object of a namespace.
type Key struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	Kind      string `json:"kind,omitempty"` // of a stack, as terraform.alustan.io; empty for the first kind
}

// String is the key as ParseKey reads it.
func (k Key) String() string {
	if k.Kind != "" {
		return k.Kind + "/" + k.Namespace + "/" + k.Name
	}
	return k.Namespace + "/" + k.Name
}

// Argument names the stack in a command about its namespace: KIND/NAME, and the bare
// name for the first kind.
func (k Key) Argument() string {
	if k.Kind != "" {
		return k.Kind + "/" + k.Name
	}
	return k.Name
}

// Filter chooses exactly the stack.
func (k Key) Filter() Filter { return Filter{Namespace: k.Namespace, Name: k.Name, Kind: &k.Kind} }

func (k Key) object() types.NamespacedName {
	return types.NamespacedName{Namespace: k.Namespace, Name: k.Name}
}

// kindMark ends the kind in the address of a stack. It occurs in no name.
const kindMark = ":"

// Address is the name of the stack in addresses of pages and of the API:
// terraform.alustan.io:net, and the bare name for the first kind.
func (k Key) Address() string {
	if k.Kind != "" {
		return k.Kind + kindMark + k.Name
	}
	return k.Name
}

// SplitAddress reads what Address wrote.
func SplitAddress(s string) (kind, name string) {
	if kind, name, ok := strings.Cut(s, kindMark); ok {
		return kind, name
	}
	return "", s
}

var objectName = regexp.MustCompile(`^[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?$`)

// Check refuses what cannot be the name of an object, so that no name is ever used
// as a path.
func (k Key) Check() error {
	for _, s := range []string{k.Namespace, k.Name, cmp.Or(k.Kind, "first")} {
		if !objectName.MatchString(s) {
			return fault.New(fault.Invalid, "NameInvalid", fmt.Errorf("%.80q cannot be a name", s))
		}
	}
	return nil
}

// ParseKey reads NAME or NAMESPACE/NAME, with an optional kind before it as
// kubectl writes it (terraform.infra.contrib.fluxcd.io/NAME). A kind without a group
// is not said, since several groups may have it. Kinds.Named says whether there is
// such a kind.
func ParseKey(s, namespace string) (Key, error) {
	parts := strings.Split(s, "/")
	k := Key{Namespace: namespace, Name: parts[len(parts)-1]}
	if kind := strings.ToLower(parts[0]); len(parts) > 1 && (unqualified[kind] || qualified.MatchString(kind)) {
		if !unqualified[kind] {
			k.Kind = kind
		}
		parts = parts[1:]
	}
	if len(parts) == 2 {
		k.Namespace = parts[0]
	}
	if len(parts) > 2 || k.Name == "" || k.Namespace == "" {
		return Key{}, fault.New(fault.Invalid, "NameInvalid", fmt.Errorf("%q is not the name of a stack", s))
	}
	return k, nil
}

// qualified is a kind with its group. The name of a namespace has no dot.
var qualified = regexp.MustCompile(`^[a-z][a-z0-9]*(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)+$`)

// Find returns the key of the stack that a user names: as ParseKey reads it, and
// without a kind if only one kind has a stack of that name.
func Find(ctx context.Context, kinds Kinds, of StackReader, name, namespace string) (Key, error) {
	key, err := ParseKey(name, namespace)
	words := kinds.Words()
	if err != nil || key.Kind == "" && len(words) == 1 {
		return key, err
	}
	if key.Kind != "" {
		return Canonical(kinds, key)
	}
	var found []Key
	var spelled []string
	for _, key.Kind = range words {
		_, err := of.Get(ctx, key)
		if err != nil && fault.Of(err) != fault.Missing && !leftOut(err) && !unknownThere(key, err) {
			return Key{}, err
		}
		if err == nil {
			found, spelled = append(found, key), append(spelled, kinds.Spelled(key.Kind)+"/"+key.Namespace+"/"+key.Name)
		}
	}
	switch len(found) {
	case 0:
		key.Kind = "" // the command says what is missing
		return key, nil
	case 1:
		return found[0], nil
	default:
		return Key{}, fault.New(fault.Invalid, ReasonAmbiguous, fmt.Errorf("several kinds have a stack %s/%s: name one of %s", key.Namespace, key.Name, strings.Join(spelled, ", ")))
	}
}

// FindRecorded is Find for what the records know of a stack. Of a stack that was deleted it
// also returns the last run, if that is kept.
func FindRecorded(ctx context.Context, kinds Kinds, of StackReader, name, namespace string) (Key, *Report, error) {
	key, err := Find(ctx, kinds, of, name, namespace)
	if err != nil {
		return key, nil, err
	}
	if _, err := of.Get(ctx, key); fault.Of(err) != fault.Missing {
		return key, nil, nil // what is asked of it says what is wrong
	}
	words := []string{key.Kind}
	if named, err := ParseKey(name, namespace); err == nil && named.Kind == "" {
		words = kinds.Words()
	}
	found, last := key, (*Report)(nil)
	for _, key.Kind = range words {
		runs, err := of.Runs(ctx, key)
		if err == nil && len(runs) > 0 && !runs[0].Gone.IsZero() && (last == nil || runs[0].Gone.After(last.Gone)) {
			found, last = key, &runs[0]
		}
	}
	return found, last, nil
}

// unknownThere reports whether a server of an earlier release refused a kind of stack that
// it does not have. It has none of that kind.
func unknownThere(key Key, err error) bool {
	return key.Kind != "" && fault.Of(err) == fault.Invalid && fault.Reason(err, "") == "NameInvalid"
}

// unqualified are the words that kubectl takes for a kind of stack without its group.
var unqualified = map[string]bool{"terraform": true, "terraforms": true, "tf": true}

// Canonical returns key with its kind as Kinds.Word has it.
func Canonical(kinds Kinds, key Key) (Key, error) {
	d := kinds.Named(key.Kind)
	if d == nil {
		return key, noKind(kinds, key.Kind)
	}
	key.Kind = kinds.Word(d)
	return key, nil
}

// Stacks answers questions about stacks and their states.
type Stacks struct {
	*Objects
	*States
}

// New returns the Stacks of these kinds that kube may see, with the records of their
// runs.
func New(kube client.WithWatch, kinds Kinds, records Records, now func() time.Time) *Stacks {
	objects := &Objects{Kube: kube, Kinds: kinds, Records: records, Now: now}
	return &Stacks{Objects: objects, States: &States{objects}}
}

// OfFormer returns the Stacks with Objects.Former.
func (s *Stacks) OfFormer() *Stacks {
	objects := *s.Objects
	objects.Former = true
	return &Stacks{Objects: &objects, States: &States{&objects}}
}

// Filter chooses stacks.
type Filter struct {
	Namespace string  // all if empty
	Name      string  // all if empty
	Selector  string  // of labels, as kubectl reads it
	Kind      *string // as Key has it; all if nil
}

// Key names the stack, if f chooses one by its name.
func (f Filter) Key() Key {
	k := Key{Namespace: f.Namespace, Name: f.Name}
	if f.Kind != nil {
		k.Kind = *f.Kind
	}
	return k
}

// Names reports whether f chooses the stack, whatever its labels are.
func (f Filter) Names(k Key) bool {
	return (f.Namespace == "" || k.Namespace == f.Namespace) && (f.Name == "" || k.Name == f.Name) && (f.Kind == nil || k.Kind == *f.Kind)
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
	list, err := s.All(ctx, f)
	if err != nil {
		return nil, err
	}
	out := make([]Stack, 0, len(list))
	for _, o := range list {
		out = append(out, View(o))
	}
	SortStacks(out)
	return out, nil
}

// Get returns one stack.
func (s *Stacks) Get(ctx context.Context, key Key) (Stack, error) {
	o, err := s.Read(ctx, key)
	if err != nil {
		return Stack{}, err
	}
	return View(o), nil
}

func compareStacks(a, b Stack) int {
	return compareKeys(a.Key(), b.Key())
}

// Change is a stack as it is now, or as it was last if it is gone.
type Change struct {
	Stack
	Gone bool
}

// Watch yields the stacks that f chooses as they are, and then each one that
// changes, until ctx ends or an error, which is the last that it yields.
func (s *Stacks) Watch(ctx context.Context, f Filter) iter.Seq2[Change, error] {
	return func(yield func(Change, error) bool) {
		for o, err := range s.Changes(ctx, f) {
			if err != nil {
				yield(Change{}, err)
				return
			}
			if !yield(Change{Stack: View(o.Object), Gone: o.Gone}, nil) {
				return
			}
		}
	}
}

// The reasons of this package's faults. Hint says what to do about each.
const (
	ReasonNoPlan      = "NoPlan"
	ReasonOnlyScript  = "OnlyScript" // there is no plan, since the script of the stack needs none
	ReasonNoRuns      = "NoRuns"
	ReasonNotKept     = "NotKept"
	ReasonPlanChanged = "PlanChanged"
	ReasonTooLate     = "TooLate"
	ReasonWasApplied  = "AlreadyApplied"
	ReasonNoRun       = "NoRun"
	ReasonRunChanged  = "RunChanged"
	ReasonNotManual   = "NotManual"
	ReasonDenied      = "PlanDenied"
	ReasonManifest    = "ManifestInvalid"
	ReasonNoOutputs   = "NoOutputs"
	ReasonUnpublished = "Unpublished"
	ReasonNotRetained = "NotRetained"
	ReasonNamespaces  = "NamespacesUnknown" // the server may not list them
	ReasonAmbiguous   = "NameAmbiguous"
	ReasonNoUses      = "NoUses"
	ReasonNoVerdict   = "NoVerdict" // no policy judged the plan
)
