package tenant

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

// Known is everything that Sync decides by.
type Known struct {
	Now      time.Time
	Registry string
	Guard    Guard
	Allowed  string // the token of deletions that a user allowed; empty if none

	// Blocked is what was reported last as blocked, nil if nothing was. Only that can
	// be allowed. Its token and Since count.
	Blocked *Blocked

	Read      Read
	Templates []TemplateKnown
	Tenants   []Existing        // of this registry
	Taken     map[string]string // names of other Tenants in the namespace, and their owners
	Departed  []Departed

	// From is when the registry was last resumed, or left a dry run. Tenants that
	// leave since an earlier time start again: their rows may have come and gone
	// meanwhile.
	From time.Time

	Digest func(Row) string // what Existing.Row is compared with
}

// Read is the last read of the rows.
type Read struct {
	OK       bool // false: the rows are unknown, and change nothing
	Time     time.Time
	Rows     []Row
	Errors   []RowError
	Total    int    // all rows, those with errors included
	Mark     string // the greatest value of the high-water column
	LastMark string // of the last read that was used
	Notes    []RowNote
}

// TemplateKnown is a template of the registry.
type TemplateKnown struct {
	Name       string
	Generation int64
	Valid      bool // false: it reaches no tenant
	Deleting   bool
	Protected  bool
	Good       int64 // an older generation for new tenants if the newest is invalid; 0 for none
	Rollout    *Rollout
	Resume     string // the annotation that resumes a stopped rollout
}

// Existing is a Tenant object.
type Existing struct {
	ID                  string // of the object: one that is created again under its name has another
	Name, UID, Template string
	Labels              map[string]string

	Row        string    // digest of its row; empty if it is not stored
	Generation int64     // of the template
	Rendered   bool      // created by Tenant Operator: its spec is rendered, and no template
	Changed    time.Time // when it got this generation; zero if it was created with it
	Leaving    *Leaving  // nil if it stays
	Deleting   bool
	Protected  bool
	Tied       bool // Kubernetes deletes it with its registry: an ownerReference names that
	Unowned    bool // no ownerReference names an owner of it

	Ready, Failed bool // of this row, this generation
}

// Leaving says since when a tenant's row asks for its deletion.
type Leaving struct {
	Since   time.Time // when that was read
	Due     time.Time // the first read from then on deletes the tenant; zero if an older version wrote this
	Absent  bool      // the row is missing; otherwise it is inactive
	Allowed bool      // a user allowed it past a guard

	Template bool // it leaves with its template, whatever its row is
}

// Message says what is going to happen to a tenant that leaves, and what prevents it.
func (l Leaving) Message(now time.Time) string {
	if l.Template {
		return "its template is deleted, and the tenant with it"
	}
	what, unless := "its row is inactive", "becomes active again"
	if l.Absent {
		what, unless = "its row is missing", "returns"
	}
	since, due := l.Since.UTC().Format(time.RFC3339), l.Due.UTC().Format(time.RFC3339)
	switch {
	case l.Due.IsZero():
		return fmt.Sprintf("%s since %s; the tenant is deleted after the grace period unless the row %s", what, since, unless)
	case now.Before(l.Due):
		return fmt.Sprintf("%s since %s; the tenant is deleted at %s unless the row %s", what, since, due, unless)
	}
	return fmt.Sprintf("%s since %s; the next read deletes the tenant unless the row %s or a guard blocks the deletion", what, since, unless)
}

// Departed is a row whose tenants were deleted lately, and how often.
type Departed struct {
	UID   string
	Time  time.Time
	Count int
}

// Step is the result of Sync. Its lists are in order of names.
type Step struct {
	Create []Creation
	Change []Change
	Remove []Removal

	Blocked   *Blocked // deletions that are not in Remove because a guard blocks them
	Allowed   bool     // a guard would block deletions, and a user has allowed them
	Protected []string // tenants that would be deleted without their protection
	Kept      []string // tenants whose rows are gone, and which the registry says to keep
	Ignored   string   // why the rows were ignored; empty if they were used
	RowErrors []RowError
	Departed  []Departed
	Rollouts  map[string]RolloutState // by template

	// Desired are the tenants that rows ask for, and the Staying ones: no usable,
	// active row asks for those, and they stay all the same. Their row has an error,
	// or a guard, protection or the registry keeps them. Ready and Failed are among
	// the desired ones; Leaving are not.
	Desired, Staying, Ready, Failed, Leaving int

	Again time.Duration // until the next pass, with or without a read; 0 for none
}

// Creation is a tenant to create.
type Creation struct {
	Name, Template string
	Generation     int64
	Row            Row
	Untied         bool // Kubernetes is not to delete it with its registry
}

// Change is one write to a Tenant; what is zero stays as it is.
type Change struct {
	Name, Template string
	Row            *Row
	Generation     int64
	Leaving        *Leaving // its row asks for its deletion from now on
	Stay           bool     // the last read does not ask for its deletion any more
	Tie            Tie      // whether Kubernetes deletes it with its registry
}

// Removal is a tenant to delete.
type Removal struct {
	Name, UID string
	Reason    string
}

// Reasons of removals.
const (
	RowInactive     = "RowInactive"
	RowAbsent       = "RowAbsent"
	TemplateDeleted = "TemplateDeleted"
)

// syncing is one Sync in progress.
type syncing struct {
	Known
	usable       bool
	rows         map[string]*Row // by uid
	held         map[string]bool // uids, without case, that rows with errors have
	unidentified bool            // a row has no uid
	templates    map[string]*TemplateKnown
	leaving      []candidate
	change       map[string]*Change
	step         Step
}

// Sync decides which tenants of a registry to create, change and delete.
func Sync(k Known) Step {
	s := &syncing{Known: k, rows: map[string]*Row{}, held: map[string]bool{}, templates: map[string]*TemplateKnown{}, change: map[string]*Change{}}
	s.Tenants = slices.SortedFunc(slices.Values(k.Tenants), func(a, b Existing) int { return strings.Compare(a.Name, b.Name) })
	s.Templates = slices.SortedFunc(slices.Values(k.Templates), func(a, b TemplateKnown) int { return strings.Compare(a.Name, b.Name) })
	for i := range s.Templates {
		s.templates[s.Templates[i].Name] = &s.Templates[i]
	}
	s.step.Departed = recent(k.Departed, k.Now)
	s.understand()
	for i := range s.Tenants {
		e := &s.Tenants[i]
		s.restart(e)
		s.tie(e)
		s.compare(e)
	}
	s.depart()
	s.rollOut()
	s.makeNew()
	s.count()
	for _, name := range slices.Sorted(maps.Keys(s.change)) {
		s.step.Change = append(s.step.Change, *s.change[name])
	}
	return s.step
}

// understand finds out whether the rows can be used.
func (s *syncing) understand() {
	r := s.Read
	switch {
	case !r.OK:
		return
	case r.LastMark != "" && r.Total > 0 && older(r.Mark, r.LastMark):
		s.step.Ignored = fmt.Sprintf("the database answered with older data: the high-water mark is %s, after %s in an earlier read", quoted(r.Mark), quoted(r.LastMark))
		return
	}
	s.usable = true
	s.step.RowErrors = slices.Clone(r.Errors)
	for i := range r.Rows {
		s.rows[r.Rows[i].UID] = &r.Rows[i]
	}
	for _, e := range r.Errors {
		s.held[folded(e.UID)] = true
		s.unidentified = s.unidentified || e.UID == ""
	}
}

// restart ends a wait that began before the registry was resumed. A tenant that is
// being deleted, with its template or alone, does not stay for that.
func (s *syncing) restart(e *Existing) {
	t := s.templates[e.Template]
	switch {
	case e.Leaving == nil || e.Deleting || !e.Leaving.Since.Before(s.From):
	case t != nil && t.Deleting:
		e.Leaving = nil
	default:
		s.unmark(e)
	}
}

// compare compares one tenant with its row.
func (s *syncing) compare(e *Existing) {
	t := s.templates[e.Template]
	switch {
	case e.Deleting:
		return
	case t != nil && t.Deleting:
		s.leaving = append(s.leaving, candidate{Existing: e, reason: TemplateDeleted})
		return
	case !s.usable:
		return
	case s.held[folded(e.UID)]:
		s.unmark(e) // its row is there
		return
	}
	row := s.rows[e.UID]
	switch {
	case row == nil && s.Guard.KeepVanished:
		s.unmark(e)
		s.step.Kept = append(s.step.Kept, e.Name)
	case row == nil:
		if s.unidentified && e.Leaving != nil && !e.Leaving.Allowed {
			s.unmark(e) // its row could be the one without a uid
		}
		s.leaving = append(s.leaving, candidate{Existing: e, reason: RowAbsent})
	case !row.Active:
		s.leaving = append(s.leaving, candidate{Existing: e, reason: RowInactive})
	default:
		s.stay(e, t, row)
	}
}

// unmark ends the wait of a tenant whose deletion this read does not ask for. The
// next read that does is the first one again: for the grace period, and for guards.
func (s *syncing) unmark(e *Existing) {
	if e.Leaving != nil {
		s.changeOf(e).Stay = true
		e.Leaving = nil
	}
}

// stay is for a tenant whose row wants it.
func (s *syncing) stay(e *Existing, t *TemplateKnown, row *Row) {
	s.unmark(e)
	if e.Rendered {
		// Its spec holds values of the row: spec and row are replaced together, or not
		// at all.
		if t != nil && t.Valid {
			c := s.changeOf(e)
			c.Row, c.Generation = row, t.Generation
		}
		return
	}
	if e.Row != s.Digest(*row) {
		s.changeOf(e).Row = row
	}
}

func (s *syncing) changeOf(e *Existing) *Change {
	c := s.change[e.Name]
	if c == nil {
		c = &Change{Name: e.Name, Template: e.Template}
		s.change[e.Name] = c
	}
	return c
}

// rollOut gives the newest generation of each template to as many tenants as
// its rollout allows.
func (s *syncing) rollOut() {
	s.step.Rollouts = map[string]RolloutState{}
	for i := range s.Templates {
		t := &s.Templates[i]
		var own []Existing
		for _, e := range s.Tenants {
			if e.Template == t.Name {
				own = append(own, e)
			}
		}
		next, state, again := Advance(*t, own, s.Now)
		s.step.Rollouts[t.Name] = state
		s.again(again)
		if !t.Valid || t.Deleting {
			continue
		}
		for _, name := range next {
			s.changeOf(&s.Tenants[s.index(name)]).Generation = t.Generation
		}
	}
}

func (s *syncing) index(name string) int {
	i, _ := slices.BinarySearchFunc(s.Tenants, name, func(e Existing, name string) int { return strings.Compare(e.Name, name) })
	return i
}

// again keeps the earliest time of the next pass.
func (s *syncing) again(d time.Duration) {
	if d > 0 && (s.step.Again == 0 || d < s.step.Again) {
		s.step.Again = d
	}
}

// tenantName is the name of the Tenant of a row with a template.
func tenantName(uid, template string) string { return uid + "-" + template }

// longestTenant leaves room for RowSecretPrefix before the name of a Tenant.
const longestTenant = longestName - len(RowSecretPrefix)

// makeNew finds rows without tenants. The progress of a rollout does not matter to
// them; after a stopped one they get the last good generation.
func (s *syncing) makeNew() {
	if !s.usable {
		return
	}
	wanted := map[string][]Creation{}
	for _, t := range s.Templates {
		generation := t.Generation
		if t.Good != 0 && (!t.Valid || s.step.Rollouts[t.Name].Phase == RolloutFailed) {
			generation = t.Good
		}
		if t.Deleting || !t.Valid && t.Good == 0 {
			continue
		}
		for _, row := range s.Read.Rows {
			if row.Active {
				name := tenantName(row.UID, t.Name)
				wanted[name] = append(wanted[name], Creation{Name: name, Template: t.Name, Generation: generation, Row: row, Untied: t.Protected})
			}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(wanted)) {
		s.makeOne(name, wanted[name])
	}
	s.step.RowErrors = sortRowErrors(s.step.RowErrors)
}

// makeOne creates the tenant of this name, if it is unambiguous and does not exist.
func (s *syncing) makeOne(name string, wanted []Creation) {
	var there *Existing
	if i := s.index(name); i < len(s.Tenants) && s.Tenants[i].Name == name {
		there = &s.Tenants[i]
	}
	for _, c := range wanted {
		e := RowError{UID: c.Row.UID}
		switch holder, taken := s.Taken[name]; {
		case there != nil && there.UID == c.Row.UID && there.Template == c.Template:
			continue
		case there != nil:
			e.Reason, e.Message = RowTenantConflict, fmt.Sprintf("uid %s with template %s would be the tenant %s, which belongs to uid %s with template %s", quoted(c.Row.UID), c.Template, name, quoted(there.UID), there.Template)
		case len(wanted) > 1:
			e.Reason, e.Message = RowTenantConflict, fmt.Sprintf("uid %s with template %s would be the tenant %s, as another uid with another template would; neither is created", quoted(c.Row.UID), c.Template, name)
		case len(name) > longestTenant:
			e.Reason, e.Message = RowNameTooLong, fmt.Sprintf("uid %s with template %s needs a name of %d characters; the longest has %d", quoted(c.Row.UID), c.Template, len(name), longestTenant)
		case taken:
			e.Reason, e.Message = RowNameTaken, fmt.Sprintf("the tenant %s of uid %s cannot be created: %s has this name", name, quoted(c.Row.UID), holder)
		default:
			s.step.Create = append(s.step.Create, c)
			continue
		}
		s.step.RowErrors = append(s.step.RowErrors, e)
	}
}

// count fills in the counters.
func (s *syncing) count() {
	type pair struct{ uid, template string }
	desired := map[pair]bool{}
	for _, t := range s.Templates {
		for _, r := range s.Read.Rows {
			if r.Active && !t.Deleting {
				desired[pair{r.UID, t.Name}] = true
			}
		}
	}
	leaving := map[string]bool{}
	for _, c := range s.leaving {
		leaving[c.Name] = !c.blocked
	}
	for _, e := range s.Tenants {
		if e.Deleting || leaving[e.Name] || !s.usable && e.Leaving != nil {
			continue
		}
		if of := (pair{e.UID, e.Template}); !desired[of] {
			desired[of] = true
			s.step.Staying++
		}
		switch {
		case e.Ready:
			s.step.Ready++
		case e.Failed:
			s.step.Failed++
		}
	}
	s.step.Desired = len(desired)
}
