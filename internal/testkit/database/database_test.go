package database_test

import (
	"net"
	"testing"

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
