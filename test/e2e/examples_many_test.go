package e2e

import (
	"context"
	"fmt"
	"regexp"
	"strconv"
	"testing"

	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1alpha2 "github.com/terrier-iac/terrier/api/infra/v1alpha2"
	"github.com/terrier-iac/terrier/internal/testkit"
)

// A14: a hundred tenants of the whole example at once are a hundred stacks that
// wait for two runs, whatever the cloud does, and few writes for each of them.
func TestA14AHundredTenantsAtOnce(t *testing.T) {
	t.Parallel()
	const tenants, runs, writes = 100, 2, 10
	p := guidePlatform(t, "--max-runs", strconv.Itoa(runs))
	e := newExample(t, p, "enterprise-tenant-stack", awsCredentials)
	release := e.slow(t)
	before := e.writes(t)
	e.sql(t, fmt.Sprintf("WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i+1 FROM n WHERE i < %d) INSERT INTO tenants SELECT 'tenant-' || i, 'https://' || i || '.example.com', 1 FROM n", tenants))
	testkit.Eventually(t, testkit.Patience, "all stacks are there, and those that may be are at work", func(ctx context.Context) error {
		if at := testkit.EnginesAtOnce(p); len(at) > runs {
			t.Fatalf("%d engines are at work, with %d runs allowed: %v", len(at), runs, at)
		}
		var stacks infrav1alpha2.TerraformList
		if err := e.Client.List(ctx, &stacks, client.InNamespace(e.Namespace)); err != nil {
			return err
		}
		working, waiting := 0, 0
		for i := range stacks.Items {
			switch err := waitsFor("Waiting for its turn")(&stacks.Items[i]); {
			case err == nil:
				waiting++
			case stacks.Items[i].Status.Terrier != nil && stacks.Items[i].Status.Terrier.Phase == "Applying":
				working++
			}
		}
		if working != runs || waiting != tenants-runs {
			return fmt.Errorf("of %d stacks %d are being applied, and %d wait for that", len(stacks.Items), working, waiting)
		}
		return nil
	})
	after := e.writes(t)
	for resource, n := range after {
		if n -= before[resource]; n > writes*tenants {
			t.Errorf("there were %d writes of %s for %d tenants, want at most %d for each", n, resource, tenants, writes)
		}
	}
	e.Terrier(t, "suspend", "tenantregistry/enterprise-registry")
	e.Kubectl(t, "delete", "tenants", "--all", "--wait=false")
	testkit.Eventually(t, testkit.Patience, "the tenants are gone", func(ctx context.Context) error {
		if left := e.Kubectl(t, "get", "tenants", "-o", "name"); left != "" {
			return errNot("the last of them: " + left)
		}
		return nil
	})
	release()
}

// writes counts what was written to the API server so far, by kind of object.
func (e *example) writes(t *testing.T) map[string]int {
	t.Helper()
	of := regexp.MustCompile(`(?m)^apiserver_request_total\{.*resource="(tenants|terraforms|secrets|events)".*verb="(?:POST|PUT|PATCH|APPLY|DELETE)".*\} (\d+)$`)
	all := map[string]int{}
	for _, m := range of.FindAllStringSubmatch(e.Kubectl(t, "get", "--raw", "/metrics"), -1) {
		n, err := strconv.Atoi(m[2])
		if err != nil {
			t.Fatal(err)
		}
		all[m[1]] += n
	}
	if all["secrets"] == 0 {
		t.Fatal("the API server counts no writes")
	}
	return all
}
