package e2e

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/terrier-iac/terrier/internal/dialect"
	"github.com/terrier-iac/terrier/internal/testkit"
)

// A stack whose record of the last apply was lost with the data directory is destroyed as it
// is now.
func TestDestroyWithoutTheRecordOfTheApply(t *testing.T) {
	t.Parallel()
	p := testkit.Up(t)
	c := p.Cluster(t)
	w := p.World(t)
	c.Apply(t, inline("stack", kept, things(w, "x", "a")))
	uid := string(c.AwaitReady(t, "stack").UID)
	if _, err := p.Stop(); err != nil {
		t.Fatal(err)
	}
	if err := os.RemoveAll(filepath.Join(p.Dir, "records", "stacks", uid, "snapshots")); err != nil {
		t.Fatal(err)
	}
	start(t, p)
	c.Delete(t, "stack")
	c.AwaitGone(t, "stack")
	made(t, w)
}

// While the source is there, what was lost is written again: the record, and the archive. A
// deletion then needs neither the source nor its Secret, as ever.
func TestALostRecordOfAnApplyComesBack(t *testing.T) {
	t.Parallel()
	p := testkit.Up(t)
	c := p.Cluster(t)
	w := p.World(t)
	g := testkit.NewGit(t)
	g.Commit(map[string]string{"main.tf": things(w, "x", "a")})
	c.Apply(t, g.Manifest("code")+`---
apiVersion: infra.contrib.fluxcd.io/v1alpha2
kind: Terraform
metadata: {name: stack}
spec:
  approvePlan: auto
  interval: 1h
  destroyResourcesOnDeletion: true
  sourceRef: {kind: GitRepository, name: code}
`)
	uid := string(c.AwaitReady(t, "stack").UID)
	if _, err := p.Stop(); err != nil {
		t.Fatal(err)
	}
	lost := []string{filepath.Join(p.Dir, "records", "stacks", uid, "snapshots"), filepath.Join(p.Dir, "records", "trees")}
	for _, dir := range lost {
		if err := os.RemoveAll(dir); err != nil {
			t.Fatal(err)
		}
	}
	start(t, p)
	testkit.Eventually(t, testkit.Patience, "the record is written again", func(context.Context) error {
		for _, dir := range lost {
			if files, err := os.ReadDir(dir); err != nil || len(files) == 0 {
				return fmt.Errorf("%s has %d files: %v", dir, len(files), err)
			}
		}
		return nil
	})
	if got := condition(c.AwaitReady(t, "stack"), dialect.ConditionRecord).Message; got != "" {
		t.Errorf("the stack says %q", got)
	}
	c.Kubectl(t, "delete", "gitrepository/code", "secret/code-login")
	c.Delete(t, "stack")
	c.AwaitGone(t, "stack")
	made(t, w)
}
