package tenant

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"
	"time"
)

// Guard limits what one read may take away.
type Guard struct {
	AllowEmpty   bool
	MaxPercent   int
	MaxCount     int
	Grace        time.Duration
	KeepVanished bool // a row that is not there takes nothing away
}

// Blocked is a set of deletions that waits for somebody to allow it.
type Blocked struct {
	Reason  string
	Message string
	Tenants []string // all of them
	Token   string   // stands for exactly these
}

// Reasons of blocked deletions, the most alarming first.
const (
	NoRows           = "NoRows"           // nothing was read at all
	RowsUnidentified = "RowsUnidentified" // rows without a uid could be those that are missing
	EveryTenant      = "EveryTenant"      // no tenant would be left
	TooManyDeletions = "TooManyDeletions" // more than the guard lets pass
)

// candidate is a tenant that has to go, if the guards let it.
type candidate struct {
	*Existing
	reason  string
	due     bool
	blocked bool // by a guard
	allowed bool // by somebody, although a guard would stop it
}

// noticed reports whether this is new: each tenant is judged by the numbers
// once, together with all that are noticed in the same read.
func (c *candidate) noticed() bool { return c.Leaving == nil }

// depart takes away what may go, marks what has to wait, and blocks the rest.
//
//	row inactive ─ guard ─ grace period ───────────────────── gone
//	row absent ─── guard ─ absent from a later read too, grace ─ gone
//	template deleted ─ guard ──────────────────────────────── gone
func (s *syncing) depart() {
	s.leaving = slices.DeleteFunc(s.leaving, func(c candidate) bool {
		t := s.templates[c.Template]
		protected := c.Protected || t != nil && t.Protected
		if protected {
			s.step.Protected = append(s.step.Protected, c.Name)
		}
		return protected
	})
	for i := range s.leaving {
		s.leaving[i].due = s.isDue(&s.leaving[i])
	}
	if reason, message := s.judge(); reason != "" {
		s.stop(reason, message)
	}
	gone := map[string]bool{}
	for i := range s.leaving {
		c := &s.leaving[i]
		switch {
		case c.blocked:
		case c.due:
			s.step.Remove = append(s.step.Remove, Removal{Name: c.Name, UID: c.UID, Reason: c.reason})
			gone[c.UID] = gone[c.UID] || c.reason != TemplateDeleted
			c.Leaving = cmp.Or(c.Leaving, &Leaving{Since: s.Read.Time}) // no rollout counts on it
		default:
			s.wait(c)
		}
	}
	s.remember(gone)
}

// wait marks a tenant that goes later.
func (s *syncing) wait(c *candidate) {
	s.step.Leaving++
	if c.noticed() {
		c.Leaving = &Leaving{Since: s.Read.Time, Absent: c.reason == RowAbsent, Allowed: c.allowed}
		s.changeOf(c.Existing).Leaving = c.Leaving
	}
	s.again(c.Leaving.Since.Add(s.graceOf(c.UID)).Sub(s.Now))
}

// isDue reports whether the waiting of a candidate is over. An absent row has to
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

// tally is what the numbers of a guard are about. It counts uids: the tenants of
// one row with several templates are one.
type tally struct {
	total   int  // uids that have tenants
	left    int  // those that would have some after this
	noticed int  // those that are found leaving for the first time
	absent  int  // tenants whose rows are not there, and that nobody allowed to go
	byRow   bool // somebody leaves because of a row
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

// judge blocks what a guard stops, and says why. A registry that allows empty
// reads has said that one may take away everything.
func (s *syncing) judge() (reason, message string) {
	t := s.tally()
	empty := s.usable && s.Read.Total == 0
	allowed := empty && s.Guard.AllowEmpty
	if empty && !allowed && s.block((*candidate).unsure) {
		reason, message = NoRows, fmt.Sprintf("a complete read had no rows at all, while there are %s", tenantsOf(t.total))
	}
	if s.unidentified && s.block((*candidate).unsure) {
		reason, message = RowsUnidentified, fmt.Sprintf("the rows of %s are missing while there are rows without a uid", tenantsOf(t.absent))
	}
	if !allowed && t.left == 0 && t.total > 1 && t.byRow && s.block(func(c *candidate) bool { return c.unsure() || c.noticed() }) {
		reason, message = EveryTenant, fmt.Sprintf("not one of %s would be left", tenantsOf(t.total))
	}
	g := s.Guard
	if !allowed && t.noticed > g.MaxCount && 100*t.noticed > g.MaxPercent*t.total && s.block((*candidate).noticed) {
		reason, message = cmp.Or(reason, TooManyDeletions), cmp.Or(message, fmt.Sprintf(
			"%d of %s would go at once, which is more than guard.maxDeletionPercent (%d) and guard.maxDeletions (%d) let pass", t.noticed, tenantsOf(t.total), g.MaxPercent, g.MaxCount))
	}
	return reason, message
}

// unsure reports whether the end of a candidate rests on nothing but absence.
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

// stop names the deletions that are blocked, unless somebody has allowed exactly
// these: then they are let go.
func (s *syncing) stop(reason, message string) {
	var names, these []string
	for _, c := range s.leaving {
		if c.blocked {
			names, these = append(names, c.Name), append(these, c.Name+" "+c.ID)
		}
	}
	token := DeletionToken(s.Registry, these)
	if s.Allowed != token {
		message += fmt.Sprintf("; nothing of that is done. To let exactly this pass, annotate the TenantRegistry with terrier.dev/allow-deletions=%s", token)
		s.step.Blocked = &Blocked{Reason: reason, Message: message, Tenants: names, Token: token}
		return
	}
	for i := range s.leaving {
		c := &s.leaving[i]
		if c.blocked {
			c.blocked, c.allowed = false, true
			c.due = c.due || c.reason == RowAbsent && s.graceOver(c)
		}
	}
}

// DeletionToken stands for exactly the deletion of these tenants of a registry,
// each of them a name and a UID: one that is made again under its name is another.
func DeletionToken(registry string, tenants []string) string {
	tenants = slices.Sorted(slices.Values(tenants))
	sum := sha256.Sum256([]byte(registry + "\n" + strings.Join(tenants, "\n")))
	return hex.EncodeToString(sum[:8])
}

func tenantsOf(n int) string {
	if n == 1 {
		return "1 tenant"
	}
	return fmt.Sprintf("%d tenants", n)
}
