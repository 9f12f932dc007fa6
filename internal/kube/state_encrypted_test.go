package kube

import (
	"bytes"
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/terrier-iac/terrier/internal/encryption"
	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/testkit"
)

// keyring are the keys of a platform, the newest first.
type keyring struct{ ids []string }

func (k *keyring) keys(_ context.Context, place, id string) (found []encryption.Key, err error) {
	for _, known := range k.ids {
		if id == "" || id == known {
			found = append(found, encryption.Key{ID: known, Bytes: []byte(digestOf([]byte(place + known))[:encryption.KeyBytes])})
		}
	}
	return found, nil
}

// A state is encrypted from the first write on, taken over from a plain one, encrypted again
// with a newer key, and plain again, and at each moment it reads the same.
func TestAnEncryptedState(t *testing.T) {
	const canary = "hunter2-of-the-state"
	k := testkit.Kube(t)
	ring := &keyring{ids: []string{"one"}}
	for name, seen := range map[string]*Seen{"read": nil, "seen": NewSeen()} {
		t.Run(name, func(t *testing.T) {
			ring.ids = []string{"one"}
			s := States{Client: k.Client, Now: time.Now, Seen: seen, Cipher: encryption.Cipher{Keys: ring.keys}}
			ref := StateRef{Namespace: k.Namespace, Workspace: "default", Suffix: "sealed-" + name}
			sealed := ref
			sealed.Encrypted = true
			next, serial := func(serial int) []byte { return state("l", serial, canary) }, 1
			check := func(what string, key string) {
				t.Helper()
				var secret corev1.Secret
				k.Get(t, ref.secret().Name, &secret)
				raw, err := gunzip(secret.Data[stateKey], stateBytes)
				if err != nil {
					t.Fatal(err)
				}
				if bytes.Contains(raw, []byte(canary)) != (key == "") || encryption.KeyOf(raw) != key {
					t.Errorf("%s: the Secret holds %s, want it encrypted with the key %q", what, raw, key)
				}
				got, err := s.Load(t.Context(), ref)
				if err != nil || !bytes.Equal(got.State, next(serial)) || got.Digest != digestOf(next(serial)) || got.Encrypted != (key != "") {
					t.Errorf("%s: Load() = %s, encrypted %v, %v", what, got.State, got.Encrypted, err)
				}
			}
			save := func(ref StateRef) {
				t.Helper()
				serial++
				if err := s.Save(t.Context(), ref, Owner{Name: "sealed"}, next(serial)); err != nil {
					t.Fatal(err)
				}
			}
			reform := func(ref StateRef) {
				t.Helper()
				if err := s.Reform(t.Context(), ref); err != nil {
					t.Fatal(err)
				}
			}
			save(sealed)
			check("from the first write on", "one")
			save(ref)
			check("written by what does not know of the encryption", "one")
			reform(ref)
			check("no longer asked for", "")
			save(ref)
			check("written without it", "")
			reform(sealed)
			check("taken over", "one")
			ring.ids = []string{"two", "one"}
			check("after a rotation", "one")
			reform(sealed)
			check("encrypted again", "two")
			version := func() string {
				var secret corev1.Secret
				k.Get(t, ref.secret().Name, &secret)
				return secret.ResourceVersion
			}
			before := version()
			reform(sealed)
			if after := version(); after != before {
				t.Error("a state that is as it should be is written again")
			}
			save(sealed)
			ring.ids = []string{"two"}
			check("without the older key", "two")
			ring.ids = []string{"three"}
			got, err := s.Load(t.Context(), ref)
			if fault.Reason(err, "") != StateUnreadable || got.State != nil || !got.Encrypted || !strings.HasPrefix(got.Digest, "unreadable:") {
				t.Errorf("without its key: %+v, %v, want it to be unreadable", got, err)
			}
			if err := s.Save(t.Context(), sealed, Owner{Name: "sealed"}, next(serial+1)); seen == nil && fault.Of(err) != fault.Conflict {
				t.Errorf("over a state that cannot be read: %v, want a conflict", err)
			}
		})
	}
}

// A Secret that was copied to another place does not open there.
func TestAnEncryptedStateOfAnotherPlace(t *testing.T) {
	k := testkit.Kube(t)
	s := States{Client: k.Client, Now: time.Now, Cipher: encryption.Cipher{Keys: (&keyring{ids: []string{"one"}}).keys}}
	ref := StateRef{Namespace: k.Namespace, Workspace: "default", Suffix: "mine", Encrypted: true}
	if err := s.Save(t.Context(), ref, Owner{Name: "mine"}, state("l", 1, "")); err != nil {
		t.Fatal(err)
	}
	var mine corev1.Secret
	k.Get(t, ref.secret().Name, &mine)
	theirs := ref
	theirs.Suffix = "theirs"
	stolen := &corev1.Secret{Data: mine.Data}
	stolen.Namespace, stolen.Name = theirs.Namespace, theirs.secret().Name
	if err := k.Client.Create(t.Context(), stolen); err != nil {
		t.Fatal(err)
	}
	if got, err := s.Load(t.Context(), theirs); fault.Reason(err, "") != StateUnreadable || got.State != nil {
		t.Errorf("the copy reads %s, %v", got.State, err)
	}
}

// Without keys nothing is stored in clear that was to be encrypted.
func TestAStateIsNotStoredWithoutItsKey(t *testing.T) {
	k := testkit.Kube(t)
	ref := StateRef{Namespace: k.Namespace, Workspace: "default", Suffix: "keyless", Encrypted: true}
	broken := encryption.Cipher{Keys: func(context.Context, string, string) ([]encryption.Key, error) { return nil, fmt.Errorf("no key") }}
	for name, cipher := range map[string]Cipher{"no cipher": nil, "no key": broken} {
		s := States{Client: k.Client, Now: time.Now, Cipher: cipher}
		if err := s.Save(t.Context(), ref, Owner{Name: "keyless"}, state("l", 1, "")); err == nil {
			t.Errorf("%s: the state is stored", name)
		}
	}
	if got, err := (States{Client: k.Client, Now: time.Now}).Load(t.Context(), ref); err != nil || got.Digest != "" {
		t.Errorf("stored is %s, %v", got.State, err)
	}
}

// A state that is too large once it is encrypted is kept beside its Secret.
func TestAnEncryptedStateThatOutgrowsItsSecret(t *testing.T) {
	k := testkit.Kube(t)
	beside := shelf{}
	s := States{Client: k.Client, Now: time.Now, Overflow: beside, Cipher: encryption.Cipher{Keys: (&keyring{ids: []string{"one"}}).keys}}
	ref := StateRef{Namespace: k.Namespace, Workspace: "default", Suffix: "big-sealed", Encrypted: true}
	if err := s.Save(t.Context(), ref, Owner{Name: "big"}, large(1)); err != nil {
		t.Fatal(err)
	}
	if got, err := s.Load(t.Context(), ref); err != nil || !got.Outgrown || !bytes.Equal(got.State, large(1)) {
		t.Errorf("Load() = %d bytes, outgrown %v, %v", len(got.State), got.Outgrown, err)
	}
	if err := s.Reform(t.Context(), ref); err != nil || len(beside) != 1 {
		t.Errorf("Reform() = %v, and %d blobs are kept, want 1", err, len(beside))
	}
	small := state("big", 2, "")
	if err := s.Save(t.Context(), ref, Owner{Name: "big"}, small); err != nil {
		t.Fatal(err)
	}
	if got, err := s.Load(t.Context(), ref); err != nil || !got.Encrypted || !bytes.Equal(got.State, small) {
		t.Errorf("once it shrank: %s, encrypted %v, %v", got.State, got.Encrypted, err)
	}
}
