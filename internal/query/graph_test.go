package query

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"pgregory.net/rapid"

	"github.com/terrier-iac/terrier/api/infra/v1alpha2"
	"github.com/terrier-iac/terrier/internal/access"
	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/stack"
)

// tied is a settled stack with its ties to others.
func tied(key string, ties ...func(*v1alpha2.TerraformSpec)) *v1alpha2.Terraform {
	namespace, name, _ := strings.Cut(key, "/")
	o := placed(namespace, name, stack.Applied)
	for _, tie := range ties {
		tie(&o.Spec)
	}
	return o
}

func needs(keys ...string) func(*v1alpha2.TerraformSpec) {
	return func(s *v1alpha2.TerraformSpec) {
		for _, k := range keys {
			namespace, name, found := strings.Cut(k, "/")
			if !found {
				namespace, name = "", k
			}
			s.DependsOn = append(s.DependsOn, v1alpha2.ObjectRef{Namespace: namespace, Name: name})
		}
	}
}

func publishes(secret string) func(*v1alpha2.TerraformSpec) {
	return func(s *v1alpha2.TerraformSpec) { s.WriteOutputsToSecret = &v1alpha2.OutputSecret{Name: secret} }
}

// drawing is a graph as lines: its nodes in order, then its edges.
func drawing(g Graph) []string {
	label := func(i int) string {
		switch n := g.Nodes[i]; {
		case n.Hidden:
			return fmt.Sprintf("hidden-%d", i)
		case n.Missing:
			return n.Key().String() + " (missing)"
		default:
			return n.Key().String()
		}
	}
	var out []string
	for i := range g.Nodes {
		out = append(out, label(i))
	}
	for _, e := range g.Edges {
		out = append(out, fmt.Sprintf("%s -%s-> %s", label(e.From), e.Kind, label(e.To)))
	}
	return out
}

func TestGraph(t *testing.T) {
	estate := []*v1alpha2.Terraform{
		tied("a/net", publishes("net-out")),
		tied("a/db", needs("net")),
		tied("a/app", needs("db"), func(s *v1alpha2.TerraformSpec) {
			s.VarsFrom = []v1alpha2.VarsReference{{Kind: "Secret", Name: "net-out"}, {Kind: "ConfigMap", Name: "net-out"}}
		}),
		tied("a/other", needs("net")),
		tied("b/edge", needs("a/app")),
		tied("b/net", publishes("net-out")),
		tied("c/lone", needs("gone", "b/hers")),
		tied("d/one", needs("two")), tied("d/two", needs("three")), tied("d/three", needs("one")),
		tied("e/self", needs("self"), publishes("own"), func(s *v1alpha2.TerraformSpec) {
			s.ReadInputsFromSecrets = []v1alpha2.InputSecret{{Name: "own", As: "me"}}
		}),
		tied("f/pub", publishes("out")),
		tied("f/values", func(s *v1alpha2.TerraformSpec) {
			s.ReadInputsFromSecrets = []v1alpha2.InputSecret{{Name: "out", As: "x"}}
		}),
		tied("f/var", func(s *v1alpha2.TerraformSpec) {
			s.Vars = []v1alpha2.Variable{{Name: "v", ValueFrom: &corev1.EnvVarSource{SecretKeyRef: &corev1.SecretKeySelector{LocalObjectReference: corev1.LocalObjectReference{Name: "out"}, Key: "k"}}}}
		}),
	}
	b := syncedBoard(estate...)
	only := func(namespaces ...string) access.Scope {
		s := access.Scope{In: map[string]bool{}}
		for _, n := range namespaces {
			s.In[n] = true
		}
		return s
	}
	for name, c := range map[string]struct {
		scope access.Scope
		key   string
		depth int
		want  []string
	}{
		"what it needs and what needs it, not what else needs that": {access.Everything, "a/db", 0, []string{
			"a/db", "a/net", "a/app", "b/edge",
			"a/db -dependsOn-> a/net", "a/app -dependsOn-> a/db", "a/app -outputs-> a/net", "b/edge -dependsOn-> a/app"}},
		"one step": {access.Everything, "a/db", 1, []string{
			"a/db", "a/net", "a/app", "a/db -dependsOn-> a/net", "a/app -dependsOn-> a/db", "a/app -outputs-> a/net"}},
		"what may not be seen has no name": {only("a"), "a/app", 0, []string{
			"a/app", "a/db", "a/net", "hidden-3",
			"a/app -dependsOn-> a/db", "a/app -outputs-> a/net", "a/db -dependsOn-> a/net", "hidden-3 -dependsOn-> a/app"}},
		"nothing behind what may not be seen is shown": {only("b"), "b/edge", 0, []string{"b/edge", "hidden-1", "b/edge -dependsOn-> hidden-1"}},
		"who may see one stack and list none": {access.Scope{}, "a/db", 0, []string{
			"a/db", "hidden-1", "hidden-2", "a/db -dependsOn-> hidden-1", "hidden-2 -dependsOn-> a/db"}},
		"what does not exist": {access.Everything, "c/lone", 0, []string{
			"c/lone", "b/hers (missing)", "c/gone (missing)", "c/lone -dependsOn-> b/hers (missing)", "c/lone -dependsOn-> c/gone (missing)"}},
		"what may not be seen does not say whether it exists": {only("c"), "c/lone", 0, []string{
			"c/lone", "hidden-1", "c/gone (missing)", "c/lone -dependsOn-> hidden-1", "c/lone -dependsOn-> c/gone (missing)"}},
		"a cycle": {access.Everything, "d/one", 0, []string{
			"d/one", "d/two", "d/three", "d/one -dependsOn-> d/two", "d/two -dependsOn-> d/three", "d/three -dependsOn-> d/one"}},
		"a stack that needs itself": {access.Everything, "e/self", 0, []string{"e/self"}},
		"whoever reads what it publishes": {access.Everything, "f/pub", 0, []string{
			"f/pub", "f/values", "f/var", "f/values -outputs-> f/pub", "f/var -outputs-> f/pub"}},
	} {
		t.Run(name, func(t *testing.T) {
			namespace, stack, _ := strings.Cut(c.key, "/")
			g, err := b.Graph(c.scope, Key{Namespace: namespace, Name: stack}, c.depth)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(c.want, drawing(g)); diff != "" {
				t.Errorf("Graph(%s) (-want +got):\n%s", c.key, diff)
			}
		})
	}
}

func TestGraphOfWhatIsNotThere(t *testing.T) {
	b := syncedBoard(tied("a/net"))
	for name, c := range map[string]struct {
		scope access.Scope
		key   Key
		depth int
		want  fault.Kind
	}{
		"it does not exist":    {access.Everything, Key{Namespace: "a", Name: "nobody"}, 0, fault.Missing},
		"a depth that is none": {access.Everything, Key{Namespace: "a", Name: "net"}, -1, fault.Invalid},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := b.Graph(c.scope, c.key, c.depth); fault.Of(err) != c.want {
				t.Errorf("Graph(): %v, want %s", err, c.want)
			}
		})
	}
}

// However many need one stack, the picture of it stays one that can be looked
// at, and says what it leaves out.
func TestGraphHasACeiling(t *testing.T) {
	b := syncedBoard(tied("a/net"))
	for i := range 3 * graphNodes {
		b.Set(tied(fmt.Sprintf("a/app-%04d", i), needs("net")))
	}
	g, err := b.Graph(access.Everything, Key{Namespace: "a", Name: "net"}, 0)
	if err != nil || len(g.Nodes) != graphNodes || g.Left != 2*graphNodes+1 || len(g.Edges) != graphNodes-1 {
		t.Errorf("Graph() = %d nodes, %d edges, %d left, %v", len(g.Nodes), len(g.Edges), g.Left, err)
	}
}

// A namespace whose stacks all publish to one Secret and all read it costs a multiple of its
// stacks, not their square: each request for a picture would hold up every page for seconds.
func TestGraphOfManyPublishersStaysSmall(t *testing.T) {
	const stacks = 300
	read := func(s *v1alpha2.TerraformSpec) {
		for range 3 {
			s.ReadInputsFromSecrets = append(s.ReadInputsFromSecrets, v1alpha2.InputSecret{Name: "out", As: "x"})
		}
	}
	b := syncedBoard(tied("a/first", publishes("out")))
	for i := range stacks {
		b.Set(tied(fmt.Sprintf("a/each-%04d", i), publishes("out"), read))
	}
	needs, neededBy := b.edges()
	for direction, of := range map[string]map[Key][]need{"needs": needs, "needed by": neededBy} {
		total := 0
		for _, n := range of {
			total += len(n)
		}
		if total < stacks || total > publishersShown*stacks {
			t.Errorf("%s: %d edges of %d stacks, want at least one and at most %d of each", direction, total, stacks, publishersShown)
		}
	}
}

// Whatever needs whatever: it ends, no node comes twice, no name of another
// namespace is told, and every edge is one that the objects have.
func TestGraphTellsNothingThatIsHidden(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		key := rapid.Custom(func(t *rapid.T) string {
			return rapid.SampledFrom([]string{"a", "b"}).Draw(t, "namespace") + "/" + rapid.SampledFrom([]string{"1", "2", "3", "4"}).Draw(t, "name")
		})
		b := syncedBoard(tied("a/1"))
		has := map[[2]string]bool{}
		for range rapid.IntRange(0, 12).Draw(t, "stacks") {
			from, to := key.Draw(t, "from"), rapid.SliceOfN(key, 0, 3).Draw(t, "to")
			for k := range has {
				if k[0] == from {
					delete(has, k) // it is set again
				}
			}
			b.Set(tied(from, needs(to...)))
			for _, k := range to {
				has[[2]string{from, k}] = true
			}
		}
		g, err := b.Graph(access.Scope{In: map[string]bool{"a": true}}, Key{Namespace: "a", Name: "1"}, rapid.IntRange(0, 3).Draw(t, "depth"))
		if err != nil {
			t.Fatal(err)
		}
		var named []string
		for _, n := range g.Nodes {
			if n.Hidden != (n.Key() == Key{}) || n.Hidden && n.Status != "" || n.Namespace == "b" {
				t.Fatalf("the node %+v tells of what is hidden", n)
			}
			if !n.Hidden {
				named = append(named, n.Key().String())
			}
		}
		if slices.Sort(named); len(slices.Compact(slices.Clone(named))) != len(named) {
			t.Fatalf("nodes come twice: %q", named)
		}
		for _, e := range g.Edges {
			from, to := g.Nodes[e.From], g.Nodes[e.To]
			if e.From == e.To || from.Hidden && to.Hidden {
				t.Fatalf("the edge %+v", e)
			}
			if !from.Hidden && !to.Hidden && !has[[2]string{from.Key().String(), to.Key().String()}] {
				t.Fatalf("%s does not need %s", from.Key(), to.Key())
			}
		}
	})
}

// Each namespace is one node but for the one that is open, and needs between
// namespaces are edges between these. What the visitor may not see is left out.
func TestGraphOfAllStacks(t *testing.T) {
	needs := func(namespace, name string, on ...v1alpha2.ObjectRef) *v1alpha2.Terraform {
		o := placed(namespace, name, stack.Applied)
		o.Spec.DependsOn = on
		return o
	}
	vpc := v1alpha2.ObjectRef{Namespace: "net", Name: "vpc"}
	b := syncedBoard(needs("net", "vpc"), needs("net", "dns", vpc), needs("apps", "cart", vpc), needs("apps", "shop", vpc), needs("hidden", "x", vpc))
	scope := access.Scope{In: map[string]bool{"net": true, "apps": true}}
	for open, want := range map[string][]string{
		"":    {"apps (2)", "net (2)", "apps > net"},
		"net": {"apps (2)", "net/dns (1)", "net/vpc (1)", "apps > net/vpc", "net/dns > net/vpc"},
	} {
		nodes, edges, left, err := NewWholeGraph(b).Whole(scope, open)
		if err != nil || left != 0 {
			t.Fatalf("%d left, %v", left, err)
		}
		name := func(i int) string { return strings.TrimSuffix(nodes[i].Namespace+"/"+nodes[i].Name, "/") }
		var got, between []string
		for i, n := range nodes {
			got = append(got, fmt.Sprintf("%s (%d)", name(i), n.Total))
		}
		for _, e := range edges {
			between = append(between, name(e.From)+" > "+name(e.To))
		}
		slices.Sort(got)
		slices.Sort(between)
		if diff := cmp.Diff(append(got, between...), want); diff != "" {
			t.Errorf("with %q open (-got +want):\n%s", open, diff)
		}
	}
}
