package vaults

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/terrier-iac/terrier/internal/audit"
	"github.com/terrier-iac/terrier/internal/input"
	"github.com/terrier-iac/terrier/internal/testkit"
	"github.com/terrier-iac/terrier/internal/vault/vaulttest"
)

// A run has a user of a real PostgreSQL, who lasts as long as the run goes on and is gone from
// there afterwards, also where another process ends what a run had that died.
func TestUsersOfPostgreSQL(t *testing.T) {
	s := vaulttest.OpenBao(t)
	w := newWorld(t, s)
	db := testkit.VaultPostgreSQL(t, s)
	s.Policy(t, "app", rules+"path \"database/creds/app\" { capabilities = [\"read\"] }\n")
	of := w.stack(appAccount)
	wanted := []input.VaultSecret{{Path: "database/creds/app", Key: "username"}, {Path: "database/creds/app", Key: "password"}}
	values, err := w.vaults.Begin(t.Context(), of, "apply-1", wanted)
	if err != nil {
		t.Fatal(err)
	}
	user, password := string(values[wanted[0].String()]), string(values[wanted[1].String()])
	if err := db.As(t, user, password, "SELECT name FROM customers"); err != nil {
		t.Fatalf("the user of the run cannot read: %v", err)
	}
	if err := db.As(t, user, password, "DELETE FROM customers"); err == nil {
		t.Error("the user of the run may do more than its role")
	}
	if err := db.As(t, user, password, "CREATE TABLE made (n INT)"); err != nil {
		t.Errorf("the user of the run cannot make a table: %v", err)
	}
	made := db.Users(t, "v-")
	if len(made) != 1 || made[user].IsZero() {
		t.Fatalf("the server has the users %v, want %s alone", made, user)
	}
	if n := len(w.Entries()); n != 1 || w.Entries()[0].What != audit.SecretRead || w.Entries()[0].Details["lease"] == "" {
		t.Errorf("the audit log has %d entries, want one reading with a lease", n)
	}

	// The server lets it last longer, to the end that PostgreSQL knows.
	s.UsersLast(t, "1h", "24h")
	w.Pass(61 * time.Second) // two thirds of what the session lasts
	restarted := (&Vaults{Config: w.vaults.Config, Accounts: w.vaults.Accounts, Records: w.vaults.Records, Audit: w, Now: w.Now, Log: w.vaults.Log}).Open()
	if _, err := restarted.Renew(t.Context(), of.UID); err != nil {
		t.Fatal(err)
	}
	if until := db.Users(t, "v-")[user]; until.Sub(made[user]) < 40*time.Minute {
		t.Errorf("after the renewal the user lasts until %v, and until %v before it", until, made[user])
	}

	// The end of the run is that of its user.
	if err := restarted.End(t.Context(), of.UID); err != nil {
		t.Fatal(err)
	}
	testkit.Eventually(t, testkit.Patience, "the user is gone", func(context.Context) error {
		if left := db.Users(t, "v-"); len(left) > 0 {
			return fmt.Errorf("the server has the users %v", left)
		}
		return nil
	})
	if err := db.As(t, user, password, "SELECT 1"); err == nil {
		t.Error("the user of a run that has ended signs in")
	}
	db.Exec(t, "INSERT INTO made VALUES (1)") // what it made stays
}
