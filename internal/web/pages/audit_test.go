package pages

import (
	"testing"

	"github.com/terrier-iac/terrier/internal/query"
)

// The audit log says of each user whether the name was verified. An unknown user is not taken for
// Terrier.
func TestTheAuditLogSaysWhoWasVerified(t *testing.T) {
	for name, tt := range map[string]struct {
		of                       query.AuditEntry
		who, verified, way, link string
	}{
		"a user":          {query.AuditEntry{Who: "ann", Via: query.ViaUI}, "ann", "verified", "pages", "/audit?who=ann"},
		"a claim":         {query.AuditEntry{Claimed: "eve", Via: "kubectl"}, "eve", "said by the object, not verified", "Kubernetes API", ""},
		"an unknown user": {query.AuditEntry{Via: "kubectl"}, "unknown user", "", "Kubernetes API", ""},
		"Terrier":         {query.AuditEntry{Via: viaController}, "Terrier itself", "", "", ""},
	} {
		row := rowOfAudit(tt.of)
		if row.Who != tt.who || row.Verified != tt.verified || row.Way != tt.way || row.ByHref != tt.link {
			t.Errorf("%s: %q, %q, %q and %q, want %q, %q, %q and %q", name, row.Who, row.Verified, row.Way, row.ByHref, tt.who, tt.verified, tt.way, tt.link)
		}
	}
	d := screen(t, shire(), "/audit?all=yes", Audit)
	wants(t, d.text(), "ann@example.comverified")
}
