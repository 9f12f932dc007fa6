package rows_test

import (
	"bytes"
	"context"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/rows"
	"github.com/terrier-iac/terrier/internal/secret"
	"github.com/terrier-iac/terrier/internal/testkit/database"
)

func TestValuesOfPostgreSQL(t *testing.T) {
	b := postgres(t)
	b.exec(t, `CREATE TABLE x ("Yes" BOOLEAN, f REAL, n NUMERIC, id UUID, at TIMESTAMPTZ, day DATE, j JSONB, list TEXT[], v INTERVAL)`,
		`INSERT INTO x VALUES (TRUE, 1.1, 1.500, '6f1ed002-ab5c-4ba5-9ce5-6d9b8dd6a9a9', '2026-11-28 01:02:03.4+02', '2026-11-28', '{"a":1}', '{a,"b c"}', '1 day'), (FALSE, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL)`)
	got := texts(read(t, b.open(t), b.table("x"), "Yes", "f", "n", "id", "at", "day", "j", "list", "v"))
	want := [][]string{
		{"false", "NULL", "NULL", "NULL", "NULL", "NULL", "NULL", "NULL", "NULL"},
		{"true", "1.1", "1.500", "6f1ed002-ab5c-4ba5-9ce5-6d9b8dd6a9a9", "2026-11-27 23:02:03.4+00", "2026-11-28", `{"a": 1}`, `{a,"b c"}`, "1 day"},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	c := b.table("x")
	for column, want := range map[string]string{"Yes": "true", "at": "2026-11-27 23:02:03.4+00", "id": "6f1ed002-ab5c-4ba5-9ce5-6d9b8dd6a9a9"} {
		c.HighWaterMark = column
		if got := read(t, b.open(t), c, "n").Mark; got != want {
			t.Errorf("Mark of %s = %q, want %q", column, got, want)
		}
	}
}

// Nothing of the environment, and no file that it names, has any effect.
func TestTheEnvironmentHasNoEffect(t *testing.T) {
	b := postgres(t)
	b.exec(t, "CREATE TABLE x (uid TEXT)", "INSERT INTO x VALUES ('a')")
	dir := t.TempDir()
	passwords, services := filepath.Join(dir, "pass"), filepath.Join(dir, "services")
	for path, content := range map[string]string{
		passwords: "*:*:*:*:" + `c@nary/pass\:word %41?` + "\n",
		services:  "[other]\nhost=127.0.0.2\nport=1\nuser=other\ndbname=other\noptions=-c statement_timeout=1\n",
	} {
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for name, value := range map[string]string{
		"PGHOST": "127.0.0.2", "PGPORT": "1", "PGUSER": "other", "PGDATABASE": "other", "PGPASSWORD": database.Password, "PGPASSFILE": passwords, "PGSERVICEFILE": services,
		"PGSSLMODE": "verify-full", "PGSSLROOTCERT": "/nonexistent", "PGSSLCERT": "/nonexistent", "PGSSLKEY": "/nonexistent", "PGSSLCERTMODE": "require", "PGOPTIONS": "-c search_path=pg_catalog", "PGTZ": "America/Caracas",
		"PGAPPNAME": "other", "PGCONNECT_TIMEOUT": "x", "PGTARGETSESSIONATTRS": "standby", "PGREQUIREAUTH": "none", "PGCHANNELBINDING": "require", "PGMINPROTOCOLVERSION": "9", "PGSSLNEGOTIATION": "direct", "HOME": dir,
	} {
		t.Setenv(name, value)
	}
	p := b.open(t)
	read(t, p, b.table("x"), "uid")
	c := b.query("SELECT current_setting('TimeZone') AS zone, current_setting('application_name') AS name, current_user::text AS who")
	if got := texts(read(t, p, c, "zone", "name", "who")); !cmp.Equal(got, [][]string{{"UTC", "terrier", "reader"}}) {
		t.Errorf("the session is %q", got)
	}
	c.Password = secret.Text{}
	refused(t, p, c, fault.Denied, rows.DatabaseDenied, "zone")
	t.Setenv("PGSERVICE", "other")
	refused(t, b.open(t), b.table("x"), fault.Broken, rows.ConfigInvalid, "uid")
}

// A server that asks for the password as it is does not get it.
func TestAPlainServerIsNotToldThePassword(t *testing.T) {
	said := make(chan []byte, 1)
	address := serve(t, func(c net.Conn) {
		buffer := make([]byte, 1<<12)
		_, _ = c.Read(buffer)
		_, _ = c.Write([]byte("R\x00\x00\x00\x08\x00\x00\x00\x03"))
		n, _ := c.Read(buffer)
		said <- bytes.Clone(buffer[:n])
	})
	p := rows.New(rows.Options{})
	t.Cleanup(p.Close)
	c := rows.Config{Kind: rows.PostgreSQL, Host: address.IP.String(), Port: address.Port, User: "u", Password: secret.New(database.Password), Table: "t", Timeout: time.Minute}
	if _, err := p.Read(t.Context(), "key", c, []string{"uid"}); err == nil {
		t.Error("Read() came without an error")
	}
	if sent := <-said; bytes.Contains(sent, []byte(database.Password)) {
		t.Errorf("the server was sent %q", sent)
	}
}

func TestListen(t *testing.T) {
	b := postgres(t)
	proxy := database.NewProxy(t, b.server)
	p := b.openWith(t, rows.Options{Quiet: time.Millisecond, Backoff: time.Millisecond})
	c := b.config
	c.Host, c.Port, c.Table, c.Channel = proxy.Host, proxy.Port, "x", `rows "changed"; --`
	rang := make(chan struct{})
	ended := make(chan error, 1)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	go func() {
		ended <- p.Listen(ctx, "key", c, func() {
			select {
			case rang <- struct{}{}:
			case <-ctx.Done():
			}
		})
	}()
	ring := func(why string) {
		t.Helper()
		select {
		case <-rang:
		case err := <-ended:
			t.Fatalf("Listen() = %v, want it to go on", err)
		case <-time.After(5 * time.Minute):
			t.Fatalf("nothing was heard %s", why)
		}
	}
	ring("once it listens")
	for range 20 {
		b.exec(t, `NOTIFY "rows ""changed""; --"`)
	}
	ring("of twenty notifications")
	proxy.HangUp()
	ring("when it listens again")
	b.server.Stop(t)
	b.server.Start(t)
	ring("after the server was down")
	b.exec(t, `NOTIFY "rows ""changed""; --"`)
	ring("of one more")
	cancel()
	if err := <-ended; err != nil {
		t.Errorf("Listen() = %v after its end, want nil", err)
	}

	go func() { ended <- p.Listen(t.Context(), "key", c, func() { rang <- struct{}{} }) }()
	ring("by the second listener")
	p.Drop("key")
	// What it had to say before it ended may still have to be taken.
	for end := false; !end; {
		select {
		case <-rang:
		case err := <-ended:
			if end = true; err != nil {
				t.Errorf("Listen() = %v after Drop, want nil", err)
			}
		}
	}
	c.Channel = ""
	if err := p.Listen(t.Context(), "key", c, func() {}); fault.Reason(err, "") != rows.ConfigInvalid {
		t.Errorf("Listen() without a channel = %v, want %s", err, rows.ConfigInvalid)
	}
}
