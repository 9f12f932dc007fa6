package runnertest

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"math/big"
	"net"
	"testing"
	"time"
)

// Certificate makes a certificate for a server of the test at a name or an address. It
// also returns the authority that has signed it, as PEM.
func Certificate(t testing.TB, host string) (certificate tls.Certificate, authority []byte) {
	t.Helper()
	sign := func(of, by *x509.Certificate, key, with *ecdsa.PrivateKey) []byte {
		der, err := x509.CreateCertificate(rand.Reader, of, by, &key.PublicKey, with)
		if err != nil {
			t.Fatal(err)
		}
		return der
	}
	key := func() *ecdsa.PrivateKey {
		k, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
		if err != nil {
			t.Fatal(err)
		}
		return k
	}
	from, until := time.Now().Add(-time.Hour), time.Now().Add(time.Hour)
	root := &x509.Certificate{SerialNumber: big.NewInt(1), NotBefore: from, NotAfter: until, IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign}
	leaf := &x509.Certificate{SerialNumber: big.NewInt(2), NotBefore: from, NotAfter: until, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}}
	if ip := net.ParseIP(host); ip != nil {
		leaf.IPAddresses = []net.IP{ip}
	} else {
		leaf.DNSNames = []string{host}
	}
	rootKey, leafKey := key(), key()
	authority = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: sign(root, root, rootKey, rootKey)})
	return tls.Certificate{Certificate: [][]byte{sign(leaf, root, leafKey, rootKey)}, PrivateKey: leafKey}, authority
}
