// Package protocol serves a registry over HTTP as the engine and users ask for it:
// discovery, modules.v1, providers.v1, uploads, and archives by signed addresses.
//
// It decides nothing about who may do what: Rights does. Start reading at Options.
package protocol

import (
	"context"
	"net/http"

	"github.com/terrier-iac/terrier/internal/fault"
)

// Verb is what a caller does with a namespace.
type Verb string

// The verbs.
const (
	Read  Verb = "read"
	Write Verb = "write"
)

// Caller is who sends a request.
type Caller struct {
	Name   string // as lists of versions show who published one
	Tenant string // whose traffic it is: in figures, and for the rules of the mirror

	Grant any // what Rights knows of the caller besides, for itself alone
}

// Rights says who asks, and what a caller may do.
type Rights interface {
	// Caller is who sends a request. The error for a request without a known caller is
	// made by Unauthenticated.
	Caller(*http.Request) (Caller, error)
	// May is nil if the caller may do this in a namespace, else Denied.
	May(ctx context.Context, c Caller, v Verb, namespace string) error
}

// unauthenticated is the reason of an error that has the status 401.
const unauthenticated = "Unauthenticated"

// Unauthenticated marks an error as that of a request without a known caller.
func Unauthenticated(err error) error { return fault.New(fault.Denied, unauthenticated, err) }

// IsUnauthenticated reports whether an error is that of a request without a known caller.
func IsUnauthenticated(err error) bool { return fault.Reason(err, "") == unauthenticated }
