package e2e

import (
	"context"
	"io"
	"log"
	"net/http/httptest"
	"strings"
	"testing"

	sourcev1 "github.com/fluxcd/source-controller/api/v1"
	"github.com/google/go-containerregistry/pkg/name"
	ggcr "github.com/google/go-containerregistry/pkg/registry"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/types"

	"github.com/terrier-iac/terrier/api/infra/v1alpha2"
	"github.com/terrier-iac/terrier/internal/outbound"
	"github.com/terrier-iac/terrier/internal/source"
	"github.com/terrier-iac/terrier/internal/source/cosign/cosigntest"
	"github.com/terrier-iac/terrier/internal/testkit"
)

// A plan from a source that is not signed by a key of the policy waits, and goes on without an
// approval once the source is signed. The stack says at each step what is missing.
func TestUnsignedSourcesHoldPlans(t *testing.T) {
	t.Parallel()
	c := cluster(t)
	platform(t)
	server := httptest.NewServer(ggcr.New(ggcr.Logger(log.New(io.Discard, "", 0))))
	t.Cleanup(server.Close)
	registry := strings.TrimPrefix(server.URL, "http://")
	allow, err := outbound.ParseAllow("127.0.0.0/8")
	if err != nil {
		t.Fatal(err)
	}
	out := outbound.New(outbound.Policy{Allow: allow, PlainHTTP: true})
	t.Cleanup(out.Close)
	dir := t.TempDir()
	write(t, dir, "main.tf", `resource "terraform_data" "it" {}`)
	digest, err := source.Push(t.Context(), dir, "oci://"+registry+"/net:1", source.PushOptions{Out: out})
	if err != nil {
		t.Fatal(err)
	}
	at, err := name.NewDigest(registry + "/net@" + digest)
	if err != nil {
		t.Fatal(err)
	}
	platformKey, theirs := cosigntest.NewKey(t, cosigntest.ECDSA), cosigntest.NewKey(t, cosigntest.ECDSA)
	policy := policed(t, c, "guards:\n  requireSignedSource:\n    keys: ['"+platformKey.Fingerprint+"']")
	c.PutSecret(t, "keys", map[string]string{"theirs.pub": string(theirs.Public)})
	c.Apply(t, `
apiVersion: source.toolkit.fluxcd.io/v1
kind: OCIRepository
metadata: {name: net}
spec:
  interval: 1h
  url: oci://`+registry+`/net
  ref: {tag: "1"}
---
apiVersion: infra.contrib.fluxcd.io/v1alpha2
kind: Terraform
metadata: {name: net}
spec:
  approvePlan: auto
  interval: 1h
  sourceRef: {kind: OCIRepository, name: net}
`)
	held := func(says string) func(s *v1alpha2.Terraform) error {
		return func(s *v1alpha2.Terraform) error {
			if !strings.Contains(message(s), says) {
				return errNot("held, and says " + says + ": " + message(s))
			}
			return heldBy(policy)(s)
		}
	}
	c.Await(t, "net", held("requireSignedSource: OCIRepository "+c.Namespace+"/net at 1@"+digest+" has no verified signature: no signature is asked for: set spec.verify of the OCIRepository"))

	patch := func(spec string) {
		t.Helper()
		c.Kubectl(t, "patch", "ocirepository/net", "--type=merge", "--patch", spec)
	}
	patch(`{"spec":{"verify":{"provider":"cosign","secretRef":{"name":"keys"}}}}`)
	c.Await(t, "net", held("its signature is not verified: see the condition SourceVerified of the OCIRepository"))
	awaitSource(t, c, "net", "SourceVerified", "run cosign sign "+at.Name())

	// The owner of the source signs with a key that the policy does not name.
	theirs.Sign(t, at)
	c.Kubectl(t, "annotate", "--overwrite", "ocirepository/net", "reconcile.fluxcd.io/requestedAt=1")
	s := c.Await(t, "net", held("is signed by the key "+theirs.Fingerprint+", and the policy allows others"))
	if s.Status.LastAppliedRevision != "" {
		t.Error("the plan was applied")
	}

	c.PutSecret(t, "platform-keys", map[string]string{"platform.pub": string(platformKey.Public), "theirs.pub": string(theirs.Public)})
	platformKey.Sign(t, at)
	patch(`{"spec":{"verify":{"provider":"cosign","secretRef":{"name":"platform-keys"}}}}`)
	s = c.AwaitReady(t, "net")
	if want := "1@" + digest; s.Status.LastAppliedRevision != want {
		t.Errorf("%q was applied, want %q", s.Status.LastAppliedRevision, want)
	}
	awaitSource(t, c, "net", "SourceVerified", "by the key "+platformKey.Fingerprint)
}

// awaitSource waits until a condition of an OCIRepository says something.
func awaitSource(t *testing.T, c *testkit.Cluster, name, condition, says string) {
	t.Helper()
	testkit.Eventually(t, testkit.Patience, "the source says "+says, func(ctx context.Context) error {
		var o sourcev1.OCIRepository
		if err := c.Client.Get(ctx, types.NamespacedName{Namespace: c.Namespace, Name: name}, &o); err != nil {
			return err
		}
		if is := meta.FindStatusCondition(o.Status.Conditions, condition); is == nil || !strings.Contains(is.Message, says) {
			return errNot("said yet")
		}
		return nil
	})
}
