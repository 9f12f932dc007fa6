package kubeapi

import (
	"crypto/x509"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func TestKeysAreMadeOnce(t *testing.T) {
	d, now := newDir(t), time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	first := files(t, d, "127.0.0.1:1", now)
	second := files(t, d, "127.0.0.1:2", now.Add(24*time.Hour))
	for name := range first {
		if first[name] != second[name] {
			t.Errorf("%s was made again", name)
		}
	}
}

func TestCertificatesAreRenewed(t *testing.T) {
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	for name, c := range map[string]struct {
		later             time.Duration
		address           string
		authority, server bool // which is new
	}{
		"not while there is time":            {serverFor - renewBefore, "127.0.0.1:1", false, false},
		"the server's a month before":        {serverFor - renewBefore + time.Hour, "127.0.0.1:1", false, true},
		"the server's if the host changes":   {time.Hour, "127.0.0.9:1", false, true},
		"not while it outlasts a process":    {authorityFor - renewAuthorityBefore, "127.0.0.1:1", false, true},
		"both if the authority's is too old": {authorityFor - renewAuthorityBefore + time.Hour, "127.0.0.1:1", true, true},
		"both if the clock was set back":     {-time.Hour, "127.0.0.1:1", true, true},
	} {
		t.Run(name, func(t *testing.T) {
			d := newDir(t)
			before := files(t, d, "127.0.0.1:1", now)
			after := files(t, d, c.address, now.Add(c.later))
			for file, want := range map[string]bool{"authority.pem": c.authority, "server.pem": c.server, "tokens.csv": false, "service-account.pem": false, "encryption.yaml": false} {
				if got := before[file] != after[file]; got != want {
					t.Errorf("%s is new: %v, want %v", file, got, want)
				}
			}
			verifyServer(t, d, c.address, now.Add(c.later))
		})
	}
}

// verifyServer checks the serving certificate as a client would.
func verifyServer(t *testing.T, d dir, address string, now time.Time) {
	t.Helper()
	ca, err := readPair(d.own("pki", "authority.pem"))
	if err != nil {
		t.Fatal(err)
	}
	server, err := readPair(d.own("pki", "server.pem"))
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AddCert(ca.certificate)
	for _, name := range []string{"localhost", "127.0.0.1", "::1", serviceName, strings.Split(address, ":")[0]} {
		if _, err := server.certificate.Verify(x509.VerifyOptions{Roots: roots, DNSName: name, CurrentTime: now}); err != nil {
			t.Errorf("the certificate is not good for %s: %v", name, err)
		}
	}
}

func TestAStartThatWasCutShortIsFinished(t *testing.T) {
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	for _, missing := range []string{"authority.pem", "server.pem", "service-account.pem", "encryption.yaml", "tokens.csv"} {
		t.Run(missing, func(t *testing.T) {
			d := newDir(t)
			files(t, d, "127.0.0.1:1", now)
			path := d.own("pki", missing)
			if err := os.Rename(path, path+".new"); err != nil { // a crash just before the rename
				t.Fatal(err)
			}
			files(t, d, "127.0.0.1:1", now)
			verifyServer(t, d, "127.0.0.1:1", now)
		})
	}
}

func TestAStoreWithoutItsKeyIsRefused(t *testing.T) {
	d, now := newDir(t), time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	files(t, d, "127.0.0.1:1", now)
	if err := os.Mkdir(d.store(), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(d.own("pki", "encryption.yaml")); err != nil {
		t.Fatal(err)
	}
	_, err := ensureKeys(d, "127.0.0.1:1", now)
	if err == nil || !strings.Contains(err.Error(), "backup") {
		t.Errorf("ensureKeys() = %v, want it to ask for the key", err)
	}
}

func TestADamagedTokenFileIsNotQuoted(t *testing.T) {
	d, now := newDir(t), time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	if err := os.WriteFile(d.own("pki", "tokens.csv"), []byte(`"hush,terrier-admin`), 0o600); err != nil {
		t.Fatal(err)
	}
	_, err := ensureKeys(d, "127.0.0.1:1", now)
	if err == nil || strings.Contains(err.Error(), "hush") {
		t.Errorf("ensureKeys() = %v, want an error without the content", err)
	}
}

func newDir(t *testing.T) dir {
	t.Helper()
	d, err := openDir(filepath.Join(t.TempDir(), "data"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(d.close)
	return d
}

// files runs ensureKeys and returns what is in the pki directory, by name.
func files(t *testing.T, d dir, address string, now time.Time) map[string]string {
	t.Helper()
	if _, err := ensureKeys(d, address, now); err != nil {
		t.Fatal(err)
	}
	entries, err := os.ReadDir(d.own("pki"))
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]string{}
	for _, entry := range entries {
		content, err := os.ReadFile(d.own("pki", entry.Name()))
		if err != nil {
			t.Fatal(err)
		}
		found[entry.Name()] = string(content)
	}
	return found
}
