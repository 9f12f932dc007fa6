package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"

	infrav1alpha2 "github.com/terrier-iac/terrier/api/infra/v1alpha2"
	tenantsv1 "github.com/terrier-iac/terrier/api/tenants/v1"
	"github.com/terrier-iac/terrier/internal/testkit"
)

// awaitApp waits for a Deployment, and checks that the stack is ready for its
// newest spec by then (A5), and that whatever the Deployment takes from Secrets
// is there (A6).
func (e *example) awaitApp(t *testing.T, name, stack string, until func(*appsv1.Deployment) error) {
	t.Helper()
	var app appsv1.Deployment
	e.awaitMade(t, name, &app)
	testkit.Eventually(t, testkit.Patience, "the Deployment is as it should be", func(context.Context) error {
		app = appsv1.Deployment{}
		e.Get(t, name, &app)
		return until(&app)
	})
	if err := testkit.IsReady(e.Stack(t, stack)); err != nil {
		t.Errorf("the Deployment is there, and the stack is not: %v", err)
	}
	for _, v := range app.Spec.Template.Spec.Containers[0].Env {
		if v.ValueFrom != nil && e.Secret(t, v.ValueFrom.SecretKeyRef.Name)[v.ValueFrom.SecretKeyRef.Key] == "" {
			t.Errorf("the Deployment is there, and %v is not", v.ValueFrom.SecretKeyRef)
		}
	}
}

func anyApp(*appsv1.Deployment) error { return nil }

func withImage(image string) func(*appsv1.Deployment) error {
	return func(app *appsv1.Deployment) error {
		if got := app.Spec.Template.Spec.Containers[0].Image; got != image {
			return fmt.Errorf("its image is %s", got)
		}
		return nil
	}
}

// waits checks that a tenant has seen its newest generation, and its stack is
// still at it.
func (e *example) waits(t *testing.T, stack string, generation int64) {
	t.Helper()
	testkit.Eventually(t, testkit.Patience, "the stack is being applied", func(context.Context) error {
		s := &infrav1alpha2.Terraform{}
		if !e.Exists(t, stack, s) || s.Generation <= generation || s.Status.ObservedGeneration != s.Generation {
			return errNot("a stack in its newest generation")
		}
		return nil
	})
	e.awaitTenant(t, "waits for its stack", func(o *tenantsv1.Tenant) error {
		if o.Status.ObservedGeneration != o.Generation || !slices.ContainsFunc(o.Status.Resources, func(r tenantsv1.ResourceStatus) bool { return r.ID == "app-deploy" }) {
			return fmt.Errorf("it is %+v", o.Status)
		}
		return nil
	})
	if testkit.IsReady(e.Stack(t, stack)) == nil {
		t.Error("the stack is ready, while the cloud does nothing")
	}
}

// Example 1: the application waits for its bucket, at first and when the template
// changes (A5), and all of it goes (A10). The module is the root of a repository,
// since the example names one, and so its text is not the program.
func guideS3(t *testing.T, p *testkit.Platform) {
	e := newExample(t, p, "tenant-with-s3", awsCredentials)
	e.Apply(t, e.repository(t, map[string]string{"main.tf": e.written(t).Values.HCL}))
	release := e.slow(t)
	e.activate(t)
	e.waits(t, "tenant-alpha-s3", 0)
	if e.Exists(t, "tenant-alpha-app", &appsv1.Deployment{}) || e.Exists(t, "tenant-alpha-config", &corev1.ConfigMap{}) {
		t.Error("the application did not wait for its bucket")
	}
	release()
	s := e.awaitStack(t, "tenant-alpha-s3")
	if got := s.Annotations["tenant-operator.kubernetes-tenants.org/tenant-id"]; got != "tenant-alpha" {
		t.Errorf("the annotation of the template is %q", got)
	}
	e.awaitApp(t, "tenant-alpha-app", "tenant-alpha-s3", anyApp)
	got := e.outputs(t, "tenant-alpha-s3-outputs", "bucket_arn", "bucket_name", "bucket_region")
	if got["bucket_name"] != "tenant-tenant-alpha-bucket" || len(e.holds(t)) != 3 {
		t.Errorf("the cloud holds %v, and the outputs are %v", e.holds(t), got)
	}

	release = e.slow(t)
	e.Apply(t, strings.NewReplacer(`value: "us-east-1"`, `value: "us-west-2"`, "app:latest", "app:next").Replace(e.seed(t)))
	e.waits(t, "tenant-alpha-s3", s.Generation)
	var app appsv1.Deployment
	if e.Get(t, "tenant-alpha-app", &app); withImage("mycompany/app:latest")(&app) != nil {
		t.Error("the application was changed before its bucket")
	}
	release()
	e.awaitApp(t, "tenant-alpha-app", "tenant-alpha-s3", withImage("mycompany/app:next"))

	e.deactivate(t)
	e.AwaitGone(t, "tenant-alpha-s3")
	if account := e.account(t); len(account.Holds) > 0 || e.Exists(t, "tenant-alpha-app", &app) {
		t.Errorf("the cloud still holds %v", e.holds(t))
	}
	e.silent(t, secretKey)
}

// repository is a source as the guide calls it.
func (e *example) repository(t *testing.T, files map[string]string) string {
	t.Helper()
	g := testkit.NewGit(t)
	g.Commit(files)
	return g.Manifest("terraform-modules")
}

// Example 2: a database is made once, and stays when its tenant goes (A8, A9).
func guideRDS(t *testing.T, p *testkit.Platform) {
	e := newExample(t, p, "tenant-with-rds", awsCredentials)
	e.activate(t)
	before := e.awaitStack(t, "tenant-alpha-rds")
	e.awaitApp(t, "tenant-alpha-app", "tenant-alpha-rds", anyApp)
	got := e.outputs(t, "tenant-alpha-db-credentials", "db_endpoint", "db_name", "db_password", "db_port", "db_port__type", "db_username")
	if got["db_name"] != "tenant_tenant_alpha" || got["db_port"] != "5432" || len(got["db_password"]) != 32 {
		t.Errorf("the outputs are %v", got)
	}
	held := e.holds(t)
	if len(held) != 2 {
		t.Errorf("the cloud holds %v", held)
	}

	e.Apply(t, strings.NewReplacer("db.t3.micro", "db.t3.large", "app:latest", "app:next").Replace(e.seed(t)))
	e.awaitApp(t, "tenant-alpha-app", "tenant-alpha-rds", withImage("mycompany/app:next"))
	after := e.Stack(t, "tenant-alpha-rds")
	if diff := cmp.Diff(before.Spec, after.Spec); diff != "" || after.Generation != before.Generation || after.UID != before.UID {
		t.Errorf("the template changed what is made once:\n%s", diff)
	}

	e.deactivate(t)
	e.orphaned(t, "tenant-alpha-rds", "tenant-alpha-db-credentials")
	if e.Exists(t, "tenant-alpha-app", &appsv1.Deployment{}) {
		t.Error("the application is still there")
	}
	if diff := cmp.Diff(held, e.holds(t)); diff != "" {
		t.Errorf("the cloud has lost something:\n%s", diff)
	}
	e.silent(t, secretKey, got["db_password"])
}

// Example 4: a module in a directory of a repository.
func guideGit(t *testing.T, p *testkit.Platform) {
	e := newExample(t, p, "tenant-with-git-modules", awsCredentials)
	e.Apply(t, e.repository(t, map[string]string{"modules/tenant-stack/main.tf": `
variable "tenant_id" {}
variable "tenant_host" {}
variable "environment" {}
resource "aws_s3_bucket" "it" {
  bucket = "${var.environment}-${var.tenant_id}"
  tags   = { Host = var.tenant_host }
}
output "bucket" { value = aws_s3_bucket.it.id }
output "host"   { value = aws_s3_bucket.it.tags.Host }
`}))
	e.activate(t)
	e.awaitStack(t, "tenant-alpha-infra")
	want := map[string]string{"bucket": "production-tenant-alpha", "host": "alpha.example.com"}
	if diff := cmp.Diff(want, e.Secret(t, "tenant-alpha-infra-outputs")); diff != "" {
		t.Errorf("the outputs (-want +got):\n%s", diff)
	}
	e.deactivate(t)
	e.AwaitGone(t, "tenant-alpha-infra")
	if left := e.holds(t); len(left) > 0 {
		t.Errorf("the cloud still holds %v", left)
	}
}

// The whole stack of an enterprise: ten outputs, which the application takes from
// the Secret and which are nowhere else (A5, A6, A7), and all of it stays (A9).
func guideEnterprise(t *testing.T, p *testkit.Platform) {
	e := newExample(t, p, "enterprise-tenant-stack", awsCredentials)
	e.activate(t)
	e.awaitStack(t, "tenant-alpha-infrastructure")
	e.awaitApp(t, "tenant-alpha-app", "tenant-alpha-infrastructure", anyApp)
	e.awaitMade(t, "tenant-alpha-infra-config", &corev1.ConfigMap{})
	got := e.outputs(t, "tenant-alpha-infrastructure", "cdn_distribution_id", "cdn_domain", "db_endpoint", "db_name", "db_password",
		"db_username", "iam_access_key_id", "iam_secret_access_key", "s3_data_bucket", "s3_static_bucket")
	held := e.account(t).Holds
	if len(held) != 9 {
		t.Errorf("the cloud holds %v", slices.Sorted(maps.Keys(held)))
	}
	var user struct{ Attributes struct{ Policy string } }
	if err := json.Unmarshal(held["aws_iam_user_policy/tenant-tenant-alpha-user:tenant-tenant-alpha-s3-policy"], &user); err != nil || !strings.Contains(user.Attributes.Policy, got["s3_data_bucket"]) {
		t.Errorf("the policy of its user is %+v, %v", user, err)
	}
	e.deactivate(t)
	e.orphaned(t, "tenant-alpha-infrastructure", "tenant-alpha-infrastructure")
	if diff := cmp.Diff(slices.Sorted(maps.Keys(held)), e.holds(t)); diff != "" {
		t.Errorf("the cloud has lost something:\n%s", diff)
	}
	e.silent(t, secretKey, got["db_password"], got["iam_secret_access_key"])
}
