package app

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"

	"github.com/terrier-iac/terrier/internal/secret"
)

// listen opens an address, on loopback unless beyond. Port 0 means the port of the
// last start, so that stored addresses stay valid, or any port if that one is taken.
func listen(address, memory string, beyond bool) (net.Listener, error) {
	if err := checkHTTPAddress(address, beyond); err != nil {
		return nil, err
	}
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return nil, err
	}
	if port == "0" {
		if last, err := os.ReadFile(memory); err == nil {
			if l, err := net.Listen("tcp", net.JoinHostPort(host, strings.TrimSpace(string(last)))); err == nil {
				return l, nil
			}
		}
	}
	l, err := net.Listen("tcp", address)
	if err != nil {
		return nil, fmt.Errorf("listening for HTTP: %w", err)
	}
	_, port, err = net.SplitHostPort(l.Addr().String())
	if err == nil {
		err = os.WriteFile(memory, []byte(port), 0o600)
	}
	if err != nil {
		return nil, errors.Join(err, l.Close())
	}
	return l, nil
}

// loadSecret reads a random secret from a file, creating it at the first start.
func loadSecret(path string) (secret.Text, error) {
	b, err := os.ReadFile(path)
	if err == nil && len(b) == 64 {
		return secret.New(string(b)), nil
	}
	if err == nil {
		return secret.Text{}, fmt.Errorf("the secret %s is damaged: delete it; after that all stacks are planned again", path)
	}
	if !errors.Is(err, fs.ErrNotExist) {
		return secret.Text{}, err
	}
	raw := make([]byte, 32)
	if _, err := rand.Read(raw); err != nil {
		return secret.Text{}, err
	}
	text := hex.EncodeToString(raw)
	tmp := filepath.Join(filepath.Dir(path), ".new-"+filepath.Base(path))
	if err := os.WriteFile(tmp, []byte(text), 0o600); err != nil {
		return secret.Text{}, err
	}
	return secret.New(text), os.Rename(tmp, path)
}
