package kube

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/stack"
	"github.com/terrier-iac/terrier/internal/testkit"
	"github.com/terrier-iac/terrier/internal/workdir"
)

func state(lineage string, serial int, more string) []byte {
	return fmt.Appendf(nil, `{"version":4,"lineage":%q,"serial":%d,"more":%q}`, lineage, serial, more)
}

func TestStatesAreKeptWhereTheEngineWouldKeepThem(t *testing.T) {
	k := testkit.Kube(t)
	s := States{Client: k.Client, Now: time.Now}
	ref := StateRef{Namespace: k.Namespace, Workspace: "default", Suffix: "net", Labels: map[string]string{"team": "a"}}

	if got, err := s.Load(t.Context(), ref); err != nil || len(got.State) != 0 || got.Digest != "" {
		t.Fatalf("Load() = %+v, %v, want nothing", got, err)
	}
	for _, serial := range []int{1, 2} {
		if err := s.Save(t.Context(), ref, Owner{Name: "net"}, state("l", serial, "")); err != nil {
			t.Fatal(err)
		}
	}
	got, err := s.Load(t.Context(), ref)
	if err != nil || got.Owner != "net" || !bytes.Equal(got.State, state("l", 2, "")) {
		t.Fatalf("Load() = %q of %q, %v, want serial 2 of net", got.State, got.Owner, err)
	}
	var secret corev1.Secret
	if err := k.Client.Get(t.Context(), types.NamespacedName{Namespace: k.Namespace, Name: "tfstate-default-net"}, &secret); err != nil {
		t.Fatal(err)
	}
	want := map[string]string{"tfstate": "true", "tfstateSecretSuffix": "net", "tfstateWorkspace": "default", "app.kubernetes.io/managed-by": "terraform", "team": "a"}
	if diff := cmp.Diff(want, secret.Labels); diff != "" {
		t.Errorf("labels (-want +got):\n%s", diff)
	}
	if secret.Annotations["encoding"] != "gzip" {
		t.Errorf("annotations = %v, want encoding: gzip", secret.Annotations)
	}
}

func TestStatesRefuseToGoBack(t *testing.T) {
	k := testkit.Kube(t)
	s := States{Client: k.Client, Now: time.Now}
	ref := StateRef{Namespace: k.Namespace, Workspace: "default", Suffix: "x"}
	if err := s.Save(t.Context(), ref, Owner{Name: "x"}, state("l", 5, "")); err != nil {
		t.Fatal(err)
	}
	for name, tt := range map[string]struct {
		state []byte
		want  fault.Kind
	}{
		"the same state again":             {state("l", 5, ""), fault.None},
		"an older serial":                  {state("l", 4, ""), fault.Conflict},
		"the same serial, another content": {state("l", 5, "x"), fault.Conflict},
		"another lineage":                  {state("m", 6, ""), fault.Conflict},
		"something that is no state":       {[]byte("x"), fault.Conflict},
	} {
		if got := fault.Of(s.Save(t.Context(), ref, Owner{Name: "x"}, tt.state)); got != tt.want {
			t.Errorf("%s: %q, want %q", name, got, tt.want)
		}
	}
	if got, err := s.Load(t.Context(), ref); err != nil || !bytes.Equal(got.State, state("l", 5, "")) {
		t.Errorf("Load() = %q, %v: a refused state was kept", got.State, err)
	}
}

func TestLocksKnowTheirHolder(t *testing.T) {
	k := testkit.Kube(t)
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	s := States{Client: k.Client, Now: func() time.Time { return now }}
	ref := StateRef{Namespace: k.Namespace, Workspace: "default", Suffix: "x"}
	mine := LockInfo{ID: "run-1", Who: "terrier a/b", Operation: "apply", Holder: "installation/uid/run-1"}

	if err := s.Lock(t.Context(), ref, mine); err != nil {
		t.Fatal(err)
	}
	if err := s.Lock(t.Context(), ref, mine); err != nil {
		t.Errorf("taking a lock twice: %v", err)
	}
	mine.Holder = "other installation/uid/run-1"
	if err := s.Lock(t.Context(), ref, mine); fault.Of(err) != fault.Later {
		t.Errorf("Lock() by a run of the same name elsewhere = %v, want it refused", err)
	}
	err := s.Lock(t.Context(), ref, LockInfo{ID: "run-2"})
	held, ok := errors.AsType[*LockedError](err)
	if !ok || fault.Of(err) != fault.Later || held.Holder.ID != "run-1" || held.Holder.Who != "terrier a/b" || !held.Holder.Created.Equal(now) {
		t.Fatalf("Lock() by another = %v, want to be told of run-1", err)
	}
	if err := s.Unlock(t.Context(), ref, "run-2"); err != nil {
		t.Fatal(err)
	}
	if h, err := s.Holder(t.Context(), ref); err != nil || h == nil || h.Holder.ID != "run-1" {
		t.Errorf("Holder() = %v, %v: somebody else freed the lock", h, err)
	}
	if err := s.Unlock(t.Context(), ref, "run-1"); err != nil {
		t.Fatal(err)
	}
	if h, err := s.Holder(t.Context(), ref); err != nil || h != nil {
		t.Errorf("Holder() = %v, %v, want nobody", h, err)
	}
}

func TestStateNames(t *testing.T) {
	err := StateRef{Namespace: "n", Workspace: "default", Suffix: "Not_A_Name"}.Check(stack.Words{StateName: "workspace or backendConfig.secretSuffix"})
	if fault.Of(err) != fault.Invalid || !strings.Contains(err.Error(), "secretSuffix") {
		t.Errorf("Check() = %v, want an error that names the field", err)
	}
}

func TestEncodeOutputs(t *testing.T) {
	outputs := map[string]Output{
		"name":  {Value: json.RawMessage(`"a\nb"`), Type: json.RawMessage(`"string"`)},
		"count": {Value: json.RawMessage(`3`), Type: json.RawMessage(`"number"`)},
		"list":  {Value: json.RawMessage(`["x"]`), Type: json.RawMessage(`["tuple",["string"]]`), Sensitive: true},
	}
	all := Published{
		Data: map[string][]byte{
			"name": []byte("a\nb"), "count": []byte("3"), "count__type": []byte(`"number"`),
			"list": []byte("[\n      \"x\"\n    ]"), "list__type": []byte("[\n      \"tuple\",\n      [\n        \"string\"\n      ]\n    ]"),
		},
		Public: []string{"count", "name"},
	}
	for name, tt := range map[string]struct {
		want []string
		out  Published
		kind fault.Kind
	}{
		"all of them":                        {nil, all, fault.None},
		"some, renamed":                      {[]string{"name:vpc.name"}, Published{Data: map[string][]byte{"vpc.name": []byte("a\nb")}, Public: []string{"vpc.name"}}, fault.None},
		"one twice":                          {[]string{"name", "name"}, Published{Data: map[string][]byte{"name": []byte("a\nb")}, Public: []string{"name"}}, fault.None},
		"two with one key":                   {[]string{"name:key", "list:key"}, Published{}, fault.Invalid},
		"one with the key of another's type": {[]string{"count", "name:count__type"}, Published{}, fault.Invalid},
		"one that is not output":             {[]string{"nope"}, Published{}, fault.Invalid},
		"a key that is no key":               {[]string{"name:a/b"}, Published{}, fault.Invalid},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := EncodeOutputs(outputs, tt.want)
			if fault.Of(err) != tt.kind {
				t.Fatalf("EncodeOutputs() = %v, want %q", err, tt.kind)
			}
			if diff := cmp.Diff(tt.out, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
	back, err := workdir.PublishedOutputs(all.Data)
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]json.RawMessage{"name": json.RawMessage(`"a\nb"`), "count": json.RawMessage("3"), "list": json.RawMessage("[\n      \"x\"\n    ]")}
	if diff := cmp.Diff(want, back); diff != "" {
		t.Errorf("PublishedOutputs (-want +got):\n%s", diff)
	}
}

func TestWriteOutputs(t *testing.T) {
	k := testkit.Kube(t)
	owner := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: k.Namespace, Name: "owner"}}
	other := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: k.Namespace, Name: "other"}}
	for _, o := range []client.Object{owner, other} {
		if err := k.Client.Create(t.Context(), o); err != nil {
			t.Fatal(err)
		}
	}
	to := stack.Outputs{Secret: "out", Labels: map[string]string{"l": "1"}, Annotations: map[string]string{"a": "1"}}
	p := Published{Data: map[string][]byte{"k": []byte("v")}, Public: []string{"k"}}
	key := types.NamespacedName{Namespace: k.Namespace, Name: "out"}

	for i, want := range []bool{true, false} {
		done, err := WriteOutputs(t.Context(), k.Client, owner, to, p, i == 0)
		if err != nil || done.Changed != want {
			t.Fatalf("write %d: changed %v, %v, want %v", i+1, done.Changed, err, want)
		}
		if ok, version, err := OutputsIntact(t.Context(), k.Client, key); err != nil || !ok || version == "" || version != done.Version {
			t.Errorf("OutputsIntact() = %v at version %q, %v, want true at %q", ok, version, err, done.Version)
		}
	}
	data, public, err := ReadSecret(t.Context(), k.Client, key)
	if err != nil || string(data["k"]) != "v" || len(public) != 1 {
		t.Errorf("ReadSecret() = %v, %v, %v", data, public, err)
	}
	var secret corev1.Secret
	if err := k.Client.Get(t.Context(), key, &secret); err != nil {
		t.Fatal(err)
	}
	secret.Data["k"] = []byte("tampered")
	if err := k.Client.Update(t.Context(), &secret); err != nil {
		t.Fatal(err)
	}
	if ok, _, err := OutputsIntact(t.Context(), k.Client, key); err != nil || ok {
		t.Errorf("OutputsIntact() after tampering = %v, %v, want false", ok, err)
	}
	if _, err := WriteOutputs(t.Context(), k.Client, other, to, p, true); fault.Of(err) != fault.Denied {
		t.Errorf("writing somebody else's Secret: %v, want Denied", err)
	}

	for name, tt := range map[string]struct {
		data  map[string][]byte
		owner []metav1.OwnerReference
		want  fault.Kind
	}{
		"found":   {data: map[string][]byte{"password": []byte("p")}, want: fault.Denied},
		"empty":   {want: fault.None},
		"adopted": {data: map[string][]byte{"k": []byte("of a controller before us")}, owner: []metav1.OwnerReference{*metav1.NewControllerRef(owner, corev1.SchemeGroupVersion.WithKind("ConfigMap"))}, want: fault.None},
	} {
		s := corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: k.Namespace, Name: name, OwnerReferences: tt.owner}, Data: tt.data}
		if err := k.Client.Create(t.Context(), &s); err != nil {
			t.Fatal(err)
		}
		if _, err := WriteOutputs(t.Context(), k.Client, owner, stack.Outputs{Secret: name}, p, true); fault.Of(err) != tt.want {
			t.Errorf("writing a Secret that is %s: %v, want %v", name, err, tt.want)
		}
		if err := k.Client.Get(t.Context(), client.ObjectKeyFromObject(&s), &s); err != nil {
			t.Fatal(err)
		}
		if _, kept := s.Data["password"]; kept != (tt.want != fault.None) {
			t.Errorf("a Secret that is %s holds %v afterwards", name, s.Data)
		}
	}
}

// A namespace that may hold no more Secrets refuses to make one although it is
// there: what a stack finds of its outputs is written over all the same.
func TestOutputsInAFullNamespace(t *testing.T) {
	k := testkit.Kube(t)
	owner := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: k.Namespace, Name: "owner"}}
	if err := k.Client.Create(t.Context(), owner); err != nil {
		t.Fatal(err)
	}
	w, err := client.NewWithWatch(k.Config, client.Options{Scheme: k.Client.Scheme()})
	if err != nil {
		t.Fatal(err)
	}
	full := interceptor.NewClient(w, interceptor.Funcs{Create: func(_ context.Context, _ client.WithWatch, obj client.Object, _ ...client.CreateOption) error {
		return apierrors.NewForbidden(corev1.Resource("secrets"), obj.GetName(), errors.New("exceeded quota"))
	}})
	to := stack.Outputs{Secret: "out"}
	if _, err := WriteOutputs(t.Context(), full, owner, to, Published{Data: map[string][]byte{"k": []byte("1")}}, true); fault.Of(err) != fault.Denied {
		t.Errorf("making a Secret: %v, want Denied", err)
	}
	for i, c := range []client.Client{k.Client, full} {
		p := Published{Data: map[string][]byte{"k": fmt.Append(nil, i)}}
		if done, err := WriteOutputs(t.Context(), c, owner, to, p, true); err != nil || !done.Changed || done.Version == "" {
			t.Errorf("write %d: %+v, %v, want it to be written", i+1, done, err)
		}
	}
}

func TestReadablePlans(t *testing.T) {
	k := testkit.Kube(t)
	owner := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: k.Namespace, Name: "app"}}
	if err := k.Client.Create(t.Context(), owner); err != nil {
		t.Fatal(err)
	}
	long := "x" + strings.Repeat("é", planChunkBytes) // every full chunk would cut a rune
	names := func() (out []string) {
		var maps corev1.ConfigMapList
		var secrets corev1.SecretList
		for _, l := range []client.ObjectList{&maps, &secrets} {
			if err := k.Client.List(t.Context(), l, client.InNamespace(k.Namespace), client.HasLabels{planNameLabel}); err != nil {
				t.Fatal(err)
			}
		}
		for _, m := range maps.Items {
			out = append(out, "ConfigMap/"+m.Name)
		}
		for _, s := range secrets.Items {
			out = append(out, "Secret/"+s.Name)
		}
		return out
	}
	for _, step := range []struct {
		name string
		plan ReadablePlan
		want []string
	}{
		{"text in parts", ReadablePlan{Workspace: "default", Name: "p1", Text: []byte(long)}, []string{"ConfigMap/tfplan-default-app-0", "ConfigMap/tfplan-default-app-1", "ConfigMap/tfplan-default-app-2"}},
		{"short text takes their place", ReadablePlan{Workspace: "default", Name: "p2", Text: []byte("x")}, []string{"ConfigMap/tfplan-default-app"}},
		{"JSON takes the place of text", ReadablePlan{Workspace: "default", Name: "p3", JSON: []byte("{}")}, []string{"Secret/tfplan-default-app.json"}},
		{"none removes it", ReadablePlan{Workspace: "default", Name: "p4"}, nil},
	} {
		if err := WriteReadablePlan(t.Context(), k.Client, owner, step.plan); err != nil {
			t.Fatalf("%s: %v", step.name, err)
		}
		if diff := cmp.Diff(step.want, names()); diff != "" {
			t.Errorf("%s (-want +got):\n%s", step.name, diff)
		}
	}
}
