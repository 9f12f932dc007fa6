package app

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/terrier-iac/terrier/api/infra/v1alpha2"
	"github.com/terrier-iac/terrier/config/admission"
	"github.com/terrier-iac/terrier/internal/kube"
	"github.com/terrier-iac/terrier/internal/testkit"
)

// Where the API server stamps by itself, no policy is put beside it.
func TestStampsAreNotAskedForTwice(t *testing.T) {
	k := testkit.Kube(t, v1alpha2.AddToScheme, admissionregistrationv1.AddToScheme)
	if err := ensureServerNamespace(t.Context(), k.Client); err != nil {
		t.Fatal(err)
	}
	if err := stamps(t.Context(), k.Client, slog.New(slog.DiscardHandler)); err != nil {
		t.Fatal(err)
	}
	if there, err := kube.PoliciesThere(t.Context(), k.Client, admission.Files); there || err != nil {
		t.Errorf("policies are there: %v, %v; want none, since the server stamps by itself", there, err)
	}
}

// An API server that has just got to know a kind refuses it for some seconds if
// there is a policy for it. Nothing of ours is created before that is over.
func TestStampsAreAwaited(t *testing.T) {
	k := testkit.Kube(t, v1alpha2.AddToScheme)
	watched, err := client.NewWithWatch(k.Config, client.Options{Scheme: k.Client.Scheme()})
	if err != nil {
		t.Fatal(err)
	}
	unknown := apierrors.NewServiceUnavailable("Resource kind Terraform not found. There can be a delay")
	for _, c := range []struct {
		name    string
		answers []error // before the server's own; nil is a stack without a stamp
		asked   int
		warned  string
	}{
		{"at once", nil, 1, ""},
		{"after the kinds are known and the policy is", []error{unknown, apierrors.NewTooManyRequests("later", 1), nil, nil}, 5, ""},
		{"somebody else's refusal", []error{errors.New("stacks are not for you"), nil}, 1, "stacks are not for you"},
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
			if err := awaitStamps(t.Context(), server, slog.New(slog.NewTextHandler(&log, nil))); err != nil {
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
