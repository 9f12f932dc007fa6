package prerequisites

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	fluxmeta "github.com/fluxcd/pkg/apis/meta"
	sourcev1 "github.com/fluxcd/source-controller/api/v1"
	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/terrier-iac/terrier/internal/archive/archivetest"
	"github.com/terrier-iac/terrier/internal/blob"
	"github.com/terrier-iac/terrier/internal/dialect"
	"github.com/terrier-iac/terrier/internal/dialect/dialecttest"
	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/kube"
	"github.com/terrier-iac/terrier/internal/prerequisite"
	"github.com/terrier-iac/terrier/internal/source"
	"github.com/terrier-iac/terrier/internal/stack"
)

// packed are archives on disk by their digests.
type packed map[string]string

func (p packed) Get(_ context.Context, a source.Artifact) (string, error) {
	if p[a.Digest] == "" {
		return "", errors.New("the server is away")
	}
	return p[a.Digest], nil
}

// forbidden is what the API server says to an account without a right.
func forbidden(resource, name string) error {
	return apierrors.NewForbidden(schema.GroupResource{Resource: resource}, name, errors.New(`User "system:serviceaccount:team-a:net" cannot get resource "`+resource+`" in API group ""`))
}

// checkerOf is a checker of a cluster with these objects, and a stack in the namespace
// team-a. Pods may not be read, and only team-b grants references.
func checkerOf(t *testing.T, objects ...client.Object) (*Checker, Stack) {
	t.Helper()
	scheme := runtime.NewScheme()
	second := dialecttest.Second{}
	if err := errors.Join(corev1.AddToScheme(scheme), sourcev1.AddToScheme(scheme), second.AddToScheme(scheme)); err != nil {
		t.Fatal(err)
	}
	scheme.AddKnownTypeWithName(second.Kind(), &unstructured.Unstructured{})
	mapper := meta.NewDefaultRESTMapper(nil)
	for _, kind := range []string{"ConfigMap", "Secret", "Pod"} {
		mapper.Add(corev1.SchemeGroupVersion.WithKind(kind), meta.RESTScopeNamespace)
	}
	mapper.Add(sourcev1.GroupVersion.WithKind("GitRepository"), meta.RESTScopeNamespace)
	mapper.Add(corev1.SchemeGroupVersion.WithKind("Node"), meta.RESTScopeRoot)
	c := fake.NewClientBuilder().WithScheme(scheme).WithRESTMapper(mapper).WithObjects(objects...).WithInterceptorFuncs(interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, into client.Object, opts ...client.GetOption) error {
			switch into.GetObjectKind().GroupVersionKind().Kind {
			case "Pod":
				return forbidden("pods", key.Name)
			case "Node":
				return forbidden("nodes", key.Name)
			}
			return c.Get(ctx, key, into, opts...)
		},
	}).Build()
	checker := &Checker{Cache: c, Kinds: c, Dialects: dialect.NewRegistry(second), Artifacts: packed{}}
	return checker, Stack{ID: "s", Namespace: "team-a", Dialect: second, Reader: c, Refer: func(_ context.Context, to kube.Referent) error {
		if to.Namespace == "team-a" || to.Namespace == "team-b" {
			return nil
		}
		return fault.New(fault.Denied, "", errors.New("not granted: "+to.Kind+" "+to.Namespace+"/"+to.Name))
	}}
}

func meta1(namespace, name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: namespace, Name: name}
}

// wants checks each prerequisite of a table.
func wants(t *testing.T, c *Checker, s Stack, table map[string]struct {
	of   prerequisite.Prerequisite
	want prerequisite.Reason
	says string
}) {
	t.Helper()
	for name, tt := range table {
		t.Run(name, func(t *testing.T) {
			tt.of.Name = "it"
			got, err := c.Check(t.Context(), s, []prerequisite.Prerequisite{tt.of})
			if err != nil || len(got) != 1 || got[0].Name != "it" || got[0].Reason != tt.want || !strings.Contains(got[0].Message, tt.says) {
				t.Errorf("Check() = %+v, %v, want %s with %q", got, err, tt.want, tt.says)
			}
		})
	}
}

// An object counts if it is there, and as it has to be. What may not be read is said, with
// the right that is missing.
func TestObjects(t *testing.T) {
	ready := func(status metav1.ConditionStatus, of int64) *sourcev1.GitRepository {
		r := &sourcev1.GitRepository{ObjectMeta: meta1("team-a", strings.ToLower(string(status)))}
		if r.Generation = 2; of == 1 {
			r.Name = "stale"
		}
		r.Status.Conditions = []metav1.Condition{{Type: "Ready", Status: status, ObservedGeneration: of, Reason: "x"}}
		return r
	}
	c, s := checkerOf(t,
		&corev1.ConfigMap{ObjectMeta: meta1("team-a", "dhcp"), Data: map[string]string{"scope": "static"}},
		&corev1.ConfigMap{ObjectMeta: meta1("team-b", "theirs")}, &corev1.ConfigMap{ObjectMeta: meta1("team-c", "theirs")},
		&corev1.Secret{ObjectMeta: meta1("team-a", "login")},
		ready(metav1.ConditionTrue, 2), ready(metav1.ConditionFalse, 2), ready(metav1.ConditionTrue, 1),
	)
	object := func(kind, name string, change func(*prerequisite.Object)) prerequisite.Prerequisite {
		o := &prerequisite.Object{APIVersion: "v1", Kind: kind, Name: name}
		if kind == "GitRepository" {
			o.APIVersion, o.Condition = "source.toolkit.fluxcd.io/v1", "Ready"
		}
		if change != nil {
			change(o)
		}
		return prerequisite.Prerequisite{Object: o}
	}
	scope := func(equals string) func(*prerequisite.Object) {
		return func(o *prerequisite.Object) { o.Field, o.Equals = ".data.scope", prerequisite.NewValue(equals) }
	}
	in := func(namespace string) func(*prerequisite.Object) {
		return func(o *prerequisite.Object) { o.Namespace = namespace }
	}
	wants(t, c, s, map[string]struct {
		of   prerequisite.Prerequisite
		want prerequisite.Reason
		says string
	}{
		"one that exists":                  {object("ConfigMap", "dhcp", nil), prerequisite.Met, "ConfigMap team-a/dhcp exists"},
		"a Secret":                         {object("Secret", "login", nil), prerequisite.Met, "Secret team-a/login exists"},
		"one that does not exist":          {object("ConfigMap", "none", nil), prerequisite.NotFound, "ConfigMap team-a/none does not exist"},
		"its value":                        {object("ConfigMap", "dhcp", scope("static")), prerequisite.Met, `at .data.scope is "static"`},
		"another value, which is not told": {object("ConfigMap", "dhcp", scope("pool")), prerequisite.Different, `at .data.scope is not "pool"`},
		"a condition":                      {object("GitRepository", "true", nil), prerequisite.Met, "the condition Ready of GitRepository team-a/true is True"},
		"a condition that is False":        {object("GitRepository", "false", nil), prerequisite.NotReady, "is False"},
		"a condition of before":            {object("GitRepository", "stale", nil), prerequisite.NotReady, "is of an earlier generation"},
		"a condition that it has not":      {object("GitRepository", "true", func(o *prerequisite.Object) { o.Condition = "Healthy" }), prerequisite.NotReady, "has no condition Healthy"},
		"a kind that the cluster has not":  {object("Router", "r", nil), prerequisite.NotFound, "the cluster has no kind Router of v1"},
		"in a namespace that grants it":    {object("ConfigMap", "theirs", in("team-b")), prerequisite.Met, "ConfigMap team-b/theirs exists"},
		"in one that does not":             {object("ConfigMap", "theirs", in("team-c")), prerequisite.Denied, "not granted: ConfigMap team-c/theirs"},
		"without the right": {object("Pod", "p", nil), prerequisite.Denied, "the ServiceAccount net of the namespace team-a lacks the right to get pods in the namespace team-a. These commands grant it: " +
			"kubectl -n team-a create role terrier-prerequisites-pods --verb=get --resource=pods && kubectl -n team-a create rolebinding terrier-prerequisites-pods --role=terrier-prerequisites-pods --serviceaccount=team-a:net"},
		"without the right to what is in no namespace": {object("Node", "n", nil), prerequisite.Denied, "lacks the right to get nodes. These commands grant it: " +
			"kubectl create clusterrole terrier-prerequisites-nodes --verb=get --resource=nodes && kubectl create clusterrolebinding terrier-prerequisites-nodes --clusterrole=terrier-prerequisites-nodes --serviceaccount=team-a:net"},
		"a namespace where there is none": {object("Node", "n", in("team-a")), prerequisite.Invalid, "a Node is in no namespace"},
	})
}

// A value in a file is read of the newest artifact.
func TestFiles(t *testing.T) {
	digest := "sha256:1"
	r := &sourcev1.GitRepository{ObjectMeta: meta1("team-a", "substrate")}
	r.Status.Artifact = &fluxmeta.Artifact{Digest: digest, Revision: "main@sha1:1"}
	lost := &sourcev1.GitRepository{ObjectMeta: meta1("team-a", "lost")}
	lost.Status.Artifact = &fluxmeta.Artifact{Digest: "sha256:2", Revision: "main@sha1:1"}
	theirs := &sourcev1.GitRepository{ObjectMeta: meta1("team-c", "theirs")}
	c, s := checkerOf(t, r, lost, theirs, &sourcev1.GitRepository{ObjectMeta: meta1("team-a", "empty")})
	c.Artifacts = packed{digest: archivetest.Pack(t, map[string]string{"net/vlans.yaml": "vlans: [{id: 100, name: grooveiq}]\n", "bad.yaml": "a: [", "large.yaml": strings.Repeat("#", maxFile+1)})}
	s.Source = &stack.Ref{Kind: "GitRepository", Name: "substrate"}
	file := func(path, pointer, equals string) prerequisite.Prerequisite {
		f := &prerequisite.File{Path: path, Pointer: pointer}
		if equals != "" {
			f.Equals = prerequisite.NewValue(equals)
		}
		return prerequisite.Prerequisite{File: f}
	}
	from := func(namespace, name string) prerequisite.Prerequisite {
		p := file("net/vlans.yaml", "", "")
		p.File.Source = &prerequisite.Source{Kind: "GitRepository", Namespace: namespace, Name: name}
		return p
	}
	no := false
	absent := file("net/vlans.yaml", "/vlans/1", "")
	absent.File.Exists = &no
	for range 2 { // the second time from memory
		wants(t, c, s, map[string]struct {
			of   prerequisite.Prerequisite
			want prerequisite.Reason
			says string
		}{
			"its value":                        {file("net/vlans.yaml", "{.vlans[?(@.id==100)].name}", "grooveiq"), prerequisite.Met, `is "grooveiq"`},
			"another value":                    {file("net/vlans.yaml", "/vlans/0/id", "200"), prerequisite.Different, `is "100", and must be "200"`},
			"no value":                         {file("net/vlans.yaml", "/vlans/1/id", "200"), prerequisite.NotFound, "the file net/vlans.yaml of GitRepository team-a/substrate at /vlans/1/id has no value"},
			"nothing, as it must be":           {absent, prerequisite.Met, "has nothing"},
			"a file that exists":               {file("bad.yaml", "", ""), prerequisite.Met, "exists"},
			"a file that does not":             {file("none.yaml", "", ""), prerequisite.NotFound, "the file none.yaml of GitRepository team-a/substrate does not exist"},
			"a file that cannot be read":       {file("bad.yaml", "/a", ""), prerequisite.Invalid, "is neither YAML nor JSON"},
			"a file that is too large":         {file("large.yaml", "/a", ""), prerequisite.Invalid, "more than 1048576 bytes"},
			"a source that does not exist":     {from("", "none"), prerequisite.NotFound, "does not exist"},
			"a source without an artifact":     {from("", "empty"), prerequisite.NotFound, "artifact not found"},
			"a source that cannot be fetched":  {from("", "lost"), prerequisite.NoAnswer, "the server is away"},
			"a source of a team without grant": {from("team-c", "theirs"), prerequisite.Denied, "not granted: GitRepository team-c/theirs"},
		})
	}
	s.Source = nil
	got, err := c.Check(t.Context(), s, []prerequisite.Prerequisite{file("a", "", "")})
	if err != nil || got[0].Reason != prerequisite.Invalid {
		t.Errorf("Check() of an inline stack = %+v, %v, want to be told that it has no source", got, err)
	}
}

// An output counts if the other stack has it. A sensitive one is not compared.
func TestOutputs(t *testing.T) {
	other := dialecttest.Second{}.New()
	other.SetNamespace("team-a")
	other.SetName("network")
	other.SetUID("uid-1")
	silent := dialecttest.Second{}.New()
	silent.SetNamespace("team-a")
	silent.SetName("silent")
	locked := dialecttest.Second{}.New()
	locked.SetNamespace("team-a")
	locked.SetName("locked")
	locked.SetUID("uid-2")
	c, s := checkerOf(t, other, silent, locked)
	c.Outputs = func(_ context.Context, uid string) (map[string]kube.Output, error) {
		if uid == "uid-2" {
			return nil, fault.New(fault.Later, blob.KeyUnknown, errors.New("it is sealed with another key"))
		}
		if uid != "uid-1" {
			return nil, fault.New(fault.Missing, "", errors.New("no record"))
		}
		return map[string]kube.Output{"zone": {Value: json.RawMessage(`"tenant"`)}, "key": {Value: json.RawMessage(`"s"`), Sensitive: true}}, nil
	}
	output := func(name, key, equals string) prerequisite.Prerequisite {
		o := &prerequisite.Output{Name: name, Key: key}
		if equals != "" {
			o.Equals = prerequisite.NewValue(equals)
		}
		return prerequisite.Prerequisite{Output: o}
	}
	unknown := output("network", "zone", "")
	unknown.Output.Kind = "Router"
	theirs := output("network", "zone", "")
	theirs.Output.Namespace = "team-c"
	wants(t, c, s, map[string]struct {
		of   prerequisite.Prerequisite
		want prerequisite.Reason
		says string
	}{
		"its value":                       {output("network", "zone", "tenant"), prerequisite.Met, `output zone is "tenant"`},
		"another value":                   {output("network", "zone", "dmz"), prerequisite.Different, `is not "dmz"`},
		"any value":                       {output("network", "key", ""), prerequisite.Met, "has the output key"},
		"a sensitive value":               {output("network", "key", "s"), prerequisite.Invalid, "is sensitive"},
		"an output that is not there":     {output("network", "none", ""), prerequisite.NotFound, "has no output none"},
		"a stack that was never applied":  {output("silent", "zone", ""), prerequisite.NotFound, "has no output zone"},
		"outputs that do not open":        {output("locked", "zone", ""), prerequisite.NoAnswer, "the outputs of the stack team-a/locked cannot be read now"},
		"a stack that does not exist":     {output("none", "zone", ""), prerequisite.NotFound, "the stack team-a/none does not exist"},
		"an unknown kind of stack":        {unknown, prerequisite.Invalid, "there is no kind of stack"},
		"a stack of a team without grant": {theirs, prerequisite.Denied, "not granted"},
	})
}

// A server behind the API server that hangs holds a pass up once, and not for each object.
func TestObjectsWhoseServerHangs(t *testing.T) {
	c, s := checkerOf(t, &corev1.ConfigMap{ObjectMeta: meta1("team-a", "there")})
	asked := 0
	s.Reader = interceptor.NewClient(c.Cache.(client.WithWatch), interceptor.Funcs{
		Get: func(ctx context.Context, of client.WithWatch, key client.ObjectKey, into client.Object, opts ...client.GetOption) error {
			if into.GetObjectKind().GroupVersionKind().Kind != "GitRepository" {
				return of.Get(ctx, key, into, opts...)
			}
			asked++
			<-ctx.Done()
			return ctx.Err()
		},
	})
	c.within = 20 * time.Millisecond
	var all []prerequisite.Prerequisite
	for i := range 3 {
		all = append(all, prerequisite.Prerequisite{Name: fmt.Sprintf("hangs-%d", i), Object: &prerequisite.Object{APIVersion: sourcev1.GroupVersion.String(), Kind: "GitRepository", Name: "code"}})
	}
	all = append(all, prerequisite.Prerequisite{Name: "there", Object: &prerequisite.Object{APIVersion: "v1", Kind: "ConfigMap", Name: "there"}})
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	got, err := c.Check(ctx, s, all)
	if err != nil || asked != 1 {
		t.Fatalf("Check() = %v, %v, after %d questions, want one", got, err, asked)
	}
	for i, r := range got {
		want := prerequisite.NoAnswer
		if i == len(got)-1 {
			want = prerequisite.Met
		}
		if r.Reason != want {
			t.Errorf("%s is %+v, want %s", r.Name, r, want)
		}
	}
}

// Objects that are watched wake the stacks that wait for them.
func TestAwaited(t *testing.T) {
	second := dialecttest.Second{}
	got := Awaited([]prerequisite.Prerequisite{
		{Object: &prerequisite.Object{APIVersion: "v1", Kind: "ConfigMap", Name: "dhcp"}},
		{Object: &prerequisite.Object{APIVersion: "v1", Kind: "Pod", Name: "p"}},
		{Object: &prerequisite.Object{APIVersion: second.Kind().GroupVersion().String(), Kind: second.Kind().Kind, Namespace: "b", Name: "s"}},
		{Output: &prerequisite.Output{Name: "network", Key: "k"}},
		{File: &prerequisite.File{Path: "own"}},
		{File: &prerequisite.File{Source: &prerequisite.Source{Kind: "Bucket", Name: "files"}, Path: "f"}},
		{TCP: &prerequisite.TCP{Host: "h", Port: 1}},
	}, dialect.NewRegistry(second), second, "a")
	kind := dialect.KindOf(second)
	if diff := cmp.Diff([]string{"ConfigMap/a/dhcp", kind + "/b/s", kind + "/a/network", "Bucket/a/files"}, got); diff != "" {
		t.Errorf("Awaited() (-want +got):\n%s", diff)
	}
}

// The pause before the next check doubles while the same is missing.
func TestLooking(t *testing.T) {
	var l Looking
	var pauses []string
	for range 7 {
		l = l.Again("a")
		pauses = append(pauses, l.Pause.String())
	}
	if diff := cmp.Diff([]string{"5s", "10s", "20s", "40s", "1m20s", "2m0s", "2m0s"}, pauses); diff != "" {
		t.Errorf("the pauses (-want +got):\n%s", diff)
	}
	if l = l.Again("b"); l.Pause != firstLook {
		t.Errorf("after something else is missing the pause is %s, want %s", l.Pause, firstLook)
	}
}
