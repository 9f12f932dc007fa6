package e2e

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/terrier-iac/terrier/internal/testkit"
)

// T01: a module that attacks what runs it, through the real engine: it reads no
// credential, writes only where it may, ends no other process, and nothing of it is
// left when its run is over. TestMatrix in internal/sandbox tries everything else
// that a program could.
func TestHostileModule(t *testing.T) {
	t.Parallel()
	c := cluster(t)
	p := platform(t)
	if p.Isolation != "full" {
		t.Skipf("this machine makes boxes of the level %q, which leaves some of this open", p.Isolation)
	}
	out := p.Shared(t)
	token := p.In(t, "default").Config.BearerToken
	attack := strings.NewReplacer("OUT", out, "DATA", p.Dir, "KUBECONFIG", p.Kubeconfig, "PID", strconv.Itoa(p.PID())).Replace(`
resource "terraform_data" "attack" {
  provisioner "local-exec" {
    command = <<-EOT
      cat KUBECONFIG > OUT/kubeconfig 2>&1
      ls DATA > OUT/data 2>&1
      cat /proc/PID/environ > OUT/environ 2>&1
      kill -9 PID > OUT/kill 2>&1
      echo planted > DATA/planted
      env > OUT/env
      setsid sh -c 'while :; do echo OUT; sleep 1; done' > /dev/null 2>&1 < /dev/null &
      echo done > OUT/done
    EOT
  }
}
`)
	c.Apply(t, inline("stack", "approvePlan: auto\ninterval: 1h", attack))
	c.AwaitReady(t, "stack")
	said := func(name string) string { return read(t, filepath.Join(out, name)) }
	if said("done") != "done\n" {
		t.Fatal("the attack did not come to its end")
	}
	for _, name := range []string{"kubeconfig", "data", "environ", "kill"} {
		text := said(name)
		if strings.Contains(text, token) || !strings.Contains(strings.ToLower(text), "no such") && !strings.Contains(strings.ToLower(text), "denied") && !strings.Contains(text, "cannot") {
			t.Errorf("the attempt %s ended with %q, want a refusal", name, text)
		}
	}
	if _, err := os.Stat(filepath.Join(p.Dir, "planted")); err == nil {
		t.Error("it wrote to the data directory")
	}
	for line := range strings.Lines(said("env")) {
		if name, _, _ := strings.Cut(line, "="); strings.HasPrefix(name, "TERRIER_") || name == "KUBECONFIG" || strings.Contains(line, token) {
			t.Errorf("its environment holds %s", name)
		}
	}
	testkit.Eventually(t, testkit.Patience, "nothing of it lives", func(context.Context) error {
		all, err := filepath.Glob("/proc/[0-9]*/cmdline")
		if err != nil {
			return err
		}
		for _, path := range all {
			if text, err := os.ReadFile(path); err == nil && strings.Contains(string(text), "echo "+out) {
				return fmt.Errorf("%s is %q", path, text)
			}
		}
		return nil
	})
}
