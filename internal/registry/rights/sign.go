package rights

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/secret"
)

// ReasonSignature is the reason of a fault of an address that is not signed, or no longer.
const ReasonSignature = "SignatureInvalid"

// Signer signs addresses of archives: clients fetch these without their token. Replicas
// with the same key accept one another's addresses.
type Signer struct {
	key secret.Text
	now func() time.Time
}

// NewSigner returns a signer with a key.
func NewSigner(key secret.Text, now func() time.Time) Signer { return Signer{key, now} }

// The parameters of a signed address.
const (
	paramExpires   = "expires"
	paramSignature = "signature"
)

// Sign returns the parameters by which the archive of a key may be fetched for a time.
func (s Signer) Sign(key string, life time.Duration) url.Values {
	expires := strconv.FormatInt(s.now().Add(life).Unix(), 10)
	return url.Values{paramExpires: {expires}, paramSignature: {base64.RawURLEncoding.EncodeToString(s.mac(key, expires))}}
}

// Check refuses parameters that do not fit a key, or that have expired.
func (s Signer) Check(key string, given url.Values) error {
	expires := given.Get(paramExpires)
	mac, err := base64.RawURLEncoding.DecodeString(given.Get(paramSignature))
	if err != nil || !hmac.Equal(mac, s.mac(key, expires)) {
		return fault.New(fault.Denied, ReasonSignature, errors.New("the address is not signed by this registry"))
	}
	// Only what was signed is read.
	at, err := strconv.ParseInt(expires, 10, 64)
	if err != nil || !s.now().Before(time.Unix(at, 0)) {
		return fault.New(fault.Denied, ReasonSignature, errors.New("the address has expired: run init again"))
	}
	return nil
}

func (s Signer) mac(key, expires string) []byte {
	mac := hmac.New(sha256.New, []byte(s.key.Reveal()))
	fmt.Fprintf(mac, "terrier registry archive v1\x00%s\x00%s", key, expires)
	return mac.Sum(nil)
}

// keyBytes is the length of a random key; NewKey returns it as text.
const keyBytes = 32

// NewKey returns a random key.
func NewKey() secret.Text {
	raw := make([]byte, keyBytes)
	rand.Read(raw) // never fails
	return secret.New(hex.EncodeToString(raw))
}

// ParseKey reads a key as NewKey makes them, or any other text of at least as many
// characters.
func ParseKey(text []byte) (secret.Text, error) {
	key := strings.TrimSpace(string(text))
	if len(key) < 2*keyBytes {
		return secret.Text{}, fmt.Errorf("the key has %d characters, and needs at least %d: make one with: openssl rand -hex 32", len(key), 2*keyBytes)
	}
	return secret.New(key), nil
}

// KeyFile reads the key in a file, which only its owner may read, and makes one if there is
// none. Two processes that do so at once get the same key.
func KeyFile(path string) (secret.Text, error) {
	text, err := readSecret(path)
	if errors.Is(err, fs.ErrNotExist) {
		if err := makeSecret(path, NewKey()); err != nil {
			return secret.Text{}, fmt.Errorf("making the key %s: %w", path, err)
		}
		text, err = readSecret(path)
	}
	var key secret.Text
	if err == nil {
		key, err = ParseKey(text)
	}
	if err != nil {
		return secret.Text{}, fmt.Errorf("reading the key %s: %w", path, err)
	}
	return key, nil
}

func readSecret(path string) ([]byte, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if info.Mode().Perm()&0o007 != 0 {
		return nil, fault.New(fault.Denied, "KeyExposed", fmt.Errorf("its mode is %v, and others may read it: run chmod 600 %s", info.Mode().Perm(), path))
	}
	return readFile(path, tokenBytes)
}

// makeSecret writes a secret beside and links it to its name, which does nothing if the
// name is taken: a secret is never replaced, and never there in part.
func makeSecret(path string, s secret.Text) (err error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return err
	}
	f, err := os.CreateTemp(filepath.Dir(path), ".new-*") // mode 0600
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.Remove(f.Name())) }()
	_, err = f.WriteString(s.Reveal() + "\n")
	if err = errors.Join(err, f.Sync(), f.Close()); err != nil {
		return err
	}
	if err := os.Link(f.Name(), path); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	return nil
}
