package oci_test

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/terrier-iac/terrier/internal/registry/oci"
	"github.com/terrier-iac/terrier/internal/registry/registrytest/enginetest"
)

// kept are the keys of the zip archives that were made of tar archives.
func (s *service) kept() []string {
	s.t.Helper()
	keys, err := s.store.List(s.t.Context(), "oci/")
	if err != nil {
		s.t.Fatal(err)
	}
	return keys
}

// A small tar archive of a large file is not made into a large zip archive by a read.
func TestBombsAreNotConverted(t *testing.T) {
	s := start(t)
	large := func(bytes int) []file {
		return append(saying("large"), file{"zeros", strings.Repeat("0", bytes), 0o644})
	}
	s.publish("team/vpc/aws", "1.0.0", tarGz(t, large(1<<20)))
	s.publish("team/vpc/aws", "2.0.0", tarGz(t, large(65<<20)))
	s.refused("GET", "/v2/team/modules/vpc/aws/manifests/2.0.0", "team", http.StatusNotFound, "MANIFEST_UNKNOWN", "as a zip archive")
	if got := s.kept(); len(got) != 0 {
		t.Errorf("%q is stored after a refusal, want nothing", got)
	}
	s.digest("team/modules/vpc/aws:1.0.0")
	if got := s.kept(); len(got) != 1 {
		t.Errorf("%q is stored, want the archive of 1.0.0", got)
	}
}

// Zip archives are deleted a month after they were made, and are made again when a client
// asks.
func TestZipArchivesAreSwept(t *testing.T) {
	s := start(t)
	s.publish("team/vpc/aws", "1.0.0", tarGz(t, saying("swept")))
	before := s.digest("team/modules/vpc/aws:1.0.0")
	for _, tt := range []struct {
		after time.Duration
		keeps int
	}{{29 * 24 * time.Hour, 1}, {31 * 24 * time.Hour, 0}} {
		h, err := oci.New(oci.Options{
			Registry: s.registry, Rights: callers{}, Store: s.store, Scratch: t.TempDir(),
			Now: func() time.Time { return time.Now().Add(tt.after) },
		})
		if err == nil {
			err = h.Sweep(t.Context())
		}
		if err != nil {
			t.Fatal(err)
		}
		if got := s.kept(); len(got) != tt.keeps {
			t.Errorf("after %v %q is kept, want %d archives", tt.after, got, tt.keeps)
		}
	}
	at := "oci://" + s.host() + "/team/modules/vpc/aws?digest=" + before
	if got := s.engine("team", "").Says(t, enginetest.Using(t, at, "")); got != "swept" {
		t.Errorf("the module says %q after the sweep", got)
	}
}
