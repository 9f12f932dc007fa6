package installation

import (
	"fmt"
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/testkit"
)

// A controller makes a Secret again that was deleted, and says so if it has other keys.
func TestASecretIsKept(t *testing.T) {
	c := testkit.Kube(t)
	o := Options{
		Keys: InSecret, Dir: t.TempDir(), Namespace: c.Namespace, Client: c.Client,
		Now: func() time.Time { return time.Date(2026, 11, 29, 8, 0, 0, 0, time.UTC) },
	}
	k, err := Open(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	secret, err := k.kept.read(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	whole := maps.Clone(secret.Data)
	delete(secret.Data, runs)
	if err := c.Client.Update(t.Context(), secret); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := k.keep(t.Context()); fault.Reason(err, "") != ReasonAnother || !strings.Contains(fmt.Sprint(err), runs) {
			t.Errorf("keep() without a key = %v, want its name", err)
		}
	}
	if err := c.Client.Delete(t.Context(), secret); err != nil {
		t.Fatal(err)
	}
	if err := k.keep(t.Context()); err != nil {
		t.Errorf("keep() of a deleted Secret = %v", err)
	}
	if secret, err = k.kept.read(t.Context()); err != nil || len(secret.Data) != len(whole) || k.keep(t.Context()) != nil {
		t.Errorf("the Secret was not made again: %v", err)
	}
}

// The successor of an authority, which another controller has made, is no other key: one that
// runs puts it back.
func TestASuccessorIsKept(t *testing.T) {
	c := testkit.Kube(t)
	now := time.Date(2026, 11, 29, 8, 0, 0, 0, time.UTC)
	o := Options{
		Keys: InSecret, Dir: t.TempDir(), Namespace: c.Namespace, Client: c.Client,
		Now: func() time.Time { return now }, Progress: func(string, ...any) {},
	}
	k, err := Open(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	now = now.Add(authorityTime - signsUntil)
	other, err := Open(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	if len(other.authorities) != 2 {
		t.Fatalf("there are %d authorities, want a successor", len(other.authorities))
	}
	if err := k.keep(t.Context()); err != nil {
		t.Errorf("keep() beside a successor = %v", err)
	}
	secret, err := k.kept.read(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Client.Delete(t.Context(), secret); err != nil {
		t.Fatal(err)
	}
	if err := k.keep(t.Context()); err != nil {
		t.Errorf("keep() of a deleted Secret = %v", err)
	}
	if err := other.keep(t.Context()); err != nil {
		t.Errorf("keep() of the controller with the successor = %v", err)
	}
}
