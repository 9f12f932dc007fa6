package database_test

import (
	"net"
	"testing"
	"time"

	"github.com/terrier-iac/terrier/internal/testkit/database"
)

func TestServersStopAndStartWithTheirData(t *testing.T) {
	for name, start := range map[string]func(testing.TB, ...database.Option) *database.Server{"MariaDB": database.StartMariaDB, "PostgreSQL": database.StartPostgreSQL} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := start(t)
			s.Exec(t, "CREATE TABLE kept (n INT)", "INSERT INTO kept VALUES (1)")
			s.Stop(t)
			if c, err := net.Dial("tcp", s.Address()); err == nil {
				c.Close()
				t.Error("a stopped server listens")
			}
			s.Start(t)
			s.Exec(t, "INSERT INTO kept SELECT 2 FROM kept")
		})
	}
}

// Users are those of the server at this moment, and sign in with their passwords.
func TestUsersOfServers(t *testing.T) {
	for name, tt := range map[string]struct {
		start        func(testing.TB, ...database.Option) *database.Server
		create, drop string
		until        int64 // seconds
	}{
		"MariaDB":    {database.StartMariaDB, "CREATE USER 'v-one'@'%' IDENTIFIED BY 'canary'", "DROP USER 'v-one'@'%'", time.Time{}.Unix()},
		"PostgreSQL": {database.StartPostgreSQL, `CREATE ROLE "v-one" LOGIN PASSWORD 'canary' VALID UNTIL '2100-01-01 00:00:00+0000'`, `DROP ROLE "v-one"`, 4102444800},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := tt.start(t)
			s.Exec(t, tt.create)
			if all := s.Users(t, "v-"); len(all) != 1 || all["v-one"].Unix() != tt.until {
				t.Errorf("the users are %v, want v-one", all)
			}
			if err := s.As(t, database.Reader, database.Password, "SELECT 1"); err != nil {
				t.Errorf("the reader does not sign in: %v", err)
			}
			if err := s.As(t, "v-one", "guessed", "SELECT 1"); err == nil {
				t.Error("a user signs in with another password")
			}
			s.Exec(t, tt.drop)
			if all := s.Users(t, "v-"); len(all) != 0 {
				t.Errorf("the users are %v, want none", all)
			}
		})
	}
}
