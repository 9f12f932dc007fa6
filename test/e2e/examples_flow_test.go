package e2e

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	_ "modernc.org/sqlite" // the driver that registries use, too

	"github.com/terrier-iac/terrier/internal/testkit"
)

// guide is a platform that has the providers which the guide names.
var guide = sync.OnceValues(func() (string, error) {
	mirror, err := filepath.Abs("../../bin/mirror-guide")
	if err == nil {
		_, err = os.Stat(mirror)
	}
	return mirror, err
})

func guidePlatform(t *testing.T) *testkit.Platform {
	t.Helper()
	mirror, err := guide()
	if err != nil {
		t.Fatalf("run make providers-guide: %v", err)
	}
	return testkit.Up(t, "--provider-mirror", mirror, "--sqlite-dir", os.TempDir())
}

// example is a namespace with one template of the guide and its registry.
type example struct {
	*testkit.Cluster
	rows  *sql.DB
	cloud string // the file that stands in for a cloud
}

// newExample applies a template as it is, but for the namespace, and a registry
// that the template names, without rows. Credentials are what the example says
// there are.
func newExample(t *testing.T, p *testkit.Platform, name string, credentials map[string]map[string]string) *example {
	t.Helper()
	e := &example{Cluster: p.Cluster(t), cloud: filepath.Join(p.Shared(t), "cloud.json")}
	text, err := os.ReadFile(filepath.Join(guideDir, name+".yaml"))
	if err != nil {
		t.Fatal(err)
	}
	for secret, data := range credentials {
		data = maps.Clone(data)
		if secret == "aws-credentials" {
			data["AWS_ENDPOINT_URL"] = "file://" + e.cloud
		}
		e.PutSecret(t, secret, data)
	}
	path := filepath.Join(t.TempDir(), "rows.db")
	if e.rows, err = sql.Open("sqlite", path); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { e.rows.Close() })
	e.sql(t, "CREATE TABLE tenants (id TEXT PRIMARY KEY, url TEXT, active INTEGER)")
	_, registry, _ := strings.Cut(string(text), "registryId: ")
	registry, _, _ = strings.Cut(registry, "\n")
	e.Apply(t, fmt.Sprintf(`
apiVersion: operator.kubernetes-tenants.org/v1
kind: TenantRegistry
metadata: {name: %s}
spec:
  source: {type: sqlite, syncInterval: 1s, sqlite: {path: %q, table: tenants}}
  valueMappings: {uid: id, hostOrUrl: url, activate: active}
`, registry, path))
	e.Apply(t, strings.ReplaceAll(string(text), "  namespace: default\n", "  namespace: "+e.Namespace+"\n"))
	return e
}

func (e *example) sql(t *testing.T, statement string, args ...any) {
	t.Helper()
	if _, err := e.rows.ExecContext(t.Context(), statement, args...); err != nil {
		t.Fatal(err)
	}
}

// holds are the resources in the cloud, by kind and id.
func (e *example) holds(t *testing.T) []string {
	t.Helper()
	var account struct{ Holds map[string]json.RawMessage }
	text, err := os.ReadFile(e.cloud)
	if err == nil {
		err = json.Unmarshal(text, &account)
	}
	if err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	return slices.Sorted(maps.Keys(account.Holds))
}

var awsCredentials = map[string]map[string]string{"aws-credentials": {
	"AWS_ACCESS_KEY_ID": "AKIAEXAMPLE", "AWS_SECRET_ACCESS_KEY": "of the guide", "AWS_DEFAULT_REGION": "us-east-1",
}}

// An example from an active row to the cloud, and back when the row is not
// active any more (A2, A3, A6, A10, A11).
func TestGuideExampleCDN(t *testing.T) {
	e := newExample(t, guidePlatform(t), "tenant-with-cdn", awsCredentials)
	e.sql(t, "INSERT INTO tenants VALUES ('tenant-alpha', 'https://alpha.example.com/x', 1)")
	testkit.Eventually(t, time.Minute, "the tenant is there", func(context.Context) error {
		if e.Kubectl(t, "get", "tenant", "tenant-alpha-tenant-with-cdn", "--ignore-not-found", "-o", "name") == "" {
			return errNot("a Tenant")
		}
		return nil
	})
	testkit.Eventually(t, time.Minute, "its stack is there", func(context.Context) error {
		if len(e.Kubectl(t, "get", "terraform", "tenant-alpha-cdn", "--ignore-not-found", "-o", "name")) == 0 {
			return errNot("a Terraform")
		}
		return nil
	})
	e.AwaitReady(t, "tenant-alpha-cdn")
	got := e.Secret(t, "tenant-alpha-cdn-outputs")
	if want := []string{"cdn_arn", "cdn_distribution_id", "cdn_domain_name"}; !cmp.Equal(want, slices.Sorted(maps.Keys(got))) {
		t.Errorf("the outputs are %v, want %v", got, want)
	}
	if want := []string{"aws_cloudfront_distribution/" + got["cdn_distribution_id"], "aws_s3_bucket/tenant-tenant-alpha-cdn-logs"}; !cmp.Equal(want, e.holds(t)) {
		t.Errorf("the cloud holds %v, want %v", e.holds(t), want)
	}
	e.sql(t, "UPDATE tenants SET active = 0")
	e.AwaitGone(t, "tenant-alpha-cdn")
	if left := e.holds(t); len(left) > 0 {
		t.Errorf("the cloud still holds %v", left)
	}
}
