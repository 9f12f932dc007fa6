package e2e

import (
	"context"
	"errors"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/terrier-iac/terrier/internal/testkit"
)

// What a stranger sees first: two stacks that are true, and a tour that works as
// it is printed.
func TestQuickstart(t *testing.T) {
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
	testkit.Eventually(t, time.Minute, "the tour is printed", func(context.Context) error {
		if len(tour(p)) < 5 {
			return errors.New(p.Log())
		}
		return nil
	})

	estate := filepath.Join(p.Dir, "estate")
	var out string
	for _, command := range tour(p) {
		switch {
		case strings.Contains(command, "terrier approve"), strings.Contains(command, "terrier plan"):
			c.AwaitPending(t, "app")
		case strings.Contains(command, "echo broken"):
			c.AwaitReady(t, "app")
			if got := read(t, filepath.Join(estate, "replica-2.txt")); got == "" {
				t.Error("the third replica is empty")
			}
		case strings.Contains(command, "--watch"):
			continue // until somebody has seen enough
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

// tour lists the commands that the quickstart prints.
func tour(p *testkit.Platform) []string {
	var commands []string
	for line := range strings.Lines(p.Log()) {
		for _, program := range []string{"kubectl ", "bin/terrier ", "echo "} {
			if strings.HasPrefix(line, "  "+program) {
				commands = append(commands, strings.TrimSpace(line))
			}
		}
	}
	return commands
}
