package kubeapi

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"math/big"
	"net"
	"os"
	"slices"
	"time"
)

const (
	authorityFor = 10 * 365 * 24 * time.Hour
	serverFor    = 2 * 365 * 24 * time.Hour
	renewBefore  = 30 * 24 * time.Hour

	// Only a start replaces the authority, since clients of the former one have to be told.
	// So it has to outlast the process.
	renewAuthorityBefore = serverFor + renewBefore
)

// pair is a certificate and its key. They live in one file, so that no crash can
// leave one without the other.
type pair struct {
	certificate *x509.Certificate
	key         *ecdsa.PrivateKey
}

func ensureAuthority(path string, now time.Time) (pair, error) {
	have, err := readPair(path)
	if err == nil && fresh(have.certificate, now, renewAuthorityBefore) {
		return have, nil
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return pair{}, err
	}
	return issue(path, pair{}, &x509.Certificate{
		Subject:               pkix.Name{CommonName: "terrier control plane"},
		NotAfter:              now.Add(authorityFor),
		IsCA:                  true,
		BasicConstraintsValid: true,
		MaxPathLenZero:        true,
		KeyUsage:              x509.KeyUsageCertSign,
	}, now)
}

// ensureServer issues a new serving certificate if the old one is about to expire, if
// the authority changed, or if it does not name the address. It reports whether it did.
func ensureServer(path string, ca pair, address string, now time.Time) (issued bool, err error) {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return false, fmt.Errorf("reading the address %q: %w", address, err)
	}
	have, err := readPair(path)
	if err == nil && fresh(have.certificate, now, renewBefore) && have.certificate.CheckSignatureFrom(ca.certificate) == nil && have.certificate.VerifyHostname(host) == nil {
		return false, nil
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return false, err
	}
	ips := []net.IP{net.IPv4(127, 0, 0, 1), net.IPv6loopback}
	if ip := net.ParseIP(host); !slices.ContainsFunc(ips, ip.Equal) {
		ips = append(ips, ip)
	}
	until := now.Add(serverFor)
	if ca.certificate.NotAfter.Before(until) {
		until = ca.certificate.NotAfter
	}
	_, err = issue(path, ca, &x509.Certificate{
		Subject:     pkix.Name{CommonName: "kube-apiserver"},
		NotAfter:    until,
		DNSNames:    []string{"localhost", serviceName},
		IPAddresses: ips,
		KeyUsage:    x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}, now)
	return err == nil, err
}

// ensureSigningKey makes the key of service account tokens. Another key would
// void every token there is, so one that cannot be read is not replaced.
func ensureSigningKey(path string) error {
	content, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		_, block, err := newKey()
		if err != nil {
			return err
		}
		return writeFile(path, block)
	}
	if err != nil {
		return fmt.Errorf("reading the key of service account tokens: %w", err)
	}
	block, _ := pem.Decode(content)
	if block == nil {
		return fmt.Errorf("the key of service account tokens %s is damaged: delete it, and a new one is made; tokens handed out before stop working", path)
	}
	return nil
}

func fresh(c *x509.Certificate, now time.Time, before time.Duration) bool {
	return !now.Before(c.NotBefore) && c.NotAfter.Sub(now) >= before
}

// issue makes a key, has its certificate signed by ca, or by itself if ca is the
// zero pair, and writes both to path.
func issue(path string, ca pair, template *x509.Certificate, now time.Time) (pair, error) {
	key, keyPEM, err := newKey()
	if err != nil {
		return pair{}, err
	}
	if ca.key == nil {
		ca = pair{certificate: template, key: key}
	}
	template.NotBefore = now.Add(-time.Minute) // for clocks that are a little behind
	if template.SerialNumber, err = rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 127)); err != nil {
		return pair{}, fmt.Errorf("making a serial number: %w", err)
	}
	der, err := x509.CreateCertificate(rand.Reader, template, ca.certificate, key.Public(), ca.key)
	if err != nil {
		return pair{}, fmt.Errorf("issuing the certificate %s: %w", path, err)
	}
	certificate, err := x509.ParseCertificate(der)
	if err != nil {
		return pair{}, fmt.Errorf("reading back the certificate %s: %w", path, err)
	}
	p := pair{certificate: certificate, key: key}
	return p, writeFile(path, append(p.certificatePEM(), keyPEM...))
}

func (p pair) certificatePEM() []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: p.certificate.Raw})
}

// newKey returns a key and its PEM form, the one that kube-apiserver reads.
func newKey() (*ecdsa.PrivateKey, []byte, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, fmt.Errorf("making a key: %w", err)
	}
	der, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return nil, nil, fmt.Errorf("encoding a key: %w", err)
	}
	return key, pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: der}), nil
}

func readPair(path string) (pair, error) {
	content, err := os.ReadFile(path)
	if err != nil {
		return pair{}, fmt.Errorf("reading the certificate %s: %w", path, err)
	}
	certificate, rest := pem.Decode(content)
	key, _ := pem.Decode(rest)
	if certificate == nil || key == nil {
		return pair{}, damaged(path, errors.New("it holds no certificate and key"))
	}
	var p pair
	if p.certificate, err = x509.ParseCertificate(certificate.Bytes); err != nil {
		return pair{}, damaged(path, err)
	}
	if p.key, err = x509.ParseECPrivateKey(key.Bytes); err != nil {
		return pair{}, damaged(path, err)
	}
	return p, nil
}

func damaged(path string, err error) error {
	return fmt.Errorf("the certificate %s is damaged: delete it, and a new one is made: %w", path, err)
}
