package tenantapi

import (
	"slices"
	"strings"
	"time"

	tenantsv1 "github.com/terrier-iac/terrier/api/tenants/v1"
	"github.com/terrier-iac/terrier/internal/tenant"
)

// leavingTime distinguishes two reads within a second.
const leavingTime = "2006-01-02T15:04:05.000000Z07:00"

// allowedWord ends the annotation of a tenant whose deletion a user allowed.
const allowedWord = "Allowed"

// dueWord begins the time of the deletion in the annotation.
const dueWord = "due="

// LeavingText is the annotation terrier.dev/leaving: when a read first found that
// the row asks for the deletion of its tenant, why, and when the tenant is deleted.
func LeavingText(l tenant.Leaving) string {
	words := []string{l.Since.UTC().Format(leavingTime), tenant.RowInactive}
	switch {
	case l.Template:
		words[1] = tenant.TemplateDeleted
	case l.Absent:
		words[1] = tenant.RowAbsent
	}
	if l.Allowed {
		words = append(words, allowedWord)
	}
	if !l.Due.IsZero() {
		words = append(words, dueWord+l.Due.UTC().Format(leavingTime))
	}
	return strings.Join(words, " ")
}

// Leaving reads the annotation, nil if the tenant stays. An unreadable one counts
// as none: the grace period begins again.
func Leaving(t *tenantsv1.Tenant) *tenant.Leaving {
	words := strings.Fields(t.Annotations[tenantsv1.AnnotationLeaving])
	if len(words) < 2 {
		return nil
	}
	since, err := time.Parse(time.RFC3339Nano, words[0])
	if err != nil {
		return nil
	}
	l := &tenant.Leaving{
		Since: since, Absent: words[1] == tenant.RowAbsent, Template: words[1] == tenant.TemplateDeleted,
		Allowed: slices.Contains(words[2:], allowedWord),
	}
	for _, w := range words[2:] {
		if text, ok := strings.CutPrefix(w, dueWord); ok {
			l.Due, _ = time.Parse(time.RFC3339Nano, text) // zero is written again
		}
	}
	return l
}
