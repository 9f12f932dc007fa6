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
// the configuration, until when that waits, how the configuration is to be changed, and a reason.
type AcceptedDrift struct {
	Plan    string
	Until   time.Time
	Ignored bool // the engine is to ignore the attributes, in place of the configuration having their values
	Why     string
}

// ignoredWay says in the annotation that the user chose ignore_changes.
const ignoredWay = "way=ignore-changes"

// Way is how the configuration is to be changed, for the audit log.
func (a AcceptedDrift) Way() string {
	if a.Ignored {
		return "ignore-changes"
	}
	return "configuration"
}

// String is the value of the annotation.
func (a AcceptedDrift) String() string {
	text := a.Plan + " " + a.Until.UTC().Format(time.RFC3339)
	if a.Ignored {
		text += " " + ignoredWay
	}
	return strings.TrimSpace(text + " " + a.Why)
}

// ParseAcceptedDrift reads a value of the annotation; false if it says nothing that can be read.
func ParseAcceptedDrift(text string) (AcceptedDrift, bool) {
	plan, rest, _ := strings.Cut(strings.TrimSpace(text), " ")
	at, why, _ := strings.Cut(strings.TrimSpace(rest), " ")
	until, err := time.Parse(time.RFC3339, at)
	why = strings.TrimSpace(why)
	way, after, _ := strings.Cut(why, " ")
	if way == ignoredWay {
		why = strings.TrimSpace(after)
	}
	return AcceptedDrift{Plan: plan, Until: until, Ignored: way == ignoredWay, Why: why}, err == nil && plan != ""
}

// accepts reports whether a user accepted the drift that the pending plan would enforce away,
// and the stack still waits for the change of the configuration. An approval of exactly this plan
// counts more.
//
// The digest is the identity of what was accepted. Whether the status calls it drift says nothing:
// a status that was lost, or a plan that was made again, has the same changes without that name. A
// name is of a revision and not of a plan, so that it counts for drift alone.
func accepts(o Observation) (AcceptedDrift, bool) {
	a, ok := ParseAcceptedDrift(o.Spec.AcceptsDrift)
	p := o.Status.Pending
	if !ok || p == nil || o.named() || a.Plan != p.Digest && (o.Status.Drift == nil || !p.Is(a.Plan)) {
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
		o.Status.Pending.Changes, a.Until.UTC().Format(time.RFC3339), approving(o))}
	if a.Why != "" {
		d.Message += " Reason: " + strings.TrimRight(a.Why, ". ") + "."
	}
	if w, waits := d.Action.(Wait); waits {
		d.Action = Wait{min(w.For, max(time.Second, a.Until.Sub(o.Now)))}
	}
	return d
}
