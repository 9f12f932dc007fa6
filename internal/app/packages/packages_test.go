package packages

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/terrier-iac/terrier/internal/access"
	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/registry/protocol"
	"github.com/terrier-iac/terrier/internal/secret"
)

// roles know one token, whose user may read one namespace.
type roles struct{}

const account = "system:serviceaccount:team-a:ci"

func (roles) Authenticate(_ context.Context, t secret.Text) (access.User, error) {
	switch t.Reveal() {
	case "good":
		return access.User{Name: account}, nil
	case "later":
		return access.User{}, fault.New(fault.Later, access.ReasonUnreachable, errors.New("the cluster cannot be reached"))
	default:
		return access.User{}, fault.New(fault.Denied, access.ReasonUnknownUser, errors.New("unknown token"))
	}
}

func (roles) Authorize(_ context.Context, u access.User, a access.Request) error {
	if u.Name == account && a.Verb == "get" && a.Resource == access.ResourceRegistry && a.Namespace == "team-a" {
		return nil
	}
	return fault.New(fault.Denied, access.ReasonAccessDenied, errors.New("no"))
}

// RG-19: the roles of the cluster are the rights of the registry.
func TestRightsOfTheCluster(t *testing.T) {
	o := ofCluster{roles{}}
	ask := func(token string) (protocol.Caller, error) {
		r := httptest.NewRequest(http.MethodGet, "/v1/mirror/registry.example.com/a/b/index.json", nil)
		if token != "" {
			r.Header.Set("Authorization", "Bearer "+token)
		}
		return o.Caller(r)
	}
	unknown := fault.Reason(protocol.Unauthenticated(errNoUser), "")
	for _, token := range []string{"", "bad"} {
		if _, err := ask(token); fault.Reason(err, "") != unknown {
			t.Errorf("the token %q: %v, want the status 401", token, err)
		}
	}
	if _, err := ask("later"); fault.Of(err) != fault.Later {
		t.Errorf("a cluster that cannot be reached: %v, want Later", err)
	}
	c, err := ask("good")
	if err != nil || c.Name != account || c.Tenant != "team-a" {
		t.Fatalf("the caller is %q of %q, %v", c.Name, c.Tenant, err)
	}
	for _, tt := range []struct {
		verb      protocol.Verb
		namespace string
		want      fault.Kind
	}{
		{protocol.Read, "team-a", fault.None}, {protocol.Write, "team-a", fault.Denied}, {protocol.Read, "team-b", fault.Denied},
		{protocol.Read, "", fault.None}, {protocol.Write, "", fault.Denied},
	} {
		if err := o.May(t.Context(), c, tt.verb, tt.namespace); fault.Of(err) != tt.want {
			t.Errorf("May(%s, %q) = %v, want %q", tt.verb, tt.namespace, err, tt.want)
		}
	}
	if err := o.May(t.Context(), protocol.Caller{Name: "forged"}, protocol.Read, "team-a"); fault.Reason(err, "") != unknown {
		t.Errorf("May() of a caller of another making = %v, want the status 401", err)
	}
}

func TestCheck(t *testing.T) {
	none := func(string) string { return "" }
	for name, tt := range map[string]struct {
		on                bool
		storage, settings string
		want              string
	}{
		"off":                   {false, "", "", ""},
		"a directory":           {true, "/srv/packages", "", ""},
		"a bucket":              {true, "s3://modules/x?region=eu-west-1", "", ""},
		"settings of none":      {false, "", "mirror.yaml", "need --registry"},
		"a path that moves":     {true, "packages", "", "--registry-storage"},
		"a bucket that is none": {true, "ftp://x", "", "--registry-storage"},
	} {
		if err := Check(tt.on, tt.storage, tt.settings, none); (err == nil) != (tt.want == "") || err != nil && !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: Check() = %v, want %q", name, err, tt.want)
		}
	}
}
