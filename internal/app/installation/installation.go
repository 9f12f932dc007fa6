// Package installation keeps the secrets that all controllers of one installation share:
// the key of digests, sessions and pulls, the key of the pods of runs, and the certificate
// authority of the HTTP API. They are files of the data directory, or entries of a Secret,
// which outlives that directory.
//
// It replaces no secret but an authority that ends soon, which stays beside its successor
// until its end, and makes none where that would hide that the former ones are lost.
//
// Start reading at Open.
package installation

import (
	"context"
	"crypto/hkdf"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/secret"
)

// Values of --installation-keys.
const (
	InFiles  = "file"   // below secrets of the data directory
	InSecret = "secret" // in the namespace of the platform
)

// SecretName is the Secret of the keys.
const SecretName = "terrier-installation"

// Names of the secrets, as files and as entries of the Secret.
const (
	digests   = "digests"
	runs      = "runs"
	authority = "http-authority"
)

// The reasons of this package's faults.
const (
	ReasonLost    = "InstallationKeysMissing"
	ReasonAnother = "AnotherInstallation"
)

// Keys are the secrets of an installation.
type Keys struct {
	digests     secret.Text
	runs        []byte
	authorities authorities

	kept  *inSecret // nil if they are files
	texts texts
}

// texts are the secrets as they are stored, by name.
type texts map[string][]byte

// Options say where the keys are.
type Options struct {
	Keys      string // --installation-keys
	Dir       string // the data directory
	Namespace string // of the platform
	Lease     string // of the controllers, whose annotation names their installation; empty without one
	Client    client.Client
	Now       func() time.Time
	Progress  func(format string, args ...any)
}

// Check reports a flag that cannot be.
func Check(keys string) error {
	if keys != InFiles && keys != InSecret {
		return fault.New(fault.Invalid, "Usage", fmt.Errorf("--installation-keys: %q is neither file nor secret", keys))
	}
	return nil
}

// Open opens the keys of a controller. The first start makes them, or copies those of the
// data directory into the Secret. Several controllers that start at once get the same keys
// from a Secret. With files the caller holds the lock of the data directory.
func Open(ctx context.Context, o Options) (*Keys, error) {
	if o.Keys == InSecret {
		return o.openSecret(ctx)
	}
	if err := o.elsewhere(); err != nil {
		return nil, err
	}
	t, err := o.files(true)
	if err != nil {
		return nil, err
	}
	return parse(t, nil)
}

// Local opens the keys of a process that shares its data directory with no other one and
// has no pods: it needs no key of runs and no authority.
func Local(dir string, now func() time.Time) (*Keys, error) {
	text, err := Options{Dir: dir, Now: now}.file(digests, true)
	if err != nil {
		return nil, err
	}
	return &Keys{digests: secret.New(string(text))}, nil
}

func parse(t texts, kept *inSecret) (k *Keys, err error) {
	k = &Keys{digests: secret.New(string(t[digests])), kept: kept, texts: t}
	if k.runs, err = hex.DecodeString(string(t[runs])); err != nil {
		return nil, err
	}
	k.authorities, err = parseAuthorities(t[authority])
	return k, err
}

// Digests is the key of digests, sessions, pulls and links.
func (k *Keys) Digests() secret.Text { return k.digests }

// Runs is the key that marks the pods of runs.
func (k *Keys) Runs() []byte { return k.runs }

// ID names the installation and tells nothing about its keys.
func (k *Keys) ID() string { return idOf(k.digests.Reveal()) }

func idOf(digests string) string {
	sum := sha256.Sum256([]byte("data directory\x00" + digests))
	return hex.EncodeToString(sum[:8])
}

// Shared reports whether controllers with other data directories have the same keys.
func (k *Keys) Shared() bool { return k.kept != nil }

// Derive returns a secret text for one purpose, the same for each controller.
func (k *Keys) Derive(purpose string) (string, error) {
	b, err := hkdf.Key(sha256.New, []byte(k.digests.Reveal()), nil, purpose, 16)
	return hex.EncodeToString(b), err
}

// made makes the text of a secret.
func made(name string, now time.Time) ([]byte, error) {
	if name == authority {
		c, err := newAuthority(now)
		if err != nil {
			return nil, err
		}
		return authorities{c}.text()
	}
	raw := make([]byte, 32)
	if _, err := rand.Read(raw); err != nil {
		return nil, err
	}
	return []byte(hex.EncodeToString(raw)), nil
}

// whole reports text that cannot be the secret of that name.
func whole(name string, text []byte) error {
	if name == authority {
		_, err := parseAuthorities(text)
		return err
	}
	if raw, err := hex.DecodeString(string(text)); err != nil || len(raw) != 32 {
		return errors.New("it does not have 64 hexadecimal digits")
	}
	return nil
}
