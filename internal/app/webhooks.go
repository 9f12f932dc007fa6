package app

import (
	"bytes"
	"fmt"
	"io"
	"os"

	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/outbound"
	"github.com/terrier-iac/terrier/internal/review"
	"github.com/terrier-iac/terrier/internal/secret"
)

// Lengths of the key that signs requests to webhooks.
const (
	webhookKeyLeast = 16
	webhookKeyMost  = 4096
)

// webhooks is the configuration of webhooks. Invalid files are reported at the
// start, and not when the first plan needs them.
func (c Config) webhooks(out *outbound.Client) (review.Webhooks, error) {
	w := review.Webhooks{Client: out, Certs: c.WebhookCerts, Unmasked: c.Unmasked}
	if w.Certs != "" {
		root, err := os.OpenRoot(w.Certs)
		if err != nil {
			return w, fault.New(fault.Invalid, "Usage", fmt.Errorf("--webhook-certs: %w", err))
		}
		if err := root.Close(); err != nil {
			return w, err
		}
	}
	if c.WebhookKey == "" {
		return w, nil
	}
	key, err := readKey(c.WebhookKey)
	if err != nil {
		return w, fault.New(fault.Invalid, "Usage", fmt.Errorf("--webhook-key: %w", err))
	}
	w.Key = key
	return w, nil
}

func readKey(path string) (secret.Text, error) {
	f, err := os.Open(path)
	if err != nil {
		return secret.Text{}, err
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, webhookKeyMost+1))
	if err != nil {
		return secret.Text{}, err
	}
	b = bytes.TrimRight(b, "\r\n")
	switch {
	case len(b) < webhookKeyLeast:
		return secret.Text{}, fmt.Errorf("%s contains fewer than %d bytes", path, webhookKeyLeast)
	case len(b) > webhookKeyMost:
		return secret.Text{}, fmt.Errorf("%s is longer than %d bytes", path, webhookKeyMost)
	}
	return secret.New(string(b)), nil
}
