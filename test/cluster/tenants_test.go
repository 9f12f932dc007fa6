package cluster

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/terrier-iac/terrier/internal/testkit"
)

// Tenants whose Deployments really start, and whose stacks are applied by pods: from the
// first row to the last, with a release that does not start, and rows that go at once.
func TestTenants(t *testing.T) {
	r := install(t, ship(t, root, "0.5.0"), "extraArgs: [--sqlite-dir=/var/lib/terrier/shop]\n")
	c := r.newCustomers(t)
	c.exec(t, `INSERT INTO customers VALUES ('acme', 'https://acme.example.com', 1), ('bolt', 'https://bolt.example.com', 1)`)
	template := fmt.Sprintf(shopTemplate, r.Namespace, probe(t))
	r.stacks.Apply(t, template)
	for _, name := range []string{"acme", "bolt"} {
		r.awaitShop(t, name, "https://"+name+".example.com")
		r.awaitOutput(t, name+"-database", "name", "shop_"+name)
		s, err := r.Client.CoreV1().Services(r.Namespace).Get(t.Context(), name+"-shop", metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if got := get(t, "http://"+s.Spec.ClusterIP); !strings.HasPrefix(got, "hello from "+name+"-web-") {
			t.Errorf("the shop of %s says %q", name, got)
		}
	}
	c.exec(t, `INSERT INTO customers VALUES ('crow', 'https://crow.example.com', 1)`)
	r.awaitShop(t, "crow", "https://crow.example.com")

	// A release that does not start: the tenants say so, and the pods of before go on.
	r.stacks.Apply(t, strings.Replace(template, `args: [serve, ":8080"]`, `args: [break]`, 1))
	r.awaitTenant(t, "acme", "False")
	before := r.must(t, "--namespace", r.Namespace, "get", "deployment", "acme-web", "-o", "jsonpath={.status.availableReplicas}")
	if before != "1" {
		t.Errorf("while the new pod does not start %q pods are available, want the one of before", before)
	}
	r.stacks.Apply(t, template)
	r.awaitTenant(t, "acme", "True")
	r.awaitShop(t, "acme", "https://acme.example.com")

	// One goes with all that it has. All others at once are kept by a guard.
	r.closeShop(t, c, "acme")
	testkit.Eventually(t, testkit.Patience, "nothing of acme is left", func(ctx context.Context) error {
		_, deployment := r.Client.AppsV1().Deployments(r.Namespace).Get(ctx, "acme-web", metav1.GetOptions{})
		_, settings := r.Client.CoreV1().ConfigMaps(r.Namespace).Get(ctx, "acme-settings", metav1.GetOptions{})
		pods, err := r.Client.CoreV1().Pods(r.Namespace).List(ctx, metav1.ListOptions{LabelSelector: "app=acme-web"})
		if err != nil || len(pods.Items) > 0 || !apierrors.IsNotFound(deployment) || !apierrors.IsNotFound(settings) {
			return errors.Join(errors.New("something is there"), err, deployment, settings)
		}
		return nil
	})
	r.stacks.AwaitGone(t, "acme-database")
	c.exec(t, `DELETE FROM customers`)
	r.must(t, "--namespace", r.Namespace, "wait", "tenantregistry", "customers", "--for=condition=Guarded", "--timeout=2m")
	for _, name := range []string{"bolt", "crow"} {
		r.awaitShop(t, name, "https://"+name+".example.com")
	}
	c.exec(t, `INSERT INTO customers VALUES ('bolt', 'https://bolt.example.com', 1), ('crow', 'https://crow.example.com', 1)`)
	r.closeShop(t, c, "crow")
	r.closeShop(t, c, "bolt")
	r.awaitNoPods(t)
	helm(t, "uninstall", "terrier", "--wait")
}

// awaitTenant waits until a tenant is ready or not, as it is now.
func (r *release) awaitTenant(t *testing.T, tenant, ready string) {
	t.Helper()
	testkit.Eventually(t, testkit.Patience, "the tenant "+tenant+" has Ready "+ready, func(context.Context) error {
		got, err := r.kubectl(t, r.Namespace, "get", "tenant", tenant+"-shop", "-o",
			`jsonpath={.metadata.generation} {.status.conditions[?(@.type=="Ready")].observedGeneration} {.status.conditions[?(@.type=="Ready")].status} {.status.conditions}`)
		if err != nil {
			return fmt.Errorf("%s: %w", got, err)
		}
		if fields := strings.Fields(got); len(fields) < 3 || fields[0] != fields[1] || fields[2] != ready {
			return fmt.Errorf("it says %s", got)
		}
		return nil
	})
}
