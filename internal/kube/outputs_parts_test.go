package kube

import (
	"bytes"
	"fmt"
	"maps"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/stack"
	"github.com/terrier-iac/terrier/internal/testkit"
)

// F40: outputs beyond what one Secret can hold are all there, whole, and change
// from one set to the next at once.
func TestLargeOutputs(t *testing.T) {
	k := testkit.Kube(t)
	owner := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: k.Namespace, Name: "owner"}}
	if err := k.Client.Create(t.Context(), owner); err != nil {
		t.Fatal(err)
	}
	small := map[string][]byte{"id": []byte("vpc-1")}
	large := map[string][]byte{"id": []byte("vpc-2"), "huge": bytes.Repeat([]byte("0123456789"), 150<<10), "half": bytes.Repeat([]byte("h"), 512<<10)}
	many := map[string][]byte{}
	for i := range 10000 {
		many[fmt.Sprintf("some_output_%05d", i)] = bytes.Repeat([]byte("v"), 200)
	}
	key := types.NamespacedName{Namespace: k.Namespace, Name: "out"}
	parts := func() int {
		var list corev1.SecretList
		if err := k.Client.List(t.Context(), &list, client.InNamespace(k.Namespace), client.HasLabels{outputsOf}); err != nil {
			t.Fatal(err)
		}
		return len(list.Items)
	}
	for _, tt := range []struct {
		name string
		data map[string][]byte
		more bool // it needs more than one Secret
	}{{"small", small, false}, {"large", large, true}, {"many", many, true}, {"large again", large, true}, {"small again", small, false}} {
		p := Published{Data: tt.data}
		for k := range tt.data {
			p.Public = append(p.Public, k)
		}
		for i, want := range []bool{true, false} {
			done, err := WriteOutputs(t.Context(), k.Client, owner, stack.Outputs{Secret: "out"}, p, true)
			if err != nil || done.Changed != want {
				t.Fatalf("%s, write %d: changed %v, %v, want %v", tt.name, i+1, done.Changed, err, want)
			}
		}
		data, public, err := ReadSecret(t.Context(), k.Client, key)
		if err != nil || !maps.EqualFunc(data, tt.data, bytes.Equal) || len(public) != len(tt.data) {
			t.Errorf("%s: read %d keys, %d of them public, %v; want the %d that were written", tt.name, len(data), len(public), err, len(tt.data))
		}
		// One that has parts may be spoilt without being changed itself.
		if ok, version, err := OutputsIntact(t.Context(), k.Client, key); err != nil || !ok || (version == "") != tt.more {
			t.Errorf("%s: OutputsIntact() = %v at version %q, %v, want true, at a version unless there are parts", tt.name, ok, version, err)
		}
		if n := parts(); (n > 0) != tt.more {
			t.Errorf("%s: there are %d parts", tt.name, n)
		}
		var first corev1.Secret
		if err := k.Client.Get(t.Context(), key, &first); err != nil {
			t.Fatal(err)
		}
		if tt.data["id"] != nil && !bytes.Equal(first.Data["id"], tt.data["id"]) {
			t.Errorf("%s: the small value is not where its readers look for it", tt.name)
		}
	}
}

// A part that was changed or removed is noticed, and written again.
func TestPartsAreMended(t *testing.T) {
	k := testkit.Kube(t)
	owner := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: k.Namespace, Name: "owner"}}
	if err := k.Client.Create(t.Context(), owner); err != nil {
		t.Fatal(err)
	}
	p := Published{Data: map[string][]byte{"a": bytes.Repeat([]byte("a"), 800<<10), "b": bytes.Repeat([]byte("b"), 800<<10)}}
	write := func() error {
		_, err := WriteOutputs(t.Context(), k.Client, owner, stack.Outputs{Secret: "out"}, p, false)
		return err
	}
	if err := write(); err != nil {
		t.Fatal(err)
	}
	key := types.NamespacedName{Namespace: k.Namespace, Name: "out"}
	var first, part corev1.Secret
	if err := k.Client.Get(t.Context(), key, &first); err != nil {
		t.Fatal(err)
	}
	name := types.NamespacedName{Namespace: k.Namespace, Name: first.Annotations[outputsParts]}
	for what, harm := range map[string]func() error{
		"changed": func() error { part.Data["b"] = []byte("other"); return k.Client.Update(t.Context(), &part) },
		"removed": func() error { return k.Client.Delete(t.Context(), &part) },
	} {
		if err := k.Client.Get(t.Context(), name, &part); err != nil {
			t.Fatal(err)
		}
		if err := harm(); err != nil {
			t.Fatal(err)
		}
		if ok, _, err := OutputsIntact(t.Context(), k.Client, key); err != nil || ok {
			t.Errorf("%s: OutputsIntact() = %v, %v, want false", what, ok, err)
		}
		if _, _, err := ReadSecret(t.Context(), k.Client, key); err == nil {
			t.Errorf("%s: the outputs are read as if nothing were missing", what)
		}
		if err := write(); err != nil {
			t.Fatalf("%s: writing again: %v", what, err)
		}
		if ok, _, err := OutputsIntact(t.Context(), k.Client, key); err != nil || !ok {
			t.Errorf("%s: OutputsIntact() after writing again = %v, %v, want true", what, ok, err)
		}
	}
}

func TestDivideRefuses(t *testing.T) {
	for name, tt := range map[string]struct {
		data   map[string][]byte
		reason string
	}{
		"a name that cannot be longer": {map[string][]byte{strings.Repeat("n", 250): make([]byte, 2<<20)}, "OutputKeyInvalid"},
		"more than all Secrets hold":   {map[string][]byte{"a": make([]byte, 80<<20)}, "OutputsTooLarge"},
	} {
		if _, err := divide(tt.data); fault.Reason(err, "") != tt.reason {
			t.Errorf("%s: divide() = %v, want %s", name, err, tt.reason)
		}
	}
}
