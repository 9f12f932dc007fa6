// Package rows reads the rows of a registry: from MySQL or MariaDB, from
// PostgreSQL, or from a file of SQLite. What it returns is all from one moment
// and complete, or it is an error; there is no such thing as some of the rows.
//
// It refuses to write, to read anything that it was not asked for, and to guess:
// every read is one read-only transaction with a deadline and bounds, names are
// quoted and never part of a statement, nothing comes from the environment or
// from a file that a connection string could name, and a certificate that cannot
// be verified ends the conversation. What values mean is not its business.
//
// Start reading at Pools.Read, then at reader, then at dialect, which is what the
// databases differ in.
package rows

import (
	"bytes"
	"context"
	"net"
	"time"

	"github.com/terrier-iac/terrier/internal/secret"
)

// Kind is a kind of database.
type Kind string

// Kinds of databases; the values are those of the wire types.
const (
	MySQL      Kind = "mysql" // and MariaDB
	PostgreSQL Kind = "postgresql"
	SQLite     Kind = "sqlite"
)

// What a Config means that says nothing of it.
const (
	DefaultTimeout = 30 * time.Second
	DefaultMaxRows = 100_000
)

// Config says where rows are. Either Table or Query is set.
type Config struct {
	Kind     Kind
	Host     string // a name, an address, or an absolute path: of a socket (MySQL) or of its directory (PostgreSQL)
	Port     int    // zero is the usual one
	User     string
	Password secret.Text
	Database string
	TLS      *TLS   // nil: not encrypted
	Path     string // of SQLite's file

	Table string // a table or view: name or schema.name
	Query string // one SELECT

	Timeout       time.Duration // of a whole read; zero is DefaultTimeout
	MaxRows       int           // more are an error; zero is DefaultMaxRows
	HighWaterMark string        // the column that Snapshot.Mark is the greatest value of
	Channel       string        // of PostgreSQL's NOTIFY
}

// TLS says how a connection is protected; the server's certificate is always
// verified. All certificates and keys are PEM.
type TLS struct {
	CA         []byte // those of the system if empty
	Cert       []byte // of the client
	Key        secret.Text
	ServerName string // the host if empty
}

// Options are what the platform decides, and no registry.
type Options struct {
	// SQLiteDirs are the directories, absolute, below which files may be read; no
	// file may be if there is none.
	SQLiteDirs []string
	// MaxCell bounds one value in bytes; 256 KiB if zero.
	MaxCell int
	// MaxBytes bounds what a server may send for one read; 128 MiB if zero.
	MaxBytes int64
	// Dial connects to servers; a plain dialer that refuses link-local addresses if nil.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)
	// Quiet is the least time between two notifications; one second if zero.
	Quiet time.Duration
	// Backoff is the pause before the first attempt to listen again, and doubles
	// up to a minute; one second if zero.
	Backoff time.Duration
}

// place is the part of a Config that a connection depends on.
type place struct {
	kind                 Kind
	host                 string
	port                 int
	user, password, base string
	path                 string
	secured              bool
	ca, cert, key, name  string
}

func (c Config) place() place {
	p := place{kind: c.Kind, host: c.Host, port: c.Port, user: c.User, password: c.Password.Reveal(), base: c.Database, path: c.Path}
	if c.TLS != nil {
		p.secured = true
		p.ca, p.cert, p.key, p.name = string(bytes.TrimSpace(c.TLS.CA)), string(c.TLS.Cert), c.TLS.Key.Reveal(), c.TLS.ServerName
	}
	return p
}

func (c Config) timeout() time.Duration {
	if c.Timeout <= 0 {
		return DefaultTimeout
	}
	return c.Timeout
}

func (c Config) maxRows() int {
	if c.MaxRows <= 0 {
		return DefaultMaxRows
	}
	return c.MaxRows
}
