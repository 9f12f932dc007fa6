package cli

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/terrier-iac/terrier/internal/query/situation"
)

// One screen: a line for each part, what is bad below it, and no more than five of it.
func TestStatusFitsAScreen(t *testing.T) {
	var failed []situation.Item
	for range 9 {
		failed = append(failed, situation.Item{Level: situation.Bad, Kind: "stack", Namespace: "apps", Name: "mail", Status: "failed", Message: "exit 1\x1b[2J", Next: "terrier explain mail -n apps", Since: noon.Add(-2 * time.Hour)})
	}
	var out bytes.Buffer
	p := statusCommands{newProgram(Env{Stdout: &out, Now: func() time.Time { return noon }})}
	p.overview(situation.Overview{Level: situation.Bad, Parts: []situation.Part{
		{Name: situation.Stacks, Level: situation.Bad, Text: "20 stacks: 12 failed, 8 ready", Items: failed, More: 3},
		{Name: situation.Vault, Level: situation.Attention, Text: "bao:8200 unknown", Items: []situation.Item{{Level: situation.Attention, Kind: "vault", Name: "bao:8200", Status: "unknown"}}},
		{Name: situation.Controllers, Level: situation.Good, Text: "2 controllers, a leads", Controllers: []situation.Controller{{Name: "a", Leads: true, Shards: 128}, {Name: "b", Shards: 1, Stale: true}}},
		{Name: situation.Queue, Level: situation.Good, Text: "0 runs running, 0 queued"},
	}})
	text := out.String()
	for _, want := range []string{
		"bad        stacks: 20 stacks: 12 failed, 8 ready\n", "  stack apps/mail: failed for 120m: exit 1\\x1b[2J\n    terrier explain mail -n apps\n",
		"  and 7 more\n", "attention  vault: bao:8200 unknown\n  vault bao:8200: unknown\n", "good       controllers: 2 controllers, a leads\n  controller a: 128 shards, leads\n  controller b: 1 shard, stale\n", "good       queue: 0 runs running, 0 queued\n",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("the screen is\n%s\nand lacks %q", text, want)
		}
	}
	if n := strings.Count(text, "\n"); n > 24 {
		t.Errorf("the screen has %d lines, want 24 at most", n)
	}
}

// The server answers, with the rights of the user, and the exit code says whether anything is bad.
func TestStatusOfAServer(t *testing.T) {
	e := newEstate(t)
	got := e.run(t, "status")
	// The server of the test has no board, so that nothing can be bad.
	if got.code != 0 || !strings.Contains(got.out, "stacks: This server reconciles no stacks\n") || !strings.Contains(got.out, "good       server: Terrier") {
		t.Errorf("exit %d, %q and %q, want the parts of the server", got.code, got.out, got.err)
	}
	got = e.run(t, "status", "-o", "json")
	if got.code != 0 || !strings.Contains(got.out, `"name": "flux"`) {
		t.Errorf("exit %d and %q, want the parts as JSON", got.code, got.out)
	}
}
