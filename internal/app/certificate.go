package app

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"time"
)

// certificateTime is how long a certificate lasts. Each start makes a new one,
// and publishes it for the command line.
const certificateTime = 5 * 365 * 24 * time.Hour

// selfSigned makes a certificate for hosts that is its own authority. Its key is
// in this process only.
func selfSigned(hosts []string, now time.Time) (tls.Certificate, []byte, error) {
	c, key, err := certificate("terrier", hosts, now, certificateTime)
	if err != nil {
		return tls.Certificate{}, nil, err
	}
	der, err := x509.CreateCertificate(rand.Reader, c, c, key.Public(), key)
	if err != nil {
		return tls.Certificate{}, nil, err
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, encoded(der), nil
}

// signedByKept makes a certificate for hosts that the authority in a file has signed. The
// authority is made at the first start.
func signedByKept(path string, hosts []string, now time.Time) (tls.Certificate, []byte, error) {
	authority, err := loadAuthority(path, now)
	if err != nil {
		return tls.Certificate{}, nil, err
	}
	c, key, err := certificate("terrier", hosts, now, certificateTime)
	if err != nil {
		return tls.Certificate{}, nil, err
	}
	if c.NotAfter.After(authority.Leaf.NotAfter) {
		c.NotAfter = authority.Leaf.NotAfter
	}
	der, err := x509.CreateCertificate(rand.Reader, c, authority.Leaf, key.Public(), authority.PrivateKey)
	if err != nil {
		return tls.Certificate{}, nil, err
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, encoded(authority.Leaf.Raw), nil
}

// authorityTime is how long an authority lasts. It is replaced a year before its end.
const authorityTime = 10 * 365 * 24 * time.Hour

// loadAuthority reads an authority with its key, and makes a new one if there is none or
// if it ends soon.
func loadAuthority(path string, now time.Time) (tls.Certificate, error) {
	text, err := os.ReadFile(path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return tls.Certificate{}, err
	}
	if err == nil {
		kept, err := tls.X509KeyPair(text, text)
		if err != nil {
			return kept, fmt.Errorf("the certificate authority %s is damaged: delete it; pods that go on then lose their controller: %w", path, err)
		}
		if now.Add(365 * 24 * time.Hour).Before(kept.Leaf.NotAfter) {
			return kept, nil
		}
	}
	c, key, err := certificate("terrier runs", nil, now, authorityTime)
	if err != nil {
		return tls.Certificate{}, err
	}
	c.IsCA, c.KeyUsage, c.ExtKeyUsage, c.MaxPathLenZero = true, x509.KeyUsageCertSign, nil, true
	der, err := x509.CreateCertificate(rand.Reader, c, c, key.Public(), key)
	if err != nil {
		return tls.Certificate{}, err
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return tls.Certificate{}, err
	}
	text = append(encoded(der), pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: private})...)
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return tls.Certificate{}, err
	}
	tmp := filepath.Join(filepath.Dir(path), ".new-"+filepath.Base(path))
	if err := errors.Join(os.WriteFile(tmp, text, 0o600), os.Rename(tmp, path)); err != nil {
		return tls.Certificate{}, fmt.Errorf("keeping the certificate authority: %w", err)
	}
	return tls.X509KeyPair(text, text)
}

func encoded(der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
}

// certificate is one to be signed, and its key.
func certificate(name string, hosts []string, now time.Time, lasts time.Duration) (*x509.Certificate, *ecdsa.PrivateKey, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, err
	}
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120))
	if err != nil {
		return nil, nil, err
	}
	c := &x509.Certificate{
		SerialNumber: serial, Subject: pkix.Name{CommonName: name},
		NotBefore: now.Add(-time.Hour), NotAfter: now.Add(lasts),
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		BasicConstraintsValid: true,
	}
	for _, h := range hosts {
		if ip := net.ParseIP(h); ip != nil {
			c.IPAddresses = append(c.IPAddresses, ip)
		} else {
			c.DNSNames = append(c.DNSNames, h)
		}
	}
	return c, key, nil
}

// loopbackHosts are the names of a server on its own machine,
// and the address it listens on if it is one.
func loopbackHosts(listen string) []string {
	hosts := []string{"127.0.0.1", "localhost", "::1"}
	if ip := net.ParseIP(listen); ip != nil && !ip.IsUnspecified() && !ip.IsLoopback() {
		hosts = append(hosts, listen)
	}
	return hosts
}
