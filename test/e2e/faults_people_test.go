package e2e

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/terrier-iac/terrier/api/infra/v1alpha2"
	"github.com/terrier-iac/terrier/internal/testkit"
)

// meddle changes the status of a stack, as a user might.
func meddle(t *testing.T, c *testkit.Cluster, patch string) {
	t.Helper()
	s := &v1alpha2.Terraform{ObjectMeta: metav1.ObjectMeta{Namespace: c.Namespace, Name: "stack"}}
	if err := c.Client.Status().Patch(t.Context(), s, client.RawPatch(types.MergePatchType, []byte(patch))); err != nil {
		t.Fatal(err)
	}
}

// F54: a manual edit of Terrier's fields is either reverted or reported, and no
// resource is changed for it.
func TestPeopleEditWhatIsOurs(t *testing.T) {
	t.Parallel()
	c := cluster(t)
	w := platform(t).World(t)
	c.Apply(t, inline("stack", kept+"\nretryInterval: 1s\nwriteOutputsToSecret: {name: out}", things(w, "x", "a")+"\noutput \"a\" { value = world_thing.a.id }\n"))
	c.AwaitReady(t, "stack")
	made(t, w, "a")

	t.Run("a status that is gone is made again", func(t *testing.T) {
		meddle(t, c, `{"status":null}`)
		c.Terrier(t, "replan", "stack")
		c.AwaitReady(t, "stack")
	})
	t.Run("conditions that say otherwise are put right", func(t *testing.T) {
		meddle(t, c, `{"status":{"conditions":[{"type":"Ready","status":"False","reason":"Because","message":"I say so","lastTransitionTime":"2026-01-01T00:00:00Z"}],"plan":{"pending":"plan-main-0123456789"}}}`)
		c.Terrier(t, "replan", "stack")
		if s := c.AwaitReady(t, "stack"); s.Status.Plan.Pending != "" {
			t.Errorf("the plan %s is pending, which never was made", s.Status.Plan.Pending)
		}
	})
	t.Run("a memory that makes no sense is named and waits", func(t *testing.T) {
		memory := c.Stack(t, "stack").Status.Terrier.Memory.Raw
		meddle(t, c, `{"status":{"terrier":{"memory":{"appliedAt":["not","a","time"]}}}}`)
		c.Terrier(t, "suspend", "stack") // wakes it, and changes nothing else
		c.Terrier(t, "resume", "stack")
		c.Await(t, "stack", func(s *v1alpha2.Terraform) error {
			if !strings.Contains(message(s), "memory") {
				return errNot("a word of the memory")
			}
			return nil
		})
		made(t, w, "a")
		meddle(t, c, `{"status":{"terrier":{"memory":null}}}`)
		meddle(t, c, `{"status":{"terrier":{"memory":`+string(memory)+`}}}`)
		c.Terrier(t, "replan", "stack")
		c.AwaitReady(t, "stack")
	})
	t.Run("labels of a state and outputs that were edited are put right", func(t *testing.T) {
		for _, name := range []string{"tfstate-default-stack", "out"} {
			s := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: c.Namespace, Name: name}}
			if err := c.Client.Patch(t.Context(), s, client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"labels":null,"annotations":null}}`))); err != nil {
				t.Fatal(err)
			}
		}
		s := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: c.Namespace, Name: "out"}}
		if err := c.Client.Patch(t.Context(), s, client.RawPatch(types.MergePatchType, []byte(`{"data":{"a":"bm90aGluZw=="}}`))); err != nil {
			t.Fatal(err)
		}
		c.Apply(t, inline("stack", kept+"\nretryInterval: 1s\nwriteOutputsToSecret: {name: out}", things(w, "y", "a")+"\noutput \"a\" { value = world_thing.a.id }\n"))
		c.AwaitReady(t, "stack")
		if got, want := c.Secret(t, "out")["a"], w.Named("a")[0].ID; got != want || *w.Named("a")[0].Value != "y" {
			t.Errorf("the output is %q, want %q; the world holds %+v", got, want, w.Things())
		}
		var state corev1.Secret
		c.Get(t, "tfstate-default-stack", &state)
		if state.Labels["tfstate"] != "true" {
			t.Errorf("the state has the labels %v, want those by which the engine finds it", state.Labels)
		}
	})
	t.Run("a lock in a person's name is theirs to free", func(t *testing.T) {
		lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: c.Namespace, Name: "lock-tfstate-default-stack"}}
		hold := func(holder string) {
			t.Helper()
			if err := c.Client.Patch(t.Context(), lease, client.RawPatch(types.MergePatchType, []byte(`{"spec":{"holderIdentity":`+holder+`}}`))); err != nil {
				t.Fatal(err)
			}
		}
		hold(`"alice"`)
		c.Apply(t, inline("stack", kept+"\nretryInterval: 1s", things(w, "z", "a")))
		c.Terrier(t, "replan", "stack") // without waiting for further changes
		c.Await(t, "stack", func(s *v1alpha2.Terraform) error {
			if !strings.Contains(message(s), "alice") {
				return errNot("a word of alice")
			}
			return nil
		})
		if *w.Named("a")[0].Value != "y" {
			t.Errorf("the world holds %+v, although the state is locked", w.Things())
		}
		hold("null")
		c.AwaitReady(t, "stack")
	})
	t.Run("a lock that was deleted is made again", func(t *testing.T) {
		if err := c.Client.Delete(t.Context(), &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: c.Namespace, Name: "lock-tfstate-default-stack"}}); err != nil {
			t.Fatal(err)
		}
		c.Apply(t, inline("stack", kept+"\nretryInterval: 1s", things(w, "last", "a")))
		c.Terrier(t, "replan", "stack")
		c.AwaitReady(t, "stack")
	})
	made(t, w, "a")
	if n := began(w, "create", "a"); n != 1 || *w.Named("a")[0].Value != "last" {
		t.Errorf("a was made %d times and is %+v", n, w.Named("a"))
	}
	verify(t, c, w, "stack")
}

// F45: a newer definition comes while the controller is running. Fields that it does
// not know stay, and are no reason to plan again.
func TestDefinitionIsUpgradedMeanwhile(t *testing.T) {
	c := cluster(t)
	w := platform(t).World(t)
	c.Apply(t, inline("stack", kept, things(w, "x", "a")))
	c.AwaitReady(t, "stack")
	looks := checks(w)

	definition := &unstructured.Unstructured{}
	definition.SetGroupVersionKind(schema.GroupVersionKind{Group: "apiextensions.k8s.io", Version: "v1", Kind: "CustomResourceDefinition"})
	definition.SetName("terraforms.infra.contrib.fluxcd.io")
	upgrade := `[` +
		`{"op":"add","path":"/spec/versions/0/schema/openAPIV3Schema/properties/spec/properties/fromTheFuture","value":{"type":"string","default":"x"}},` +
		`{"op":"add","path":"/spec/versions/1/schema/openAPIV3Schema/properties/spec/properties/fromTheFuture","value":{"type":"string","default":"x"}}]`
	if err := c.Client.Patch(t.Context(), definition, client.RawPatch(types.JSONPatchType, []byte(upgrade))); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		downgrade := strings.NewReplacer(`"add"`, `"remove"`, `,"value":{"type":"string","default":"x"}`, "").Replace(upgrade)
		if err := c.Client.Patch(context.WithoutCancel(t.Context()), definition, client.RawPatch(types.JSONPatchType, []byte(downgrade))); err != nil {
			t.Error(err)
		}
	})
	future := func() string {
		return c.Kubectl(t, "get", "tf", "stack", "-o", "jsonpath={.spec.fromTheFuture}")
	}
	testkit.Eventually(t, testkit.Patience, "the field is known", func(context.Context) error {
		c.Patch(t, "stack", `{"spec":{"fromTheFuture":"kept"}}`)
		if got := future(); got != "kept" {
			return errNot("the field, but " + got)
		}
		return nil
	})
	c.AwaitReady(t, "stack") // of the new generation
	if more := checks(w) - looks; more != 0 {
		t.Errorf("the world was looked at %d times for a field that means nothing", more)
	}
	c.Terrier(t, "suspend", "stack")
	c.Terrier(t, "resume", "stack")
	c.Terrier(t, "replan", "stack")
	c.AwaitReady(t, "stack")
	if got := future(); got != "kept" {
		t.Errorf("the field is %q after Terrier wrote the object, want kept", got)
	}
	made(t, w, "a")
	c.Delete(t, "stack")
	c.AwaitGone(t, "stack")
	made(t, w)
}

// F49: a dependant names the dependency that it waits for, and starts when that is
// fixed.
func TestDependencyFails(t *testing.T) {
	t.Parallel()
	c := cluster(t)
	w := platform(t).World(t)
	w.Fault(testkit.WorldFault{Call: "create", Name: "low", Do: "fail"})
	c.Apply(t, inline("low", kept+"\nretryInterval: 1s", things(w, "x", "low")))
	c.Apply(t, inline("middle", kept+"\nretryInterval: 1s\ndependsOn: [{name: low}]", things(w, "x", "middle")))
	c.Apply(t, inline("high", kept+"\nretryInterval: 1s\ndependsOn: [{name: middle}, {name: nobody}]", things(w, "x", "high")))
	c.AwaitReason(t, "low", "TFExecApplyFailed")
	for name, on := range map[string]string{"middle": "low", "high": "middle"} {
		if s := c.AwaitReason(t, name, "DependencyNotReady"); !strings.Contains(message(s), c.Namespace+"/"+on) {
			t.Errorf("%s says %q, want it to name %s", name, message(s), on)
		}
	}
	w.Fault()
	c.AwaitReady(t, "middle")
	s := c.Await(t, "high", func(s *v1alpha2.Terraform) error {
		if !strings.Contains(message(s), "nobody does not exist") {
			return errNot("a word of the one that does not exist")
		}
		return nil
	})
	if len(w.Named("high")) != 0 {
		t.Errorf("high was made although it waits: %s", message(s))
	}
	c.Patch(t, "high", `{"spec":{"dependsOn":[{"name":"middle"}]}}`)
	c.AwaitReady(t, "high")
}

// T10, T23: the credentials of the control plane are in one file that only its
// owner reads: not in an argument, an environment or a log.
func TestTokensStayInTheirFile(t *testing.T) {
	p := platform(t)
	token := p.In(t, "default").Config.BearerToken
	if len(token) < 16 {
		t.Fatalf("the administrator's token is %d bytes long", len(token))
	}
	if strings.Contains(p.Log(), token) {
		t.Error("the log holds the token")
	}
	processes, err := filepath.Glob("/proc/[0-9]*")
	if err != nil || len(processes) == 0 {
		t.Fatal(err)
	}
	for _, dir := range processes {
		for _, what := range []string{"cmdline", "environ"} {
			if text, err := os.ReadFile(filepath.Join(dir, what)); err == nil && strings.Contains(string(text), token) {
				t.Errorf("%s of a process holds the token", what)
			}
		}
	}
	info, err := os.Stat(p.Kubeconfig)
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the kubeconfig has the mode %v, want 0600: %v", info.Mode(), err)
	}
}
