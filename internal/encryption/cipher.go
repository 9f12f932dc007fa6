package encryption

import (
	"context"
	"crypto/hkdf"
	"crypto/sha256"
	"fmt"
)

// Root is what the keys of states are derived from: it is made of a key of records, and tells
// nothing about that one.
type Root [sha256.Size]byte

// NewRoot makes the root of a key of records.
func NewRoot(secret []byte) (Root, error) {
	root, err := hkdf.Extract(sha256.New, secret, []byte("terrier derived keys"))
	if err != nil {
		return Root{}, fmt.Errorf("deriving keys: %w", err)
	}
	return Root(root), nil
}

// Key derives the key of a place. It tells nothing about those of others.
func (r Root) Key(id, place string) (Key, error) {
	b, err := hkdf.Expand(sha256.New, r[:], "terrier state of "+place, KeyBytes)
	if err != nil {
		return Key{}, fmt.Errorf("deriving the key of %s: %w", place, err)
	}
	return Key{ID: id, Bytes: b}, nil
}

// Keys returns keys for a place: the one with an ID, or none if it does not exist; all of
// them, the newest first, if the ID is empty.
type Keys func(ctx context.Context, place, id string) ([]Key, error)

// Cipher encrypts and decrypts states with the keys of a platform.
type Cipher struct{ Keys Keys }

// OfSecret is the place of a state in a Secret, NAMESPACE/NAME.
func OfSecret(name string) string { return "Secret " + name }

// OfGit is the place of a state that Terrier keeps in a repository of git. Its name is that of
// the Secret which the state would have, NAMESPACE/NAME.
func OfGit(name string) string { return "git " + name }

// OfStack is the place of a state in a backend of the stack's own: any, since only the engine
// knows which.
func OfStack(kind, namespace, name string) string {
	return "stack " + kind + " " + namespace + "/" + name
}

// Encrypt encrypts the state of a place with its newest key.
func (c Cipher) Encrypt(ctx context.Context, place string, state []byte) ([]byte, error) {
	keys, err := c.Keys(ctx, place, "")
	if err != nil {
		return nil, fmt.Errorf("finding the key of the state: %w", err)
	}
	return Encrypt(state, keys[0])
}

// Decrypt decrypts the state of a place, and reports whether its newest key encrypted it.
func (c Cipher) Decrypt(ctx context.Context, place string, document []byte) (state []byte, newest bool, err error) {
	all, err := c.Keys(ctx, place, "")
	if err != nil {
		return nil, false, fmt.Errorf("finding the key of the state: %w", err)
	}
	keys, id := all, KeyOf(document)
	if id != "" && id != all[0].ID {
		if keys, err = c.Keys(ctx, place, id); err != nil {
			return nil, false, fmt.Errorf("finding the key of the state: %w", err)
		}
	}
	if len(keys) == 0 {
		return nil, false, unopened(fmt.Errorf("the key of records %s, from which its key is derived, is not there: restore it", id))
	}
	state, used, err := Decrypt(document, keys...)
	return state, err == nil && used == all[0].ID, err
}
