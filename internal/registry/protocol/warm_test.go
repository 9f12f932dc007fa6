package protocol_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"testing"

	"github.com/terrier-iac/terrier/internal/address"
	"github.com/terrier-iac/terrier/internal/blob"
	"github.com/terrier-iac/terrier/internal/registry"
	"github.com/terrier-iac/terrier/internal/registry/protocol"
	"github.com/terrier-iac/terrier/internal/registry/registrytest"
	"github.com/terrier-iac/terrier/internal/registry/registrytest/enginetest"
)

// RG-18, RG-23, LQ-21: once the registry has a module and its mirror a provider, the inits of a
// fleet cost neither more than reading, whichever replica answers: the upstream gets no
// request, and the store lists nothing, writes nothing, and reads no index again.
func TestWarmInitsOfReplicas(t *testing.T) {
	const replicas, inits = 3, 200
	r := registrytest.NewRelease(t, registrytest.NewSigner(t), "acme/cloud", "1.0.0", 50_000, here)
	u := registrytest.New(t)
	u.Publish(r)
	files, err := blob.OpenVersionedFiles(t.TempDir(), 1<<30)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = files.Close() })
	module := saying(t, "hello")
	m, err := address.ParseModule("net/hello/demo")
	if err == nil {
		_, err = registry.New(files, registry.Options{Scratch: t.TempDir()}).PublishModule(t.Context(), m, "1.0.0", registry.Upload{Content: bytes.NewReader(module), Size: int64(len(module))})
	}
	if err != nil {
		t.Fatal(err)
	}
	store := &counting{Versions: files}
	var all []*served
	for range replicas {
		s := serveMirrorOf(t, store, u)
		s.namespace = "net"
		all = append(all, s)
	}
	for _, s := range all {
		dir := enginetest.Written(t, fmt.Sprintf("terraform {\n  required_providers {\n    cloud = {\n      source  = %q\n      version = \"~> 1.0\"\n    }\n  }\n}\nmodule \"m\" {\n  source  = %q\n  version = \"~> 1.0\"\n}\n",
			private+"/acme/cloud", s.Listener.Addr().String()+"/net/hello/demo"))
		if out, err := s.init(t, dir, "token-team-a"); err != nil {
			t.Fatalf("init: %v: %s", err, out)
		}
	}
	if got := u.Count(".zip"); got != 1 {
		t.Errorf("the upstream sent %d archives to %d replicas, want 1", got, replicas)
	}

	asked := len(u.Asked())
	store.lists.Store(0)
	store.read.Store(0)
	store.writes.Store(0)
	for i := range inits {
		s := all[i%replicas]
		s.get(t, protocol.MirrorPath+private+"/acme/cloud/index.json", "token-team-a", http.StatusOK)
		if got := s.get(t, s.archive(t, private, "1.0.0", here), "", http.StatusOK); !bytes.Equal(got, r.Archives[here]) {
			t.Fatalf("the archive of the provider has %d bytes", len(got))
		}
		s.get(t, "/v1/modules/net/hello/demo/versions", "token-team-a", http.StatusOK)
		if got := s.get(t, s.module(t), "", http.StatusOK); !bytes.Equal(got, module) {
			t.Fatalf("the archive of the module has %d bytes", len(got))
		}
	}
	if got := u.Asked()[asked:]; len(got) > 0 {
		t.Errorf("%d inits sent the upstream %+v, want nothing", inits, got)
	}
	if lists, writes, read := store.lists.Load(), store.writes.Load(), store.read.Load(); lists != 0 || writes != 0 || read != 0 {
		t.Errorf("%d inits made %d lists, %d writes and %d reads of indexes, want none", inits, lists, writes, read)
	}
}

// module is the path of the archive of the module.
func (s *served) module(t *testing.T) string {
	t.Helper()
	const download = "/v1/modules/net/hello/demo/1.0.0/download"
	var said struct{ Location string }
	if err := json.Unmarshal(s.get(t, download, "token-team-a", http.StatusOK), &said); err != nil {
		t.Fatal(err)
	}
	base, err := url.Parse(download)
	if err == nil {
		base, err = base.Parse(said.Location)
	}
	if err != nil {
		t.Fatal(err)
	}
	return base.String()
}
