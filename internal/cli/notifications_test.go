package cli

import (
	"encoding/json"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/terrier-iac/terrier/internal/access"
	"github.com/terrier-iac/terrier/internal/command"
	"github.com/terrier-iac/terrier/internal/dialect/kinds"
	"github.com/terrier-iac/terrier/internal/notify"
	"github.com/terrier-iac/terrier/internal/query"
	"github.com/terrier-iac/terrier/internal/web"
)

// delivered is a history of messages.
type delivered []notify.Delivery

func (d delivered) Deliveries() []notify.Delivery { return d }

// answers starts a server that knows what was sent, in the place of the one that
// the cluster names.
func (e *estate) answers(t *testing.T, sent delivered) {
	t.Helper()
	auth, err := access.NewKubeAuth(e.cluster.Config, kinds.All())
	if err != nil {
		t.Fatal(err)
	}
	kube, err := access.NewClient(e.cluster.Config, kinds.All())
	if err != nil {
		t.Fatal(err)
	}
	h, err := web.New(web.Options{
		Kinds: kinds.All(), Stacks: command.New(kube, kinds.All(), query.NewBlobs(e.records, e.records, time.Millisecond), e.Now), Auth: auth, Hosts: []string{"127.0.0.1"},
		Notices: query.NewNotices(sent, query.NamespacesIn(kube)),
	})
	if err != nil {
		t.Fatal(err)
	}
	srv := httptest.NewTLSServer(h)
	t.Cleanup(srv.Close)
	e.Environ = append(e.Environ, "TERRIER_SERVER="+srv.URL)
}

func TestNotifications(t *testing.T) {
	e := newEstate(t)
	ns := e.cluster.Namespace
	at := func(minutes int) time.Time { return noon.Add(time.Duration(minutes) * time.Minute) }
	e.answers(t, delivered{
		{ID: "1", At: at(1), Namespace: ns, Kind: "Terraform", Name: "network", Event: "DriftDetected", Provider: "chat", Address: "hooks.example.com", Attempts: 1, Outcome: "delivered", Message: "2 objects differ"},
		{ID: "2", At: at(2), Namespace: ns, Kind: "Tenant", Name: "acme", Event: "Failed", Provider: "pager", Attempts: 5, Outcome: "failed", Message: "it failed", Error: "404 \x1b[31mnot there"},
		{ID: "3", At: at(3), Namespace: "other", Kind: "Terraform", Name: "dns", Event: "Applied", Provider: "chat", Attempts: 1, Outcome: "delivered"},
	})
	got := e.run(t, "notifications")
	want := `TIME                   EVENT           OBJECT                PROVIDER                   OUTCOME     TRIES   DETAILS
2026-03-01 12:02:00Z   Failed          Tenant NS/acme        pager                      failed      5       404 \x1b[31mnot there
2026-03-01 12:01:00Z   DriftDetected   Terraform NS/network   chat (hooks.example.com)   delivered   1       2 objects differ

1 failed, 1 delivered
`
	if squeeze(got.out) != squeeze(strings.ReplaceAll(want, "NS", ns)) || got.code != 0 {
		t.Errorf("it says (%d)\n%s%swant\n%s", got.code, got.out, got.err, want)
	}
	for args, want := range map[string]string{
		"":                                     "2 1",
		"-A":                                   "3 2 1",
		"-A --outcome delivered":               "3 1",
		"--provider pager":                     "2",
		"--name network --event DriftDetected": "1",
		"-n other":                             "3",
		"-A --limit 1 --offset 1":              "2",
		"--outcome retrying,dropped":           "",
	} {
		got := e.run(t, append([]string{"notifications", "-o", "json"}, strings.Fields(args)...)...)
		var page query.NoticePage
		if err := json.Unmarshal([]byte(got.out), &page); err != nil {
			t.Fatalf("%s: %v: %s%s", args, err, got.out, got.err)
		}
		var ids []string
		for _, d := range page.Items {
			ids = append(ids, d.ID)
		}
		if s := strings.Join(ids, " "); s != want {
			t.Errorf("notifications %s finds %q, want %q", args, s, want)
		}
	}
	if got := e.run(t, "notifications", "-A", "--limit", "1"); !strings.Contains(got.err, "--offset 1") {
		t.Errorf("a list that ends early says %q", got.err)
	}
	if got := e.run(t, "notifications", "--name", "nothing"); got.code != 0 || got.out != "No matching messages.\n" {
		t.Errorf("of nothing it says %q (%d)", got.out, got.code)
	}
	if got := e.run(t, "notifications", "--outcome", "lost"); got.code != 2 || !strings.Contains(got.err, "failed, retrying, delivered, dropped") {
		t.Errorf("--outcome lost ended with %d: %s", got.code, got.err)
	}
}

// squeeze takes the width of columns out of a table.
func squeeze(s string) string {
	lines := strings.Split(s, "\n")
	for i := range lines {
		lines[i] = strings.Join(strings.Fields(lines[i]), " ")
	}
	return strings.Join(lines, "\n")
}
