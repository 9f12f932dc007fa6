package app

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"testing"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	alustanv1 "github.com/terrier-iac/terrier/api/alustan/v1alpha1"
	"github.com/terrier-iac/terrier/api/infra/v1alpha2"
	"github.com/terrier-iac/terrier/internal/dialect"
	"github.com/terrier-iac/terrier/internal/dialect/kinds"
	"github.com/terrier-iac/terrier/internal/testkit"
)

// Where the API server stamps by itself, no policy is put beside it. Each kind of stack tells.
func TestStampsAreNotAskedForTwice(t *testing.T) {
	k := testkit.Kube(t, v1alpha2.AddToScheme, alustanv1.AddToScheme, admissionregistrationv1.AddToScheme)
	if err := ensureServerNamespace(t.Context(), k.Client); err != nil {
		t.Fatal(err)
	}
	all := kinds.All().All()
	for name, leftOut := range map[string][]dialect.Dialect{"both kinds": nil, "only the first": all[1:], "only the second": all[:1]} {
		t.Run(name, func(t *testing.T) {
			p := &parts{Options: Options{Cluster: &ClusterConfig{Definitions: true}, Now: time.Now}, log: slog.New(slog.DiscardHandler), leftOut: dialect.NewRegistry(leftOut...)}
			s := newStamping(p, k.Client)
			if err := s.Ensure(t.Context()); err != nil {
				t.Fatal(err)
			}
			if epoch, err := s.Epoch(t.Context()); epoch == "" || err != nil {
				t.Errorf("Epoch() = %q, %v, want that of the server", epoch, err)
			}
			var policies admissionregistrationv1.MutatingAdmissionPolicyList
			if err := k.Client.List(t.Context(), &policies); err != nil {
				t.Fatal(err)
			}
			for _, policy := range policies.Items {
				if policy.Name == "changed-by.terrier.dev" {
					t.Error("there is a policy although the server stamps by itself")
				}
			}
		})
	}
}

// An API server that has just got to know a kind refuses it for some seconds if
// there is a policy for it. Nothing of ours is created before that is over.
func TestStampsAreAwaited(t *testing.T) {
	k := testkit.Kube(t, v1alpha2.AddToScheme)
	if err := ensureServerNamespace(t.Context(), k.Client); err != nil {
		t.Fatal(err)
	}
	watched, err := client.NewWithWatch(k.Config, client.Options{Scheme: k.Client.Scheme()})
	if err != nil {
		t.Fatal(err)
	}
	unknown := apierrors.NewServiceUnavailable("Resource kind Terraform not found. There can be a delay")
	for _, c := range []struct {
		name    string
		answers []error // before the server's own
		asked   int
		warned  string
	}{
		{"at once", nil, 1, ""},
		{"after the kinds are known", []error{unknown, apierrors.NewTooManyRequests("later", 1)}, 3, ""},
		{"somebody else's refusal", []error{errors.New("stacks are not for you")}, 1, "stacks are not for you"},
	} {
		t.Run(c.name, func(t *testing.T) {
			asked := 0
			server := interceptor.NewClient(watched, interceptor.Funcs{
				Create: func(ctx context.Context, real client.WithWatch, o client.Object, opts ...client.CreateOption) error {
					asked++
					if asked <= len(c.answers) {
						return c.answers[asked-1]
					}
					return real.Create(ctx, o, opts...)
				},
			})
			var log bytes.Buffer
			p := &parts{Options: Options{Cluster: &ClusterConfig{Definitions: true}, Now: time.Now}, log: slog.New(slog.NewTextHandler(&log, nil))}
			if err := newStamping(p, server).Ensure(t.Context()); err != nil {
				t.Fatal(err)
			}
			if asked != c.asked {
				t.Errorf("the server was asked %d times, want %d", asked, c.asked)
			}
			if (log.Len() > 0) != (c.warned != "") || !bytes.Contains(log.Bytes(), []byte(c.warned)) {
				t.Errorf("said %q, want %q", &log, c.warned)
			}
		})
	}
}
