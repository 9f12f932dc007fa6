package rows

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"

	"modernc.org/sqlite"

	"github.com/terrier-iac/terrier/internal/fault"
)

func sqliteDialect() dialect {
	return dialect{
		quote: `"`, name: "SQLite", connect: connectSQLite, explain: explainSQLite, exists: sqliteExists,
		// The driver would make times of what is declared as such.
		text: func(expression, _ string) string { return "CAST(" + expression + " AS TEXT)" },
	}
}

// sqliteExists counts tables and views of a name. A text is quoted like a name,
// but by apostrophes.
func sqliteExists(table []string) string {
	text := dialect{quote: "'"}.ident
	schema := "main"
	if len(table) > 1 {
		schema = table[0]
	}
	return fmt.Sprintf("SELECT COUNT(*) FROM pragma_table_list WHERE schema = %s COLLATE NOCASE AND name = %s COLLATE NOCASE", text(schema), text(table[len(table)-1]))
}

// allowed finds the file that path leads to, and refuses one that is not below
// an allowed directory. The refusal does not depend on whether the file exists.
func allowed(path string, dirs []string) (string, error) {
	denied := fault.New(fault.Denied, PathRefused, fmt.Errorf("%s is not below a directory that files of SQLite may be in: put it there, or allow another with --sqlite-dir", quoted(path)))
	if !filepath.IsAbs(path) || strings.ContainsRune(path, 0) {
		return "", refuse(ConfigInvalid, "path %s is not absolute", quoted(path))
	}
	path = filepath.Clean(path)
	for _, dir := range dirs {
		real, err := filepath.EvalSymlinks(dir)
		if err != nil || !below(path, filepath.Clean(dir)) && !below(path, real) {
			continue
		}
		file, err := filepath.EvalSymlinks(path)
		if errors.Is(err, fs.ErrNotExist) {
			return "", fault.New(fault.Missing, DatabaseMissing, fmt.Errorf("there is no file %s", quoted(path)))
		}
		if err != nil || !below(file, real) {
			continue
		}
		if info, err := os.Stat(file); err != nil || !info.Mode().IsRegular() {
			return "", refuse(ConfigInvalid, "%s is no file", quoted(path))
		}
		return file, nil
	}
	return "", denied
}

func below(path, dir string) bool {
	rest, err := filepath.Rel(dir, path)
	return err == nil && filepath.IsLocal(rest) && rest != "."
}

// sqliteConn is one opened file. It is not kept: a file that was replaced would
// go on being read as it was.
type sqliteConn struct {
	db   *sql.DB // of this one connection, which is the only way to set its limits
	conn *sql.Conn
}

// Limits of a statement: SQLite runs inside this process, and could take a gigabyte
// of its memory.
const (
	limitLength, mostLength     = 0, 16 << 20
	limitAttached, mostAttached = 7, 0
)

// connectSQLite opens a file for reading only; no statement can override mode=ro.
// Other processes may go on writing to it.
func connectSQLite(ctx context.Context, c Config, o Options) (conn, error) {
	file, err := allowed(c.Path, o.SQLiteDirs)
	if err != nil {
		return nil, err
	}
	wait := min(left(ctx)/2, 5*time.Second)
	set := url.Values{"mode": {"ro"}, "_dqs": {"0"}, "_defensive": {"1"}, "_query_only": {"1"}, "_busy_timeout": {fmt.Sprint(wait.Milliseconds())}, "_pragma": {"trusted_schema(0)", "cell_size_check(1)"}}
	connector, err := sqlite.NewConnector((&url.URL{Scheme: "file", Path: file, RawQuery: set.Encode()}).String())
	if err != nil {
		return nil, err
	}
	s := &sqliteConn{db: sql.OpenDB(connector)}
	if s.conn, err = s.db.Conn(ctx); err != nil {
		return nil, errors.Join(err, s.db.Close())
	}
	_, tooLong := sqlite.Limit(s.conn, limitLength, max(mostLength, o.MaxCell))
	_, attached := sqlite.Limit(s.conn, limitAttached, mostAttached)
	if err := errors.Join(tooLong, attached); err != nil {
		s.close()
		return nil, err
	}
	return s, nil
}

// begin takes no snapshot yet: SQLite does with the first statement that reads.
// The deadline is that of the context, which interrupts.
func (s *sqliteConn) begin(ctx context.Context, _ time.Duration) error { return s.exec(ctx, "BEGIN") }

func (s *sqliteConn) end(ctx context.Context) error { return s.exec(ctx, "ROLLBACK") }

func (s *sqliteConn) close() { _ = errors.Join(s.conn.Close(), s.db.Close()) }

func (s *sqliteConn) exec(ctx context.Context, statement string) error {
	_, err := s.conn.ExecContext(ctx, statement)
	return err
}

// stream works on the driver itself: database/sql would copy each cell twice.
func (s *sqliteConn) stream(ctx context.Context, statement string, row func([][]byte) error) (columns []column, err error) {
	err = s.conn.Raw(func(under any) error {
		rows, err := under.(driver.QueryerContext).QueryContext(ctx, statement, nil)
		if err != nil {
			return err
		}
		columns, err = streamDriver(ctx, rows, row)
		return errors.Join(err, rows.Close())
	})
	return columns, err
}
