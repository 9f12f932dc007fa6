package registrytest

import (
	"archive/zip"
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"

	"github.com/terrier-iac/terrier/internal/archive"
	"github.com/terrier-iac/terrier/internal/registry/signature"
)

// Release is one version of a provider, with an archive for each platform.
type Release struct {
	Namespace, Type, Version string
	Archives                 map[string][]byte // zip archives by platform: linux_amd64
	Names                    map[string]string // of archives that have other names than the usual ones

	Sums      []byte          // SHA256SUMS
	Signature []byte          // of Sums
	Keys      []signature.Key // that the registry names
	Protocols []string
}

// NewRelease makes a release for some platforms, signed. Its archives have a small
// program, and as many bytes more as weight says. They differ by everything.
func NewRelease(t T, s *Signer, provider, version string, weight int, platforms ...string) *Release {
	t.Helper()
	namespace, kind, _ := strings.Cut(provider, "/")
	r := &Release{Namespace: namespace, Type: kind, Version: version, Archives: map[string][]byte{}, Protocols: []string{"5.0"}}
	for _, platform := range platforms {
		r.Archives[platform] = Package(t, kind, version, platform, weight)
	}
	r.Sign(t, s)
	return r
}

// Sign makes the list of checksums from the archives, and signs it. A list of real
// releases also names a manifest.
func (r *Release) Sign(t T, s *Signer) {
	t.Helper()
	var b strings.Builder
	for _, platform := range slices.Sorted(maps.Keys(r.Archives)) {
		fmt.Fprintf(&b, "%s  %s\n", Sum(r.Archives[platform]), r.name(platform))
	}
	fmt.Fprintf(&b, "%s  terraform-provider-%s_%s_manifest.json\n", Sum(nil), r.Type, r.Version)
	r.Sums = []byte(b.String())
	r.Signature, r.Keys = s.Sign(t, r.Sums), []signature.Key{s.Key(t)}
}

// name is the name of an archive.
func (r *Release) name(platform string) string {
	return cmp.Or(r.Names[platform], signature.Archive(r.Type, r.Version, platform))
}

func (r *Release) sumsName() string { return signature.SumsName(r.Type, r.Version) }

// Hashes are what a lock file says of the archive of a platform: h1 and zh.
func (r *Release) Hashes(t T, platform string) (h1, zh string) {
	t.Helper()
	data := r.Archives[platform]
	h1, err := archive.HashZip(bytes.NewReader(data), int64(len(data)))
	if err != nil {
		t.Fatal(err)
	}
	return h1, "zh:" + Sum(data)
}

// Package is the archive of a provider: a program, and as many random bytes as
// weight says, which do not shrink.
func Package(t T, kind, version, platform string, weight int) []byte {
	t.Helper()
	var b bytes.Buffer
	z := zip.NewWriter(&b)
	header := &zip.FileHeader{Name: "terraform-provider-" + kind + "_v" + version, Method: zip.Deflate}
	header.SetMode(0o755)
	w, err := z.CreateHeader(header)
	if err == nil {
		_, err = fmt.Fprintf(w, "#!/bin/sh\necho %s %s for %s\nexit 1\n", kind, version, platform)
	}
	errs := []error{err}
	if weight > 0 {
		filling := make([]byte, weight)
		_, _ = rand.NewChaCha8(sha256.Sum256([]byte(kind + version + platform))).Read(filling)
		w, err := z.Create("LICENSE.txt")
		if err == nil {
			_, err = w.Write(filling)
		}
		errs = append(errs, err)
	}
	if err := errors.Join(append(errs, z.Close())...); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// Sum is the SHA-256 of data, as lists of checksums have it.
func Sum(data []byte) string {
	s := sha256.Sum256(data)
	return hex.EncodeToString(s[:])
}
