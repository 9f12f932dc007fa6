package service

import (
	"cmp"
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
