package registryserver

import (
	"bytes"
	"context"
	"crypto/tls"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"time"

	"github.com/terrier-iac/terrier/internal/app/installation"
	"github.com/terrier-iac/terrier/internal/app/serving"
)

// certificates returns the TLS settings of the server, and the file with the authority of
// its certificate if that is its own.
func (s *server) certificates(ctx context.Context) (*tls.Config, string, error) {
	config := &tls.Config{MinVersion: tls.VersionTLS12}
	if s.Config.Cert != "" {
		f := &certificateFiles{cert: s.Config.Cert, key: s.Config.Key, now: s.Now, log: s.log}
		if _, err := f.certificate(nil); err != nil {
			return nil, "", usage("--tls-cert-file and --tls-key-file: %w", err)
		}
		config.GetCertificate = f.certificate
		return config, "", nil
	}
	keys, err := installation.Open(ctx, installation.Options{Keys: installation.InFiles, Dir: s.Config.DataDir, Now: s.Now})
	if err != nil {
		return nil, "", err
	}
	own, ca, err := keys.Certificate(s.Config.names(), s.Now())
	if err != nil {
		return nil, "", fmt.Errorf("making the certificate: %w", err)
	}
	newest := func() (tls.Certificate, error) {
		c, _, err := keys.Certificate(s.Config.names(), s.Now())
		return c, err
	}
	config.GetCertificate = serving.New(own, newest, s.Now, s.log).Get
	file := s.Config.dir("ca.crt")
	if old, err := os.ReadFile(file); err == nil && bytes.Equal(old, ca) {
		return config, file, nil
	}
	return config, file, os.WriteFile(file, ca, 0o644)
}

// certificateFiles are a certificate and its key in files. They are read again when a
// connection begins, at most once a second. Files that are invalid change nothing.
type certificateFiles struct {
	cert, key string
	now       func() time.Time
	log       *slog.Logger

	mu      sync.Mutex
	checked time.Time
	read    [2][]byte
	current *tls.Certificate
}

func (f *certificateFiles) certificate(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if now := f.now(); f.current == nil || now.Sub(f.checked) >= time.Second {
		f.checked = now
		if err := f.again(); err != nil {
			if f.current == nil {
				return nil, err
			}
			f.log.Error("certificate not changed: the files are invalid", "err", err)
		}
	}
	return f.current, nil
}

func (f *certificateFiles) again() error {
	cert, err := os.ReadFile(f.cert)
	if err != nil {
		return err
	}
	key, err := os.ReadFile(f.key)
	if err != nil {
		return err
	}
	if f.current != nil && bytes.Equal(cert, f.read[0]) && bytes.Equal(key, f.read[1]) {
		return nil
	}
	first := f.current == nil
	f.read = [2][]byte{cert, key} // an invalid pair is said once
	pair, err := tls.X509KeyPair(cert, key)
	if err != nil {
		return err
	}
	f.current = &pair
	if !first {
		f.log.Info("certificate changed", "expires", pair.Leaf.NotAfter)
	}
	return nil
}
