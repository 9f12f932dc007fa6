package image

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"

	"github.com/terrier-iac/terrier/internal/archive"
	"github.com/terrier-iac/terrier/internal/fault"
	"github.com/terrier-iac/terrier/internal/source"
)

// reading is a builder for runs that have the code which is read back.
func reading(t *testing.T, base string) (*Builder, *source.Cache) {
	t.Helper()
	b := builder(t, base)
	kept, err := source.NewCache(t.TempDir(), b.Out, 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	b.Code = kept
	return b, kept
}

// unpacked is the tree of an archive that is kept.
func unpacked(t *testing.T, kept *source.Cache, digest string) string {
	t.Helper()
	path, err := kept.Path(digest)
	if err != nil {
		t.Fatal(err)
	}
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	dir := t.TempDir()
	if err := archive.Extract(f, dir, archive.Limits{}); err != nil {
		t.Fatal(err)
	}
	return dir
}

// Without a base an image is the code alone. A run has what the registry has of it.
func TestTheCodeIsReadBack(t *testing.T) {
	s := newStore(t)
	b, kept := reading(t, "")
	w := Wanted{Name: s.host + "/team/net", Namespace: "a", Source: "sha256:1", Revision: "main@sha1:1",
		Archive: code(t, map[string]string{"terraform/main.tf": "# net", "apply.sh": "#!/bin/sh\n"})}
	first, err := b.Ensure(t.Context(), w)
	if err != nil {
		t.Fatal(err)
	}
	layers, err := pull(t, first.Ref).Layers()
	if err != nil || len(layers) != 1 {
		t.Errorf("the image has %d layers, %v, want the code alone", len(layers), err)
	}
	dir := unpacked(t, kept, first.Code)
	text, err := os.ReadFile(filepath.Join(dir, "terraform/main.tf"))
	script, err2 := os.Stat(filepath.Join(dir, "apply.sh"))
	if err != nil || err2 != nil || string(text) != "# net" || script.Mode().Perm()&0o100 == 0 {
		t.Errorf("the run has %q, %v, %v, want the code of the source at its root", text, err, err2)
	}
	if !b.Holds(first) || b.Holds(Made{Ref: first.Ref, Code: "sha256:" + strings.Repeat("0", 64)}) {
		t.Error("the builder does not know what it holds")
	}

	path, err := kept.Path(first.Code)
	if err == nil {
		err = os.Remove(path)
	}
	if err != nil {
		t.Fatal(err)
	}
	s.sent()
	again, err := b.Ensure(t.Context(), w)
	if err != nil || again != first || !b.Holds(again) || s.sent() != "0 blobs, 0 manifests" {
		t.Errorf("after the code was pruned: %v, %v, want it read again and nothing sent", again, err)
	}
}

// Images of several platforms, or on a base, have the code in their last layer.
func TestTheCodeOfAnImageOnABaseIsReadBack(t *testing.T) {
	s := newStore(t)
	b, kept := reading(t, s.put(t, "terrier/runner", mutate.MediaType(randomImage(t), "application/vnd.oci.image.manifest.v1+json")))
	made, err := b.Ensure(t.Context(), Wanted{Name: s.host + "/team/net", Source: "sha256:1", Archive: code(t, map[string]string{"main.tf": "# net"})})
	if err != nil {
		t.Fatal(err)
	}
	if text, err := os.ReadFile(filepath.Join(unpacked(t, kept, made.Code), "main.tf")); err != nil || string(text) != "# net" {
		t.Errorf("the run has %q, %v", text, err)
	}
}

// No run starts from what a registry serves in place of what was sent to it, or from the
// image of other code.
func TestOtherCodeIsRefused(t *testing.T) {
	s := newStore(t)
	w := Wanted{Name: s.host + "/team/net", Source: "sha256:1", Archive: code(t, map[string]string{"main.tf": "# net"})}
	b, _ := reading(t, "")
	s.spoils.Store(true)
	if made, err := b.Ensure(t.Context(), w); fault.Reason(err, "") != ReasonCode && fault.Reason(err, "") != archive.Reason {
		t.Errorf("Ensure() = %v, %v, want the spoilt layer refused", made, err)
	}
	s.spoils.Store(false)
	nothing, err := empty.Image.Digest()
	if err != nil {
		t.Fatal(err)
	}
	s.put(t, "team/net:other", empty.Image)
	other := digestOf(t, w.Name+"@"+nothing.String())
	to, err := b.speak(t.Context(), other.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer to.close()
	if digest, err := b.readBack(other, to, w); fault.Reason(err, "") != ReasonCode {
		t.Errorf("readBack() of an image without code = %q, %v", digest, err)
	}
	good, err := b.Ensure(t.Context(), w)
	if err != nil {
		t.Fatal(err)
	}
	w.Archive = code(t, map[string]string{"main.tf": "# another"})
	if digest, err := b.readBack(digestOf(t, good.Ref), to, w); fault.Reason(err, "") != ReasonCode || !strings.Contains(err.Error(), "not that of the source") {
		t.Errorf("readBack() of other code = %q, %v", digest, err)
	}
}
