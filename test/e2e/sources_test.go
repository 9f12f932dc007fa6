package e2e

import (
	"bytes"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/johannesboyne/gofakes3"
	"github.com/johannesboyne/gofakes3/backend/s3mem"

	"github.com/terrier-iac/terrier/internal/testkit"
)

func TestVarFilesComeOutOfTheSource(t *testing.T) {
	c := cluster(t)
	g := testkit.NewGit(t)
	g.Commit(map[string]string{
		"stack/main.tf":   "variable \"size\" {}\nvariable \"name\" {}\nresource \"terraform_data\" \"it\" { input = \"${var.name} ${var.size}\" }\noutput \"it\" { value = terraform_data.it.output }\n",
		"env/prod.tfvars": "size = 3\nname = \"from the file\"\n",
	})
	c.Apply(t, g.Manifest("code")+`---
apiVersion: infra.contrib.fluxcd.io/v1alpha2
kind: Terraform
metadata: {name: stack}
spec:
  approvePlan: auto
  path: stack
  sourceRef: {kind: GitRepository, name: code}
  tfVarsFiles: [./env/prod.tfvars]
  vars: [{name: name, value: from the object}]
  writeOutputsToSecret: {name: out}
`)
	c.AwaitReady(t, "stack")
	if got := c.Secret(t, "out")["it"]; got != "from the file 3" {
		t.Errorf("the variables are %q, want those of the file, which comes last", got)
	}
}

func TestWrongPasswordIsSaid(t *testing.T) {
	c := cluster(t)
	g := testkit.NewGit(t)
	g.Commit(map[string]string{"main.tf": ""})
	right := g.Password
	g.Password = "wrong"
	wrong := g.Manifest("code")
	g.Password = right
	c.Apply(t, wrong+`---
apiVersion: infra.contrib.fluxcd.io/v1alpha2
kind: Terraform
metadata: {name: stack}
spec:
  approvePlan: auto
  sourceRef: {kind: GitRepository, name: code}
`)
	c.AwaitReason(t, "stack", "ArtifactFailed")
	c.Kubectl(t, "wait", "--for=condition=Ready=false", "--timeout=5m", "gitrepository/code")
	c.Apply(t, g.Manifest("code"))
	c.AwaitReady(t, "stack") // the Secret alone wakes the source, and the source the stack
}

func TestBucketIsASource(t *testing.T) {
	c := cluster(t)
	store := s3mem.New()
	server := httptest.NewServer(gofakes3.New(store).Server())
	defer server.Close()
	if err := store.CreateBucket("modules"); err != nil {
		t.Fatal(err)
	}
	module := []byte("resource \"terraform_data\" \"it\" { input = \"from a bucket\" }\noutput \"it\" { value = terraform_data.it.output }\n")
	if _, err := store.PutObject("modules", "stack/main.tf", map[string]string{"Last-Modified": time.Now().UTC().Format(http.TimeFormat)}, bytes.NewReader(module), int64(len(module)), nil); err != nil {
		t.Fatal(err)
	}
	c.PutSecret(t, "login", map[string]string{"accesskey": "key", "secretkey": "secret"})
	c.Apply(t, `
apiVersion: source.toolkit.fluxcd.io/v1
kind: Bucket
metadata: {name: modules}
spec:
  interval: 1h
  bucketName: modules
  endpoint: `+strings.TrimPrefix(server.URL, "http://")+`
  insecure: true
  secretRef: {name: login}
---
apiVersion: infra.contrib.fluxcd.io/v1alpha2
kind: Terraform
metadata: {name: stack}
spec:
  approvePlan: auto
  path: stack
  sourceRef: {kind: Bucket, name: modules}
  writeOutputsToSecret: {name: out}
`)
	s := c.AwaitReady(t, "stack")
	if got := c.Secret(t, "out")["it"]; got != "from a bucket" || !strings.HasPrefix(s.Status.LastAppliedRevision, "sha256:") {
		t.Errorf("the output is %q, of revision %q", got, s.Status.LastAppliedRevision)
	}
}
