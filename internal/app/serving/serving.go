// Package serving shows clients a certificate that is renewed while its server runs: a server
// may run for longer than its certificate lasts.
//
// It makes no certificates: the caller says where the newest one is.
//
// Start reading at Certificate.
package serving

import (
	"crypto/tls"
	"log/slog"
	"sync"
	"time"
)

const (
	renewBefore = 30 * 24 * time.Hour // before its end another certificate is asked for
	askEvery    = time.Hour
	sayEvery    = 24 * time.Hour // that there is none
)

// Certificate is the newest certificate of a server.
type Certificate struct {
	read func() (tls.Certificate, error)
	now  func() time.Time
	log  *slog.Logger

	mu      sync.Mutex
	current tls.Certificate
	asked   time.Time
	said    time.Time
}

// New returns a certificate that begins as first. A month before its end read is asked for
// another one, which the same authorities have signed, once an hour while clients connect.
func New(first tls.Certificate, read func() (tls.Certificate, error), now func() time.Time, log *slog.Logger) *Certificate {
	return &Certificate{current: first, read: read, now: now, log: log}
}

// Get implements GetCertificate of tls.Config. It returns the last certificate if there is no
// newer one.
func (c *Certificate) Get(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if now := c.now(); c.current.Leaf != nil && c.current.Leaf.NotAfter.Sub(now) < renewBefore && now.Sub(c.asked) >= askEvery {
		c.asked = now
		c.renew(now)
	}
	current := c.current
	return &current, nil
}

func (c *Certificate) renew(now time.Time) {
	next, err := c.read()
	switch {
	case err == nil && next.Leaf != nil && next.Leaf.NotAfter.After(c.current.Leaf.NotAfter):
		c.current = next
		c.log.Info("certificate of the http api renewed", "ends", next.Leaf.NotAfter)
	case now.Sub(c.said) >= sayEvery:
		c.said = now
		c.log.Warn("certificate of the http api not renewed: it ends with its authority, or cannot be read; a restart renews both", "ends", c.current.Leaf.NotAfter, "err", err)
	}
}
