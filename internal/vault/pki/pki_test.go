package pki_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/vault"
	"github.com/terrier-iac/terrier/internal/vault/pki"
	"github.com/terrier-iac/terrier/internal/vault/vaulttest"
)

// world is a server with a PKI, at a time that the test moves.
type world struct {
	*vaulttest.PKI
	now    time.Time
	source pki.Source
}

func newWorld(t *testing.T) *world {
	w := &world{now: time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)}
	w.PKI = vaulttest.NewPKI(t, func() time.Time { return w.now })
	file := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(file, []byte(vaulttest.PKIIdentity+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	var err error
	if w.source, err = pki.Parse("vault://pki/int/web?role=terrier&auth=auth/k8s&ttl=24h&jwt-file=" + file); err != nil {
		t.Fatal(err)
	}
	w.source.Server = vault.Server{URL: w.URL, HTTP: http.DefaultClient}
	w.source.Hosts = []string{"terrier.terrier-system.svc", "localhost", "127.0.0.1"}
	return w
}

// own is the certificate of the caller's own authority.
func own(t *testing.T, now time.Time) (tls.Certificate, string) {
	t.Helper()
	c, key := vaulttest.Authority(t, now)
	return tls.Certificate{Certificate: [][]byte{c.Raw}, PrivateKey: key, Leaf: c}, string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: c.Raw}))
}

func (w *world) served(t *testing.T, k *pki.Keeper) *x509.Certificate {
	t.Helper()
	c, err := k.Certificate(nil)
	if err != nil {
		t.Fatal(err)
	}
	return c.Leaf
}

// shows is a server with that certificate.
func shows(c tls.Certificate) func(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	return func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return &c, nil }
}

// A certificate is renewed at two thirds of its life. While the server is down, the last good
// one is served until it ends, and then the own one; afterwards a new one.
func TestRenewedBeforeItEnds(t *testing.T) {
	w := newWorld(t)
	self, bundle := own(t, w.now)
	var log bytes.Buffer
	k := pki.NewKeeper(w.source, shows(self), func() time.Time { return w.now }, slog.New(slog.NewTextHandler(&log, nil)))
	if got := w.served(t, k); !got.Equal(self.Leaf) {
		t.Errorf("before anything is signed, %s is served, want the own one", got.Subject)
	}
	if wait := k.Step(t.Context()); wait < 15*time.Hour || wait > 16*time.Hour+time.Minute {
		t.Errorf("the next step comes after %s, want two thirds of a day", wait)
	}
	k.Trust([]byte(bundle + string(k.CA())))
	first := w.served(t, k)
	if err := first.VerifyHostname("terrier.terrier-system.svc"); err != nil || first.VerifyHostname("127.0.0.1") != nil {
		t.Errorf("the certificate is for %v %v: %v", first.DNSNames, first.IPAddresses, err)
	}
	w.now = w.now.Add(15 * time.Hour)
	if k.Step(t.Context()); w.Signed() != 1 || !w.served(t, k).Equal(first) {
		t.Errorf("before its time there are %d certificates, want one", w.Signed())
	}
	w.now = w.now.Add(2 * time.Hour)
	k.Step(t.Context())
	second := w.served(t, k)
	if w.Signed() != 2 || second.Equal(first) {
		t.Errorf("after two thirds there are %d certificates, want another one", w.Signed())
	}

	w.Down.Store(true)
	w.now = w.now.Add(17 * time.Hour)
	if wait := k.Step(t.Context()); wait <= 0 || wait > time.Minute {
		t.Errorf("after a failure the next attempt comes after %s, want it soon", wait)
	}
	if got := w.served(t, k); !got.Equal(second) {
		t.Errorf("while the server is down, %v is served, want the last good one", got.Subject)
	}
	w.now = second.NotAfter
	k.Step(t.Context())
	if got := w.served(t, k); !got.Equal(self.Leaf) {
		t.Errorf("after its end, %v is served, want the own one", got.Subject)
	}
	w.Down.Store(false)
	w.now = w.now.Add(10 * time.Minute)
	k.Step(t.Context())
	if got := w.served(t, k); got.Equal(self.Leaf) || got.Equal(second) || !w.now.Before(got.NotAfter) {
		t.Errorf("after the outage, %v is served, want a new one", got.Subject)
	}
	if text := log.String(); strings.Count(text, "level=WARN") != 2 || strings.Contains(text, vaulttest.PKIIdentity) {
		t.Errorf("the log is %s, want two warnings and no token", text)
	}
}

// Clients that were told of one authority are not served a certificate of another one.
func TestAnotherAuthorityIsNotServed(t *testing.T) {
	w := newWorld(t)
	self, bundle := own(t, w.now)
	var log bytes.Buffer
	k := pki.NewKeeper(w.source, shows(self), func() time.Time { return w.now }, slog.New(slog.NewTextHandler(&log, nil)))
	k.Trust([]byte(bundle)) // the server was down at the start
	k.Step(t.Context())
	if got := w.served(t, k); !got.Equal(self.Leaf) || !strings.Contains(log.String(), "restart the controller") {
		t.Errorf("%v is served and the log is %s, want the own one, and what to do", got.Subject, log.String())
	}
	if len(k.CA()) == 0 {
		t.Error("the authority is not known for the next start")
	}
}

// What is served is what a client of the bundle accepts, over a real connection.
func TestAClientAcceptsIt(t *testing.T) {
	w := newWorld(t)
	w.now = time.Now()
	w.Renew(t)
	self, bundle := own(t, w.now)
	k := pki.NewKeeper(w.source, shows(self), time.Now, slog.New(slog.DiscardHandler))
	k.Step(t.Context())
	k.Trust([]byte(bundle + string(k.CA())))
	l, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{GetCertificate: k.Certificate})
	if err != nil {
		t.Fatal(err)
	}
	srv := &http.Server{Handler: http.NotFoundHandler()}
	done := make(chan struct{})
	go func() { defer close(done); _ = srv.Serve(l) }() // it ends with an error that says that it was closed
	defer func() { _ = srv.Close(); <-done }()
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(k.CA())
	var d net.Dialer
	raw, err := d.DialContext(t.Context(), "tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	conn := tls.Client(raw, &tls.Config{RootCAs: roots, ServerName: "terrier.terrier-system.svc"})
	defer conn.Close()
	if err := conn.HandshakeContext(t.Context()); err != nil {
		t.Errorf("a client that trusts the PKI alone: %v", err)
	}
}

// A lease would have the certificate revoked at the end of the session.
func TestLeasesAreRefused(t *testing.T) {
	w := newWorld(t)
	w.Lease = "pki/int/sign/web/1"
	if _, err := w.source.Issue(t.Context()); fault.Reason(err, "") != pki.ReasonCertificate || !strings.Contains(err.Error(), "generate_lease=false") {
		t.Errorf("the error is %v, want what to set", err)
	}
}

func TestPlaces(t *testing.T) {
	for text, want := range map[string]string{
		"vault://pki/web?role=terrier":               "",
		"vault://team/pki/web?token-file=/token":     "",
		"vault://pki/web":                            "add role=ROLE",
		"vault://web?role=terrier":                   "names no role of a PKI",
		"https://vault/pki/web?role=a":               "is not vault://",
		"vault://pki/web?role=a&ttl=1s":              "no time of a minute",
		"vault://pki/web?role=a&password=abc":        "is not known",
		"vault://pki/web?role=a&ttl=24h&auth=auth/k": "",
	} {
		_, err := pki.Parse(text)
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("Parse(%s) = %v, want %q", text, err, want)
		}
	}
}

// The PKI of OpenBao signs it, with the URLs of the authority in it.
func TestOpenBaoSigns(t *testing.T) {
	s := vaulttest.OpenBao(t)
	s.Ask(t, http.MethodPost, "pki/config/urls", map[string]any{"issuing_certificates": s.URL.String() + "/v1/pki/ca", "crl_distribution_points": s.URL.String() + "/v1/pki/crl"})
	s.Ask(t, http.MethodPost, "pki/roles/terrier", map[string]any{"allowed_domains": "terrier-system.svc", "allow_subdomains": true, "key_type": "ec", "max_ttl": "24h"})
	s.Policy(t, "pki", `path "pki/sign/terrier" { capabilities = ["update"] }`)
	file := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(file, []byte(s.Token(t, "pki", "1h")), 0o600); err != nil {
		t.Fatal(err)
	}
	source, err := pki.Parse("vault://pki/terrier?token-file=" + file)
	if err != nil {
		t.Fatal(err)
	}
	source.Server, source.Hosts = vault.Server{URL: s.URL, HTTP: http.DefaultClient}, []string{"terrier.terrier-system.svc", "localhost", "127.0.0.1"}
	ctx, stop := context.WithTimeout(t.Context(), time.Minute)
	defer stop()
	got, err := source.Issue(ctx)
	if err != nil {
		t.Fatal(err)
	}
	leaf := got.Certificate.Leaf
	if leaf.VerifyHostname("terrier.terrier-system.svc") != nil || len(leaf.CRLDistributionPoints) != 1 || len(leaf.IssuingCertificateURL) != 1 {
		t.Errorf("the certificate is for %v with the CRL %v and the authority %v", leaf.DNSNames, leaf.CRLDistributionPoints, leaf.IssuingCertificateURL)
	}
}
