package rows_test

import (
	"context"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/terrier-iac/terrier/internal/rows"
	"github.com/terrier-iac/terrier/internal/secret"
	"github.com/terrier-iac/terrier/internal/testkit/database"
)

// What docs/rows.md tells people to run works.
func TestTheExamplesOfTheDocumentation(t *testing.T) {
	page, err := os.ReadFile("../../docs/rows.md")
	if err != nil {
		t.Fatal(err)
	}
	text := strings.NewReplacer("crm", database.Database, "'…'", "'"+database.Password+"'").Replace(string(page))
	block := func(language, word string) string {
		for _, found := range regexp.MustCompile("(?s)```"+language+"\n(.*?)```").FindAllStringSubmatch(text, -1) {
			if strings.Contains(found[1], word) {
				return found[1]
			}
		}
		t.Fatalf("there is no %s with %s", language, word)
		return ""
	}
	forMySQL, forPostgres, ok := strings.Cut(block("sql", "GRANT"), "-- PostgreSQL")
	if !ok {
		t.Fatal("there are no grants for PostgreSQL")
	}
	view := block("sql", "CREATE VIEW")
	tables := []string{
		"CREATE TABLE customers (id VARCHAR(9), url VARCHAR(99), phase INT, state VARCHAR(9), deleted_at TIMESTAMP NULL)", "CREATE TABLE phases (id INT, name VARCHAR(9))",
		"INSERT INTO phases VALUES (1, 'live')", "INSERT INTO customers VALUES ('a', 'u', 1, 'live', NULL), ('b', 'u', 1, 'gone', NULL), ('c', 'u', 1, 'live', '2026-01-01')",
	}
	_, query, _ := strings.Cut(block("yaml", "query"), "query: |")
	want := [][]string{{"a", "u", "1"}, {"b", "u", "0"}}

	t.Run("MariaDB", func(t *testing.T) {
		b := mariadb(t, database.TLS)
		b.exec(t, append(tables, view)...)
		for _, statement := range strings.SplitAfter(strings.ReplaceAll(forMySQL, "10.%", "%"), ";") {
			if strings.TrimSpace(statement) != "" {
				b.exec(t, statement)
			}
		}
		c := b.table("terrier_tenants")
		c.User, c.Password, c.TLS = "terrier", secret.New(database.Password), &rows.TLS{CA: b.server.CA, ServerName: "localhost"}
		if diff := cmp.Diff(want, texts(read(t, b.open(t), c, "uid", "url", "active"))); diff != "" {
			t.Error(diff)
		}
		if got := len(read(t, b.open(t), b.query(query), "uid", "url", "active").Rows); got != 3 {
			t.Errorf("%d rows of the query, want 3", got)
		}
	})
	t.Run("PostgreSQL", func(t *testing.T) {
		b := postgres(t)
		b.exec(t, append(tables, view, forPostgres, block("sql", "NOTIFY"))...)
		c := b.table("terrier_tenants")
		c.User, c.Password, c.Channel = "terrier", secret.New(database.Password), "tenants"
		p := b.openWith(t, rows.Options{Quiet: time.Millisecond})
		if diff := cmp.Diff(want, texts(read(t, p, c, "uid", "url", "active"))); diff != "" {
			t.Error(diff)
		}
		rang, ended := make(chan struct{}), make(chan error, 1)
		ctx, cancel := context.WithCancel(t.Context())
		go func() {
			ended <- p.Listen(ctx, "key", c, func() {
				select {
				case rang <- struct{}{}:
				case <-ctx.Done():
				}
			})
		}()
		<-rang
		b.exec(t, "TRUNCATE customers")
		<-rang
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("Listen() = %v", err)
		}
	})
}
