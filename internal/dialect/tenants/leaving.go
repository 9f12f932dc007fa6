package tenants

import (
	"strings"
	"time"

	tenantsv1 "github.com/terrier-iac/terrier/api/tenants/v1"
	"github.com/terrier-iac/terrier/internal/tenant"
)

// leavingTime distinguishes two reads within a second.
const leavingTime = "2006-01-02T15:04:05.000000Z07:00"

// allowedWord ends the annotation of a tenant whose deletion a user allowed.
const allowedWord = "Allowed"

// LeavingText is the annotation terrier.dev/leaving: when a read first found that
// the row asks for the deletion of its tenant, and why.
func LeavingText(l tenant.Leaving) string {
	words := []string{l.Since.UTC().Format(leavingTime), tenant.RowInactive}
	if l.Absent {
		words[1] = tenant.RowAbsent
	}
	if l.Allowed {
		words = append(words, allowedWord)
	}
	return strings.Join(words, " ")
}

// leavingOf reads the annotation, nil if the tenant stays. An unreadable one counts
// as none: the grace period begins again.
func leavingOf(t *tenantsv1.Tenant) *tenant.Leaving {
	words := strings.Fields(t.Annotations[tenantsv1.AnnotationLeaving])
	if len(words) < 2 {
		return nil
	}
	since, err := time.Parse(time.RFC3339Nano, words[0])
	if err != nil {
		return nil
	}
	return &tenant.Leaving{Since: since, Absent: words[1] == tenant.RowAbsent, Allowed: len(words) > 2 && words[2] == allowedWord}
}
