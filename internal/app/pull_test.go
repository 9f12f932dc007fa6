package app

import (
	"context"
	"errors"
	"testing"

	"github.com/terrier-iac/terrier/internal/access"
	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/secret"
)

// noUsers is a cluster that knows no user.
type noUsers struct{}

func (noUsers) Authenticate(context.Context, secret.Text) (access.User, error) {
	return access.User{}, fault.New(fault.Denied, "X", errors.New("unknown"))
}

func (noUsers) Authorize(context.Context, access.User, access.Request) error {
	return fault.New(fault.Denied, "X", errors.New("no"))
}

func TestPulls(t *testing.T) {
	p := pulls{Auth: noUsers{}, key: secret.New("k"), host: "127.0.0.1:1"}
	user, err := p.Authenticate(t.Context(), secret.New(p.token("team-a")))
	if err != nil {
		t.Fatal(err)
	}
	for name, tt := range map[string]struct {
		access access.Request
		want   fault.Kind
	}{
		"pulls what is its own": {access.Request{Verb: "get", Resource: access.ResourceRegistry, Namespace: "team-a"}, fault.None},
		"not what is another's": {access.Request{Verb: "get", Resource: access.ResourceRegistry, Namespace: "team-b"}, fault.Denied},
		"not everything":        {access.Request{Verb: "get", Resource: access.ResourceRegistry}, fault.Denied},
		"does not push":         {access.Request{Verb: "update", Resource: access.ResourceRegistry, Namespace: "team-a"}, fault.Denied},
		"does not read logs":    {access.Request{Verb: "get", Resource: access.ResourceLog, Namespace: "team-a"}, fault.Denied},
	} {
		if got := fault.Of(p.Authorize(t.Context(), user, tt.access)); got != tt.want {
			t.Errorf("%s: %q, want %q", name, got, tt.want)
		}
	}
	other := pulls{Auth: noUsers{}, key: secret.New("another key")}
	for name, token := range map[string]string{
		"a token of another key":       other.token("team-a"),
		"a token for another name":     p.token("team-a") + "0",
		"an unknown user":              "abc",
		"a name with the token's form": pullToken + "team-a.",
	} {
		if _, err := p.Authenticate(t.Context(), secret.New(token)); fault.Of(err) != fault.Denied {
			t.Errorf("%s: %v, want Denied", name, err)
		}
	}
}
