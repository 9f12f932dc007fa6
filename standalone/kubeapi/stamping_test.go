package kubeapi

import (
	"context"
	"log/slog"
	"strings"
	"testing"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	clientscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/terrier-iac/terrier/api/infra/v1alpha2"
	"github.com/terrier-iac/terrier/config/admission"
	"github.com/terrier-iac/terrier/config/crd"
	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/kube"
)

// cluster is an API server that stamps nothing by itself, as that of a cluster.
type cluster struct {
	*testing.T
	config *rest.Config
	scheme *runtime.Scheme
	admin  client.WithWatch
	now    time.Time
}

func newCluster(t *testing.T) *cluster {
	t.Helper()
	return newServer(t, true)
}

// newServer is an API server with the definitions, which stamps by itself or does not.
func newServer(t *testing.T, noStamps bool) *cluster {
	t.Helper()
	server, _ := startServer(t, Options{Dir: openTempDir(t) + "/dir", UnsafeNoFsync: true, UnsafeNoStamps: noStamps})
	c := &cluster{T: t, config: server.Config(), scheme: runtime.NewScheme(), now: time.Unix(1e9, 0)}
	c.config.WarningHandler = rest.NoWarnings{}
	for _, add := range []func(*runtime.Scheme) error{clientscheme.AddToScheme, apiextensionsv1.AddToScheme, v1alpha2.AddToScheme} {
		if err := add(c.scheme); err != nil {
			t.Fatal(err)
		}
	}
	c.admin = c.as("")
	if err := kube.InstallDefinitions(t.Context(), c.admin, crd.Files); err != nil {
		t.Fatal(err)
	}
	return c
}

// as is a client of another user, who may do everything.
func (c *cluster) as(user string) client.WithWatch {
	c.Helper()
	config := rest.CopyConfig(c.config)
	if user != "" {
		config.Impersonate = rest.ImpersonationConfig{UserName: user, Groups: []string{"system:masters"}}
	}
	as, err := client.NewWithWatch(config, client.Options{Scheme: c.scheme})
	if err != nil {
		c.Fatal(err)
	}
	return as
}

func probe() client.Object {
	s := &v1alpha2.Terraform{}
	s.Spec.Suspend = true
	s.Spec.Interval = &metav1.Duration{Duration: time.Hour}
	s.Spec.SourceRef = &v1alpha2.SourceRef{Kind: "GitRepository", Name: "none"}
	return s
}

// stamping is what a controller has of it that has just started. It asks the API server
// each time.
func (c *cluster) stamping(install bool) *kube.Stamping {
	return &kube.Stamping{
		Client: c.admin, Files: admission.Files, Namespace: "default", Probe: probe, Install: install, Log: slog.New(slog.DiscardHandler),
		Now: func() time.Time { c.now = c.now.Add(time.Minute); return c.now },
	}
}

func (c *cluster) epoch(s *kube.Stamping) string {
	c.Helper()
	epoch, err := s.Epoch(c.Context())
	if err != nil || epoch == "" {
		c.Fatalf("Epoch() = %q, %v, want the epoch of the stamps", epoch, err)
	}
	return epoch
}

func (c *cluster) refused(s *kube.Stamping, why string) {
	c.Helper()
	if epoch, err := s.Epoch(c.Context()); err == nil || epoch != "" || !strings.Contains(err.Error(), why) {
		c.Fatalf("Epoch() = %q, %v, want an error that says %q", epoch, err, why)
	}
}

// patch changes the stack net as a user, and returns its annotations then.
func (c *cluster) patch(user, text string) map[string]string {
	c.Helper()
	o := &v1alpha2.Terraform{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "net"}}
	if err := c.as(user).Patch(c.Context(), o, client.RawPatch(types.MergePatchType, []byte(text))); err != nil {
		c.Fatal(err)
	}
	return o.Annotations
}

func (c *cluster) remove(objects ...client.Object) {
	c.Helper()
	for _, o := range objects {
		o.SetName("changed-by.terrier.dev")
		if err := c.admin.Delete(c.Context(), o); err != nil {
			c.Fatal(err)
		}
	}
}

// A user who writes the stamps where the API server does not correct them gains nothing: not
// before the policy is there, not while it is away, and not by what the user knows of it.
func TestForgedStamps(t *testing.T) {
	c := newCluster(t)
	s := c.stamping(true)
	c.refused(s, "the API server does not record who approves a plan")

	net := probe()
	net.SetNamespace("default")
	net.SetName("net")
	net.SetAnnotations(map[string]string{kube.ApprovedBy: "p1\tann\tops\np1\tbob\tops", kube.RequestedBy: "1\tzoe", kube.Stamped: "forged"})
	if err := c.as("eve").Create(t.Context(), net); err != nil {
		t.Fatal(err)
	}

	if err := s.Ensure(t.Context()); err != nil {
		t.Fatal(err)
	}
	first := c.epoch(s)
	if got := c.patch("eve", `{"metadata":{"labels":{"a":"b"}}}`); got[kube.Stamped] == first || got[kube.ApprovedBy] != "" {
		t.Errorf("what was written before the policy was there is kept as %v", got)
	}
	forgery := `"` + kube.ApprovedBy + `":"p1\tann\tops\np1\tbob\tops","` + kube.RequestedBy + `":"1\tzoe","` + kube.Stamped + `":"`
	got := c.patch("eve", `{"metadata":{"annotations":{"terrier.dev/confirm":"p1",`+forgery+first+`"}}}`)
	if got[kube.Stamped] != first || got[kube.ApprovedBy] != "p1\teve\tsystem:masters\tsystem:authenticated" || got[kube.RequestedBy] != "" {
		t.Errorf("an approval of eve is stamped %v", got)
	}
	if err := c.stamping(true).Ensure(t.Context()); err != nil {
		t.Fatal(err)
	}
	if again := c.epoch(c.stamping(true)); again != first {
		t.Errorf("another controller begins the epoch %s, want %s", again, first)
	}

	// The policy is away for a moment. The controller is told by the version of what comes back.
	saved := &admissionregistrationv1.MutatingAdmissionPolicy{}
	binding := &admissionregistrationv1.MutatingAdmissionPolicyBinding{}
	for _, o := range []client.Object{saved, binding} {
		if err := c.admin.Get(t.Context(), client.ObjectKey{Name: "changed-by.terrier.dev"}, o); err != nil {
			t.Fatal(err)
		}
	}
	c.remove(&admissionregistrationv1.MutatingAdmissionPolicyBinding{})
	c.eventually("nothing is stamped", func() bool {
		return c.patch("eve", `{"metadata":{"annotations":{`+forgery+first+`"}}}`)[kube.ApprovedBy] == "p1\tann\tops\np1\tbob\tops"
	})
	c.refused(s, "the API server does not record who approves a plan")
	binding.ResourceVersion, binding.UID = "", ""
	if err := c.admin.Create(t.Context(), binding); err != nil {
		t.Fatal(err)
	}
	c.eventually("the policy is there again", func() bool {
		o := probe()
		o.SetNamespace("default")
		o.SetGenerateName("probe-")
		return c.admin.Create(t.Context(), o, client.DryRunAll) == nil && o.GetAnnotations()[kube.Stamped] == first
	})
	c.refused(s, "was changed or installed again")
	c.refused(c.stamping(true), "restart the controller")
	restarted := c.stamping(true)
	if err := restarted.Ensure(t.Context()); err != nil {
		t.Fatal(err)
	}
	second := c.epoch(restarted)
	if second == first {
		t.Error("the epoch is the same after users could forge its stamps")
	}
	if got := c.patch("eve", `{"metadata":{"labels":{"a":"c"}}}`); got[kube.ApprovedBy] != "" || got[kube.Stamped] == second {
		t.Errorf("what was written while the policy was away is kept as %v", got)
	}

	// A change of the policy itself has the same effect.
	if err := c.admin.Patch(t.Context(), saved, client.RawPatch(types.MergePatchType, []byte(`{"spec":{"failurePolicy":"Ignore"}}`))); err != nil {
		t.Fatal(err)
	}
	c.refused(c.stamping(true), "is not the one of this release")
}

// install applies the policy as an operator does, with an epoch, and waits until the API server
// acts on it. Edit changes the policy before; it may be nil.
func (c *cluster) install(epoch string, edit func(*unstructured.Unstructured)) {
	c.Helper()
	for _, name := range []string{"changed-by-binding.yaml", "changed-by.yaml"} {
		text, err := admission.Files.ReadFile(name)
		if err != nil {
			c.Fatal(err)
		}
		u := parse(c.T, strings.ReplaceAll(string(text), `expression: "''"`, `expression: "'`+epoch+`'"`))
		if edit != nil {
			edit(u)
		}
		if err := c.admin.Apply(c.Context(), client.ApplyConfigurationFromUnstructured(u), client.FieldOwner("kubectl"), client.ForceOwnership); err != nil {
			c.Fatal(err)
		}
	}
	c.eventually("the policy is in force", func() bool {
		o := probe()
		o.SetNamespace("default")
		o.SetGenerateName("probe-")
		return c.admin.Create(c.Context(), o, client.DryRunAll) == nil && o.GetAnnotations()[kube.ChangedBy] != "" && o.GetAnnotations()[kube.Stamped] == epoch
	})
}

// An operator installs the policy, and gives it an epoch. Users may have known it from a
// repository, so the first one is not believed, but one that takes its place. Without one, and
// with that of an earlier installation, no stamp is believed either.
func TestAPolicyThatAnOperatorInstalls(t *testing.T) {
	c := newCluster(t)
	net := probe()
	net.SetNamespace("default")
	net.SetName("net")
	net.SetAnnotations(map[string]string{kube.ApprovedBy: "p1\tann\tops", kube.Stamped: "one"})
	if err := c.as("eve").Create(t.Context(), net); err != nil {
		t.Fatal(err)
	}
	s := c.stamping(false)
	c.install("", nil)
	c.refused(s, "has no epoch")
	c.install("one", nil)
	if got := c.patch("eve", `{"metadata":{"labels":{"a":"b"}}}`); got[kube.Stamped] != "one" || got[kube.ApprovedBy] != "p1\tann\tops" {
		t.Fatalf("what eve wrote before the policy is there as %v, want the API server to keep a stamp of its epoch", got)
	}
	c.refused(s, "users may have known the epoch")
	c.refused(s, "sed \"s/'one'/'$(openssl rand -hex 16)'/\"")
	c.refused(c.stamping(false), "users may have known the epoch")
	c.install("two", nil)
	if got := c.epoch(s); got != "two" {
		t.Errorf("Epoch() = %q", got)
	}
	if got := c.epoch(c.stamping(false)); got != "two" {
		t.Errorf("Epoch() = %q of another controller", got)
	}
	if got := c.patch("eve", `{"metadata":{"labels":{"a":"c"}}}`); got[kube.Stamped] == "two" || got[kube.ApprovedBy] != "" {
		t.Errorf("what eve wrote before the policy is kept as %v", got)
	}
	c.remove(&admissionregistrationv1.MutatingAdmissionPolicy{}, &admissionregistrationv1.MutatingAdmissionPolicyBinding{})
	c.install("two", nil)
	c.refused(s, "with another random word as its epoch")
	c.install("three", nil)
	c.refused(s, "users may have known the epoch")
	c.install("four", nil)
	if got := c.epoch(s); got != "four" {
		t.Errorf("Epoch() = %q", got)
	}
}

// A policy that leaves out some stacks, or that has another name, corrects no stamps there. So
// none is believed, although the API server stamps.
func TestAPolicyForSomeStacks(t *testing.T) {
	c := newCluster(t)
	c.install("one", nil)
	s := c.stamping(false)
	c.refused(s, "users may have known the epoch")
	c.install("two", nil)
	c.epoch(s)
	set := func(v any, path ...string) func(*unstructured.Unstructured) {
		return func(u *unstructured.Unstructured) {
			if strings.HasSuffix(u.GetKind(), "Binding") == (path[1] == "matchResources") {
				if err := unstructured.SetNestedField(u.Object, v, path...); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
	labels := map[string]any{"matchLabels": map[string]any{"kubernetes.io/metadata.name": "default"}}
	for field, edit := range map[string]func(*unstructured.Unstructured){
		"spec.matchConditions":                    set([]any{map[string]any{"name": "some", "expression": "request.namespace == 'default'"}}, "spec", "matchConditions"),
		"spec.matchConstraints.namespaceSelector": set(labels, "spec", "matchConstraints", "namespaceSelector"),
		"spec.matchResources.namespaceSelector":   set(labels, "spec", "matchResources", "namespaceSelector"),
	} {
		c.install("two", edit)
		c.refused(c.stamping(false), "since it has "+field)
		c.refused(c.stamping(true), "since it has "+field)
		c.install("two", nil)
	}
	if err := c.stamping(true).Ensure(t.Context()); err != nil {
		t.Fatal(err)
	}
	c.epoch(c.stamping(true))

	c.remove(&admissionregistrationv1.MutatingAdmissionPolicy{}, &admissionregistrationv1.MutatingAdmissionPolicyBinding{})
	c.install("other", func(u *unstructured.Unstructured) {
		u.SetName("example-" + u.GetName())
		if strings.HasSuffix(u.GetKind(), "Binding") {
			if err := unstructured.SetNestedField(u.Object, u.GetName(), "spec", "policyName"); err != nil {
				t.Fatal(err)
			}
		}
	})
	c.refused(c.stamping(false), "by a policy that Terrier does not know")
}

// Rules for other stacks can leave out the one of the dry run, by its label.
func TestTheDryRunHasALabel(t *testing.T) {
	c := newCluster(t)
	s := c.stamping(true)
	var asked client.Object
	s.Client = interceptor.NewClient(c.admin, interceptor.Funcs{Create: func(ctx context.Context, to client.WithWatch, o client.Object, opts ...client.CreateOption) error {
		asked = o
		return to.Create(ctx, o, opts...)
	}})
	c.refused(s, "does not record")
	if asked == nil || asked.GetLabels()["terrier.dev/probe"] != "stamps" || !strings.HasPrefix(asked.GetName(), "terrier-stamped-") {
		t.Errorf("the dry run created %v, want a stack with the label terrier.dev/probe=stamps", asked)
	}
}

// A dry run that fails says nothing about stamps, so none is believed. It is asked again.
func TestADryRunThatFails(t *testing.T) {
	c := newCluster(t)
	s := c.stamping(true)
	if err := s.Ensure(t.Context()); err != nil {
		t.Fatal(err)
	}
	c.epoch(s)
	fails := true
	s.Client = interceptor.NewClient(c.admin, interceptor.Funcs{Create: func(ctx context.Context, to client.WithWatch, o client.Object, opts ...client.CreateOption) error {
		if fails {
			return context.DeadlineExceeded
		}
		return to.Create(ctx, o, opts...)
	}})
	if epoch, err := s.Epoch(t.Context()); epoch != "" || fault.Of(err) != fault.Later {
		t.Errorf("Epoch() = %q, %v after a timeout, want a fault that passes", epoch, err)
	}
	fails = false
	c.epoch(s)
	var m corev1.ConfigMap
	if err := c.admin.Get(t.Context(), client.ObjectKey{Namespace: "default", Name: kube.StampsConfigMap}, &m); err != nil {
		t.Fatal(err)
	}
	if err := c.admin.Delete(t.Context(), &m); err != nil {
		t.Fatal(err)
	}
	c.refused(s, "was changed or installed again")
}

func (c *cluster) eventually(what string, check func() bool) {
	c.Helper()
	if err := wait.PollUntilContextTimeout(c.Context(), 50*time.Millisecond, 5*time.Minute, true, func(context.Context) (bool, error) { return check(), nil }); err != nil {
		c.Fatalf("waiting until %s: %v", what, err)
	}
}
