package registry_test

import (
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/container"

	"github.com/terrier-iac/terrier/internal/blob/bucket"
	"github.com/terrier-iac/terrier/internal/testkit/storage"
)

// RG-03, RG-16, RG-17: names that begin alike stay apart in each cloud, and of many uploads
// of one version one wins.
func TestClouds(t *testing.T) {
	clouds := map[string]func(*testing.T) (string, map[string]string){"gcs": inGCS, "azure": inAzure}
	for name, start := range clouds {
		for what, test := range map[string]func(*testing.T, *place){"names": inBucketOfBoringRegistry, "uploads at once": inPublishAtOnce} {
			t.Run(name+" "+what, func(t *testing.T) {
				at, environment := start(t)
				environ := func(name string) string { return environment[name] }
				of, err := bucket.Parse(at, environ)
				if err != nil {
					t.Fatal(err)
				}
				store, err := bucket.Open(of, bucket.Options{Environ: environ, Scratch: t.TempDir(), Limit: 1 << 30})
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() { _ = store.Close() })
				test(t, placeIn(t, store))
			})
		}
	}
}

func inGCS(t *testing.T) (string, map[string]string) {
	program, err := filepath.Abs("../../bin/fake-gcs-server")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(program); err != nil {
		t.Fatalf("%v: make bin/fake-gcs-server", err)
	}
	base := storage.StartGCS(t, program)
	t.Cleanup(http.DefaultClient.CloseIdleConnections)
	resp, err := http.Post(base+"/storage/v1/b", "application/json", strings.NewReader(`{"name":"registry"}`)) //nolint:noctx // a server on loopback
	if err != nil {
		t.Fatal(err)
	}
	if err := resp.Body.Close(); err != nil || resp.StatusCode != http.StatusOK {
		t.Fatalf("making a bucket: %s, %v", resp.Status, err)
	}
	return "gs://registry/x?credentials=none&endpoint=" + url.QueryEscape(base), nil
}

func inAzure(t *testing.T) (string, map[string]string) {
	program, err := filepath.Abs("../../bin/azurite/node_modules/.bin/azurite-blob")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(program); err != nil {
		t.Skipf("%v: make bin/azurite, which needs npm", err)
	}
	base := storage.StartAzure(t, program) + "/" + storage.AzureAccount
	shared, err := container.NewSharedKeyCredential(storage.AzureAccount, storage.AzureKey)
	if err != nil {
		t.Fatal(err)
	}
	client, err := container.NewClientWithSharedKeyCredential(base+"/registry", shared, nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := client.Create(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	return "azblob://registry/x?account=" + storage.AzureAccount + "&endpoint=" + url.QueryEscape(base), map[string]string{"AZURE_STORAGE_KEY": storage.AzureKey}
}
