package rows_test

import (
	"context"
	"database/sql"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
	_ "modernc.org/sqlite"

	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/rows"
	"github.com/terrier-iac/terrier/internal/secret"
	"github.com/terrier-iac/terrier/internal/tenant"
	"github.com/terrier-iac/terrier/internal/testkit/database"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// base is one database that the suite runs against.
type base struct {
	config rows.Config
	dirs   []string
	exec   func(testing.TB, ...string)
	server *database.Server // nil for SQLite
}

// open returns pools that may read everything of the base.
func (b base) open(t *testing.T) *rows.Pools {
	t.Helper()
	return b.openWith(t, rows.Options{})
}

func (b base) openWith(t *testing.T, o rows.Options) *rows.Pools {
	t.Helper()
	o.SQLiteDirs = b.dirs
	p := rows.New(o)
	t.Cleanup(p.Close)
	return p
}

// table and query return the configuration for one of either.
func (b base) table(name string) rows.Config {
	c := b.config
	c.Table = name
	return c
}

func (b base) query(text string) rows.Config {
	c := b.config
	c.Query = text
	return c
}

func onServer(kind rows.Kind, s *database.Server) base {
	return base{server: s, exec: s.Exec, config: rows.Config{Kind: kind, Host: s.Host, Port: s.Port, User: database.Reader, Password: secret.New(database.Password), Database: database.Database}}
}

func mariadb(t *testing.T, o ...database.Option) base {
	return onServer(rows.MySQL, database.StartMariaDB(t, o...))
}

func postgres(t *testing.T, o ...database.Option) base {
	return onServer(rows.PostgreSQL, database.StartPostgreSQL(t, o...))
}

func sqlite(t *testing.T) base {
	dir := t.TempDir()
	path := filepath.Join(dir, "tenants.db")
	db, err := sql.Open("sqlite", path)
	if err != nil {
		t.Fatal(err)
	}
	db.SetMaxOpenConns(1)
	t.Cleanup(func() { db.Close() })
	exec := func(tb testing.TB, statements ...string) {
		tb.Helper()
		for _, s := range statements {
			if _, err := db.Exec(s); err != nil {
				tb.Fatalf("%s: %v", s, err)
			}
		}
	}
	exec(t, "CREATE TABLE begun (n INTEGER)") // so that the file is there
	return base{config: rows.Config{Kind: rows.SQLite, Path: path}, dirs: []string{dir}, exec: exec}
}

// everywhere runs a test against all three databases.
func everywhere(t *testing.T, test func(t *testing.T, b base)) {
	for name, start := range bases() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, start(t))
		})
	}
}

func bases() map[string]func(*testing.T) base {
	return map[string]func(*testing.T) base{
		"MariaDB":    func(t *testing.T) base { return mariadb(t) },
		"PostgreSQL": func(t *testing.T) base { return postgres(t) },
		"SQLite":     sqlite,
	}
}

// onServers runs a test against the two that are reached over a network.
func onServers(t *testing.T, test func(t *testing.T, b base), options ...database.Option) {
	t.Run("MariaDB", func(t *testing.T) {
		t.Parallel()
		test(t, mariadb(t, options...))
	})
	t.Run("PostgreSQL", func(t *testing.T) {
		t.Parallel()
		test(t, postgres(t, options...))
	})
}

func read(t *testing.T, p *rows.Pools, c rows.Config, columns ...string) tenant.Snapshot {
	t.Helper()
	s, err := p.Read(t.Context(), "key", c, columns)
	if err != nil {
		t.Fatalf("Read() = %v", err)
	}
	return s
}

// texts are the cells of a snapshot, with NULL written so.
func texts(s tenant.Snapshot) [][]string {
	var all [][]string
	for _, row := range s.Rows {
		var cells []string
		for _, c := range row {
			if c.Null {
				c.Text = "NULL"
			}
			cells = append(cells, c.Text)
		}
		all = append(all, cells)
	}
	slices.SortFunc(all, slices.Compare)
	return all
}

// refused fails the test unless a read fails for the given reason, without the
// password and without a row. It returns the message.
func refused(t *testing.T, p *rows.Pools, c rows.Config, kind fault.Kind, reason string, columns ...string) string {
	t.Helper()
	s, err := p.Read(t.Context(), "key", c, columns)
	if fault.Of(err) != kind || fault.Reason(err, "") != reason {
		t.Fatalf("Read() = %v (%s, %s), want %s, %s", err, fault.Of(err), fault.Reason(err, ""), kind, reason)
	}
	if s.Rows != nil || s.Columns != nil {
		t.Errorf("Read() came with %d rows and an error", len(s.Rows))
	}
	for _, form := range []string{database.Password, "c%40nary", "wr0ng!canary"} {
		if strings.Contains(err.Error(), form) {
			t.Errorf("the error holds a password: %v", err)
		}
	}
	return err.Error()
}

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

func TestNamesAreNeverPartOfAStatement(t *testing.T) {
	everywhere(t, func(t *testing.T, b base) {
		quote := `"`
		if b.config.Kind == rows.MySQL {
			quote = "`"
		}
		hostile := "a" + quote + "; DROP TABLE x; --"
		named := quote + strings.ReplaceAll(hostile, quote, quote+quote) + quote
		b.exec(t, "CREATE TABLE x (uid VARCHAR(64), "+named+" VARCHAR(64))", "INSERT INTO x VALUES ('a', 'kept')")
		p := b.open(t)
		for _, table := range []string{
			"users; drop table x--", "x x2", "(SELECT 1)", "x, x", "x`", `x"`, "x'", "", "a.b.c", ".x", "x.", "x\n", "x/**/", "x\x00", "x -- ", `"x" WHERE "1"`, "`x` `y`", "\"x\"\"\"", "``", "x\u2028y", "x=1",
		} {
			reason := rows.TableRefused
			if table == "" {
				reason = rows.ConfigInvalid
			}
			message := refused(t, p, b.table(table), fault.Invalid, reason, "uid")
			if table != "" && !strings.Contains(message, "use query") {
				t.Errorf("the message does not say how else: %s", message)
			}
		}
		if got := texts(read(t, p, b.table("x"), "uid", hostile)); !cmp.Equal(got, [][]string{{"a", "kept"}}) {
			t.Errorf("rows = %q, want the value of the column with that name", got)
		}
		for _, column := range []string{"uid" + quote + " FROM x; DROP TABLE x; --", "uid, uid", "*", "COUNT(*)", "uid`", `uid"`, "'lit'", `"lit"`, "\\"} {
			refused(t, p, b.table("x"), fault.Invalid, rows.ColumnMissing, "uid", column)
		}
		refused(t, p, b.table("x"), fault.Invalid, rows.ColumnMissing, "uid", "a\x00")
		read(t, p, b.table("x"), "uid")
	})
}

func TestQueriesCannotDoMoreThanSelect(t *testing.T) {
	everywhere(t, func(t *testing.T, b base) {
		b.exec(t, "CREATE TABLE x (uid VARCHAR(64))", "INSERT INTO x VALUES ('a')")
		p := b.open(t)
		for _, query := range []string{
			"DELETE FROM x", "UPDATE x SET uid = 'b'", "DROP TABLE x", "INSERT INTO x VALUES ('c')", "SELECT uid FROM x; DELETE FROM x",
			"SELECT uid FROM x) AS t; DELETE FROM x; SELECT * FROM (SELECT 1", "SELECT 1 AS uid) AS t WHERE 1 = (1", "SELECT (1 AS uid", "SELECT 'a AS uid", "SELECT 1 /* AS uid",
			"SELECT 1 /*! AS uid */", "ATTACH DATABASE '/tmp/x' AS y", "SET ROLE admin", "EXPLAIN SELECT 1", "TABLE x", "--", ";", "SELECT 1 AS uid WHERE nothing()", "SELECT load_extension('x') AS uid",
			"SELECT uid FROM x INTO OUTFILE '/tmp/rows-test'", "SELECT uid INTO y FROM x", "WITH d AS (DELETE FROM x RETURNING uid) SELECT uid FROM d", "SELECT 1 AS uid, 2 AS uid UNION SELECT 3",
			"PRAGMA writable_schema = 1", "VALUES", "\x00", "COPY x TO PROGRAM 'true'",
		} {
			refused(t, p, b.query(query), fault.Invalid, rows.QueryRefused, "uid")
		}
		if got := texts(read(t, p, b.table("x"), "uid")); !cmp.Equal(got, [][]string{{"a"}}) {
			t.Errorf("rows = %q, want what was there", got)
		}
		both := b.query("SELECT 1 AS uid")
		both.Table = "x"
		refused(t, p, both, fault.Invalid, rows.ConfigInvalid, "uid")
	})
}

func TestBounds(t *testing.T) {
	everywhere(t, func(t *testing.T, b base) {
		b.exec(t, "CREATE TABLE x (uid VARCHAR(64), big TEXT)", "INSERT INTO x VALUES ('a', ''), ('b', '"+strings.Repeat("é", 600)+"'), ('c', '')")
		c := b.table("x")
		p := b.openWith(t, rows.Options{MaxCell: 1000, MaxBytes: 100_000})
		if message := refused(t, p, c, fault.Invalid, rows.CellTooLarge, "uid", "big"); !strings.Contains(message, `"big" of row 2 ("b") holds 1200 bytes`) {
			t.Errorf("the message does not say which value: %s", message)
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
		if message := refused(t, p, b.table("x"), fault.Invalid, rows.ValueNotText, "uid", "raw"); !strings.Contains(message, `"raw" of row 2 ("b")`) {
			t.Errorf("the message does not say which value: %s", message)
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
