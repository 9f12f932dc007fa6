package blob

import (
	"crypto/cipher"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/crypto/chacha20poly1305"

	"github.com/terrier-iac/terrier/internal/encryption"
	"github.com/terrier-iac/terrier/internal/fault"
)

// Key seals blobs. It shows its id and never itself.
type Key struct {
	aead cipher.AEAD
	id   keyID
	root encryption.Root
}

// keyID tells keys apart without telling anything about them.
type keyID [8]byte

func (id keyID) String() string { return hex.EncodeToString(id[:]) }

// NewKey returns the key of 32 secret bytes.
func NewKey(secret []byte) (Key, error) {
	aead, err := chacha20poly1305.NewX(secret)
	if err != nil {
		return Key{}, fmt.Errorf("making a key: %w", err)
	}
	hash := sha256.Sum256(append([]byte("terrier blob key id\x00"), secret...))
	root, err := encryption.NewRoot(secret)
	if err != nil {
		return Key{}, fmt.Errorf("making a key: %w", err)
	}
	return Key{aead: aead, id: keyID(hash[:8]), root: root}, nil
}

// OfState returns the key of the states of a place.
func (k Key) OfState(place string) (encryption.Key, error) { return k.root.Key(k.ID(), place) }

// ID returns a public name of the key.
func (k Key) ID() string { return k.id.String() }

// Format prints the id for every verb.
func (k Key) Format(s fmt.State, _ rune) { fmt.Fprintf(s, "key %s", k.id) }

// LoadKey reads a key from a file that only its owner can read, and makes one
// if there is none. Two processes that do so at once get the same key.
func LoadKey(path string) (Key, error) {
	secret, err := readKey(path)
	if errors.Is(err, fs.ErrNotExist) {
		if err := makeKey(path); err != nil {
			return Key{}, fmt.Errorf("making the key %s: %w", path, err)
		}
		secret, err = readKey(path)
	}
	if err != nil {
		return Key{}, fmt.Errorf("reading the key %s: %w", path, err)
	}
	return NewKey(secret)
}

func readKey(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() || info.Mode().Perm()&0o077 != 0 {
		return nil, fault.New(fault.Denied, "KeyExposed", fmt.Errorf("its mode is %v, and it must be a file of mode 0600", info.Mode()))
	}
	secret, err := io.ReadAll(io.LimitReader(f, chacha20poly1305.KeySize+1))
	if err != nil {
		return nil, err
	}
	if len(secret) != chacha20poly1305.KeySize {
		return nil, fault.New(fault.Invalid, "KeyInvalid", fmt.Errorf("it does not have %d bytes", chacha20poly1305.KeySize))
	}
	return secret, nil
}

// makeKey writes a key beside and links it to its name, which fails if the name
// is taken: a key is never replaced, and never there in part.
func makeKey(path string) (err error) {
	secret := make([]byte, chacha20poly1305.KeySize)
	if _, err := rand.Read(secret); err != nil {
		return err
	}
	dir := filepath.Dir(path)
	f, err := os.CreateTemp(dir, ".key-*") // mode 0600
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.Remove(f.Name())) }()
	_, err = f.Write(secret)
	if err == nil {
		err = f.Sync()
	}
	if err := errors.Join(err, f.Close()); err != nil {
		return err
	}
	if err := os.Link(f.Name(), path); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
