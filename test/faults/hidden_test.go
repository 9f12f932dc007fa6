package faults

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/terrier-iac/terrier/internal/failpoint"
)

// A run neither sees that its supervisor is armed nor reaches the file of acts.
func TestRunsSeeNothingOfIt(t *testing.T) {
	t.Parallel()
	var seen string
	look := scenario{"look", func(t *testing.T, r *round) {
		dir := filepath.Dir(r.world.Path)
		spec := calmly + "approvePlan: auto"
		hcl := `
resource "terraform_data" "look" {
  provisioner "local-exec" {
    command = "cd ` + dir + `; (env; cat /proc/[0-9]*/environ | tr '\\0' '\\n'; cat ` + r.file + ` && echo REACHED) > seen 2>/dev/null; echo looked >> seen"
  }
}
`
		r.ask(t, "stack", spec, hcl)
		r.AwaitReady(t, "stack")
		text, err := os.ReadFile(filepath.Join(dir, "seen"))
		if err != nil {
			t.Fatal(err)
		}
		seen = string(text)
	}}
	r := newRound(t, look, crash{})
	r.run(t)
	if len(r.acts(t)) == 0 {
		t.Fatal("nothing was armed")
	}
	if !strings.Contains(seen, "looked") || !strings.Contains(seen, "TF_IN_AUTOMATION") {
		t.Fatalf("the run did not look: %s", seen)
	}
	for _, hidden := range []string{failpoint.Env, "REACHED", r.file} {
		if strings.Contains(seen, hidden) {
			t.Errorf("the run sees %q in:\n%s", hidden, seen)
		}
	}
}
