package rows_test

import (
	"context"
	"fmt"
	"os"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/rows"
	"github.com/terrier-iac/terrier/internal/secret"
)

func TestRows(t *testing.T) {
	everywhere(t, func(t *testing.T, b base) {
		b.exec(t, "CREATE TABLE tenants (uid VARCHAR(64), url VARCHAR(200), active INT, note VARCHAR(200), seen TIMESTAMP NULL, price DECIMAL(8,3))",
			"INSERT INTO tenants VALUES ('a', 'https://a.example.com', 1, '', '2026-11-28 01:02:03', 1.500), ('b', NULL, 0, ' Grüße — 日本 ''\"`', NULL, -2)",
			"CREATE VIEW alive AS SELECT uid, url FROM tenants WHERE active = 1")
		p := b.open(t)

		t.Run("cells are as the database writes them, and only those asked for", func(t *testing.T) {
			got := texts(read(t, p, b.table("tenants"), "uid", "url", "active", "note", "price", "uid"))
			prices := []string{"1.500", "-2.000"}
			if b.config.Kind == rows.SQLite {
				prices = []string{"1.5", "-2"}
			}
			want := [][]string{{"a", "https://a.example.com", "1", "", prices[0], "a"}, {"b", "NULL", "0", " Grüße — 日本 '\"`", prices[1], "b"}}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Error(diff)
			}
		})
		t.Run("a view, a name with its schema and a quoted name work", func(t *testing.T) {
			schema, quote := map[rows.Kind]string{rows.MySQL: "tenants", rows.PostgreSQL: "public", rows.SQLite: "main"}[b.config.Kind], `"`
			if b.config.Kind == rows.MySQL {
				quote = "`"
			}
			for _, table := range []string{"alive", schema + ".alive", quote + "alive" + quote} {
				if got := texts(read(t, p, b.table(table), "uid")); !cmp.Equal(got, [][]string{{"a"}}) {
					t.Errorf("rows of %s = %q, want a", table, got)
				}
			}
		})
		t.Run("the mark is the greatest value in the database's order", func(t *testing.T) {
			c := b.table("tenants")
			seen := "2026-11-28 01:02:03"
			if c.Kind == rows.MySQL {
				seen = "2026-11-28 05:02:03" // in UTC; it was written in a session four hours behind
			}
			for column, want := range map[string]string{"seen": seen, "active": "1", "uid": "b"} {
				c.HighWaterMark = column
				if got := read(t, p, c, "uid").Mark; got != want {
					t.Errorf("Mark of %s = %q, want %q", column, got, want)
				}
			}
			c.Table = ""
			c.Query, c.HighWaterMark = "SELECT uid, active FROM tenants WHERE uid = 'none'", "active"
			if got := read(t, p, c, "uid").Mark; got != "" {
				t.Errorf("Mark of no rows = %q, want none", got)
			}
		})
		t.Run("a query is one SELECT and its columns are known by name", func(t *testing.T) {
			for _, query := range []string{
				"SELECT note AS n, uid AS id FROM tenants -- ; no more\n;",
				"WITH x AS (SELECT * FROM tenants) SELECT uid AS id, active AS n FROM x ORDER BY uid LIMIT 10",
				"SELECT 'a;b)' AS id, 1 AS n UNION ALL SELECT '--', 2 /* ; ) */",
			} {
				if got := read(t, p, b.query(query), "id", "n"); len(got.Rows) != 2 || len(got.Rows[0]) != 2 {
					t.Errorf("%s: %d rows, want 2", query, len(got.Rows))
				}
			}
		})
		t.Run("no rows are a snapshot without rows", func(t *testing.T) {
			b.exec(t, "CREATE TABLE empty (uid VARCHAR(64))")
			if got := read(t, p, b.table("empty"), "uid"); got.Rows == nil || len(got.Rows) != 0 {
				t.Errorf("Rows = %v, want an empty list", got.Rows)
			}
		})
		t.Run("a description names all columns in order", func(t *testing.T) {
			got, err := p.Describe(t.Context(), "key", b.table("tenants"))
			if want := []string{"uid", "url", "active", "note", "seen", "price"}; err != nil || !slices.Equal(got, want) {
				t.Errorf("Describe() = %q, %v, want %q", got, err, want)
			}
		})
	})
}

func TestWhatIsNotThereIsNamed(t *testing.T) {
	everywhere(t, func(t *testing.T, b base) {
		b.exec(t, "CREATE TABLE tenants (uid VARCHAR(64), url VARCHAR(64), active INT)", "INSERT INTO tenants VALUES ('a', 'u', 1)")
		p := b.open(t)
		read(t, p, b.table("tenants"), "uid")

		b.exec(t, "ALTER TABLE tenants RENAME COLUMN active TO enabled")
		mark := b.table("tenants")
		mark.HighWaterMark = "updated"
		for name, tt := range map[string]struct {
			config       rows.Config
			column, gone string
		}{
			"of a table":      {b.table("tenants"), "active", `"active"`},
			"of a query":      {b.query("SELECT * FROM tenants"), "active", `"active"`},
			"of the mark":     {mark, "url", `"updated"`},
			"twice asked for": {mark, "updated", `no column "updated"; there are "uid", "url", "enabled"`},
		} {
			message := refused(t, p, tt.config, fault.Invalid, rows.ColumnMissing, "uid", tt.column)
			for _, part := range []string{tt.gone, `"enabled"`, `"uid"`} {
				if !strings.Contains(message, part) {
					t.Errorf("%s: the message does not name %s: %s", name, part, message)
				}
			}
		}

		b.exec(t, "ALTER TABLE tenants RENAME TO renters")
		if message := refused(t, p, b.table("tenants"), fault.Missing, rows.TableMissing, "uid"); !strings.Contains(message, "tenants") {
			t.Errorf("the message does not name the table: %s", message)
		}
		if got := read(t, p, b.table("renters"), "uid"); len(got.Rows) != 1 {
			t.Errorf("%d rows after the failures, want 1", len(got.Rows))
		}
	})
}

func TestBounds(t *testing.T) {
	everywhere(t, func(t *testing.T, b base) {
		b.exec(t, "CREATE TABLE x (uid VARCHAR(64), big TEXT)", "INSERT INTO x VALUES ('a', ''), ('b', '"+strings.Repeat("é", 600)+"'), ('c', '')")
		c := b.table("x")
		p := b.openWith(t, rows.Options{MaxCell: 1000, MaxBytes: 100_000})
		for _, row := range read(t, p, c, "uid", "big").Rows { // one such value spoils no other row
			bad := row[1].Bad
			if large := row[0].Text == "b"; large != strings.Contains(bad, "holds 1200 bytes") || large && row[1].Text != "" {
				t.Errorf("the value of %s is bad: %q", row[0].Text, bad)
			}
		}
		c.MaxRows = 2
		if message := refused(t, p, c, fault.Invalid, rows.TooManyRows, "uid"); !strings.Contains(message, "more than 2 rows") || !strings.Contains(message, "maxRows") {
			t.Errorf("the message does not say what the bound is: %s", message)
		}
		c.MaxRows = 3
		if got := len(read(t, p, c, "uid").Rows); got != 3 {
			t.Errorf("%d rows at the bound, want 3", got)
		}
		many := b.query("WITH RECURSIVE n(uid) AS (SELECT 1 UNION ALL SELECT uid + 1 FROM n WHERE uid < 900) SELECT CONCAT(uid, '" + strings.Repeat("x", 900) + "') AS uid FROM n")
		if b.config.Kind == rows.SQLite {
			many.Query = strings.ReplaceAll(many.Query, "CONCAT(uid, ", "(uid || ")
		}
		wide := b.openWith(t, rows.Options{MaxCell: 1000, MaxBytes: 900 * 950})
		if got := len(read(t, wide, many, "uid").Rows); got != 900 {
			t.Errorf("%d rows within bounds, want 900", got)
		}
		refused(t, p, many, fault.Invalid, rows.ReadTooLarge, "uid")
		huge, reason := b.query("SELECT repeat('x', 15000000) AS uid"), rows.ReadTooLarge
		if b.config.Kind == rows.SQLite {
			huge.Query, reason = "SELECT zeroblob(1000000000) AS uid", rows.CellTooLarge
		}
		refused(t, p, huge, fault.Invalid, reason, "uid")
	})
}

// A million rows cost neither their memory nor their time. It runs alone, since
// it measures.
func TestAMillionRowsStopAtTheBound(t *testing.T) {
	for name, start := range bases() {
		t.Run(name, func(t *testing.T) {
			b := start(t)
			p := b.open(t)
			c := b.query(map[rows.Kind]string{
				rows.MySQL:      "SELECT seq AS uid FROM seq_1_to_1000000",
				rows.PostgreSQL: "SELECT generate_series(1, 1000000) AS uid",
				rows.SQLite:     "WITH RECURSIVE n(uid) AS (SELECT 1 UNION ALL SELECT uid + 1 FROM n WHERE uid < 1000000) SELECT uid FROM n",
			}[b.config.Kind])
			c.MaxRows = 1000
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			refused(t, p, c, fault.Invalid, rows.TooManyRows, "uid")
			runtime.ReadMemStats(&after)
			if used := after.TotalAlloc - before.TotalAlloc; used > 4<<20 {
				t.Errorf("%d bytes were used to find out that there are too many rows", used)
			}
			c.Query += " LIMIT 1000"
			if got := len(read(t, p, c, "uid").Rows); got != 1000 {
				t.Errorf("%d rows at the bound, want 1000", got)
			}
		})
	}
}

func TestBytesThatAreNoTextAreNamed(t *testing.T) {
	everywhere(t, func(t *testing.T, b base) {
		bytes := map[rows.Kind]string{rows.MySQL: "BLOB", rows.SQLite: "BLOB", rows.PostgreSQL: "BYTEA"}[b.config.Kind]
		b.exec(t, "CREATE TABLE x (uid VARCHAR(64), raw "+bytes+")")
		p := b.open(t)
		if b.config.Kind == rows.PostgreSQL {
			b.exec(t, `INSERT INTO x VALUES ('a', '\xff00')`)
			if got := texts(read(t, p, b.table("x"), "raw")); !cmp.Equal(got, [][]string{{`\xff00`}}) {
				t.Errorf("rows = %q, want hexadecimal digits", got)
			}
			return
		}
		b.exec(t, "INSERT INTO x VALUES ('a', X'616263'), ('b', X'ff00')")
		for _, row := range read(t, p, b.table("x"), "uid", "raw").Rows {
			if bytes := row[0].Text == "b"; bytes != strings.Contains(row[1].Bad, "no UTF-8") || !bytes && row[1].Text != "abc" {
				t.Errorf("the value of %s is %+v", row[0].Text, row[1])
			}
		}
	})
}

// Writers go on while rows are read, and every read sees whole transactions.
func TestARowSetIsOfOneMoment(t *testing.T) {
	everywhere(t, func(t *testing.T, b base) {
		b.exec(t, "CREATE TABLE x (uid INT)")
		if b.config.Kind == rows.SQLite {
			b.exec(t, "PRAGMA journal_mode = WAL")
		}
		p := b.open(t)
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			for i := 0; ctx.Err() == nil && i < 2000; i++ {
				b.exec(t, fmt.Sprintf("INSERT INTO x VALUES (%d), (%d)", 2*i, 2*i+1))
			}
		}()
		c := b.table("x")
		c.HighWaterMark = "uid"
		for range 40 {
			s := read(t, p, c, "uid")
			if n := len(s.Rows); n%2 != 0 || n > 0 && s.Mark != fmt.Sprint(n-1) {
				t.Fatalf("%d rows up to %s: half of a transaction", n, s.Mark)
			}
		}
		cancel()
		<-ended
	})
}

func TestKindsAndPlacesAreChecked(t *testing.T) {
	p := rows.New(rows.Options{})
	t.Cleanup(p.Close)
	server := rows.Config{Kind: rows.MySQL, Host: "127.0.0.1", User: "u", Table: "t"}
	for name, change := range map[string]func(*rows.Config){
		"an unknown kind":              func(c *rows.Config) { c.Kind = "oracle" },
		"no kind":                      func(c *rows.Config) { c.Kind = "" },
		"no host":                      func(c *rows.Config) { c.Host = "" },
		"no user":                      func(c *rows.Config) { c.User = "" },
		"a port that is none":          func(c *rows.Config) { c.Port = 70000 },
		"TLS over a socket":            func(c *rows.Config) { c.Host, c.TLS = "/run/x.sock", &rows.TLS{} },
		"an authority that is none":    func(c *rows.Config) { c.TLS = &rows.TLS{CA: []byte("x")} },
		"a certificate without a key":  func(c *rows.Config) { c.TLS = &rows.TLS{Cert: []byte("x")} },
		"a certificate that is none":   func(c *rows.Config) { c.TLS = &rows.TLS{Cert: []byte("x"), Key: secret.New("y")} },
		"a name with a NUL":            func(c *rows.Config) { c.Kind, c.User = rows.PostgreSQL, "u\x00database\x00other" },
		"a file without a path":        func(c *rows.Config) { c.Kind = rows.SQLite },
		"a file with a relative path":  func(c *rows.Config) { c.Kind, c.Path = rows.SQLite, "tenants.db" },
		"neither a table nor a query":  func(c *rows.Config) { c.Table = "" },
		"both of a table and a query":  func(c *rows.Config) { c.Query = "SELECT 1" },
		"a password that holds a NUL ": func(c *rows.Config) { c.Password = secret.New("wr0ng!canary\x00") },
	} {
		t.Run(name, func(t *testing.T) {
			c := server
			change(&c)
			refused(t, p, c, fault.Invalid, rows.ConfigInvalid, "uid")
		})
	}
	link := server
	link.Host = "169.254.169.254"
	refused(t, p, link, fault.Denied, rows.AddressRefused, "uid")
	if _, err := os.Stat("/tmp/rows-test"); err == nil {
		t.Error("a query wrote a file")
	}
}
