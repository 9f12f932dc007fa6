// Package kms wraps the keys of records with a key that never leaves a key management
// service: the transit engine of OpenBao and Vault, AWS KMS, Google Cloud KMS, Azure Key
// Vault.
//
// Each call is one request, and no key is kept. The package retries nothing: its errors say
// whether another attempt may succeed, and how to go on.
//
// Start reading at Keeper; the suite in kmstest says what every Keeper must do. What a URL
// may say is in place.go: URLs of gocloud.dev/secrets are among it.
package kms

import (
	"context"
	"encoding/json"
	"errors"

	"github.com/terrier-iac/terrier/internal/fault"
)

// Keeper wraps keys with one key of a service. It may be used by several goroutines.
type Keeper interface {
	// Wrap encrypts a key with the newest version of the service's key.
	Wrap(ctx context.Context, key []byte) (Wrapped, error)
	// Unwrap decrypts what Wrap returned, also with an older version. What was changed, or
	// wrapped by another key, is Broken.
	Unwrap(ctx context.Context, w Wrapped) ([]byte, error)
	// String names the service and its key without parameters that only say how to reach it.
	String() string
}

// Wrapped is a key that only a service can open.
type Wrapped struct {
	By      string `json:"wrappedBy"` // the name of the Keeper
	Version string `json:"version,omitempty"`
	Key     []byte `json:"key"`
}

// Text is how a wrapped key is stored. No plain key has this form.
func (w Wrapped) Text() ([]byte, error) { return json.Marshal(w) }

// Read reads what Text wrote, and reports whether it is that.
func Read(text []byte) (w Wrapped, ok bool) {
	err := json.Unmarshal(text, &w)
	return w, err == nil && w.By != "" && len(w.Key) > 0
}

// The reasons of this package's faults.
const (
	ReasonKey         = "RecordsKMSKeyMissing"         // the key is not there, or is disabled
	ReasonDenied      = "RecordsKMSAccessDenied"       // the identity is known, and lacks a right
	ReasonCredentials = "RecordsKMSCredentialsInvalid" // the service does not accept the identity
	ReasonUnreachable = "RecordsKMSUnreachable"
	ReasonForeign     = "RecordsKMSKeyForeign" // it was wrapped by another key, or changed
)

// Passing reports whether a service that gave this error may answer later without that a
// user changes anything.
func Passing(err error) bool {
	found, ok := errors.AsType[passing](err)
	return ok && found.passes
}

type passing struct {
	error
	passes bool
}

func (p passing) Unwrap() error { return p.error }

var errForeign = errors.New("the key was not wrapped by this key of the service, or was changed")

func foreign(at Place, err error) error {
	return fault.New(fault.Broken, ReasonForeign, errors.Join(errors.New(at.String()+": "+errForeign.Error()), err))
}
