package installation

import (
	"bytes"
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
	"slices"
	"strings"
	"time"
)

// certificateTime is how long a certificate lasts. Each start makes a new one.
const certificateTime = 5 * 365 * 24 * time.Hour

// Certificate makes a certificate for hosts that an authority of the installation has signed,
// with a key that is in this process only. It also returns the authorities as PEM, which are
// the same for all controllers, except while one of them is replaced: then each knows the one
// that signs for the others.
func (k *Keys) Certificate(hosts []string, now time.Time) (tls.Certificate, []byte, error) {
	by := k.authorities.signer(now)
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
	leaf, err := x509.ParseCertificate(der)
	if err != nil {
		return tls.Certificate{}, nil, err
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key, Leaf: leaf}, k.authorities.trusted(), nil
}

// The life of an authority. Its successor is trusted by all that start from then on, long
// before it signs anything: controllers of which some were started before the others, pods of
// runs and users that were told of the former authority accept each other's certificates all
// the time.
//
//	0                                  8 years     9 years      10 years
//	├─ signs ──────────────────────────┼───────────┤············│ the authority
//	                                   ├ trusted ──┼─ signs ────┼──── its successor
const (
	authorityTime  = 10 * 365 * 24 * time.Hour
	successorTime  = 2 * 365 * 24 * time.Hour // before the end its successor is made, by the next start
	signsUntil     = 365 * 24 * time.Hour     // before the end its successor signs, if it is known for knownTime
	knownTime      = 90 * 24 * time.Hour
	signsAnywayFor = 30 * 24 * time.Hour // before the end its successor signs, however new it is
)

// authorities are those of an installation, from the oldest to the newest: one, or two while
// one of them is replaced.
type authorities []tls.Certificate

// signer is the authority that signs certificates.
func (a authorities) signer(now time.Time) tls.Certificate {
	for i, by := range a[:len(a)-1] {
		left, known := by.Leaf.NotAfter.Sub(now), now.Sub(a[i+1].Leaf.NotBefore)
		if left > signsUntil || left > signsAnywayFor && known < knownTime {
			return by
		}
	}
	return a[len(a)-1]
}

// trusted are the authorities as PEM.
func (a authorities) trusted() (text []byte) {
	for _, c := range a {
		text = append(text, encoded(c.Leaf.Raw)...)
	}
	return text
}

// shares reports whether who trusts the one also trusts something of the other.
func (a authorities) shares(b authorities) bool {
	return slices.ContainsFunc(a, func(c tls.Certificate) bool {
		return slices.ContainsFunc(b, func(d tls.Certificate) bool { return c.Leaf.Equal(d.Leaf) })
	})
}

// succeeded returns the text of the authorities with a successor if they need one, and without
// those that have ended. It returns nil if they stay as they are.
func succeeded(text []byte, now time.Time) ([]byte, error) {
	a, err := parseAuthorities(text)
	if err != nil {
		return nil, err
	}
	next := slices.Clone(a)
	if !now.Add(successorTime).Before(a[len(a)-1].Leaf.NotAfter) {
		c, err := newAuthority(now)
		if err != nil {
			return nil, err
		}
		next = append(next, c)
	}
	for len(next) > 1 && !now.Before(next[0].Leaf.NotAfter) {
		next = next[1:]
	}
	if next[0].Leaf.Equal(a[0].Leaf) && len(next) == len(a) {
		return nil, nil
	}
	return next.text()
}

// text is how authorities are stored. An earlier release, which knows one, reads the first.
func (a authorities) text() (text []byte, err error) {
	for _, c := range a {
		private, err := x509.MarshalPKCS8PrivateKey(c.PrivateKey)
		if err != nil {
			return nil, err
		}
		text = append(text, encoded(c.Leaf.Raw)...)
		text = append(text, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: private})...)
	}
	return text, nil
}

// newAuthority makes an authority.
func newAuthority(now time.Time) (tls.Certificate, error) {
	c, key, err := certificate("terrier runs", nil, now, authorityTime)
	if err != nil {
		return tls.Certificate{}, err
	}
	c.IsCA, c.KeyUsage, c.ExtKeyUsage, c.MaxPathLenZero = true, x509.KeyUsageCertSign, nil, true
	der, err := x509.CreateCertificate(rand.Reader, c, c, key.Public(), key)
	if err != nil {
		return tls.Certificate{}, err
	}
	leaf, err := x509.ParseCertificate(der)
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key, Leaf: leaf}, err
}

// parseAuthorities reads certificates, each with its key behind it.
func parseAuthorities(text []byte) (a authorities, err error) {
	for rest := text; len(bytes.TrimSpace(rest)) > 0; {
		var public, private *pem.Block
		if public, rest = pem.Decode(rest); public != nil {
			private, rest = pem.Decode(rest)
		}
		if public == nil || private == nil {
			return nil, errors.New("reading the certificate authority: it is no certificate with its key in PEM")
		}
		c, err := tls.X509KeyPair(pem.EncodeToMemory(public), pem.EncodeToMemory(private))
		if err == nil && !c.Leaf.IsCA {
			err = errors.New("it is no certificate authority")
		}
		if err != nil {
			return nil, fmt.Errorf("reading the certificate authority: %w", err)
		}
		a = append(a, c)
	}
	if len(a) == 0 {
		return nil, errors.New("reading the certificate authority: there is none")
	}
	return a, nil
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
