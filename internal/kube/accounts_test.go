package kube

import (
	"testing"

	"k8s.io/apimachinery/pkg/types"

	"github.com/terrier-iac/terrier/internal/fault"
)

// What a tenant calls a ServiceAccount is a name, and makes no other user of it.
func TestNamesOfAccounts(t *testing.T) {
	got, err := AccountUser(types.NamespacedName{Namespace: "team-a", Name: "net.runner-1"})
	if err != nil || got != "system:serviceaccount:team-a:net.runner-1" {
		t.Errorf("AccountUser() = %q, %v", got, err)
	}
	for _, of := range []types.NamespacedName{
		{Namespace: "team-a"}, {Namespace: "team-a", Name: "x:y"}, {Namespace: "team-a", Name: "../b"}, {Namespace: "team-a", Name: "system:admin"},
		{Namespace: "team-a", Name: "a\r\nImpersonate-Group: system:masters"}, {Namespace: "team-a:b", Name: "c"}, {Name: "c"},
	} {
		if user, err := AccountUser(of); fault.Of(err) != fault.Invalid {
			t.Errorf("AccountUser(%+v) = %q, %v, want it refused", of, user, err)
		}
	}
}
