package e2e

import (
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"

	sourcev1 "github.com/fluxcd/source-controller/api/v1"
	"github.com/johannesboyne/gofakes3"
	"github.com/johannesboyne/gofakes3/backend/s3mem"

	"github.com/terrier-iac/terrier/api/infra/v1alpha2"
	"github.com/terrier-iac/terrier/internal/testkit"
)

// Records are in a bucket and nowhere else. A plan that is pending there is applied by
// the next process, and a bucket that does not exist is named at the start.
func TestRecordsInABucket(t *testing.T) {
	t.Parallel()
	backend := s3mem.New()
	if err := backend.CreateBucket("records"); err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(gofakes3.New(backend).Server())
	t.Cleanup(server.Close)
	at := "/estate?path-style=true&endpoint=" + url.QueryEscape(server.URL)
	env := []string{"AWS_ACCESS_KEY_ID=key", "AWS_SECRET_ACCESS_KEY=secret"}
	c := testkit.Kube(t, v1alpha2.AddToScheme, sourcev1.AddToScheme)
	controller := func(bucket string) *testkit.Platform {
		p, err := testkit.NewPlatform(testkit.PlatformOptions{
			Dir: filepath.Join(t.TempDir(), "platform"), Cluster: c, Env: env, Cold: true,
			Flags: []string{"--sources=false", "--lease", c.Namespace + "-" + bucket, "--records", "s3://" + bucket + at},
		})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if t.Failed() {
				t.Logf("the controller said:\n%s", p.Log())
			}
			if err := p.Close(); err != nil {
				t.Errorf("ending the controller: %v", err)
			}
		})
		return p
	}
	if err := controller("nowhere").Start(); err == nil || !strings.Contains(err.Error(), "S3 has no bucket nowhere") {
		t.Errorf("Start() without the bucket = %v, want its name", err)
	}
	p := controller("records")
	if err := p.Start(); err != nil {
		t.Fatal(err)
	}
	c.Apply(t, inline("kept", "interval: 1h", "resource \"terraform_data\" \"it\" {}"))
	pending := c.AwaitPending(t, "kept")
	if err := p.Kill(); err != nil {
		t.Fatal(err)
	}
	if err := p.Start(); err != nil {
		t.Fatal(err)
	}
	c.Patch(t, "kept", `{"spec":{"approvePlan":"`+pending.Status.Plan.Pending+`"}}`)
	ready := c.AwaitReady(t, "kept")
	prefix := gofakes3.NewFolderPrefix("estate/stacks/" + string(ready.UID) + "/plans/")
	if list, err := backend.ListBucket("records", &prefix, gofakes3.ListBucketPage{}); err != nil || len(list.Contents)+len(list.CommonPrefixes) == 0 {
		t.Errorf("the bucket has no plan of the stack: %+v, %v", list, err)
	}
	if _, err := os.Stat(filepath.Join(p.Dir, "records")); !os.IsNotExist(err) {
		t.Errorf("the data directory has records: %v", err)
	}
	c.Delete(t, "kept")
	c.AwaitGone(t, "kept")
}
