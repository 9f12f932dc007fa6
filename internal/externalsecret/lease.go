package externalsecret

import (
	"fmt"
	"time"

	"github.com/terrier-iac/terrier/internal/fault"
)

// GraceAnnotation of an ExternalSecret says how long credentials that were replaced can still be
// used, as a duration.
const GraceAnnotation = "terrier.dev/lease-grace"

// skew is by how much the clocks of two controllers may differ.
const skew = 5 * time.Second

// Bounds of the grace.
const (
	defaultGrace = 10 * time.Minute
	longestGrace = 24 * time.Hour
)

// Grace is how long credentials that were replaced can still be used, so that the workloads
// that have them can be restarted.
func Grace(annotations map[string]string) (time.Duration, error) {
	text, ok := annotations[GraceAnnotation]
	if !ok {
		return defaultGrace, nil
	}
	d, err := time.ParseDuration(text)
	if err != nil || d < 0 || d > longestGrace {
		return defaultGrace, invalid("the annotation %s is %.40q, which is no duration of at most %s: write 10m", GraceAnnotation, text, longestGrace)
	}
	return d, nil
}

// CheckMade reports what does not go together with secrets that the server makes for each
// reading: these are renewed, replaced and revoked, whatever the interval.
func (s Spec) CheckMade() error {
	switch {
	case s.Target.CreationPolicy == None:
		return invalid("spec.target.creationPolicy is None, and the secrets are made for each reading, so nothing would have them: use Owner, Orphan or Merge")
	case s.RefreshPolicy != Periodic:
		return invalid("spec.refreshPolicy is %s, and the secrets are made for each reading and end by themselves: use Periodic", s.RefreshPolicy)
	}
	return nil
}

// Mixed is the error about an object that names secrets that stay besides such that are made.
func Mixed(stays, made Read) error {
	return invalid("the object names %s, which stays, and %s, which the server makes for each reading: write an ExternalSecret of its own for one of them", stays, made)
}

// Stays reports whether the Secret, or what the object has written of it, stays when the object
// is deleted.
func (t Target) Stays() bool { return t.CreationPolicy == Orphan || t.CreationPolicy == Merge }

// Handout is when something that a server made for a Secret ends. The zero Handout never does.
type Handout struct {
	Began   time.Time     `json:"began"`
	Renewed time.Time     `json:"renewed,omitzero"` // last
	Life    time.Duration `json:"life,omitempty"`   // of the part that lasts shortest, when it was made
	Until   time.Time     `json:"until,omitzero"`   // the first of what can be renewed ends then
	Fixed   time.Time     `json:"fixed,omitzero"`   // the first of what cannot be renewed ends then
}

// Lasts notes that a part of it ends after a while; 0 is never.
func (h *Handout) Lasts(now time.Time, long time.Duration, renewable bool) {
	if long <= 0 {
		return
	}
	end := &h.Fixed
	if renewable {
		end = &h.Until
	}
	if at := now.Add(long); end.IsZero() || at.Before(*end) {
		*end = at
	}
	if h.Renewed.IsZero() && (h.Life == 0 || long < h.Life) {
		h.Life = long
	}
}

// Again begins to note for how long what can be renewed lasts from now on.
func (h *Handout) Again(now time.Time) { h.Renewed, h.Until = now, time.Time{} }

// End is when the first part of it ends; zero if none does.
func (h Handout) End() time.Time {
	if h.Until.IsZero() || !h.Fixed.IsZero() && h.Fixed.Before(h.Until) {
		return h.Fixed
	}
	return h.Until
}

// Step is what is done with a handout.
type Step string

// The steps.
const (
	Hold    Step = "hold"
	Renew   Step = "renew"
	Replace Step = "replace" // by another one
)

// Next says what is to be done now, and with Hold when the next step is due; zero if none is.
// It is renewed at two thirds of the time from the last renewal to its end. One that cannot be
// renewed, or was not renewed for as long as it was made, since the server lets it last no
// longer, is replaced then, and earlier if less than the grace would be left.
//
// Before it began the clock was set back, and does not say how much of it is left: what
// can be renewed is renewed at once, and everything else is replaced. Clocks of two machines
// may differ by a little.
func (h Handout) Next(now time.Time, grace time.Duration) (Step, time.Time) {
	began, end := h.Began, h.End()
	if !h.Renewed.IsZero() {
		began = h.Renewed
	}
	switch {
	case end.IsZero():
		return Hold, time.Time{}
	case now.Add(skew).Before(began) && h.Fixed.IsZero():
		return Renew, now
	case now.Add(skew).Before(began):
		return Replace, now
	}
	left := end.Sub(began)
	step, at := Renew, began.Add(left*2/3)
	if h.Until.IsZero() || !end.Equal(h.Until) || left < h.Life*9/10 {
		step = Replace
		if before := end.Add(-h.grace(grace)); before.Before(at) {
			at = before
		}
	}
	if now.Before(at) {
		return Hold, at
	}
	return step, at
}

// IsLate reports whether one that could not be renewed is replaced: half of the time from two
// thirds of its life on is for attempts to renew it, and the rest for workloads.
func (h Handout) IsLate(now time.Time, grace time.Duration) bool {
	end := h.End()
	return !end.IsZero() && !now.Before(end.Add(-min(grace, h.Life/6)))
}

// grace is bounded by what is left when it is renewed.
func (h Handout) grace(grace time.Duration) time.Duration { return min(grace, h.Life/3) }

// RetryBy is when to try again at the latest after a step that failed: before a quarter of what
// is left is over. It is zero once it has ended, when haste saves nothing.
func (h Handout) RetryBy(now time.Time) time.Time {
	const least = 5 * time.Second
	end := h.End()
	if end.IsZero() || !now.Before(end) {
		return time.Time{}
	}
	return now.Add(max(min(end.Sub(now), h.Life)/4, least))
}

// TooMany is the error about an object whose former credentials wait for their end.
func TooMany(n int) error {
	return fault.New(fault.Later, ReasonLeases, fmt.Errorf("%d credentials that the Secret had wait to be revoked, so none is made yet: the next one is made when the first of these has ended. The annotation %s shortens the wait", n, GraceAnnotation))
}
