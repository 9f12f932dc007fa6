package kube

import (
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"strings"

	"github.com/terrier-iac/terrier/internal/encryption"
	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/record"
	"github.com/terrier-iac/terrier/internal/stack"
)

// Limits of states and of their Secrets.
const (
	stateBytes  = 256 << 20 // unpacked, as much as a run accepts
	secretBytes = 950 << 10 // packed; the API takes 1 MiB in a Secret, all keys together
)

// Overflow keeps states that outgrow a Secret, by key.
type Overflow interface {
	Put(ctx context.Context, key string, r io.Reader) error
	Get(ctx context.Context, key string) (io.ReadCloser, error)
	Delete(ctx context.Context, key string) error
	List(ctx context.Context, prefix string) ([]string, error)
}

// pointer stands in a Secret in place of a state that it has no room for. The
// plain engine takes a Secret without a state for an empty state, and would create
// everything again; so the Secret must hold something that the engine refuses. The
// engine reads the version of the format first, and stops at an unknown one.
type pointer struct {
	Version uint64 `json:"version"`
	Serial  uint64 `json:"serial"`
	Lineage string `json:"lineage"`
	Terrier place  `json:"terrier"`
}

type place struct {
	Note   string `json:"note"`
	Blob   string `json:"blob"` // the key of the state
	Digest string `json:"digest"`
	Bytes  int    `json:"bytes"`
}

// pointerVersion is no version of the format of a state, and never will be.
const pointerVersion = 1_000_000

const pointerNote = "This state is too large for a Secret. Terrier keeps it in its own store: terrier state pull writes it to a file."

// OutgrownKey is where a state that outgrew its Secret is kept.
func OutgrownKey(ref StateRef, digest string) string { return record.Outgrown(placeOf(ref), digest) }

// placeOf names the Secret of a state in keys of records.
func placeOf(ref StateRef) string { return record.Hex(digestOf([]byte(ref.String())))[:32] }

// pack returns the content of the Secret. It stores a state that does not fit in
// the overflow first, which is encrypted in any case.
func (s States) pack(ctx context.Context, ref StateRef, state []byte) (packed []byte, outgrown bool, err error) {
	content := state
	if ref.Encrypted {
		if s.Cipher == nil {
			return nil, false, fault.New(fault.Broken, encryption.ReasonKey, fmt.Errorf("encrypting the state of the Secret %s: there is no key", ref))
		}
		if content, err = s.Cipher.Encrypt(ctx, ref.KeyPlace(), state); err != nil {
			return nil, false, fmt.Errorf("encrypting the state of the Secret %s: %w", ref, err)
		}
	}
	packed, err = gzipped(content)
	if err != nil || len(packed) <= secretBytes {
		return packed, false, err
	}
	if s.Overflow == nil {
		return nil, false, fault.New(fault.Invalid, StateTooLarge, fmt.Errorf("the compressed state has %d bytes, a Secret has room for %d, and %w", len(packed), secretBytes, errNoOverflow))
	}
	facts, err := stack.ReadState(state)
	if err != nil {
		return nil, false, err
	}
	digest := digestOf(state)
	key := OutgrownKey(ref, digest)
	if err := s.Overflow.Put(ctx, key, bytes.NewReader(state)); err != nil {
		return nil, false, fmt.Errorf("storing the state that outgrew the Secret %s: %w", ref, err)
	}
	b, err := json.Marshal(pointer{
		Version: pointerVersion, Serial: facts.Serial, Lineage: facts.Lineage,
		Terrier: place{Note: pointerNote, Blob: key, Digest: digest, Bytes: len(state)},
	})
	if err != nil {
		return nil, false, err
	}
	packed, err = gzipped(b)
	return packed, true, err
}

// unpack reads the content of the Secret, and the state that it points to, into found.
func (s States) unpack(ctx context.Context, ref StateRef, packed []byte, found *Stored) error {
	b, err := gunzip(packed, 2*stateBytes) // encrypted, it is larger by a third
	if err != nil {
		return unreadable(fmt.Errorf("unpacking it: %w", err))
	}
	if p, ok := pointed(b); ok {
		found.Outgrown = true
		found.State, err = s.follow(ctx, ref, p)
		return err
	}
	found.State = b
	if s.Cipher == nil || !encryption.Encrypted(b) {
		return nil
	}
	found.Encrypted = true
	found.State, found.Newest, err = s.Cipher.Decrypt(ctx, ref.KeyPlace(), b)
	if fault.Reason(err, "") == encryption.ReasonKey {
		return unreadable(err)
	}
	return err
}

// follow reads the state that a pointer leads to.
func (s States) follow(ctx context.Context, ref StateRef, p place) ([]byte, error) {
	key := OutgrownKey(ref, p.Digest) // not the key that it names: a pointer must lead to no other state
	if s.Overflow == nil {
		return nil, unreadable(fmt.Errorf("it points to %s, and %w", key, errNoOverflow))
	}
	r, err := s.Overflow.Get(ctx, key)
	if fault.Of(err) == fault.Missing {
		return nil, unreadable(fmt.Errorf("it points to %s, which does not exist: %w", key, err))
	}
	if err != nil {
		return nil, fmt.Errorf("fetching %s: %w", key, err)
	}
	defer r.Close()
	state, err := io.ReadAll(io.LimitReader(r, stateBytes))
	if err != nil {
		return nil, fmt.Errorf("fetching %s: %w", key, err)
	}
	if got := digestOf(state); got != p.Digest {
		return nil, unreadable(fmt.Errorf("%s holds another state (%s)", key, got))
	}
	return state, nil
}

// pointed reads a pointer, if b is one. It does not parse what is obviously a
// state.
func pointed(b []byte) (place, bool) {
	if len(b) > 16<<10 || !bytes.Contains(b, []byte(`"terrier"`)) {
		return place{}, false
	}
	var p pointer
	if err := json.Unmarshal(b, &p); err != nil || p.Version != pointerVersion {
		return place{}, false
	}
	if sum, ok := strings.CutPrefix(p.Terrier.Digest, "sha256:"); !ok || len(sum) != 2*sha256.Size {
		return place{}, false
	}
	return p.Terrier, true
}

// dropOverflow removes the states that the Secret no longer points to.
func (s States) dropOverflow(ctx context.Context, ref StateRef, now string) error {
	if s.Overflow == nil {
		return nil
	}
	keys, err := s.Overflow.List(ctx, record.OutgrownOf(placeOf(ref)))
	if err != nil {
		return err
	}
	for _, key := range keys {
		if key == OutgrownKey(ref, now) {
			continue
		}
		if err := s.Overflow.Delete(ctx, key); err != nil && fault.Of(err) != fault.Missing {
			return err
		}
	}
	return nil
}

func digestOf(b []byte) string {
	sum := sha256.Sum256(b)
	return "sha256:" + hex.EncodeToString(sum[:])
}

func gzipped(b []byte) ([]byte, error) {
	var buf bytes.Buffer
	w := gzip.NewWriter(&buf)
	if _, err := w.Write(b); err != nil {
		return nil, err
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	return buf.Bytes(), nil
}

func gunzip(b []byte, limit int64) ([]byte, error) {
	r, err := gzip.NewReader(bytes.NewReader(b))
	if err != nil {
		return nil, err
	}
	out, err := io.ReadAll(io.LimitReader(r, limit+1))
	if err != nil {
		return nil, err
	}
	if int64(len(out)) > limit {
		return nil, fmt.Errorf("it is larger than %d bytes", limit)
	}
	return out, r.Close()
}
