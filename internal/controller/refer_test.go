package controller

import (
	"context"
	"fmt"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	sourcev1 "github.com/fluxcd/source-controller/api/v1"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/terrier-iac/terrier/api/infra/v1alpha2"
	"github.com/terrier-iac/terrier/internal/dialect"
	"github.com/terrier-iac/terrier/internal/dialect/infra"
	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/kube"
	"github.com/terrier-iac/terrier/internal/stack"
	"github.com/terrier-iac/terrier/internal/testkit"
)

// reference is a field of a stack that can name a namespace.
type reference struct {
	group, kind string                                              // of what it names
	set         func(*v1alpha2.TerraformSpec, string)               // to the object called it, in a namespace
	find        func(context.Context, *apart, *pass) *stack.Blocked // what uses the field
	make        func(t *testing.T, k *testkit.Cluster)              // makes the object
}

// crossReferences are all of them, by their paths.
func crossReferences() map[string]reference {
	return map[string]reference{
		"spec.sourceRef": {
			sourcev1.GroupVersion.Group, "GitRepository",
			func(s *v1alpha2.TerraformSpec, ns string) {
				s.SourceRef = &v1alpha2.SourceRef{Kind: "GitRepository", Name: "it", Namespace: ns}
			},
			func(ctx context.Context, c *apart, p *pass) *stack.Blocked { return c.findSource(ctx, p) },
			func(t *testing.T, k *testkit.Cluster) {
				k.Apply(t, "apiVersion: source.toolkit.fluxcd.io/v1\nkind: GitRepository\nmetadata: {name: it}\nspec: {interval: 1h, url: https://git.example.com/x}\n")
			},
		},
		"spec.dependsOn": {
			v1alpha2.GroupVersion.Group, "Terraform",
			func(s *v1alpha2.TerraformSpec, ns string) {
				s.DependsOn = []v1alpha2.ObjectRef{{Name: "it", Namespace: ns}}
			},
			func(ctx context.Context, c *apart, p *pass) *stack.Blocked {
				b, err := c.firstNotReady(ctx, p)
				if err != nil {
					b = blockedBy(err, stack.DependencyNotReady)
				}
				return b
			},
			func(t *testing.T, k *testkit.Cluster) {
				k.Apply(t, "apiVersion: infra.contrib.fluxcd.io/v1alpha2\nkind: Terraform\nmetadata: {name: it}\nspec: {interval: 1h, path: ./, sourceRef: {kind: GitRepository, name: code}}\n")
			},
		},
		"spec.cliConfigSecretRef": {
			"", "Secret",
			func(s *v1alpha2.TerraformSpec, ns string) {
				s.CliConfigSecretRef = &corev1.SecretReference{Name: "it", Namespace: ns}
			},
			func(ctx context.Context, c *apart, p *pass) *stack.Blocked { return c.findInputs(ctx, p) },
			func(t *testing.T, k *testkit.Cluster) {
				testkit.SetSecret(t, k, "it", map[string]string{"x.tfrc": "credentials \"h.example.com\" {\n  token = \"theirs\"\n}\n"})
			},
		},
	}
}

// namesNamespaces lists the paths of fields below a type that can name a namespace.
func namesNamespaces(of reflect.Type, path string) []string {
	for of.Kind() == reflect.Pointer || of.Kind() == reflect.Slice {
		of = of.Elem()
	}
	if of.Kind() != reflect.Struct || !strings.HasPrefix(of.PkgPath(), "github.com/terrier-iac/") && of.Name() != "SecretReference" && of.Name() != "ObjectReference" {
		return nil
	}
	if f, ok := of.FieldByName("Namespace"); ok && f.Type.Kind() == reflect.String {
		return []string{path}
	}
	var all []string
	for i := range of.NumField() {
		name, _, _ := strings.Cut(of.Field(i).Tag.Get("json"), ",")
		all = append(all, namesNamespaces(of.Field(i).Type, path+"."+name)...)
	}
	return all
}

// Every field that can name a namespace is in the table below.
func TestEveryReferenceIsKnown(t *testing.T) {
	got := namesNamespaces(reflect.TypeFor[v1alpha2.TerraformSpec](), "spec")
	slices.Sort(got)
	var want []string
	for path := range crossReferences() {
		want = append(want, path)
	}
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Errorf("these fields can name a namespace: %q; the table has %q: add what is missing, and pass it through referrals.check", got, want)
	}
}

// defineGrants adds the kind ReferenceGrant to the server of the tests.
func defineGrants(t *testing.T, k *testkit.Cluster) {
	t.Helper()
	text, err := os.ReadFile("testdata/referencegrants.yaml")
	if err != nil {
		t.Fatal(err)
	}
	k.Apply(t, string(text))
	testkit.Eventually(t, testkit.Patience, "ReferenceGrant is served", func(ctx context.Context) error {
		list := &unstructured.UnstructuredList{}
		list.SetAPIVersion("gateway.networking.k8s.io/v1beta1")
		list.SetKind("ReferenceGrantList")
		return k.Client.List(ctx, list)
	})
}

// grantFrom is a ReferenceGrant for stacks of a namespace.
func grantFrom(namespace string, to reference, name string) *unstructured.Unstructured {
	target := map[string]any{"group": to.group, "kind": to.kind}
	if name != "" {
		target["name"] = name
	}
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "gateway.networking.k8s.io/v1beta1", "kind": "ReferenceGrant", "metadata": map[string]any{"name": "grant"},
		"spec": map[string]any{
			"from": []any{map[string]any{"group": v1alpha2.GroupVersion.Group, "kind": "Terraform", "namespace": namespace}},
			"to":   []any{target},
		},
	}}
}

// A reference to another namespace is refused unless a ReferenceGrant there allows it,
// and refused again once that is deleted. The refusal does not tell whether the object
// exists.
func TestReferencesToOtherNamespaces(t *testing.T) {
	for path, ref := range crossReferences() {
		t.Run(path, func(t *testing.T) {
			mine, theirs := testkit.Kube(t, v1alpha2.AddToScheme, sourcev1.AddToScheme, apiextensionsv1.AddToScheme), testkit.Kube(t, v1alpha2.AddToScheme, sourcev1.AddToScheme)
			defineGrants(t, mine)
			c := takeApart(&Stacks{Client: mine.Client, Live: mine.Client, Dialects: dialect.NewRegistry(infra.Dialect{}), Grants: kube.Grants{Client: mine.Client}})
			use := func(namespace string) *stack.Blocked {
				obj := &v1alpha2.Terraform{ObjectMeta: metav1.ObjectMeta{Namespace: mine.Namespace, Name: "net", UID: "u-1"}}
				obj.Spec.SourceRef = &v1alpha2.SourceRef{Kind: "GitRepository", Name: "code"}
				ref.set(&obj.Spec, namespace)
				st, err := infra.Dialect{}.Decode(obj)
				if err != nil {
					t.Fatal(err)
				}
				return ref.find(t.Context(), c, &pass{dialect: infra.Dialect{}, obj: obj, st: st})
			}
			denied := func(b *stack.Blocked) bool { return b != nil && b.Kind == fault.Denied }

			if b := use(mine.Namespace); denied(b) {
				t.Errorf("the stack's own namespace: %+v", b)
			}
			absent := use(theirs.Namespace)
			if !denied(absent) || !strings.Contains(absent.Message, "no ReferenceGrant there") {
				t.Errorf("another namespace: %+v, want it denied", absent)
			}
			ref.make(t, theirs)
			if present := use(theirs.Namespace); !denied(present) || present.Message != absent.Message {
				t.Errorf("the message tells that the object exists: %+v, without it %+v", present, absent)
			}

			grants := map[string]*unstructured.Unstructured{
				"of another namespace": grantFrom("elsewhere", ref, ""), "of another object": grantFrom(mine.Namespace, ref, "other"),
				"of another kind": grantFrom(mine.Namespace, reference{group: "example.com", kind: ref.kind}, ""),
			}
			set := func(g *unstructured.Unstructured, in string) {
				g = g.DeepCopy()
				g.SetNamespace(in)
				old := g.DeepCopy()
				if err := mine.Client.Delete(t.Context(), old); err != nil && !apierrors.IsNotFound(err) {
					t.Fatal(err)
				}
				if err := mine.Client.Create(t.Context(), g); err != nil {
					t.Fatal(err)
				}
			}
			for what, g := range grants {
				set(g, theirs.Namespace)
				if b := use(theirs.Namespace); !denied(b) {
					t.Errorf("with a grant %s: %+v, want it denied", what, b)
				}
			}
			// A grant of the author of the stack, in the author's own namespace, is none.
			set(grantFrom(mine.Namespace, ref, ""), mine.Namespace)
			if b := use(theirs.Namespace); !denied(b) {
				t.Errorf("with a grant of one's own: %+v, want it denied", b)
			}
			for _, name := range []string{"it", ""} {
				set(grantFrom(mine.Namespace, ref, name), theirs.Namespace)
				if b := use(theirs.Namespace); denied(b) {
					t.Errorf("with a grant for %q: %+v", name, b)
				}
			}
			g := grantFrom(mine.Namespace, ref, "")
			g.SetNamespace(theirs.Namespace)
			if err := mine.Client.Delete(t.Context(), g); err != nil {
				t.Fatal(err)
			}
			if b := use(theirs.Namespace); !denied(b) || b.Message != absent.Message {
				t.Errorf("after the grant was deleted: %+v, want it denied as before", b)
			}
			c.jobs.referrals.config.CrossNamespace = true
			if b := use(theirs.Namespace); denied(b) {
				t.Errorf("with --allow-cross-namespace-refs: %+v", b)
			}
		})
	}
}

// grantsOf grants what it reports.
type grantsOf func(kube.Referrer, kube.Referent) bool

func (g grantsOf) Granted(_ context.Context, from kube.Referrer, to kube.Referent) (bool, error) {
	return g(from, to), nil
}

// A stack of another namespace that may not refer to one keeps it from nothing.
func TestAStrangerDoesNotKeepAStack(t *testing.T) {
	net := asTerraform("net", 0, func(*v1alpha2.Terraform) {})
	stranger := asTerraform("stranger", time.Hour, func(o *v1alpha2.Terraform) {
		o.Namespace = "evil"
		o.Spec.DependsOn = []v1alpha2.ObjectRef{{Namespace: "apps", Name: "net"}}
	})
	own := asTerraform("app", time.Hour, func(o *v1alpha2.Terraform) { o.Spec.DependsOn = []v1alpha2.ObjectRef{{Name: "net"}} })
	c := newEstate(nil, []v1alpha2.Terraform{net, stranger, own})
	for _, tt := range []struct {
		granted bool
		want    []string
	}{{false, []string{"app"}}, {true, []string{"app", "evil/stranger"}}} {
		c.dependencies.referrals.grants = grantsOf(func(from kube.Referrer, to kube.Referent) bool {
			if from.Namespace != "evil" || to.Namespace != "apps" || to.Name != "net" {
				t.Errorf("asked is about %+v and %+v", from, to)
			}
			return tt.granted
		})
		got, err := c.dependents(t.Context(), infra.Dialect{}, &net)
		if err != nil || fmt.Sprint(got) != fmt.Sprint(tt.want) {
			t.Errorf("granted %t: dependents() = %q, %v, want %q", tt.granted, got, err, tt.want)
		}
	}
}
