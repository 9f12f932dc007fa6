// Package pki has a server certificate signed by the PKI of OpenBao or Vault, and renews it
// before it ends. The private key is made here and goes nowhere: the server signs a request.
//
// While the server cannot be asked, the last certificate is served until it ends, and then the
// one that the caller has of its own. So an outage of the server stops no one from being served.
// Clients trust what they were told at the start: a certificate of an authority that is not in
// that bundle is not served.
//
// Start reading at Keeper.
package pki

import (
	"cmp"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"strings"
	"sync"
	"time"

	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/vault"
)

// ReasonCertificate is of certificates that cannot be used.
const ReasonCertificate = "CertificateUnusable"

// Source is a role of a PKI, and who asks it.
type Source struct {
	Server vault.Server
	SignIn func(context.Context) (vault.SignIn, error)
	Mount  string // of the engine
	Role   string
	Hosts  []string      // names and addresses that the certificate is for; the first is its common name
	Life   time.Duration // that is asked for; 0 is that of the role
}

// Issued is a certificate and the authorities that lead to it.
type Issued struct {
	Certificate tls.Certificate
	CA          []byte // in PEM
}

// Issue has a certificate signed.
func (s Source) Issue(ctx context.Context) (Issued, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return Issued{}, err
	}
	with, err := s.request(key)
	if err != nil {
		return Issued{}, err
	}
	by, err := s.SignIn(ctx)
	if err != nil {
		return Issued{}, err
	}
	session, err := s.Server.SignIn(ctx, by)
	if err != nil {
		return Issued{}, err
	}
	got, err := session.Read(ctx, vault.Wanted{Path: s.Mount + "/sign/" + s.Role, With: with})
	if err == nil && got.Lease != "" {
		// The certificate would be revoked with the session.
		err = fault.New(fault.Invalid, ReasonCertificate, fmt.Errorf("the role %s of the PKI at %s makes a lease for each certificate: set generate_lease=false", s.Role, s.Mount))
	}
	if ended := session.End(ctx, nil); err == nil {
		err = ended
	}
	if err != nil {
		return Issued{}, err
	}
	return issued(got.Data, key)
}

// request is what the role is asked for.
func (s Source) request(key *ecdsa.PrivateKey) (map[string]string, error) {
	c := &x509.CertificateRequest{Subject: pkix.Name{CommonName: s.Hosts[0]}}
	var names, addresses []string
	for _, h := range s.Hosts {
		if ip := net.ParseIP(strings.Trim(h, "[]")); ip != nil {
			c.IPAddresses, addresses = append(c.IPAddresses, ip), append(addresses, ip.String())
		} else {
			c.DNSNames, names = append(c.DNSNames, h), append(names, h)
		}
	}
	der, err := x509.CreateCertificateRequest(rand.Reader, c, key)
	if err != nil {
		return nil, err
	}
	with := map[string]string{
		"csr":         string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der})),
		"common_name": s.Hosts[0], "alt_names": strings.Join(names, ","), "ip_sans": strings.Join(addresses, ","),
	}
	if s.Life > 0 {
		with["ttl"] = s.Life.String()
	}
	return with, nil
}

// issued reads what the PKI answers.
func issued(data map[string][]byte, key *ecdsa.PrivateKey) (Issued, error) {
	var chain []string
	if text := data["ca_chain"]; len(text) > 0 && json.Unmarshal(text, &chain) != nil {
		return Issued{}, errors.New("the answer of the PKI has a chain that is none")
	}
	if len(chain) == 0 {
		chain = []string{string(data["issuing_ca"])}
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return Issued{}, err
	}
	ca := strings.TrimSpace(strings.Join(chain, "\n")) + "\n"
	// Intermediate authorities are sent along: clients may trust the root alone.
	c, err := tls.X509KeyPair([]byte(strings.TrimSpace(string(data["certificate"]))+"\n"+ca), pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: private}))
	if err != nil {
		return Issued{}, fault.New(fault.Broken, ReasonCertificate, fmt.Errorf("reading the certificate that the PKI signed: %w", err))
	}
	return Issued{c, []byte(ca)}, nil
}

// Pauses between attempts.
const (
	retryFirst = 10 * time.Second
	retryMost  = 5 * time.Minute
)

// Keeper serves the newest certificate.
type Keeper struct {
	source Source
	own    func(*tls.ClientHelloInfo) (*tls.Certificate, error)
	now    func() time.Time
	log    *slog.Logger

	mu      sync.Mutex
	trusted *x509.CertPool // what clients were told
	current *Issued
	due     time.Time // of the next attempt
	failed  int       // attempts since the last success
}

// NewKeeper serves the certificate own until there is another one. Nothing is asked yet.
func NewKeeper(s Source, own func(*tls.ClientHelloInfo) (*tls.Certificate, error), now func() time.Time, log *slog.Logger) *Keeper {
	return &Keeper{source: s, own: own, now: now, log: log}
}

// Trust says which authorities clients were told of, in PEM.
func (k *Keeper) Trust(bundle []byte) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.trusted = x509.NewCertPool()
	k.trusted.AppendCertsFromPEM(bundle)
}

// CA are the authorities of the newest certificate; nil if there is none.
func (k *Keeper) CA() []byte {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.current == nil {
		return nil
	}
	return k.current.CA
}

// Certificate is what is served now. It implements GetCertificate of tls.Config.
func (k *Keeper) Certificate(hello *tls.ClientHelloInfo) (*tls.Certificate, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.current == nil || k.trusted == nil || !k.now().Before(k.current.Certificate.Leaf.NotAfter) || k.foreign(k.current.Certificate) {
		return k.own(hello)
	}
	return &k.current.Certificate, nil
}

// foreign reports whether clients were not told of the authority of a certificate.
func (k *Keeper) foreign(c tls.Certificate) bool {
	between := x509.NewCertPool()
	for _, der := range c.Certificate[1:] {
		if ca, err := x509.ParseCertificate(der); err == nil {
			between.AddCert(ca)
		}
	}
	_, err := c.Leaf.Verify(x509.VerifyOptions{Roots: k.trusted, Intermediates: between, CurrentTime: k.now()})
	return err != nil
}

// Step has the certificate signed or renewed if it is time, and returns how long to wait. It
// is time at two thirds of the life of the last one, and soon again after a failure.
func (k *Keeper) Step(ctx context.Context) time.Duration {
	k.mu.Lock()
	wait := k.due.Sub(k.now())
	k.mu.Unlock()
	if wait > 0 {
		return wait
	}
	next, err := k.source.Issue(ctx)
	k.mu.Lock()
	defer k.mu.Unlock()
	now := k.now()
	if err != nil {
		wait = min(retryFirst<<min(k.failed, 10), retryMost)
		k.failed++
		k.due = now.Add(wait)
		if ctx.Err() == nil {
			k.log.Warn("the certificate of the HTTP API is not renewed; the last one is served until it ends, and then that of the own authority", "ends", k.ends(), "err", err)
		}
		return wait
	}
	leaf := next.Certificate.Leaf
	k.current, k.failed = &next, 0
	// The clock of the server decides when it begins; ours when it is renewed.
	k.due = now.Add(max(retryFirst, leaf.NotAfter.Sub(now)*2/3))
	if k.trusted != nil && k.foreign(next.Certificate) {
		k.log.Warn("the certificate of the HTTP API has an authority that clients were not told of: restart the controller to use it", "issuer", leaf.Issuer.String())
	} else {
		k.log.Info("the certificate of the HTTP API is signed", "ends", leaf.NotAfter, "renewed", k.due)
	}
	return k.due.Sub(now)
}

// ends is when the last certificate ends; zero if there is none.
func (k *Keeper) ends() time.Time {
	if k.current == nil {
		return time.Time{}
	}
	return k.current.Certificate.Leaf.NotAfter
}

// Run renews until ctx ends.
func (k *Keeper) Run(ctx context.Context) error {
	for {
		timer := time.NewTimer(cmp.Or(k.Step(ctx), retryFirst))
		select {
		case <-ctx.Done():
			timer.Stop()
			return nil
		case <-timer.C:
		}
	}
}
