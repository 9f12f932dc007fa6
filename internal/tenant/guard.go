package tenant

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/terrier-iac/terrier/internal/plural"
)

// Guard limits the deletions of one read.
type Guard struct {
	AllowEmpty   bool
	MaxPercent   int
	MaxCount     int
	Grace        time.Duration
	KeepVanished bool // a missing row deletes nothing
}

// Blocked is a set of deletions that a guard blocks until a user allows it.
type Blocked struct {
	Reason  string
	Message string
	Tenants []string // all of them
	Token   string   // allows exactly these, until they are blocked another time

	// Since is when exactly these were first blocked, in whole seconds of UTC; zero for
	// a set that no token allows.
	Since time.Time
}

// Reasons of blocked deletions, the most alarming first.
const (
	NoRows           = "NoRows"           // the query returned no rows
	RowsUnidentified = "RowsUnidentified" // rows without a uid could be the missing ones
	EveryTenant      = "EveryTenant"      // no tenant would be left
	TooManyDeletions = "TooManyDeletions" // more than the guard allows
)

// candidate is a tenant that is to be deleted, if the guards allow it.
type candidate struct {
	*Existing
	reason  string
	due     bool
	blocked bool // by a guard
	allowed bool // by a user, although a guard blocks it
}

// noticed reports whether this read is the first to find the candidate: the
// numbers of a guard count each tenant once, together with the others of the same
// read.
func (c *candidate) noticed() bool { return c.Leaving == nil }

// depart deletes the candidates that may go, marks those that have to wait, and
// blocks the rest.
//
//	row inactive ─ guard ─ grace period ───────────────────── gone
//	row absent ─── guard ─ absent from a later read too, grace ─ gone
//	template deleted ─ guard ──────────────────────────────── gone
func (s *syncing) depart() {
	s.leaving = slices.DeleteFunc(s.leaving, func(c candidate) bool {
		if !s.protects(c.Existing) {
			return false
		}
		s.step.Protected = append(s.step.Protected, c.Name)
		return true
	})
	for i := range s.leaving {
		s.leaving[i].due = s.isDue(&s.leaving[i])
	}
	if reason, message := s.checkGuards(); reason != "" {
		s.blockUnlessAllowed(reason, message)
	}
	gone := map[string]bool{}
	for i := range s.leaving {
		c := &s.leaving[i]
		switch {
		case c.blocked:
		case c.due:
			s.step.Remove = append(s.step.Remove, Removal{Name: c.Name, UID: c.UID, Reason: c.reason})
			gone[c.UID] = gone[c.UID] || c.reason != TemplateDeleted
			if c.allowed {
				s.mark(c) // the permission is used up, and the API server may refuse the deletion
			}
			c.Leaving = cmp.Or(c.Leaving, &Leaving{Since: s.Read.Time}) // no rollout counts it
		default:
			s.wait(c)
		}
	}
	s.remember(gone)
}

// leavingPrecision is that of stored times.
const leavingPrecision = time.Microsecond

// wait marks a tenant that is deleted later.
func (s *syncing) wait(c *candidate) {
	s.step.Leaving++
	s.mark(c)
	s.again(c.Leaving.Due.Sub(s.Now))
}

// mark marks a tenant as leaving, unless it is marked so already.
func (s *syncing) mark(c *candidate) {
	l := Leaving{Since: s.Read.Time, Absent: c.reason == RowAbsent, Template: c.reason == TemplateDeleted}
	switch {
	case c.Leaving != nil:
		l = *c.Leaving
	case l.Since.IsZero(): // the deletion of a template needs no read
		l.Since = s.Now
	}
	l.Allowed = l.Allowed || c.allowed
	l.Due = l.Since.Add(s.graceOf(c.UID)).Truncate(leavingPrecision)
	if c.Leaving == nil || !c.Leaving.Due.Equal(l.Due) || c.Leaving.Allowed != l.Allowed {
		c.Leaving = &l
		change := s.changeOf(c.Existing)
		change.Leaving, change.Stay = c.Leaving, false
	}
}

// isDue reports whether a candidate has waited long enough. An absent row has to
// be absent from a later read as well.
func (s *syncing) isDue(c *candidate) bool {
	switch c.reason {
	case TemplateDeleted:
		return true
	case RowAbsent:
		return c.Leaving != nil && s.Read.Time.After(c.Leaving.Since) && s.graceOver(c)
	}
	return s.graceOver(c)
}

func (s *syncing) graceOver(c *candidate) bool {
	since := s.Read.Time
	if c.Leaving != nil {
		since = c.Leaving.Since
	}
	return !s.Read.Time.Before(since.Add(s.graceOf(c.UID)))
}

// tally has the numbers that guards limit. It counts uids: the tenants of one row
// with several templates are one.
type tally struct {
	total   int  // uids that have tenants
	left    int  // uids that would still have tenants after this read
	noticed int  // uids that this read finds leaving for the first time
	absent  int  // tenants whose rows are missing, and whose deletion no user allowed
	byRow   bool // a tenant leaves because of its row
}

func (s *syncing) tally() tally {
	tenants, noticed := map[string]int{}, map[string]bool{}
	for _, e := range s.Tenants {
		if !e.Deleting {
			tenants[e.UID]++
		}
	}
	t := tally{total: len(tenants)}
	for i := range s.leaving {
		c := &s.leaving[i]
		tenants[c.UID]--
		t.byRow = t.byRow || c.reason != TemplateDeleted
		if c.noticed() {
			noticed[c.UID] = true
		}
		if c.unsure() {
			t.absent++
		}
	}
	for _, n := range tenants {
		if n > 0 {
			t.left++
		}
	}
	t.noticed = len(noticed)
	return t
}

// checkGuards blocks the candidates that a guard stops, and says why. A registry
// that allows empty reads allows one to delete everything.
func (s *syncing) checkGuards() (reason, message string) {
	t := s.tally()
	empty := s.usable && s.Read.Total == 0
	allowed := empty && s.Guard.AllowEmpty
	if empty && !allowed && s.block((*candidate).unsure) {
		reason, message = NoRows, fmt.Sprintf("the query returned no rows, while there are %s", tenantsOf(t.total))
	}
	if s.unidentified && s.block((*candidate).unsure) {
		reason, message = RowsUnidentified, fmt.Sprintf("the rows of %s are missing, while other rows have no uid", tenantsOf(t.absent))
	}
	if !allowed && t.left == 0 && t.total > 1 && t.byRow && s.block(func(c *candidate) bool { return c.unsure() || c.noticed() }) {
		reason, message = EveryTenant, fmt.Sprintf("none of %s would be left", tenantsOf(t.total))
	}
	g := s.Guard
	if !allowed && t.noticed > g.MaxCount && 100*t.noticed > g.MaxPercent*t.total && s.block((*candidate).noticed) {
		reason, message = cmp.Or(reason, TooManyDeletions), cmp.Or(message, fmt.Sprintf(
			"%d of %s would be deleted at once, more than guard.maxDeletionPercent (%d) and guard.maxDeletions (%d) allow", t.noticed, tenantsOf(t.total), g.MaxPercent, g.MaxCount))
	}
	return reason, message
}

// unsure reports whether a candidate leaves only because its row is missing.
func (c *candidate) unsure() bool {
	return c.reason == RowAbsent && (c.Leaving == nil || !c.Leaving.Allowed)
}

// block stops all candidates that match, and reports whether there are any that
// were not stopped already.
func (s *syncing) block(match func(*candidate) bool) bool {
	any := false
	for i := range s.leaving {
		c := &s.leaving[i]
		if !c.blocked && match(c) {
			c.blocked, any = true, true
		}
	}
	return any
}

// blockUnlessAllowed names the blocked deletions, unless exactly these were reported as
// blocked, and a user has allowed them since: then they are deleted. A permission is for
// once. The annotation stays, and the same set that is blocked another time has another
// token.
func (s *syncing) blockUnlessAllowed(reason, message string) {
	var names, these []string
	for _, c := range s.leaving {
		if c.blocked {
			names, these = append(names, c.Name), append(these, c.Name+" "+c.ID)
		}
	}
	since, shown := s.Now.UTC().Truncate(time.Second), false
	if b := s.Known.Blocked; b != nil && b.Token == deletionToken(s.Registry, these, b.Since) {
		since, shown = b.Since, true
	}
	token := deletionToken(s.Registry, these, since)
	if !shown || s.Allowed != token {
		message += fmt.Sprintf("; a guard blocks these deletions. To allow exactly these, annotate the TenantRegistry with terrier.dev/allow-deletions=%s", token)
		s.step.Blocked = &Blocked{Reason: reason, Message: message, Tenants: names, Token: token, Since: since}
		return
	}
	s.step.Allowed = true
	for i := range s.leaving {
		c := &s.leaving[i]
		if c.blocked {
			c.blocked, c.allowed = false, true
			c.due = c.due || c.reason == RowAbsent && s.graceOver(c)
		}
	}
}

// deletionToken allows exactly the deletion of these tenants of a registry, each
// of them a name and a UID: a tenant that is created again under its name has
// another UID. They are blocked since a time, in whole seconds.
func deletionToken(registry string, tenants []string, since time.Time) string {
	tenants = slices.Sorted(slices.Values(tenants))
	sum := sha256.Sum256([]byte(registry + "\n" + since.UTC().Format(time.RFC3339) + "\n" + strings.Join(tenants, "\n")))
	return hex.EncodeToString(sum[:8])
}

func tenantsOf(n int) string { return plural.Count(n, "tenant") }
