package database

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// certify gives the server a certificate for localhost of an authority of its
// own, and a client one of the same.
func (s *Server) certify(tb testing.TB) {
	tb.Helper()
	authority, key := sign(tb, &x509.Certificate{Subject: pkix.Name{CommonName: "an authority"}, IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign}, nil, nil)
	cert, certKey := sign(tb, &x509.Certificate{Subject: pkix.Name{CommonName: "localhost"}, DNSNames: []string{"localhost"}, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}}, authority, key)
	client, clientKey := sign(tb, &x509.Certificate{Subject: pkix.Name{CommonName: "certified"}, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}}, authority, key)
	s.CA, s.ClientCert, s.ClientKey = certPEM(authority), certPEM(client), keyPEM(tb, clientKey)
	for name, content := range map[string][]byte{"ca.crt": s.CA, "server.crt": certPEM(cert), "server.key": keyPEM(tb, certKey)} {
		if err := os.WriteFile(filepath.Join(s.dir, name), content, 0o600); err != nil {
			tb.Fatal(err)
		}
	}
	// PostgreSQL asks for a client's certificate there; MariaDB by REQUIRE X509.
	rules := filepath.Join(s.dir, "data", "pg_hba.conf")
	if old, err := os.ReadFile(rules); err == nil {
		asks := "hostssl all certified all scram-sha-256 clientcert=verify-ca\nhost all certified all reject\n"
		if err := os.WriteFile(rules, append([]byte(asks), old...), 0o600); err != nil {
			tb.Fatal(err)
		}
	}
}

// Authority is one that no server knows, as PEM.
func Authority(tb testing.TB) []byte {
	tb.Helper()
	cert, _ := sign(tb, &x509.Certificate{Subject: pkix.Name{CommonName: "another authority"}, IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign}, nil, nil)
	return certPEM(cert)
}

// sign makes a certificate; without a parent it signs itself.
func sign(tb testing.TB, template, parent *x509.Certificate, by *ecdsa.PrivateKey) (*x509.Certificate, *ecdsa.PrivateKey) {
	tb.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		tb.Fatal(err)
	}
	if parent == nil {
		parent, by = template, key
	}
	now := time.Now()
	template.NotBefore, template.NotAfter = now.Add(-time.Hour), now.Add(time.Hour)
	template.SerialNumber = big.NewInt(now.UnixNano())
	der, err := x509.CreateCertificate(rand.Reader, template, parent, key.Public(), by)
	if err != nil {
		tb.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		tb.Fatal(err)
	}
	return cert, key
}

func certPEM(c *x509.Certificate) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: c.Raw})
}

func keyPEM(tb testing.TB, key *ecdsa.PrivateKey) []byte {
	tb.Helper()
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		tb.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der})
}
