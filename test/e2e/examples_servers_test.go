package e2e

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"
	"k8s.io/apimachinery/pkg/api/meta"

	infrav1alpha2 "github.com/terrier-iac/terrier/api/infra/v1alpha2"
	tenantsv1 "github.com/terrier-iac/terrier/api/tenants/v1"
	"github.com/terrier-iac/terrier/internal/runner"
	"github.com/terrier-iac/terrier/internal/stack"
	"github.com/terrier-iac/terrier/internal/testkit"
	"github.com/terrier-iac/terrier/internal/testkit/database"
)

// repaired checks that a stack says once, and where, which blocks of its module
// had to be broken into lines (A13).
func repaired(t *testing.T, s *infrav1alpha2.Terraform, blocks ...string) {
	t.Helper()
	c := meta.FindStatusCondition(s.Status.Conditions, "ModuleRepaired")
	if c == nil {
		t.Errorf("%s does not say that its module was repaired", s.Name)
		return
	}
	for _, block := range blocks {
		if strings.Count(c.Message, block) != 1 {
			t.Errorf("it says %q, want %s once", c.Message, block)
		}
	}
}

// awaitSaid waits until the stack is not ready for a reason, and its tenant says
// the same of it.
func (e *example) awaitSaid(t *testing.T, stack, id string, words ...string) {
	t.Helper()
	said := func(message string) error {
		for _, w := range words {
			if !strings.Contains(message, w) {
				return fmt.Errorf("it says %q", message)
			}
		}
		return nil
	}
	e.awaitMade(t, stack, &infrav1alpha2.Terraform{})
	e.Await(t, stack, func(s *infrav1alpha2.Terraform) error {
		if c := meta.FindStatusCondition(s.Status.Conditions, "Ready"); c != nil {
			return said(c.Message)
		}
		return errNot("any condition")
	})
	e.awaitTenant(t, "says why its stack is not ready", func(o *tenantsv1.Tenant) error {
		for _, r := range o.Status.Resources {
			if r.ID == id {
				return said(r.Message)
			}
		}
		return errNot("anything")
	})
}

// Example 7: a schema in a real PostgreSQL, which the tenant can use with what
// the Secret holds, and which stays when the tenant goes (A9). The host's name is
// the cluster's, so its address comes with the credentials.
func guidePostgreSQL(t *testing.T, p *testkit.Platform) {
	server := database.StartPostgreSQL(t, database.TLS)
	server.Exec(t, "CREATE ROLE guide SUPERUSER LOGIN PASSWORD 'canary of the guide'")
	e := newExample(t, p, "tenant-with-pg-schema", map[string]map[string]string{"postgres-admin-credentials": {
		"pg_admin_user": "guide", "pg_admin_password": "canary of the guide", "pg_port": strconv.Itoa(server.Port), "PGHOSTADDR": server.Host,
	}})
	e.activate(t)
	s := e.awaitStack(t, "tenant-alpha-pg-schema")
	repaired(t, s, `variable "pg_port"`, `variable "pg_admin_password"`, `output "db_password"`)
	got := e.outputs(t, "tenant-alpha-postgres-credentials", "connection_string", "db_password", "db_user", "schema_name")

	use := func() error {
		config, err := pgx.ParseConfig(fmt.Sprintf("host=%s port=%d dbname=%s sslmode=require", server.Host, server.Port, database.Database))
		if err != nil {
			return err
		}
		config.User, config.Password = got["db_user"], got["db_password"]
		conn, err := pgx.ConnectConfig(t.Context(), config)
		if err != nil {
			return err
		}
		defer conn.Close(t.Context())
		_, err = conn.Exec(t.Context(), "CREATE TABLE IF NOT EXISTS "+pgx.Identifier{got["schema_name"], "notes"}.Sanitize()+" (note TEXT)")
		return err
	}
	if err := use(); err != nil {
		t.Errorf("the tenant cannot use its schema: %v", err)
	}
	e.deactivate(t)
	e.orphaned(t, "tenant-alpha-pg-schema", "tenant-alpha-postgres-credentials")
	if err := use(); err != nil {
		t.Errorf("the schema did not stay: %v", err)
	}
	e.silent(t, "canary of the guide", got["db_password"])
	server.Exec(t, `DROP SCHEMA tenant_tenant_alpha CASCADE`) // so that the stack can be destroyed
}

// Example 8: the number of the database is made of the tenant's id. Of some ids
// it is none, and then the variable is named (A12).
func guideRedis(t *testing.T, p *testkit.Platform) {
	e := newExample(t, p, "tenant-with-redis", nil)
	e.activate(t)
	e.awaitStack(t, "tenant-alpha-redis")
	want := map[string]string{
		"redis_host": "redis.default.svc.cluster.local", "redis_port": "6379", "redis_db": "80", "redis_db__type": `"number"`,
		"connection_string": "redis://redis.default.svc.cluster.local:6379/80",
	}
	if diff := cmp.Diff(want, e.Secret(t, "tenant-alpha-redis-config")); diff != "" {
		t.Errorf("the outputs (-want +got):\n%s", diff)
	}
	e.deactivate(t)
	e.AwaitGone(t, "tenant-alpha-redis")

	e.uid = "beta"
	e.activate(t)
	e.awaitSaid(t, "beta-redis", "redis-database", "redis_db_number")
	e.deactivate(t)
	e.AwaitGone(t, "beta-redis")
}

// Example 5, without a Kafka: a list that is written as text is one for the
// provider, which gets as far as asking the brokers for the topics (A12, A13).
func guideKafka(t *testing.T, p *testkit.Platform) {
	e := newExample(t, p, "tenant-with-kafka", map[string]map[string]string{"kafka-credentials": {
		"kafka_username": "guide", "kafka_password": "canary of the guide", "kafka_bootstrap_servers": `["127.0.0.1:1"]`,
	}})
	e.activate(t)
	e.awaitSaid(t, "tenant-alpha-kafka", "kafka-resources", "out of available brokers")
	repaired(t, e.Stack(t, "tenant-alpha-kafka"), `variable "kafka_password"`)
	e.locked(t, e.Stack(t, "tenant-alpha-kafka"), e.written(t).Values.HCL)
	var runs struct{ Items []runner.Report }
	if err := json.Unmarshal([]byte(e.Terrier(t, "runs", "tenant-alpha-kafka", "-o", "json")), &runs); err != nil {
		t.Fatal(err)
	}
	if !slices.ContainsFunc(runs.Items, func(r runner.Report) bool {
		return r.Kind == stack.PlanRun && r.Changes.Add == 6 && r.Changes.Change+r.Changes.Destroy == 0
	}) {
		t.Errorf("there was no plan of three topics and three rules: %+v", runs.Items)
	}
	e.silent(t, "canary of the guide")
	e.deactivate(t)
	e.AwaitGone(t, "tenant-alpha-kafka")
}

// Example 6, with a real RabbitMQ, which refuses a queue whose numbers are text, as
// the provider sends them. That is said; the rest is there, and a fixed template
// makes the queue.
func guideRabbitMQ(t *testing.T, p *testkit.Platform) {
	broker := startRabbitMQ(t)
	e := newExample(t, p, "tenant-with-rabbitmq", map[string]map[string]string{"rabbitmq-admin-credentials": {
		"rabbitmq_admin_user": "guide", "rabbitmq_admin_password": broker.password, "rabbitmq_endpoint": broker.url,
	}})
	e.activate(t)
	e.awaitSaid(t, "tenant-alpha-rabbitmq", "rabbitmq-resources", "x-message-ttl", "expected integer, got longstr")
	repaired(t, e.Stack(t, "tenant-alpha-rabbitmq"), `variable "rabbitmq_admin_password"`, `output "password"`)
	if code := broker.get(t, "exchanges/tenant-tenant-alpha/events"); code != 200 {
		t.Errorf("asking for the exchange: %d", code)
	}
	e.Apply(t, strings.NewReplacer("arguments = {", "arguments_json = jsonencode({", "\"quorum\"\n                }", "\"quorum\"\n                })").Replace(e.seed(t)))
	e.awaitStack(t, "tenant-alpha-rabbitmq")
	got := e.outputs(t, "tenant-alpha-rabbitmq-credentials", "connection_string", "password", "username", "vhost")
	if code := broker.get(t, "queues/"+got["vhost"]+"/tasks"); code != 200 {
		t.Errorf("asking for the queue: %d", code)
	}
	e.silent(t, broker.password, got["password"])
	e.deactivate(t)
	e.AwaitGone(t, "tenant-alpha-rabbitmq")
	for _, what := range []string{"vhosts/" + got["vhost"], "users/" + got["username"]} {
		if code := broker.get(t, what); code != 404 {
			t.Errorf("asking for %s: %d", what, code)
		}
	}
}
