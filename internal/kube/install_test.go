package kube

import (
	"context"
	"io/fs"
	"strings"
	"testing"
	"testing/fstest"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/terrier-iac/terrier/config/crd"
	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/testkit"
)

func definition(group, plural, description string) []byte {
	return []byte(`{apiVersion: apiextensions.k8s.io/v1, kind: CustomResourceDefinition, metadata: {name: ` + plural + `.` + group + `},
spec: {group: ` + group + `, scope: Namespaced, names: {plural: ` + plural + `, kind: K` + plural + `},
versions: [{name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object, description: "` + description + `"}}}]}}`)
}

func TestInstallDefinitions(t *testing.T) {
	k := testkit.Kube(t, apiextensionsv1.AddToScheme)
	own, shared := k.Namespace+"-own.test", k.Namespace+"-shared.test"
	described := func(name string) string {
		t.Helper()
		var crd apiextensionsv1.CustomResourceDefinition
		if err := k.Client.Get(t.Context(), types.NamespacedName{Name: name}, &crd); err != nil {
			t.Fatal(err)
		}
		return crd.Spec.Versions[0].Schema.OpenAPIV3Schema.Description
	}
	var theirs apiextensionsv1.CustomResourceDefinition
	if err := yaml.Unmarshal(definition(shared, "theirs", "theirs"), &theirs); err != nil {
		t.Fatal(err)
	}
	if err := k.Client.Create(t.Context(), &theirs, client.FieldOwner("another-installer")); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		for _, name := range []string{"ours." + own, "ours." + shared, "theirs." + shared} {
			crd := &apiextensionsv1.CustomResourceDefinition{}
			crd.Name = name
			if err := k.Client.Delete(context.Background(), crd); client.IgnoreNotFound(err) != nil {
				t.Logf("removing %s: %v", name, err)
			}
		}
	})
	for _, text := range []string{"old", "new"} { // the second time is an upgrade
		files := fstest.MapFS{
			"a.yaml": {Data: definition(own, "ours", text)}, "b.yaml": {Data: definition(shared, "ours", text)}, "c.yaml": {Data: definition(shared, "theirs", text)},
		}
		if err := InstallDefinitions(t.Context(), k.Client, files, shared); err != nil {
			t.Fatal(err)
		}
		for name, want := range map[string]string{"ours." + own: text, "ours." + shared: text, "theirs." + shared: "theirs"} {
			if got := described(name); got != want {
				t.Errorf("%s is described as %q, want %q", name, got, want)
			}
		}
	}
}

// busy answers as an API server whose etcd does not answer in time, for as many writes.
type busy struct {
	client.Client
	writes int
	last   error
}

func (b *busy) Apply(context.Context, runtime.ApplyConfiguration, ...client.ApplyOption) error {
	if b.writes--; b.writes < 0 {
		return b.last
	}
	return &apierrors.StatusError{ErrStatus: metav1.Status{Status: metav1.StatusFailure, Code: 500, Message: "etcdserver: request timed out"}}
}

// A start does not end with the first write that a slow disk makes late. One that is refused is
// not tried again.
func TestApplyAsksABusyServerAgain(t *testing.T) {
	u := &unstructured.Unstructured{}
	u.SetName("terrier-system")
	u.SetKind("Namespace")
	late := &busy{writes: 2}
	if err := Apply(t.Context(), late, u); err != nil || late.writes != -1 {
		t.Errorf("after two late writes: %v, and %d writes are left", err, late.writes)
	}
	refused := &busy{last: apierrors.NewBadRequest("no")}
	if err := Apply(t.Context(), refused, u); fault.Of(err) != fault.Invalid || refused.writes != -1 {
		t.Errorf("a refused write: %v, and %d writes are left", err, refused.writes)
	}
	ended, end := context.WithCancel(t.Context())
	end()
	if err := Apply(ended, &busy{writes: 1 << 20}, u); err == nil {
		t.Error("a write that never came through is no error")
	}
}

// applies counts what a client applies.
type applies struct {
	client.Client
	n int
}

func (a *applies) Apply(ctx context.Context, what runtime.ApplyConfiguration, o ...client.ApplyOption) error {
	a.n++
	return a.Client.Apply(ctx, what, o...)
}

// A definition that is as it was applied is not written again. One that another program has
// changed is, and so is one of another version.
func TestDefinitionsAreAppliedOnce(t *testing.T) {
	k := testkit.Kube(t, apiextensionsv1.AddToScheme)
	group := k.Namespace + "-once.test"
	crd := &apiextensionsv1.CustomResourceDefinition{}
	crd.Name = "things." + group
	t.Cleanup(func() {
		if err := k.Client.Delete(context.Background(), crd); client.IgnoreNotFound(err) != nil {
			t.Logf("removing %s: %v", crd.Name, err)
		}
	})
	text := strings.Replace(string(definition(group, "things", "one")), "type: object,", "type: object, properties: {size: {type: integer, maximum: 3000000}},", 1)
	files := func(text string) fs.FS { return fstest.MapFS{"a.yaml": {Data: []byte(text)}} }
	change := func(patch string) {
		t.Helper()
		if err := k.Client.Patch(t.Context(), crd, client.RawPatch(types.JSONPatchType, []byte(patch)), client.FieldOwner("a-user")); err != nil {
			t.Fatal(err)
		}
	}
	const schema = "/spec/versions/0/schema/openAPIV3Schema/"
	c := &applies{Client: k.Client}
	for _, step := range []struct {
		what   string
		before func()
		text   string
		want   int
	}{
		{"the first start", func() {}, text, 1},
		{"the next start", func() {}, text, 0},
		{"a start after a user has changed a field", func() { change(`[{"op": "replace", "path": "` + schema + `description", "value": "two"}]`) }, text, 1},
		{"the start after that", func() {}, text, 0},
		{"a start after a user has removed a field", func() { change(`[{"op": "remove", "path": "` + schema + `properties/size/maximum"}]`) }, text, 1},
		{"a start of another version", func() {}, strings.Replace(text, ", maximum: 3000000", "", 1), 1},
		{"the start after that version", func() {}, strings.Replace(text, ", maximum: 3000000", "", 1), 0},
	} {
		step.before()
		c.n = 0
		if err := InstallDefinitions(t.Context(), c, files(step.text)); err != nil {
			t.Fatalf("%s: %v", step.what, err)
		}
		if c.n != step.want {
			t.Errorf("%s wrote %d times, want %d", step.what, c.n, step.want)
		}
		if err := k.Client.Get(t.Context(), client.ObjectKeyFromObject(crd), crd); err != nil {
			t.Fatal(err)
		}
		got := crd.Spec.Versions[0].Schema.OpenAPIV3Schema
		if bounded := strings.Contains(step.text, "maximum"); got.Description != "one" || (got.Properties["size"].Maximum != nil) != bounded {
			t.Errorf("after %s the schema is %+v", step.what, got)
		}
	}
}

// The API server changes none of our definitions, so that the next start finds each as it
// was applied.
func TestOurDefinitionsAreAppliedOnce(t *testing.T) {
	c := &applies{Client: testkit.Kube(t, apiextensionsv1.AddToScheme).Client}
	if err := InstallDefinitions(t.Context(), c, crd.Files); err != nil {
		t.Fatal(err)
	}
	c.n = 0
	if err := InstallDefinitions(t.Context(), c, crd.Files); err != nil {
		t.Fatal(err)
	}
	if c.n != 0 {
		t.Errorf("the next start wrote %d definitions, want none", c.n)
	}
}
