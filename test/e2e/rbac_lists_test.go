package e2e

import (
	"context"
	"net/http"
	"strings"
	"testing"

	"github.com/terrier-iac/terrier/internal/testkit"
)

// Lists are for every user, and show what is in the namespaces of the user.
func listsMatrix(t *testing.T, r *rights, users []*caller, own, other string) {
	api := "/api/v1"
	for path, right := range map[string]string{
		api + "/stacks": "list terraforms", api + "/approvals": "list terraforms", api + "/drift": "", api + "/queue": "",
		api + "/modules/uses?module=a/b/c": "", api + "/providers/uses?provider=terrier-test/world": "", api + "/registry": "", api + "/registry/tokens": "",
		api + "/audit?limit=1000": "list terraforms/audit",
		"/stacks":                 "list terraforms", "/approvals": "list terraforms", "/drift": "", "/graph": "", "/queue": "", "/sources": "", "/tenants": "",
		"/notifications": "", "/audit": "list terraforms/audit", "/retained": "", "/tokens": "", "/": "", "/about": "", "/api": "",
	} {
		for _, u := range users {
			status, answer := u.ask(t, http.MethodGet, path, "", "")
			judged(t, u.role+": "+path, true, status, answer)
			if strings.Contains(answer, other) {
				t.Errorf("%s: %s says something of the other namespace", u.role, path)
			}
			stack := own + "/net"
			if strings.HasPrefix(path, api) {
				stack = `"namespace":"` + own + `"`
			}
			switch shows := strings.Contains(answer, stack); {
			case right == "" || shows == r.has(t, u.role, right):
			case shows:
				t.Errorf("%s: %s shows the stack, and the table says that it does not: %.2000s", u.role, path, answer)
			default: // a list is of the namespaces whose permissions are known so far
				testkit.Eventually(t, testkit.Patience, u.role+": "+path+" shows the stack", func(context.Context) error {
					if _, answer := u.ask(t, http.MethodGet, path, "", ""); !strings.Contains(answer, stack) {
						return errNot("shown: " + answer)
					}
					return nil
				})
			}
		}
	}
	for path, right := range map[string]string{
		api + "/namespaces/NAMESPACE/stacks": "list terraforms", api + "/states?namespace=NAMESPACE": "list terraforms/state", api + "/retained?namespace=NAMESPACE": "list terraforms",
		"/v2/NAMESPACE/module/tags/list": "get terraforms/registry", "/v1/modules/NAMESPACE/a/b/versions": "get terraforms/registry",
	} {
		for _, u := range users {
			for _, namespace := range []string{own, other} {
				status, answer := u.ask(t, http.MethodGet, strings.Replace(path, "NAMESPACE", namespace, 1), "", "")
				judged(t, u.role+": "+path+" of "+namespace, namespace == own && r.has(t, u.role, right), status, answer)
			}
		}
	}
}
