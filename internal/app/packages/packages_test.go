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
	"github.com/terrier-iac/terrier/internal/web"
)

// roles let one user read one namespace.
type roles struct{}

const account = "system:serviceaccount:team-a:ci"

func (roles) Authenticate(context.Context, secret.Text) (access.User, error) {
	return access.User{}, errors.New("the server has found out the user")
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
	ask := func(name string) (protocol.Caller, error) {
		r := httptest.NewRequest(http.MethodGet, "/v1/mirror/registry.example.com/a/b/index.json", nil)
		return o.Caller(r.WithContext(web.WithUser(r.Context(), access.User{Name: name})))
	}
	unknown := fault.Reason(protocol.Unauthenticated(errNoUser), "")
	if _, err := ask(""); fault.Reason(err, "") != unknown {
		t.Errorf("a request without a user: %v, want the status 401", err)
	}
	for name, tenant := range map[string]string{account: "team-a", access.OwnUsers + "run:team-b": "team-b", "ann@example.com": ""} {
		if c, err := ask(name); err != nil || c.Name != name || c.Tenant != tenant {
			t.Errorf("the caller %s is %q of %q, %v, want the tenant %q", name, c.Name, c.Tenant, err, tenant)
		}
	}
	c, err := ask(account)
	if err != nil {
		t.Fatal(err)
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
