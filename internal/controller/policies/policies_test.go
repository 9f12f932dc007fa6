package policies

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/terrier-iac/terrier/api/policy/v1alpha1"
	"github.com/terrier-iac/terrier/internal/dialect/kinds"
	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/policy"
	"github.com/terrier-iac/terrier/internal/review"

	"sigs.k8s.io/controller-runtime/pkg/client"
)

// having are Policies with some policies and namespaces, as they are once they were read.
func having(t testing.TB, namespaces map[string]map[string]string, all ...client.Object) *Policies {
	t.Helper()
	now := time.Unix(1e9, 0)
	p := newPolicies(Options{Dialects: kinds.All(), TenantLabel: "terrier.dev/tenant", Now: func() time.Time { return now }, Live: objects{of: namespaces}})
	p.cache = objects{of: namespaces}
	close(p.ready)
	s := &snapshot{namespaces: namespaces}
	for _, obj := range all {
		obj.SetUID(types.UID(obj.GetNamespace() + "/" + obj.GetName()))
		switch o := obj.(type) {
		case *v1alpha1.ClusterPolicy:
			s.policies = append(s.policies, p.compile(t.Context(), o, "ClusterPolicy/"+o.Name, &o.Spec, nil))
		case *v1alpha1.Policy:
			s.policies = append(s.policies, p.compile(t.Context(), o, "Policy/"+o.Namespace+"/"+o.Name, &o.Spec, nil))
		}
	}
	p.now.Store(s)
	return p
}

// objects are namespaces by name, with their labels, and policies. Nil has every namespace,
// without labels.
type objects struct {
	client.Client
	of       map[string]map[string]string
	policies *[]v1alpha1.ClusterPolicy
	mu       *sync.Mutex // of policies; nil if they do not change
}

func (o objects) Get(_ context.Context, key client.ObjectKey, obj client.Object, _ ...client.GetOption) error {
	labels, ok := o.of[key.Name]
	if !ok && o.of != nil {
		return apierrors.NewNotFound(schema.GroupResource{Resource: "namespaces"}, key.Name)
	}
	obj.SetName(key.Name)
	obj.SetLabels(labels)
	return nil
}

func (o objects) List(_ context.Context, list client.ObjectList, _ ...client.ListOption) error {
	switch l := list.(type) {
	case *metav1.PartialObjectMetadataList:
		for name, labels := range o.of {
			l.Items = append(l.Items, metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels}})
		}
	case *v1alpha1.ClusterPolicyList:
		if o.mu != nil {
			o.mu.Lock()
			defer o.mu.Unlock()
		}
		l.Items = slices.Clone(*o.policies)
	case *v1alpha1.PolicyList:
	default:
		return fmt.Errorf("no list of %T", list)
	}
	return nil
}

func clusterPolicy(name string, spec v1alpha1.PolicySpec) *v1alpha1.ClusterPolicy {
	return &v1alpha1.ClusterPolicy{ObjectMeta: metav1.ObjectMeta{Name: name, Generation: 1}, Spec: spec}
}

// stackOf is an object of the first kind of stacks.
func stackOf(namespace, name string, labels, notes map[string]string) client.Object {
	obj := kinds.All().All()[0].New()
	obj.SetNamespace(namespace)
	obj.SetName(name)
	obj.SetUID(types.UID(namespace + "/" + name))
	obj.SetLabels(labels)
	obj.SetAnnotations(notes)
	return obj
}

func noDestroys() *v1alpha1.Guards { return &v1alpha1.Guards{MaxDestroys: new(int32(0))} }

// judges names the policies that judge a stack.
func judges(t testing.TB, p *Policies, obj client.Object) []string {
	t.Helper()
	set, err := p.For(t.Context(), obj)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	if r, ok := set.Reviewer.(*reviewer); ok {
		for _, c := range r.policies {
			names = append(names, strings.TrimPrefix(c.source.Policy, "ClusterPolicy/"))
		}
	}
	if (set.Digest == "") != (len(names) == 0) {
		t.Errorf("For() = %q for %v", set.Digest, names)
	}
	return names
}

func TestSelection(t *testing.T) {
	selected := func(s v1alpha1.Selector) v1alpha1.PolicySpec {
		return v1alpha1.PolicySpec{Guards: noDestroys(), Selector: s}
	}
	p := having(t, map[string]map[string]string{
		"team-a": {"tier": "gold", "terrier.dev/environment": "production"}, "team-b": nil, "shop": {"terrier.dev/tenant": "acme"},
	},
		clusterPolicy("all", selected(v1alpha1.Selector{})),
		clusterPolicy("teams", selected(v1alpha1.Selector{Namespaces: []string{"team-*"}})),
		clusterPolicy("gold", selected(v1alpha1.Selector{NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"tier": "gold"}}})),
		clusterPolicy("web", selected(v1alpha1.Selector{StackSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}}})),
		clusterPolicy("acme", selected(v1alpha1.Selector{Tenants: []string{"acme"}})),
		clusterPolicy("prod", selected(v1alpha1.Selector{Environments: []string{"production"}})),
		clusterPolicy("scripts", selected(v1alpha1.Selector{Kinds: []string{"alustan.io"}})),
		clusterPolicy("times", v1alpha1.PolicySpec{Guards: &v1alpha1.Guards{MaxPlanAge: &metav1.Duration{Duration: time.Hour}}}),
		&v1alpha1.Policy{ObjectMeta: metav1.ObjectMeta{Namespace: "team-b", Name: "own"}, Spec: selected(v1alpha1.Selector{})},
	)
	for name, tt := range map[string]struct {
		stack client.Object
		want  []string
	}{
		"labels of the namespace":           {stackOf("team-a", "net", nil, nil), []string{"all", "teams", "gold", "prod"}},
		"the namespace wins over the stack": {stackOf("team-a", "net", map[string]string{"terrier.dev/environment": "test", "terrier.dev/tenant": "acme"}, nil), []string{"all", "teams", "gold", "acme", "prod"}},
		"labels of the stack":               {stackOf("team-b", "net", map[string]string{"app": "web", "terrier.dev/environment": "production"}, nil), []string{"all", "teams", "web", "prod", "Policy/team-b/own"}},
		"the tenant of a namespace":         {stackOf("shop", "net", map[string]string{"terrier.dev/tenant": "other"}, nil), []string{"all", "acme"}},
		"guards of its own":                 {stackOf("shop", "net", nil, map[string]string{"guard.terrier.dev/maxDestroys": "3"}), []string{"all", "acme", "the annotations of the stack"}},
	} {
		if d := cmp.Diff(judges(t, p, tt.stack), tt.want); d != "" {
			t.Errorf("%s: %s", name, d)
		}
	}
	set, err := p.For(t.Context(), stackOf("team-a", "net", nil, nil))
	if err != nil || len(set.Times.PlanAge) != 1 {
		t.Errorf("For() = %+v, %v, want the age of plans", set.Times, err)
	}
}

// A policy that cannot be read holds the plans of all stacks that it may be meant for.
func TestABrokenPolicyHolds(t *testing.T) {
	bad := v1alpha1.Selector{Namespaces: []string{"team-*"}, StackSelector: &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "a", Operator: "Like"}}}}
	for name, tt := range map[string]struct {
		spec v1alpha1.PolicySpec
		says string
	}{
		"a selector": {v1alpha1.PolicySpec{Guards: noDestroys(), Selector: bad}, "spec.selector.stackSelector: "},
		"a time zone": {v1alpha1.PolicySpec{Guards: &v1alpha1.Guards{Windows: []v1alpha1.Window{{From: "08:00", To: "18:00", TimeZone: "Europe/Berlen"}}}},
			`spec.guards.windows[0].timeZone: is "Europe/Berlen", which is no time zone: it may be a name as Europe/Berlin`},
		"a window":               {v1alpha1.PolicySpec{Guards: &v1alpha1.Guards{Windows: []v1alpha1.Window{{From: "18:00", To: "08:00"}}}}, "the window ends before it begins"},
		"a program without Rego": {v1alpha1.PolicySpec{Rego: &v1alpha1.Rego{Modules: map[string]string{"a.rego": "package terrier"}}}, "no programs in Rego"},
	} {
		t.Run(name, func(t *testing.T) {
			p := having(t, nil, clusterPolicy("p", tt.spec))
			a := asked(t, p, stackOf("shop", "net", nil, nil), "unchanged.json")
			if a.Outcome != review.Hold || len(a.Findings) != 1 || !a.Findings[0].Error || !strings.Contains(a.Findings[0].Message, tt.says) {
				t.Errorf("Review() = %+v, want a hold that says %q", a, tt.says)
			}
		})
	}
}

// asked asks the policies of a stack about a recorded plan.
func asked(t testing.TB, p *Policies, obj client.Object, document string) review.Answer {
	t.Helper()
	set, err := p.For(t.Context(), obj)
	if err != nil || set.Invalid != nil {
		t.Fatal(err, set.Invalid)
	}
	raw, err := os.ReadFile(filepath.Join("..", "..", "plan", "testdata", document))
	if err != nil {
		t.Fatal(err)
	}
	if set.Reviewer == nil {
		return review.Answer{}
	}
	a, err := set.Reviewer.Review(t.Context(), &review.Plan{Digest: "sha256:d", Source: signedArtifact, Open: func(context.Context, review.Document) (io.ReadCloser, error) {
		return io.NopCloser(bytes.NewReader(raw)), nil
	}})
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func TestTheStrictestOfAllCounts(t *testing.T) {
	generous, strict := v1alpha1.PolicySpec{Guards: &v1alpha1.Guards{MaxDestroys: new(int32(100))}}, v1alpha1.PolicySpec{Guards: noDestroys()}
	deny := v1alpha1.PolicySpec{Guards: &v1alpha1.Guards{MaxDestroys: new(int32(1)), Effect: "Deny"}}
	dry := v1alpha1.PolicySpec{Guards: &v1alpha1.Guards{MaxDestroys: new(int32(0)), Effect: "Deny"}, Mode: v1alpha1.DryRun}
	own := map[string]string{"guard.terrier.dev/maxDestroys": "1"}
	for name, tt := range map[string]struct {
		policies []client.Object
		notes    map[string]string
		want     review.Outcome
		findings int
	}{
		"within the limits":       {[]client.Object{clusterPolicy("a", generous)}, nil, review.Pass, 0},
		"one of two":              {[]client.Object{clusterPolicy("a", generous), clusterPolicy("b", strict)}, nil, review.Hold, 1},
		"its own":                 {[]client.Object{clusterPolicy("a", generous)}, own, review.Hold, 1},
		"its own are no way out":  {[]client.Object{clusterPolicy("a", strict)}, map[string]string{"guard.terrier.dev/maxDestroys": "100"}, review.Hold, 1},
		"a denial":                {[]client.Object{clusterPolicy("a", strict), clusterPolicy("b", deny)}, nil, review.Refuse, 2},
		"a dry run is only shown": {[]client.Object{clusterPolicy("a", dry)}, nil, review.Pass, 1},
	} {
		a := asked(t, having(t, nil, tt.policies...), stackOf("shop", "net", nil, tt.notes), "plan.json")
		if a.Outcome != tt.want || len(a.Findings) != tt.findings {
			t.Errorf("%s: Review() = %+v, want %v and %d findings", name, a, tt.want, tt.findings)
		}
	}
}

// Another limit, label of a stack or broken program is another digest; a description is not.
func TestDigest(t *testing.T) {
	of := func(spec v1alpha1.PolicySpec, notes map[string]string) string {
		set, err := having(t, nil, clusterPolicy("p", spec)).For(t.Context(), stackOf("shop", "net", nil, notes))
		if err != nil {
			t.Fatal(err)
		}
		return set.Digest
	}
	base := v1alpha1.PolicySpec{Guards: noDestroys()}
	described, other, windows := base, base, base
	described.Description = "what it is for"
	other.Guards = &v1alpha1.Guards{MaxDestroys: new(int32(1))}
	windows.Guards = &v1alpha1.Guards{MaxDestroys: new(int32(0)), Windows: []v1alpha1.Window{{From: "08:00", To: "09:00"}}}
	if of(base, nil) != of(described, nil) || of(base, nil) != of(windows, nil) || of(base, nil) != of(base, map[string]string{"a": "b"}) {
		t.Error("a description, a window or an annotation asks the policies again, which judge plans by none of them")
	}
	if of(base, nil) == of(other, nil) || of(base, nil) == of(base, map[string]string{"guard.terrier.dev/maxReplaces": "1"}) {
		t.Error("another limit does not ask the policies again")
	}
}

func TestOwnGuards(t *testing.T) {
	for name, tt := range map[string]struct {
		notes map[string]string
		wrong string // a part of what is wrong; empty if nothing is
	}{
		"none":             {map[string]string{"terrier.dev/deletion": "retain"}, ""},
		"all of them":      {map[string]string{"guard.terrier.dev/maxDestroys": "0", "guard.terrier.dev/maxReplaces": "2", "guard.terrier.dev/maxDestroyedShare": "20%", "guard.terrier.dev/maxDestroysPerHour": "5", "guard.terrier.dev/protected": "aws_db_*, module.network.*", "guard.terrier.dev/windows": "Mon-Fri 08:00-18:00 Europe/Berlin, Sat 08:00-12:00", "guard.terrier.dev/freezes": "2026-12-20T00:00:00Z/2027-01-03T00:00:00Z", "guard.terrier.dev/minSourceAge": "1h", "guard.terrier.dev/maxPlanAge": "24h", "guard.terrier.dev/requireSignedSource": "true", "guard.terrier.dev/effect": "Deny"}, ""},
		"a typing error":   {map[string]string{"guard.terrier.dev/maxDestroy": "0"}, "the annotation guard.terrier.dev/maxDestroy is no guard; it may be guard.terrier.dev/maxDestroys"},
		"an unknown guard": {map[string]string{"guard.terrier.dev/quota": "0"}, "guards are effect, freezes, maxDestroyedShare"},
		"no number":        {map[string]string{"guard.terrier.dev/maxDestroys": "none"}, `the annotation guard.terrier.dev/maxDestroys is "none"; it may be a number, as "0"`},
		"a negative one":   {map[string]string{"guard.terrier.dev/maxDestroys": "-1"}, `it may be a number, as "0"`},
		"a bad share":      {map[string]string{"guard.terrier.dev/maxDestroyedShare": "120%"}, `it may be a share, as "20%"`},
		"a key":            {map[string]string{"guard.terrier.dev/requireSignedSource": "SHA256:abc"}, `it may be "true"`},
		"a window":         {map[string]string{"guard.terrier.dev/windows": "Mon-Fri 18:00-08:00"}, `it may be at most 50 windows with commas`},
		"many windows":     {map[string]string{"guard.terrier.dev/windows": strings.Repeat("08:00-09:00,", 50) + "10:00-11:00"}, `it may be at most 50 windows`},
		"many freezes":     {map[string]string{"guard.terrier.dev/freezes": strings.Repeat("2026-12-20T00:00:00Z/2027-01-03T00:00:00Z,", 50) + "2028-12-20T00:00:00Z/2029-01-03T00:00:00Z"}, `at most 50 of them`},
		"many patterns":    {map[string]string{"guard.terrier.dev/protected": strings.Repeat("a,", 100) + "b"}, `it may be at most 100 patterns`},
		"a freeze":         {map[string]string{"guard.terrier.dev/freezes": "2027-01-03T00:00:00Z/2026-12-20T00:00:00Z"}, `it may be two times with a slash`},
		"two of them":      {map[string]string{"guard.terrier.dev/maxPlanAge": "1d", "guard.terrier.dev/effect": "hold"}, ", and the annotation guard.terrier.dev/maxPlanAge"},
	} {
		t.Run(name, func(t *testing.T) {
			wrong := strings.Join(OwnGuards(tt.notes), ", and ")
			if (wrong == "") != (tt.wrong == "") || !strings.Contains(wrong, tt.wrong) {
				t.Errorf("OwnGuards() = %q, want %q", wrong, tt.wrong)
			}
			p := having(t, nil)
			set, err := p.For(t.Context(), stackOf("shop", "net", nil, tt.notes))
			if err != nil || (fault.Of(set.Invalid) == fault.Invalid) != (tt.wrong != "") {
				t.Errorf("For() = %v, %v, want an invalid stack: %v", set.Invalid, err, tt.wrong != "")
			}
			if tt.wrong != "" && set.Digest == "" {
				t.Error("a stack whose guards cannot be read is deleted without a judgement")
			}
		})
	}
	var none *Policies
	if set, err := none.For(t.Context(), stackOf("shop", "net", nil, map[string]string{"guard.terrier.dev/maxDestroys": "0"})); err != nil || set.Digest == "" {
		t.Errorf("For() = %+v, %v without the kinds of policies, want the guards of the stack", set, err)
	}
	p := having(t, nil)
	set, err := p.For(t.Context(), stackOf("shop", "net", nil, map[string]string{"guard.terrier.dev/windows": "Fri-Mon 22:00-24:00"}))
	if want := []time.Weekday{5, 6, 0, 1}; err != nil || len(set.Times.Windows) != 1 || !slices.Equal(set.Times.Windows[0].Any[0].Days, want) {
		t.Errorf("For() = %+v, %v, want Friday to Monday", set.Times, err)
	}
}

// What a change is for is woken, and nothing else.
func TestWhatAChangeWakes(t *testing.T) {
	a, b := stackOf("team-a", "net", nil, nil), stackOf("team-b", "net", nil, nil)
	in := func(namespace string, n int32, generation int64) *v1alpha1.ClusterPolicy {
		c := clusterPolicy("p", v1alpha1.PolicySpec{Guards: &v1alpha1.Guards{MaxDestroys: &n}, Selector: v1alpha1.Selector{Namespaces: []string{namespace}}})
		c.Generation = generation
		return c
	}
	labels := map[string]map[string]string{"team-a": {"x": "1"}, "team-b": nil}
	for name, tt := range map[string]struct {
		was, is *Policies
		want    []client.Object
	}{
		"another limit":         {having(t, labels, in("team-a", 0, 1)), having(t, labels, in("team-a", 1, 2)), []client.Object{a}},
		"another selector":      {having(t, labels, in("team-a", 0, 1)), having(t, labels, in("team-b", 0, 2)), []client.Object{a, b}},
		"a new policy":          {having(t, labels), having(t, labels, in("team-b", 0, 1)), []client.Object{b}},
		"a policy that went":    {having(t, labels, in("team-b", 0, 1)), having(t, labels), []client.Object{b}},
		"labels of a namespace": {having(t, labels), having(t, map[string]map[string]string{"team-a": {"x": "2"}, "team-b": nil}), []client.Object{a}},
		"a new namespace":       {having(t, labels), having(t, map[string]map[string]string{"team-a": {"x": "1"}, "team-b": nil, "c": nil}), nil},
	} {
		var got []client.Object
		if changed := tt.was.now.Load().differs(tt.is.now.Load()); changed != nil {
			for _, obj := range []client.Object{a, b} {
				if changed(obj, tt.was) {
					got = append(got, obj)
				}
			}
		}
		if len(got) != len(tt.want) || !slices.Equal(got, tt.want) {
			t.Errorf("%s wakes %d stacks, want %d", name, len(got), len(tt.want))
		}
	}
}

// Selecting lists nothing: 200 policies cost a stack some microseconds.
func BenchmarkFor(b *testing.B) {
	var all []client.Object
	namespaces := map[string]map[string]string{}
	for i := range 200 {
		s := v1alpha1.Selector{Namespaces: []string{fmt.Sprintf("team-%d-*", i)}, StackSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}}}
		if i%2 == 0 {
			s = v1alpha1.Selector{Environments: []string{"production"}, Tenants: []string{fmt.Sprintf("t%d", i), "acme-*"}}
		}
		all = append(all, clusterPolicy(fmt.Sprintf("p%03d", i), v1alpha1.PolicySpec{Guards: noDestroys(), Selector: s}))
		namespaces[fmt.Sprintf("team-%d-x", i)] = map[string]string{"terrier.dev/environment": "production"}
	}
	p := having(b, namespaces, all...)
	stacks := make([]client.Object, 5000)
	for i := range stacks {
		stacks[i] = stackOf(fmt.Sprintf("team-%d-x", i%200), fmt.Sprintf("s%d", i), map[string]string{"app": "web"}, nil)
	}
	b.ResetTimer()
	for i := range b.N {
		if _, err := p.For(b.Context(), stacks[i%len(stacks)]); err != nil {
			b.Fatal(err)
		}
	}
}

func TestApproval(t *testing.T) {
	spec := v1alpha1.PolicySpec{Guards: noDestroys(), Approval: &v1alpha1.Approval{Count: 2, Groups: []string{"platform"}, NotRequester: true, Expires: &metav1.Duration{Duration: time.Hour}}}
	a := asked(t, having(t, nil, clusterPolicy("p", spec)), stackOf("shop", "net", nil, nil), "plan.json")
	want := &policy.Approval{Count: 2, Groups: []string{"platform"}, NotRequester: true, Expires: policy.Duration(time.Hour)}
	if d := cmp.Diff(a.Findings[0].Approval, want); d != "" {
		t.Error(d)
	}
}

// A change of a policy has each pending plan judged again. This is what the judgement of a
// thousand recorded plans takes; test/bench measures the rest of it.
func BenchmarkAThousandPlans(b *testing.B) {
	var all []client.Object
	for i := range 20 {
		all = append(all, clusterPolicy(fmt.Sprintf("p%02d", i), v1alpha1.PolicySpec{Guards: &v1alpha1.Guards{
			MaxDestroys: new(int32(1)), MaxDestroyedShare: "20%", Protected: []v1alpha1.Protected{{Types: []string{"aws_db_*"}, Attributes: []string{"engine_version"}}},
		}}))
	}
	p := having(b, nil, all...)
	for b.Loop() {
		for i := range 1000 {
			if a := asked(b, p, stackOf("shop", fmt.Sprint("s", i), nil, nil), "plan.json"); len(a.Findings) != 40 {
				b.Fatalf("Review() = %d findings, want 40", len(a.Findings))
			}
		}
	}
}
