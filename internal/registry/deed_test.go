package registry_test

import (
	"context"
	"errors"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/terrier-iac/terrier/internal/address"
	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/registry"
	"github.com/terrier-iac/terrier/internal/registry/registrytest"
)

// book records deeds, each ID once.
type book struct {
	all  []registry.Deed
	full bool
}

func (b *book) record(_ context.Context, d registry.Deed) error {
	if b.full {
		return fault.New(fault.Later, "AuditLogUnwritable", errors.New("the disk is full"))
	}
	if !slices.ContainsFunc(b.all, func(there registry.Deed) bool { return there.ID == d.ID }) {
		b.all = append(b.all, d)
	}
	return nil
}

// said are the deeds without what differs each time.
func (b *book) said() []string {
	var all []string
	for _, d := range b.all {
		all = append(all, string(d.What)+" "+d.Namespace+" "+d.Name+" "+string(d.Version)+" "+d.By+" "+d.Reason)
	}
	return all
}

func recorded(t *testing.T) (*place, *book) {
	t.Helper()
	b := &book{}
	return bounded(t, registry.Options{Record: b.record}), b
}

// What users change is recorded once, with the user, and what changes nothing is not.
func TestDeedsAreRecorded(t *testing.T) {
	p, b := recorded(t)
	m, signer := module(t, "net/vpc/aws"), registrytest.NewSigner(t)
	p.publish(t, m, "1.0.0", archiveOf(t, "one"))
	p.publish(t, m, "1.0.0", archiveOf(t, "one")) // is published
	_, err := p.PublishModule(t.Context(), m, "1.0.0", upload(archiveOf(t, "other")))
	wantFault(t, err, fault.Conflict, registry.VersionExists, "")
	wantFault(t, p.RetractModule(t.Context(), m, "2.0.0", "eve", "x"), fault.Missing, registry.VersionMissing, "")
	if err := errors.Join(p.RetractModule(t.Context(), m, "1.0.0", "bob", "it breaks"), p.RestoreModule(t.Context(), m, "1.0.0", "cid")); err != nil {
		t.Fatal(err)
	}

	r := releaseOf(t, signer, "1.2.0")
	provider, version := providerOf(r)
	p.addKey(t, "acme", signer)
	p.addKey(t, "acme", signer) // is there
	p.stage(t, r)
	for range 2 {
		if _, err := p.publishProvider(t.Context(), r); err != nil {
			t.Fatal(err)
		}
	}
	id := signer.Key(t).ID
	wantFault(t, p.RemoveKey(t.Context(), "acme", id, "eve", false), fault.Conflict, registry.KeyInUse, "")
	if err := errors.Join(p.RetractProvider(t.Context(), provider, version, "bob", "it leaks"), p.RestoreProvider(t.Context(), provider, version, "cid"), p.RemoveKey(t.Context(), "acme", id, "dan", true)); err != nil {
		t.Fatal(err)
	}
	want := []string{
		"module-published net net/vpc/aws 1.0.0 ci ", "module-retracted net net/vpc/aws 1.0.0 bob it breaks", "module-restored net net/vpc/aws 1.0.0 cid ",
		"signing-key-added acme " + id + "  ann ", "provider-published acme acme/cloud 1.2.0 ci ",
		"provider-retracted acme acme/cloud 1.2.0 bob it leaks", "provider-restored acme acme/cloud 1.2.0 cid ", "signing-key-removed acme " + id + "  dan ",
	}
	if diff := cmp.Diff(want, b.said()); diff != "" {
		t.Errorf("the deeds differ (-want +got):\n%s", diff)
	}
	if d := b.all[0].Details; d["sha256"] == "" || d["bytes"] == "" {
		t.Errorf("the details of an upload are %v", d)
	}
}

// Deeds of processes that change one index at the same time are recorded once each.
func TestDeedsOfTwoProcesses(t *testing.T) {
	p, b := recorded(t)
	m := module(t, "net/vpc/aws")
	p.publish(t, m, "1.0.0", archiveOf(t, "one"))
	other := registry.New(p.store.Versions, registry.Options{Scratch: t.TempDir()})
	met := false
	p.store.failing(func(op, key string) error {
		if op == "replace" && key == "index/modules/net/vpc/aws.json" && !met {
			met = true
			if _, err := other.PublishModule(t.Context(), m, "3.0.0", upload(archiveOf(t, "three"))); err != nil {
				return err
			}
		}
		return nil
	})
	p.publish(t, m, "2.0.0", archiveOf(t, "two"))
	if got := p.versions(t, m); !met || !slices.Equal(got, []address.Version{"1.0.0", "2.0.0", "3.0.0"}) || len(b.all) != 2 {
		t.Errorf("versions are %v, and the deeds %v", got, b.said())
	}
}

// What cannot be recorded does not happen, and happens when it is tried again.
func TestDeedsThatCannotBeRecorded(t *testing.T) {
	p, b := recorded(t)
	m, signer := module(t, "net/vpc/aws"), registrytest.NewSigner(t)
	full := func(err error) { t.Helper(); wantFault(t, err, fault.Later, "AuditLogUnwritable", "") }
	publish := func(v address.Version) error {
		_, err := p.PublishModule(t.Context(), m, v, upload(archiveOf(t, string(v))))
		return err
	}
	b.full = true
	full(publish("1.0.0"))
	_, err := p.ModuleVersions(t.Context(), m)
	wantFault(t, err, fault.Missing, registry.ModuleMissing, "")
	_, err = p.AddKey(t.Context(), "acme", signer.Key(t).Armor, "ann")
	full(err)
	b.full = false
	if err := publish("1.0.0"); err != nil {
		t.Fatal(err)
	}
	p.addKey(t, "acme", signer)
	r := releaseOf(t, signer, "1.2.0")
	provider, _ := providerOf(r)
	p.stage(t, r)

	b.full = true
	full(publish("1.1.0"))
	full(p.RetractModule(t.Context(), m, "1.0.0", "ann", "x"))
	full(p.RemoveKey(t.Context(), "acme", signer.Key(t).ID, "ann", false))
	_, err = p.publishProvider(t.Context(), r)
	full(err)
	if got := p.versions(t, m); !slices.Equal(got, []address.Version{"1.0.0"}) {
		t.Errorf("versions are %v", got)
	}
	if _, err := p.ProviderVersions(t.Context(), provider); fault.Of(err) != fault.Missing {
		t.Errorf("the provider is there: %v", err)
	}
	if keys, err := p.Keys(t.Context(), "acme"); err != nil || len(keys) != 1 {
		t.Errorf("keys are %v, %v", keys, err)
	}
	b.full = false
	if err := publish("1.1.0"); err != nil {
		t.Fatal(err)
	}
	if _, err := p.publishProvider(t.Context(), r); err != nil {
		t.Fatal(err)
	}
}
