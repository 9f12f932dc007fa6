package main

import (
	"database/sql"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/terrier-iac/terrier/examples/tenants"
)

// made is a file with the example's table.
func made(t *testing.T) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "a?b#c.db")
	table, err := tenants.Files.ReadFile("customers.sql")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := run(t.Context(), file, string(table), new(strings.Builder)); err != nil {
		t.Fatal(err)
	}
	return file
}

func TestStatements(t *testing.T) {
	tests := []struct{ statement, want string }{
		{"SELECT id, plan, active FROM customers", "id    plan  active\nacme  gold  1\nbolt  free  1\ncrow  free  1\n"},
		{"UPDATE customers SET active = 0 WHERE id = 'acme'", "rows changed: 1\n"},
		{"SELECT id, NULL AS missing FROM customers WHERE active = 0", "id    missing\nacme  NULL\n"},
		{"SELECT id FROM customers WHERE id = 'nobody'", "id\n"},
		{"INSERT INTO customers (id, url) VALUES ('dawn', 'https://dawn.example.com')", "rows changed: 1\n"},
		{"UPDATE customers SET active = 0 WHERE id = 'nobody'", "rows changed: 0\n"},
		{"DELETE FROM customers", "rows changed: 4\n"},
	}
	file := made(t)
	for _, test := range tests {
		var out strings.Builder
		if err := run(t.Context(), file, test.statement, &out); err != nil {
			t.Fatalf("%s: %v", test.statement, err)
		}
		if out.String() != test.want {
			t.Errorf("%s says\n%s\nwant\n%s", test.statement, out.String(), test.want)
		}
	}
}

func TestAFileThatIsNotThereIsNotMade(t *testing.T) {
	file := filepath.Join(t.TempDir(), "customers.db")
	if err := run(t.Context(), file, "SELECT 1", new(strings.Builder)); err == nil || !strings.Contains(err.Error(), "-file") {
		t.Errorf("without a file it says %v, want how to name another", err)
	}
	if _, err := os.Stat(file); !os.IsNotExist(err) {
		t.Errorf("there is a file now: %v", err)
	}
}

func TestAMistakeIsToldAndChangesNothing(t *testing.T) {
	file := made(t)
	if err := run(t.Context(), file, "UPDATE customer SET active = 0", new(strings.Builder)); err == nil || !strings.Contains(err.Error(), "no such table: customer") {
		t.Errorf("a wrong name gives %v", err)
	}
	db, err := sql.Open("sqlite", "file:"+strings.NewReplacer("?", "%3f", "#", "%23").Replace(file))
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	var n int
	if err := db.QueryRowContext(t.Context(), "SELECT count(*) FROM customers WHERE active").Scan(&n); err != nil || n != 3 {
		t.Errorf("%d customers are active (%v), want 3", n, err)
	}
}
