package rows

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"

	"github.com/terrier-iac/terrier/internal/fault"
)

// check finds what contradicts itself, before anything is connected to.
func (c Config) check() error {
	switch {
	case (c.Table == "") == (c.Query == ""):
		return refuse(ConfigInvalid, "give either table or query")
	case c.Kind == SQLite:
		if c.Path == "" {
			return refuse(ConfigInvalid, "path is missing")
		}
		return nil
	case c.Host == "":
		return refuse(ConfigInvalid, "host is missing")
	case c.User == "":
		return refuse(ConfigInvalid, "username is missing")
	case c.Port < 0 || c.Port > 65535:
		return refuse(ConfigInvalid, "port %d is not between 0 and 65535", c.Port)
	case c.socket() && c.TLS != nil:
		return refuse(ConfigInvalid, "tls does not apply to sockets: remove one of the two")
	}
	for name, value := range map[string]string{"host": c.Host, "username": c.User, "password": c.Password.Reveal(), "database": c.Database} {
		if strings.ContainsRune(value, 0) {
			return refuse(ConfigInvalid, "%s holds a NUL", name)
		}
	}
	_, err := c.tls()
	return err
}

// tls returns the TLS configuration, nil for a connection without TLS. The
// certificate of the server is always verified.
func (c Config) tls() (*tls.Config, error) {
	if c.TLS == nil {
		return nil, nil
	}
	t := &tls.Config{MinVersion: tls.VersionTLS12, ServerName: c.TLS.ServerName}
	if t.ServerName == "" {
		t.ServerName = c.host()
	}
	if len(c.TLS.CA) > 0 {
		t.RootCAs = x509.NewCertPool()
		if !t.RootCAs.AppendCertsFromPEM(c.TLS.CA) {
			return nil, refuse(ConfigInvalid, "tls: caRef holds no certificate in PEM")
		}
	}
	if (len(c.TLS.Cert) > 0) != !c.TLS.Key.Empty() {
		return nil, refuse(ConfigInvalid, "tls: certRef and keyRef go together")
	}
	if len(c.TLS.Cert) > 0 {
		pair, err := tls.X509KeyPair(c.TLS.Cert, []byte(c.TLS.Key.Reveal()))
		if err != nil {
			return nil, refuse(ConfigInvalid, "tls: certRef and keyRef are no pair of a certificate and its key in PEM")
		}
		t.Certificates = []tls.Certificate{pair}
	}
	return t, nil
}

// errAddress is that of an address that is not dialled.
var errAddress = errors.New("no database has a link-local address")

// refuseLinkLocal keeps connections away from the addresses at which clouds tell
// a machine its credentials. Loopback and private addresses are where databases
// are. It sees what a name has resolved to.
func refuseLinkLocal(network, address string, _ syscall.RawConn) error {
	at, err := netip.ParseAddrPort(address)
	if err != nil {
		return nil // a socket
	}
	ip := at.Addr().Unmap()
	if ip.IsLinkLocalUnicast() || ip.IsMulticast() || ip.IsUnspecified() || ip == netip.MustParseAddr("fd00:ec2::254") {
		return fault.New(fault.Denied, AddressRefused, fmt.Errorf("%s: %w", at.Addr(), errAddress))
	}
	return nil
}

// meter counts down what one connection may still read. It sees what is on the
// wire, so that no answer, well-formed or not, is held beyond it.
type meter struct {
	net.Conn
	left   atomic.Int64
	asking bool // PostgreSQL answers the wish for TLS with one letter
}

// metered dials with o. The limit is on what is read between two resets.
func metered(ctx context.Context, o Options, network, address string) (*meter, error) {
	conn, err := o.Dial(ctx, network, address)
	if err != nil {
		return nil, err
	}
	m := &meter{Conn: conn}
	m.reset(o)
	return m, nil
}

func (m *meter) reset(o Options) { m.left.Store(o.MaxBytes + 1<<20) } // and what is said around the rows

func (m *meter) Read(p []byte) (int, error) {
	if m.left.Load() <= 0 {
		return 0, errTooMuch
	}
	n, err := m.Conn.Read(p)
	m.left.Add(-int64(n))
	if m.asking && n > 0 {
		m.asking = false
		if p[0] == 'N' {
			return 0, errPlain
		}
	}
	return n, err
}

// tcp is the address of c for servers that do not listen on a socket.
func (c Config) tcp(d dialect) string {
	return net.JoinHostPort(c.host(), strconv.Itoa(c.portOf(d)))
}
