package registry_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/terrier-iac/terrier/internal/address"
	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/registry"
	"github.com/terrier-iac/terrier/internal/registry/registrytest"
)

func TestKeys(t *testing.T) { everywhere(t, inKeys) }

func inKeys(t *testing.T, p *place) {
	one, two := registrytest.NewSigner(t), registrytest.NewSigner(t)
	p.now = time.Now()
	ids := func() (all []string) {
		t.Helper()
		keys, err := p.Keys(t.Context(), "acme")
		if err != nil {
			t.Fatal(err)
		}
		for _, k := range keys {
			all = append(all, k.ID)
		}
		return all
	}
	p.addKey(t, "acme", one)
	p.addKey(t, "acme", two)
	p.addKey(t, "acme", one)
	if want := []string{one.Key(t).ID, two.Key(t).ID}; !slices.Equal(ids(), want) {
		t.Errorf("the keys are %v, want %v", ids(), want)
	}
	for says, armor := range map[string]string{"holds a private key": one.Private(t), "reading the ASCII armour": "hello", "2 keys": one.Key(t).Armor + two.Key(t).Armor} {
		_, err := p.AddKey(t.Context(), "acme", armor, "ann")
		if says == "2 keys" && err == nil {
			continue // the reader of keys takes the first block
		}
		wantFault(t, err, fault.Invalid, registry.KeyInvalid, says)
	}
	_, err := p.AddKey(t.Context(), "a/../b", one.Key(t).Armor, "ann")
	wantFault(t, err, fault.Invalid, address.Reason, "namespace of a provider")

	r := releaseOf(t, one, "1.0.0")
	p.stage(t, r)
	if _, err := p.publishProvider(t.Context(), r); err != nil {
		t.Fatal(err)
	}
	wantFault(t, p.RemoveKey(t.Context(), "acme", one.Key(t).ID, "ann", false), fault.Conflict, registry.KeyInUse, "may have signed version 1.0.0 of acme/cloud")
	wantFault(t, p.RemoveKey(t.Context(), "acme", "ABCD", "ann", false), fault.Missing, registry.KeyInvalid, `has no key "ABCD"`)
	for _, id := range []string{strings.ToLower(two.Key(t).ID), one.Key(t).ID} {
		if err := p.RemoveKey(t.Context(), "acme", id, "ann", true); err != nil {
			t.Fatal(err)
		}
	}
	if got := ids(); len(got) > 0 {
		t.Errorf("the keys are %v, want none", got)
	}
}

// A key that was revoked does not take the place of the one that clients need.
func TestARevokedKey(t *testing.T) {
	p, signer, other := newPlace(t), registrytest.NewSigner(t), registrytest.NewSigner(t)
	p.now = time.Now()
	p.addKey(t, "acme", signer)
	p.addKey(t, "acme", other)
	for version, by := range map[string]*registrytest.Signer{"1.0.0": signer, "2.0.0": other} {
		r := releaseOf(t, by, version)
		p.stage(t, r)
		if _, err := p.publishProvider(t.Context(), r); err != nil {
			t.Fatal(err)
		}
	}
	const begin = "-----BEGIN PGP PUBLIC KEY BLOCK-----\n"
	before := strings.Replace(signer.Key(t).Armor, begin, begin+"Comment: another form of the same key\n", 1)
	if _, err := p.AddKey(t.Context(), "acme", before, "ann"); err != nil {
		t.Error(err)
	}
	signer.Revoke(t)
	revoked := signer.Key(t).Armor
	_, err := p.AddKey(t.Context(), "acme", revoked, "ann")
	wantFault(t, err, fault.Conflict, registry.KeyInUse, "clients cannot install version 1.0.0 of acme/cloud, which it signed")
	if keys, err := p.Keys(t.Context(), "acme"); err != nil || len(keys) != 2 || keys[0].Armor != strings.TrimSpace(before)+"\n" {
		t.Errorf("the keys are %+v, %v, want those from before", keys, err)
	}
	if err := p.RetractProvider(t.Context(), address.Provider{Namespace: "acme", Type: "cloud"}, "1.0.0", "ann", "its key was stolen"); err != nil {
		t.Fatal(err)
	}
	if _, err := p.AddKey(t.Context(), "acme", revoked, "ann"); err != nil {
		t.Errorf("after the version was retracted: %v", err)
	}
}

// An expired key signs nothing new.
func TestExpiredKey(t *testing.T) {
	p, signer := newPlace(t), registrytest.NewSigner(t, registrytest.Expiring(time.Hour))
	p.now = time.Now().Add(2 * time.Hour)
	p.addKey(t, "acme", signer)
	r := releaseOf(t, signer, "1.0.0")
	p.stage(t, r)
	_, err := p.publishProvider(t.Context(), r)
	wantFault(t, err, fault.Invalid, registry.SignatureInvalid, "has expired: extend it, and add it again")
}
