package e2e

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/terrier-iac/terrier/internal/testkit"
	"github.com/terrier-iac/terrier/internal/testkit/database"
	"github.com/terrier-iac/terrier/internal/vault/vaulttest"
)

// usesDatabase is a stack whose runs have a user of a PostgreSQL, write who it is into a file,
// and then do what a command says.
func usesDatabase(name, given, command string) string {
	return inline(name, `approvePlan: auto
interval: 1h
retryInterval: 1s
serviceAccountName: app
runnerPodTemplate:
  spec:
    env:
    - {name: PGUSER, valueFrom: {secretKeyRef: {name: "vault://database/creds/app", key: username}}}
    - {name: PGPASSWORD, valueFrom: {secretKeyRef: {name: "vault://database/creds/app", key: password}}}`, `
resource "terraform_data" "it" {
  provisioner "local-exec" {
    command = "printf '%s\n' \"$PGUSER\" \"$PGPASSWORD\" > `+given+`; `+command+`"
  }
}
`)
}

// noUser waits until a PostgreSQL has a user no more.
func noUser(t *testing.T, db *database.Server, user string) {
	t.Helper()
	testkit.Eventually(t, testkit.Patience, user+" is gone", func(context.Context) error {
		if until, ok := db.Users(t, "v-")[user]; ok {
			return fmt.Errorf("it is there until %v", until)
		}
		return nil
	})
}

// KY-05, KY-06 with a real database behind OpenBao: a run and a workload have users of a
// PostgreSQL, which has none of them afterwards, whatever was killed.
func TestUsersOfAPostgreSQL(t *testing.T) {
	s := vaulttest.OpenBao(t)
	t.Parallel()
	db := testkit.VaultPostgreSQL(t, s)
	p := testkit.Up(t, "--vault", s.URL.String(), "--allow-plain-http")
	c := p.Cluster(t)
	kubernetesAuth(t, s, c)
	s.Policy(t, "app", `path "database/creds/app" { capabilities = ["read"] }
path "sys/leases/renew" { capabilities = ["update"] }
`)
	c.Apply(t, `
apiVersion: v1
kind: ServiceAccount
metadata:
  name: app
  annotations: {vault.hashicorp.com/role: app}
`)
	// user is that of a run, while it goes on.
	user := func(given string) string {
		t.Helper()
		got := lines(t, given)
		if len(got) != 2 {
			t.Fatalf("the run was given %d lines, want a user and a password", len(got))
		}
		if err := db.As(t, got[0], got[1], "SELECT name FROM customers"); err != nil {
			t.Fatalf("the user of the run cannot read: %v", err)
		}
		if err := db.As(t, got[0], got[1], "DELETE FROM customers"); err == nil {
			t.Error("the user of the run may do more than its role")
		}
		if db.Users(t, "v-")[got[0]].IsZero() {
			t.Errorf("%s has no end in the database", got[0])
		}
		return got[0]
	}
	// held is a stack whose apply waits at a gate, and the user of that apply.
	held := func(name string) (gate, string) {
		t.Helper()
		g := newGate(t, p)
		given := filepath.Join(filepath.Dir(g.begun), "given")
		c.Apply(t, usesDatabase(name, given, "echo begun >> "+g.begun+"; read answer < "+g.pipe))
		g.reached(t)
		return g, user(given)
	}

	given := filepath.Join(p.Shared(t), "given")
	c.Apply(t, usesDatabase("ends", given, "true"))
	c.AwaitReady(t, "ends")
	got := lines(t, given)
	noUser(t, db, got[0])
	if err := db.As(t, got[0], got[1], "SELECT 1"); err == nil {
		t.Error("the user of a run that has ended signs in")
	}
	if log := c.Terrier(t, "logs", "ends"); strings.Contains(log, got[1]) {
		t.Errorf("the log has the password:\n%s", log)
	}

	g, killed := held("killed")
	p.KillSupervisors(t)
	noUser(t, db, killed)
	g.open(t)

	g, with := held("with-its-controller")
	kill(t, p)
	p.KillSupervisors(t)
	if _, ok := db.Users(t, "v-")[with]; !ok {
		t.Error("the user was dropped before there was a controller to do it")
	}
	start(t, p)
	noUser(t, db, with)
	g.open(t)

	// A workload has one in its Secret, which ends with the ServiceAccount.
	c.Kubectl(t, "annotate", "serviceaccount/app", "terrier.dev/vault-leases=database/creds/app")
	var found corev1.Secret
	testkit.Eventually(t, testkit.Patience, "the Secret has a user", func(ctx context.Context) error {
		return c.Client.Get(ctx, types.NamespacedName{Namespace: c.Namespace, Name: "vault-secret-database.creds.app"}, &found)
	})
	name := string(found.Data["username"])
	if err := db.As(t, name, string(found.Data["password"]), "SELECT name FROM customers"); err != nil {
		t.Errorf("the user of the workload cannot read: %v", err)
	}
	kill(t, p)
	start(t, p)
	c.Kubectl(t, "wait", "externalsecret/vault-secret-database.creds.app", "--for=condition=Ready", "--timeout=5m")
	if err := db.As(t, name, string(found.Data["password"]), "SELECT name FROM customers"); err != nil {
		t.Errorf("after another start of the controller the user of the workload cannot read: %v", err)
	}
	c.Kubectl(t, "delete", "serviceaccount/app")
	noUser(t, db, name)
	for left := range db.Users(t, "v-") { // of checks that go on
		noUser(t, db, left)
	}
}
