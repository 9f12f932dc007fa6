package rows

import (
	"context"
	"net"
	"strconv"
	"strings"
	"time"
)

// dialect is what one kind of database does in its own way.
type dialect struct {
	quote     string // around names
	kept      bool   // a connection is worth keeping
	port      int
	name      string // for people
	backslash bool   // escapes in texts
	typed     bool   // text has to know the type of a column

	connect func(ctx context.Context, c Config, o Options) (conn, error)
	// text makes an expression a text as the database writes it.
	text func(expression, kind string) string
	// exists counts what has the name of a table, where an error does not tell.
	exists func(table []string) string
	// explain marks an error that the database itself has sent; nil if it is none.
	explain func(err error, c Config) error
}

// conn is one connection to a database.
type conn interface {
	// begin starts a read-only transaction that sees one moment, and tells the
	// server when to give up.
	begin(ctx context.Context, within time.Duration) error
	// stream runs one statement. A cell is nil for NULL, and only valid in row.
	stream(ctx context.Context, statement string, row func(cells [][]byte) error) ([]column, error)
	// end ends the transaction.
	end(ctx context.Context) error
	close()
}

type column struct{ name, kind string }

func dialectOf(k Kind) (dialect, bool) {
	switch k {
	case MySQL:
		return mysqlDialect(), true
	case PostgreSQL:
		return postgresDialect(), true
	case SQLite:
		return sqliteDialect(), true
	}
	return dialect{}, false
}

// ident quotes a name, which may hold anything.
func (d dialect) ident(name string) string {
	return d.quote + strings.ReplaceAll(name, d.quote, d.quote+d.quote) + d.quote
}

// socket reports whether c leads to a socket of this machine.
func (c Config) socket() bool { return strings.HasPrefix(c.Host, "/") }

// host is c.Host without the brackets that some write around IPv6 addresses.
func (c Config) host() string {
	if strings.HasPrefix(c.Host, "[") && strings.HasSuffix(c.Host, "]") {
		return c.Host[1 : len(c.Host)-1]
	}
	return c.Host
}

func (c Config) portOf(d dialect) int {
	if c.Port == 0 {
		return d.port
	}
	return c.Port
}

// where names the database for people.
func (c Config) where(d dialect) string {
	switch {
	case c.Kind == SQLite:
		return quoted(c.Path)
	case c.socket():
		return quoted(c.Host)
	}
	return quoted(net.JoinHostPort(c.host(), strconv.Itoa(c.portOf(d))))
}

// left is the time that a server has until the deadline of ctx. It is a little less,
// so that the error comes from the server.
func left(ctx context.Context) time.Duration {
	deadline, ok := ctx.Deadline()
	if !ok {
		return DefaultTimeout
	}
	return max(time.Until(deadline)*19/20, 10*time.Millisecond)
}
