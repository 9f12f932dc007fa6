package vaulttest

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"math/big"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// PKIIdentity signs in to a PKI: as the token of a ServiceAccount with the role terrier, and
// as a token of the server.
const PKIIdentity = "pki-identity-canary"

// PKI is a server that signs certificates at pki/int with the role web, each for a day.
type PKI struct {
	URL   *url.URL
	Down  atomic.Bool // it answers as one that is sealed
	Lease string      // that each certificate gets; empty for none

	now    func() time.Time
	cert   *x509.Certificate
	key    *ecdsa.PrivateKey
	signed atomic.Int64
}

// Authority makes a certificate authority.
func Authority(t *testing.T, now time.Time) (*x509.Certificate, *ecdsa.PrivateKey) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	c := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "authority of a PKI"}, NotBefore: now.Add(-time.Hour), NotAfter: now.Add(1000 * time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, c, c, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	if c, err = x509.ParseCertificate(der); err != nil {
		t.Fatal(err)
	}
	return c, key
}

// NewPKI starts one, by a clock of the test.
func NewPKI(t *testing.T, now func() time.Time) *PKI {
	p := &PKI{now: now}
	p.Renew(t)
	h := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if p.Down.Load() {
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		out, ok := p.answer(t, r)
		if !ok {
			w.WriteHeader(http.StatusNoContent)
			return
		}
		if err := json.NewEncoder(w).Encode(out); err != nil {
			t.Error(err)
		}
	}))
	t.Cleanup(h.Close)
	var err error
	if p.URL, err = url.Parse(h.URL); err != nil {
		t.Fatal(err)
	}
	return p
}

// Renew gives it another authority.
func (p *PKI) Renew(t *testing.T) { p.cert, p.key = Authority(t, p.now()) }

// Signed is how many certificates it has signed.
func (p *PKI) Signed() int { return int(p.signed.Load()) }

// answer is what it says to a request; false for nothing.
func (p *PKI) answer(t *testing.T, r *http.Request) (any, bool) {
	var in map[string]string
	_ = json.NewDecoder(r.Body).Decode(&in) // a GET has none
	session := map[string]any{"auth": map[string]any{"client_token": "session", "accessor": "a"}}
	ca := string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: p.cert.Raw}))
	switch path := strings.TrimPrefix(r.URL.Path, "/v1/"); path {
	case "auth/k8s/login":
		if in["role"] != "terrier" || in["jwt"] != PKIIdentity {
			t.Errorf("the PKI was signed in to as %q", in["role"])
		}
		return session, true
	case "auth/token/create":
		if r.Header.Get("X-Vault-Token") != PKIIdentity {
			t.Error("the PKI was signed in to with another token")
		}
		return session, true
	case "sys/health":
		return map[string]any{"initialized": true, "sealed": false, "version": "0.0.0"}, true
	case "sys/internal/ui/mounts/pki/int/sign/web":
		return map[string]any{"data": map[string]any{"path": "pki/int/", "type": "pki"}}, true
	case "pki/int/sign/web":
		cert, err := p.sign(in["csr"])
		if err != nil {
			t.Errorf("the PKI was asked for what it cannot sign: %v", err)
		}
		p.signed.Add(1)
		return map[string]any{"lease_id": p.Lease, "data": map[string]any{"certificate": cert, "issuing_ca": ca, "ca_chain": []string{ca}}}, true
	case "auth/token/revoke-self":
	default:
		t.Errorf("the PKI was asked for %s", path)
	}
	return nil, false
}

// sign signs a request for a day.
func (p *PKI) sign(csr string) (string, error) {
	block, _ := pem.Decode([]byte(csr))
	if block == nil {
		return "", x509.ErrUnsupportedAlgorithm
	}
	r, err := x509.ParseCertificateRequest(block.Bytes)
	if err != nil {
		return "", err
	}
	serial, err := rand.Int(rand.Reader, big.NewInt(1<<62))
	if err != nil {
		return "", err
	}
	now := p.now()
	c := &x509.Certificate{
		SerialNumber: serial, Subject: r.Subject, DNSNames: r.DNSNames, IPAddresses: r.IPAddresses, NotBefore: now.Add(-time.Minute), NotAfter: now.Add(24 * time.Hour),
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, c, p.cert, r.PublicKey, p.key)
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})), err
}
