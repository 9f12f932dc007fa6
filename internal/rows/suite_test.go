package rows_test

import (
	"database/sql"
	"path/filepath"
	"slices"
	"strings"
	"testing"

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
	// A reader that opens the file may be putting its log right just then.
	db, err := sql.Open("sqlite", path+"?_pragma=busy_timeout(60000)")
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
