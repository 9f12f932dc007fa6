package states

import (
	"bytes"
	"encoding/base64"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/terrier-iac/terrier/api/infra/v1alpha2"
	"github.com/terrier-iac/terrier/internal/blob/blobtest"
	"github.com/terrier-iac/terrier/internal/controller/records"
	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/kube"
	"github.com/terrier-iac/terrier/internal/stack"
	"github.com/terrier-iac/terrier/internal/testkit"
)

// F40 through all layers but the run: the pointer leads to the records.
func TestAStateBesideItsSecretIsLoaded(t *testing.T) {
	k := testkit.Kube(t, v1alpha2.AddToScheme)
	large := blobtest.Files(t, 64<<20)
	c := newKeeper(Keeper{Store: kube.States{Client: k.Client, Overflow: large, Now: time.Now}, Records: &records.Store{Blobs: large}, Events: &events{}}, k.Client)
	ref := kube.StateRef{Namespace: k.Namespace, Workspace: "default", Suffix: "big"}
	state := fmt.Appendf(nil, `{"version":4,"serial":1,"lineage":"l","noise":%q}`, noise(4<<20))
	if err := c.Store.Save(t.Context(), ref, kube.Owner{Name: "big"}, state); err != nil {
		t.Fatal(err)
	}
	obj := &v1alpha2.Terraform{ObjectMeta: metav1.ObjectMeta{Namespace: k.Namespace, Name: "big"}}
	got, err := c.load(t.Context(), subject("uid", obj), ref)
	if err != nil || !bytes.Equal(got, state) {
		t.Fatalf("load() = %d bytes, %v; want %d", len(got), err, len(state))
	}
	keys, err := large.List(t.Context(), "overflow/")
	if err != nil || len(keys) != 1 {
		t.Fatalf("%v, %v; want one state beside its Secret", keys, err)
	}
	if err := large.Delete(t.Context(), keys[0]); err != nil {
		t.Fatal(err)
	}
	if _, err := c.load(t.Context(), subject("uid", obj), ref); fault.Reason(err, "") != string(stack.StateTampered) {
		t.Errorf("load() of a state whose record is gone: %v, want StateTampered", err)
	}
}

// noise is text of so many bytes that no packing makes smaller by much.
func noise(n int) string {
	b := make([]byte, n*3/4)
	_, _ = rand.NewChaCha8([32]byte{}).Read(b) // never fails
	return base64.StdEncoding.EncodeToString(b)
}
