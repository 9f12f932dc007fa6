package query

import (
	"cmp"
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/terrier-iac/terrier/internal/access"
	"github.com/terrier-iac/terrier/internal/audit"
	"github.com/terrier-iac/terrier/internal/plural"
)

// AuditLog answers questions about the audit log. Its caller says with an AuditSight
// which entries the user may see.
type AuditLog interface {
	Entries(context.Context, AuditSight, AuditQuery) (AuditPage, error)
	VerifyAuditLog(context.Context) (AuditReport, error)
	// CheckAuditLog verifies one part at a time: it continues where it ended before,
	// does not read unchanged files again, and never takes long.
	CheckAuditLog(context.Context) (AuditReport, error)
}

// What the audit log holds, as in package audit.
type (
	AuditEntry  = audit.Entry
	AuditWhat   = audit.What
	AuditVia    = audit.Via
	AuditObject = audit.Object
	AuditPage   = audit.Page
	AuditHead   = audit.Head
)

// AuditQuery chooses entries.
type AuditQuery struct {
	Since     time.Time   `json:"since,omitzero"` // from then on
	Until     time.Time   `json:"until,omitzero"` // before then
	Who       string      `json:"who,omitempty"`  // exactly
	What      []AuditWhat `json:"what,omitempty"` // any of them; all if empty
	Via       AuditVia    `json:"via,omitempty"`
	ByUsers   bool        `json:"byUsers,omitempty"` // none that Terrier made by its own rules
	Namespace string      `json:"namespace,omitempty"`
	Stack     string      `json:"stack,omitempty"`  // name of the object
	Kind      *string     `json:"kind,omitempty"`   // of the stack, as Key has it; nil if of whatever kind
	Text      string      `json:"text,omitempty"`   // words that must all occur
	Before    uint64      `json:"before,omitempty"` // the Next of the page before; 0 for the newest
	Limit     int         `json:"limit,omitempty"`  // 100 if 0, 1000 at most
}

// AuditObjectOf is a stack in the audit log.
func AuditObjectOf(key Key) AuditObject {
	o := AuditObject{Kind: "Terraform", Namespace: key.Namespace, Name: key.Name}
	if key.Kind != "" {
		o.Kind, o.Group, _ = strings.Cut(key.Kind, ".")
	}
	return o
}

// AuditedStack is the stack that an entry of the audit log is about; false if it is about
// another object.
func AuditedStack(o AuditObject) (Key, bool) {
	key := Key{Kind: o.Word(), Namespace: o.Namespace, Name: o.Name}
	return key, key.Namespace != "" && key.Name != "" && o.IsStack()
}

// AuditReport says whether the audit log is complete and unchanged.
type AuditReport struct {
	audit.Report
	Anchor  *audit.Head `json:"anchor,omitempty"`  // the head that is kept outside of it; nil if none is
	Problem string      `json:"problem,omitempty"` // the first problem, in a sentence; empty if there is none
	Until   uint64      `json:"until,omitempty"`   // the entry up to which there is more to read; 0 if all is read
}

// AuditSight is which entries a user may see. The zero AuditSight is none.
type AuditSight struct {
	All bool // also those that belong to no namespace, as sign-ins
	In  func(namespace string) bool
}

// Has reports whether the entries of a namespace are in s; those of the platform
// have none.
func (s AuditSight) Has(namespace string) bool {
	return s.All || namespace != "" && s.In != nil && s.In(namespace)
}

// AuditSightOf is what a user may see: can is asked once for all namespaces, and
// once for each namespace that has entries.
func AuditSightOf(can func(access.Request) bool) AuditSight {
	if can(access.Request{Verb: "list", Resource: access.ResourceAudit}) {
		return AuditSight{All: true}
	}
	var mu sync.Mutex
	known := map[string]bool{}
	return AuditSight{In: func(namespace string) bool {
		mu.Lock()
		defer mu.Unlock()
		may, asked := known[namespace]
		if !asked {
			may = can(access.Request{Verb: "list", Resource: access.ResourceAudit, Namespace: namespace})
			known[namespace] = may
		}
		return may
	}}
}

// ClientAgent is the User-Agent of the command line.
const ClientAgent = "terrier"

// What package web records, and the channels.
const (
	AuditSignedIn        = audit.SignedIn
	AuditSignedOut       = audit.SignedOut
	AuditSignInRefused   = audit.SignInRefused
	AuditDenied          = audit.CommandDenied
	AuditStateRead       = audit.StateRead
	AuditStateKeyRead    = audit.StateKeyRead
	AuditOutputsRevealed = audit.OutputsRevealed
	AuditForgotten       = audit.RetainedForgotten
	AuditLoginConfirmed  = audit.LoginConfirmed
	AuditLoginDeclined   = audit.LoginDeclined
	AuditLoginRefused    = audit.LoginRefused
	AuditTokenCreated    = audit.TokenCreated
	AuditTokenRevoked    = audit.TokenRevoked

	ViaUI  = audit.ViaUI
	ViaAPI = audit.ViaAPI
	ViaCLI = audit.ViaCLI
)

// AuditUser is the user who did something, empty if no user is named. A user whom only the
// object names is said to be not verified: all others are, since they signed in, or the API
// server has recorded them.
func AuditUser(e AuditEntry) string {
	if e.Who == "" {
		return claimed(e.Claimed, false)
	}
	return e.Who
}

// AuditWho is who did something, in a word or two.
func AuditWho(e AuditEntry) string {
	switch {
	case e.Who != "" || e.Claimed != "":
		return AuditUser(e)
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
	for _, by := range []struct{ detail, what string }{{"rules", "by "}, {"webhooks", "by a webhook"}, {"held-by", "held by "}, {"allowed-by", "allowed by "}} {
		switch v := e.Details[by.detail]; {
		case v == "":
		case by.detail == "webhooks": // the detail is a digest
			add(by.what)
		default:
			add(by.what + v)
		}
	}
	for _, name := range []string{"command", "lock", "state", "generation", "deleted", "held", "request", "version", "objects"} {
		if v := e.Details[name]; v != "" {
			add(name + " " + v)
		}
	}
	return strings.Join(parts, "; ")
}

// Count is a number with its noun.
func Count(n int, noun string) string { return plural.Count(n, noun) }

// Size is a number of bytes in the unit that says enough.
func Size(n int) string {
	switch {
	case n < 10<<10:
		return fmt.Sprintf("%d B", n)
	case n < 10<<20:
		return fmt.Sprintf("%d KiB", n>>10)
	case n < 10<<30:
		return fmt.Sprintf("%d MiB", n>>20)
	default:
		return fmt.Sprintf("%d GiB", n>>30)
	}
}
