package rows_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/rows"
	"github.com/terrier-iac/terrier/internal/secret"
	"github.com/terrier-iac/terrier/internal/testkit/database"
)

func TestWhatKeepsFromReadingIsToldApart(t *testing.T) {
	onServers(t, func(t *testing.T, b base) {
		b.exec(t, "CREATE TABLE x (uid VARCHAR(64))", "INSERT INTO x VALUES ('a')")
		p := b.open(t)
		c := b.table("x")
		read(t, p, c, "uid")

		t.Run("a wrong password, and the right one after it", func(t *testing.T) {
			wrong := c
			wrong.Password = secret.New("wr0ng!canary")
			refused(t, p, wrong, fault.Denied, rows.DatabaseDenied, "uid")
			wrong.User, wrong.Password = "nobody", secret.New(database.Password)
			refused(t, p, wrong, fault.Denied, rows.DatabaseDenied, "uid")
			read(t, p, c, "uid")
		})
		t.Run("a database that is not there", func(t *testing.T) {
			other := c
			other.Database = "nosuch"
			want := fault.Missing
			reason := rows.DatabaseMissing
			if c.Kind == rows.MySQL { // it does not tell those who may not know
				want, reason = fault.Denied, rows.DatabaseDenied
			}
			refused(t, p, other, want, reason, "uid")
		})
		t.Run("a table that may not be read", func(t *testing.T) {
			if c.Kind == rows.PostgreSQL {
				b.exec(t, "CREATE TABLE hidden (uid INT)", "REVOKE ALL ON hidden FROM reader")
				refused(t, p, b.table("hidden"), fault.Denied, rows.TableDenied, "uid")
				return
			}
			refused(t, p, b.table("mysql.user"), fault.Denied, rows.TableDenied, "User")
		})
		t.Run("a table of which only some columns may be read", func(t *testing.T) {
			if c.Kind == rows.PostgreSQL {
				b.exec(t, "CREATE TABLE partly (uid VARCHAR(9), hidden INT)", "REVOKE ALL ON partly FROM reader", "GRANT SELECT (uid) ON partly TO reader")
			} else {
				b.exec(t, "CREATE DATABASE other", "CREATE TABLE other.partly (uid VARCHAR(9), hidden INT)", "GRANT SELECT (uid) ON other.partly TO reader")
			}
			table := map[rows.Kind]string{rows.PostgreSQL: "partly", rows.MySQL: "other.partly"}[c.Kind]
			read(t, p, b.table(table), "uid")
			refused(t, p, b.table(table), fault.Denied, rows.TableDenied, "uid", "hidden")
		})
		t.Run("a server that is down, and up again", func(t *testing.T) {
			b.server.Stop(t)
			refused(t, p, c, fault.Later, rows.DatabaseUnreachable, "uid")
			b.server.Start(t)
			read(t, p, c, "uid")
			// The connection that is kept dies with the server, and no client
			// notices.
			b.server.Stop(t)
			b.server.Start(t)
			read(t, p, c, "uid")
		})
		t.Run("a name that is not known", func(t *testing.T) {
			gone := c
			gone.Host = "no-such-host.invalid"
			refused(t, p, gone, fault.Later, rows.DatabaseUnreachable, "uid")
		})
		t.Run("a socket", func(t *testing.T) {
			local := c
			local.Host, local.User, local.Password = b.server.Socket, "reader", secret.New(database.Password)
			read(t, p, local, "uid")
		})
		t.Run("a caller who has gone", func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			cancel()
			if _, err := p.Read(ctx, "key", c, []string{"uid"}); !errors.Is(err, context.Canceled) {
				t.Errorf("Read() = %v, want context.Canceled", err)
			}
		})
	})
}

// A rotated password works as soon as the configuration has it; the connection
// that the old one made is not used any more.
func TestPasswordsRotate(t *testing.T) {
	onServers(t, func(t *testing.T, b base) {
		b.exec(t, "CREATE TABLE x (uid VARCHAR(64))")
		p := b.open(t)
		c := b.table("x")
		read(t, p, c, "uid")
		b.exec(t, map[rows.Kind]string{rows.MySQL: "SET PASSWORD FOR reader@'%' = PASSWORD('second')", rows.PostgreSQL: "ALTER ROLE reader PASSWORD 'second'"}[c.Kind])
		old := c
		c.Password = secret.New("second")
		read(t, p, c, "uid")
		refused(t, p, old, fault.Denied, rows.DatabaseDenied, "uid")
		read(t, p, c, "uid")
	})
}

// Whatever byte a connection is cut at, there are all rows or an error.
func TestACutConnectionLeavesNoRows(t *testing.T) {
	onServers(t, func(t *testing.T, b base) {
		b.exec(t, "CREATE TABLE x (uid VARCHAR(64), pad VARCHAR(200))")
		for i := range 20 {
			var values []string
			for j := range 50 {
				values = append(values, fmt.Sprintf("('t%d', '%s')", i*50+j, strings.Repeat("x", 100)))
			}
			b.exec(t, "INSERT INTO x VALUES "+strings.Join(values, ", "))
		}
		proxy := database.NewProxy(t, b.server)
		c := b.table("x")
		c.Host, c.Port, c.HighWaterMark = proxy.Host, proxy.Port, "uid"
		whole := b.open(t)
		read(t, whole, c, "uid", "pad")
		all := proxy.Carried()
		whole.Close()
		if all < 100_000 {
			t.Fatalf("%d bytes were carried: not what the table holds", all)
		}
		cuts := []int64{0, 1, 4, 50, 100, 200, 300, 1000, all / 3, all / 2, all - 2000, all - 400, all - 100, all - 30}
		for _, cut := range cuts {
			proxy.CutAfter(cut)
			p := b.open(t)
			s, err := p.Read(t.Context(), "key", c, []string{"uid", "pad"})
			if err == nil && len(s.Rows) != 1000 || err != nil && s.Rows != nil {
				t.Errorf("cut after %d of %d bytes: %d rows, %v", cut, all, len(s.Rows), err)
			}
			reason := fault.Reason(err, "")
			if err != nil && (fault.Of(err) != fault.Later || reason != rows.ReadIncomplete && reason != rows.DatabaseUnreachable) {
				t.Errorf("cut after %d of %d bytes: %v (%s)", cut, all, err, reason)
			}
			if middle := cut > 2000 && cut < all-2000; middle && reason != rows.ReadIncomplete {
				t.Errorf("cut after %d of %d bytes, in the rows: %v, want %s", cut, all, err, rows.ReadIncomplete)
			}
			p.Close()
		}
		proxy.CutAfter(-1)
		if got := len(read(t, b.open(t), c, "uid").Rows); got != 1000 {
			t.Errorf("%d rows after the cuts, want 1000", got)
		}
	})
}

// A deadline ends a slow query at both ends: here, and in the server.
func TestSlowReadsEnd(t *testing.T) {
	onServers(t, func(t *testing.T, b base) {
		b.exec(t, "CREATE TABLE x (uid VARCHAR(64))", "INSERT INTO x VALUES ('a')")
		p := b.open(t)
		c := b.query("SELECT SLEEP(3600) AS uid FROM x")
		busy := "SELECT COUNT(*) FROM information_schema.processlist WHERE user = 'reader' AND command = 'Query'"
		if c.Kind == rows.PostgreSQL {
			c = b.query("SELECT pg_sleep(3600)::text AS uid FROM x")
			busy = "SELECT COUNT(*) FROM pg_stat_activity WHERE usename = 'reader' AND state = 'active'"
		}
		c.Timeout = 3 * time.Second
		if message := refused(t, p, c, fault.Later, rows.ReadTimedOut, "uid"); !strings.Contains(message, "timeout") {
			t.Errorf("the message does not say what to raise: %s", message)
		}
		admin := b.config
		admin.User, admin.Password, admin.Host = "admin", secret.Text{}, b.server.Socket
		admin.Query = strings.Replace(busy, "COUNT(*)", "COUNT(*) AS uid", 1)
		for deadline := time.Now().Add(5 * time.Minute); texts(read(t, p, admin, "uid"))[0][0] != "0"; {
			if time.Now().After(deadline) {
				t.Fatal("the server goes on with a query that nobody waits for")
			}
		}
	})
}

// A server that accepts and says nothing is given up on like one that is down.
func TestSilentServers(t *testing.T) {
	for _, kind := range []rows.Kind{rows.MySQL, rows.PostgreSQL} {
		t.Run(string(kind), func(t *testing.T) {
			p := rows.New(rows.Options{})
			t.Cleanup(p.Close)
			silent := serve(t, func(c net.Conn) { _, _ = c.Read(make([]byte, 1<<10)); _, _ = c.Read(make([]byte, 1)) })
			c := rows.Config{Kind: kind, Host: silent.IP.String(), Port: silent.Port, User: "u", Password: secret.New(database.Password), Table: "t", Timeout: 300 * time.Millisecond}
			quiet := refused(t, p, c, fault.Later, rows.DatabaseUnreachable, "uid")
			chatty := serve(t, func(c net.Conn) { _, _ = c.Write([]byte("SSH-2.0-OpenSSH_9.2 secret banner\r\n")) })
			c.Port = chatty.Port
			spoken := refused(t, p, c, fault.Later, rows.DatabaseUnreachable, "uid")
			// Neither tells what is there instead, nor whether anything is.
			if strings.ReplaceAll(quiet, fmt.Sprint(silent.Port), "") != strings.ReplaceAll(spoken, fmt.Sprint(chatty.Port), "") {
				t.Errorf("what answers can be told apart:\n%s\n%s", quiet, spoken)
			}
		})
	}
}

// serve listens on loopback and treats each connection so.
func serve(t *testing.T, treat func(net.Conn)) *net.TCPAddr {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			_ = c.SetDeadline(time.Now().Add(2 * time.Minute))
			treat(c)
			c.Close()
		}
	}()
	t.Cleanup(func() {
		l.Close()
		<-ended
	})
	return l.Addr().(*net.TCPAddr)
}

func TestTLS(t *testing.T) {
	onServers(t, func(t *testing.T, b base) {
		b.exec(t, "CREATE TABLE x (uid VARCHAR(64))", "INSERT INTO x VALUES ('a')")
		p := b.open(t)
		s := b.server
		with := func(tls rows.TLS) rows.Config {
			c := b.table("x")
			c.TLS = &tls
			return c
		}
		read(t, p, with(rows.TLS{CA: s.CA, ServerName: "localhost"}), "uid")
		named := with(rows.TLS{CA: s.CA})
		named.Host = "localhost"
		read(t, p, named, "uid")
		for name, tls := range map[string]rows.TLS{
			"an authority that did not sign": {CA: database.Authority(t), ServerName: "localhost"},
			"those of the system":            {ServerName: "localhost"},
			"a name that is not in it":       {CA: s.CA, ServerName: "db.example.com"},
			"an address that is not in it":   {CA: s.CA},
		} {
			t.Run(name, func(t *testing.T) {
				refused(t, p, with(tls), fault.Denied, rows.TLSNotTrusted, "uid")
			})
		}
		certified := with(rows.TLS{CA: s.CA, ServerName: "localhost"})
		certified.User = "certified"
		refused(t, p, certified, fault.Denied, rows.DatabaseDenied, "uid")
		certified.TLS = &rows.TLS{CA: s.CA, ServerName: "localhost", Cert: s.ClientCert, Key: secret.New(string(s.ClientKey))}
		read(t, p, certified, "uid")
	}, database.TLS)
}

func TestAServerWithoutTLSIsRefusedWhereItIsAskedFor(t *testing.T) {
	onServers(t, func(t *testing.T, b base) {
		b.exec(t, "CREATE TABLE x (uid VARCHAR(64))")
		c := b.table("x")
		c.TLS = &rows.TLS{CA: database.Authority(t)}
		p := b.open(t)
		refused(t, p, c, fault.Denied, rows.TLSNotOffered, "uid")
		c.TLS = nil
		read(t, p, c, "uid")
	})
}
