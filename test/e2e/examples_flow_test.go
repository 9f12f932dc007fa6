package e2e

import (
	"context"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/api/meta"

	tenantsv1 "github.com/terrier-iac/terrier/api/tenants/v1"
	"github.com/terrier-iac/terrier/internal/testkit"
)

// The examples of Tenant Operator's guide as they are written, from a row to what
// it builds, and back. Each is told in a namespace of its own; all share one
// platform.
func TestGuide(t *testing.T) {
	t.Parallel()
	p := guidePlatform(t)
	for name, tell := range map[string]func(*testing.T, *testkit.Platform){
		"S3": guideS3, "RDS": guideRDS, "CDN": guideCDN, "Git": guideGit, "Enterprise": guideEnterprise,
		"Kafka": guideKafka, "RabbitMQ": guideRabbitMQ, "PostgreSQL": guidePostgreSQL, "Redis": guideRedis,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			tell(t, p)
		})
	}
}

// Example 3: everything goes with the row, by the credentials that made it (A2,
// A3, A6, A10, A11); but nothing because the rows cannot be read (A18).
func guideCDN(t *testing.T, p *testkit.Platform) {
	e := newExample(t, p, "tenant-with-cdn", awsCredentials)
	e.activate(t)
	e.awaitStack(t, "tenant-alpha-cdn")
	got := e.outputs(t, "tenant-alpha-cdn-outputs", "cdn_arn", "cdn_distribution_id", "cdn_domain_name")
	built := []string{"aws_cloudfront_distribution/" + got["cdn_distribution_id"], "aws_s3_bucket/tenant-tenant-alpha-cdn-logs"}
	if diff := cmp.Diff(built, e.holds(t)); diff != "" {
		t.Errorf("the cloud holds something else (-want +got):\n%s", diff)
	}

	away := filepath.Join(t.TempDir(), "away.db")
	move(t, e.database, away)
	e.awaitRegistry(t, "my-registry", false)
	o := e.awaitTenant(t, "is there", func(*tenantsv1.Tenant) error { return nil })
	if s := e.Stack(t, "tenant-alpha-cdn"); !o.DeletionTimestamp.IsZero() || !s.DeletionTimestamp.IsZero() {
		t.Error("without its database the tenant is being deleted")
	}
	move(t, away, e.database)
	e.awaitRegistry(t, "my-registry", true)

	e.deactivate(t)
	e.AwaitGone(t, "tenant-alpha-cdn")
	account := e.account(t)
	if len(account.Holds) > 0 || len(account.Deleted) != len(built) {
		t.Errorf("the cloud still holds %v, and has deleted %v", account.Holds, account.Deleted)
	}
	for _, d := range account.Deleted {
		if d.By != accessKey {
			t.Errorf("%s was deleted by %q", d.ID, d.By)
		}
	}
}

func move(t *testing.T, from, to string) {
	t.Helper()
	if err := os.Rename(from, to); err != nil {
		t.Fatal(err)
	}
}

func (e *example) awaitRegistry(t *testing.T, name string, ready bool) {
	t.Helper()
	testkit.Eventually(t, testkit.Patience, "the registry knows how its database is", func(context.Context) error {
		var o tenantsv1.TenantRegistry
		e.get(t, "TenantRegistry", name, &o)
		if c := meta.FindStatusCondition(o.Status.Conditions, "Ready"); c == nil || meta.IsStatusConditionTrue(o.Status.Conditions, "Ready") != ready {
			return errNot("what it says")
		}
		return nil
	})
}
