package rows

import (
	"context"
	"fmt"
	"net"
	"os"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgproto3"

	"github.com/terrier-iac/terrier/internal/fault"
)

func postgresDialect() dialect {
	return dialect{
		quote: `"`, kept: true, port: 5432, name: "PostgreSQL",
		connect: connectPostgres, explain: explainPostgres,
		text: func(expression, _ string) string { return expression }, // texts are what the protocol sends
	}
}

// plainConnection names every setting that would otherwise come from the
// environment or from files in a home directory. Nothing of a registry is in it;
// postgresConfig sets that.
const plainConnection = "host=localhost port=5432 dbname=none user=none password=none passfile='' sslmode=disable sslcertmode=disable sslrootcert='' sslcert='' sslkey='' sslpassword='' sslsni=1 sslnegotiation=postgres " +
	"connect_timeout=0 target_session_attrs=any min_protocol_version=3.0 max_protocol_version=3.0 channel_binding=prefer require_auth=''"

// postgresConfig leaves nothing of the environment in effect: what parsing takes
// from there, PGOPTIONS for instance, is replaced. Only PGSERVICE would make it
// read a file, which is refused before.
func postgresConfig(c Config, o Options, dialled func(*meter)) (*pgconn.Config, error) {
	if os.Getenv("PGSERVICE") != "" {
		return nil, fault.New(fault.Broken, ConfigInvalid, fmt.Errorf("the environment variable PGSERVICE keeps this process from connecting to PostgreSQL: unset it"))
	}
	cfg, err := pgconn.ParseConfig(plainConnection)
	if err != nil {
		return nil, err
	}
	d := postgresDialect()
	cfg.Host, cfg.Port, cfg.User, cfg.Password, cfg.Database = c.host(), uint16(c.portOf(d)), c.User, c.Password.Reveal(), c.Database
	cfg.Fallbacks, cfg.SSLCertMode, cfg.SSLNegotiation = nil, "allow", "postgres"
	cfg.KerberosSpn, cfg.KerberosSrvName = "", ""
	if cfg.TLSConfig, err = c.tls(); err != nil {
		return nil, err
	}
	cfg.RequireAuth = ""
	if c.TLS == nil && !c.socket() {
		cfg.RequireAuth = "!password" // never in clear
	}
	cfg.RuntimeParams = map[string]string{"application_name": "terrier", "client_encoding": "UTF8", "DateStyle": "ISO, YMD", "TimeZone": "UTC"}
	cfg.MaxProtocolMessageBodyLen = int(min(o.MaxBytes+1<<20, 1<<30))
	cfg.OnNotice = nil
	cfg.DialFunc = func(ctx context.Context, network, address string) (net.Conn, error) {
		m, err := metered(ctx, o, network, address)
		if err != nil {
			return nil, err
		}
		m.asking = c.TLS != nil
		dialled(m)
		return m, nil
	}
	if c.socket() {
		cfg.LookupFunc = nil
	}
	return cfg, nil
}

// postgresConn is one connection.
type postgresConn struct {
	conn    *pgconn.PgConn
	meter   *meter
	options Options
}

func connectPostgres(ctx context.Context, c Config, o Options) (conn, error) {
	p := &postgresConn{options: o}
	cfg, err := postgresConfig(c, o, func(m *meter) { p.meter = m })
	if err != nil {
		return nil, err
	}
	if p.conn, err = pgconn.ConnectConfig(ctx, cfg); err != nil {
		return nil, err
	}
	return p, nil
}

func (p *postgresConn) begin(ctx context.Context, within time.Duration) error {
	p.meter.reset(p.options)
	return p.exec(ctx, fmt.Sprintf("BEGIN ISOLATION LEVEL REPEATABLE READ, READ ONLY; SET LOCAL statement_timeout = %d; SET LOCAL lock_timeout = %[1]d", within.Milliseconds()))
}

func (p *postgresConn) end(ctx context.Context) error { return p.exec(ctx, "ROLLBACK") }

// exec is only for constant statements: it would run several.
func (p *postgresConn) exec(ctx context.Context, statements string) error {
	return p.conn.Exec(ctx, statements).Close()
}

// close tells the server if that is quick, and goes.
func (p *postgresConn) close() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	_ = p.conn.Close(ctx)
}

// boolean is the type whose text on the wire, t or f, is not what a cast to text
// gives, and people expect.
const boolean = 16

// stream uses the extended protocol, which takes one statement and no more, and
// sends every value as the text that the database would print.
func (p *postgresConn) stream(ctx context.Context, statement string, row func([][]byte) error) ([]column, error) {
	result := p.conn.ExecParams(ctx, statement, nil, nil, nil, []int16{pgproto3.TextFormat})
	for result.NextRow() {
		cells := result.Values()
		for i, f := range result.FieldDescriptions() {
			if f.DataTypeOID == boolean && len(cells[i]) == 1 {
				cells[i] = []byte(strconv.FormatBool(cells[i][0] == 't'))
			}
		}
		if err := row(cells); err != nil {
			p.abandon()
			_, _ = result.Close()
			return nil, err
		}
	}
	var columns []column
	for _, f := range result.FieldDescriptions() {
		columns = append(columns, column{name: f.Name})
	}
	_, err := result.Close()
	return columns, err
}

// abandon makes the rest of a result fail at once instead of being read.
func (p *postgresConn) abandon() { _ = p.meter.Close() }
