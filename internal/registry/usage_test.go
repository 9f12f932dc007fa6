package registry_test

import (
	"context"
	"testing"

	"github.com/terrier-iac/terrier/internal/address"
	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/registry"
	"github.com/terrier-iac/terrier/internal/registry/registrytest"
)

// limited is a registry whose namespaces have a quota.
func limited(t *testing.T, q *registry.Quota) *place {
	t.Helper()
	return bounded(t, registry.Options{Quota: func(context.Context, string) (registry.Quota, error) { return *q, nil }})
}

func (p *place) usage(t *testing.T, namespace string) registry.Usage {
	t.Helper()
	u, err := p.Usage(t.Context(), namespace)
	if err != nil {
		t.Fatal(err)
	}
	return u
}

// A namespace has as many versions as its quota allows, of modules and providers together.
// What is published already is no new version, and another namespace has its own quota.
func TestQuotaOfVersions(t *testing.T) {
	q := registry.Quota{Versions: 2, Raise: "--quota-versions"}
	p := limited(t, &q)
	m, signer := module(t, "acme/vpc/aws"), registrytest.NewSigner(t)
	p.publish(t, m, "1.0.0", archiveOf(t, "one"))
	r := releaseOf(t, signer, "1.2.0")
	p.addKey(t, "acme", signer)
	p.stage(t, r)
	if _, err := p.publishProvider(t.Context(), r); err != nil {
		t.Fatal(err)
	}
	_, err := p.PublishModule(t.Context(), m, "2.0.0", upload(archiveOf(t, "two")))
	wantFault(t, err, fault.Denied, registry.QuotaExceeded, "the namespace acme has 2 versions of modules and providers, and its quota is 2. Nothing was stored. Retracting a version frees nothing: ask the operator of the registry for a larger quota (--quota-versions)")
	p.publish(t, m, "1.0.0", archiveOf(t, "one")) // is published
	next := releaseOf(t, signer, "1.3.0")
	provider, version := providerOf(next)
	for name, data := range files(next) {
		err := p.StageProvider(t.Context(), provider, version, name, upload(data))
		wantFault(t, err, fault.Denied, registry.QuotaExceeded, "its quota is 2")
	}
	p.publish(t, module(t, "other/vpc/aws"), "1.0.0", archiveOf(t, "one"))
	if u := p.usage(t, "acme"); u.Versions != 2 || u.Bytes == 0 || u.Quota != q {
		t.Errorf("Usage() = %+v", u)
	}
	q.Versions = 3
	p.publish(t, m, "2.0.0", archiveOf(t, "two"))
}

// A quota of bytes counts what is published and what waits, whether or not the client says
// the size of an upload.
func TestQuotaOfBytes(t *testing.T) {
	const most = 1 << 20
	q := registry.Quota{Bytes: most}
	p := limited(t, &q)
	m := module(t, "acme/vpc/aws")
	p.publish(t, m, "1.0.0", archiveOf(t, "one"))
	used := p.usage(t, "acme").Bytes
	provider := address.Provider{Namespace: "acme", Type: "cloud"}
	stage := func(version address.Version, size int, says int64) error {
		u := upload(make([]byte, size))
		u.Size = says
		return p.StageProvider(t.Context(), provider, version, "terraform-provider-cloud_"+string(version)+"_linux_amd64.zip", u)
	}
	for _, says := range []int64{0, most} {
		wantFault(t, stage("1.0.0", most, says), fault.Denied, registry.QuotaExceeded, "the namespace acme has 0 MiB in the registry, 0 MiB of them not published yet; 1 MiB more exceed its quota of 1 MiB")
	}
	if err := stage("1.0.0", most-int(used), most-used); err != nil {
		t.Fatal(err)
	}
	if u := p.usage(t, "acme"); u.Waiting != most-used {
		t.Errorf("Usage() = %+v, want %d bytes that wait", u, most-used)
	}
	_, err := p.PublishModule(t.Context(), m, "2.0.0", upload(archiveOf(t, "two")))
	wantFault(t, err, fault.Denied, registry.QuotaExceeded, "")
	q.Bytes = 0
	p.publish(t, m, "2.0.0", archiveOf(t, "two"))
}

// Lists of checksums, signatures and manifests that wait count as packages do.
func TestQuotaOfListsThatWait(t *testing.T) {
	q := registry.Quota{Bytes: 1 << 20}
	p := limited(t, &q)
	provider := address.Provider{Namespace: "acme", Type: "cloud"}
	stage := func(version address.Version, says int64) error {
		u := upload(make([]byte, 700<<10))
		u.Size = says
		return p.StageProvider(t.Context(), provider, version, "terraform-provider-cloud_"+string(version)+"_SHA256SUMS", u)
	}
	if err := stage("1.0.0", 0); err != nil {
		t.Fatal(err)
	}
	for _, says := range []int64{0, 700 << 10} {
		wantFault(t, stage("1.1.0", says), fault.Denied, registry.QuotaExceeded, "1 MiB more exceed its quota of 1 MiB")
	}
	if u := p.usage(t, "acme"); u.Waiting != 700<<10 {
		t.Errorf("Usage() = %+v, want one list that waits", u)
	}
}
