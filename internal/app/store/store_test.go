package store_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/terrier-iac/terrier/internal/app/store"
)

// A scheme is the same in upper case, and never a directory.
func TestSchemesInUpperCase(t *testing.T) {
	t.Chdir(t.TempDir())
	_, err := store.Open(t.Context(), store.Options{
		Records: "S3://bucket/p?region=r", Dir: func(parts ...string) string { return filepath.Join(append([]string{t.TempDir()}, parts...)...) },
		Environ: func(string) string { return "" },
	})
	if err == nil {
		t.Error("Open() of a bucket without credentials is accepted")
	}
	if entries, err := os.ReadDir("."); err != nil || len(entries) > 0 {
		t.Errorf("the working directory holds %v, %v, want nothing", entries, err)
	}
}

func TestFlags(t *testing.T) {
	for _, tt := range []struct{ records, key, says string }{
		{"", "", ""},
		{"/var/lib/records", "file", ""},
		{"s3://b/p?region=r", "secret", ""},
		{"records", "", "absolute path"},
		{"s3://b", "", "region="},
		{"s3://u:canary@b?region=r", "", "credentials"},
		{"S3://b/p?region=r", "", ""},
		{"azblob://c/p?account=x&sig=canary", "", "--records azblob://c/p: the parameter \"sig\""},
		{"canary@example.com:b", "", "--records URL"},
		{"s3://b?region=r&endpoint=https://u:canary@h", "", "endpoint="},
		{"s3://b?region=r&credentials=canary", "", "credentials="},
		{"s3://b?region=r&path-style=canary", "", "path-style="},
		{"", "vault", "neither file nor secret"},
	} {
		err := store.Check(tt.records, tt.key, nil, func(string) string { return "" })
		if (err == nil) != (tt.says == "") || !strings.Contains(fmt.Sprint(err), tt.says) && err != nil || strings.Contains(fmt.Sprint(err), "canary") {
			t.Errorf("Check(%s, %s) = %v, want it to say %q", tt.records, tt.key, err, tt.says)
		}
	}
}
