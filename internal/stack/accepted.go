package stack

import (
	"fmt"
	"strings"
	"time"
)

// A user may accept drift: the configuration is to be changed to what is there. Until that change
// is merged, the drift is not enforced away.

// AcceptedMost is how long a stack waits at most for the change of the configuration.
const AcceptedMost = 7 * 24 * time.Hour

// AcceptedDrift is what terrier.dev/accept-drift says: the digest of the plan that would enforce
// the configuration, until when that waits, and a reason.
type AcceptedDrift struct {
	Plan  string
	Until time.Time
	Why   string
}

// String is the value of the annotation.
func (a AcceptedDrift) String() string {
	return strings.TrimSpace(a.Plan + " " + a.Until.UTC().Format(time.RFC3339) + " " + a.Why)
}

// ParseAcceptedDrift reads a value of the annotation; false if it says nothing that can be read.
func ParseAcceptedDrift(text string) (AcceptedDrift, bool) {
	plan, rest, _ := strings.Cut(strings.TrimSpace(text), " ")
	at, why, _ := strings.Cut(strings.TrimSpace(rest), " ")
	until, err := time.Parse(time.RFC3339, at)
	return AcceptedDrift{Plan: plan, Until: until, Why: strings.TrimSpace(why)}, err == nil && plan != ""
}

// accepts reports whether a user accepted the drift that the pending plan would enforce away,
// and the stack still waits for the change of the configuration. An approval of exactly this plan
// counts more.
func accepts(o Observation) (AcceptedDrift, bool) {
	a, ok := ParseAcceptedDrift(o.Spec.AcceptsDrift)
	p := o.Status.Pending
	if !ok || p == nil || o.Status.Drift == nil || !(a.Plan == p.Digest || p.Is(a.Plan)) || o.named() {
		return a, false
	}
	return a, o.Now.Before(a.Until) && !o.Now.Add(AcceptedMost).Before(a.Until)
}

// awaitingChange says that the stack waits for the change of its configuration. Drift is checked
// meanwhile: other drift is another plan, which was not accepted.
func awaitingChange(o Observation) Decision {
	a, _ := accepts(o)
	d := Decision{Action: waitOrCheck(o), Ready: Held, Reason: DriftFound, Message: fmt.Sprintf(
		"Drift accepted: %s. Terrier does not enforce the configuration until %s: merge the change of the configuration before. To enforce it now, %s.",
		o.Status.Drift.Changes, a.Until.UTC().Format(time.RFC3339), approving(o))}
	if a.Why != "" {
		d.Message += " Reason: " + strings.TrimRight(a.Why, ". ") + "."
	}
	if w, waits := d.Action.(Wait); waits {
		d.Action = Wait{min(w.For, max(time.Second, a.Until.Sub(o.Now)))}
	}
	return d
}
