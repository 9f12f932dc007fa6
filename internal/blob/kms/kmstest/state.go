package kmstest

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/rand"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
)

// state is what a server knows: versions of its two keys, and what troubles it.
type state struct {
	mu       sync.Mutex
	keys     map[string][]cipher.AEAD
	denied   bool
	disabled bool
	revoked  bool
}

func newState(t *testing.T, keys ...string) *state {
	s := &state{keys: map[string][]cipher.AEAD{}}
	for _, k := range keys {
		s.rotate(t, k)
	}
	return s
}

func (s *state) rotate(t *testing.T, key string) {
	secret := make([]byte, 32)
	_, _ = rand.Read(secret) // never fails
	block, err := aes.NewCipher(secret)
	if err != nil {
		t.Fatal(err)
	}
	aead, err := cipher.NewGCM(block)
	if err != nil {
		t.Fatal(err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.keys[key] = append(s.keys[key], aead)
}

// wrap encrypts with the newest version, which it returns.
func (s *state) wrap(key string, plain []byte) (wrapped []byte, version int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	version = len(s.keys[key])
	aead := s.keys[key][version-1]
	nonce := make([]byte, aead.NonceSize())
	_, _ = rand.Read(nonce) // never fails
	return append([]byte{byte(version)}, aead.Seal(nonce, nonce, plain, []byte(key))...), version
}

func (s *state) unwrap(key string, wrapped []byte) ([]byte, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(wrapped) < 13 || int(wrapped[0]) < 1 || int(wrapped[0]) > len(s.keys[key]) {
		return nil, false
	}
	plain, err := s.keys[key][wrapped[0]-1].Open(nil, wrapped[1:13], wrapped[13:], []byte(key))
	return plain, err == nil
}

func (s *state) has(key string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.keys[key]) > 0
}

func (s *state) is(trouble *bool) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return *trouble
}

func (s *state) set(trouble *bool, yes bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	*trouble = yes
}

// server fills in the ways to trouble a server of this state.
func (s *state) server(of Server, h *httptest.Server, key string) Server {
	of.Rotate = func(t *testing.T) { s.rotate(t, key) }
	of.Deny = func(_ *testing.T, yes bool) { s.set(&s.denied, yes) }
	of.Disable = func(*testing.T) { s.set(&s.disabled, true) }
	of.Revoke = func(*testing.T) { s.set(&s.revoked, true) }
	of.Down = func(*testing.T) { h.Close() }
	return of
}

// read reads the body of a request, and its JSON into in.
func read(r *http.Request, in any) ([]byte, error) {
	body, err := io.ReadAll(r.Body)
	if err == nil {
		err = json.Unmarshal(body, in)
	}
	return body, err
}

func write(w http.ResponseWriter, code int, out any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(out)
}
