package secretsync

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/terrier-iac/terrier/internal/audit"
	"github.com/terrier-iac/terrier/internal/testkit"
	"github.com/terrier-iac/terrier/internal/testkit/database"
	"github.com/terrier-iac/terrier/internal/vault/vaulttest"
)

// awaitUsers waits until a database has these users of OpenBao, and no other ones.
func awaitUsers(t *testing.T, db *database.Server, want ...string) {
	t.Helper()
	testkit.Eventually(t, testkit.Patience, fmt.Sprintf("the users are %q", want), func(context.Context) error {
		all := db.Users(t, "v-")
		for _, name := range want {
			if _, ok := all[name]; !ok {
				return fmt.Errorf("%s is not there", name)
			}
		}
		if len(all) != len(want) {
			return fmt.Errorf("the server has %v", all)
		}
		return nil
	})
}

// KY-05 with real databases: another user takes the place of one that can last no longer, and
// the database has none of them once it was revoked. PostgreSQL knows for how long each lasts, and
// learns of each renewal.
func TestCredentialsOfDatabases(t *testing.T) {
	for name, tt := range map[string]struct {
		start  func(*testing.T, vaulttest.Server) *database.Server
		longer time.Duration // what a renewal adds at least
	}{
		"PostgreSQL": {testkit.VaultPostgreSQL, 15 * time.Minute},
		"MariaDB":    {testkit.VaultMariaDB, 0},
	} {
		t.Run(name, func(t *testing.T) {
			v := vaulttest.OpenBao(t)
			s := newStage(t, v)
			credentialsOf(t, s, tt.start(t, v), tt.longer)
		})
	}
}

// credentialsOf leads an ExternalSecret through the life of the users of a database.
func credentialsOf(t *testing.T, s *stage, db *database.Server, longer time.Duration) {
	v := s.vault
	v.Policy(t, "app", rules+"path \"database/creds/app\" { capabilities = [\"read\"] }\n")
	s.workload("Deployment", "kyuubi", "", fmt.Sprintf(fromSecret, "db"))
	s.Apply(t, fmt.Sprintf(strings.Replace(madeStore, "rabbitmq/creds/app", "database/creds/app", 1), v.URL.String(), ""))
	s.once("app")
	read := func() error {
		held := s.secret("db").Data
		return db.As(t, string(held["username"]), string(held["password"]), "SELECT name FROM customers")
	}
	first, former := s.user(), s.secret("db").Data
	if err := read(); err != nil {
		t.Fatalf("the user in the Secret cannot read: %v", err)
	}
	awaitUsers(t, db, first)
	until := db.Users(t, "v-")[first]

	v.UsersLast(t, "30m", "24h")
	s.Pass(400 * time.Second)
	s.once("app")
	if later := db.Users(t, "v-")[first]; later.Sub(until) < longer || s.user() != first || len(s.entries(audit.SecretRenewed)) != 1 {
		t.Errorf("after the renewal %s lasts until %v, and the Secret has %s; want that %s lasts longer than until %v", first, later, s.user(), first, until)
	}

	v.UsersLast(t, "5m", "5m") // they may last no longer
	s.Pass(800 * time.Second)  // two thirds of what the session lasts
	s.once("app")
	v.UsersLast(t, "10m", "24h")
	s.Pass(200 * time.Second)
	s.once("app")
	second := s.user()
	if second == first || s.madeAgain() != 1 {
		t.Fatalf("the Secret has %s after %s, with %d restarts, want another user and one restart", second, first, s.madeAgain())
	}
	awaitUsers(t, db, first, second) // the workload has the first one until it was restarted
	for range 2 {
		s.Pass(300 * time.Second)
		s.once("app")
	}
	awaitUsers(t, db, second)
	if err := db.As(t, first, string(former["password"]), "SELECT 1"); err == nil {
		t.Errorf("%s was revoked, and signs in", first)
	}
	if err := read(); err != nil {
		t.Errorf("the second user cannot read: %v", err)
	}

	s.Kubectl(t, "delete", "externalsecret/app")
	s.once("app")
	awaitUsers(t, db)
	if revoked := s.entries(audit.SecretRevoked); len(revoked) != 2 || slices.Contains(revoked, "") || len(s.records()) != 0 {
		t.Errorf("revoked are %q, and recorded %v, want two users and nothing that is left", revoked, s.records())
	}
	s.silent(string(former["password"]))
}
