package states

import (
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"io"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/terrier-iac/terrier/api/infra/v1alpha2"
	"github.com/terrier-iac/terrier/internal/blob/blobtest"
	"github.com/terrier-iac/terrier/internal/controller/records"
	"github.com/terrier-iac/terrier/internal/encryption"
	"github.com/terrier-iac/terrier/internal/kube"
	"github.com/terrier-iac/terrier/internal/stack"
	"github.com/terrier-iac/terrier/internal/testkit"
)

// A run takes a state over that is not encrypted as its stack asks, and begins from the same
// state, with nothing to be accepted and no new version.
func TestARunTakesTheEncryptionOver(t *testing.T) {
	k := testkit.Kube(t, v1alpha2.AddToScheme)
	newest := []string{"one"}
	cipher := encryption.Cipher{Keys: func(_ context.Context, place, id string) (keys []encryption.Key, err error) {
		for _, known := range newest {
			if b := sha256.Sum256([]byte(place + known)); id == "" || id == known {
				keys = append(keys, encryption.Key{ID: known, Bytes: b[:]})
			}
		}
		return keys, nil
	}}
	files := blobtest.Files(t, 1<<20)
	kp := newKeeper(Keeper{Store: kube.States{Client: k.Client, Now: time.Now, Cipher: cipher}, Records: &records.Store{Blobs: files}, Events: &events{}, Cache: k.Client}, k.Client)
	ref := kube.StateRef{Namespace: k.Namespace, Workspace: "default", Suffix: "app"}
	obj := &v1alpha2.Terraform{ObjectMeta: metav1.ObjectMeta{Namespace: k.Namespace, Name: "app", UID: types.UID("uid")}}
	of := subject("uid", obj)
	state := thing("l", 1)
	if err := kp.Store.Save(t.Context(), ref, kube.Owner{Name: "app", UID: "uid"}, state); err != nil {
		t.Fatal(err)
	}
	begin := func(what string, asked bool, kind stack.RunKind, key string) {
		t.Helper()
		of.Asked.Configuration.Encrypted = asked
		begun, err := kp.Start(t.Context(), of, &ref, "run", kind, stack.Cause{})
		if err != nil || !bytes.Equal(begun, state) {
			t.Fatalf("%s: the run begins from %s, %v", what, begun, err)
		}
		var secret corev1.Secret
		k.Get(t, "tfstate-default-app", &secret)
		r, err := gzip.NewReader(bytes.NewReader(secret.Data["tfstate"]))
		if err != nil {
			t.Fatal(err)
		}
		if raw, err := io.ReadAll(r); err != nil || encryption.KeyOf(raw) != key {
			t.Errorf("%s: stored is %s, %v; want it encrypted with the key %q", what, raw, err, key)
		}
	}
	begin("without encryption", false, stack.PlanRun, "")
	begin("the first run with it", true, stack.CheckRun, "one")
	newest = []string{"two", "one"}
	begin("the first run after a rotation", true, stack.ApplyRun, "two")
	begin("a destroy from the record of an unencrypted apply", true, stack.DestroyRun, "two")
	begin("the first run without it", false, stack.PlanRun, "")
	versions, err := kp.Versions.list(t.Context(), "uid")
	if err != nil || len(versions.Versions) != 1 {
		t.Errorf("kept are %+v, %v; want one version of one state", versions.Versions, err)
	}
}
