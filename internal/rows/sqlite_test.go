package rows_test

import (
	"database/sql"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/rows"
)

func file(t *testing.T, path string, statements ...string) {
	t.Helper()
	db, err := sql.Open("sqlite", path)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	for _, s := range statements {
		if _, err := db.Exec(s); err != nil {
			t.Fatalf("%s: %v", s, err)
		}
	}
}

func TestFilesAreOnlyReadBelowAllowedDirectories(t *testing.T) {
	root := t.TempDir()
	inside, outside := filepath.Join(root, "in"), filepath.Join(root, "in-and-out")
	for _, dir := range []string{inside, outside, filepath.Join(inside, "dir.db")} {
		if err := os.Mkdir(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	table := []string{"CREATE TABLE x (uid TEXT)", "INSERT INTO x VALUES ('a')"}
	odd := "odd ?mode=rwc#&%3F é.db"
	file(t, filepath.Join(outside, "secret.db"), table...)
	file(t, filepath.Join(inside, "good.db"), table...)
	if err := os.Rename(filepath.Join(inside, "good.db"), filepath.Join(inside, odd)); err != nil {
		t.Fatal(err)
	}
	for from, to := range map[string]string{"out.db": filepath.Join(outside, "secret.db"), "dangling.db": filepath.Join(outside, "none.db"), "within.db": odd, "up": ".."} {
		if err := os.Symlink(to, filepath.Join(inside, from)); err != nil {
			t.Fatal(err)
		}
	}
	linked := filepath.Join(root, "link")
	if err := os.Symlink(inside, linked); err != nil {
		t.Fatal(err)
	}
	p := rows.New(rows.Options{SQLiteDirs: []string{linked}})
	t.Cleanup(p.Close)
	at := func(path string) rows.Config { return rows.Config{Kind: rows.SQLite, Path: path, Table: "x"} }
	for _, path := range []string{filepath.Join(inside, odd), filepath.Join(linked, "within.db")} {
		read(t, p, at(path), "uid")
	}
	for _, path := range []string{
		filepath.Join(outside, "secret.db"), filepath.Join(outside, "none.db"), filepath.Join(inside, "out.db"), inside + "/../in-and-out/secret.db", filepath.Join(inside, "up/in-and-out/secret.db"), "/etc/passwd", "/", inside,
	} {
		refused(t, p, at(path), fault.Denied, rows.PathRefused, "uid")
	}
	refused(t, p, at(filepath.Join(inside, "none.db")), fault.Missing, rows.DatabaseMissing, "uid")
	refused(t, p, at(filepath.Join(inside, "dangling.db")), fault.Missing, rows.DatabaseMissing, "uid")
	refused(t, p, at(filepath.Join(inside, "dir.db")), fault.Invalid, rows.ConfigInvalid, "uid")
	refused(t, p, at("file:"+filepath.Join(inside, odd)+"?mode=rwc"), fault.Invalid, rows.ConfigInvalid, "uid")
	none := rows.New(rows.Options{})
	t.Cleanup(none.Close)
	refused(t, none, at(filepath.Join(inside, odd)), fault.Denied, rows.PathRefused, "uid")
	if _, err := os.Stat(filepath.Join(inside, "none.db")); err == nil {
		t.Error("reading made a file")
	}
}

func TestAReplacedFileIsReadAgain(t *testing.T) {
	b := sqlite(t)
	b.exec(t, "CREATE TABLE x (uid TEXT)", "INSERT INTO x VALUES ('old')")
	p := b.open(t)
	read(t, p, b.table("x"), "uid")
	fresh := filepath.Join(t.TempDir(), "fresh.db")
	file(t, fresh, "CREATE TABLE x (uid TEXT)", "INSERT INTO x VALUES ('new')")
	if err := os.Rename(fresh, b.config.Path); err != nil {
		t.Fatal(err)
	}
	if got := texts(read(t, p, b.table("x"), "uid")); !cmp.Equal(got, [][]string{{"new"}}) {
		t.Errorf("rows = %q, want those of the new file", got)
	}
	if err := os.WriteFile(b.config.Path, []byte("this is no database, but long enough to be taken for one: it has no header"), 0o600); err != nil {
		t.Fatal(err)
	}
	refused(t, p, b.table("x"), fault.Broken, rows.ReadFailed, "uid")
}

// What a writer holds is waited for, and then said.
func TestALockedFile(t *testing.T) {
	t.Parallel() // waits
	b := sqlite(t)
	b.exec(t, "CREATE TABLE x (uid TEXT)", "INSERT INTO x VALUES ('a')", "BEGIN EXCLUSIVE")
	p := b.open(t)
	c := b.table("x")
	c.Timeout = 20 * time.Second // SQLite waits for half of it; the other half is for a slow machine
	refused(t, p, c, fault.Later, rows.DatabaseBusy, "uid")
	b.exec(t, "COMMIT")
	read(t, p, b.table("x"), "uid")
}

func TestSQLiteEndsWithItsDeadline(t *testing.T) {
	b := sqlite(t)
	c := b.query("WITH RECURSIVE n(uid) AS (SELECT 1 UNION ALL SELECT uid + 1 FROM n) SELECT uid FROM n WHERE uid < 0")
	c.Timeout = 300 * time.Millisecond
	refused(t, b.open(t), c, fault.Later, rows.ReadTimedOut, "uid")
}

func TestValuesOfSQLite(t *testing.T) {
	b := sqlite(t)
	b.exec(t, "CREATE TABLE x (yes BOOLEAN, at DATETIME, unix TIMESTAMP, n NUMERIC, any)", "INSERT INTO x VALUES (1, '2026-11-28 01:02', 1790000000, 1.50, X'61'), (0, '', NULL, '007', 7)")
	got := texts(read(t, b.open(t), b.table("x"), "yes", "at", "unix", "n", "any"))
	want := [][]string{{"0", "", "NULL", "7", "7"}, {"1", "2026-11-28 01:02", "1790000000", "1.5", "a"}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	// A view is as harmless as what it is made of.
	b.exec(t, "CREATE VIEW v AS SELECT name AS uid FROM sqlite_schema")
	read(t, b.open(t), b.table("v"), "uid")
}
