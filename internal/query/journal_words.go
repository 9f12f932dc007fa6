package query

import (
	"cmp"
	"fmt"
	"strings"

	"github.com/terrier-iac/terrier/internal/audit"
)

// AuditWho is who did something, in a word or two.
func AuditWho(e AuditEntry) string {
	switch {
	case e.Who != "":
		return e.Who
	case e.Via == audit.ViaController:
		return "Terrier"
	default:
		return "unknown"
	}
}

// AuditAbout is what there is to say about an entry, on one line: its plan or run,
// what it changed, what people said.
func AuditAbout(e AuditEntry) string {
	var parts []string
	add := func(s string) {
		if s != "" {
			parts = append(parts, s)
		}
	}
	add(cmp.Or(e.Plan, e.Run))
	if !e.Changes.None() {
		add(e.Changes.String())
	}
	if e.Outcome != "" && e.Outcome != "Succeeded" {
		add(e.Outcome)
	}
	if e.Comment != "" {
		add("“" + e.Comment + "”")
	}
	add(e.Why)
	for _, name := range []string{"command", "lock", "state", "generation", "deleted", "held", "request", "version", "objects"} {
		if v := e.Details[name]; v != "" {
			add(name + " " + v)
		}
	}
	return strings.Join(parts, "; ")
}

// Count is a number with its noun.
func Count(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

// Size is a number of bytes in the unit that says enough.
func Size(n int) string {
	switch {
	case n < 10<<10:
		return fmt.Sprintf("%d B", n)
	case n < 10<<20:
		return fmt.Sprintf("%d KiB", n>>10)
	default:
		return fmt.Sprintf("%d MiB", n>>20)
	}
}
