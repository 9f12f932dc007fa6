package kubeapi

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// A control plane that runs for longer than its certificate lasts renews it, and who trusts
// the kubeconfig trusts the new one.
func TestTheCertificateIsRenewedWhileItRuns(t *testing.T) {
	var clock atomic.Pointer[time.Time]
	began := time.Now().Add(renewBefore/2 - serverFor) // so the first one ends in half a month
	clock.Store(&began)
	looks, logged := make(chan time.Time), &recorder{}
	dir := filepath.Join(openTempDir(t), "data")
	server, _ := startServer(t, Options{Dir: dir, UnsafeNoFsync: true, Log: logged.logger(), Now: func() time.Time { return *clock.Load() }, renewals: looks})
	first := served(t, server)

	looks <- time.Time{}
	looks <- time.Time{} // the look before is over
	if again := served(t, server); !again.Equal(first) || strings.Contains(logged.String(), "renewed") {
		t.Errorf("a certificate that lasts was renewed: it ends %s, and before %s", again.NotAfter, first.NotAfter)
	}
	now := time.Now()
	clock.Store(&now)
	looks <- time.Time{}
	eventually(t, "the API server shows a new certificate", func(context.Context) error {
		if again := served(t, server); again.Equal(first) {
			return errors.New("it shows the former one")
		}
		return nil
	})
	if got, want := served(t, server).NotAfter, now.Add(serverFor); want.Sub(got) > time.Second {
		t.Errorf("the new certificate ends %s, want %s", got, want)
	}
	lent, _, err := server.Certificate()
	if err != nil || !lent.Leaf.Equal(served(t, server)) {
		t.Errorf("Certificate() ends %v, %v, want the new one", lent.Leaf, err)
	}
	looks <- time.Time{} // the look that renewed it is over
	if !strings.Contains(logged.String(), "certificate of the kubernetes api renewed") {
		t.Errorf("it logs %s, want the renewal", logged)
	}

	late := began.Add(authorityFor - renewBefore/2)
	clock.Store(&late)
	looks <- time.Time{}
	eventually(t, "it says that the authority ends", func(context.Context) error {
		if !strings.Contains(logged.String(), "its authority ends at") {
			return fmt.Errorf("it logs %s", logged)
		}
		return nil
	})
}

// served is the certificate that a client of the kubeconfig gets.
func served(t *testing.T, server *Server) *x509.Certificate {
	t.Helper()
	_, authority, err := server.Certificate()
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(authority)
	c, err := tls.Dial("tcp", server.Address(), &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	return c.ConnectionState().PeerCertificates[0]
}
