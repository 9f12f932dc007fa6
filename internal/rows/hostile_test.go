package rows_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/rows"
)

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
