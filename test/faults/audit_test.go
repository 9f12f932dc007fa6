package faults

import (
	"path/filepath"
	"testing"

	"github.com/terrier-iac/terrier/internal/audit"
)

// verifyAuditLog checks that the audit log is whole wherever a process was ended, has
// no entry twice, and has the start of each apply before its end.
func (r *round) verifyAuditLog(t *testing.T) {
	t.Helper()
	dir := filepath.Join(r.platform.Dir, "audit")
	report, err := audit.Verify(dir)
	if err != nil {
		t.Fatal(err)
	}
	if report.Bad != nil {
		t.Errorf("the audit log is not whole: %v", report.Bad)
	}
	page, err := audit.Read(dir, audit.Query{Limit: 1000})
	if err != nil {
		t.Fatal(err)
	}
	seen, ended := map[string]bool{}, map[string]audit.What{}
	for _, e := range page.Items { // the newest first
		if e.ID != "" && seen[e.ID] {
			t.Errorf("%s of %s is recorded twice", e.What, e.Object.Name)
		}
		seen[e.ID] = true
		switch e.What {
		case audit.Applied, audit.ApplyFailed, audit.Destroyed, audit.DestroyFailed:
			ended[e.Object.UID+e.Run] = e.What
		case audit.ApplyStarted, audit.DestroyStarted:
			delete(ended, e.Object.UID+e.Run)
		}
	}
	for run, what := range ended {
		t.Errorf("%s is recorded of %s, which never began", what, run)
	}
}
