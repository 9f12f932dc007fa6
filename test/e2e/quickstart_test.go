package e2e

import (
	"context"
	"path/filepath"
	"strings"
	"testing"

	"github.com/terrier-iac/terrier/internal/testkit"
)

// The first minutes of a new user: two settled stacks, and a tour that works as it
// is printed.
func TestQuickstart(t *testing.T) {
	t.Parallel()
	p := testkit.Up(t, "--quickstart")
	c := p.In(t, "quickstart")
	c.AwaitReady(t, "network")
	c.AwaitReady(t, "app")
	if got := c.Secret(t, "network-outputs")["range"]; got != "10.20.0.0/16" {
		t.Errorf("the network's range is %q", got)
	}
	if len(c.Secret(t, "app-outputs")) == 0 {
		t.Error("the app outputs nothing")
	}
	testkit.Eventually(t, testkit.Patience, "the tour is printed", func(context.Context) error {
		if len(tour(p)) < 9 {
			return errNot("a tour of nine commands")
		}
		return nil
	})

	estate := filepath.Join(p.Dir, "estate")
	var out string
	for _, command := range tour(p) {
		switch {
		case strings.Contains(command, " approve app"), strings.Contains(command, " plan app"):
			c.AwaitPending(t, "app")
		case strings.Contains(command, "echo broken"):
			c.AwaitReady(t, "app")
			if got := read(t, filepath.Join(estate, "replica-2.txt")); got == "" {
				t.Error("the third replica is empty")
			}
		case strings.Contains(command, "--watch"):
			continue // until the user has seen enough
		}
		out += c.Shell(t, command)
	}
	for _, want := range []string{"network", "Approved"} {
		if !strings.Contains(out, want) {
			t.Errorf("the tour shows\n%s\nwant %q in it", out, want)
		}
	}
	if s := c.AwaitReason(t, "app", "DriftDetected"); s.Status.Plan.Pending == "" {
		t.Errorf("there is no plan that repairs what was broken: %s", message(s))
	}
}

// tour lists the commands that the quickstart prints, up to those about tenants,
// which TestTenantsExample owns.
func tour(p *testkit.Platform) []string {
	_, printed, _ := strings.Cut(p.Log(), "Try this in another terminal:")
	printed, _, _ = strings.Cut(printed, "Three rows of a table")
	var commands []string
	for line := range strings.Lines(printed) {
		if command, ok := strings.CutPrefix(line, "  "); ok && !strings.HasPrefix(command, "export ") {
			commands = append(commands, strings.TrimSpace(command))
		}
	}
	return commands
}
