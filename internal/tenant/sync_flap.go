package tenant

import (
	"slices"
	"strings"
	"time"
)

// The tenants of a row that keeps coming and going are deleted later each time,
// since every round creates and destroys all their objects. The first return is
// free.
const (
	flapFirst  = time.Minute
	flapMost   = time.Hour
	flapMemory = 2 * time.Hour // without a departure until nothing is remembered
	flapRows   = 100           // kept at once, the latest
)

// graceOf is how long a row must ask for the deletion of its tenants.
func (s *syncing) graceOf(uid string) time.Duration {
	grace := s.Guard.Grace
	for _, d := range s.step.Departed {
		if d.UID == uid && d.Count > 1 {
			grace = max(grace, min(flapMost, flapFirst<<min(d.Count-2, 10)))
		}
	}
	return grace
}

// recent drops departures that are too old to mean anything.
func recent(all []Departed, now time.Time) []Departed {
	return slices.DeleteFunc(slices.Clone(all), func(d Departed) bool { return now.Sub(d.Time) > flapMemory })
}

// remember records the rows in gone as departed.
func (s *syncing) remember(gone map[string]bool) {
	var all []Departed
	for _, d := range s.step.Departed {
		if gone[d.UID] {
			d.Time = s.Now
			d.Count++
			delete(gone, d.UID)
		}
		all = append(all, d)
	}
	for uid, went := range gone {
		if went {
			all = append(all, Departed{UID: uid, Time: s.Now, Count: 1})
		}
	}
	slices.SortFunc(all, func(a, b Departed) int {
		if c := b.Time.Compare(a.Time); c != 0 {
			return c
		}
		return strings.Compare(a.UID, b.UID)
	})
	s.step.Departed = all[:min(len(all), flapRows)]
}
