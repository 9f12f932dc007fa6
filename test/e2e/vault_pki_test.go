package e2e

import (
	"context"
	"crypto/tls"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/terrier-iac/terrier/internal/testkit"
	"github.com/terrier-iac/terrier/internal/vault/vaulttest"
)

// KY-10, KY-11, KY-34: the API server calls webhooks whose certificate a PKI has signed. The
// status says that the server of the PKI is usable, and that it is not once it is sealed; the
// webhooks go on.
func TestAPKISignsTheCertificateOfWebhooks(t *testing.T) {
	t.Parallel()
	pki := vaulttest.NewPKI(t, time.Now)
	file := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(file, []byte(vaulttest.PKIIdentity), 0o600); err != nil {
		t.Fatal(err)
	}
	p := testkit.Up(t, "--vault", pki.URL.String(), "--allow-plain-http", "--http-certificate-from", "vault://pki/int/web?token-file="+file)
	c := p.Cluster(t)
	asked(t, c)
	issuer := func() string {
		t.Helper()
		conn, err := (&tls.Dialer{Config: &tls.Config{InsecureSkipVerify: true}}).DialContext(t.Context(), "tcp", strings.TrimPrefix(p.HTTP, "https://")) // who signed it is what is asked
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		return conn.(*tls.Conn).ConnectionState().PeerCertificates[0].Issuer.CommonName
	}
	if got := issuer(); got != "authority of a PKI" || pki.Signed() != 1 {
		t.Errorf("%q has signed the certificate, and the PKI %d, want it to have signed one", got, pki.Signed())
	}

	status := func(code int, says ...string) {
		t.Helper()
		testkit.Eventually(t, testkit.Patience, "the status says "+strings.Join(says, " and "), func(context.Context) error {
			r := c.TryTerrier(t, "status")
			for _, want := range says {
				if r.Code != code || !strings.Contains(r.Stdout, want) {
					return fmt.Errorf("exit %d and %s%s, want %d and %q", r.Code, r.Stdout, r.Stderr, code, want)
				}
			}
			return nil
		})
	}
	status(0, "good       vault: "+pki.URL.Host+" active", "good       server: ", "stacks: ", "queue: ", "flux: ")
	pki.Down.Store(true)
	status(1, "bad        vault: "+pki.URL.Host+" unreachable", "Check that the server runs")
	asked(t, c)
	if got := issuer(); got != "authority of a PKI" {
		t.Errorf("while the PKI is down, a certificate of %q is served, want the last good one", got)
	}
}
