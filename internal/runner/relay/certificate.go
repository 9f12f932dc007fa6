package relay

import (
	"bufio"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"sync"
	"time"
)

// lasts is how long the certificate of a run is valid: longer than any run.
const lasts = 30 * 24 * time.Hour

// newCertificate makes a certificate for 127.0.0.1, and returns the authority that has
// signed it. The key of the authority is dropped, so it signs nothing else.
func newCertificate(now time.Time) (tls.Certificate, []byte, error) {
	loopback := net.IPv4(127, 0, 0, 1).To4()
	from, until := now.Add(-time.Hour), now.Add(lasts)
	authority := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "terrier run"}, NotBefore: from, NotAfter: until,
		IsCA: true, BasicConstraintsValid: true, MaxPathLenZero: true, KeyUsage: x509.KeyUsageCertSign,
		PermittedDNSDomainsCritical: true, PermittedIPRanges: []*net.IPNet{{IP: loopback, Mask: net.CIDRMask(32, 32)}},
		ExcludedDNSDomains: []string{""},
	}
	leaf := &x509.Certificate{
		SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: "terrier run"}, NotBefore: from, NotAfter: until,
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}, IPAddresses: []net.IP{loopback},
	}
	by, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return tls.Certificate{}, nil, err
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return tls.Certificate{}, nil, err
	}
	root, err := x509.CreateCertificate(rand.Reader, authority, authority, &by.PublicKey, by)
	if err != nil {
		return tls.Certificate{}, nil, err
	}
	der, err := x509.CreateCertificate(rand.Reader, leaf, authority, &key.PublicKey, by)
	if err != nil {
		return tls.Certificate{}, nil, err
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: root}), nil
}

// either is a listener whose connections may begin with TLS.
type either struct {
	net.Listener
	config *tls.Config
}

func (l *either) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return &firstByte{Conn: c, config: l.config}, nil
}

// handshake is the first byte of a connection with TLS, and of no request without it.
const handshake = 0x16

// firstByte is a connection that becomes one with TLS if the client begins so.
type firstByte struct {
	net.Conn
	config *tls.Config

	once sync.Once
	mu   sync.Mutex
	conn net.Conn // what is read from and written to; nil until the first byte is there
}

// Read waits for the first byte before it chooses.
func (c *firstByte) Read(p []byte) (int, error) {
	var err error
	c.once.Do(func() {
		peeked := &buffered{Conn: c.Conn, in: bufio.NewReader(c.Conn)}
		var first []byte
		first, err = peeked.in.Peek(1)
		var chosen net.Conn = peeked
		if err == nil && first[0] == handshake {
			chosen = tls.Server(peeked, c.config)
		}
		c.mu.Lock()
		defer c.mu.Unlock()
		c.conn = chosen
	})
	if err != nil {
		return 0, err
	}
	return c.chosen().Read(p)
}

// Write answers a request that was read.
func (c *firstByte) Write(p []byte) (int, error) { return c.chosen().Write(p) }

func (c *firstByte) chosen() net.Conn {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.conn == nil {
		return c.Conn
	}
	return c.conn
}

// buffered is a connection of which some bytes are in memory.
type buffered struct {
	net.Conn
	in *bufio.Reader
}

func (c *buffered) Read(p []byte) (int, error) { return c.in.Read(p) }
