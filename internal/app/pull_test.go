package app

import (
	"context"
	"errors"
	"testing"

	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/secret"
	"github.com/terrier-iac/terrier/internal/service"
)

// nobody stands for a cluster that knows nobody.
type nobody struct{}

func (nobody) Authenticate(context.Context, secret.Text) (service.User, error) {
	return service.User{}, fault.New(fault.Denied, "X", errors.New("unknown"))
}

func (nobody) Authorize(context.Context, service.User, service.Access) error {
	return fault.New(fault.Denied, "X", errors.New("no"))
}

func TestPulls(t *testing.T) {
	p := pulls{Auth: nobody{}, key: secret.New("k"), host: "127.0.0.1:1"}
	user, err := p.Authenticate(t.Context(), secret.New(p.token("team-a")))
	if err != nil {
		t.Fatal(err)
	}
	for name, tt := range map[string]struct {
		access service.Access
		want   fault.Kind
	}{
		"pulls what is its own": {service.Access{Verb: "get", Resource: service.ResourceRegistry, Namespace: "team-a"}, fault.None},
		"not what is another's": {service.Access{Verb: "get", Resource: service.ResourceRegistry, Namespace: "team-b"}, fault.Denied},
		"not everything":        {service.Access{Verb: "get", Resource: service.ResourceRegistry}, fault.Denied},
		"does not push":         {service.Access{Verb: "update", Resource: service.ResourceRegistry, Namespace: "team-a"}, fault.Denied},
		"does not read logs":    {service.Access{Verb: "get", Resource: service.ResourceLog, Namespace: "team-a"}, fault.Denied},
	} {
		if got := fault.Of(p.Authorize(t.Context(), user, tt.access)); got != tt.want {
			t.Errorf("%s: %q, want %q", name, got, tt.want)
		}
	}
	other := pulls{Auth: nobody{}, key: secret.New("another key")}
	for name, token := range map[string]string{
		"a token of another key":       other.token("team-a"),
		"a token for another name":     p.token("team-a") + "0",
		"somebody whom nobody knows":   "abc",
		"a name with the token's form": pullToken + "team-a.",
	} {
		if _, err := p.Authenticate(t.Context(), secret.New(token)); fault.Of(err) != fault.Denied {
			t.Errorf("%s: %v, want Denied", name, err)
		}
	}
}
