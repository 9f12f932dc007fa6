// Package fault names the six kinds of failure and their meanings: a requeue, an HTTP
// status, an exit code. An error is marked once, where its kind is known; an error
// without a mark is Broken.
//
// It holds no messages and logs nothing. Start reading at Kind.
package fault

import (
	"errors"
	"time"
)

// Kind says who has to do something about a failure, and when to try again.
type Kind string

// The kinds. Their meanings outside are in Meaning.
const (
	None     Kind = ""         // no failure
	Invalid  Kind = "Invalid"  // the user must edit what they wrote
	Denied   Kind = "Denied"   // RBAC, a policy or a guard denies it
	Missing  Kind = "Missing"  // a referenced object does not exist yet
	Conflict Kind = "Conflict" // another writer was faster: read again
	Later    Kind = "Later"    // a lock, a quota, a dependency: wait
	Broken   Kind = "Broken"   // a bug, or a failure of the platform
)

// Fault is an error of a known kind.
type Fault struct {
	Kind   Kind
	Reason string        // UpperCamel and stable, for conditions and events; may be empty
	After  time.Duration // for Later: when to look again; zero leaves it to the caller
	Err    error
}

func (f *Fault) Error() string { return f.Err.Error() }
func (f *Fault) Unwrap() error { return f.Err }

// New marks err as being of kind k, for the given reason. It returns nil for a
// nil err, so that a call can be returned as it is.
func New(k Kind, reason string, err error) error {
	if err == nil {
		return nil
	}
	return &Fault{Kind: k, Reason: reason, Err: err}
}

// Wait marks err as Later with a time to look again.
func Wait(after time.Duration, reason string, err error) error {
	if err == nil {
		return nil
	}
	return &Fault{Kind: Later, Reason: reason, After: after, Err: err}
}

// Of returns the kind of err: None for nil, Broken for anything unmarked.
func Of(err error) Kind {
	if err == nil {
		return None
	}
	if f, ok := errors.AsType[*Fault](err); ok {
		return f.Kind
	}
	return Broken
}

// Reason returns the reason that err was marked with, or fallback.
func Reason(err error, fallback string) string {
	if f, ok := errors.AsType[*Fault](err); ok && f.Reason != "" {
		return f.Reason
	}
	return fallback
}

// Meaning is what a kind of failure means outside the core.
type Meaning struct {
	Stalled bool // a user must act before it can succeed
	Warning bool // its event is a warning
	HTTP    int
	Exit    int
}

// Meaning returns the one row of the fault table for k.
func (k Kind) Meaning() Meaning {
	switch k {
	case None:
		return Meaning{HTTP: 200}
	case Invalid:
		return Meaning{Stalled: true, Warning: true, HTTP: 422, Exit: 2}
	case Denied:
		return Meaning{Stalled: true, Warning: true, HTTP: 403, Exit: 3}
	case Missing:
		return Meaning{HTTP: 404, Exit: 4}
	case Conflict:
		return Meaning{HTTP: 409, Exit: 5}
	case Later:
		return Meaning{HTTP: 503, Exit: 6}
	default:
		return Meaning{Warning: true, HTTP: 500, Exit: 1}
	}
}
