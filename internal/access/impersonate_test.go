package access

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

// Acting for a ServiceAccount takes no right to its groups, which the API server knows
// by itself. Any other group has to be permitted.
func TestGroupsThatNeedARight(t *testing.T) {
	const account = "system:serviceaccount:team-a:robot"
	for name, tt := range map[string]struct {
		user User
		want []string
	}{
		"a user":                             {User{Name: "ann", Groups: []string{"login:net", authenticated}}, []string{"login:net"}},
		"a ServiceAccount":                   {User{Name: account, Groups: []string{"system:serviceaccounts", "system:serviceaccounts:team-a", authenticated}}, nil},
		"a ServiceAccount in another group":  {User{Name: account, Groups: []string{"system:serviceaccounts", "robots"}}, []string{"system:serviceaccounts", "robots"}},
		"a user in the groups of an account": {User{Name: "ann", Groups: []string{"system:serviceaccounts"}}, []string{"system:serviceaccounts"}},
	} {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(tt.want, tt.user.impersonation().Groups); diff != "" {
				t.Errorf("the groups (-want +got):\n%s", diff)
			}
		})
	}
}
