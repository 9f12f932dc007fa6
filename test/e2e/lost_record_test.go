package e2e

import (
	"os"
	"path/filepath"
	"testing"

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
