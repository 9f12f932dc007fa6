package rows

import (
	"context"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/go-sql-driver/mysql"
)

func mysqlDialect() dialect {
	return dialect{
		quote: "`", kept: true, port: 3306, name: "MySQL or MariaDB", backslash: true, typed: true,
		connect: connectMySQL, text: mysqlText, explain: explainMySQL,
	}
}

// mysqlText makes numbers texts in the server: the driver would parse them, and
// lose leading zeros and the form of floats. Bits are bytes on the wire.
func mysqlText(expression, kind string) string {
	switch kind = strings.TrimPrefix(kind, "UNSIGNED "); {
	case kind == "BIT":
		return "CAST(" + expression + " + 0 AS CHAR)"
	case strings.HasSuffix(kind, "INT"), kind == "FLOAT", kind == "DOUBLE", kind == "YEAR":
		return "CAST(" + expression + " AS CHAR)"
	}
	return expression
}

// mysqlConn is one connection. The driver is used without database/sql, which
// would add a pool and conversions that are not wanted.
type mysqlConn struct {
	driver  driver.Conn
	meter   *meter
	options Options
	log     *driverLog
	mariadb bool
}

// connectMySQL fills a Config of the driver field by field: there is no string
// that something could be smuggled into. Of what the driver can do, it may not
// send files, several statements, or a password in clear.
func connectMySQL(ctx context.Context, c Config, o Options) (conn, error) {
	d := mysqlDialect()
	m := &mysqlConn{options: o, log: &driverLog{}}
	cfg := mysql.NewConfig()
	cfg.User, cfg.Passwd, cfg.DBName = c.User, c.Password.Reveal(), c.Database
	cfg.Net, cfg.Addr = "tcp", c.tcp(d)
	if c.socket() {
		cfg.Net, cfg.Addr = "unix", c.Host
	}
	secured, err := c.tls()
	if err != nil {
		return nil, err
	}
	cfg.TLS = secured
	cfg.AllowAllFiles, cfg.AllowCleartextPasswords, cfg.AllowOldPasswords = false, false, false
	cfg.AllowFallbackToPlaintext, cfg.MultiStatements, cfg.InterpolateParams = false, false, false
	cfg.Logger = m.log
	cfg.ConnectionAttributes = "program_name:terrier"
	cfg.DialFunc = func(ctx context.Context, network, address string) (net.Conn, error) {
		m.meter, err = metered(ctx, o, network, address)
		if err != nil {
			return nil, err
		}
		return m.meter, nil
	}
	connector, err := mysql.NewConnector(cfg)
	if err != nil {
		return nil, err
	}
	if m.driver, err = connector.Connect(ctx); err != nil {
		if errors.Is(err, mysql.ErrNoTLS) {
			err = errPlain
		}
		return nil, m.log.with(err)
	}
	if err := m.prepare(ctx); err != nil {
		m.close()
		return nil, err
	}
	return m, nil
}

// prepare sets what holds for the whole connection.
func (m *mysqlConn) prepare(ctx context.Context) error {
	var version string
	if _, err := m.stream(ctx, "SELECT VERSION()", only(&version)); err != nil {
		return err
	}
	m.mariadb = strings.Contains(version, "MariaDB")
	if err := m.exec(ctx, "SET SESSION time_zone = '+00:00'"); err != nil {
		return err
	}
	return m.exec(ctx, "SET SESSION TRANSACTION ISOLATION LEVEL REPEATABLE READ")
}

func (m *mysqlConn) begin(ctx context.Context, within time.Duration) error {
	m.meter.reset(m.options)
	limit := fmt.Sprintf("SET SESSION max_execution_time = %d", within.Milliseconds())
	if m.mariadb {
		limit = fmt.Sprintf("SET SESSION max_statement_time = %.3f", within.Seconds())
	}
	for _, set := range []string{limit, fmt.Sprintf("SET SESSION lock_wait_timeout = %d", max(1, int(within.Seconds())))} {
		// On a server without such a limit, the one of the client applies.
		err := m.exec(ctx, set)
		if _, answered := errors.AsType[*mysql.MySQLError](err); err != nil && !answered {
			return err
		}
	}
	return m.exec(ctx, "START TRANSACTION WITH CONSISTENT SNAPSHOT, READ ONLY")
}

func (m *mysqlConn) end(ctx context.Context) error { return m.exec(ctx, "ROLLBACK") }

func (m *mysqlConn) close() { _ = m.driver.Close() }

func (m *mysqlConn) exec(ctx context.Context, statement string) error {
	_, err := m.driver.(driver.ExecerContext).ExecContext(ctx, statement, nil)
	return m.log.with(err)
}

func (m *mysqlConn) stream(ctx context.Context, statement string, row func([][]byte) error) ([]column, error) {
	rows, err := m.driver.(driver.QueryerContext).QueryContext(ctx, statement, nil)
	if err != nil {
		return nil, m.log.with(err)
	}
	columns, err := streamDriver(ctx, rows, row)
	if err != nil {
		// Closing rows would read what is left of them: the connection goes instead.
		m.close()
		return nil, m.log.with(err)
	}
	return columns, m.log.with(rows.Close())
}

// streamDriver reads rows of a driver as bytes.
func streamDriver(ctx context.Context, rows driver.Rows, row func([][]byte) error) ([]column, error) {
	names := rows.Columns()
	columns := make([]column, len(names))
	for i, name := range names {
		columns[i].name = name
		if typed, ok := rows.(driver.RowsColumnTypeDatabaseTypeName); ok {
			columns[i].kind = typed.ColumnTypeDatabaseTypeName(i)
		}
	}
	values, cells := make([]driver.Value, len(names)), make([][]byte, len(names))
	for {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		if err := rows.Next(values); errors.Is(err, io.EOF) {
			return columns, nil
		} else if err != nil {
			return nil, err
		}
		for i, v := range values {
			cells[i] = asBytes(v)
		}
		if err := row(cells); err != nil {
			return nil, err
		}
	}
}

// asBytes is for the few values that do not come as text: counts.
func asBytes(v driver.Value) []byte {
	switch v := v.(type) {
	case nil:
		return nil
	case []byte:
		if v == nil {
			return []byte{}
		}
		return v
	case string:
		return []byte(v)
	case int64:
		return strconv.AppendInt(nil, v, 10)
	default:
		return fmt.Append(nil, v)
	}
}

// driverLog keeps the driver's log lines: they say why a connection ended, and the
// driver's errors do not.
type driverLog struct {
	mu   sync.Mutex
	errs []error
}

func (h *driverLog) Print(v ...any) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, v := range v {
		if err, ok := v.(error); ok && len(h.errs) < 8 {
			h.errs = append(h.errs, err)
		}
	}
}

// with adds the log lines to an error, and forgets them.
func (h *driverLog) with(err error) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	errs := h.errs
	h.errs = nil
	if err == nil {
		return nil
	}
	return errors.Join(append([]error{err}, errs...)...)
}
