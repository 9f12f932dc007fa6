// Package kmstest says what every kms.Keeper must do, and has small servers that behave as
// the key management services of clouds do: they check who asks, and keep versions of a
// key.
package kmstest

import (
	"bytes"
	"fmt"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/terrier-iac/terrier/internal/blob/kms"
	"github.com/terrier-iac/terrier/internal/fault"
)

// Server is a key management service with one key, and the ways to trouble it.
type Server struct {
	URL     string // of the key, as the flag names it
	Other   string // of a second key
	Missing string // of a key that is not there
	Environ map[string]string

	Rotate  func(t *testing.T)           // makes a new version of the key
	Deny    func(t *testing.T, yes bool) // takes the right to use the key
	Disable func(t *testing.T)           // takes the key out of use, for good
	Down    func(t *testing.T)           // lets the service answer no more
	Revoke  func(t *testing.T)           // makes the credentials invalid
	Sticky  bool                         // versions are not told apart
}

// Open opens a key of the server.
func (s Server) Open(t *testing.T, url string) kms.Keeper {
	t.Helper()
	environ := func(name string) string { return s.Environ[name] }
	place, err := kms.Parse(url, environ)
	if err != nil {
		t.Fatal(err)
	}
	k, err := kms.Open(place, kms.Options{Environ: environ, Now: time.Now})
	if err != nil {
		t.Fatal(err)
	}
	return k
}

// Run runs the suite. Each part has a server of its own.
func Run(t *testing.T, start func(t *testing.T) (Server, func(t *testing.T, url string) kms.Keeper)) {
	key := []byte("canary: 32 bytes of a secret key")
	for name, test := range map[string]func(t *testing.T, s Server, open func(url string) kms.Keeper){
		"a key comes back": func(t *testing.T, s Server, open func(string) kms.Keeper) {
			k := open(s.URL)
			w := wrap(t, k, key)
			if bytes.Contains(w.Key, key) || w.By != k.String() || !strings.HasPrefix(s.URL, k.String()) {
				t.Errorf("Wrap() by %q = %+v", k, w)
			}
			text, err := w.Text()
			read, ok := kms.Read(text)
			if err != nil || !ok {
				t.Fatalf("%s is read as %t, %v", text, ok, err)
			}
			unwrapped(t, open(s.URL), read, key)
		},
		"a changed key is refused": func(t *testing.T, s Server, open func(string) kms.Keeper) {
			k := open(s.URL)
			w := wrap(t, k, key)
			flipped := w
			flipped.Key = bytes.Clone(w.Key)
			i := len(flipped.Key) - 5
			flipped.Key[i] = map[bool]byte{true: 'B', false: 'A'}[flipped.Key[i] == 'A']
			cut := w
			cut.Key = w.Key[:len(w.Key)-8]
			for _, bad := range []kms.Wrapped{flipped, cut} {
				_, err := k.Unwrap(t.Context(), bad)
				refused(t, err, fault.Broken, kms.ReasonForeign, false)
			}
		},
		"another key does not open it": func(t *testing.T, s Server, open func(string) kms.Keeper) {
			w := wrap(t, open(s.URL), key)
			w.Version = wrap(t, open(s.Other), key).Version
			_, err := open(s.Other).Unwrap(t.Context(), w)
			refused(t, err, fault.Broken, kms.ReasonForeign, false)
		},
		"a rotation": func(t *testing.T, s Server, open func(string) kms.Keeper) {
			k := open(s.URL)
			old := wrap(t, k, key)
			s.Rotate(t)
			fresh := wrap(t, k, key)
			if same := old.Version == fresh.Version; same != s.Sticky {
				t.Errorf("the version was %q, and is %q after a rotation", old.Version, fresh.Version)
			}
			unwrapped(t, k, old, key)
			unwrapped(t, k, fresh, key)
		},
		"a right that is lost": func(t *testing.T, s Server, open func(string) kms.Keeper) {
			k := open(s.URL)
			w := wrap(t, k, key)
			s.Deny(t, true)
			_, err := k.Unwrap(t.Context(), w)
			refused(t, err, fault.Later, kms.ReasonDenied, false)
			_, err = k.Wrap(t.Context(), key)
			refused(t, err, fault.Later, kms.ReasonDenied, false)
			s.Deny(t, false)
			unwrapped(t, k, w, key)
		},
		"a key that is not there": func(t *testing.T, s Server, open func(string) kms.Keeper) {
			_, err := open(s.Missing).Wrap(t.Context(), key)
			if r := fault.Reason(err, ""); r != kms.ReasonKey && r != kms.ReasonDenied {
				t.Errorf("Wrap() by a key that is not there = %v", err)
			}
			if kms.Passing(err) {
				t.Errorf("Wrap() = %v, which passes", err)
			}
		},
		"a key that is out of use": func(t *testing.T, s Server, open func(string) kms.Keeper) {
			k := open(s.URL)
			w := wrap(t, k, key)
			s.Disable(t)
			_, err := k.Unwrap(t.Context(), w)
			refused(t, err, fault.Later, kms.ReasonKey, false)
		},
		"a service that is down": func(t *testing.T, s Server, open func(string) kms.Keeper) {
			k := open(s.URL)
			w := wrap(t, k, key)
			s.Down(t)
			_, err := k.Unwrap(t.Context(), w)
			refused(t, err, fault.Later, kms.ReasonUnreachable, true)
			_, err = k.Wrap(t.Context(), key)
			refused(t, err, fault.Later, kms.ReasonUnreachable, true)
		},
		"credentials that are revoked": func(t *testing.T, s Server, open func(string) kms.Keeper) {
			k := open(s.URL)
			w := wrap(t, k, key)
			s.Revoke(t)
			_, err := k.Unwrap(t.Context(), w)
			if r := fault.Reason(err, ""); r != kms.ReasonCredentials && r != kms.ReasonDenied {
				t.Errorf("Unwrap() with credentials that were revoked = %v", err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			s, open := start(t)
			if open == nil {
				open = s.Open
			}
			test(t, s, func(url string) kms.Keeper { return open(t, url) })
		})
	}
}

func wrap(t *testing.T, k kms.Keeper, key []byte) kms.Wrapped {
	t.Helper()
	w, err := k.Wrap(t.Context(), key)
	if err != nil {
		t.Fatal(err)
	}
	return w
}

func unwrapped(t *testing.T, k kms.Keeper, w kms.Wrapped, want []byte) {
	t.Helper()
	if got, err := k.Unwrap(t.Context(), w); err != nil || !bytes.Equal(got, want) {
		t.Errorf("Unwrap() of version %q = %d bytes, %v", w.Version, len(got), err)
	}
}

// refused checks an error, which says how to go on and nothing of the key.
func refused(t *testing.T, err error, kind fault.Kind, reason string, passes bool) {
	t.Helper()
	if err == nil || fault.Of(err) != kind || fault.Reason(err, "") != reason || kms.Passing(err) != passes {
		t.Errorf("the error is %v (%v, %s, passes: %t), want %v, %s, %t", err, fault.Of(err), fault.Reason(err, ""), kms.Passing(err), kind, reason, passes)
	}
	if strings.Contains(fmt.Sprint(err), "canary") {
		t.Errorf("the error tells the key: %v", err)
	}
}

// started is a server that ends with the test.
func started(t *testing.T, s *httptest.Server) string {
	t.Cleanup(s.Close)
	return s.URL
}
