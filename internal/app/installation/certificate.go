package installation

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
	"math/big"
	"net"
	"strings"
	"time"
)

// certificateTime is how long a certificate lasts. Each start makes a new one.
const certificateTime = 5 * 365 * 24 * time.Hour

// Certificate makes a certificate for hosts that the authority of the installation has
// signed, with a key that is in this process only. It also returns the authority as PEM,
// which is the same for all controllers.
func (k *Keys) Certificate(hosts []string, now time.Time) (tls.Certificate, []byte, error) {
	by := k.authority
	c, key, err := certificate("terrier", hosts, now, certificateTime)
	if err != nil {
		return tls.Certificate{}, nil, err
	}
	if c.NotAfter.After(by.Leaf.NotAfter) {
		c.NotAfter = by.Leaf.NotAfter
	}
	der, err := x509.CreateCertificate(rand.Reader, c, by.Leaf, key.Public(), by.PrivateKey)
	if err != nil {
		return tls.Certificate{}, nil, err
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, encoded(by.Leaf.Raw), nil
}

// authorityTime is how long an authority lasts. It is replaced a year before its end.
const authorityTime = 10 * 365 * 24 * time.Hour

// newAuthority makes an authority and its key as PEM.
func newAuthority(now time.Time) ([]byte, error) {
	c, key, err := certificate("terrier runs", nil, now, authorityTime)
	if err != nil {
		return nil, err
	}
	c.IsCA, c.KeyUsage, c.ExtKeyUsage, c.MaxPathLenZero = true, x509.KeyUsageCertSign, nil, true
	der, err := x509.CreateCertificate(rand.Reader, c, c, key.Public(), key)
	if err != nil {
		return nil, err
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, err
	}
	return append(encoded(der), pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: private})...), nil
}

func parseAuthority(text []byte) (tls.Certificate, error) {
	c, err := tls.X509KeyPair(text, text)
	if err == nil && !c.Leaf.IsCA {
		err = errors.New("it is no certificate authority")
	}
	if err != nil {
		return c, fmt.Errorf("reading the certificate authority: %w", err)
	}
	return c, nil
}

// endsSoon reports whether an authority is to be replaced.
func endsSoon(text []byte, now time.Time) bool {
	c, err := parseAuthority(text)
	return err == nil && !now.Add(365*24*time.Hour).Before(c.Leaf.NotAfter)
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
		if ip := net.ParseIP(strings.Trim(h, "[]")); ip != nil {
			c.IPAddresses = append(c.IPAddresses, ip)
		} else {
			c.DNSNames = append(c.DNSNames, h)
		}
	}
	return c, key, nil
}
