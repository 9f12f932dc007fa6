package chart

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
)

// right is one verb on one resource, granted by a role.
type right struct {
	role, where     string // where: everywhere, or the namespaces of the bindings
	group, resource string
	verb            string
	names           []string
}

func (r right) String() string {
	of := r.resource
	if r.group != "" {
		of += "." + r.group
	}
	if len(r.names) > 0 {
		of += " " + strings.Join(r.names, ",")
	}
	return fmt.Sprintf("%-40s %-12s %s", r.where, r.verb, of)
}

func as[T any](t *testing.T, o *unstructured.Unstructured) T {
	t.Helper()
	var into T
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(o.Object, &into); err != nil {
		t.Fatal(err)
	}
	return into
}

// rights are those that a rendering gives to the account of the controller.
func rights(t *testing.T, all []*unstructured.Unstructured) []right {
	t.Helper()
	rules := map[string][]rbacv1.PolicyRule{}
	where := map[string][]string{}
	for _, o := range all {
		switch o.GetKind() {
		case "ClusterRole":
			rules["ClusterRole "+o.GetName()] = as[rbacv1.ClusterRole](t, o).Rules
		case "Role":
			rules["Role "+o.GetName()] = as[rbacv1.Role](t, o).Rules
		case "ClusterRoleBinding":
			b := as[rbacv1.ClusterRoleBinding](t, o)
			where["ClusterRole "+b.RoleRef.Name] = []string{"everywhere"}
		case "RoleBinding":
			b := as[rbacv1.RoleBinding](t, o)
			if b.Subjects[0].Kind != rbacv1.ServiceAccountKind {
				continue // of users
			}
			key := b.RoleRef.Kind + " " + b.RoleRef.Name
			where[key] = append(where[key], b.Namespace)
		}
	}
	var out []right
	for role, of := range where {
		for _, rule := range rules[role] {
			for _, group := range rule.APIGroups {
				for _, resource := range rule.Resources {
					for _, verb := range rule.Verbs {
						out = append(out, right{role, strings.Join(of, ","), group, resource, verb, rule.ResourceNames})
					}
				}
			}
		}
	}
	slices.SortFunc(out, func(a, b right) int { return strings.Compare(a.String(), b.String()) })
	return out
}

// What the controller may do is reviewed as a file, for each set of values. Nothing
// in it is a wildcard, and Secrets are granted by namespace.
func TestRights(t *testing.T) {
	for _, name := range []string{"default", "namespaces", "accounts", "replicas", "everything"} {
		t.Run(name, func(t *testing.T) {
			text, err := template(t, "--values", matrix(t)[name])
			if err != nil {
				t.Fatal(text)
			}
			var golden strings.Builder
			for _, r := range rights(t, objects(t, text)) {
				fmt.Fprintln(&golden, r)
				for _, s := range []string{r.group, r.resource, r.verb} {
					if strings.Contains(s, "*") {
						t.Errorf("a right is a wildcard: %s", r)
					}
				}
				if r.resource == "secrets" && r.where == "everywhere" && name != "everything" {
					t.Errorf("Secrets of all namespaces: %s", r)
				}
				if r.verb == "impersonate" && (r.resource == "users" || r.resource == "groups") && len(r.names) == 0 && name != "everything" {
					t.Errorf("acting for everybody: %s", r)
				}
				if name == "accounts" && (r.resource == "secrets" || r.resource == "configmaps") && slices.Contains([]string{"list", "watch"}, r.verb) {
					t.Errorf("the controller reads as ServiceAccounts, and may still find every Secret: %s", r)
				}
				if slices.Contains([]string{"escalate", "bind", "deletecollection"}, r.verb) {
					t.Errorf("%s is more than a controller needs", r)
				}
			}
			generated(t, "testdata/rights-"+name+".txt", golden.String())
		})
	}
}

// Two releases of the chart in a cluster do not change each other's roles.
func TestNamesAreOfTheRelease(t *testing.T) {
	text := mustHelm(t, "template", "second", chart, "--namespace", "terrier-system", "--set", "metrics.enabled=true,metrics.dashboard.enabled=true")
	for _, o := range objects(t, text) {
		if !strings.HasPrefix(o.GetName(), "second-terrier") {
			t.Errorf("%s does not bear the name of the release", sprint(o))
		}
	}
}
