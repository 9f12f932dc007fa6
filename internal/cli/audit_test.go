package cli

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/terrier-iac/terrier/internal/audit"
)

// auditLogIn writes an audit log of three entries into a directory and returns its
// head.
func auditLogIn(t *testing.T, dir string) audit.Head {
	t.Helper()
	at := noon.Add(-3 * time.Hour)
	j, err := audit.Open(filepath.Join(dir, "audit"), audit.Options{Now: func() time.Time { at = at.Add(time.Hour); return at }})
	if err != nil {
		t.Fatal(err)
	}
	stack := audit.Object{Kind: "Terraform", Namespace: "apps", Name: "net"}
	for _, e := range []audit.Entry{
		{What: audit.Planned, Via: audit.ViaController, Object: stack, Plan: "plan-main-1"},
		{What: audit.Approved, Who: "ann", Via: audit.ViaUI, Object: stack, Plan: "plan-main-1", Comment: "fine\x1b[31m"},
		{What: audit.ApplyFailed, Via: audit.ViaController, Object: stack, Plan: "plan-main-1", Outcome: "Failed"},
	} {
		if err := j.Record(t.Context(), e); err != nil {
			t.Fatal(err)
		}
	}
	head := j.Head()
	if err := j.Close(); err != nil {
		t.Fatal(err)
	}
	return head
}

func TestAuditList(t *testing.T) {
	e := env(t)
	auditLogIn(t, e.Dir)
	got := e.run(t, "audit", "list", "--dir", "audit")
	want := `SEQ   TIME                   USER      ACTION         OBJECT     DETAILS
3     2026-03-01 12:00:00Z   Terrier   apply-failed   apps/net   plan-main-1; Failed
2     2026-03-01 11:00:00Z   ann       approved       apps/net   plan-main-1; “fine\x1b[31m”
1     2026-03-01 10:00:00Z   Terrier   planned        apps/net   plan-main-1
`
	if got.out != want || got.code != 0 {
		t.Errorf("it says\n%s%s(%d), want\n%s", got.out, got.err, got.code, want)
	}
	for args, want := range map[string]string{
		"--who ann":                               "2",
		"--what planned,approved":                 "2 1",
		"--stack apps/net --limit 1":              "3",
		"--stack other/net":                       "",
		"--since 90m":                             "3 2",
		"--since 1d --until 2026-03-01T11:00:00Z": "1",
		"--search FINE":                           "2",
		"--before 2":                              "1",
	} {
		got := e.run(t, append([]string{"audit", "list", "--dir", "audit", "-o", "json"}, strings.Fields(args)...)...)
		var page struct{ Items []audit.Entry }
		if err := json.Unmarshal([]byte(got.out), &page); err != nil {
			t.Fatalf("%s: %v: %s%s", args, err, got.out, got.err)
		}
		var seqs []string
		for _, e := range page.Items {
			seqs = append(seqs, fmt.Sprint(e.Seq))
		}
		if s := strings.Join(seqs, " "); s != want {
			t.Errorf("audit list %s finds %q, want %q", args, s, want)
		}
	}
	if got := e.run(t, "audit", "list", "--dir", "audit", "--since", "yesterday"); got.code != 2 {
		t.Errorf("--since yesterday ended with %d, want 2", got.code)
	}
}

// Two kinds of stack and a registry may have one name, and the audit log tells them apart.
func TestAuditListByKind(t *testing.T) {
	e := env(t)
	j, err := audit.Open(filepath.Join(e.Dir, "audit"), audit.Options{Now: func() time.Time { return noon }})
	if err != nil {
		t.Fatal(err)
	}
	for _, of := range []audit.Object{
		{Kind: "Terraform", Namespace: "apps", Name: "net"}, {Kind: "terraform", Group: "alustan.io", Namespace: "apps", Name: "net"},
		{Kind: "TenantRegistry", Namespace: "apps", Name: "net"}, {Kind: "terraform", Group: "alustan.io", Namespace: "other", Name: "net"},
	} {
		if err := j.Record(t.Context(), audit.Entry{What: audit.Approved, Who: "ann", Object: of}); err != nil {
			t.Fatal(err)
		}
	}
	if err := j.Close(); err != nil {
		t.Fatal(err)
	}
	for args, want := range map[string]string{
		"":                            "4 3 2 1",
		"--kind terraform.alustan.io": "4 2",
		"--kind terraforms.infra.contrib.fluxcd.io": "1",
		"--stack net":                                               "4 3 2 1",
		"--stack apps/net":                                          "3 2 1",
		"--stack terraform.alustan.io/net":                          "4 2",
		"--stack terraform.alustan.io/apps/net":                     "2",
		"--stack apps/net --kind terraform.infra.contrib.fluxcd.io": "1",
	} {
		got := e.run(t, append([]string{"audit", "list", "--dir", "audit", "-o", "json"}, strings.Fields(args)...)...)
		var page struct{ Items []audit.Entry }
		if err := json.Unmarshal([]byte(got.out), &page); err != nil {
			t.Fatalf("%s: %v: %s%s", args, err, got.out, got.err)
		}
		var seqs []string
		for _, e := range page.Items {
			seqs = append(seqs, fmt.Sprint(e.Seq))
		}
		if s := strings.Join(seqs, " "); s != want {
			t.Errorf("audit list %s finds %q, want %q", args, s, want)
		}
	}
	for args, says := range map[string]string{
		"--kind terraform": "it may be terraform.infra.contrib.fluxcd.io",
		"--kind terraform.alustan.io --stack terraform.alustan.io/net": "names a kind, too",
	} {
		if got := e.run(t, append([]string{"audit", "list", "--dir", "audit"}, strings.Fields(args)...)...); got.code != 2 || !strings.Contains(got.err, says) {
			t.Errorf("audit list %s ended with %d: %s; want 2 and %q", args, got.code, got.err, says)
		}
	}
}

func TestAuditVerify(t *testing.T) {
	e := env(t)
	head := auditLogIn(t, e.Dir)
	known := fmt.Sprintf("%d:%s", head.Seq, head.Hash)
	if got := e.run(t, "audit", "verify", "--dir", "audit", "--head", known); got.code != 0 || !strings.Contains(got.out, "3 in 1 segment\n") || !strings.Contains(got.out, known) {
		t.Errorf("verify of a whole audit log ended with %d: %s%s", got.code, got.out, got.err)
	}
	path := filepath.Join(e.Dir, "audit", fmt.Sprintf("%020d.jsonl", 1))
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct{ text, says string }{
		"another person": {strings.Replace(string(text), `"ann"`, `"bob"`, 1), "entry 3"},
		"no last line":   {strings.Join(strings.SplitAfter(string(text), "\n")[:2], ""), "the end is missing: entry 3"},
	} {
		t.Run(name, func(t *testing.T) {
			if err := os.WriteFile(path, []byte(c.text), 0o600); err != nil {
				t.Fatal(err)
			}
			if got := e.run(t, "audit", "verify", "--dir", "audit", "--head", known); got.code == 0 || !strings.Contains(got.err, c.says) {
				t.Errorf("verify ended with %d and said %q, want a failure and %q", got.code, got.err, c.says)
			}
			var r struct{ Problem string }
			got := e.run(t, "audit", "verify", "--dir", "audit", "--head", known, "-o", "json")
			if err := json.Unmarshal([]byte(got.out), &r); err != nil || got.code == 0 || r.Problem == "" {
				t.Errorf("as JSON it ended with %d and said %q (%v)", got.code, got.out, err)
			}
		})
	}
	for _, args := range [][]string{{"--head", known}, {"--dir", "audit", "--head", "3"}, {"--dir", "audit", "--head", "x:" + head.Hash}} {
		if got := e.run(t, append([]string{"audit", "verify"}, args...)...); got.code != 2 {
			t.Errorf("audit verify %v ended with %d, want 2", args, got.code)
		}
	}
}
